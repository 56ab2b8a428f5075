/* tile_rig.h - a module of a transformer on a mesh: a coordinate has a tile of x [all rows, all columns], its rows by
 * "data", its columns by "tensor", in microbatches. Includes cmocka. */
#ifndef SL_TESTS_RIGS_TILE_RIG_H
#define SL_TESTS_RIGS_TILE_RIG_H

#include "tests/rigs/run_on.h"

#include "layers/modules/transformer_modules.h"
#include "layers/training/exchange.h"
#include "spmd/device/device.h"
#include "tests/rigs/numbers.h"

struct tile {
    size_t whole_columns;
    size_t first_row, first_column, rows, columns;
};

static inline struct tile tile_of(const struct sl_mesh *mesh, int coordinate, size_t all, size_t columns) {
    const int data = sl_mesh_find_axis(mesh, "data"), tensor = sl_mesh_find_axis(mesh, "tensor");
    struct tile tile = {.whole_columns = columns,
                        .rows = all / (size_t)sl_mesh_axis_size(mesh, "data"),
                        .columns = columns / (size_t)sl_mesh_axis_size(mesh, "tensor")};
    if (data >= 0) tile.first_row = tile.rows * (size_t)sl_mesh_index(mesh, coordinate, data);
    if (tensor >= 0) tile.first_column = tile.columns * (size_t)sl_mesh_index(mesh, coordinate, tensor);
    return tile;
}

/* One coordinate's. */
struct worker {
    struct sl_module *module, *decoder; /* the second over the same parameters, or NULL */
    struct sl_parameters parameters;
    struct sl_groups groups;
    struct sl_stash stash, again, once, none; /* none: of a module that saves nothing */
    struct sl_caches caches;
    struct sl_metrics metrics;
    struct sl_context context;
    size_t workspace;
    int microbatches, microbatch_rows;
    struct tile tile;
    float *x, *y, *dy, *dx; /* [tile.rows, tile.columns] */
};

/* ---- setting up ---- */

static inline int open_tile(struct sl_spmd *self, struct worker *worker, size_t all, size_t columns, int rows) {
    static const char *const axes[] = {"data", "tensor", NULL};
    worker->tile = tile_of(self->mesh, self->coordinate, all, columns);
    worker->microbatch_rows = rows;
    worker->microbatches = (int)worker->tile.rows / rows;
    if (sl_parameters_open(&worker->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory");
    worker->parameters.data_axis = "data";
    return sl_groups_open(&worker->groups, self, axes);
}

/* For the test to go on with. */
static inline struct sl_plan plan_of(struct sl_spmd *self, struct worker *worker) {
    worker->again.once = &worker->once;
    return (struct sl_plan){.mesh = self->mesh,
                            .gemm = sl_gemm_find("reference", &self->error),
                            .rows = worker->microbatch_rows,
                            .parameters = &worker->parameters,
                            .stash = &worker->stash,
                            .again = &worker->again,
                            .groups = &worker->groups,
                            .error = &self->error};
}

static inline int plan_one(struct worker *worker, struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(sl_module_plan(module, plan));
    if (plan->workspace_peak > worker->workspace) worker->workspace = plan->workspace_peak;
    return SL_OK;
}

static inline int take_parameters(struct sl_spmd *self, struct worker *worker) {
    sl_parameters_layout(&worker->parameters, sl_axis_size(self, "data"), sl_axis_index(self, "data"), false);
    return sl_parameters_take(&worker->parameters, &self->error);
}

static inline void take_stash(struct sl_stash *stash, int slots) {
    stash->slots = slots;
    stash->data = sl_device.take(stash->elements * (size_t)slots * sizeof(float));
}

/* The tile of ARRAY [all, columns], the host's. */
static inline float *take_tile(const struct tile *tile, const float *array) {
    const float *first = array + tile->first_row * tile->whole_columns + tile->first_column;
    float *part = sl_device.take(tile->rows * tile->columns * sizeof *part);
    for (size_t r = 0; part && r < tile->rows; r++)
        sl_device.copy(part + r * tile->columns, first + r * tile->whole_columns, tile->columns * sizeof *part);
    return part;
}

/* Allocates stashes and arrays for a planned module. PLAN is the test's; X and DY are whole arrays, not tiles. */
static inline void take_arrays(struct sl_spmd *self, struct worker *worker, const struct sl_plan *plan, const float *x,
                               const float *dy) {
    const size_t bytes = worker->tile.rows * worker->tile.columns * sizeof(float);
    take_stash(&worker->stash, worker->microbatches);
    take_stash(&worker->again, worker->microbatches);
    take_stash(&worker->once, 1);
    worker->x = take_tile(&worker->tile, x);
    worker->dy = take_tile(&worker->tile, dy);
    worker->y = sl_device.take(bytes);
    worker->dx = sl_device.take(bytes);
    worker->context = (struct sl_context){.self = self,
                                          .kernels = sl_kernels_select(),
                                          .queue = self->queue,
                                          .rows = plan->rows,
                                          .sequence = plan->sequence,
                                          .wgrad_group = plan->wgrad_group,
                                          .metrics = &worker->metrics,
                                          .dropout.step_key = sl_key_of_seed(7),
                                          .parameters = &worker->parameters,
                                          .stash = &worker->stash,
                                          .groups = &worker->groups,
                                          .again = &worker->again,
                                          .once = &worker->once,
                                          .sums = sl_device.take(sl_sums_bytes()),
                                          .workspace = sl_device.take(worker->workspace)};
}

static inline void close_worker(struct worker *worker) {
    void *const taken[] = {worker->x,           worker->dx,         worker->y,         worker->dy,
                           worker->stash.data,  worker->again.data, worker->once.data, worker->context.workspace,
                           worker->context.sums};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) sl_device.give(taken[i]);
    free(worker->stash.tensor);
    free(worker->again.tensor);
    free(worker->once.tensor);
    free(worker->none.tensor);
    sl_caches_close(&worker->caches);
    if (worker->parameters.range) sl_parameters_close(&worker->parameters);
    sl_module_free(worker->module);
    sl_module_free(worker->decoder);
}

/* ---- running ---- */

/* Fills DATA with NaNs, so a read before the first write is seen. */
static inline void poison(void *data, size_t count) {
    void *nans = count ? malloc(sizeof(float) * count) : NULL;
    if (!nans) return;
    memset(nans, 0xff, sizeof(float) * count);
    sl_device.copy(data, nans, sizeof(float) * count);
    sl_device.settle(NULL);
    free(nans);
}

static inline void begin_microbatch(struct worker *worker, int microbatch) {
    struct sl_context *context = &worker->context;
    context->microbatch = microbatch;
    context->dropout.first_row = (uint32_t)(worker->tile.first_row + (size_t)(microbatch * worker->microbatch_rows));
    poison(context->workspace, worker->workspace / sizeof(float));
}

static inline void poison_all(struct worker *worker) {
    poison(worker->stash.data, worker->stash.elements * (size_t)worker->stash.slots);
    poison(worker->again.data, worker->again.elements * (size_t)worker->again.slots);
    for (int r = 0; r < worker->parameters.ranges && !worker->parameters.values_only; r++)
        poison(worker->parameters.range[r].gradient, worker->parameters.range[r].count);
}

/* All forwards, all I, the last microbatch first, then all W. */
static inline int train(struct worker *worker, bool forward_only, bool without_dx) {
    const struct sl_module *module = worker->module;
    struct sl_context *context = &worker->context;
    const size_t stride = (size_t)worker->microbatch_rows * worker->tile.columns;
    poison_all(worker);
    for (int m = 0; m < worker->microbatches; m++) {
        const size_t at = (size_t)m * stride;
        begin_microbatch(worker, m);
        SL_TRY(module->type->forward(module, context, sl_given_f32(worker->x + at), SL_INTO(worker->y + at)));
    }
    if (forward_only)
        return worker->stash.elements ? sl_fail(context->self, SL_CHECK_FAILED, "it wants a stash") : SL_OK;
    for (int m = worker->microbatches - 1; m >= 0; m--) {
        const size_t at = (size_t)m * stride;
        begin_microbatch(worker, m);
        SL_TRY(module->type->backward_input(module, context, sl_given_f32(worker->x + at),
                                            sl_given_f32(worker->dy + at),
                                            without_dx ? NULL : SL_INTO(worker->dx + at)));
    }
    for (int m = 0; m < worker->microbatches; m += context->wgrad_group) {
        const size_t at = (size_t)m * stride;
        begin_microbatch(worker, m);
        context->accumulate = m > 0;
        SL_TRY(module->type->backward_weight(module, context, sl_given_f32(worker->x + at),
                                             sl_given_f32(worker->dy + at)));
    }
    return SL_OK;
}

/* Sums gradients over data. A parameter that its spec does not shard over data has, at each coordinate, only that
 * coordinate's part of the sum. */
static inline int reduce(struct sl_spmd *self, const struct worker *worker) {
    struct sl_group data;
    if (sl_axis_size(self, "data") == 1) return SL_OK;
    SL_TRY(sl_group_axes(self, "data", &data));
    const struct sl_range *range = &worker->parameters.range[0];
    return sl_psum(self, &data, SL_F32, range->gradient, range->gradient, range->count);
}

/* ---- runs of all coordinates, and their results ---- */

/* Defined by the test: a run's inputs and results (struct trial), a coordinate's preparation (open_worker) and its work
 * (run_worker). */
struct trial;
static int open_worker(struct sl_spmd *self, struct worker *worker, const struct trial *trial);
static int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial);

static inline int trial_program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    int status = open_worker(self, &worker, arg);
    if (status == SL_OK) status = run_worker(self, &worker, arg);
    close_worker(&worker);
    return status;
}

/* Runs TRIAL, which must succeed. Sets MESH to the mesh that ON describes. */
static inline void run_tiles(const char *on, struct trial *trial, bool checked, struct sl_mesh *mesh) {
    struct sl_error error;
    assert_int_equal(sl_mesh_parse(mesh, on, NULL), SL_OK);
    if (run_on((struct test_run){.mesh = on, .checked = checked, .arg = trial}, trial_program, &error))
        fail_msg("on %s: %s", on, error.message);
}

/* Copies VALUES, this coordinate's tile, to its own place in COPIES, each of COUNT floats. Coordinate 0 then has all
 * tiles. */
static inline int collect(struct sl_spmd *self, const struct worker *worker, const float *values, size_t count,
                          float *copies) {
    sl_device.copy(copies + (size_t)self->coordinate * count, values,
                   worker->tile.rows * worker->tile.columns * sizeof *values);
    return sl_gather_records(self, copies, count * sizeof *copies);
}

/* Joins tiles: COPIES are the coordinates' tiles, each with room for the whole [all, columns]; the first becomes the
 * whole. */
static inline void join_tiles(const struct sl_mesh *mesh, size_t all, size_t columns, float *copies) {
    const size_t count = all * columns;
    float *whole = malloc(count * sizeof *whole);
    assert_non_null(whole);
    for (int i = 0; i < mesh->size; i++) {
        const struct tile tile = tile_of(mesh, i, all, columns);
        for (size_t r = 0; r < tile.rows; r++)
            memcpy(whole + (tile.first_row + r) * columns + tile.first_column,
                   copies + (size_t)i * count + r * tile.columns, tile.columns * sizeof *whole);
    }
    memcpy(copies, whole, count * sizeof *whole);
    free(whole);
}

static inline void expect_within(double tolerance, const char *on, const char *what, size_t count, const float *got,
                                 const float *want) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (got[i] - (double)want[i]) * (got[i] - (double)want[i]);
        norm += (double)want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm)))
        fail_msg("%s on %s: differs by %g of a norm of %g", what, on, sqrt(difference), sqrt(norm));
}

static inline void expect_near(const char *on, const char *what, size_t count, const float *got, const float *want) {
    expect_within(1e-5, on, what, count, got, want);
}

/* A tensor of values within RANGE of zero. */
static inline void add_random(struct sl_store *store, struct numbers *numbers, const char *name, float range, int dims,
                              const size_t *shape) {
    struct sl_tensor *tensor = sl_store_add(store, name, SL_F32, dims, shape);
    assert_non_null(tensor);
    float *value = tensor->array.data;
    for (size_t i = 0; i < sl_array_elements(&tensor->array); i++) value[i] = next_float(numbers, -range, range);
}

/* A test's inputs to a module: values of parameters, x and dy [all, columns]. */
struct values {
    struct sl_store store;
    float *x, *dy;
};

static inline void close_values(struct values *values) {
    sl_store_free(&values->store);
    free(values->x);
    free(values->dy);
}

/* Copies tokens [FROM, END) of each sequence from ALL, which has all rows, to DENSE, which has only these tokens; BACK:
 * from DENSE to ALL. Microbatch M has SEQUENCES sequences of SEQUENCE tokens. */
static inline void move_tokens(const struct worker *worker, int sequences, int sequence, int m, int from, int end,
                               bool back, float *all, float *dense) {
    const size_t columns = worker->tile.columns, count = (size_t)(end - from) * columns;
    for (int s = 0; s < sequences; s++, dense += count) {
        float *rows = all + (size_t)((m * sequences + s) * sequence + from) * columns;
        sl_device.copy(back ? rows : dense, back ? dense : rows, count * sizeof *rows);
    }
}

#endif
