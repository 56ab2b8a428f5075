/* packed_row.c - copies weights into strips of columns, and multiplies a row by them. */
#include "layers/kernels/rows/packed_row.h"

#include <stdatomic.h>
#include <string.h>

#include "spmd/base/memory.h"

enum { ROWS = 16 }; /* that are copied together: each is read from end to end, and strips get a page at once */

/* The end of the strip that begins at COLUMN. */
static size_t end_of_strip(const struct sl_packed_row *shape, size_t column) {
    const size_t part = column / shape->columns * shape->columns + shape->columns;
    const size_t end = column + SL_STRIP_COLUMNS < part ? column + SL_STRIP_COLUMNS : part;
    return end < shape->n ? end : shape->n;
}

struct filling {
    const struct sl_packed_row *shape;
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

void sl_packed_row_fill(const struct sl_packed_row *shape, const void *b, void *packed, struct sl_crew *crew) {
    struct filling filling = {shape, b, packed};
    sl_crew_run(crew, (int)((shape->k + ROWS - 1) / ROWS), fill_rows, &filling);
}

/* ---- a product ---- */

/* The strips of a thread's columns, of which one after another is taken. */
struct queue {
    _Alignas(SL_CACHE_LINE) atomic_size_t taken;
};

struct product {
    const struct sl_packed_row *shape;
    sl_one_row_multiply *one;
    const void *a;
    const char *packed;
    const float *bias;
    float *c;
    size_t parts;
    struct queue *queue; /* [parts] */
};

static void multiply_strip(const struct product *p, size_t column) {
    const size_t columns = end_of_strip(p->shape, column) - column;
    p->one(columns, columns, p->shape->k, p->a, p->packed + column * p->shape->k * p->shape->element,
           p->bias ? p->bias + column : NULL, p->c + column);
}

/* First a thread's own columns, from end to end; then what others have not come to: cores do not read equally fast. */
static void multiply_part(void *arg, int part) {
    const struct product *p = arg;
    for (size_t i = 0; i < p->parts; i++) {
        const size_t other = ((size_t)part + i) % p->parts, first = other * p->shape->columns;
        const size_t end = first + p->shape->columns < p->shape->n ? first + p->shape->columns : p->shape->n;
        for (;;) {
            const size_t taken = atomic_fetch_add_explicit(&p->queue[other].taken, 1, memory_order_relaxed);
            if (first + taken * SL_STRIP_COLUMNS >= end) break;
            multiply_strip(p, first + taken * SL_STRIP_COLUMNS);
        }
    }
}

void sl_packed_row_multiply(const struct sl_packed_row *shape, sl_one_row_multiply *one, const void *a,
                            const void *packed, const float *bias, float *c, struct sl_crew *crew) {
    struct queue queue[SL_CREW_MOST];
    struct product product = {shape, one, a, packed, bias, c, (shape->n + shape->columns - 1) / shape->columns, queue};
    for (size_t i = 0; i < product.parts; i++) atomic_init(&queue[i].taken, 0);
    sl_crew_run(crew, (int)product.parts, multiply_part, &product);
}
