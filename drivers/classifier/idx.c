/* idx.c - arrays of bytes in the IDX format. */
#include "drivers/classifier/idx.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* A file being read. A header may claim any size: at most MAX_BYTES are allocated, and only as bytes arrive. */
enum { MAX_BYTES = 1 << 30, FIRST_BYTES = 1 << 20, WORD = 4 };

struct reader {
    gzFile file;
    char path[PATH_MAX];
    struct sl_error *error;
};

/* Reads up to SIZE bytes into *GOT of them, and reports zlib's errors, such as a damaged file (its message names the
 * path). */
static int read_some(struct reader *reader, void *bytes, uint32_t size, uint32_t *got) {
    const int count = gzread(reader->file, bytes, size);
    int code;
    const char *const message = gzerror(reader->file, &code);
    if (code != Z_OK) return sl_error_set(reader->error, SL_BAD_INPUT, "%s", message);
    *got = (uint32_t)count;
    return SL_OK;
}

static int ends_early(struct reader *reader, const char *what, uint32_t got, uint32_t size) {
    return sl_error_set(reader->error, SL_BAD_INPUT, "%s: ends within its %s (%u of %u bytes)", reader->path, what, got,
                        size);
}

/* Reads SIZE bytes; WHAT names them in the error if there are fewer. */
static int read_exactly(struct reader *reader, void *bytes, uint32_t size, const char *what) {
    uint32_t got = 0;
    SL_TRY(read_some(reader, bytes, size, &got));
    return got == size ? SL_OK : ends_early(reader, what, got, size);
}

/* Checks for the end of the file; in a compressed file this verifies the checksum. */
static int read_end(struct reader *reader) {
    char extra;
    uint32_t got = 0;
    SL_TRY(read_some(reader, &extra, 1, &got));
    if (got == 0) return SL_OK;
    return sl_error_set(reader->error, SL_BAD_INPUT, "%s: goes on after the bytes that its header asks for",
                        reader->path);
}

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int read_header(struct reader *reader, int dims, uint32_t *shape) {
    uint8_t header[WORD * (1 + CLASSIFIER_IDX_DIMS)];
    SL_TRY(read_exactly(reader, header, (uint32_t)(WORD * (1 + dims)), "header"));
    const uint32_t magic = big_endian(header), expected = 0x800u + (uint32_t)dims;
    if (magic != expected) {
        return sl_error_set(reader->error, SL_BAD_INPUT, "%s: has the magic number 0x%08x, not 0x%08x", reader->path,
                            magic, expected);
    }
    uint64_t bytes = 1;
    for (int i = 0; i < dims; i++) {
        shape[i] = big_endian(header + WORD * (1 + i));
        bytes *= shape[i];
        if (shape[i] == 0 || bytes > MAX_BYTES) {
            return sl_error_set(reader->error, SL_BAD_INPUT, "%s: its header asks for %s bytes, not 1 to %d",
                                reader->path, shape[i] ? "more" : "no", MAX_BYTES);
        }
    }
    return SL_OK;
}

/* Reads BYTES bytes, doubling the buffer. */
static int read_data(struct reader *reader, struct classifier_idx *idx, uint32_t bytes) {
    for (uint32_t got = 0, more = 0, wanted; got < bytes; got += more) {
        wanted = got > FIRST_BYTES ? got : FIRST_BYTES;
        if (wanted > bytes - got) wanted = bytes - got;
        uint8_t *grown = realloc(idx->data, got + wanted);
        if (!grown) return sl_error_set(reader->error, SL_FAILED, "%s: out of memory", reader->path);
        idx->data = grown;
        SL_TRY(read_some(reader, grown + got, wanted, &more));
        if (more < wanted) return ends_early(reader, "data", got + more, bytes);
    }
    return SL_OK;
}

static int read_file(struct reader *reader, struct classifier_idx *idx, int dims) {
    SL_TRY(read_header(reader, dims, idx->shape));
    const uint32_t bytes = idx->shape[0] * idx->shape[1] * idx->shape[2];
    SL_TRY(read_data(reader, idx, bytes));
    return read_end(reader);
}

int classifier_idx_read(struct classifier_idx *idx, const char *directory, const char *name, int dims,
                        struct sl_error *error) {
    struct reader reader = {.error = error};
    *idx = (struct classifier_idx){.shape = {1, 1, 1}};
    int length = snprintf(reader.path, sizeof reader.path, "%s/%s", directory, name);
    if (access(reader.path, F_OK)) length = snprintf(reader.path, sizeof reader.path, "%s/%s.gz", directory, name);
    if (length >= (int)sizeof reader.path)
        return sl_error_set(error, SL_BAD_INPUT, "%.80s: too long a path", directory);
    struct stat file;
    if (access(reader.path, F_OK) && errno == ENOENT)
        return sl_error_set(error, SL_BAD_INPUT, "%s/%s: neither this file nor %s.gz is there", directory, name, name);
    if (!stat(reader.path, &file) && !S_ISREG(file.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a regular file", reader.path);
    reader.file = gzopen(reader.path, "rb");
    if (!reader.file) return sl_error_set(error, SL_BAD_INPUT, "%s: %s", reader.path, strerror(errno));
    gzbuffer(reader.file, 1 << 17);
    const int status = read_file(&reader, idx, dims);
    gzclose(reader.file);
    if (status) {
        free(idx->data);
        idx->data = NULL;
    }
    return status;
}
