/* attention_cases.h - attention of given shapes, with random operands, for test_attention_kernels.c. */
#ifndef SL_TESTS_LAYERS_KERNELS_ATTENTION_ATTENTION_CASES_H
#define SL_TESTS_LAYERS_KERNELS_ATTENTION_ATTENTION_CASES_H

#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float UNTOUCHED = 12345.0f;

struct example {
    struct sl_attention shape;
    size_t rows, key_rows;             /* of all sequences */
    float *q, *q_rope, *kv, *rope;     /* kv [key_rows, k | v | unused columns], rope: k_rope */
    uint16_t *stored_kv, *stored_rope; /* kv and rope as bf16, if keys are bf16; otherwise NULL */
    int32_t *places;                   /* if sequences have several documents */
    float *o, *logsum, *d_o, *dq, *dq_rope, *dkv, *drope, *scratch;
    char name[160];
};

/* Sets keys that no query sees to NaN, as they may be in generation. */
static void spoil_unseen_keys(struct example *e) {
    const struct sl_attention *s = &e->shape;
    for (size_t key = 0; key < e->key_rows; key++) {
        if (key % s->key_rows < s->position + s->queries) continue;
        for (size_t c = 0; c < s->key_stride; c++) e->kv[key * s->key_stride + c] = NAN;
        for (size_t c = 0; c < s->rope; c++) e->rope[key * s->rope + c] = NAN;
    }
}

/* Documents of 1 to LONGEST tokens follow each other. */
static inline int32_t *make_places(struct numbers *numbers, const struct sl_attention *s, size_t longest) {
    int32_t *places = (int32_t *)device_floats(s->sequences * s->queries);
    size_t left = 0;
    for (size_t i = 0; i < s->sequences * s->queries; i++) {
        const bool begins = i % s->queries == 0 || left == 0;
        if (begins) left = 1 + next_word(numbers) % longest;
        places[i] = begins ? 0 : places[i - 1] + 1;
        left--;
    }
    return places;
}

/* SIZE: of the largest elements of q and k. */
static struct example make(struct numbers *numbers, struct sl_attention shape, float size) {
    struct sl_attention *s = &shape;
    /* Tensor cores have kernels for rows that can be read 16 bytes at once, and for others: of 2 bytes, or of 4. */
    const size_t unused = s->products != SL_BF16 ? 1 : s->sequences % 2 ? 8 : s->sequences % 4 ? 1 : 2;
    s->key_stride = 2 * sl_attention_key_heads(s) * s->width + unused;
    struct example e = {.shape = shape, .rows = s->sequences * s->queries, .key_rows = s->sequences * s->key_rows};
    const size_t wide = e.rows * s->heads * s->width, roped = e.rows * s->heads * s->rope;
    const size_t keys = e.key_rows * s->key_stride, shared = e.key_rows * s->rope;
    e.q = random_device_floats(numbers, wide, -size, size);
    e.q_rope = random_device_floats(numbers, roped, -size, size);
    e.kv = random_device_floats(numbers, keys, -size, size);
    e.rope = random_device_floats(numbers, shared, -size, size);
    e.d_o = random_device_floats(numbers, wide, -1.0f, 1.0f);
    e.o = random_device_floats(numbers, wide, -1.0f, 1.0f); /* results are overwritten */
    e.logsum = random_device_floats(numbers, e.rows * s->heads, -1.0f, 1.0f);
    e.dq = random_device_floats(numbers, wide, -1.0f, 1.0f);
    e.dq_rope = random_device_floats(numbers, roped, -1.0f, 1.0f);
    e.dkv = random_device_floats(numbers, keys, UNTOUCHED, UNTOUCHED);
    e.drope = random_device_floats(numbers, shared, -1.0f, 1.0f);
    e.scratch = random_device_floats(numbers, KERNELS(0)->attention->scratch(s) / sizeof(float), -1.0f, 1.0f);
    snprintf(e.name, sizeof e.name, "%zu sequences of %zu from %zu in %zu, %zu heads %zu + %zu, size %g", s->sequences,
             s->queries, s->position, s->key_rows, s->heads, s->width, s->rope, (double)size);
    if (s->products == SL_BF16) { /* so only the weights and the gradients of scores are rounded */
        float *const arrays[] = {e.q, e.q_rope, e.kv, e.rope, e.d_o};
        const size_t counts[] = {wide, roped, keys, shared, wide};
        for (size_t i = 0; i < 5; i++) release_array(settle(arrays[i], counts[i]));
    }
    spoil_unseen_keys(&e);
    if (s->keys == SL_BF16) { /* the oracle reads the stored values */
        e.stored_kv = settle(e.kv, keys);
        e.stored_rope = settle(e.rope, shared);
    }
    return e;
}

static void release(struct example *e) {
    float *const arrays[] = {e->q,   e->q_rope, e->kv,      e->rope, e->o,     e->logsum,
                             e->d_o, e->dq,     e->dq_rope, e->dkv,  e->drope, e->scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    release_array(e->stored_kv);
    release_array(e->stored_rope);
    release_array(e->places);
}

/* Columns of k, and of v. */
static size_t half_of(const struct sl_attention *shape) { return sl_attention_key_heads(shape) * shape->width; }

static void run_forward_to(const struct sl_kernels *kernels, struct example *e, struct sl_out o) {
    const size_t half = half_of(&e->shape);
    if (e->shape.keys == SL_BF16) {
        kernels->attention->forward(&e->shape, e->q, e->q_rope, e->stored_kv, e->stored_kv + half, e->stored_rope, o,
                                    e->logsum);
        return;
    }
    kernels->attention->forward(&e->shape, e->q, e->q_rope, e->kv, e->kv + half, e->rope, o, e->logsum);
}

static void run_forward(const struct sl_kernels *kernels, struct example *e) {
    run_forward_to(kernels, e, sl_out_f32(e->o));
}

/* DKV: [dk | dv]. */
static void run_backward_to(const struct sl_kernels *kernels, struct example *e, struct sl_out dq, struct sl_out dkv) {
    const size_t half = half_of(&e->shape);
    kernels->attention->backward(&e->shape, e->q, e->q_rope, e->kv, e->kv + half, e->rope, e->o, e->logsum, e->d_o, dq,
                                 e->dq_rope, dkv, sl_out_from(dkv, half), e->drope, e->scratch);
}

static void run_backward(const struct sl_kernels *kernels, struct example *e) {
    run_backward_to(kernels, e, sl_out_f32(e->dq), sl_out_f32(e->dkv));
}

#endif
