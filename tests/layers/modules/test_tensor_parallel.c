/* test_tensor_parallel.c - layers sharded over an axis give the results of dense layers, without a model and within a
 * training run. */
#include "tests/rigs/trainer_rig.h"

#include "layers/training/exchange.h"
#include "layers/modules/gradient_check.h"
#include "spmd/device/device.h"
#include "layers/modules/modules.h"
#include "tests/rigs/numbers.h"

enum { IN = 24, INSIDE = 32, OUT = 20, ROWS = 6, MICROBATCHES = 4, ALL = ROWS * MICROBATCHES, COPIES = 8 };

/* Opened for modules; the modules' axis is not the first one if data has several coordinates. */
static const char *const axes[] = {"data", "tensor", NULL};

/* ---- one module on a mesh ---- */

enum kind { COLUMNS, ROWS_OF_KERNEL, PAIR, KINDS };

/* A module's whole inputs and its results: each coordinate's columns in its copy. */
struct trial {
    enum kind kind;
    bool dense; /* the same without shards */
    int group;
    enum sl_dtype precision;
    const struct sl_store *from; /* values; NULL: initial ones */
    const char *const *axes;     /* opened for modules */
    const float *x, *dy;         /* [ALL, IN], [ALL, OUT] */
    float y[COPIES][ALL * OUT], dx[COPIES][ALL * IN];
    struct sl_store values, gradients;
};

static struct sl_module *build(const struct trial *trial, const struct sl_mesh *mesh) {
    const int size = sl_mesh_axis_size(mesh, "tensor");
    if (trial->kind != PAIR) {
        if (trial->dense) return sl_dense("a", IN, OUT);
        return trial->kind == COLUMNS ? sl_column_parallel("a", IN, OUT, mesh, "tensor")
                                      : sl_row_parallel("a", IN, OUT, mesh, "tensor");
    }
    if (trial->dense)
        return sl_sequential(
            "", 3, (struct sl_module *[]){sl_dense("a", IN, INSIDE), sl_silu(INSIDE), sl_dense("b", INSIDE, OUT)});
    return sl_sequential("", 3,
                         (struct sl_module *[]){sl_column_parallel("a", IN, INSIDE, mesh, "tensor"),
                                                sl_silu(INSIDE / size),
                                                sl_row_parallel("b", INSIDE, OUT, mesh, "tensor")});
}

/* One coordinate's module and its context. */
struct worker {
    struct sl_module *module;
    struct sl_parameters parameters;
    struct sl_groups peers;
    struct sl_stash stash;
    struct sl_context context;
    float *x, *y, *dy, *dx; /* [ALL, own columns] */
    int first_in, first_out;
};

/* Copies OWN columns from FIRST on of WHOLE columns between PART [ALL, own], the device's, and ARRAY [ALL, whole], the
 * host's. */
static void copy_columns(float *part, float *array, int first, int own, int whole, bool back) {
    for (int r = 0; r < ALL; r++) {
        float *inside = part + r * own, *outside = array + r * whole + first;
        sl_device.copy(back ? outside : inside, back ? inside : outside, (size_t)own * sizeof(float));
    }
}

static int open_worker(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    const struct sl_gemm_backend *gemm = sl_gemm_find("reference", &self->error);
    const int index = sl_axis_index(self, "tensor");
    struct sl_module *module = worker->module = build(trial, self->mesh);
    if (!module || sl_parameters_open(&worker->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory");
    SL_TRY(sl_groups_open(&worker->peers, self, trial->axes));
    struct sl_plan plan = {.mesh = self->mesh,
                           .gemm = gemm,
                           .precision = trial->precision,
                           .rows = ROWS,
                           .wgrad_group = trial->group,
                           .parameters = &worker->parameters,
                           .stash = &worker->stash,
                           .groups = &worker->peers,
                           .error = &self->error};
    SL_TRY(sl_module_plan(module, &plan));
    sl_parameters_layout(&worker->parameters, 1, 0, false);
    SL_TRY(sl_parameters_take(&worker->parameters, &self->error));
    worker->stash.slots = MICROBATCHES;
    worker->stash.data = sl_device.take(worker->stash.elements * MICROBATCHES * sizeof(float));
    worker->context = (struct sl_context){.self = self,
                                          .kernels = sl_kernels_select(),
                                          .rows = ROWS,
                                          .wgrad_group = trial->group,
                                          .parameters = &worker->parameters,
                                          .stash = &worker->stash,
                                          .groups = &worker->peers,
                                          .workspace = sl_device.take(plan.workspace_peak)};
    worker->x = sl_device.take(ALL * (size_t)module->in * sizeof(float));
    worker->dx = sl_device.take(ALL * (size_t)module->in * sizeof(float));
    worker->y = sl_device.take(ALL * (size_t)module->out * sizeof(float));
    worker->dy = sl_device.take(ALL * (size_t)module->out * sizeof(float));
    worker->first_in = module->in < IN ? index * module->in : 0;
    worker->first_out = module->out < OUT ? index * module->out : 0;
    copy_columns(worker->x, (float *)(uintptr_t)trial->x, worker->first_in, module->in, IN, false);
    copy_columns(worker->dy, (float *)(uintptr_t)trial->dy, worker->first_out, module->out, OUT, false);
    return SL_OK;
}

static void close_worker(struct worker *worker) {
    sl_device.give(worker->x);
    sl_device.give(worker->dx);
    sl_device.give(worker->y);
    sl_device.give(worker->dy);
    sl_device.give(worker->stash.data);
    sl_device.give(worker->context.workspace);
    free(worker->stash.tensor);
    sl_parameters_close(&worker->parameters);
    sl_module_free(worker->module);
}

static int compute(struct worker *worker) {
    const struct sl_module *module = worker->module;
    struct sl_context *context = &worker->context;
    const size_t in = ROWS * (size_t)module->in, out = ROWS * (size_t)module->out;
    for (int m = 0; m < MICROBATCHES; m++) {
        const size_t at = (size_t)m;
        context->microbatch = m;
        SL_TRY(
            module->type->forward(module, context, sl_given_f32(worker->x + at * in), SL_INTO(worker->y + at * out)));
    }
    for (int m = MICROBATCHES - 1; m >= 0; m--) {
        const size_t at = (size_t)m;
        context->microbatch = m;
        SL_TRY(module->type->backward_input(module, context, sl_given_f32(worker->x + at * in),
                                            sl_given_f32(worker->dy + at * out), NULL));
        SL_TRY(module->type->backward_input(module, context, sl_given_f32(worker->x + at * in),
                                            sl_given_f32(worker->dy + at * out), SL_INTO(worker->dx + at * in)));
    }
    for (int m = 0; m < MICROBATCHES; m += context->wgrad_group) {
        const size_t at = (size_t)m;
        context->microbatch = m;
        context->accumulate = m > 0;
        SL_TRY(module->type->backward_weight(module, context, sl_given_f32(worker->x + at * in),
                                             sl_given_f32(worker->dy + at * out)));
    }
    return SL_OK;
}

static int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial) {
    struct sl_group world, alone;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_group_axes(self, "", &alone));
    sl_parameters_seed(&worker->parameters, 3);
    SL_TRY(trial->from ? sl_import(self, &world, &worker->parameters, SL_VALUES, trial->from)
                       : sl_parameters_initialize(&worker->parameters, self, &alone));
    sl_parameters_round(&worker->parameters, worker->context.kernels, 0);
    SL_TRY(compute(worker));
    copy_columns(worker->y, trial->y[self->coordinate], worker->first_out, worker->module->out, OUT, true);
    copy_columns(worker->dx, trial->dx[self->coordinate], worker->first_in, worker->module->in, IN, true);
    SL_TRY(sl_export(self, &world, &worker->parameters, SL_VALUES, 1.0f, &trial->values));
    return sl_export(self, &world, &worker->parameters, SL_GRADIENTS, 1.0f, &trial->gradients);
}

static int trial_program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    int status = open_worker(self, &worker, arg);
    if (status == SL_OK) status = run_worker(self, &worker, arg);
    close_worker(&worker);
    return status;
}

static void free_trial(struct trial *trial) {
    sl_store_free(&trial->values);
    sl_store_free(&trial->gradients);
}

/* ---- equality ---- */

static void add_random(struct sl_store *store, struct numbers *numbers, const char *name, size_t in, size_t out) {
    struct sl_tensor *tensor = sl_store_add(store, name, SL_F32, in ? 2 : 1, in ? (size_t[]){in, out} : &out);
    assert_non_null(tensor);
    float *value = tensor->array.data;
    for (size_t i = 0; i < (in ? in : 1) * out; i++) value[i] = next_float(numbers, -0.3f, 0.3f);
}

/* Returns random values, also of biases, whose initial values are zeros. */
static struct sl_store random_values(struct numbers *numbers, enum kind kind) {
    const size_t inside = kind == PAIR ? INSIDE : OUT;
    struct sl_store store = {0};
    add_random(&store, numbers, "a.kernel", IN, inside);
    add_random(&store, numbers, "a.bias", 0, inside);
    add_random(&store, numbers, "b.kernel", INSIDE, OUT);
    add_random(&store, numbers, "b.bias", 0, OUT);
    return store;
}

static void expect_near(const char *what, size_t count, const float *got, const float *want) {
    for (size_t i = 0; i < count; i++) expect_close(what, i, got[i], want[i], 1e-5, 1e-5);
}

static void expect_near_stores(const struct sl_store *got, const struct sl_store *want) {
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        const struct sl_tensor *tensor = &want->tensor[i];
        expect_near(tensor->name, sl_array_elements(&tensor->array), same_tensor(got, tensor), tensor->array.data);
    }
}

/* Joins the columns of all copies, which must be equal if several coordinates have them. If PARTS is more than 1,
 * column c of WHOLE is in the copies with index c * PARTS / WHOLE along "tensor". */
static void join_copies(const struct sl_mesh *mesh, int whole, int parts, size_t stride, const float *copies,
                        float *joined) {
    const int axis = sl_mesh_find_axis(mesh, "tensor");
    for (int r = 0; r < ALL; r++) {
        for (int c = 0; c < whole; c++) {
            const int element = r * whole + c;
            bool found = false;
            for (int i = 0; i < mesh->size; i++) {
                const float value = copies[(size_t)i * stride + (size_t)element];
                if (parts > 1 && sl_mesh_index(mesh, i, axis) != c * parts / whole) continue;
                if (found && memcmp(&joined[element], &value, sizeof value) != 0)
                    fail_msg("element %d of coordinate %d has other bits", element, i);
                joined[element] = value;
                found = true;
            }
        }
    }
}

static void expect_equal(const char *on, const struct trial *trial, const struct trial *dense) {
    struct sl_mesh mesh;
    float y[ALL * OUT], dx[ALL * IN];
    assert_int_equal(sl_mesh_parse(&mesh, on, NULL), SL_OK);
    const int size = sl_mesh_axis_size(&mesh, "tensor");
    join_copies(&mesh, OUT, trial->kind == COLUMNS ? size : 1, ALL * OUT, trial->y[0], y);
    join_copies(&mesh, IN, trial->kind == ROWS_OF_KERNEL ? size : 1, ALL * IN, trial->dx[0], dx);
    expect_near("y", ALL * OUT, y, dense->y[0]);
    expect_near("dx", ALL * IN, dx, dense->dx[0]);
    expect_near_stores(&trial->gradients, &dense->gradients);
    expect_same_store(&trial->values, &dense->values);
}

/* Unchecked and checked; with "few" in one of the modes, which alternate. */
static void compare_with_dense(const char *on, struct trial trial) {
    struct sl_error error;
    static int trials;
    const int only = trials++ % 2;
    static struct trial parallel[2], dense;
    dense = trial;
    dense.dense = true;
    if (run_on((struct test_run){.mesh = "data=1", .arg = &dense}, trial_program, &error))
        fail_msg("dense: %s", error.message);
    for (int checked = 0; checked < 2; checked++) {
        if (test_runs_few && checked != only) continue;
        parallel[checked] = trial;
        if (run_on((struct test_run){.mesh = on, .checked = checked, .arg = &parallel[checked]}, trial_program, &error))
            fail_msg("kind %d on %s: %s", trial.kind, on, error.message);
        expect_equal(on, &parallel[checked], &dense);
    }
    if (!test_runs_few) expect_same_store(&parallel[0].gradients, &parallel[1].gradients);
    free_trial(&parallel[0]);
    free_trial(&parallel[1]);
    free_trial(&dense);
}

/* With "few" only those with several coordinates. */
static const char *const meshes[] = {"data=1",   "tensor=1",        "tensor=2",
                                     "tensor=4", "data=2,tensor=2", "tensor=4,pipe=2"};
enum { MESHES = sizeof meshes / sizeof *meshes, ALONE = 2 };

static void shards_equal_dense(void **state) {
    (void)state;
    struct numbers numbers = {1};
    for (int i = test_runs_few ? ALONE : 0; i < MESHES; i++) {
        for (enum kind kind = 0; kind < KINDS; kind++) {
            for (int group = 1; group <= MICROBATCHES; group *= 2) {
                float *x = random_floats(&numbers, ALL * IN, -1, 1), *dy = random_floats(&numbers, ALL * OUT, -1, 1);
                struct sl_store values = random_values(&numbers, kind);
                compare_with_dense(
                    meshes[i],
                    (struct trial){.kind = kind, .group = group, .from = &values, .axes = axes, .x = x, .dy = dy});
                sl_store_free(&values);
                free(x);
                free(dy);
            }
        }
    }
}

/* A pair differs by the rounding of the sums in between. */
static void shards_equal_dense_in_bf16(void **state) {
    (void)state;
    struct numbers numbers = {2};
    for (int i = test_runs_few ? ALONE : 0; i < MESHES; i++) {
        for (enum kind kind = 0; kind < PAIR; kind++) {
            float *x = random_floats(&numbers, ALL * IN, -1, 1), *dy = random_floats(&numbers, ALL * OUT, -1, 1);
            struct sl_store values = random_values(&numbers, kind);
            compare_with_dense(
                meshes[i],
                (struct trial){
                    .kind = kind, .group = 2, .precision = SL_BF16, .from = &values, .axes = axes, .x = x, .dy = dy});
            sl_store_free(&values);
            free(x);
            free(dy);
        }
    }
}

/* Initial values go by global position: compare_with_dense wants the same bits. */
static void initial_values_are_those_of_dense(void **state) {
    (void)state;
    struct numbers numbers = {3};
    float *x = random_floats(&numbers, ALL * IN, -1, 1), *dy = random_floats(&numbers, ALL * OUT, -1, 1);
    for (int i = test_runs_few ? ALONE : 0; i < MESHES; i++) {
        for (enum kind kind = 0; kind < KINDS; kind++)
            compare_with_dense(meshes[i], (struct trial){.kind = kind, .group = 1, .axes = axes, .x = x, .dy = dy});
    }
    free(x);
    free(dy);
}

/* ---- gradients ---- */

/* On one coordinate, with a mesh without that axis. */
static void gradients_are_those_of_forward(void **state) {
    (void)state;
    static const struct sl_gradient_check checks[] = {
        {.rows = 3, .microbatches = 4, .wgrad_group = 1, .seed = 1},
        {.rows = 3, .microbatches = 4, .wgrad_group = 4, .seed = 2},
        {.rows = 1, .microbatches = 2, .wgrad_group = 2, .seed = 3},
    };
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    for (int size = 3; size <= 18; size += 5) {
        for (int kind = 0; kind < 3; kind++) {
            struct sl_module *column = sl_column_parallel("a", size, 7, &mesh, "tensor"),
                             *row = sl_row_parallel("b", 7, size, &mesh, "tensor");
            struct sl_module *pair = sl_sequential("", 2, (struct sl_module *[]){column, row});
            for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
                struct sl_error error = {0};
                double difference;
                char worst[96];
                struct sl_module *module = kind == 0 ? column : kind == 1 ? row : pair;
                if (sl_gradient_check(module, &checks[i], sl_gemm_find(NULL, NULL), &difference, worst, &error))
                    fail_msg("kind %d of %d: %s", kind, size, error.message);
                if (!(difference < 1e-3)) fail_msg("kind %d of %d: %s differs by %g", kind, size, worst, difference);
            }
            sl_module_free(pair);
        }
    }
}

/* ---- refusals ---- */

static int plan_program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    const int status = open_worker(self, &worker, arg);
    close_worker(&worker);
    return status;
}

static void bad_input_is_refused(void **state) {
    (void)state;
    static const float zeros[ALL * IN];
    struct trial trial = {.kind = COLUMNS, .group = 1, .axes = axes, .x = zeros, .dy = zeros};
    EXPECT_VERDICT(((struct test_run){.mesh = "tensor=3", .arg = &trial}), plan_program, SL_BAD_INPUT,
                   "a.column_parallel: 20 columns do not divide by the 3 coordinates along \"tensor\"");
    trial.kind = ROWS_OF_KERNEL;
    EXPECT_VERDICT(((struct test_run){.mesh = "tensor=5", .arg = &trial}), plan_program, SL_BAD_INPUT,
                   "a.row_parallel: 24 columns do not divide by the 5 coordinates along \"tensor\"");
    trial.axes = (const char *const[]){"data", NULL};
    EXPECT_VERDICT(((struct test_run){.mesh = "data=2,tensor=2", .arg = &trial}), plan_program, SL_BAD_INPUT,
                   "no group over \"tensor\" has been opened for modules");
    trial.axes = (const char *const[]){"tensor,nothing", NULL};
    EXPECT_VERDICT(((struct test_run){.mesh = "tensor=2", .arg = &trial}), plan_program, SL_BAD_INPUT,
                   "\"tensor,nothing\" is not a list of axes of the mesh");
    trial.axes = (const char *const[]){"a", "a", "a", "a", "a", "a", "a", "a", "a", NULL};
    EXPECT_VERDICT(((struct test_run){.mesh = "a=2", .arg = &trial}), plan_program, SL_BAD_INPUT,
                   "modules communicate over more than 8 lists of axes");
}

/* ---- within a training run ---- */

/* A block per stage; a dense layer before the first and after the last. */
static int build_stage(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    const struct sl_mesh *mesh = self->mesh;
    const int ranks = job->table.ranks, rank = sl_axis_index(self, "model"), blocks = 4 / ranks;
    const int inside = 2 * HIDDEN / sl_axis_size(self, "tensor");
    struct sl_module *part[6];
    int parts = 0;
    if (rank == 0) part[parts++] = sl_dense("first", INPUTS, HIDDEN);
    for (int b = 0; b < blocks; b++) {
        char name[32];
        snprintf(name, sizeof name, "block%d", rank * blocks + b);
        struct sl_module *const child[] = {
            sl_layer_norm("norm", HIDDEN), sl_column_parallel("up", HIDDEN, 2 * HIDDEN, mesh, "tensor"),
            sl_silu(inside), sl_row_parallel("down", 2 * HIDDEN, HIDDEN, mesh, "tensor")};
        part[parts++] = sl_residual(sl_sequential(name, 4, child));
    }
    if (rank == ranks - 1) part[parts++] = sl_dense("last", HIDDEN, CLASSES);
    *model = (struct sl_model){.stage = calloc(1, sizeof(struct sl_module *)),
                               .loops = 1,
                               .layers = 1,
                               .loss = rank == ranks - 1 ? sl_softmax_cross_entropy(CLASSES) : NULL};
    if (!model->stage || !(model->stage[0] = sl_sequential("", parts, part)))
        return sl_fail(self, SL_FAILED, "no memory");
    return SL_OK;
}

static struct job train_on(const char *mesh, const struct sl_optimizer_options *optimizer, bool zero) {
    struct job job = {.mesh = mesh,
                      .schedule = "1f1b",
                      .loops = 1,
                      .microbatches = 4,
                      .group = 2,
                      .steps = 3,
                      .zero = zero,
                      .overlap = zero,
                      .optimizer = optimizer,
                      .module_axes = axes,
                      .build = build_stage};
    run_job(&job);
    return job;
}

static void training_gives_the_same(void **state) {
    (void)state;
    static const char *const on[] = {"data=1,model=1,tensor=2", "data=2,model=2,tensor=2", "tensor=4,data=1,model=2",
                                     "data=2,tensor=2,model=4"};
    const struct sl_optimizer_options still = sl_adamw_defaults(0); /* leaves the values alone */
    for (int moving = 0; moving < 2; moving++) {
        struct job single = train_on("data=1,model=1", moving ? NULL : &still, true);
        for (int i = 0; i < 8; i++) {
            if (test_runs_few && i % 2 != (i / 2 + moving) % 2)
                continue; /* each mesh once, with sharded gradients or not */
            struct job job = train_on(on[i / 2], moving ? NULL : &still, i % 2);
            for (int step = 0; step < job.steps; step++)
                expect_close("loss", (size_t)step, job.loss[step], single.loss[step], 1e-4, 0);
            expect_close("evaluated", 0, job.evaluated, single.evaluated, 1e-4, 0);
            if (!moving) {
                expect_same_store(&single.values, &job.values);
                expect_near_stores(&job.gradients, &single.gradients);
            }
            free_job(&job);
        }
        free_job(&single);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_equal_dense),
        cmocka_unit_test(shards_equal_dense_in_bf16),
        cmocka_unit_test(initial_values_are_those_of_dense),
        cmocka_unit_test(gradients_are_those_of_forward),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(training_gives_the_same),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
