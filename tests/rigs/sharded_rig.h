/* sharded_rig.h - modules without a model on a mesh: a test's inputs to all coordinates, and their results. Includes
 * cmocka. */
#ifndef SL_TESTS_RIGS_SHARDED_RIG_H
#define SL_TESTS_RIGS_SHARDED_RIG_H

#include "tests/rigs/run_on.h"

#include "layers/modules/transformer_modules.h"
#include "tests/rigs/numbers.h"

enum {
    IN = 24, /* if it is 12, shares of 4 coordinates begin at odd columns */
    OUT = 40,
    ROWS = 3,
    MICROBATCHES = 4,
    DATA = 2, /* coordinates along data, at most */
    ALL = DATA * MICROBATCHES * ROWS,
    MOST = ALL * OUT,
    COPIES = 8,
    PARAMETERS = 6
};

enum kind { SHARDED, SUMMED, NORM, DROPOUT, PLAIN_DROPOUT, BLOCK };

/* Inputs of all coordinates. Rows are the whole batch's; coordinates along data share them. */
struct job {
    enum kind kind;
    int segments_in, segments_out;                    /* 0: 1 */
    const char *kernel_rule, *bias_rule, *scale_rule; /* NULL: "tensor", "", "tensor" */
    int group, window; /* microbatches per W; window: between a microbatch's I and its W there may be others, a multiple
                        * of group */
    enum sl_dtype precision;
    bool working_bf16; /* kernels are read as bf16, whatever the operands' type */
    enum sl_phase phase;
    bool recompute, forward_only, without_dx;
    bool initial;         /* parameters have their initial values */
    const char *frozen;   /* name patterns of frozen parameters; NULL: none */
    int rank;             /* of SHARDED's and SUMMED's adapters; 0: there are none */
    double alpha;         /* of the adapters */
    const char *adapters; /* name patterns of the parameters that train; NULL: all train */
    const float *x;       /* [ALL, in] */
    const float *dy;      /* [tensor][ALL, out]: shares of a sum for SUMMED, else one */
    const char *unopened; /* axis without a group */
};

/* The job and its results. */
struct trial {
    struct job job;
    bool keeps; /* x or dy */
    int count;
    struct sl_parameter parameter[PARAMETERS];
    /* Copies per coordinate. */
    float y[COPIES][MOST], dx[COPIES][MOST], value[COPIES][PARAMETERS][MOST], gradient[COPIES][PARAMETERS][MOST];
    double auxiliary[COPIES];
    size_t stash[COPIES]; /* elements of a slot of the module's */
    /* Joined. */
    float whole_y[MOST], whole_dx[MOST], whole_value[PARAMETERS][MOST], whole_gradient[PARAMETERS][MOST];
};

static inline int in_of(enum kind kind) { return kind == DROPOUT || kind == PLAIN_DROPOUT ? 12 : IN; }
static inline int out_of(enum kind kind) { return kind == SHARDED || kind == SUMMED ? OUT : in_of(kind); }

static inline int data_size(const struct sl_mesh *mesh) { return sl_mesh_axis_size(mesh, "data"); }
static inline int microbatches_of(const struct sl_mesh *mesh) { return MICROBATCHES * DATA / data_size(mesh); }

/* ---- the modules ---- */

/* Copies x, and adds its rows to the auxiliary losses. */
static inline int count_rows(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             struct sl_result *y) {
    const size_t columns = (size_t)module->in;
    context->metrics->auxiliary += context->rows;
    context->kernels->sequence->copy_block((size_t)context->rows, columns, x.floats, columns, y->floats, columns);
    return SL_OK;
}

static inline int hand_back(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_given dy, struct sl_result *dx) {
    (void)x;
    const size_t columns = (size_t)module->in;
    if (dx)
        context->kernels->sequence->copy_block((size_t)context->rows, columns, dy.floats, columns, dx->floats, columns);
    return SL_OK;
}

static const struct sl_module_type counter = {.name = "counter", .forward = count_rows, .backward_input = hand_back};

static inline struct sl_module *build_block(const struct sl_channels *channels, bool recompute) {
    const int tensor = sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *const child[] = {sl_rms_norm("norm", IN, channels),
                                       sl_sharded_dense("up", IN, OUT, 1, 1, channels),
                                       sl_gelu(OUT / tensor),
                                       sl_sharded_dense("down", OUT, IN, 1, 1, channels),
                                       sl_module_new(&counter, "", IN / tensor, IN / tensor),
                                       sl_sharded_dropout(IN, 0.3, channels)};
    struct sl_module *block = sl_residual(sl_sequential("mlp", 6, child));
    return recompute ? sl_recompute(block) : block;
}

static inline struct sl_module *build(const struct job *job, const struct sl_mesh *mesh) {
    const struct sl_lora lora = {job->rank, job->alpha};
    const struct sl_channels channels = {.mesh = mesh, .axis = "tensor", .lora = &lora, .pieces = 1};
    const int columns = in_of(job->kind), segments_in = job->segments_in ? job->segments_in : 1;
    switch (job->kind) {
    case SHARDED:
        return sl_sharded_dense("a", IN, OUT, segments_in, job->segments_out ? job->segments_out : 1, &channels);
    case SUMMED:
        return sl_summed_dense("a", IN, OUT, segments_in, &channels);
    case NORM:
        return sl_rms_norm("a", columns, &channels);
    case DROPOUT:
        return sl_sharded_dropout(columns, 0.3, &channels);
    case PLAIN_DROPOUT:
        return sl_dropout(columns, 0.3);
    case BLOCK:
        return build_block(&channels, job->recompute);
    }
    return NULL;
}

/* ---- one coordinate ---- */

struct worker {
    struct sl_module *module;
    struct sl_parameters parameters;
    struct sl_groups peers;
    struct sl_stash stash, again, once;
    struct sl_metrics metrics;
    struct sl_context context;
    int microbatches;
    size_t workspace;
    float *x, *y, *dy, *dx; /* [rows of all microbatches, own columns] */
    float *nans;            /* the host's */
};

/* How x or y [ALL, columns] lies on MESH. */
static inline struct sl_spec spec_of(const struct sl_mesh *mesh, bool sharded, int segments) {
    const bool over_data = sl_mesh_find_axis(mesh, "data") >= 0;
    const bool over_tensor = sharded && sl_mesh_find_axis(mesh, "tensor") >= 0;
    char text[40], columns[20] = "-";
    struct sl_spec spec;
    if (over_tensor) snprintf(columns, sizeof columns, "tensor*%d", segments ? segments : 1);
    snprintf(text, sizeof text, "%s,%s", over_data ? "data" : "-", columns);
    sl_spec_parse(&spec, text, NULL);
    return spec;
}
static inline struct sl_spec spec_of_x(const struct job *job, const struct sl_mesh *mesh) {
    return spec_of(mesh, true, job->segments_in);
}
static inline struct sl_spec spec_of_y(const struct job *job, const struct sl_mesh *mesh) {
    return spec_of(mesh, job->kind != SUMMED, job->segments_out);
}

static inline struct sl_array rows_of(const float *data, int columns) {
    return (struct sl_array){SL_F32, 2, {ALL, (size_t)columns}, (float *)(uintptr_t)data};
}

/* Makes the same values for every layout. */
static inline void make_values(int number, size_t count, float *values) {
    struct numbers numbers = {100 + (uint64_t)number};
    for (size_t i = 0; i < count; i++) values[i] = next_float(&numbers, -0.5f, 0.5f);
}

static inline int open_stash(struct sl_stash *stash, int slots) {
    stash->slots = slots;
    stash->data = sl_device.take(stash->elements * (size_t)slots * sizeof(float));
    return stash->data ? SL_OK : SL_FAILED;
}

static inline int plan_worker(struct sl_spmd *self, struct worker *worker, const struct job *job) {
    const struct sl_rule rules[] = {
        {"*kernel", job->kernel_rule ? job->kernel_rule : "tensor"},
        {"*bias", job->bias_rule ? job->bias_rule : ""},
        {"*a", job->scale_rule ? job->scale_rule : "tensor"}, /* gamma and beta */
        {NULL, NULL},
    };
    struct sl_module *module = worker->module = build(job, self->mesh);
    if (!module || sl_parameters_open(&worker->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory");
    worker->parameters.data_axis = "data";
    worker->parameters.working_bf16 = job->working_bf16;
    worker->parameters.frozen = job->frozen;
    worker->parameters.adapters = job->adapters;
    worker->microbatches = microbatches_of(self->mesh);
    const char *axes[3] = {0};
    int opened = 0;
    if (!job->unopened || strcmp(job->unopened, "data") != 0) axes[opened++] = "data";
    if (!job->unopened || strcmp(job->unopened, "tensor") != 0) axes[opened++] = "tensor";
    SL_TRY(sl_groups_open(&worker->peers, self, axes));
    struct sl_plan plan = {.mesh = self->mesh,
                           .rules = rules,
                           .gemm = sl_gemm_find("reference", &self->error),
                           .precision = job->precision,
                           .rows = ROWS,
                           .wgrad_group = job->group,
                           .parameters = &worker->parameters,
                           .stash = &worker->stash,
                           .again = &worker->again,
                           .forward_only = job->forward_only,
                           .groups = &worker->peers,
                           .error = &self->error};
    worker->again.once = &worker->once;
    SL_TRY(sl_module_plan(module, &plan));
    worker->workspace = plan.workspace_peak;
    return SL_OK;
}

static inline int open_worker(struct sl_spmd *self, struct worker *worker, const struct job *job) {
    SL_TRY(plan_worker(self, worker, job));
    const struct sl_module *module = worker->module;
    const size_t in = ROWS * (size_t)(worker->microbatches * module->in);
    const size_t out = ROWS * (size_t)(worker->microbatches * module->out);
    sl_parameters_layout(&worker->parameters, data_size(self->mesh), sl_axis_index(self, "data"), false);
    SL_TRY(sl_parameters_take(&worker->parameters, &self->error));
    SL_TRY(open_stash(&worker->stash, worker->microbatches));
    SL_TRY(open_stash(&worker->again, job->window));
    SL_TRY(open_stash(&worker->once, 1));
    worker->x = sl_device.take(in * sizeof(float));
    worker->dx = sl_device.take(in * sizeof(float));
    worker->y = sl_device.take(out * sizeof(float));
    worker->dy = sl_device.take(out * sizeof(float));
    worker->context = (struct sl_context){.self = self,
                                          .kernels = sl_kernels_select(),
                                          .phase = job->phase,
                                          .rows = ROWS,
                                          .wgrad_group = job->group,
                                          .metrics = &worker->metrics,
                                          .dropout.step_key = sl_key_of_seed(7),
                                          .parameters = &worker->parameters,
                                          .stash = &worker->stash,
                                          .groups = &worker->peers,
                                          .again = &worker->again,
                                          .once = &worker->once,
                                          .sums = sl_device.take(sl_sums_bytes()),
                                          .workspace = sl_device.take(worker->workspace)};
    const size_t stash_bytes = worker->stash.elements * (size_t)worker->microbatches * sizeof(float);
    const size_t bytes = stash_bytes > worker->workspace ? stash_bytes : worker->workspace;
    const size_t most = bytes > MOST * sizeof(float) ? bytes : MOST * sizeof(float);
    worker->nans = malloc(most);
    if (!worker->nans || !worker->x || !worker->dx || !worker->y || !worker->dy || !worker->context.workspace)
        return sl_fail(self, SL_FAILED, "no memory");
    memset(worker->nans, 0xff, most);
    sl_device.copy(worker->stash.data, worker->nans, stash_bytes);
    return SL_OK;
}

static inline void close_worker(struct worker *worker) {
    struct sl_stash *const stashes[] = {&worker->stash, &worker->again, &worker->once};
    for (int i = 0; i < 3; i++) sl_device.give(stashes[i]->data);
    free(worker->stash.tensor);
    free(worker->again.tensor);
    free(worker->once.tensor);
    sl_device.give(worker->x);
    sl_device.give(worker->y);
    sl_device.give(worker->dy);
    sl_device.give(worker->dx);
    sl_device.give(worker->context.workspace);
    sl_device.give(worker->context.sums);
    free(worker->nans);
    if (worker->parameters.range) sl_parameters_close(&worker->parameters);
    sl_module_free(worker->module);
}

/* Between calls a module has nothing in the workspace. */
static inline void begin(struct worker *worker, int microbatch) {
    struct sl_context *context = &worker->context;
    const int before = sl_axis_index(context->self, "data") * worker->microbatches;
    context->microbatch = microbatch;
    context->dropout.first_row = (uint32_t)((before + microbatch) * ROWS);
    sl_device.copy(context->workspace, worker->nans, worker->workspace);
}

static inline int run_backward(struct worker *worker, int microbatch, float *dx) {
    const struct sl_module *module = worker->module;
    const size_t in = (size_t)(microbatch * ROWS * module->in), out = (size_t)(microbatch * ROWS * module->out);
    begin(worker, microbatch);
    return module->type->backward_input(module, &worker->context,
                                        sl_given_f32(sl_is_kept(&module->x) ? worker->x + in : NULL),
                                        sl_given_f32(worker->dy + out), dx ? SL_INTO(dx + in) : NULL);
}

static inline int run_weight(struct worker *worker, int microbatch) {
    const struct sl_module *module = worker->module;
    const size_t in = (size_t)(microbatch * ROWS * module->in), out = (size_t)(microbatch * ROWS * module->out);
    if (!module->type->backward_weight) return SL_OK;
    begin(worker, microbatch);
    worker->context.accumulate = microbatch > 0;
    return module->type->backward_weight(module, &worker->context,
                                         sl_given_f32(sl_is_kept(&module->x) ? worker->x + in : NULL),
                                         sl_given_f32(sl_is_kept(&module->y) ? worker->dy + out : NULL));
}

static inline int run_forwards(struct worker *worker, int first, int count) {
    const struct sl_module *module = worker->module;
    for (int m = first; m < first + count && m < worker->microbatches; m++) {
        begin(worker, m);
        SL_TRY(module->type->forward(module, &worker->context, sl_given_f32(worker->x + m * ROWS * module->in),
                                     SL_INTO(worker->y + m * ROWS * module->out)));
    }
    return SL_OK;
}

/* Window after window: all of its I, the last microbatch first, then the forwards of the next but one, then its W. */
static inline int compute(struct worker *worker, const struct job *job) {
    const struct sl_stash *stash = worker->context.stash;
    const int window = job->window;
    SL_TRY(run_forwards(worker, 0, job->forward_only ? worker->microbatches : 2 * window));
    for (int first = 0; first < worker->microbatches && !job->forward_only; first += window) {
        for (int m = first + window - 1; m >= first; m--)
            SL_TRY(run_backward(worker, m, job->without_dx ? NULL : worker->dx));
        SL_TRY(run_forwards(worker, first + 2 * window, window));
        for (int m = first; m < first + window; m += job->group) SL_TRY(run_weight(worker, m));
    }
    return worker->context.stash == stash ? SL_OK : sl_fail(worker->context.self, SL_CHECK_FAILED, "another stash");
}

/* Sets parameters; gradients are NaN, for the first W overwrites them. */
static inline int set_values(struct worker *worker, const struct job *job) {
    struct sl_spmd *self = worker->context.self;
    const struct sl_parameters *parameters = &worker->parameters;
    struct sl_group data;
    SL_TRY(sl_group_axes(self, sl_mesh_find_axis(self->mesh, "data") < 0 ? "" : "data", &data));
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        float whole[MOST], own[MOST];
        struct sl_array array = {SL_F32, parameter->dims, {parameter->shape[0], parameter->shape[1]}, whole};
        make_values(i, sl_array_elements(&array), whole);
        sl_spec_slice(&parameter->spec, self->mesh, self->coordinate, &array, own);
        if (!parameter->frozen)
            sl_device.copy(sl_parameter_gradient(parameters, i), worker->nans, parameter->count * sizeof(float));
        if (job->initial) continue;
        sl_device.copy(sl_parameter_value(parameters, i), own, parameter->count * sizeof(float));
    }
    if (job->initial) {
        sl_parameters_seed(&worker->parameters, 3);
        SL_TRY(sl_parameters_initialize(&worker->parameters, self, &data));
    }
    for (int r = 0; r < parameters->ranges; r++) sl_parameters_round(parameters, worker->context.kernels, r);
    return SL_OK;
}

static inline void hand_over(struct worker *worker, struct trial *trial) {
    const struct sl_parameters *parameters = &worker->parameters;
    const int rows = ROWS * worker->microbatches, own = worker->context.self->coordinate;
    sl_device.copy(trial->y[own], worker->y, (size_t)(rows * worker->module->out) * sizeof(float));
    sl_device.copy(trial->dx[own], worker->dx, (size_t)(rows * worker->module->in) * sizeof(float));
    for (int i = 0; i < parameters->count; i++) {
        const size_t bytes = parameters->list[i].count * sizeof(float);
        sl_device.copy(trial->value[own][i], sl_parameter_value(parameters, i), bytes);
        if (parameters->list[i].frozen) continue;
        sl_device.copy(trial->gradient[own][i], sl_parameter_gradient(parameters, i), bytes);
    }
    sl_sums_read(worker->context.sums, &worker->metrics);
    trial->auxiliary[own] = worker->metrics.auxiliary;
    trial->stash[own] = worker->stash.elements;
    if (own > 0) return;
    trial->count = parameters->count;
    for (int i = 0; i < parameters->count; i++) trial->parameter[i] = parameters->list[i];
    trial->keeps = sl_is_kept(&worker->module->x) || sl_is_kept(&worker->module->y);
}

static inline int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial) {
    const struct sl_spec x = spec_of_x(&trial->job, self->mesh), y = spec_of_y(&trial->job, self->mesh);
    const struct sl_module *module = worker->module;
    const int rows = ROWS * worker->microbatches;
    const int share = trial->job.kind == SUMMED ? sl_axis_index(self, "tensor") : 0;
    float own[MOST];
    struct sl_array array = rows_of(trial->job.x, in_of(trial->job.kind));
    sl_spec_slice(&x, self->mesh, self->coordinate, &array, own);
    sl_device.copy(worker->x, own, (size_t)(rows * module->in) * sizeof(float));
    array = rows_of(trial->job.dy + share * ALL * OUT, out_of(trial->job.kind));
    sl_spec_slice(&y, self->mesh, self->coordinate, &array, own);
    sl_device.copy(worker->dy, own, (size_t)(rows * module->out) * sizeof(float));
    SL_TRY(set_values(worker, &trial->job));
    SL_TRY(compute(worker, &trial->job));
    hand_over(worker, trial);
    return SL_OK;
}

static inline int trial_program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    int status = open_worker(self, &worker, arg);
    if (status == SL_OK) status = run_worker(self, &worker, arg);
    close_worker(&worker);
    return status;
}

/* ---- results of all coordinates, joined ---- */

/* Joins the coordinates' SHARDS, STRIDE apart; replicas must have the same bits. */
static inline void join(const char *what, const struct sl_spec *spec, const struct sl_mesh *mesh, struct sl_array array,
                        const float *shards, size_t stride) {
    size_t local[SL_MAX_DIMS], count = 1;
    assert_int_equal(sl_spec_local_shape(spec, mesh, array.dims, array.shape, local, NULL), SL_OK);
    for (int d = 0; d < array.dims; d++) count *= local[d];
    for (int c = 0; c < mesh->size; c++) sl_spec_assemble(spec, mesh, c, &array, shards + (size_t)c * stride);
    for (int c = 0; c < mesh->size; c++) {
        float again[MOST];
        sl_spec_slice(spec, mesh, c, &array, again);
        if (memcmp(again, shards + (size_t)c * stride, count * sizeof(float)) != 0)
            fail_msg("%s: coordinate %d and a replica of it have other bits", what, c);
    }
}

/* Adds up a gradient along data if W leaves sums over each coordinate's own rows only. */
static inline void sum_over_data(struct trial *trial, const struct sl_mesh *mesh, int number) {
    const struct sl_parameter *parameter = &trial->parameter[number];
    const int axis = sl_mesh_find_axis(mesh, "data");
    if (axis < 0 || parameter->range >= 1) return;
    for (int c = 0; c < mesh->size; c++) {
        const int other = sl_mesh_neighbour(mesh, c, axis, 1 % mesh->axis[axis].size);
        if (sl_mesh_index(mesh, c, axis) > 0 || other == c) continue;
        for (size_t i = 0; i < parameter->count; i++)
            trial->gradient[c][number][i] = trial->gradient[other][number][i] += trial->gradient[c][number][i];
    }
}

static inline void join_all(struct trial *trial, const struct sl_mesh *mesh) {
    const struct sl_spec x = spec_of_x(&trial->job, mesh), y = spec_of_y(&trial->job, mesh);
    join("y", &y, mesh, rows_of(trial->whole_y, out_of(trial->job.kind)), trial->y[0], MOST);
    join("dx", &x, mesh, rows_of(trial->whole_dx, in_of(trial->job.kind)), trial->dx[0], MOST);
    for (int i = 0; i < trial->count; i++) {
        const struct sl_parameter *parameter = &trial->parameter[i];
        struct sl_array array = {SL_F32, parameter->dims, {parameter->shape[0], parameter->shape[1]}, NULL};
        array.data = trial->whole_value[i];
        join(parameter->name, &parameter->spec, mesh, array, trial->value[0][i], PARAMETERS * MOST);
        if (trial->job.forward_only) continue;
        sum_over_data(trial, mesh, i);
        array.data = trial->whole_gradient[i];
        join(parameter->name, &parameter->spec, mesh, array, trial->gradient[0][i], PARAMETERS * MOST);
    }
}

static inline void run_trial(const char *on, struct job job, bool checked, struct trial *trial) {
    struct sl_mesh mesh;
    struct sl_error error;
    *trial = (struct trial){.job = job};
    if (run_on((struct test_run){.mesh = on, .checked = checked, .arg = trial}, trial_program, &error))
        fail_msg("kind %d on %s: %s", trial->job.kind, on, error.message);
    assert_int_equal(sl_mesh_parse(&mesh, on, NULL), SL_OK);
    join_all(trial, &mesh);
}

static inline int number_of(const struct trial *trial, const char *name) {
    for (int i = 0; i < trial->count; i++)
        if (!strcmp(trial->parameter[i].name, name)) return i;
    fail_msg("no parameter %s", name);
    return -1;
}

static inline size_t elements_of(const struct sl_parameter *parameter) {
    return parameter->shape[0] * (parameter->dims > 1 ? parameter->shape[1] : 1);
}

static inline void expect_same_bits(const char *what, size_t count, const float *got, const float *want) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s, element %zu: %.9g instead of %.9g", what, i, got[i], want[i]);
}

static inline void expect_same_trials(const struct trial *got, const struct trial *want) {
    expect_same_bits("y", (size_t)(ALL * out_of(want->job.kind)), got->whole_y, want->whole_y);
    expect_same_bits("dx", (size_t)(ALL * in_of(want->job.kind)), got->whole_dx, want->whole_dx);
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++)
        expect_same_bits(want->parameter[i].name, elements_of(&want->parameter[i]), got->whole_gradient[i],
                         want->whole_gradient[i]);
}

static inline void expect_near(const char *what, size_t count, const float *got, const double *want) {
    for (size_t i = 0; i < count; i++) expect_close(what, i, got[i], want[i], 1e-5, 1e-5);
}

/* ---- inputs and results of tests ---- */

static struct trial trial, other; /* static, because they are large */
static float x[ALL * IN], dy[4 * ALL * OUT];

static void draw(uint64_t seed) {
    struct numbers numbers = {seed};
    for (int i = 0; i < ALL * IN; i++) x[i] = next_float(&numbers, -1, 1);
    for (int i = 0; i < 4 * ALL * OUT; i++) dy[i] = next_float(&numbers, -1, 1);
}

#endif
