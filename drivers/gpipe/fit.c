/* fit.c - the article's pipeline: a main thread issues the tasks of each clock cycle to worker threads, and passes
 * their outputs on. With tensor parallelism each coordinate has its own main thread and workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "drivers/gpipe/gpipe.h"
#include "drivers/gpipe/pool.h"
#include "layers/training/exchange.h"
#include "spmd/device/device.h"

struct partition {
    struct sl_module *module;
    struct sl_stash stash;
    struct sl_spmd self;       /* a copy of the coordinate's state, so a worker's failure does not fail the
                                * coordinate */
    struct sl_context context; /* of the present task: a cycle has one task per partition */
    float *x, *dx;             /* [batch, in], device memory */
    bool begun;                /* gradients of its parameters have been started */
};

struct fit { /* State of one coordinate. */
    struct gpipe_run *run;
    struct sl_spmd *self;
    struct sl_group world;
    struct sl_parameters parameters;
    int partitions, microbatches, rows;
    struct partition *partition; /* [partitions + 1]: the last one is the loss; its x are the outputs */
    struct gpipe_task *task;     /* [partitions] */
    float **batch;               /* [microbatches]: present activations of the microbatch, or its gradient */
    struct gpipe_pool pool;
    struct gpipe_record record;
};

/* ---- modules and memory ---- */

static void *take(struct fit *f, size_t bytes) {
    void *memory = sl_device.take(bytes ? bytes : 1);
    if (!memory) sl_fail(f->self, SL_FAILED, "no memory for %zu bytes", bytes);
    return memory;
}

static int open_arrays(struct fit *f, struct partition *part, size_t workspace) {
    const size_t bytes = sizeof(float) * (size_t)f->run->network->batch * (size_t)part->module->in;
    part->x = take(f, bytes);
    part->dx = take(f, bytes);
    part->stash.data = take(f, sizeof(float) * part->stash.elements * (size_t)part->stash.slots);
    part->context.workspace = take(f, workspace);
    part->context.sums = take(f, sl_sums_bytes());
    return f->self->error.status;
}

static int open_partition(struct fit *f, int number, struct sl_groups *groups) {
    struct partition *part = &f->partition[number];
    const struct gpipe_network *network = f->run->network;
    struct sl_plan plan = {.mesh = f->self->mesh,
                           .gemm = sl_gemm_find(NULL, &f->self->error),
                           .rows = f->rows,
                           .wgrad_group = 1,
                           .loop = number < f->partitions ? number : 0,
                           .has_dx = true,
                           .parameters = &f->parameters,
                           .groups = groups,
                           .stash = &part->stash,
                           .error = &f->self->error};
    part->module = number < f->partitions ? gpipe_stage(network, f->self->mesh, number, f->partitions)
                                          : gpipe_sum(network->columns[network->layers], NULL);
    if (!part->module) return sl_fail(f->self, SL_FAILED, "no memory for the model");
    part->stash.slots = f->microbatches;
    part->self = *f->self;
    /* If tasks communicate, there is one worker. */
    part->context = (struct sl_context){.self = f->self->mesh->size > 1 ? f->self : &part->self,
                                        .kernels = sl_kernels_select(),
                                        .phase = SL_TRAIN,
                                        .rows = f->rows,
                                        .wgrad_group = 1,
                                        .weight = 1.0f, /* the loss is the sum over microbatches, as in the article */
                                        .parameters = &f->parameters,
                                        .groups = groups,
                                        .stash = &part->stash};
    SL_TRY(sl_module_plan(part->module, &plan));
    return open_arrays(f, part, plan.workspace_peak);
}

static int open_fit(struct fit *f, struct sl_groups *groups) {
    static const char *const axes[] = {GPIPE_TENSOR_AXIS, NULL};
    f->partitions = f->run->partitions;
    f->microbatches = f->run->schedule.microbatches;
    f->rows = f->run->network->batch / f->microbatches;
    f->partition = calloc((size_t)f->partitions + 1, sizeof *f->partition);
    f->task = calloc((size_t)f->partitions, sizeof *f->task);
    f->batch = calloc((size_t)f->microbatches, sizeof *f->batch);
    if (!f->partition || !f->task || !f->batch || sl_parameters_open(&f->parameters, f->partitions))
        return sl_fail(f->self, SL_FAILED, "no memory for the partitions");
    f->parameters.stage_axis = GPIPE_PIPE_AXIS;
    SL_TRY(sl_group_axes(f->self, "*", &f->world));
    SL_TRY(sl_groups_open(groups, f->self, axes));
    for (int p = 0; p <= f->partitions; p++) SL_TRY(open_partition(f, p, groups));
    sl_parameters_layout(&f->parameters, 1, 0, false);
    SL_TRY(sl_parameters_take(&f->parameters, &f->self->error));
    return sl_import(f->self, &f->world, &f->parameters, SL_VALUES, &f->run->network->values);
}

static void close_fit(struct fit *f) {
    for (int p = 0; f->partition && p <= f->partitions; p++) {
        struct partition *part = &f->partition[p];
        void *const memory[] = {part->x, part->dx, part->stash.data, part->context.workspace, part->context.sums};
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) sl_device.give(memory[i]);
        free(part->stash.tensor);
        sl_module_free(part->module);
    }
    sl_parameters_close(&f->parameters);
    free(f->partition);
    free(f->task);
    free((void *)f->batch);
}

/* ---- a task, in a worker's thread ---- */

static bool names(const struct gpipe_failure *failure, const struct gpipe_task *task) {
    return failure && failure->coordinate == task->partition && failure->microbatch == task->microbatch &&
           failure->action == (task->backward ? 'B' : 'F') && task->attempts == 1;
}

/* Returns the result planned for this attempt. */
static enum gpipe_end fate(const struct fit *f, const struct gpipe_task *task) {
    const struct gpipe_queues *how = f->run->queues;
    const int number = (task->microbatch * f->partitions + task->partition) * 2 + task->backward;
    float drawn = 1;
    if (names(f->run->failure, task)) return GPIPE_RAISED;
    if (names(how->death, task)) return GPIPE_DIED;
    if (how->trouble > 0)
        sl_random_uniform(sl_fold_in(sl_fold_in(sl_key_of_seed(how->seed), (uint32_t)number), (uint32_t)task->attempts),
                          1, 0, 1, &drawn);
    return drawn < how->trouble / 2 ? GPIPE_DIED : drawn < how->trouble ? GPIPE_RAISED : GPIPE_DONE;
}

static int compute(struct fit *f, struct gpipe_task *task) {
    struct partition *part = &f->partition[task->partition];
    struct sl_context *context = &part->context;
    const float *x = part->x + (size_t)task->microbatch * (size_t)f->rows * (size_t)part->module->in;
    context->queue = task->queue;
    context->microbatch = task->microbatch;
    if (!task->backward) return sl_module_forward(part->module, context, sl_given_f32(task->from), SL_INTO(task->to));
    context->accumulate = part->begun;
    part->begun = true;
    const struct sl_given given = sl_given_f32(x), dy = sl_given_f32(task->from);
    SL_TRY(sl_module_backward_input(part->module, context, given, dy, SL_INTO(task->to)));
    return sl_module_backward_weight(part->module, context, given, dy);
}

/* Executes an attempt. Failures come before any computation, so a retried task adds its gradients only once. */
static enum gpipe_end execute(void *arg, struct gpipe_task *task) {
    struct fit *f = arg;
    const double seconds = f->run->queues->task_ms / 1000;
    const enum gpipe_end end = fate(f, task);
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
    if (end == GPIPE_DIED) pthread_exit(NULL);
    if (end == GPIPE_RAISED) return end;
    struct sl_error *error = &f->partition[task->partition].context.self->error;
    return compute(f, task) || sl_device.settle(error) ? GPIPE_BROKEN : GPIPE_DONE;
}

/* ---- the main thread ---- */

static struct gpipe_task *task_of(struct fit *f, int microbatch, int partition, bool backward) {
    struct gpipe_task *task = &f->task[partition];
    const struct partition *next = &f->partition[partition + !backward];
    float *to = backward ? next->dx : next->x;
    *task = (struct gpipe_task){.backward = backward,
                                .microbatch = microbatch,
                                .partition = partition,
                                .from = f->batch[microbatch],
                                .to = to + (size_t)microbatch * (size_t)f->rows * (size_t)next->module->in};
    return task;
}

static int refuse(struct fit *f, const struct gpipe_task *task) {
    const struct sl_error *error = &f->partition[task->partition].self.error;
    if (error->status) return sl_fail(f->self, error->status, "%s", error->message);
    return sl_fail(f->self, SL_FAILED, "task (%d, %d), %s, has failed in %d attempts", task->microbatch,
                   task->partition, task->backward ? "backward" : "forward", task->attempts);
}

static void record(struct gpipe_record *record, const struct gpipe_task *task) {
    if (record->order)
        record->order[record->tasks] = (struct gpipe_place){task->microbatch, task->partition, task->backward};
    record->tasks++;
}

/* Runs a cycle, as the article's _compute. Its tasks end in any order. */
static int compute_cycle(struct fit *f, int cycle, bool backward) {
    const struct gpipe_cycle active = gpipe_cycle_of(f->run, cycle);
    const int workers = f->run->queues->workers;
    int status = SL_OK;
    SL_TRY(gpipe_pool_resize(&f->pool, workers ? workers : active.end - active.first, &f->self->error));
    for (int p = active.first; p < active.end; p++) gpipe_pool_issue(&f->pool, task_of(f, cycle - p, p, backward));
    for (int p = active.first; p < active.end; p++) {
        const struct gpipe_task *task = gpipe_pool_take(&f->pool);
        if (task->end != GPIPE_DONE) status = refuse(f, task);
        f->batch[task->microbatch] = task->to;
        record(&f->record, task);
    }
    return status;
}

/* Sums the outputs; the gradient replaces the outputs in `batch`. */
static int compute_loss(struct fit *f) {
    struct partition *loss = &f->partition[f->partitions];
    loss->context.queue = f->self->queue;
    for (int m = 0; m < f->microbatches; m++) {
        float *dx = loss->dx + (size_t)m * (size_t)f->rows * (size_t)loss->module->in;
        loss->context.microbatch = m;
        SL_TRY(sl_module_forward(loss->module, &loss->context, sl_given_f32(f->batch[m]), SL_INTO(dx)));
        f->batch[m] = dx;
    }
    return sl_device.settle(&f->self->error);
}

/* Runs the article's fit, then the backward through the cycles from the last to the first. */
static int fit(struct fit *f) {
    const size_t columns = (size_t)f->run->network->columns[0];
    const int cycles = gpipe_cycles(f->run);
    sl_device.copy(f->partition->x, f->run->network->inputs,
                   (size_t)f->run->network->batch * columns * sizeof *f->run->network->inputs);
    SL_TRY(sl_device.settle(&f->self->error));
    for (int m = 0; m < f->microbatches; m++) f->batch[m] = f->partition->x + (size_t)(m * f->rows) * columns;
    for (int cycle = 0; cycle < cycles; cycle++) SL_TRY(compute_cycle(f, cycle, false));
    SL_TRY(compute_loss(f));
    for (int cycle = cycles - 1; cycle >= 0; cycle--) SL_TRY(compute_cycle(f, cycle, true));
    return SL_OK;
}

static int fit_by_workers(struct fit *f) {
    struct gpipe_record *record = &f->record;
    record->order = f->self->coordinate == 0 ? f->run->record.order : NULL;
    f->pool.execute = execute;
    f->pool.arg = f;
    f->pool.device = f->self->device;
    f->pool.attempts = f->run->queues->attempts;
    gpipe_pool_open(&f->pool);
    const int status = fit(f);
    gpipe_pool_close(&f->pool);
    record->started = f->pool.started;
    record->died = f->pool.died;
    record->attempts = f->pool.tried;
    record->utilization = f->pool.worked / f->pool.lived;
    return status;
}

/* Collects the results at coordinate 0. It has the outputs and the gradient of the batch, as all coordinates have, and
 * receives all other gradients. */
static int collect(struct fit *f) {
    struct gpipe_run *run = f->run;
    const size_t batch = (size_t)run->network->batch * sizeof(float);
    if (f->self->coordinate == 0) {
        const struct partition *loss = &f->partition[f->partitions];
        run->record = f->record;
        sl_device.copy(run->outputs, loss->x, batch * (size_t)loss->module->in);
        sl_device.copy(run->batch_gradient, f->partition->dx, batch * (size_t)run->network->columns[0]);
    }
    return sl_export(f->self, &f->world, &f->parameters, SL_GRADIENTS, 1.0f, &run->gradients);
}

int gpipe_fit(struct sl_spmd *self, void *arg) {
    struct fit f = {.run = arg, .self = self};
    struct sl_groups groups = {0};
    int status = open_fit(&f, &groups);
    if (status == SL_OK) status = fit_by_workers(&f);
    if (status == SL_OK) status = collect(&f);
    sl_groups_close(&groups, self);
    close_fit(&f);
    return status;
}
