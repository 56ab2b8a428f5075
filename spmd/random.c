/* random.c - whole arrays of random numbers, equal to jax.random's. */
#include "spmd/random.h"

enum { BLOCK = 256 }; /* words per pass; they stay in the first-level cache */

/* Receives words [at, at + count) of an array. */
typedef void word_sink(void *arg, uint32_t at, uint32_t count, const uint32_t *words);

/* Passes the N words of KEY to SINK. One hash gives a word of the lower and one of the upper half of the array. If N is
 * odd, the last upper word does not exist and its count is 0. */
static void make_words(struct sl_key key, uint32_t n, word_sink *sink, void *arg) {
    const uint32_t half = n / 2 + (n & 1), upper = n / 2;
    uint32_t low[BLOCK], high[BLOCK];
    for (uint32_t first = 0; first < half; first += BLOCK) {
        const uint32_t count = half - first < BLOCK ? half - first : BLOCK;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t partner = first + i < upper ? half + first + i : 0;
            sl_threefry2x32(key, first + i, partner, &low[i], &high[i]);
        }
        sink(arg, first, count, low);
        sink(arg, half + first, upper - first < BLOCK ? upper - first : BLOCK, high);
    }
}

static void sink_bits(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    memcpy((uint32_t *)arg + at, words, count * sizeof *words);
}

void sl_random_bits(struct sl_key key, uint32_t n, uint32_t *out) { make_words(key, n, sink_bits, out); }

struct uniform {
    float minimum, maximum;
    float *out;
};

static void sink_uniform(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    const struct uniform uniform = *(struct uniform *)arg;
    float *out = uniform.out + at;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = sl_uniform_between_of_word(words[i], uniform.minimum, uniform.maximum);
    }
}

void sl_random_uniform(struct sl_key key, uint32_t n, float minimum, float maximum, float *out) {
    make_words(key, n, sink_uniform, &(struct uniform){minimum, maximum, out});
}

static void sink_normal(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    float *out = (float *)arg + at;
    for (uint32_t i = 0; i < count; i++) out[i] = sl_normal_of_word(words[i]);
}

void sl_random_normal(struct sl_key key, uint32_t n, float *out) { make_words(key, n, sink_normal, out); }

static void sink_truncated_normal(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    float *out = (float *)arg + at;
    for (uint32_t i = 0; i < count; i++) out[i] = sl_truncated_normal_of_word(words[i]);
}

void sl_random_truncated_normal(struct sl_key key, uint32_t n, float *out) {
    make_words(key, n, sink_truncated_normal, out);
}

struct bernoulli {
    float p;
    uint8_t *out;
};

static void sink_bernoulli(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    const struct bernoulli bernoulli = *(struct bernoulli *)arg;
    uint8_t *out = bernoulli.out + at;
    for (uint32_t i = 0; i < count; i++) out[i] = sl_uniform_of_word(words[i]) < bernoulli.p;
}

void sl_random_bernoulli(struct sl_key key, uint32_t n, float p, uint8_t *out) {
    make_words(key, n, sink_bernoulli, &(struct bernoulli){p, out});
}

/* Two words make a 64-bit number; the result is its remainder by SPAN. MULTIPLIER is 2^32 mod SPAN. Products overflow
 * as in JAX. */
struct randint {
    uint32_t span, multiplier;
    int32_t minimum, *out;
};

static void sink_upper_words(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    const struct randint randint = *(struct randint *)arg;
    for (uint32_t i = 0; i < count; i++) {
        randint.out[at + i] = (int32_t)(words[i] % randint.span * randint.multiplier);
    }
}

static void sink_lower_words(void *arg, uint32_t at, uint32_t count, const uint32_t *words) {
    const struct randint randint = *(struct randint *)arg;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t sum = (uint32_t)randint.out[at + i] + words[i] % randint.span;
        randint.out[at + i] = (int32_t)((uint32_t)randint.minimum + sum % randint.span);
    }
}

void sl_random_randint(struct sl_key key, uint32_t n, int32_t minimum, int32_t maximum, int32_t *out) {
    struct randint randint = {.span = 1, .minimum = minimum, .out = out};
    if (maximum > minimum) randint.span = (uint32_t)maximum - (uint32_t)minimum;
    const uint32_t root = (1u << 16) % randint.span;
    randint.multiplier = root * root % randint.span;
    make_words(sl_split(key, 2, 0), n, sink_upper_words, &randint);
    make_words(sl_split(key, 2, 1), n, sink_lower_words, &randint);
}
