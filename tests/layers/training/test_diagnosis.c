/* test_diagnosis.c - reports of failed runs: the place of the first result that is not finite, and the current work of
 * waiting coordinates. */
#include "layers/modules/modules.h"
#include "spmd/device/device.h"
#include "tests/rigs/trainer_rig.h"

static struct job small(void) {
    return (struct job){.mesh = "data=2,model=2",
                        .schedule = "1f1b",
                        .loops = 1,
                        .layers = 4,
                        .microbatches = 4,
                        .group = 1,
                        .steps = 1,
                        .clip = 1};
}

/* ---- results that are not finite ---- */

/* A change of a parameter's values before the step. */
struct fault {
    const char *parameter; /* NULL: nothing */
    float value;
    bool whole;     /* all of its values, or only the sixth */
    int coordinate; /* -1: all */
};

static void spoil(struct sl_spmd *self, const struct fault *fault, struct sl_parameters *parameters) {
    if (!fault->parameter || (fault->coordinate >= 0 && fault->coordinate != self->coordinate)) return;
    for (int i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->list[i].name, fault->parameter)) continue;
        for (size_t n = 0; n < parameters->list[i].count; n++)
            if (fault->whole || n == 5)
                sl_device.copy(sl_parameter_value(parameters, i) + n, &fault->value, sizeof fault->value);
    }
    for (int r = 0; r < parameters->ranges; r++)
        if (parameters->range[r].count) sl_parameters_round(parameters, sl_kernels_select(), r);
}

/* Returns a copy of all values, if they are in host memory; otherwise NULL. */
static float *copy_values(const struct sl_parameters *parameters) {
    size_t count = 1;
    for (int r = 0; r < parameters->ranges; r++) count += parameters->range[r].count;
    float *copy = sl_device.shares_memory ? calloc(count, sizeof *copy) : NULL, *to = copy;
    for (int r = 0; copy && r < parameters->ranges; r++) {
        const size_t here = parameters->range[r].count;
        if (here) memcpy(to, parameters->range[r].value, here * sizeof *to);
        to += here;
    }
    return copy;
}

static _Atomic int moved; /* coordinates with changed values after a failed step */

static int train_spoilt(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    for (int turn = 0; turn < world.size; turn++) { /* replicas hold values together */
        if (job->user && turn == world.rank) spoil(self, job->user, parameters);
        SL_TRY(sl_barrier(self, &world));
    }
    float *before = copy_values(parameters);
    SL_TRY(sl_barrier(self, &world)); /* before any of them is updated */
    const int status = train_steps(self, job, trainer, 0, 1);
    float *after = copy_values(parameters);
    size_t count = 0;
    for (int r = 0; r < parameters->ranges; r++) count += parameters->range[r].count;
    moved += before && memcmp(before, after, count * sizeof *before);
    free(before);
    free(after);
    return status;
}

#define EXPECT_NOT_FINITE(job, ...)                                                                                    \
    do {                                                                                                               \
        (job)->train = train_spoilt;                                                                                   \
        moved = 0;                                                                                                     \
        EXPECT_VERDICT(((struct test_run){.mesh = (job)->mesh, .arg = (job)}), train_program, SL_FAILED, __VA_ARGS__); \
        assert_int_equal(moved, 0);                                                                                    \
        free_job(job);                                                                                                 \
    } while (0)

static void an_input_is_named_by_who_reads_it(void **state) {
    (void)state;
    struct job job = small();
    open_job(&job);
    /* The fourth of 6 rows in the third microbatch, of data=1's 24 rows. */
    job.inputs[(24 + 2 * 6 + 3) * INPUTS + 7] = NAN;
    EXPECT_NOT_FINITE(
        &job, "the loss of step 0 is not finite: ", "the first result that is not: the result of input_dense",
        "stage 0, microbatch 2, at coordinate 2 (data=1, model=0): row 3, column 0 is ", " are not finite, the others ",
        "; it was given nan, element 43 (1 of 72 are not finite, the others ", " at most), and its parameters are ");
}

static void a_value_is_named(void **state) {
    (void)state;
    const struct fault fault = {"blocks.2.output_dense.kernel", INFINITY, false, 3};
    struct job job = small();
    job.user = (void *)&fault;
    open_job(&job);
    EXPECT_NOT_FINITE(&job, "the values of blocks.2.output_dense.kernel before the step",
                      "at coordinate 3 (data=1, model=1): element 5 is inf");
}

/* Finite values with an overflowing product, in the second block of the first stage. */
static void the_module_whose_result_overflows_is_named(void **state) {
    (void)state;
    const struct fault fault = {"blocks.1.output_dense.kernel", 3e38f, true, -1};
    struct job jobs[] = {small(), small(), small(), small(), small(), small(), small()};
    jobs[1].accumulate = 2;
    jobs[2].storage = SL_BF16;
    jobs[3].fuse = 2, jobs[3].schedule = "gpipe";
    jobs[4].zero = 1, jobs[4].overlap = true;
    jobs[5].zero = 2, jobs[5].clip = 0;
    jobs[6].clip = 0, jobs[6].overlap = true;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        if (jobs[i].clip == 0 && !sl_device.shares_memory) continue;
        jobs[i].user = (void *)&fault;
        open_job(&jobs[i]);
        EXPECT_NOT_FINITE(&jobs[i], "the first result that is not: the result of blocks.1.output_dense",
                          "stage 0, microbatch 0, at coordinate 0 (data=0, model=0): row 0, column 0 is ",
                          " at most, and its parameters are 3e+38 at most");
    }
}

/* Copies its input; the gradient of the third microbatch is NaN. */
static int hand_on(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                   struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    sl_device.copy(y, x, (size_t)context->rows * (size_t)module->in * sizeof *y);
    return SL_OK;
}
static int lose_gradient(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                         struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const float lost = NAN;
    (void)saved;
    if (!dx) return SL_OK;
    sl_device.copy(dx, dy, (size_t)context->rows * (size_t)module->in * sizeof *dx);
    if (context->microbatch == 2) sl_device.copy(dx + 1, &lost, sizeof lost);
    return SL_OK;
}
static const struct sl_module_type losing = {.name = "losing", .forward = hand_on, .backward_input = lose_gradient};

static int build_losing(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    SL_TRY(build_classifier(job, self, model));
    if (sl_axis_index(self, "model") > 0) return SL_OK;
    struct sl_module *stage = model->stage[0];
    struct sl_module *const children[] = {stage, sl_module_new(&losing, "end", stage->out, stage->out)};
    model->stage[0] = sl_sequential("", 2, children);
    return model->stage[0] ? SL_OK : sl_fail(self, SL_FAILED, "no memory for the stage");
}

static void a_gradient_is_named_by_who_passes_it_back(void **state) {
    (void)state;
    struct job job = small();
    job.build = build_losing;
    open_job(&job);
    EXPECT_NOT_FINITE(
        &job, "the norm of the gradients of step 0 is not finite",
        "the first result that is not: the input's gradient of end (losing), stage 0, microbatch 2, at coordinate 0",
        "row 0, column 1 is nan (1 of 96 are not finite, the others ", " at most); it was given ");
}

static int train_after_a_good_step(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    static const struct fault fault = {"blocks.3.output_dense.bias", NAN, false, -1};
    SL_TRY(train_steps(self, job, trainer, 0, 1));
    spoil(self, &fault, sl_trainer_parameters(trainer));
    return train_steps(self, job, trainer, 1, 2);
}

static void the_step_is_named(void **state) {
    (void)state;
    struct job job = small();
    job.steps = 2;
    job.train = train_after_a_good_step;
    open_job(&job);
    EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .arg = &job}), train_program, SL_FAILED,
                   "the loss of step 1 is not finite", "the values of blocks.3.output_dense.bias before the step");
    free_job(&job);
}

/* ---- who waits ---- */

/* The second step finds coordinate 3 gone. */
static int train_without_one(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    SL_TRY(train_steps(self, job, trainer, 0, 1));
    return self->coordinate == 3 ? SL_OK : train_steps(self, job, trainer, 1, 2);
}

static int leave_early(struct sl_spmd *self, void *arg) {
    struct job *job = arg;
    const int status = train_program(self, job);
    return self->coordinate == 3 ? SL_OK : status;
}

static void who_waits_says_what_it_was_at(void **state) {
    (void)state;
    struct sl_waiting list[4];
    struct sl_waits waits = {.coordinate = list};
    struct job job = small();
    job.steps = 2;
    job.train = train_without_one;
    open_job(&job);
    EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .waits = &waits, .arg = &job}), leave_early, SL_FAILED,
                   " waits for coordinate 3 in ", " of stage ", ", microbatch ", ", action ", ", step 1)");
    free_job(&job);
    if (!waits.coordinates) return; /* another process knows the waits */
    assert_int_equal(waits.coordinates, 4);
    int waiting = 0;
    for (int i = 0; i < 3; i++) {
        const struct sl_waiting *of = &waits.coordinate[i];
        if (of->state != SL_WAITS) continue;
        waiting += of->peer == 3;
        assert_int_equal(of->steps, 2);
        assert_true(*of->verb && *of->object && strstr(of->site, ".c:"));
    }
    assert_true(waiting > 0);
    assert_int_equal(waits.coordinate[3].steps, 1);
}

/* Adds up x over data. At data=1 the module of that name does not. */
static int add_up(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                  struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    struct sl_spmd *self = context->self;
    struct sl_group data;
    sl_device.copy(y, x, (size_t)context->rows * (size_t)module->in * sizeof *y);
    if (sl_axis_index(self, "data") > 0) return SL_OK;
    SL_TRY(sl_group_axes(self, "data", &data));
    return sl_psum(self, &data, SL_F32, y, y, (size_t)module->in);
}
static int pass_back(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                     struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    (void)saved;
    if (dx) sl_device.copy(dx, dy, (size_t)context->rows * (size_t)module->in * sizeof *dx);
    return SL_OK;
}
static const struct sl_module_type adding = {.name = "adding", .forward = add_up, .backward_input = pass_back};

static int build_adding(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    SL_TRY(build_classifier(job, self, model));
    if (sl_axis_index(self, "model") > 0) return SL_OK;
    struct sl_module *stage = model->stage[0];
    struct sl_module *const children[] = {stage, sl_module_new(&adding, "sum", stage->out, stage->out)};
    model->stage[0] = sl_sequential("end", 2, children);
    return model->stage[0] ? SL_OK : sl_fail(self, SL_FAILED, "no memory for the stage");
}

static void a_module_that_waits_is_named(void **state) {
    (void)state;
    struct sl_waiting list[4];
    struct sl_waits waits = {.coordinate = list};
    struct job job = small();
    job.build = build_adding;
    open_job(&job);
    EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .waits = &waits, .arg = &job}), train_program, SL_FAILED,
                   "coordinate 0 (data=0, model=0) waits for coordinate 2 in psum over \"data\" at ",
                   " (forward of stage 0, microbatch 0, action ", ", step 0, in end.sum (adding))");
    free_job(&job);
    if (!waits.coordinates) return;
    assert_int_equal(waits.coordinate[0].state, SL_WAITS);
    assert_int_equal(waits.coordinate[0].peer, 2);
    assert_int_equal(waits.coordinate[0].microbatch, 0);
    assert_string_equal(waits.coordinate[0].what, "forward");
    assert_string_equal(waits.coordinate[0].verb, "psum");
    assert_string_equal(waits.coordinate[0].module, "end.sum (adding)");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_input_is_named_by_who_reads_it),
        cmocka_unit_test(a_value_is_named),
        cmocka_unit_test(the_module_whose_result_overflows_is_named),
        cmocka_unit_test(a_gradient_is_named_by_who_passes_it_back),
        cmocka_unit_test(the_step_is_named),
        cmocka_unit_test(who_waits_says_what_it_was_at),
        cmocka_unit_test(a_module_that_waits_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
