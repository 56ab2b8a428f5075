/* copies.c - see copies.h. Layers sharded over coordinates have short rows: a memcpy call per row would take longer
 * than the copy itself, and would fetch a peer's cache lines one after the other. */
#include "collectives/sums/copies.h"

#include <string.h>

#include "spmd/device/device.h"

enum {
    UNIT = 16,   /* bytes: short rows are copied in such units, which fit registers */
    SHORT = 512, /* bytes: longer rows are copied by memcpy */
    AHEAD = 512, /* bytes, at least, from the copied to the prefetched data: peers' cache lines are slow to fetch */
};

static void copy_short_rows(size_t rows, size_t bytes, char *out, size_t out_stride, const char *in, size_t in_stride) {
    const size_t ahead = (AHEAD + bytes - 1) / bytes * in_stride;
    for (size_t row = 0; row < rows; row++, out += out_stride, in += in_stride) {
        for (size_t at = 0; at < bytes; at += SL_CACHE_LINE) __builtin_prefetch(in + ahead + at);
        for (size_t at = 0; at < bytes; at += UNIT) memcpy(out + at, in + at, UNIT);
    }
}

void sl_copy_rows(size_t rows, size_t bytes, char *out, size_t out_stride, const char *in, size_t in_stride) {
    if (rows > 1 && bytes && bytes <= SHORT && bytes % UNIT == 0) {
        copy_short_rows(rows, bytes, out, out_stride, in, in_stride);
        return;
    }
    for (size_t row = 0; row < rows && bytes; row++) memcpy(out + row * out_stride, in + row * in_stride, bytes);
}

void sl_copy_matrices(const struct sl_matrices *matrices, size_t size, char *out, const char *in) {
    const struct sl_matrices *m = matrices;
    for (size_t i = 0; i < m->count; i++, out += size * m->out[0], in += size * m->in[0]) {
        if (m->rows == 1)
            sl_device.copy(out, in, size * m->columns);
        else
            sl_device.copy_rows(m->rows, size * m->columns, out, size * m->out[1], in, size * m->in[1]);
    }
}
