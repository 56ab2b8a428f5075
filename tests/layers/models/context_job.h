/* context_job.h - a small transformer whose sequences the axis "context" divides, with kinds of attention and experts.
 * Includes cmocka. */
#ifndef SL_TESTS_LAYERS_MODELS_CONTEXT_JOB_H
#define SL_TESTS_LAYERS_MODELS_CONTEXT_JOB_H

#include "tests/rigs/transformer_job.h"

enum { SEQUENCE = 48 }; /* divides into two blocks for each of 2, 3, 4 and 8 coordinates */

static inline struct job job_of(const char *mesh) {
    struct job job = small_job(mesh);
    job.model.blocks = 1;
    job.model.positions = job.sequence = SEQUENCE;
    job.batch = 4;
    job.steps = 1;
    return job;
}

static inline struct job latent(const char *mesh) { return job_of(mesh); }
static inline struct job dropping(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.dropout = 0.2;
    return job;
}
static inline struct job in_documents(const char *mesh) {
    struct job job = job_of(mesh);
    job.document = 7;
    return job;
}
static inline struct job grouped(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.attention = SL_ATTENTION_GROUPED;
    job.model.key_heads = 4;
    return job;
}
static inline struct job of_one_key(const char *mesh) {
    struct job job = grouped(mesh);
    job.model.key_heads = 1; /* which coordinates along tensor share */
    job.model.biases = SL_BIASES_NONE;
    return job;
}
static inline struct job windowed(const char *mesh) {
    struct job job = grouped(mesh);
    job.model.window = 10;
    return job;
}
static inline struct job windowed_in_documents(const char *mesh) {
    struct job job = windowed(mesh);
    job.document = 7;
    return job;
}
static inline struct job of_learned_positions(const char *mesh) {
    struct job job = of_one_key(mesh);
    job.model.rope = 0;
    job.model.learned_positions = SEQUENCE;
    return job;
}

/* Half of the choices that are above the mean are dropped. */
static inline struct job of_experts(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.experts = 8;
    job.model.choices = 2;
    job.model.shared_experts = 1;
    job.model.expert_dimension = 16;
    job.model.capacity = 1.0;
    job.model.balance = 0.3;
    return job;
}
static inline struct job of_experts_of_one_choice(const char *mesh) {
    struct job job = of_experts(mesh);
    job.model.choices = 1;
    job.model.capacity = 0.0;
    job.model.shared_experts = 0;
    job.document = 7;
    return job;
}

static inline void compare(struct job job, const struct job *want, const char *what, double loss, double gradient) {
    char name[120];
    snprintf(name, sizeof name, "%s on %s", what, job.mesh);
    run_job(&job);
    if (has_results()) {
        expect_near_numbers(name, 1, job.loss, want->loss, loss);
        expect_near_store(name, &job.gradients, &want->gradients, gradient);
    }
    free_job(&job);
}

static inline void refuse(struct job job, const char *reason) {
    struct sl_error error = {0};
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    if (!strstr(error.message, reason)) fail_msg("\"%s\" does not say \"%s\"", error.message, reason);
    free_job(&job);
}

static inline struct job with_leaves(struct job job, bool half) {
    job.leaves = 1;
    job.context_leaves = 8;
    job.microbatches = 4;
    job.model.fsdp = false;
    job.storage = half ? SL_BF16 : SL_F32;
    return job;
}

#endif
