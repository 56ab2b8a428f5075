/* tile_copies_internal.h - copies the right operand of tile_rows.c in pairs of terms, step by step. */
#ifndef SL_LAYERS_KERNELS_GEMM_TILES_TILE_COPIES_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_TILES_TILE_COPIES_INTERNAL_H

#include <immintrin.h>
#include <string.h>

#include "layers/kernels/gemm/tiles/tile_rows.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/memory.h"

#define SL_TILE_INLINE inline __attribute__((always_inline))

enum {
    SIDE = 16,                            /* rows of a tile, and its columns of sums */
    TERMS = 2 * SIDE,                     /* bf16 in a row of a tile */
    TILE = SIDE * TERMS,                  /* bf16 in a tile */
    STEP = SL_TILE_COLUMNS / SIDE * TILE, /* bf16 in a copied step: TERMS terms of as many columns, two lines of each
                                             row of the operand, which come from afar together */
};

/* How a column's terms lie: side by side, or a row apart. */
enum lie { ALONG, APART };

/* The operand: all[column * row + term] if ALONG, else all[term * row + column]. */
struct source {
    const uint16_t *all;
    enum lie lie;
    size_t row;
};

/* The next step to be copied, and its place: to[place % ring][4][16][16][2]. */
struct stream {
    const struct source *source;
    size_t column, end, from, depth; /* the step's first column; columns' end; terms of all steps */
    size_t step, place, ring;        /* steps before it in its panel of columns; and in all; a power of two */
    uint16_t *to;
};

static inline size_t steps_of(size_t depth) { return (depth + TERMS - 1) / TERMS; }

/* to[2][16][2] = pairs of two rows of 2 x 16 columns; the second tile lies TILE further. */
static SL_TILE_INLINE void pair_rows(const uint16_t *from, size_t row, uint16_t *to) {
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __m512i even = _mm512_loadu_si512(from), odd = _mm512_loadu_si512(from + row);
    const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    _mm512_store_si512(to, _mm512_permutex2var_epi64(low, first, high));
    _mm512_store_si512(to + TILE, _mm512_permutex2var_epi64(low, second, high));
}

static SL_TILE_INLINE __m512i quarter_of(const uint16_t *from, __m512i all, const __mmask16 lanes) {
    return _mm512_mask_broadcast_i32x4(all, lanes, _mm_loadu_si128((const void *)from));
}

/* Returns 4 pairs of each of rows 0, 4, 8 and 12. */
static SL_TILE_INLINE __m512i quarters(const uint16_t *from, size_t row) {
    __m512i all = _mm512_castsi128_si512(_mm_loadu_si128((const void *)from));
    all = quarter_of(from + 4 * row, all, 0x00f0);
    all = quarter_of(from + 8 * row, all, 0x0f00);
    return quarter_of(from + 12 * row, all, 0xf000);
}

/* to[16][16] = the transpose of 16 rows of 16 pairs. */
static SL_TILE_INLINE void turn_pairs(const uint16_t *from, size_t row, uint16_t *to) {
    for (int i = 0; i < 4; i++, from += 8, to += 4 * TERMS) {
        const __m512i a = quarters(from, row), b = quarters(from + row, row);
        const __m512i c = quarters(from + 2 * row, row), d = quarters(from + 3 * row, row);
        const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
        const __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
        _mm512_store_si512(to, _mm512_unpacklo_epi64(ab, cd));
        _mm512_store_si512(to + TERMS, _mm512_unpackhi_epi64(ab, cd));
        _mm512_store_si512(to + 2 * TERMS, _mm512_unpacklo_epi64(ab_high, cd_high));
        _mm512_store_si512(to + 3 * TERMS, _mm512_unpackhi_epi64(ab_high, cd_high));
    }
}

static SL_TILE_INLINE void copy_step(enum lie lie, const uint16_t *from, size_t row, uint16_t *to) {
    if (lie == ALONG) {
        for (size_t i = 0; i < SL_TILE_COLUMNS / SIDE; i++) turn_pairs(from + i * SIDE * row, row, to + i * TILE);
        return;
    }
    for (int i = 0; i < SIDE; i++, from += 2 * row, to += TERMS) {
        pair_rows(from, row, to);
        pair_rows(from + TERMS, row, to + 2 * TILE);
    }
}

/* Copies a step that is not whole, filled up with zeros. */
static void copy_edge(const struct source *s, const uint16_t *from, size_t columns, size_t terms, uint16_t *to) {
    _Alignas(SL_CACHE_LINE) uint16_t whole[STEP];
    const bool along = s->lie == ALONG;
    const size_t rows = along ? columns : terms, cells = along ? terms : columns, row = along ? TERMS : SL_TILE_COLUMNS;
    memset(whole, 0, sizeof whole);
    for (size_t i = 0; i < rows; i++) memcpy(whole + i * row, from + i * s->row, cells * sizeof *whole);
    copy_step(s->lie, whole, row, to);
}

/* Copies the next COUNT steps, or those that are left. */
static SL_TILE_INLINE void copy_steps(struct stream *stream, size_t count) {
    const struct source *s = stream->source;
    for (size_t i = 0; i < count && stream->column < stream->end; i++, stream->place++) {
        const size_t columns = stream->end - stream->column, terms = stream->depth - stream->step * TERMS;
        const size_t term = stream->from + stream->step * TERMS;
        const uint16_t *from =
            s->all + (s->lie == APART ? term * s->row + stream->column : stream->column * s->row + term);
        uint16_t *to = stream->to + (stream->place & (stream->ring - 1)) * STEP;
        if (columns >= SL_TILE_COLUMNS && terms >= TERMS)
            copy_step(s->lie, from, s->row, to);
        else
            copy_edge(s, from, smaller(columns, SL_TILE_COLUMNS), smaller(terms, TERMS), to);
        stream->step++;
        if (terms > TERMS) continue;
        stream->step = 0;
        stream->column += SL_TILE_COLUMNS;
    }
}

#endif
