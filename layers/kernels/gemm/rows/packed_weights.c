/* packed_weights.c - copies weights into strips of columns, and multiplies strips by several threads. */
#include "layers/kernels/gemm/rows/packed_weights.h"

#include <stdatomic.h>
#include <string.h>

#include "spmd/base/memory.h"

enum { ROWS = 16 }; /* rows that are copied together: each is read from end to end, and each strip gets about a page */

/* Returns the end of the strip at COLUMN. */
static size_t end_of_strip(const struct sl_packed_weights *shape, size_t column) {
    const size_t part = column / shape->columns * shape->columns + shape->columns;
    const size_t end = column + SL_STRIP_COLUMNS < part ? column + SL_STRIP_COLUMNS : part;
    return end < shape->n ? end : shape->n;
}

struct filling {
    const struct sl_packed_weights *shape;
    const char *b;
    char *packed;
};

static void fill_rows(void *arg, int number) {
    const struct filling *f = arg;
    const size_t n = f->shape->n, k = f->shape->k, element = f->shape->element;
    const size_t first = ROWS * (size_t)number, end = first + ROWS < k ? first + ROWS : k;
    for (size_t column = 0, next; column < n; column = next) {
        next = end_of_strip(f->shape, column);
        const size_t bytes = (next - column) * element;
        char *to = f->packed + column * k * element + first * bytes;
        for (size_t row = first; row < end; row++, to += bytes) memcpy(to, f->b + (row * n + column) * element, bytes);
    }
}

void sl_packed_weights_fill(const struct sl_packed_weights *shape, const void *b, void *packed, struct sl_crew *crew) {
    struct filling filling = {shape, b, packed};
    sl_crew_run(crew, (int)((shape->k + ROWS - 1) / ROWS), fill_rows, &filling);
}

/* ---- a product ---- */

/* The next strip of a thread's columns. */
struct queue {
    _Alignas(SL_CACHE_LINE) atomic_size_t taken;
};

struct product {
    const struct sl_packed_weights *shape;
    const char *packed;
    sl_multiply_strip *multiply;
    const void *arg;
    size_t parts;
    struct queue *queue; /* [parts] */
};

/* Processes a thread's own columns in order; then the other threads' remaining strips, because cores do not read
 * equally fast. */
static void multiply_part(void *arg, int part) {
    const struct product *p = arg;
    const struct sl_packed_weights *shape = p->shape;
    for (size_t i = 0; i < p->parts; i++) {
        const size_t other = ((size_t)part + i) % p->parts, first = other * shape->columns;
        const size_t end = first + shape->columns < shape->n ? first + shape->columns : shape->n;
        for (;;) {
            const size_t taken = atomic_fetch_add_explicit(&p->queue[other].taken, 1, memory_order_relaxed);
            const size_t column = first + taken * SL_STRIP_COLUMNS;
            if (column >= end) break;
            p->multiply(p->arg, column, end_of_strip(shape, column) - column,
                        p->packed + column * shape->k * shape->element);
        }
    }
}

void sl_packed_weights_multiply(const struct sl_packed_weights *shape, const void *packed, sl_multiply_strip *multiply,
                                const void *arg, struct sl_crew *crew) {
    struct queue queue[SL_CREW_MOST];
    const size_t parts = (shape->n + shape->columns - 1) / shape->columns;
    struct product product = {shape, packed, multiply, arg, parts, queue};
    for (size_t i = 0; i < parts; i++) atomic_init(&queue[i].taken, 0);
    sl_crew_run(crew, (int)parts, multiply_part, &product);
}
