/* attention_blocks_internal.h - blocks of keys in backward, and sums of the parts that heads and teams write. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_BLOCKS_INTERNAL_H

#include "layers/kernels/attention/attention_sight_internal.h"

/* Blocks of keys lie so that the first query is the first row of a block, too: keys before the first whole block, if
 * any, are a block of their own, which all queries see. Returns the number of KEY's block, and block NUMBER's keys. */
SL_INLINE size_t number_of_block(size_t position, size_t block, size_t key) {
    const size_t rest = position % block;
    return (key + (rest ? block - rest : 0)) / block;
}
struct key_block {
    size_t from, count;
};
SL_INLINE struct key_block block_of_keys(size_t position, size_t block, size_t number, size_t keys) {
    const size_t rest = position % block, before = rest ? block - rest : 0;
    const size_t from = number ? number * block - before : 0;
    return (struct key_block){from, smaller((number + 1) * block - before, keys) - from};
}
/* The first query that sees keys of block NUMBER. */
SL_INLINE size_t first_query_of(size_t position, size_t block, size_t number) {
    const struct key_block keys = block_of_keys(position, block, number, SIZE_MAX);
    return keys.from > position ? keys.from - position : 0;
}

SL_INLINE void clear_rows(size_t rows, size_t cols, float *x) {
    EACH_TILE()
    for (size_t i = 0; i < rows * cols; i++) x[i] = 0.0f;
}

/* sums [n] of parts [heads, n], or if it ADDS, added to the sums before */
static void sum_heads(size_t heads, size_t n, bool adds, const float *parts, float *sums) {
    SL_BLOCKS(is_device_ptr(parts, sums))
    for (size_t first = 0; first < n; first += SL_BLOCK) {
        const size_t end = SL_BLOCK > 1 ? smaller(first + SL_BLOCK, n) : first + 1; /* a constant number on GPUs */
        for (size_t head = 0; head < heads; head++) {
            const float *part = parts + head * n;
            SL_IN_BLOCK()
            for (size_t i = first; i < end; i++) sums[i] = head || adds ? sums[i] + part[i] : part[i];
        }
    }
}

/* dq [rows, cols], of sequences of QUERIES, = sum of the TEAMS' parts, in the order of their first keys; some teams
 * have no part of a block of queries. */
static void add_teams(size_t teams, size_t rows, size_t queries, size_t cols, size_t block, size_t position,
                      size_t window, const int32_t *places, const float *parts, bool rounds, float *dq,
                      uint16_t *stored) {
    SL_ROWS(is_device_ptr(places, parts, dq, stored)) /* only on GPUs */
    for (size_t row = 0; row < rows; row++) {
        const size_t query = row % queries / block * block, sequence = row / queries * queries;
        const struct past past = {position, window, places ? places + sequence : NULL};
        const size_t first = number_of_block(position, block, first_key(&past, query));
        const size_t end = smaller(number_of_block(position, block, position + query) + 1, first + teams);
        SL_THREADS()
        for (size_t c = row * cols; c < (row + 1) * cols; c++) {
            float sum = parts[first % teams * (rows * cols) + c];
            for (size_t key = first + 1; key < end; key++) sum += parts[key % teams * (rows * cols) + c];
            dq[c] = sum;
            if (rounds) sl_settle(dq, stored, c);
        }
    }
}

#endif
