/* test_optimizer.c - the table of optimizers, refusals, and an optimizer of a user's own: Lion. */
#include <stdio.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/optimizer_rig.h"
#include "tests/rigs/trainer_rig.h"

#include "layers/training/checkpoint.h"
#include "spmd/device/offload.h"

/* ---- Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023) ----
 *
 *     d = sign(beta1 m + (1 - beta1) g)
 *     p = p - learning_rate (d + decay p)
 *     m = beta2 m + (1 - beta2) g */

static void update_lion(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                        const struct sl_optimizer_run *run) {
    const float rate = options->learning_rate, decay = run->decay, scale = run->gradient_scale;
    const float beta1 = (float)options->beta1, rest1 = (float)(1.0 - options->beta1);
    const float beta2 = (float)options->beta2, rest2 = (float)(1.0 - options->beta2);
    const float *gradient = run->gradient;
    float *value = run->value, *momentum = run->state[0];
    const size_t n = run->count;
    (void)kernels;
    SL_ELEMENTWISE(is_device_ptr(gradient, value, momentum))
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * scale, m = momentum[i], mix = beta1 * m + rest1 * g;
        value[i] -= rate * ((float)(mix > 0.0f) - (float)(mix < 0.0f) + decay * value[i]);
        momentum[i] = beta2 * m + rest2 * g;
    }
}

static const struct sl_optimizer lion = {
    .name = "lion",
    .help = "the sign of a momentum, decoupled weight decay",
    .state = {"momentum"},
    .settings = {"beta1", "beta2"},
    .defaults = {.beta1 = 0.9, .beta2 = 0.99},
    .update = update_lion,
};

static void state_that_nobody_holds_is_refused(void **state) {
    (void)state;
    const struct sl_optimizer_options options = sl_optimizer_defaults(&lion, 0.125f);
    struct sl_range loop = {0};
    struct sl_parameters none = {.ranges = 1, .range = &loop};
    struct sl_error error = {0};
    assert_int_equal(sl_optimizer_update(&options, sl_kernels_available(0), &none, 0, 1, 1.0f, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "is 0: optimizer lion keeps 1"));
    none.states = 1;
    assert_int_equal(sl_optimizer_update(&options, sl_kernels_available(0), &none, 0, 1, 1.0f, &error), SL_OK);
}

static void lion_moves_by_signs(void **state) {
    (void)state;
    struct sl_optimizer_options options = sl_optimizer_defaults(&lion, 0.125f);
    const float gradients[3][4] = {{1, -2, 0, 8}, {-8, 1, 0, 8}, {1, 1, 1, -100}};
    const float signs[3][4] = {{1, -1, 0, 1}, {-1, 1, 0, 1}, {-1, 1, 1, -1}};
    float want[4] = {0.5f, 1, -1, 2}, momentum[4] = {0};
    struct storage storage;
    options.beta1 = 0.5;
    options.beta2 = 0.75;
    options.decay = 0.5f;
    make_storage(&storage, 2, (size_t[]){3, 1}, (bool[]){true, false}, 0);
    memcpy(storage.loop.value, want, sizeof want);
    for (int step = 0; step < 3; step++) {
        memcpy(storage.loop.gradient, gradients[step], sizeof gradients[step]);
        update(&storage, 2, &options, sl_kernels_available(0), step + 1, 1.0f);
        for (size_t i = 0; i < 4; i++) {
            const float mix = 0.5f * momentum[i] + 0.5f * gradients[step][i];
            assert_true((mix > 0) - (mix < 0) == (int)signs[step][i]);
            momentum[i] = 0.75f * momentum[i] + 0.25f * gradients[step][i];
            want[i] -= 0.125f * (signs[step][i] + (i < 3 ? 0.5f * want[i] : 0.0f));
            expect_close("value", i, storage.loop.value[i], want[i], 2e-7, 0);
            expect_close("momentum", i, storage.loop.state[0][i], momentum[i], 2e-7, 0);
        }
    }
    free_storage(&storage);
}

static struct job train(const struct sl_optimizer_options *options, bool zero) {
    struct job job = {.mesh = "data=2,model=2",
                      .schedule = "looped-bfs",
                      .loops = 2,
                      .layers = 4,
                      .microbatches = 4,
                      .group = 2,
                      .steps = MAX_STEPS,
                      .overlap = true,
                      .zero = zero,
                      .optimizer = options};
    run_job(&job);
    return job;
}

static void lion_trains_with_its_state_shared_out(void **state) {
    (void)state;
    const struct sl_optimizer_options options = sl_optimizer_defaults(&lion, 1e-3f);
    struct job whole = train(&options, false), shared = train(&options, true);
    expect_same_store(&whole.values, &shared.values);
    assert_true(whole.loss[MAX_STEPS - 1] < whole.loss[0]);
    free_job(&whole);
    free_job(&shared);
}

/* ---- saved and resumed ---- */

struct passage {
    char path[FOLDER + 20];
    bool resumes;
};

/* Takes half of the steps, saves, and takes the other half; or resumes from the checkpoint and takes only the second
 * half. */
static int save_or_resume(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    const struct passage *passage = job->user;
    struct sl_checkpoint about = {.seed = 3};
    const struct sl_setting none = {0};
    const int half = job->steps / 2;
    if (passage->resumes) {
        SL_TRY(sl_checkpoint_load(self, trainer, passage->path, &none, &about));
    } else {
        SL_TRY(train_steps(self, job, trainer, 0, half));
        SL_TRY(sl_checkpoint_save(self, trainer, passage->path, &about, &none, NULL));
    }
    return train_steps(self, job, trainer, half, job->steps);
}

static struct job job_of_halves(const struct sl_optimizer_options *options, struct passage *passage) {
    return (struct job){.mesh = "data=2,model=2",
                        .schedule = "1f1b",
                        .loops = 1,
                        .layers = 2,
                        .microbatches = 4,
                        .group = 4,
                        .steps = MAX_STEPS,
                        .zero = true,
                        .optimizer = options,
                        .train = save_or_resume,
                        .user = passage};
}

static void lion_is_saved_and_resumed_under_its_name(void **state) {
    (void)state;
    const struct sl_optimizer_options options = sl_optimizer_defaults(&lion, 1e-3f), adamw = sl_adamw_defaults(1e-3f);
    struct passage passage = {0};
    char folder[FOLDER];
    assert_true(make_folder(folder, "optimizer"));
    snprintf(passage.path, sizeof passage.path, "%s/lion", folder);
    struct job whole = job_of_halves(&options, &passage), resumed = whole, other = whole;
    run_job(&whole);
    passage.resumes = true;
    run_job(&resumed);
    expect_same_store(&whole.values, &resumed.values);
    other.optimizer = &adamw;
    open_job(&other);
    EXPECT_VERDICT(((struct test_run){.mesh = other.mesh, .arg = &other}), train_program, SL_BAD_INPUT,
                   "the optimizer is lion in the checkpoint, and adamw here");
    free_job(&whole);
    free_job(&resumed);
    free_job(&other);
    remove(passage.path);
    rmdir(folder);
}

/* ---- one function is an optimizer ---- */

struct signs {
    float rate;
    _Atomic long elements;
};

static void follow_signs(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                         const struct sl_optimizer_run *run) {
    struct signs *signs = options->arg;
    const float rate = signs->rate, *gradient = run->gradient;
    float *value = run->value;
    const size_t n = run->count;
    (void)kernels;
    signs->elements += (long)n;
    SL_ELEMENTWISE(is_device_ptr(gradient, value))
    for (size_t i = 0; i < n; i++) value[i] -= rate * ((float)(gradient[i] > 0.0f) - (float)(gradient[i] < 0.0f));
}

static void a_function_and_a_name_are_enough(void **state) {
    (void)state;
    static const struct sl_optimizer method = {.name = "signs", .update = follow_signs};
    struct signs signs = {.rate = 0.125f};
    struct sl_optimizer_options options = sl_optimizer_defaults(&method, 0);
    options.arg = &signs;
    struct job start = {.mesh = "data=2,model=2",
                        .schedule = "1f1b",
                        .loops = 1,
                        .layers = 2,
                        .microbatches = 4,
                        .group = 4,
                        .zero = true,
                        .optimizer = &options};
    struct job step = start;
    step.steps = 1;
    run_job(&start);
    assert_int_equal(signs.elements, 0);
    run_job(&step);
    assert_true(signs.elements > 0);
    for (int t = 0; t < start.values.count; t++) {
        const struct sl_tensor *tensor = &start.values.tensor[t];
        const float *before = tensor->array.data, *after = same_tensor(&step.values, tensor);
        const float *gradient = same_tensor(&step.gradients, tensor);
        for (size_t i = 0; i < sl_array_elements(&tensor->array); i++)
            assert_true(after[i] == before[i] - 0.125f * (float)((gradient[i] > 0) - (gradient[i] < 0)));
    }
    free_job(&start);
    free_job(&step);
}

static void a_method_that_lacks_something_is_refused(void **state) {
    (void)state;
    const struct {
        struct sl_optimizer method;
        const char *reason;
    } cases[] = {
        {{.update = follow_signs}, "the optimizer's method has no name"},
        {{.name = "", .update = follow_signs}, "the optimizer's method has no name"},
        {{.name = "signs"}, "optimizer signs: its method has no function update"},
        {{.name = "signs", .update = follow_signs, .state = {"a", "b", "c", "d", "e"}}, "must end with NULL after 4"},
        {{.name = "signs", .update = follow_signs, .state = {"a_name_of_21_letters__"}}, "more than 20 characters"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sl_optimizer_options options = sl_optimizer_defaults(&cases[i].method, 1e-3f);
        struct sl_error error = {0};
        assert_int_equal(sl_optimizer_check(&options, &error), SL_BAD_INPUT);
        if (!strstr(error.message, cases[i].reason)) fail_msg("%s, not %s", error.message, cases[i].reason);
    }
}

/* ---- the table ---- */

static void rows_are_found_by_their_names(void **state) {
    (void)state;
    struct sl_error error = {0};
    const struct sl_optimizer *row;
    for (int i = 0; (row = sl_optimizer_at(i)); i++) {
        assert_ptr_equal(sl_optimizer_find(row->name, &error), row);
        assert_true(row->help && row->update);
        for (int s = 0; row->state[s]; s++) assert_in_range(strlen(row->state[s]), 1, 20);
        const struct sl_optimizer_options options = sl_optimizer_defaults(row, 1e-3f);
        assert_int_equal(sl_optimizer_check(&options, &error), SL_OK);
        assert_in_range(sl_optimizer_states(&options), 0, SL_OPTIMIZER_STATES);
    }
    assert_null(sl_optimizer_at(-1));
    assert_null(sl_optimizer_find("none", &error));
    assert_string_equal(error.message, "there is no optimizer \"none\": choose one of adamw, sgd");
}

static void sgd_has_state_only_for_its_momentum(void **state) {
    (void)state;
    struct sl_optimizer_options options = sl_sgd_defaults(1);
    assert_int_equal(sl_optimizer_states(&options), 0);
    options.momentum = 0.5f;
    assert_int_equal(sl_optimizer_states(&options), 1);
    const struct sl_optimizer_options adamw = sl_adamw_defaults(1);
    assert_int_equal(sl_optimizer_states(&adamw), 2);
}

static void settings_that_do_not_fit_are_refused(void **state) {
    (void)state;
    const struct sl_optimizer_options adamw = sl_adamw_defaults(1), sgd = sl_sgd_defaults(1);
    struct sl_optimizer_options wrong[6] = {adamw, adamw, adamw, sgd, sgd, {0}};
    static const char *const reason[] = {"beta1 is 1, must be from 0 to below 1",
                                         "epsilon is -1, must be at least 0",
                                         "learning_rate is nan",
                                         "momentum is -0.5",
                                         "nesterov needs a momentum above 0",
                                         "no optimizer was chosen"};
    wrong[0].beta1 = 1;
    wrong[1].epsilon = -1;
    wrong[2].learning_rate = NAN;
    wrong[3].momentum = -0.5f;
    wrong[4].nesterov = true;
    for (int i = 0; i < 6; i++) {
        struct sl_error error = {0};
        assert_int_equal(sl_optimizer_check(&wrong[i], &error), SL_BAD_INPUT);
        if (!strstr(error.message, reason[i])) fail_msg("%s, not %s", error.message, reason[i]);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_by_their_names),
        cmocka_unit_test(sgd_has_state_only_for_its_momentum),
        cmocka_unit_test(settings_that_do_not_fit_are_refused),
        cmocka_unit_test(state_that_nobody_holds_is_refused),
        cmocka_unit_test(lion_moves_by_signs),
        cmocka_unit_test(lion_trains_with_its_state_shared_out),
        cmocka_unit_test(lion_is_saved_and_resumed_under_its_name),
        cmocka_unit_test(a_function_and_a_name_are_enough),
        cmocka_unit_test(a_method_that_lacks_something_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
