/* sanitizers_internal.h - what a function reads and writes, told to sanitizers at once: for what they do not see, as in
 * a library, or what an element at a time would take them long. Without them it is nothing. */
#ifndef SL_LAYERS_KERNELS_SANITIZERS_INTERNAL_H
#define SL_LAYERS_KERNELS_SANITIZERS_INTERNAL_H

#include <stddef.h>

#ifdef __has_feature /* clang's way to say what gcc says by macros */
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

/* The first byte that must not be read is read here, and reported. */
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
