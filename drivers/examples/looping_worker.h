/* looping_worker.h - sizes of looping_step.c, and the data of one of its coordinates: modules, parameters, arrays. */
#ifndef LOOPING_WORKER_H
#define LOOPING_WORKER_H

#include <shardloop/shardloop.h>
#include <stdio.h>
#include <stdlib.h>

enum { DATA = 2, MODEL = 4, LOOPS = 2, MICROBATCHES = 8, ITERATIONS = LOOPS * MICROBATCHES + MODEL - 1 };
enum { BATCH = 128, LOCAL = BATCH / DATA, ROWS = LOCAL / MICROBATCHES }; /* rows: of all, a replica, a microbatch */
enum { INPUTS = 784, HIDDEN = 512, CLASSES = 10, STEPS = 5, SEED = 42 };
enum { PART_INPUT = LOOPS, PART_OUTPUT, PART_LOSS, PARTS }; /* behind the blocks, one per loop */

struct worker { /* one coordinate; arrays are in device memory */
    struct sl_spmd *self;
    struct sl_group data, ring, world;
    int rank;
    const struct indices *at;      /* its microbatches by iteration */
    struct sl_module *part[PARTS]; /* NULL: another rank has it */
    struct sl_stash stash[PARTS];
    struct sl_parameters parameters;
    struct sl_optimizer_options optimizer;
    struct sl_context context;
    struct sl_batch batch;
    float *inputs, *outputs, *logits;       /* [LOCAL, HIDDEN], [LOCAL, HIDDEN], [LOCAL, CLASSES] */
    float *d_inputs, *d_outputs, *d_logits; /* gradients of these */
    float *x, *y, *dx, *state;              /* x [ITERATIONS][ROWS, HIDDEN]; the others [ROWS, HIDDEN] */
    bool begun[LOOPS];                      /* by loop: the parameters' gradients have a first summand */
    void *taken[32];                        /* device memory, freed by close_worker */
    int takes;
    size_t lacks; /* bytes of a failed allocation; 0: none */
};

static const size_t rows_bytes = sizeof(float) * ROWS * HIDDEN;
static float *row(float *array, int microbatch) { return array + (size_t)microbatch * ROWS * HIDDEN; }

/* ---- a coordinate's modules and memory ---- */

/* Makes the parts of this rank. */
static int build(struct worker *w) {
    const bool first = w->rank == 0, last = w->rank == MODEL - 1;
    for (int loop = 0; loop < LOOPS; loop++) {
        char name[32];
        snprintf(name, sizeof name, "blocks.%d", loop * MODEL + w->rank);
        w->part[loop] = sl_mlp_block(name, HIDDEN, 1, 0.1);
    }
    if (first) w->part[PART_INPUT] = sl_dense("input_dense", INPUTS, HIDDEN);
    if (last) {
        struct sl_module *layer[] = {sl_layer_norm("output_norm", HIDDEN), sl_dense("output_dense", HIDDEN, CLASSES)};
        w->part[PART_OUTPUT] = sl_sequential("", 2, layer);
        w->part[PART_LOSS] = sl_softmax_cross_entropy(CLASSES);
    }
    int missing = PARTS - LOOPS - first - 2 * last;
    for (int part = 0; part < PARTS; part++) missing -= !w->part[part];
    return missing ? sl_fail(w->self, SL_FAILED, "no memory for modules") : SL_OK;
}

/* Plans all parts. A block's parameters belong to its loop; the first and the last layers' to loop 0. *WORKSPACE is the
 * largest need of any call, in bytes. */
static int plan(struct worker *w, size_t *workspace) {
    struct sl_plan plan = {.mesh = w->self->mesh,
                           .gemm = sl_gemm_find(NULL, &w->self->error),
                           .wgrad_group = 1,
                           .parameters = &w->parameters,
                           .error = &w->self->error};
    for (int part = 0; part < PARTS; part++) {
        if (!w->part[part]) continue;
        plan.rows = part < LOOPS ? ROWS : LOCAL;
        plan.loop = part < LOOPS ? part : 0;
        plan.global_layer = part * MODEL + w->rank; /* numbers dropouts, which only blocks have */
        plan.layer = plan.dropouts = 0;
        plan.workspace = 0;
        plan.stash = &w->stash[part];
        plan.stash->slots = part < LOOPS ? MICROBATCHES : 1;
        SL_TRY(sl_module_plan(w->part[part], &plan));
    }
    *workspace = plan.workspace_peak;
    return SL_OK;
}

/* Allocates device memory, freed by close_worker; NULL if there is not enough. */
static void *take(struct worker *w, size_t bytes) {
    void *memory = sl_device.take(bytes);
    if (!memory && bytes) w->lacks = bytes;
    return w->taken[w->takes++] = memory;
}

static int take_arrays(struct worker *w, size_t workspace) {
    float **const local[] = {&w->inputs, &w->outputs, &w->d_inputs, &w->d_outputs};
    for (int i = 0; i < 4; i++) *local[i] = take(w, rows_bytes * MICROBATCHES);
    float **const microbatch[] = {&w->y, &w->dx, &w->state};
    for (int i = 0; i < 3; i++) *microbatch[i] = take(w, rows_bytes);
    w->x = take(w, rows_bytes * ITERATIONS);
    w->logits = take(w, sizeof(float) * LOCAL * CLASSES);
    w->d_logits = take(w, sizeof(float) * LOCAL * CLASSES);
    w->context.workspace = take(w, workspace);
    w->context.sums = take(w, sl_sums_bytes());
    for (int part = 0; part < PARTS; part++)
        w->stash[part].data = take(w, sizeof(float) * w->stash[part].elements * (size_t)w->stash[part].slots);
    return w->lacks ? sl_fail(w->self, SL_FAILED, "no memory for %zu bytes", w->lacks) : SL_OK;
}

/* Copies this replica's rows from the host. */
static int take_batch(struct worker *w, const struct sl_array *in) {
    float *inputs = take(w, sizeof(float) * LOCAL * INPUTS);
    int32_t *labels = take(w, sizeof(int32_t) * LOCAL);
    if (!inputs || !labels) return sl_fail(w->self, SL_FAILED, "no memory for the batch");
    sl_device.copy(inputs, in[0].data, sizeof(float) * LOCAL * INPUTS);
    sl_device.copy(labels, in[1].data, sizeof(int32_t) * LOCAL);
    w->batch = (struct sl_batch){.rows = LOCAL, .inputs = inputs, .labels = labels};
    return SL_OK;
}

static int open_parameters(struct worker *w, size_t *workspace) {
    if (sl_parameters_open(&w->parameters, LOOPS)) return sl_fail(w->self, SL_FAILED, "no memory for parameters");
    w->parameters.data_axis = "data";
    w->parameters.stage_axis = "model";
    w->parameters.states = sl_optimizer_states(&w->optimizer);
    w->parameters.state_name = w->optimizer.method->state;
    SL_TRY(plan(w, workspace)); /* declares them */
    sl_parameters_layout(&w->parameters, DATA, w->data.rank, false);
    sl_parameters_seed(&w->parameters, SEED);
    SL_TRY(sl_parameters_take(&w->parameters, &w->self->error));
    return sl_parameters_initialize(&w->parameters, w->self, &w->data);
}

static int open_worker(struct worker *w, const struct sl_array *in) {
    size_t workspace = 0;
    SL_TRY(sl_group_axes(w->self, "data", &w->data));
    SL_TRY(sl_group_axes(w->self, "model", &w->ring));
    SL_TRY(sl_group_axes(w->self, "*", &w->world));
    w->rank = sl_axis_index(w->self, "model");
    SL_TRY(build(w));
    w->optimizer = sl_adamw_defaults(1e-3f);
    SL_TRY(open_parameters(w, &workspace));
    SL_TRY(take_arrays(w, workspace));
    SL_TRY(take_batch(w, in));
    w->context.self = w->self, w->context.queue = w->self->queue, w->context.kernels = sl_kernels_select();
    w->context.phase = SL_TRAIN, w->context.wgrad_group = 1, w->context.weight = 1.0f / LOCAL;
    w->context.batch = w->batch, w->context.inputs = INPUTS, w->context.parameters = &w->parameters;
    return SL_OK;
}

static void close_worker(struct worker *w) {
    while (w->takes) sl_device.give(w->taken[--w->takes]);
    for (int part = 0; part < PARTS; part++) {
        free(w->stash[part].tensor);
        sl_module_free(w->part[part]);
    }
    sl_parameters_close(&w->parameters);
}

#endif
