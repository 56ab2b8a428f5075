/* trainer_rig.h - a training run on a mesh: a test's settings, and the run's results. Includes cmocka. */
#ifndef SL_TESTS_RIGS_TRAINER_RIG_H
#define SL_TESTS_RIGS_TRAINER_RIG_H

#include <stdlib.h>

#include "tests/rigs/run_on.h"

#include "layers/models/classifier.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/fuse.h"

enum { INPUTS = 12, HIDDEN = 16, CLASSES = 5, BATCH = 48, MAX_STEPS = 4 };

struct job {
    const char *mesh, *schedule;
    int loops, layers, microbatches, group, steps;
    double dropout;
    int zero; /* as in sl_trainer_options */
    bool overlap;
    bool sharded;   /* as in struct sl_schedule */
    int fuse;       /* microbatches of a run; 0: none are joined */
    int accumulate; /* 0: one pass */
    float clip;     /* 0: none */
    bool ignore_nan;
    int offload; /* bits: the optimizer's state, activations, weights */
    enum sl_dtype precision, storage;
    const char *const *module_axes;               /* along which the model's modules communicate; may be NULL */
    const struct sl_rule *rules;                  /* of the parameters' specs; may be NULL */
    double delay;                                 /* of every message and sum, seconds */
    const struct sl_optimizer_options *optimizer; /* NULL: AdamW's defaults with learning rate 1e-2 */
    const struct sl_store *from;                  /* initial values; NULL: made from the seed */
    const struct sl_classifier *shape;            /* inputs, hidden, expansion, classes; NULL: a small one */
    void (*keys)(struct sl_parameters *parameters, const struct job *job, const struct sl_model *model, int rank);
    /* All may be NULL: the schedule by name, the classifier, and all steps one after another. */
    void (*make)(const struct job *job, struct sl_schedule *table); /* lowered */
    int (*build)(struct job *job, struct sl_spmd *self, struct sl_model *model);
    int (*train)(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer);
    void *user; /* a test's own */
    /* Filled in. */
    struct sl_schedule table;
    float inputs[BATCH * INPUTS];
    int32_t labels[BATCH];
    float targets[BATCH * CLASSES];
    double loss[MAX_STEPS], evaluated; /* means over all rows; of the last values */
    struct sl_store values, gradients;
};

static inline struct sl_batch batch_of(const struct sl_spmd *self, const struct job *job) {
    const int rows = BATCH / sl_axis_size(self, "data"), first = rows * sl_axis_index(self, "data");
    return (struct sl_batch){.rows = rows,
                             .inputs = job->inputs + first * INPUTS,
                             .labels = job->labels + first,
                             .targets = job->targets + first * CLASSES};
}

/* Steps [FIRST, END). */
static inline int train_steps(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer, int first, int end) {
    const struct sl_batch batch = batch_of(self, job);
    for (int step = first; step < end; step++) {
        struct sl_metrics metrics;
        bool stop = false;
        SL_TRY(sl_trainer_step(trainer, &batch, &metrics, &stop));
        if (self->coordinate == 0) job->loss[step] = metrics.loss / metrics.rows;
        if (metrics.rows != BATCH) return sl_fail(self, SL_CHECK_FAILED, "%g rows were counted", metrics.rows);
    }
    return SL_OK;
}

static inline int evaluate(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    const struct sl_batch batch = batch_of(self, job);
    struct sl_metrics metrics;
    SL_TRY(sl_trainer_evaluate(trainer, &batch, &metrics));
    if (self->coordinate == 0) job->evaluated = metrics.loss / metrics.rows;
    return SL_OK;
}

static inline int train_and_export(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    SL_TRY(sl_trainer_open(trainer, job->from));
    SL_TRY(job->train ? job->train(self, job, trainer) : train_steps(self, job, trainer, 0, job->steps));
    if (job->steps > 0 && job->accumulate < 2) SL_TRY(evaluate(self, job, trainer));
    SL_TRY(sl_trainer_export(trainer, false, &job->values));
    return sl_trainer_export(trainer, true, &job->gradients);
}

static inline int build_classifier(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    static const struct sl_classifier small = {.inputs = INPUTS, .hidden = HIDDEN, .expansion = 2, .classes = CLASSES};
    struct sl_classifier classifier = job->shape ? *job->shape : small;
    classifier.layers = job->layers;
    classifier.dropout = job->dropout;
    return sl_classifier_build(&classifier, &job->table, sl_axis_index(self, "model"), model, &self->error);
}

struct key_request {
    const struct job *job;
    const struct sl_model *model;
    int rank;
};

static inline void assign_keys(struct sl_parameters *parameters, void *arg) {
    const struct key_request *request = arg;
    request->job->keys(parameters, request->job, request->model, request->rank);
}

static inline int train_program(struct sl_spmd *self, void *arg) {
    struct job *job = arg;
    struct sl_model model = {0};
    struct key_request request = {job, &model, sl_axis_index(self, "model")};
    const int passes = job->accumulate > 1 ? job->accumulate : 1;
    const struct sl_trainer_options options = {
        .pipeline = {.axis = "model",
                     .rules = job->rules,
                     .group_axes = job->module_axes,
                     .schedule = &job->table,
                     .gemm = sl_gemm_find("reference", &self->error),
                     .precision = job->precision,
                     .storage = job->storage,
                     .rows = BATCH / sl_axis_size(self, "data") / job->microbatches / passes,
                     .offload_activations = job->offload & 2,
                     .wgrad_group = job->group},
        .data_axis = "data",
        .optimizer = job->optimizer ? *job->optimizer : sl_adamw_defaults(1e-2f),
        .clip = job->clip,
        .accumulate = job->accumulate,
        .ignore_nan = job->ignore_nan,
        .zero = job->zero,
        .overlap = job->overlap,
        .offload_optimizer = job->offload & 1,
        .offload_weights = job->offload & 4,
        .offload_directory = ".",
        .seed = 3,
        .assign_keys = job->keys ? assign_keys : NULL,
        .arg = &request,
    };
    struct sl_trainer *trainer = NULL;
    int status = job->build ? job->build(job, self, &model) : build_classifier(job, self, &model);
    if (status == SL_OK) status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = train_and_export(self, job, trainer);
    sl_trainer_close(trainer);
    sl_model_free(&model);
    return status;
}

/* Makes the schedule and the batch. */
static inline void open_job(struct job *job) {
    struct sl_error error = {0};
    struct sl_mesh mesh;
    bool fused;
    assert_int_equal(sl_mesh_parse(&mesh, job->mesh, &error), SL_OK);
    assert_in_range(job->steps, 0, MAX_STEPS);
    if (job->make) {
        job->make(job, &job->table);
    } else {
        const int ranks = sl_mesh_axis_size(&mesh, "model");
        if (sl_schedule_make(&job->table, job->schedule, ranks, job->loops, job->microbatches, &error))
            fail_msg("%s", error.message);
        if (job->fuse > 1 && (sl_schedule_fuse(&job->table, job->fuse, &fused, &error) || !fused))
            fail_msg("%s has no runs of %d", job->schedule, job->fuse);
        job->table.sharded = job->sharded;
        if (sl_schedule_lower(&job->table, &error)) fail_msg("%s", error.message);
    }
    sl_random_normal(sl_key_of_seed(5), BATCH * INPUTS, job->inputs);
    sl_random_randint(sl_key_of_seed(6), BATCH, 0, CLASSES, job->labels);
    sl_random_normal(sl_key_of_seed(7), BATCH * CLASSES, job->targets);
}

static inline void run_job(struct job *job) {
    struct sl_error error = {0};
    open_job(job);
    const int status =
        run_on((struct test_run){.mesh = job->mesh, .delay = job->delay, .arg = job}, train_program, &error);
    if (status) fail_msg("%s on %s: %s", job->schedule, job->mesh, error.message);
}

static inline void free_job(struct job *job) {
    sl_schedule_free(&job->table);
    sl_store_free(&job->values);
    sl_store_free(&job->gradients);
}

/* Returns the data of STORE's tensor with TENSOR's name; fails unless it has as many elements. */
static inline const float *same_tensor(const struct sl_store *store, const struct sl_tensor *tensor) {
    const struct sl_tensor *other = sl_store_find(store, tensor->name);
    if (!other) fail_msg("there is no %s", tensor->name);
    assert_int_equal(sl_array_elements(&other->array), sl_array_elements(&tensor->array));
    return other->array.data;
}

static inline void expect_same_store(const struct sl_store *a, const struct sl_store *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct sl_array *array = &a->tensor[i].array;
        if (memcmp(array->data, same_tensor(b, &a->tensor[i]), sl_array_elements(array) * sizeof(float)))
            fail_msg("%s has other bits", a->tensor[i].name);
    }
}

/* Losses, values and gradients, in all their bits. */
static inline void expect_same_run(const struct job *a, const struct job *b) {
    if (memcmp(a->loss, b->loss, sizeof a->loss))
        fail_msg("%s on %s: loss %.9g, not %.9g", b->schedule, b->mesh, b->loss[b->steps - 1], a->loss[b->steps - 1]);
    assert_true(a->evaluated == b->evaluated);
    expect_same_store(&a->values, &b->values);
    expect_same_store(&a->gradients, &b->gradients);
}

#endif
