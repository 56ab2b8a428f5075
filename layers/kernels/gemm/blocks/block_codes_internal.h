/* block_codes_internal.h - unpacks quantized weights of LANES rows for integer products: a lane is a row of weights,
 * and has four codes in a word. The instructions are those of the including file's CPU level. */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_CODES_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_BLOCK_CODES_INTERNAL_H

#include <string.h>

#include "layers/formats/quantized/quantized.h"
#include "layers/kernels/gemm/blocks/dot_bytes_internal.h"
#include "layers/kernels/loops/lanes_internal.h"

enum {
    VECTORS = 2, /* of rows of weights that are unpacked together */
    WIDTH = VECTORS * LANES,
    DEPTH = 768, /* most terms that are unpacked together: whole blocks of every type */
    SMALL = 32,  /* weights of a small block, and terms of an unpacked step */
    WORDS = SMALL / 4,
    STEPS = SL_LARGEST_BLOCK / SMALL, /* of a large block */
    FINE = 16,                        /* weights of the smallest group with a scale */
};

/* GGML's numbers. */
enum kind { Q8_0 = 8, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

/* Weights are (code - base) * scale + minimum; either the base or the minimum is 0. */
static inline int base_of(const enum kind kind) {
    return kind == Q8_0 ? 128 : kind == Q4_0 ? 8 : kind == Q5_0 ? 16 : kind == Q3_K ? 4 : kind == Q6_K ? 32 : 0;
}
static inline bool has_minimum(const enum kind kind) { return base_of(kind) == 0; }
static inline bool is_large(const enum kind kind) { return kind >= Q2_K; }
/* Weights with one scale. */
static inline int group_of(const enum kind kind) { return kind == Q2_K || kind == Q3_K || kind == Q6_K ? FINE : SMALL; }
static inline int largest_code(const enum kind kind) {
    return kind == Q8_0 ? 255 : kind == Q6_K ? 63 : kind == Q5_0 || kind == Q5_1 || kind == Q5_K ? 31 : 15;
}

/* Some terms of WIDTH rows of weights. */
struct unpacked {
    words code[DEPTH / 4][VECTORS];
    vector scale[DEPTH / FINE][VECTORS], least[DEPTH / FINE][VECTORS]; /* of each group */
};

/* TO = 16 bytes of each lane: those from OFFSET on. */
static inline __attribute__((always_inline)) void load_words(const uint8_t *const at[LANES], size_t offset,
                                                             words to[4]) {
    float bytes[LANES][4];
    SL_UNROLL
    for (int i = 0; i < LANES; i++) memcpy(bytes[i], at[i] + offset, sizeof *bytes);
    load_columns(bytes[0], 4, (vector *)(void *)to);
}

static inline __attribute__((always_inline)) words byte_of(words x, int i) { return x >> 8 * i & 255; }
static inline __attribute__((always_inline)) vector float_of(words x) {
    return __builtin_convertvector((integers)x, vector);
}

/* Prefetches COUNT bytes, a few lines at a time, while others are unpacked: a core can wait for few lines at once. */
static inline __attribute__((always_inline)) void ask_for(const uint8_t *at, size_t count) {
    for (size_t line = 0; line < count; line += SL_CACHE_LINE) __builtin_prefetch(at + line, 0, 2);
}

/* ---- blocks of 32 weights ---- */

/* Bytes before the fifth bits, and before the codes. */
static inline size_t fifths_at(const enum kind kind) { return kind == Q5_0 ? 2 : kind == Q5_1 ? 4 : 0; }
static inline size_t codes_at(const enum kind kind) {
    return kind == Q8_0 || kind == Q4_0 ? 2 : kind == Q4_1 ? 4 : kind == Q5_0 ? 6 : 8;
}

/* Unpacks BLOCKS blocks of each lane as vectors V, and prefetches as much from NEXT on. */
static inline __attribute__((always_inline)) void unpack_small(const enum kind kind, const uint8_t *const at[LANES],
                                                               const uint8_t *next, size_t bytes, size_t blocks, int v,
                                                               struct unpacked *to) {
    for (size_t b = 0; b < blocks; b++) {
        ask_for(next + b * LANES * bytes, LANES * bytes);
        const words head = load_word(at, b * bytes); /* scale and minimum */
        const words fifths = fifths_at(kind) ? load_word(at, b * bytes + fifths_at(kind)) : head;
        words code[WORDS];
        load_words(at, b * bytes + codes_at(kind), code);
        if (kind == Q8_0) load_words(at, b * bytes + codes_at(kind) + 16, code + 4);
        SL_UNROLL
        for (int j = WORDS - 1; j >= 0; j--) {
            if (kind == Q8_0)
                code[j] ^= 0x80808080u;
            else
                code[j] = code[j % 4] >> j / 4 * 4 & 0x0f0f0f0fu;
            if (fifths_at(kind)) /* four bits, a byte apart */
                code[j] |= ((fifths >> 4 * j & 15) * 0x00204081u & 0x01010101u) << 4;
            to->code[b * WORDS + (size_t)j][v] = code[j];
        }
        to->scale[b][v] = floats_of_halves(head);
        if (has_minimum(kind)) to->least[b][v] = floats_of_halves(head >> 16);
    }
}

/* ---- blocks of 256 weights ---- */

/* Eight scales and eight minima of six bits. The upper two bits of the last four are in the bytes of the first four. */
static inline __attribute__((always_inline)) void unpack_fine_scales(const uint8_t *const at[LANES], size_t offset,
                                                                     size_t group, int v, struct unpacked *to) {
    words head[4];
    load_words(at, offset, head);
    const vector d = floats_of_halves(head[0]), less = -floats_of_halves(head[0] >> 16);
    SL_UNROLL
    for (int g = 0; g < STEPS; g++) {
        const int i = g % 4;
        const words low = byte_of(head[1], i), high = byte_of(head[2], i), last = byte_of(head[3], i);
        const words scale = g < 4 ? low & 63 : (last & 15) | low >> 6 << 4;
        const words least = g < 4 ? high & 63 : last >> 4 | high >> 6 << 4;
        to->scale[group + (size_t)g][v] = d * float_of(scale);
        to->least[group + (size_t)g][v] = less * float_of(least);
    }
}

/* Sixteen scales. load_words reads 16 bytes and must not pass the block's end, so fields there are read from an earlier
 * byte. */
static inline __attribute__((always_inline)) void unpack_pairs_of_scales(const enum kind kind,
                                                                         const uint8_t *const at[LANES], size_t offset,
                                                                         size_t group, int v, struct unpacked *to) {
    words packed[4], end[4];
    load_words(at, offset + (kind == Q2_K ? 0 : kind == Q3_K ? 94 : 192), packed);
    load_words(at, offset + (kind == Q2_K ? 68 : kind == Q3_K ? 94 : 194), end);
    const vector d = floats_of_halves(kind == Q2_K ? end[3] : end[3] >> 16), less = -floats_of_halves(end[3] >> 16);
    for (int i = 0; i < 3 && kind == Q3_K; i++) packed[i] = end[i] >> 16 | end[i + 1] << 16;
    SL_UNROLL
    for (int g = 0; g < 2 * STEPS; g++) {
        const words own = byte_of(packed[g / 4], g % 4);
        vector scale = float_of(own & 15);
        if (kind == Q2_K) to->least[group + (size_t)g][v] = less * float_of(own >> 4);
        if (kind == Q3_K) {
            const words low = byte_of(packed[g % 8 / 4], g % 4) >> g / 8 * 4 & 15;
            const words high = byte_of(packed[2], g % 4) >> 2 * (g / 4) & 3;
            scale = __builtin_convertvector((integers)(low | high << 4) - 32, vector);
        }
        if (kind == Q6_K) scale = __builtin_convertvector((integers)(own << 24) >> 24, vector);
        to->scale[group + (size_t)g][v] = d * scale;
    }
}

/* A block's codes of steps that share bytes. LOW: four bits, or two; HIGH: the other bits. */
struct shared {
    words low[2 * WORDS], high[WORDS];
};

static inline __attribute__((always_inline)) void load_32(const uint8_t *const at[LANES], size_t offset, words *to) {
    load_words(at, offset, to);
    load_words(at, offset + 16, to + 4);
}

/* Loads the steps from FIRST on of the block at OFFSET. */
static inline __attribute__((always_inline)) void load_shared(const enum kind kind, const uint8_t *const at[LANES],
                                                              size_t offset, size_t first, struct shared *to) {
    const size_t part = first / 4;
    if (kind == Q2_K || kind == Q3_K) load_32(at, offset + (kind == Q2_K ? 16 : 32) + 32 * part, to->low);
    if (kind == Q4_K || kind == Q5_K) load_32(at, offset + (kind == Q4_K ? 16 : 48) + 16 * first, to->low);
    if (kind == Q3_K || kind == Q5_K) load_32(at, offset + (kind == Q3_K ? 0 : 16), to->high);
    if (kind != Q6_K) return;
    load_32(at, offset + 64 * part, to->low);
    load_32(at, offset + 64 * part + 32, to->low + WORDS);
    load_32(at, offset + 128 + 32 * part, to->high);
}

/* Returns word J of step G. */
static inline __attribute__((always_inline)) words code_of(const enum kind kind, const struct shared *from, int g,
                                                           int j) {
    if (kind == Q2_K) return from->low[j] >> 2 * (g % 4) & 0x03030303u;
    if (kind == Q3_K) return (from->low[j] >> 2 * (g % 4) & 0x03030303u) | (from->high[j] >> g & 0x01010101u) << 2;
    if (kind == Q4_K) return from->low[j] >> 4 * (g % 2) & 0x0f0f0f0fu;
    if (kind == Q5_K) return (from->low[j] >> 4 * (g % 2) & 0x0f0f0f0fu) | (from->high[j] >> g & 0x01010101u) << 4;
    return (from->low[g % 2 * WORDS + j] >> g % 4 / 2 * 4 & 0x0f0f0f0fu) | (from->high[j] >> 2 * (g % 4) & 0x03030303u)
                                                                               << 4;
}

static inline __attribute__((always_inline)) void unpack_large(const enum kind kind, const uint8_t *const at[LANES],
                                                               const uint8_t *next, size_t bytes, size_t blocks, int v,
                                                               struct unpacked *to) {
    const int shares = kind == Q4_K || kind == Q5_K ? 2 : 4;
    for (size_t b = 0; b < blocks; b++) {
        ask_for(next + b * LANES * bytes, LANES * bytes);
        const size_t groups = (size_t)(SL_LARGEST_BLOCK / group_of(kind));
        if (group_of(kind) == FINE)
            unpack_pairs_of_scales(kind, at, b * bytes, b * groups, v, to);
        else
            unpack_fine_scales(at, b * bytes, b * groups, v, to);
        SL_UNROLL
        for (int first = 0; first < STEPS; first += shares) {
            struct shared shared;
            load_shared(kind, at, b * bytes, (size_t)first, &shared);
            SL_UNROLL
            for (int i = 0; i < shares * WORDS; i++)
                to->code[(b * STEPS + (size_t)first) * WORDS + (size_t)i][v] =
                    code_of(kind, &shared, first + i / WORDS, i % WORDS);
        }
    }
}

#endif
