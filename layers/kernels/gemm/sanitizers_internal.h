/* sanitizers_internal.h - reports memory that a function reads and writes to sanitizers, in one call: for code
 * invisible to them, such as a library, or slow to check element by element. Empty in builds without sanitizers. */
#ifndef SL_LAYERS_KERNELS_GEMM_SANITIZERS_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_SANITIZERS_INTERNAL_H

#include <stddef.h>

#ifdef __has_feature /* clang's form of gcc's macros */
#if __has_feature(thread_sanitizer)
#define SL_THREAD_SANITIZER
#endif
#if __has_feature(address_sanitizer)
#define SL_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SL_THREAD_SANITIZER
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SL_ADDRESS_SANITIZER
#endif

#if defined(SL_THREAD_SANITIZER)

enum { SL_SANITIZED = 1 };

void __tsan_read_range(void *memory, unsigned long bytes);
void __tsan_write_range(void *memory, unsigned long bytes);

static inline void sl_will_read(const void *memory, size_t bytes) { __tsan_read_range((void *)memory, bytes); }
static inline void sl_will_write(void *memory, size_t bytes) { __tsan_write_range(memory, bytes); }

#elif defined(SL_ADDRESS_SANITIZER)

enum { SL_SANITIZED = 1 };

void *__asan_region_is_poisoned(void *memory, size_t bytes);

/* Reads the first forbidden byte, so that the sanitizer reports it. */
static inline void sl_will_read(const void *memory, size_t bytes) {
    const volatile char *bad = __asan_region_is_poisoned((void *)memory, bytes);
    if (bad) (void)*bad;
}
static inline void sl_will_write(void *memory, size_t bytes) {
    volatile char *bad = __asan_region_is_poisoned(memory, bytes);
    if (bad) *bad = 0;
}

#else

enum { SL_SANITIZED = 0 };

static inline void sl_will_read(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
static inline void sl_will_write(void *memory, size_t bytes) { (void)memory, (void)bytes; }

#endif
#endif
