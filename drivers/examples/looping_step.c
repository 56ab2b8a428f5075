/* looping_step.c - an example to copy: the looping pipeline, written out. It teaches how one program, run at every
 * coordinate of a mesh (data, model), becomes a pipeline: by four arrays of indices and a ppermute round the ring.
 *
 * The model is the notebook's classifier: an input layer, LOOPS blocks at each of MODEL ranks, a norm and an output
 * layer. Iteration i of a step is the notebook's execute_looping_pipeline_step. The backward pass takes the iterations
 * in reverse order, each the transpose of its forward. The notebook computes at all ranks and selects one of two
 * results by jnp.where; here an if decides before anything is computed. So a rank skips the MODEL - 1 iterations
 * without a microbatch for it, 3 of 19, and the layers of other ranks.
 *
 * layers/training/pipeline.c does the same for any schedule: it overlaps sending with computing, and saves less. The
 * losses are those of looping_pipeline --rng global. looping_worker.h has the modules, and the arrays of rows. */
#include <errno.h>
#include <shardloop/shardloop.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "looping_worker.h"

struct indices { /* of one rank; -1: no action */
    int input[ITERATIONS], output[ITERATIONS], update[ITERATIONS], params[ITERATIONS];
};

/* The notebook's prepare_looping_pipeline_indices, except that params is -1 instead of 0 in the bubble. */
static void prepare(struct indices *at, int rank) {
    memset(at, -1, sizeof *at);
    for (int i = 0; i < LOOPS * MICROBATCHES; i++) {
        const int loop = i / MICROBATCHES, microbatch = i % MICROBATCHES;
        at->params[rank + i] = loop;
        if (rank == 0) at->input[i] = microbatch;
        if (rank == 0 && loop < LOOPS - 1) at->update[MODEL + i] = microbatch;
        if (rank == MODEL - 1 && loop == LOOPS - 1) at->output[rank + i] = microbatch;
    }
}

/* ---- a step: forward, backward, update ---- */

/* Sends FROM to the next rank of the ring (BY 1) or to the previous one (BY -1), and receives the state. */
static int pass_on(struct worker *w, const float *from, int by) {
    int ring[MODEL][2];
    for (int i = 0; i < MODEL; i++) ring[i][0] = i, ring[i][1] = (i + by + MODEL) % MODEL;
    return sl_ppermute(w->self, &w->ring, SL_F32, from, w->state, (size_t)ROWS * HIDDEN, MODEL, (const int(*)[2])ring);
}

/* The context of a call of PART for a microbatch of ROWS rows. */
static struct sl_context *call(struct worker *w, int part, int microbatch, int rows) {
    struct sl_context *context = &w->context;
    context->stash = &w->stash[part];
    context->microbatch = microbatch;
    context->rows = rows;
    context->dropout.first_row = (uint32_t)(w->data.rank * LOCAL + microbatch * rows);
    return context;
}
static int microbatch_of(const struct worker *w, int i) { return (i - w->rank) % MICROBATCHES; }

static int forward_step(struct worker *w, int i) {
    const int input = w->at->input[i], output = w->at->output[i], update = w->at->update[i], loop = w->at->params[i];
    float *x = row(w->x, i);
    if (update >= 0) sl_device.copy(row(w->inputs, update), w->state, rows_bytes);
    sl_device.copy(x, input >= 0 ? row(w->inputs, input) : w->state, rows_bytes);
    if (loop >= 0) SL_TRY(sl_module_forward(w->part[loop], call(w, loop, microbatch_of(w, i), ROWS), x, w->y));
    if (output >= 0) sl_device.copy(row(w->outputs, output), w->y, rows_bytes);
    return pass_on(w, w->y, 1);
}

/* The transpose of forward_step: the state, the gradient of the sent y, becomes the gradient of x. */
static int backward_step(struct worker *w, int i) {
    const int input = w->at->input[i], output = w->at->output[i], update = w->at->update[i], loop = w->at->params[i];
    if (loop >= 0) {
        const struct sl_module *block = w->part[loop];
        struct sl_context *context = call(w, loop, microbatch_of(w, i), ROWS);
        const float *x = row(w->x, i), *dy = output >= 0 ? row(w->d_outputs, output) : w->state;
        context->accumulate = w->begun[loop];
        SL_TRY(sl_module_backward_input(block, context, x, dy, w->dx));
        SL_TRY(sl_module_backward_weight(block, context, x, dy));
        w->begun[loop] = true;
    }
    if (input >= 0) sl_device.copy(row(w->d_inputs, input), w->dx, rows_bytes);
    return pass_on(w, update >= 0 ? row(w->d_inputs, update) : w->dx, -1);
}

/* The first and the last layers run on all rows of a replica at once, at the rank that has them. */
static int apply(struct worker *w, int part, const float *x, float *y) {
    return w->part[part] ? sl_module_forward(w->part[part], call(w, part, 0, LOCAL), x, y) : SL_OK;
}
static int transpose(struct worker *w, int part, const float *x, const float *dy, float *dx) {
    if (!w->part[part]) return SL_OK;
    struct sl_context *context = call(w, part, 0, LOCAL);
    context->accumulate = false;
    SL_TRY(sl_module_backward_input(w->part[part], context, x, dy, dx));
    return sl_module_backward_weight(w->part[part], context, x, dy);
}

static int compute_gradients(struct worker *w) {
    SL_TRY(apply(w, PART_INPUT, w->batch.inputs, w->inputs));
    for (int i = 0; i < ITERATIONS; i++) SL_TRY(forward_step(w, i));
    SL_TRY(apply(w, PART_OUTPUT, w->outputs, w->logits));
    SL_TRY(apply(w, PART_LOSS, w->logits, w->d_logits)); /* a loss writes the gradient of its x to y */
    SL_TRY(transpose(w, PART_OUTPUT, w->outputs, w->d_logits, w->d_outputs));
    memset(w->begun, 0, sizeof w->begun);
    for (int i = ITERATIONS - 1; i >= 0; i--) SL_TRY(backward_step(w, i));
    return transpose(w, PART_INPUT, w->batch.inputs, w->d_inputs, NULL);
}

static int train_step(struct worker *w, int step, float *loss) {
    struct sl_metrics metrics = {0};
    w->context.dropout.step_key = sl_fold_in(sl_fold_in(sl_key_of_seed(SEED), 1), (uint32_t)step + 1);
    sl_sums_clear(w->context.sums);
    SL_TRY(compute_gradients(w));
    for (int r = 0; r < w->parameters.ranges; r++) {
        struct sl_range *range = &w->parameters.range[r];
        if (!range->count) continue;
        SL_TRY(sl_pmean(w->self, &w->data, SL_F32, range->gradient, range->gradient, range->count));
        SL_TRY(
            sl_optimizer_update(&w->optimizer, w->context.kernels, &w->parameters, r, step + 1, 1.0f, &w->self->error));
    }
    sl_sums_read(w->context.sums, &metrics); /* zeros at ranks without the loss */
    float sums[] = {(float)metrics.loss, (float)metrics.rows};
    SL_TRY(sl_psum(w->self, &w->world, SL_F32, sums, sums, 2));
    *loss = sums[0] / sums[1];
    return SL_OK;
}

/* ---- the mapped function: every coordinate has its rows of the batch, and returns the losses ---- */

static int train(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    struct indices at;
    struct worker w = {.self = self, .at = &at};
    float *loss = out[0].data;
    (void)arg;
    prepare(&at, sl_axis_index(self, "model"));
    int status = open_worker(&w, in);
    for (int step = 0; status == SL_OK && step < STEPS; step++) status = train_step(&w, step, &loss[step]);
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
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    engine.error = error;
    const struct sl_shard_map map = {2, 1, batch, rows, &result, &everywhere};
    SL_TRY(sl_shard_map_run(&map, &mesh, &engine, train, NULL));
    for (int step = 0; step < STEPS; step++) printf("step %d  loss %.9g\n", step, losses[step]);
    return SL_OK;
}

int main(int argc, char **argv) {
    struct sl_error error = {0};
    signal(SIGXFSZ, SIG_IGN); /* so that a file size limit is a write error, too */
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 1)
        fprintf(help ? stdout : stderr, "looping_step: the looping pipeline, written out;%sit takes no arguments\n",
                help ? "\n" : " ");
    if (argc > 1 && !help) return SL_BAD_INPUT;
    int status = help ? SL_OK : run(&error);
    errno = 0;
    if (status) {
        fprintf(stderr, "looping_step: %s\n", error.message);
    } else if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "looping_step: stdout: %s\n", errno ? strerror(errno) : "could not be written");
        status = SL_FAILED;
    }
    return status;
}
