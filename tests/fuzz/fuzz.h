/* fuzz.h - helpers of all harnesses. A harness is a file fuzz_NAME.c with one function, LLVMFuzzerTestOneInput, which
 * passes any bytes to a parser and aborts if a promise is broken.
 *
 * It is linked twice: with run_seeds.c, as a test, and in the preset fuzz with libFuzzer. */
#ifndef SL_TESTS_FUZZ_FUZZ_H
#define SL_TESTS_FUZZ_FUZZ_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spmd/base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process if CONDITION, a promise of a parser, is false. */
#define FUZZ_PROMISE(condition, ...)                                                                                   \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: broken: %s: ", __FILE__, __LINE__, #condition);                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks the promise of every refusal: a status, and one line of text without control characters. */
static inline void fuzz_refused(int status, const struct sl_error *error) {
    FUZZ_PROMISE(status == SL_BAD_INPUT, "status %d: %s", status, error->message);
    FUZZ_PROMISE(error->status == status, "status %d, the error has %d", status, error->status);
    FUZZ_PROMISE(error->message[0], "no line");
    for (const char *c = error->message; *c; c++)
        FUZZ_PROMISE((unsigned char)*c >= ' ' && *c != 0x7f, "byte %02x in: %s", (unsigned char)*c, error->message);
}

/* Returns the path of file number I, which holds SIZE bytes and lies in memory. */
static inline const char *fuzz_file(int i, const void *data, size_t size) {
    enum { FILES = 4 };
    static int descriptor[FILES];
    static char path[FILES][64];
    if (!descriptor[i]) {
        descriptor[i] = memfd_create("input", MFD_CLOEXEC);
        snprintf(path[i], sizeof path[i], "/proc/self/fd/%d", descriptor[i]);
    }
    FUZZ_PROMISE(!ftruncate(descriptor[i], 0) && pwrite(descriptor[i], data, size, 0) == (ssize_t)size, "memory");
    return path[i];
}

/* Makes a new DIRECTORY for the harness NAME, in memory if possible. */
static inline void fuzz_directory(char directory[64], const char *name) {
    snprintf(directory, 64, "%s/%s.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", name);
    FUZZ_PROMISE(mkdtemp(directory), "%s", directory);
}

static inline void fuzz_put(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    FUZZ_PROMISE(file && fwrite(data, 1, size, file) == size && !fclose(file), "%s", path);
}

/* Changes the file: each three bytes are a position and a mask of bits to flip. Returns whether the file differs from
 * before. */
static inline bool fuzz_change(const char *path, const uint8_t *data, size_t size) {
    static uint8_t file[4096], was[4096];
    FILE *stream = fopen(path, "rb");
    FUZZ_PROMISE(stream, "%s", path);
    const size_t length = fread(file, 1, sizeof file, stream);
    fclose(stream);
    memcpy(was, file, length);
    for (size_t i = 0; i + 2 < size; i += 3) file[(data[i] | (size_t)data[i + 1] << 8) % length] ^= data[i + 2];
    fuzz_put(path, file, length);
    return memcmp(file, was, length) != 0;
}

/* Returns a stream to /dev/null. */
static inline FILE *fuzz_nowhere(void) {
    static FILE *file;
    if (!file) file = fopen("/dev/null", "w");
    FUZZ_PROMISE(file, "/dev/null");
    return file;
}

/* Returns a copy of the bytes with a zero at the end. The caller frees it. */
static inline char *fuzz_text(const void *data, size_t size) {
    char *text = malloc(size + 1);
    FUZZ_PROMISE(text, "memory");
    if (size) memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
