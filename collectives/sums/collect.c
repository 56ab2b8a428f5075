/* collect.c - copies several blocks, each between its own pair of arrays, in one target region: for devices. */
#include "collectives/sums/copies.h"
#include "spmd/device/offload.h"

/* Largest unit copied by a thread. */
struct sixteen {
    uint64_t low, high;
};

/* The widest unit, a divisor of all addresses and distances. */
static size_t unit_of(const struct sl_matrices *m, size_t size, int blocks, char *const *out, const char *const *in) {
    uintptr_t bits = size * m->columns;
    if (m->rows > 1) bits |= size * (m->in[1] | m->out[1]);
    if (m->count > 1) bits |= size * (m->in[0] | m->out[0]);
    for (int i = 0; i < blocks; i++) bits |= (uintptr_t)in[i] | (uintptr_t)out[i];
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 2;
}

SL_INLINE void copy_unit(size_t unit, char *to, const char *from) {
    if (unit == 16)
        *(struct sixteen *)(void *)to = *(const struct sixteen *)(const void *)from;
    else if (unit == 4)
        *(uint32_t *)(void *)to = *(const uint32_t *)(const void *)from;
    else
        *(uint16_t *)(void *)to = *(const uint16_t *)(const void *)from;
}

void sl_collect_on_device(const struct sl_matrices *matrices, size_t size, int blocks, char *const *out,
                          const char *const *in) {
    const struct sl_matrices *m = matrices;
    const size_t unit = unit_of(m, size, blocks, out, in), columns = size * m->columns / unit, rows = m->rows;
    const size_t in_matrix = size * m->in[0], in_row = size * m->in[1];
    const size_t out_matrix = size * m->out[0], out_row = size * m->out[1];
    const size_t each = m->count * rows * columns, all = each * (size_t)blocks;
    const char *a = in[0], *b = in[blocks > 1], *c = in[blocks > 2 ? 2 : 0], *d = in[blocks > 3 ? 3 : 0];
    char *e = out[0], *f = out[blocks > 1], *g = out[blocks > 2 ? 2 : 0], *h = out[blocks > 3 ? 3 : 0];
    SL_ELEMENTWISE(is_device_ptr(a, b, c, d, e, f, g, h))
    for (size_t i = 0; i < all; i++) {
        const size_t block = i / each, row = i % each / columns, column = i % columns * unit;
        const size_t matrix = row / rows, its = row % rows;
        const char *from = block < 2 ? (block ? b : a) : (block == 2 ? c : d);
        char *to = block < 2 ? (block ? f : e) : (block == 2 ? g : h);
        copy_unit(unit, to + matrix * out_matrix + its * out_row + column,
                  from + matrix * in_matrix + its * in_row + column);
    }
}
