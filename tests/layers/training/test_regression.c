/* test_regression.c - the mean squared error as a model's loss: against the formula on a linear model, over schedules,
 * meshes, passes and precisions; and losses that are not finite. */
#include <math.h>

#include "tests/rigs/numbers.h"
#include "spmd/device/device.h"
#include "tests/rigs/trainer_rig.h"

#include "layers/modules/modules.h"
#include "layers/training/exchange.h"

/* ---- a linear model ---- */

static int build_linear(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    SL_TRY(sl_model_open(model, &job->table, sl_axis_index(self, "model"), (struct sl_layers){.count = 1}, 0, 0,
                         &self->error));
    model->stage[0] = sl_dense("linear", INPUTS, CLASSES);
    model->loss = sl_mean_squared_error(CLASSES);
    return SL_OK;
}

static const float *tensor(const struct sl_store *store, const char *name) {
    const struct sl_tensor *tensor = sl_store_find(store, name);
    assert_non_null(tensor);
    return tensor->array.data;
}

/* The loss of y = x kernel + bias, mean over rows and columns, and its gradients, in double. */
static double regress(const struct job *job, double kernel[INPUTS * CLASSES], double bias[CLASSES]) {
    const float *weights = tensor(&job->values, "linear.kernel"), *offsets = tensor(&job->values, "linear.bias");
    double loss = 0;
    memset(kernel, 0, INPUTS * CLASSES * sizeof *kernel);
    memset(bias, 0, CLASSES * sizeof *bias);
    for (int r = 0; r < BATCH; r++) {
        for (int c = 0; c < CLASSES; c++) {
            double y = offsets[c];
            for (int i = 0; i < INPUTS; i++) y += (double)job->inputs[r * INPUTS + i] * weights[i * CLASSES + c];
            const double error = y - job->targets[r * CLASSES + c], slope = 2 * error / (BATCH * CLASSES);
            loss += error * error / (BATCH * CLASSES);
            bias[c] += slope;
            for (int i = 0; i < INPUTS; i++) kernel[i * CLASSES + c] += slope * job->inputs[r * INPUTS + i];
        }
    }
    return loss;
}

static void a_linear_model_has_the_gradients_of_the_formula(void **state) {
    (void)state;
    struct job start = {.mesh = "data=2,model=1",
                        .schedule = "gpipe",
                        .loops = 1,
                        .microbatches = 3,
                        .group = 3,
                        .build = build_linear};
    struct job step = start;
    double kernel[INPUTS * CLASSES], bias[CLASSES];
    step.steps = 1;
    run_job(&start);
    run_job(&step);
    expect_close("loss", 0, step.loss[0], regress(&start, kernel, bias), 1e-6, 0);
    for (int i = 0; i < INPUTS * CLASSES; i++)
        expect_close("kernel", (size_t)i, tensor(&step.gradients, "linear.kernel")[i], kernel[i], 1e-5, 1e-7);
    for (int i = 0; i < CLASSES; i++)
        expect_close("bias", (size_t)i, tensor(&step.gradients, "linear.bias")[i], bias[i], 1e-5, 1e-7);
    free_job(&start);
    free_job(&step);
}

/* ---- a deep model ---- */

static int build_regression(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    SL_TRY(build_classifier(job, self, model));
    if (!model->loss) return SL_OK;
    sl_module_free(model->loss);
    model->loss = sl_mean_squared_error(CLASSES);
    return SL_OK;
}

static struct job deep(const char *mesh, const char *schedule, int loops) {
    return (struct job){.mesh = mesh,
                        .schedule = schedule,
                        .loops = loops,
                        .layers = 4,
                        .microbatches = 4,
                        .group = 1,
                        .steps = 3,
                        .zero = true,
                        .overlap = true,
                        .build = build_regression};
}

static void every_layout_has_the_same_bits(void **state) {
    (void)state;
    struct job alone = deep("data=2,model=1", "gpipe", 1);
    struct job others[] = {deep("data=2,model=2", "1f1b", 1), deep("data=2,model=2", "looped-bfs", 2),
                           deep("data=2,model=2", "zbv", 2), deep("data=2,model=1", "gpipe", 1)};
    others[3].microbatches = 2; /* of the same rows, in two passes */
    others[3].accumulate = 2;
    run_job(&alone);
    assert_true(alone.loss[2] < alone.loss[0]);
    for (int i = 0; i < 4; i++) {
        run_job(&others[i]);
        expect_same_store(&alone.values, &others[i].values);
        for (int step = 0; step < 3; step++) expect_close("loss", 0, others[i].loss[step], alone.loss[step], 1e-6, 0);
        free_job(&others[i]);
    }
    free_job(&alone);
}

/* ---- a user's own loop, in pipeline.h's order of calls ---- */

static int take_own_steps(struct sl_spmd *self, struct job *job, struct sl_pipeline *pipeline,
                          struct sl_parameters *parameters, struct sl_group *data) {
    const struct sl_optimizer_options optimizer = sl_sgd_defaults(0.1f);
    const struct sl_batch batch = batch_of(self, job);
    for (int number = 0; number < job->steps; number++) {
        struct sl_pipeline_step step = {.batch = batch, .weight = 1.0f / (float)batch.rows};
        SL_TRY(sl_pipeline_train(pipeline, &step));
        for (int r = 0; r < parameters->ranges; r++) {
            struct sl_range *range = &parameters->range[r];
            if (range->count == 0) continue;
            SL_TRY(sl_psum(self, data, SL_F32, range->gradient, range->gradient, range->count));
            SL_TRY(sl_optimizer_update(&optimizer, sl_kernels_select(), parameters, r, number + 1,
                                       1.0f / (float)data->size, &self->error));
            sl_parameters_round(parameters, sl_kernels_select(), r);
        }
    }
    return SL_OK;
}

static int train_by_hand(struct sl_spmd *self, struct job *job, struct sl_model *model, struct sl_pipeline **pipeline,
                         struct sl_parameters *parameters) {
    const struct sl_pipeline_options options = {.axis = "model",
                                                .schedule = &job->table,
                                                .gemm = sl_gemm_find("reference", &self->error),
                                                .precision = job->precision,
                                                .rows = BATCH / sl_axis_size(self, "data") / job->microbatches,
                                                .wgrad_group = job->group};
    struct sl_group data, world;
    SL_TRY(sl_group_axes(self, "data", &data));
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(build_regression(job, self, model));
    if (sl_parameters_open(parameters, model->loops)) return SL_FAILED;
    parameters->data_axis = "data";
    parameters->stage_axis = "model";
    SL_TRY(sl_pipeline_plan(pipeline, self, &options, model, parameters));
    sl_parameters_layout(parameters, data.size, data.rank, false);
    sl_parameters_seed(parameters, 3);
    SL_TRY(sl_parameters_take(parameters, &self->error));
    SL_TRY(sl_parameters_initialize(parameters, self, &data));
    SL_TRY(sl_pipeline_open(*pipeline));
    SL_TRY(take_own_steps(self, job, *pipeline, parameters, &data));
    return sl_export(self, &world, parameters, SL_VALUES, 1.0f, &job->values);
}

static int program_by_hand(struct sl_spmd *self, void *arg) {
    struct sl_model model = {0};
    struct sl_parameters parameters = {0};
    struct sl_pipeline *pipeline = NULL;
    const int status = train_by_hand(self, arg, &model, &pipeline, &parameters);
    sl_pipeline_close(pipeline);
    sl_parameters_close(&parameters);
    sl_model_free(&model);
    return status;
}

static void a_loop_of_ones_own_has_the_trainers_bits(void **state) {
    (void)state;
    const struct sl_optimizer_options sgd = sl_sgd_defaults(0.1f);
    for (int precision = SL_F32; precision <= SL_BF16; precision++) {
        struct job trainers = deep("data=2,model=2", "looped-bfs", 2), own;
        struct sl_error error;
        trainers.precision = (enum sl_dtype)precision;
        own = trainers;
        trainers.optimizer = &sgd;
        run_job(&trainers);
        open_job(&own);
        if (run_on((struct test_run){.mesh = own.mesh, .checked = true, .arg = &own}, program_by_hand, &error))
            fail_msg("%s", error.message);
        expect_same_store(&trainers.values, &own.values);
        free_job(&trainers);
        free_job(&own);
    }
}

static void rounded_operands_are_near(void **state) {
    (void)state;
    struct job exact = deep("data=2,model=2", "1f1b", 1), rounded = exact;
    rounded.precision = SL_BF16;
    run_job(&exact);
    run_job(&rounded);
    for (int step = 0; step < 3; step++) expect_close("loss", 0, rounded.loss[step], exact.loss[step], 2e-2, 0);
    free_job(&exact);
    free_job(&rounded);
}

/* ---- results that are not finite ---- */

static _Atomic int stopped; /* coordinates with a failed step */

static int train_until_nan(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    const int status = train_steps(self, job, trainer, 0, job->steps);
    stopped += status == SL_FAILED;
    return status;
}

static void expect_stop(struct job *job, const char *text) {
    open_job(job);
    job->train = train_until_nan;
    stopped = 0;
    if (!strncmp(text, "the loss", 8)) job->inputs[5] = NAN;
    EXPECT_VERDICT(((struct test_run){.mesh = job->mesh, .arg = job}), train_program, SL_FAILED, text);
    assert_int_equal(stopped, 4);
    free_job(job);
}

static int train_on(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    if (self->coordinate == 0) job->inputs[5] = NAN; /* only coordinate 0 reads that row */
    return train_steps(self, job, trainer, 0, job->steps);
}

static void a_loss_that_is_not_finite_ends_the_run(void **state) {
    (void)state;
    struct job job = deep("data=2,model=2", "1f1b", 1), on = job;
    expect_stop(&job, "the loss of step 0 is not finite: a smaller learning rate may help");
    on.ignore_nan = true;
    on.train = train_on;
    run_job(&on);
    assert_true(isnan(on.loss[0]) && isnan(on.loss[2]));
    free_job(&on);
}

/* The gradient is NaN for any loss. */
static int explode(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    (void)x;
    context->kernels->fill((size_t)context->rows * (size_t)module->in, NAN, y->floats);
    context->metrics->rows += context->rows;
    return SL_OK;
}
static const struct sl_module_type exploding = {.name = "exploding", .forward = explode};

static int build_exploding(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    SL_TRY(build_classifier(job, self, model));
    if (!model->loss) return SL_OK;
    sl_module_free(model->loss);
    model->loss = sl_module_new(&exploding, "", CLASSES, CLASSES);
    return SL_OK;
}

static void a_norm_that_is_not_finite_ends_the_run(void **state) {
    (void)state;
    struct job job = deep("data=2,model=2", "1f1b", 1), on = job, unclipped = job;
    job.build = on.build = unclipped.build = build_exploding;
    job.clip = on.clip = 1;
    expect_stop(&job, "the norm of the gradients of step 0 is not finite");
    if (sl_device.shares_memory) /* no norm is computed */
        expect_stop(&unclipped, "the gradients of step 0 are not finite");
    on.ignore_nan = true;
    run_job(&on);
    free_job(&on);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_model_has_the_gradients_of_the_formula),
        cmocka_unit_test(every_layout_has_the_same_bits),
        cmocka_unit_test(a_loop_of_ones_own_has_the_trainers_bits),
        cmocka_unit_test(rounded_operands_are_near),
        cmocka_unit_test(a_loss_that_is_not_finite_ends_the_run),
        cmocka_unit_test(a_norm_that_is_not_finite_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
