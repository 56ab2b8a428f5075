/* looping_step.c - an example to copy: the notebook's looping pipeline, written out on one page. It teaches how one
 * program, run at every coordinate of a mesh (data, model), becomes a pipeline: by four arrays of indices and a
 * ppermute round the ring. The losses are those of looping_pipeline --rng global.
 *
 * The model is the notebook's classifier: an input layer, LOOPS blocks at each of MODEL ranks, a norm and an output
 * layer. forward_step is the notebook's execute_looping_pipeline_step. The notebook computes at all ranks and selects
 * one of two results by jnp.where; here an if decides before anything is computed. So a rank skips the MODEL - 1
 * iterations without a microbatch for it, 3 of 19, and the layers of other ranks. backward_step is the transpose of
 * forward_step, and takes the iterations in reverse order. layers/training/pipeline.c does the same for any schedule:
 * it overlaps sending with computing, and keeps less. */
#include <shardloop/shardloop.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 2, MODEL = 4, LOOPS = 2, MICROBATCHES = 8, ITERATIONS = LOOPS * MICROBATCHES + MODEL - 1 };
enum { BATCH = 128, LOCAL = BATCH / DATA, ROWS = LOCAL / MICROBATCHES }; /* rows: of all, a replica, a microbatch */
enum { INPUTS = 784, HIDDEN = 512, CLASSES = 10, FEATURES = ROWS * HIDDEN, STEPS = 5, SEED = 42 };
enum { INPUT_LAYER = LOOPS, OUTPUT_LAYERS, LOSS, PARTS }; /* parts of the model; 0 to LOOPS - 1: this rank's blocks */
typedef float features[FEATURES];                         /* of a microbatch */

struct arrays { /* a coordinate's, in device memory; d_: gradients */
    float batch[LOCAL * INPUTS], logits[LOCAL * CLASSES], d_logits[LOCAL * CLASSES];
    int32_t labels[LOCAL];
    features inputs[MICROBATCHES], outputs[MICROBATCHES], d_inputs[MICROBATCHES], d_outputs[MICROBATCHES];
    features x[ITERATIONS], y, dx, last_state; /* x is kept for backward; last_state has been received */
};

struct worker { /* a coordinate */
    struct sl_spmd *self;
    struct sl_group data, ring, world;
    int rank;                                                                          /* along model */
    int input[ITERATIONS], output[ITERATIONS], update[ITERATIONS], params[ITERATIONS]; /* -1: none */
    struct sl_module *part[PARTS];                                                     /* NULL: another rank has it */
    struct sl_stash stash[PARTS]; /* what a part keeps for its backward, by microbatch */
    struct sl_parameters parameters;
    struct sl_optimizer_options optimizer;
    struct sl_context context; /* of the present call of a part */
    struct arrays *arrays;
};

/* The notebook's prepare_looping_pipeline_indices. In the bubble, without a microbatch, params is -1 instead of 0. */
static void prepare(struct worker *w) {
    for (int i = 0; i < ITERATIONS; i++) {
        const int n = i - w->rank, loop = n / MICROBATCHES, microbatch = n % MICROBATCHES, back = i - MODEL;
        const bool works = n >= 0 && n < LOOPS * MICROBATCHES;
        w->params[i] = works ? loop : -1;
        w->input[i] = works && w->rank == 0 ? microbatch : -1;
        w->output[i] = works && w->rank == MODEL - 1 && loop == LOOPS - 1 ? microbatch : -1;
        w->update[i] = w->rank == 0 && back >= 0 && back < (LOOPS - 1) * MICROBATCHES ? back % MICROBATCHES : -1;
    }
}

/* Sends FROM to the next rank of the ring (BY 1) or to the previous one (BY -1), and receives last_state. */
static int pass_on(struct worker *w, const float *from, int by) {
    int ring[MODEL][2];
    for (int i = 0; i < MODEL; i++) ring[i][0] = i, ring[i][1] = (i + by + MODEL) % MODEL;
    return sl_ppermute(w->self, &w->ring, SL_F32, from, w->arrays->last_state, FEATURES, MODEL, (const int(*)[2])ring);
}

/* Prepares a call of PART: of a block in iteration I, or of other layers, which take a replica's rows at once. */
static struct sl_context *call(struct worker *w, int part, int i) {
    w->context.stash = &w->stash[part];
    w->context.microbatch = part < LOOPS ? (i - w->rank) % MICROBATCHES : 0;
    w->context.rows = part < LOOPS ? ROWS : LOCAL;
    w->context.dropout.first_row = (uint32_t)(w->data.rank * LOCAL + w->context.microbatch * ROWS);
    return &w->context;
}
static int forward(struct worker *w, int part, int i, const float *x, float *y) {
    return w->part[part] ? sl_module_forward(w->part[part], call(w, part, i), sl_given_f32(x), SL_INTO(y)) : SL_OK;
}
static int backward(struct worker *w, int part, int i, const float *x, const float *dy, float *dx) {
    if (!w->part[part]) return SL_OK;
    struct sl_context *c = call(w, part, i);
    c->accumulate = part < LOOPS && c->microbatch < MICROBATCHES - 1; /* the last one overwrites */
    SL_TRY(sl_module_backward_input(w->part[part], c, sl_given_f32(x), sl_given_f32(dy), dx ? SL_INTO(dx) : NULL));
    return sl_module_backward_weight(w->part[part], c, sl_given_f32(x), sl_given_f32(dy));
}

static int forward_step(struct worker *w, int i) {
    struct arrays *a = w->arrays;
    const int input = w->input[i], output = w->output[i], update = w->update[i], loop = w->params[i];
    if (update >= 0) sl_device.copy(a->inputs[update], a->last_state, sizeof(features));
    sl_device.copy(a->x[i], input >= 0 ? a->inputs[input] : a->last_state, sizeof(features));
    if (loop >= 0) SL_TRY(forward(w, loop, i, a->x[i], a->y));
    if (output >= 0) sl_device.copy(a->outputs[output], a->y, sizeof(features));
    return pass_on(w, a->y, 1);
}

/* last_state is the gradient of the y that forward_step has sent; what is sent back is the gradient of its x. */
static int backward_step(struct worker *w, int i) {
    struct arrays *a = w->arrays;
    const int input = w->input[i], output = w->output[i], update = w->update[i], loop = w->params[i];
    const float *dy = output >= 0 ? a->d_outputs[output] : a->last_state;
    if (loop >= 0) SL_TRY(backward(w, loop, i, a->x[i], dy, a->dx));
    if (input >= 0) sl_device.copy(a->d_inputs[input], a->dx, sizeof(features));
    return pass_on(w, update >= 0 ? a->d_inputs[update] : a->dx, -1);
}

static int compute_gradients(struct worker *w) {
    struct arrays *a = w->arrays;
    SL_TRY(forward(w, INPUT_LAYER, 0, a->batch, *a->inputs));
    for (int i = 0; i < ITERATIONS; i++) SL_TRY(forward_step(w, i));
    SL_TRY(forward(w, OUTPUT_LAYERS, 0, *a->outputs, a->logits));
    SL_TRY(forward(w, LOSS, 0, a->logits, a->d_logits)); /* a loss writes the gradient of its x to y */
    SL_TRY(backward(w, OUTPUT_LAYERS, 0, *a->outputs, a->d_logits, *a->d_outputs));
    for (int i = ITERATIONS - 1; i >= 0; i--) SL_TRY(backward_step(w, i));
    return backward(w, INPUT_LAYER, 0, a->batch, *a->d_inputs, NULL);
}

static int train_step(struct worker *w, int step, float *loss) {
    struct sl_metrics metrics = {0};
    w->context.dropout.step_key = sl_fold_in(sl_fold_in(sl_key_of_seed(SEED), 1), (uint32_t)step + 1);
    sl_sums_clear(w->context.sums);
    SL_TRY(compute_gradients(w));
    for (int r = 0; r < w->parameters.ranges; r++) {
        struct sl_range *range = &w->parameters.range[r];
        SL_TRY(sl_pmean(w->self, &w->data, SL_F32, range->gradient, range->gradient, range->count));
        SL_TRY(sl_optimizer_update(&w->optimizer, w->context.kernels, &w->parameters, r, step + 1, 1, &w->self->error));
    }
    sl_sums_read(w->context.sums, &metrics); /* zeros at ranks without the loss */
    float sums[] = {(float)metrics.loss, (float)metrics.rows};
    SL_TRY(sl_psum(w->self, &w->world, SL_F32, sums, sums, 2));
    *loss = sums[0] / sums[1];
    return SL_OK;
}

static struct sl_module *make_part(int rank, int part) {
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", part * MODEL + rank);
    if (part < LOOPS) return sl_mlp_block(name, HIDDEN, 1, 0.1);
    if (part == INPUT_LAYER) return sl_dense("input_dense", INPUTS, HIDDEN);
    if (part == LOSS) return sl_softmax_cross_entropy(CLASSES);
    return sl_sequential(
        "", 2, (struct sl_module *[]){sl_layer_norm("output_norm", HIDDEN), sl_dense("output_dense", HIDDEN, CLASSES)});
}

static void *take(struct worker *w, size_t bytes) {
    void *memory = sl_device.take(bytes ? bytes : 1);
    if (!memory) sl_fail(w->self, SL_FAILED, "no memory for %zu bytes", bytes);
    return memory;
}

/* Makes the parts of this rank. A block's parameters belong to its loop, those of the other layers to loop 0. */
static int open_parts(struct worker *w) {
    struct sl_plan plan = {.mesh = w->self->mesh,
                           .gemm = sl_gemm_find(NULL, &w->self->error),
                           .wgrad_group = 1,
                           .parameters = &w->parameters,
                           .error = &w->self->error};
    for (int part = 0; part < PARTS; part++) {
        struct sl_stash *stash = plan.stash = &w->stash[part];
        if (part >= LOOPS && w->rank != (part == INPUT_LAYER ? 0 : MODEL - 1)) continue;
        if (!(w->part[part] = make_part(w->rank, part))) return sl_fail(w->self, SL_FAILED, "no memory for modules");
        plan.rows = part < LOOPS ? ROWS : LOCAL;
        plan.loop = part < LOOPS ? part : 0;
        plan.global_layer = part * MODEL + w->rank; /* numbers dropouts, which only blocks have */
        plan.layer = plan.dropouts = 0, plan.workspace = 0;
        stash->slots = part < LOOPS ? MICROBATCHES : 1;
        SL_TRY(sl_module_plan(w->part[part], &plan));
        stash->data = take(w, sizeof(float) * stash->elements * (size_t)stash->slots);
    }
    w->context.workspace = take(w, plan.workspace_peak); /* the most that a call needs */
    return w->self->error.status;
}

static int open_worker(struct worker *w, const struct sl_array *in) {
    SL_TRY(sl_group_axes(w->self, "data", &w->data));
    SL_TRY(sl_group_axes(w->self, "model", &w->ring));
    SL_TRY(sl_group_axes(w->self, "*", &w->world));
    w->rank = sl_axis_index(w->self, "model");
    prepare(w);
    w->optimizer = sl_adamw_defaults(1e-3f);
    if (sl_parameters_open(&w->parameters, LOOPS)) return sl_fail(w->self, SL_FAILED, "no memory for parameters");
    w->parameters.data_axis = "data", w->parameters.stage_axis = "model";
    w->parameters.states = sl_optimizer_states(&w->optimizer);
    SL_TRY(open_parts(w)); /* declares the parameters */
    sl_parameters_layout(&w->parameters, DATA, w->data.rank, false);
    sl_parameters_seed(&w->parameters, SEED);
    SL_TRY(sl_parameters_take(&w->parameters, &w->self->error));
    SL_TRY(sl_parameters_initialize(&w->parameters, w->self, &w->data));
    w->arrays = take(w, sizeof *w->arrays);
    w->context.sums = take(w, sl_sums_bytes());
    SL_TRY(w->self->error.status);
    sl_device.copy(w->arrays->batch, in[0].data, sizeof w->arrays->batch); /* this replica's rows */
    sl_device.copy(w->arrays->labels, in[1].data, sizeof w->arrays->labels);
    w->context.self = w->self, w->context.queue = w->self->queue, w->context.kernels = sl_kernels_select();
    w->context.phase = SL_TRAIN, w->context.wgrad_group = 1, w->context.weight = 1.0f / LOCAL;
    w->context.batch = (struct sl_batch){.rows = LOCAL, .inputs = w->arrays->batch, .labels = w->arrays->labels};
    w->context.inputs = INPUTS, w->context.parameters = &w->parameters;
    return SL_OK;
}

static void close_worker(struct worker *w) {
    for (int part = 0; part < PARTS; part++) {
        sl_device.give(w->stash[part].data);
        free(w->stash[part].tensor);
        sl_module_free(w->part[part]);
    }
    sl_device.give(w->context.workspace);
    sl_device.give(w->context.sums);
    sl_device.give(w->arrays);
    sl_parameters_close(&w->parameters);
}

/* The mapped function: every coordinate has its replica's rows of the batch, and returns the losses. */
static int train(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    struct worker w = {.self = self};
    (void)arg;
    int status = open_worker(&w, in);
    for (int step = 0; status == SL_OK && step < STEPS; step++)
        status = train_step(&w, step, (float *)out[0].data + step);
    close_worker(&w);
    return status;
}

static int run(struct sl_error *error) {
    static float inputs[BATCH * INPUTS], losses[STEPS];
    static int32_t labels[BATCH];
    struct sl_array batch[] = {{SL_F32, 2, {BATCH, INPUTS}, inputs}, {SL_I32, 1, {BATCH}, labels}};
    struct sl_array result = {SL_F32, 1, {STEPS}, losses};
    struct sl_spec rows[2], everywhere;
    struct sl_mesh mesh;
    struct sl_engine engine;
    sl_random_normal(sl_split(sl_key_of_seed(SEED), 3, 1), BATCH * INPUTS, inputs);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 2), BATCH, 0, CLASSES, labels);
    SL_TRY(sl_spec_parse(&rows[0], "data,-", error));
    SL_TRY(sl_spec_parse(&rows[1], "data", error));
    SL_TRY(sl_spec_parse(&everywhere, "-", error));
    SL_TRY(sl_cpu_level_check(error)); /* checks SHARDLOOP_CPU_LEVEL */
    SL_TRY(sl_mesh_parse(&mesh, "data=2,model=4", error));
    SL_TRY(sl_engine_open(&engine, "local", error));
    engine.error = error;
    const struct sl_shard_map map = {2, 1, batch, rows, &result, &everywhere};
    SL_TRY(sl_shard_map_run(&map, &mesh, &engine, train, NULL));
    for (int step = 0; step < STEPS; step++) printf("step %d  loss %.9g\n", step, losses[step]);
    return SL_OK;
}

int main(int argc, char **argv) {
    struct sl_error error = {0};
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    signal(SIGXFSZ, SIG_IGN); /* so that a file size limit is a write error, too */
    if (argc > 1) fputs("looping_step: an example; it takes no arguments\n", help ? stdout : stderr);
    int status = help ? SL_OK : argc > 1 ? SL_BAD_INPUT : run(&error);
    if (error.status) fprintf(stderr, "looping_step: %s\n", error.message);
    if (!error.status && fflush(stdout)) perror("looping_step: stdout"), status = SL_FAILED;
    return status;
}
