/* faults.h - makes one call fail among all calls that allocate memory or read files. The linker redirects the calls of
 * this program's own objects to here. Its tests are listed in tests/CMakeLists.txt (sl_fault_calls).
 *
 * A series (faults_series) first runs the tested code without a fault and notes the places that make calls. Then it
 * repeats the run; in each run another call fails. If one place makes many calls, the first and the last fail, and some
 * between them. */
#ifndef SL_TESTS_RIGS_FAULTS_H
#define SL_TESTS_RIGS_FAULTS_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

enum faults_way { FAULTS_FAIL, FAULTS_INTERRUPT, FAULTS_SHORTEN, FAULTS_WAYS }; /* the last two: of reads */
enum { FAULTS_PLACES = 1 << 12, FAULTS_CALLS = 1 << 16, FAULTS_BETWEEN = 24, FAULTS_EACH = 48 };

struct faults_place {
    const void *caller;
    long first, last;
};

static struct {
    bool on; /* calls are counted */
    enum faults_way way;
    long count, nth; /* nth: number of the call that fails; 0: none */
    bool fell;       /* it failed */
    const void *bad; /* a stream: ferror and gzerror report an error for it */
    int places;
    struct faults_place place[FAULTS_PLACES];
    bool reads[FAULTS_CALLS]; /* [call] it is a read */
} faults;

static inline void faults_note(const void *caller) {
    int i = 0;
    while (i < faults.places && faults.place[i].caller != caller) i++;
    if (i == FAULTS_PLACES) return;
    if (i == faults.places) faults.place[faults.places++] = (struct faults_place){caller, faults.count, 0};
    faults.place[i].last = faults.count;
}

/* Returns whether the call from CALLER is the one that fails. READS: it is a read, so the other ways of failing apply
 * to it too. */
static inline bool faults_strike(const void *caller, bool reads, int number) {
    if (!faults.on) return false;
    faults.count++;
    if (!faults.nth) faults_note(caller);
    if (!faults.nth && faults.count < FAULTS_CALLS) faults.reads[faults.count] = reads;
    if (faults.count != faults.nth || (faults.way != FAULTS_FAIL && !reads)) return false;
    faults.fell = true;
    errno = faults.way == FAULTS_INTERRUPT ? EINTR : number;
    return true;
}
#define FAULTS_STRIKE(reads, number) faults_strike(__builtin_return_address(0), reads, number)

/* ---- memory ---- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t number, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
FILE *__real_open_memstream(char **text, size_t *size);
FILE *__real_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t number, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mremap(void *address, size_t bytes, size_t wanted, int flags, ...);
FILE *__wrap_open_memstream(char **text, size_t *size);
FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions);

void *__wrap_malloc(size_t size) { return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t number, size_t size) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_calloc(number, size);
}
void *__wrap_realloc(void *memory, size_t size) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_realloc(memory, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_aligned_alloc(alignment, size);
}
char *__wrap_strdup(const char *text) { return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_strdup(text); }
int __wrap_asprintf(char **text, const char *format, ...) {
    va_list list;
    if (FAULTS_STRIKE(false, ENOMEM)) return -1;
    va_start(list, format);
    const int length = vasprintf(text, format, list);
    va_end(list);
    return length;
}
void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    return FAULTS_STRIKE(false, ENOMEM) ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, file, offset);
}
void *__real_mremap(void *address, size_t bytes, size_t wanted, int flags, ...);
void *__wrap_mremap(void *address, size_t bytes, size_t wanted, int flags, ...) { /* callers here pass no new address */
    return FAULTS_STRIKE(false, ENOMEM) ? MAP_FAILED : __real_mremap(address, bytes, wanted, flags);
}
FILE *__wrap_open_memstream(char **text, size_t *size) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_open_memstream(text, size);
}

FILE *__wrap_fopencookie(void *cookie, const char *mode, cookie_io_functions_t functions) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_fopencookie(cookie, mode, functions);
}

/* Library functions that allocate memory for their states. */
void *__real_XXH3_createState(void);
void *__wrap_XXH3_createState(void);
int __real_inflateInit2_(z_stream *stream, int bits, const char *version, int size);
int __wrap_inflateInit2_(z_stream *stream, int bits, const char *version, int size);

void *__wrap_XXH3_createState(void) { return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_XXH3_createState(); }
int __wrap_inflateInit2_(z_stream *stream, int bits, const char *version, int size) {
    return FAULTS_STRIKE(false, ENOMEM) ? Z_MEM_ERROR : __real_inflateInit2_(stream, bits, version, size);
}

/* ---- files ---- */

ssize_t __real_read(int file, void *data, size_t bytes);
size_t __real_fread(void *data, size_t size, size_t number, FILE *file);
int __real_ferror(FILE *file);
int __real_getc(FILE *file);
ssize_t __real_getline(char **line, size_t *size, FILE *file);
ssize_t __real___getdelim(char **line, size_t *size, int end, FILE *file);
gzFile __real_gzopen(const char *path, const char *mode);
int __real_gzread(gzFile file, void *data, unsigned bytes);
const char *__real_gzerror(gzFile file, int *number);
int __real_fstat(int file, struct stat *about);
FILE *__real_fdopen(int file, const char *mode);
ssize_t __wrap_read(int file, void *data, size_t bytes);
size_t __wrap_fread(void *data, size_t size, size_t number, FILE *file);
int __wrap_ferror(FILE *file);
int __wrap_getc(FILE *file);
ssize_t __wrap_getline(char **line, size_t *size, FILE *file);
ssize_t __wrap___getdelim(char **line, size_t *size, int end, FILE *file);
gzFile __wrap_gzopen(const char *path, const char *mode);
int __wrap_gzread(gzFile file, void *data, unsigned bytes);
const char *__wrap_gzerror(gzFile file, int *number);
int __wrap_fstat(int file, struct stat *about);
FILE *__wrap_fdopen(int file, const char *mode);

ssize_t __wrap_read(int file, void *data, size_t bytes) {
    if (!FAULTS_STRIKE(true, EIO)) return __real_read(file, data, bytes);
    return faults.way == FAULTS_SHORTEN ? 0 : -1;
}
size_t __wrap_fread(void *data, size_t size, size_t number, FILE *file) {
    if (!FAULTS_STRIKE(true, EIO)) return __real_fread(data, size, number, file);
    if (faults.way != FAULTS_SHORTEN) faults.bad = file;
    return 0;
}
int __wrap_ferror(FILE *file) { return faults.bad == file || __real_ferror(file); }
int __wrap_getc(FILE *file) {
    if (!FAULTS_STRIKE(true, EIO)) return __real_getc(file);
    if (faults.way != FAULTS_SHORTEN) faults.bad = file;
    return EOF;
}
ssize_t __wrap_getline(char **line, size_t *size, FILE *file) {
    if (!FAULTS_STRIKE(true, EIO)) return __real_getline(line, size, file);
    if (faults.way != FAULTS_SHORTEN) faults.bad = file;
    return -1;
}
ssize_t __wrap___getdelim(char **line, size_t *size, int end, FILE *file) { /* a compiler may replace getline by it */
    return end == '\n' ? __wrap_getline(line, size, file) : __real___getdelim(line, size, end, file);
}
gzFile __wrap_gzopen(const char *path, const char *mode) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_gzopen(path, mode);
}
int __wrap_gzread(gzFile file, void *data, unsigned bytes) {
    if (!FAULTS_STRIKE(false, EIO)) return __real_gzread(file, data, bytes);
    faults.bad = file;
    return -1;
}
const char *__wrap_gzerror(gzFile file, int *number) {
    if (faults.bad != file) return __real_gzerror(file, number);
    *number = Z_ERRNO;
    return "file: an I/O error";
}
int __wrap_fstat(int file, struct stat *about) { return FAULTS_STRIKE(false, EIO) ? -1 : __real_fstat(file, about); }
FILE *__wrap_fdopen(int file, const char *mode) {
    return FAULTS_STRIKE(false, ENOMEM) ? NULL : __real_fdopen(file, mode);
}

/* ---- series ---- */

static inline void faults_begin(enum faults_way way, long nth) {
    faults.way = way, faults.nth = nth, faults.count = 0, faults.fell = false, faults.bad = NULL;
    faults.on = true;
}

static inline void faults_end(void) {
    faults.on = false;
    faults.bad = NULL;
    errno = 0;
}

/* Returns whether call NTH of COUNT is to fail in a run of its own. */
static inline bool faults_choose(long nth, long count) {
    bool chosen = nth <= FAULTS_EACH || nth * FAULTS_BETWEEN / count != (nth - 1) * FAULTS_BETWEEN / count;
    for (int i = 0; i < faults.places && !chosen; i++)
        chosen = nth == faults.place[i].first || nth == faults.place[i].last;
    return chosen;
}

/* Calls RUN(ARG) for each call and each way of failing; RUN calls faults_begin and faults_end around the tested code.
 * Returns how many calls have failed. */
static inline long faults_series(void (*run)(enum faults_way way, long nth, void *arg), void *arg) {
    long fell = 0;
    faults.places = 0;
    run(FAULTS_FAIL, 0, arg);
    const long count = faults.count;
    for (int way = 0; way < FAULTS_WAYS; way++) {
        for (long nth = 1; nth <= count; nth++) {
            if (!faults_choose(nth, count) || (way != FAULTS_FAIL && (nth >= FAULTS_CALLS || !faults.reads[nth])))
                continue;
            run((enum faults_way)way, nth, arg);
            fell += faults.fell;
        }
    }
    return fell;
}

#endif
