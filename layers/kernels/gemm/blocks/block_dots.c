/* block_dots.c - integer products with weights in quantized blocks, built once per CPU level.
 *
 * Each block is read as groups of 32 codes. Lane i of a group belongs to codes 4i to 4i + 3: it has their sum of
 * products, their scale and, in some types, their minimum. The build defines SL_BLOCK_DOTS, the table's name, and lets
 * the compiler fuse a * b + c. */
#include "layers/kernels/gemm/blocks/block_dots.h"
#include "layers/kernels/gemm/blocks/dot_bytes_internal.h"
#include "layers/kernels/loops/vectors_internal.h"
#include "spmd/base/memory.h"

enum {
    TOGETHER = 4, /* interleaved sums, because a sum waits for its last term: of one row, or of one column, of C */
    AHEAD = 8192, /* bytes of prefetch distance: what lies ahead of the last row may be in the share of another core */
    MOST = SL_LARGEST_BLOCK / GROUP, /* groups of a block */
};

/* GGML's numbers. */
enum kind { Q8_0 = 8, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

/* Weights are (code - base) * scale + minimum; either the base or the minimum is 0. */
static inline int base_of(const enum kind kind) {
    return kind == Q8_0 ? 128 : kind == Q4_0 ? 8 : kind == Q5_0 ? 16 : kind == Q3_K ? 4 : kind == Q6_K ? 32 : 0;
}
static inline bool has_minimum(const enum kind kind) { return base_of(kind) == 0; }
static inline bool is_large(const enum kind kind) { return kind >= Q2_K; }

/* Scales and minima of a block's groups. */
struct block {
    scales scale[MOST], least[MOST];
};

/* ---- scales ---- */

static inline __attribute__((always_inline)) void fill(float x, scales *to) { *to = x - (scales){0}; }
/* The first half of the lanes is A. */
static inline __attribute__((always_inline)) void fill_two(float a, float b, scales *to) {
    *to = (scales){a, a, a, a, b, b, b, b};
}

static inline float half_at(const uint8_t *at) {
    scales half;
    spread_half(at, &half);
    return half[0];
}

/* Unpacks eight scales and eight minima of six bits to bytes. The upper two bits of the last four are in the bytes of
 * the first four. */
static inline void load_sixes(const uint8_t *packed, uint8_t scale[MOST], uint8_t least[MOST]) {
    uint32_t first, second, last;
    memcpy(&first, packed, 4);
    memcpy(&second, packed + 4, 4);
    memcpy(&last, packed + 8, 4);
    const uint32_t words[] = {first & 0x3f3f3f3f, (last & 0x0f0f0f0f) | (first >> 6 & 0x03030303) << 4,
                              second & 0x3f3f3f3f, (last >> 4 & 0x0f0f0f0f) | (second >> 6 & 0x03030303) << 4};
    memcpy(scale, words, MOST);
    memcpy(least, words + 2, MOST);
}

static inline __attribute__((always_inline)) void load_fine_scales(const uint8_t *at, struct block *block) {
    const float d = half_at(at), less = -half_at(at + 2);
    uint8_t scale[MOST], least[MOST];
    load_sixes(at + 4, scale, least);
    for (int g = 0; g < MOST; g++) {
        fill(d * (float)scale[g], &block->scale[g]);
        fill(less * (float)least[g], &block->least[g]);
    }
}

/* Scale I of a Q3_K. */
static inline float six_at(const uint8_t *at, int i) {
    const int low = i < 8 ? at[i] & 15 : at[i - 8] >> 4;
    return (float)((low | (at[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32);
}

/* Two scales a group. */
static inline __attribute__((always_inline)) void load_pairs_of_scales(const enum kind kind, const uint8_t *at,
                                                                       struct block *block) {
    const float d = half_at(at + (kind == Q2_K ? 80 : kind == Q3_K ? 108 : 208));
    const float less = kind == Q2_K ? -half_at(at + 82) : 0.0f;
    for (int g = 0; g < MOST; g++) {
        const uint8_t *two = at + 2 * g;
        if (kind == Q2_K) {
            fill_two(d * (float)(two[0] & 15), d * (float)(two[1] & 15), &block->scale[g]);
            fill_two(less * (float)(two[0] >> 4), less * (float)(two[1] >> 4), &block->least[g]);
        }
        if (kind == Q3_K) fill_two(d * six_at(at + 96, 2 * g), d * six_at(at + 96, 2 * g + 1), &block->scale[g]);
        if (kind == Q6_K) fill_two(d * (float)(int8_t)two[192], d * (float)(int8_t)two[193], &block->scale[g]);
    }
}

static inline __attribute__((always_inline)) void load_scales(const enum kind kind, const uint8_t *at,
                                                              struct block *block) {
    if (kind == Q4_K || kind == Q5_K) load_fine_scales(at, block);
    if (kind == Q2_K || kind == Q3_K || kind == Q6_K) load_pairs_of_scales(kind, at, block);
    if (is_large(kind)) return;
    spread_half(at, &block->scale[0]);
    if (has_minimum(kind)) spread_half(at + 2, &block->least[0]);
}

/* ---- codes ---- */

static inline __attribute__((always_inline)) void load_32(const uint8_t *at, codes *to) { memcpy(to, at, sizeof *to); }

/* TO = each byte shifted right by SHIFT, and masked by MASK. MASK must remove the bits that come from the next byte. */
static inline __attribute__((always_inline)) void take_bits(const codes *from, int shift, uint8_t mask, codes *to) {
    *to = (codes)((longs)*from >> shift) & mask;
}

/* 16 bytes: first their lower four bits, then the upper ones. */
static inline __attribute__((always_inline)) void load_fours_of_bits(const uint8_t *at, codes *to) {
    typedef uint64_t two __attribute__((vector_size(16)));
    two both;
    memcpy(&both, at, sizeof both);
    *to = (codes)__builtin_shufflevector(both, both >> 4, 0, 1, 2, 3) & 15;
}

/* Sets a fifth bit of each code to the bits at AT. */
static inline __attribute__((always_inline)) void add_fifth_bits(const uint8_t *at, codes *to) {
    const uint64_t each = 0x0101010101010101, own = 0x8040201008040201;
    const codes bits = (codes)(longs){own, own, own, own};
    const codes bytes = (codes)(longs){at[0] * each, at[1] * each, at[2] * each, at[3] * each};
    *to |= (codes)((bytes & bits) == bits) & 16;
}

/* Loads the codes of group G of the block at AT. Callers pass constants KIND and G. */
static inline __attribute__((always_inline)) void load_codes(const enum kind kind, const uint8_t *at, const int g,
                                                             codes *to) {
    const int part = g / 4, turn = g % 4; /* of Q2_K, Q3_K and Q6_K */
    codes more;
    if (kind == Q8_0) {
        load_32(at + 2, to);
        *to ^= 128;
    }
    if (kind == Q4_0) load_fours_of_bits(at + 2, to);
    if (kind == Q4_1) load_fours_of_bits(at + 4, to);
    if (kind == Q5_0 || kind == Q5_1) {
        load_fours_of_bits(at + (kind == Q5_0 ? 6 : 8), to);
        add_fifth_bits(at + (kind == Q5_0 ? 2 : 4), to);
    }
    if (kind == Q4_K || kind == Q5_K) {
        load_32(at + (kind == Q4_K ? 16 : 48) + 32 * (g / 2), to);
        take_bits(to, 4 * (g % 2), 15, to);
    }
    if (kind == Q5_K) {
        load_32(at + 16, &more);
        take_bits(&more, g, 1, &more);
        *to |= (codes)((longs)more << 4);
    }
    if (kind == Q2_K || kind == Q3_K) {
        load_32(at + (kind == Q2_K ? 16 : 32) + 32 * part, to);
        take_bits(to, 2 * turn, 3, to);
    }
    if (kind == Q3_K) {
        load_32(at, &more);
        take_bits(&more, g, 1, &more);
        *to |= (codes)((longs)more << 2);
    }
    if (kind == Q6_K) {
        load_32(at + 64 * part + 32 * (turn % 2), to);
        load_32(at + 128 + 32 * part, &more);
        take_bits(to, 4 * (turn / 2), 15, to);
        take_bits(&more, 2 * turn, 3, &more);
        *to |= (codes)((longs)more << 4);
    }
}

/* ---- a product ---- */

/* Products of row FIRST of X with TOGETHER rows of weights, or of TOGETHER rows of X, from FIRST on, with one row of
 * weights. */
struct tile {
    const struct sl_quantized *type;
    const uint8_t *row[TOGETHER];
    const struct sl_dot_rows *x;
    size_t first;
};

static inline __attribute__((always_inline)) void dot_group(const enum kind kind, const struct tile *t, const codes *c,
                                                            const scales *scale, const scales *least, size_t row,
                                                            size_t l, scales *sum) {
    const sums none = {0};
    const size_t place = (t->first + row) * t->x->terms + l;
    const void *number = t->x->number + place, *four = t->x->four + place / 4;
    sums dot;
    dot_codes(kind == Q8_0, c, number, has_minimum(kind) ? &none : (const sums *)four, &dot);
    *sum += __builtin_convertvector(dot, scales) * (*scale * t->x->scale[place / GROUP]);
    if (has_minimum(kind)) *sum += *least * *(const scales *)four;
}

/* SUM [TOGETHER] = the lanes of the products, in the order of the rows of X. */
static inline __attribute__((always_inline)) void dot_rows(const enum kind kind, const struct tile *t,
                                                           const int weights, scales *sum) {
    const size_t groups = is_large(kind) ? MOST : 1, bytes = t->type->bytes;
    for (size_t l = 0, at = 0; l < t->x->terms; l += groups * GROUP, at += bytes) {
        struct block block[TOGETHER];
        SL_UNROLL
        for (int j = 0; j < weights; j++) {
            for (size_t line = 0; line < bytes; line += SL_CACHE_LINE)
                __builtin_prefetch(t->row[j] + at + AHEAD + line, 0, 2);
            load_scales(kind, t->row[j] + at, &block[j]);
        }
        SL_UNROLL
        for (int g = 0; g < (int)groups; g++) {
            SL_UNROLL
            for (int j = 0; j < weights; j++) {
                codes c;
                load_codes(kind, t->row[j] + at, g, &c);
                SL_UNROLL
                for (int r = 0; r < TOGETHER / weights; r++)
                    dot_group(kind, t, &c, &block[j].scale[g], &block[j].least[g], (size_t)r, l + (size_t)g * GROUP,
                              &sum[r * weights + j]);
            }
        }
    }
}

/* Returns the sums of the lanes of each. The order is the same at every level. */
static inline four sums_of(const scales s[TOGETHER]) {
    four half[TOGETHER];
    for (int i = 0; i < TOGETHER; i++)
        half[i] = __builtin_shufflevector(s[i], s[i], 0, 1, 2, 3) + __builtin_shufflevector(s[i], s[i], 4, 5, 6, 7);
    const four a =
        __builtin_shufflevector(half[0], half[1], 0, 4, 1, 5) + __builtin_shufflevector(half[0], half[1], 2, 6, 3, 7);
    const four b =
        __builtin_shufflevector(half[2], half[3], 0, 4, 1, 5) + __builtin_shufflevector(half[2], half[3], 2, 6, 3, 7);
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}

struct product {
    const struct sl_blocks *b;
    size_t from; /* first term */
    const struct sl_dot_rows *x;
    const float *bias; /* or NULL */
    float *c;
};

/* Computes columns [COLUMN, COLUMN + WEIGHTS) of C, except those from END on, in TOGETHER / WEIGHTS rows, the
 * first of which is ROW. */
static inline __attribute__((always_inline)) void
multiply_tile(const enum kind kind, const struct product *p, size_t column, size_t end, size_t row, const int weights) {
    const struct sl_blocks *b = p->b;
    struct tile t = {.type = b->type, .x = p->x, .first = row};
    scales sum[TOGETHER];
    float value[TOGETHER];
    SL_UNROLL
    for (int i = 0; i < TOGETHER; i++) sum[i] = (scales){0};
    for (int j = 0; j < weights; j++) {
        const size_t own = column + (size_t)j < end ? column + (size_t)j : end - 1;
        t.row[j] = sl_blocks_row(b, own) + p->from / b->type->elements * b->type->bytes;
    }
    dot_rows(kind, &t, weights, sum);
    store_four(value, sums_of(sum));
    for (size_t i = 0; i < TOGETHER; i++) {
        const size_t own = column + i % (size_t)weights;
        float *c = p->c + (row + i / (size_t)weights) * b->rows + own;
        if (own >= end) break;
        const float all = p->from ? *c + value[i] : value[i];
        *c = p->bias ? all + p->bias[own] : all;
    }
}

static inline __attribute__((always_inline)) void multiply_kind(const enum kind kind, const struct product *p,
                                                                size_t first, size_t end) {
    const size_t tiled = p->x->rows / TOGETHER * TOGETHER;
    for (size_t column = first; column < end; column += TOGETHER) {
        for (size_t i = 0; i < tiled; i++)
            if (column + i % TOGETHER < end)
                multiply_tile(kind, p, column + i % TOGETHER, end, i / TOGETHER * TOGETHER, 1);
        for (size_t row = tiled; row < p->x->rows; row++) multiply_tile(kind, p, column, end, row, TOGETHER);
    }
}

#define EACH_KIND(call)                                                                                                \
    call(Q8_0) call(Q4_0) call(Q4_1) call(Q5_0) call(Q5_1) call(Q2_K) call(Q3_K) call(Q4_K) call(Q5_K) call(Q6_K)
#define OWN_PRODUCT(kind)                                                                                              \
    static void multiply_##kind(const struct product *p, size_t first, size_t end) {                                   \
        multiply_kind(kind, p, first, end);                                                                            \
    }
EACH_KIND(OWN_PRODUCT)

static void multiply(const struct sl_blocks *b, size_t first, size_t end, size_t from, const struct sl_dot_rows *x,
                     const float *bias, float *c) {
    const struct product product = {b, from, x, bias, c};
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
static float largest(const scales a[GROUP / FOURS]) {
    sums most = {0};
    for (int i = 0; i < GROUP / FOURS; i++) {
        const sums size = (sums)a[i] & INT32_MAX, more = size > most;
        most = (size & more) | (most & ~more);
    }
    int32_t bits = 0;
    for (int i = 0; i < FOURS; i++) bits = most[i] > bits ? most[i] : bits;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds GROUP terms TO bytes. Returns their scale, which is not finite if a term is not. */
static float round_group(const float *a, int8_t *to) {
    typedef int8_t bytes __attribute__((vector_size(FOURS)));
    scales terms[GROUP / FOURS];
    memcpy(terms, a, sizeof terms);
    const float most = largest(terms), inverse = most > 0 ? 127.0f / most : 0.0f;
    for (int i = 0; i < GROUP / FOURS; i++) {
        const scales shifted = terms[i] * inverse + 12582912.0f; /* 1.5 * 2^23: its low bits are the rounded term */
        const bytes rounded = __builtin_convertvector((sums)shifted, bytes);
        memcpy(to + i * FOURS, &rounded, sizeof rounded);
    }
    return most / 127.0f;
}

static void round_rows(const struct sl_quantized *type, const float *a, size_t k, struct sl_dot_rows *x) {
    const int base = base_of((enum kind)type->number);
    for (size_t r = 0; r < x->rows; r++) {
        for (size_t l = 0; l < x->terms; l += GROUP) {
            const size_t place = r * x->terms + l;
            const sums none = {0};
            const codes ones = (codes){0} + 1;
            sums fours;
            x->scale[place / GROUP] = round_group(a + r * k + l, x->number + place);
            dot_codes(false, &ones, (const numbers *)(const void *)(x->number + place), &none, &fours);
            if (base)
                fours *= -base;
            else
                fours = (sums)(__builtin_convertvector(fours, scales) * x->scale[place / GROUP]);
            memcpy(x->four + place / 4, &fours, sizeof fours);
        }
    }
}

const struct sl_block_dots SL_BLOCK_DOTS = {round_rows, multiply};
