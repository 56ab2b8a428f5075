/* block_dots.c - integer products with weights in quantized blocks, built once per CPU level.
 *
 * Some terms of WIDTH rows of weights are unpacked into the first-level cache, then multiplied by all rows of A. A lane
 * of a vector is a row of weights, hence a column of C. The products of a group of weights with one scale are added as
 * integers, then scaled and added to the floats of the groups before. The build defines SL_BLOCK_DOTS, the table's
 * name, and lets the compiler fuse a * b + c. */
#include "layers/kernels/gemm/blocks/block_codes_internal.h"
#include "layers/kernels/gemm/blocks/block_dots.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/memory.h"

enum { SHALLOW = 256 }; /* most terms for one row of A: a core reads the next weights while it multiplies */

/* Rows of a tile of C; its sums fill the registers. */
#if defined(__AVX512VNNI__)
enum { ROWS = 6 };
#elif defined(__AVX512BW__)
enum { ROWS = 4 };
#else
enum { ROWS = 2 };
#endif

struct product {
    const struct sl_blocks *b;
    const struct sl_dot_rows *x;
    const float *bias; /* or NULL */
    float *c;
};

/* ---- unpacking ---- */

/* Some terms of WIDTH rows of weights. */
struct weights {
    const uint8_t *at[VECTORS][LANES];
    const uint8_t *next; /* as many bytes of the file, which are unpacked next if rows lie in order and without gaps */
};

/* Returns weights [COLUMN, COLUMN + WIDTH); if they end at END, the last row is repeated. */
static inline __attribute__((always_inline)) struct weights weights_at(const struct product *p, size_t column,
                                                                       size_t end) {
    const struct sl_blocks *b = p->b;
    struct weights weights;
    for (size_t i = 0; i < WIDTH; i++)
        weights.at[i / LANES][i % LANES] = sl_blocks_row(b, smaller(column + i, end - 1));
    weights.next = b->at + (column + WIDTH) * b->stride;
    return weights;
}

/* Unpacks TERMS terms, and moves FROM to the terms behind. */
static inline __attribute__((always_inline)) void unpack(const enum kind kind, const struct product *p, size_t terms,
                                                         struct weights *from, struct unpacked *to) {
    const struct sl_quantized *type = p->b->type;
    const size_t blocks = terms / type->elements, bytes = blocks * type->bytes;
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) {
        if (is_large(kind))
            unpack_large(kind, from->at[v], from->next, type->bytes, blocks, v, to);
        else
            unpack_small(kind, from->at[v], from->next, type->bytes, blocks, v, to);
        for (size_t i = 0; i < LANES; i++) from->at[v][i] += bytes;
        from->next += LANES * bytes;
    }
}

/* ---- a tile ---- */

/* Rows of X from some term on. */
struct rows {
    const int8_t *number;
    const int32_t *group;
    const float *scale;
    size_t terms, groups, scales; /* from one row to the next */
};

static inline __attribute__((always_inline)) integers spread_word(const void *from) {
    int32_t word;
    memcpy(&word, from, sizeof word);
    return word - (integers){0};
}

static inline __attribute__((always_inline)) vector spread_float(const void *from) {
    float x;
    memcpy(&x, from, sizeof x);
    return spread(x);
}

/* Adds the products of group G with ROWS rows of X to SUM. */
static inline __attribute__((always_inline)) void dot_group(const enum kind kind, const struct unpacked *w, size_t g,
                                                            const struct rows *x, const int rows,
                                                            vector sum[ROWS][VECTORS]) {
    const int most = largest_code(kind), count = group_of(kind) / 4, pairs_of = words_of_pairs(most);
    const bool starts = !has_minimum(kind) && (STARTS_AT_BASE || most < 255);
    integers dot[ROWS][VECTORS], pairs[ROWS][VECTORS];
    SL_UNROLL
    for (int i = 0; i < rows * VECTORS; i++) {
        dot[i / VECTORS][i % VECTORS] =
            starts ? spread_word(x->group + (size_t)(i / VECTORS) * x->groups + g) : (integers){0};
        pairs[i / VECTORS][i % VECTORS] = (integers){0};
    }
    SL_UNROLL
    for (int j = 0; j < count; j++) {
        const size_t word = g * (size_t)count + (size_t)j;
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            const words own = (words)spread_word(x->number + (size_t)r * x->terms + 4 * word);
            SL_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                add_products(most, w->code[word][v], own, &pairs[r][v], &dot[r][v]);
                if (most < 255 && ((j + 1) % pairs_of == 0 || j + 1 == count)) fold_pairs(&pairs[r][v], &dot[r][v]);
            }
        }
    }
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        const vector scale = spread(x->scale[(size_t)r * x->scales + g * (size_t)group_of(kind) / SMALL]);
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            sum[r][v] += __builtin_convertvector(dot[r][v], vector) * (w->scale[g][v] * scale);
            if (has_minimum(kind)) sum[r][v] += w->least[g][v] * spread_float(x->group + (size_t)r * x->groups + g);
        }
    }
}

/* Columns of C in some rows, N apart: COUNT of them exist. */
struct place {
    float *c;
    size_t n, count;
    const float *bias; /* or NULL */
    bool adds;         /* to C */
};

static inline __attribute__((always_inline)) void load_part(const float *from, size_t count, vector to[VECTORS]) {
    float some[WIDTH] = {0};
    if (count < WIDTH) {
        for (size_t j = 0; j < count; j++) some[j] = from[j];
        from = some;
    }
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) to[v] = load(from + v * LANES);
}

static inline __attribute__((always_inline)) void store_part(const vector from[VECTORS], size_t count, float *to) {
    float some[WIDTH], *const at = count < WIDTH ? some : to;
    SL_UNROLL
    for (int v = 0; v < VECTORS; v++) store(at + v * LANES, from[v]);
    for (size_t j = 0; at == some && j < count; j++) to[j] = some[j];
}

static inline __attribute__((always_inline)) void multiply_tile(const enum kind kind, const struct unpacked *w,
                                                                size_t terms, const struct rows *x,
                                                                const struct place *place, const int rows) {
    vector sum[ROWS][VECTORS], bias[VECTORS] = {{0}};
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++) sum[r][v] = (vector){0};
        if (place->adds) load_part(place->c + (size_t)r * place->n, place->count, sum[r]);
    }
    for (size_t g = 0; g < terms / (size_t)group_of(kind); g++) dot_group(kind, w, g, x, rows, sum);
    if (place->bias) load_part(place->bias, place->count, bias);
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        SL_UNROLL
        for (int v = 0; v < VECTORS; v++)
            if (place->bias) sum[r][v] += bias[v];
        store_part(sum[r], place->count, place->c + (size_t)r * place->n);
    }
}

/* ---- a product ---- */

static inline __attribute__((always_inline)) struct rows rows_at(const enum kind kind, const struct sl_dot_rows *x,
                                                                 size_t row, size_t term) {
    const size_t group = (size_t)group_of(kind), place = row * x->terms + term;
    return (struct rows){.number = x->number + place,
                         .group = x->group + place / group,
                         .scale = x->scale + place / SMALL,
                         .terms = x->terms,
                         .groups = x->terms / group,
                         .scales = x->terms / SMALL};
}

/* Computes columns [COLUMN, COLUMN + WIDTH) of C, except those from END on. */
static inline __attribute__((always_inline)) void multiply_columns(const enum kind kind, const struct product *p,
                                                                   size_t column, size_t end) {
    struct unpacked w;
    struct weights weights = weights_at(p, column, end);
    const size_t n = p->b->rows, all = p->x->terms, rows = p->x->rows, most = rows < 2 ? SHALLOW : DEPTH;
    const size_t parts = (all + most - 1) / most, each = sl_round_up((all + parts - 1) / parts, p->b->type->elements);
    for (size_t from = 0, terms; from < all; from += terms) {
        terms = smaller(each, all - from);
        unpack(kind, p, terms, &weights, &w);
        struct place place = {p->c + column, n, smaller(WIDTH, end - column), NULL, from > 0};
        if (p->bias && from + terms == all) place.bias = p->bias + column;
        for (size_t row = 0, some; row < rows; row += some, place.c += some * n) {
            const struct rows x = rows_at(kind, p->x, row, from);
            some = rows - row < ROWS ? 1 : ROWS;
            if (some == ROWS)
                multiply_tile(kind, &w, terms, &x, &place, ROWS);
            else
                multiply_tile(kind, &w, terms, &x, &place, 1);
        }
    }
}

#define EACH_KIND(call)                                                                                                \
    call(Q8_0) call(Q4_0) call(Q4_1) call(Q5_0) call(Q5_1) call(Q2_K) call(Q3_K) call(Q4_K) call(Q5_K) call(Q6_K)
#define OWN_PRODUCT(kind)                                                                                              \
    static void multiply_##kind(const struct product *p, size_t first, size_t end) {                                   \
        for (size_t column = first; column < end; column += WIDTH) multiply_columns(kind, p, column, end);             \
    }
EACH_KIND(OWN_PRODUCT)

static void multiply(const struct sl_blocks *b, size_t first, size_t end, const struct sl_dot_rows *x,
                     const float *bias, float *c) {
    const struct product product = {b, x, bias, c};
    switch ((enum kind)b->type->number) {
#define CASE(kind)                                                                                                     \
    case kind:                                                                                                         \
        multiply_##kind(&product, first, end);                                                                         \
        return;
        EACH_KIND(CASE)
    }
}

/* ---- rounding ---- */

/* Returns the largest |A|, or NaN if an element is NaN: without signs, the bits of floats have the order of their
 * values, and NaN comes last. */
static float largest(const vector a[SMALL / LANES]) {
    integers most = {0};
    for (int i = 0; i < SMALL / LANES; i++) {
        const integers size = (integers)a[i] & INT32_MAX, more = size > most;
        most = (size & more) | (most & ~more);
    }
    int32_t bits = 0;
    for (int i = 0; i < LANES; i++) bits = most[i] > bits ? most[i] : bits;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds SMALL terms TO bytes. Returns their scale, which is not finite if a term is not. */
static float round_terms(const float *a, int8_t *to) {
    typedef int8_t bytes __attribute__((vector_size(LANES)));
    vector terms[SMALL / LANES];
    memcpy(terms, a, sizeof terms);
    const float most = largest(terms), inverse = most > 0 ? 127.0f / most : 0.0f;
    for (int i = 0; i < SMALL / LANES; i++) {
        const vector shifted = terms[i] * inverse + 12582912.0f; /* 1.5 * 2^23: its low bits are the rounded term */
        const bytes rounded = __builtin_convertvector((integers)shifted, bytes);
        memcpy(to + i * LANES, &rounded, sizeof rounded);
    }
    return most / 127.0f;
}

static void round_rows(const struct sl_quantized *type, const float *a, const struct sl_dot_rows *x) {
    const enum kind kind = (enum kind)type->number;
    const size_t group = (size_t)group_of(kind);
    for (size_t place = 0; place < x->rows * x->terms; place += SMALL) {
        const float scale = x->scale[place / SMALL] = round_terms(a + place, x->number + place);
        for (size_t at = place; at < place + SMALL; at += group) {
            int32_t sum = 0;
            for (size_t i = 0; i < group; i++) sum += x->number[at + i];
            const float scaled = (float)sum * scale;
            x->group[at / group] = -base_of(kind) * sum;
            if (has_minimum(kind)) memcpy(&x->group[at / group], &scaled, sizeof scaled);
        }
    }
}

const struct sl_block_dots SL_BLOCK_DOTS = {round_rows, multiply};
