/* draws.c - random numbers, built as kernels.c is.
 *
 * The build defines SL_DRAWS, the table's name. */
#include "layers/kernels/kernels.h"
#include "spmd/device/offload.h"

enum {
    /* Elements at a time, in several vectors: these hide the latency of an element's long chain. On NVIDIA GPUs
       threads hide it, and 32 elements at a time would fill all registers of a thread. */
    ABREAST = SL_BLOCK > 1 ? 32 : 1,
    KEYS = 4, /* keys of a region */
};

static void draw_words(struct sl_key key, uint32_t n, uint32_t *words) {
    const uint32_t pairs = n / 2, half = pairs + (n & 1), key0 = key.word[0], key1 = key.word[1];
    SL_ELEMENTWISE(is_device_ptr(words), simdlen(ABREAST))
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t y0, y1;
        sl_threefry2x32((struct sl_key){{key0, key1}}, i, i + half, &y0, &y1);
        words[i] = y0;
        words[i + half] = y1;
    }
    if (n & 1) { /* the middle word's partner is the padding */
        SL_ELEMENTWISE(is_device_ptr(words))
        for (uint32_t i = pairs; i < half; i++) words[i] = sl_random_word((struct sl_key){{key0, key1}}, n, i);
    }
}

/* Words of at most KEYS keys, which a region receives as scalars. */
static void words_of_keys(size_t count, const struct sl_key *keys, size_t next, uint32_t n, uint32_t *words) {
    const uint32_t half = n / 2 + (n & 1), pairs = n / 2;
    uint64_t key[KEYS] = {0};
    for (size_t k = 0; k < count; k++) key[k] = (uint64_t)keys[k * next].word[1] << 32 | keys[k * next].word[0];
    const uint64_t k0 = key[0], k1 = key[1], k2 = key[2], k3 = key[3];
    SL_ELEMENTWISE(is_device_ptr(words))
    for (size_t i = 0; i < count * half; i++) {
        const size_t part = i / half, at = i % half;
        const uint64_t k = part < 2 ? (part ? k1 : k0) : (part > 2 ? k3 : k2);
        uint32_t y0, y1;
        sl_threefry2x32((struct sl_key){{(uint32_t)k, (uint32_t)(k >> 32)}}, (uint32_t)at,
                        at < pairs ? (uint32_t)at + half : 0, &y0, &y1);
        words[part * n + at] = y0;
        if (at < pairs) words[part * n + half + at] = y1;
    }
}

static void words_each(size_t count, const struct sl_key *keys, size_t next, uint32_t n, uint32_t *words) {
    const size_t together = SL_TOGETHER ? KEYS : 1;
    for (size_t k = 0; k < count; k += together, keys += together * next, words += together * n) {
        if (SL_TOGETHER)
            words_of_keys(count - k < together ? count - k : together, keys, next, n, words);
        else
            draw_words(*keys, n, words);
    }
}

/* For each row, half COLUMN & 1 of the hash of (row, column / 2). */
static void words_of_column(struct sl_key key, uint32_t first_row, uint32_t rows, uint32_t column, size_t stride,
                            uint32_t *words) {
    const uint32_t key0 = key.word[0], key1 = key.word[1];
    SL_ELEMENTWISE(is_device_ptr(words))
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t y[2];
        sl_threefry2x32((struct sl_key){{key0, key1}}, first_row + r, column / 2, &y[0], &y[1]);
        words[r * stride] = column & 1 ? y[1] : y[0];
    }
}

static void words_global(struct sl_key key, uint32_t first_row, uint32_t rows, uint32_t first_col, uint32_t cols,
                         size_t stride, uint32_t *words) {
    if (cols == 0) return;
    /* A row may begin with an odd column, continues with whole hashes, and may end with an even column. */
    const uint32_t head = first_col & 1, pairs = (cols - head) / 2, first_pair = (first_col + head) / 2;
    const uint32_t key0 = key.word[0], key1 = key.word[1];
    SL_ROWS(is_device_ptr(words))
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t *whole = words + r * stride + head;
        SL_LANES(simdlen(ABREAST))
        for (uint32_t i = 0; i < pairs; i++) {
            uint32_t y0, y1;
            sl_threefry2x32((struct sl_key){{key0, key1}}, first_row + r, first_pair + i, &y0, &y1);
            whole[2 * (size_t)i] = y0;
            whole[2 * (size_t)i + 1] = y1;
        }
    }
    if (head) words_of_column(key, first_row, rows, first_col, stride, words);
    if (head + 2 * pairs < cols) words_of_column(key, first_row, rows, first_col + cols - 1, stride, words + cols - 1);
}

static void truncated_normal(uint32_t n, const uint32_t *words, float scale, float *values) {
    /* VALUES may be WORDS: may_alias tells the compiler that floats and words may overlap. */
    typedef uint32_t __attribute__((may_alias)) aliased;
    const aliased *word = words;
    SL_ELEMENTWISE(is_device_ptr(word, values), simdlen(ABREAST))
    for (uint32_t i = 0; i < n; i++) values[i] = scale * sl_truncated_normal_of_word(word[i]);
}

static void normal(uint32_t n, const uint32_t *words, float *values) {
    typedef uint32_t __attribute__((may_alias)) aliased; /* as above */
    const aliased *word = words;
    SL_ELEMENTWISE(is_device_ptr(word, values), simdlen(ABREAST))
    for (uint32_t i = 0; i < n; i++) values[i] = sl_normal_of_word(word[i]);
}

const struct sl_draws SL_DRAWS = {
    .words = draw_words,
    .words_each = words_each,
    .words_global = words_global,
    .truncated_normal = truncated_normal,
    .normal = normal,
};
