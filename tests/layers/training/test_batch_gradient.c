/* test_batch_gradient.c - the gradient of the batch's inputs equals central differences, on any mesh and schedule. */
#include <math.h>

#include "tests/rigs/run_on.h"

#include "layers/modules/modules.h"
#include "layers/modules/transformer_modules.h"
#include "layers/training/trainer.h"

enum { IN = 3, HIDDEN = 8, CLASSES = 5, ROWS = 2, MICROBATCHES = 4, BATCH = ROWS * MICROBATCHES, STAGES = 4 };

struct trial {
    const char *schedule;
    int loops;
    enum sl_dtype storage;
    bool tokens; /* the first stage reads them */
    float inputs[BATCH * IN];
    float loss, gradient[BATCH * IN];
};

/* Stage S of STAGES. */
static struct sl_module *stage_of(int s) {
    const int in = s == 0 ? IN : HIDDEN, out = s < STAGES - 1 ? HIDDEN : CLASSES;
    char name[16];
    snprintf(name, sizeof name, "dense.%d", s);
    struct sl_module *layer[] = {sl_dense(name, in, out), sl_silu(out)};
    return sl_sequential("", 2, layer);
}

/* Coordinate 0 has the first stage, the last one has the loss; the test's thread receives both. */
static int train(struct sl_spmd *self, struct trial *trial, const struct sl_trainer_options *options,
                 struct sl_model *model) {
    int32_t labels[BATCH];
    for (int i = 0; i < BATCH; i++) labels[i] = i % CLASSES;
    const struct sl_batch batch = {.rows = BATCH, .inputs = trial->inputs, .labels = labels, .counted = BATCH};
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics = {0};
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, options, model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    if (status == SL_OK) status = sl_trainer_step(trainer, &batch, &metrics, &stop);
    if (status == SL_OK && self->coordinate == 0) {
        trial->loss = (float)(metrics.loss / metrics.rows);
        sl_device.copy(trial->gradient, options->pipeline.batch_gradient, sizeof trial->gradient);
    }
    sl_trainer_close(trainer);
    return status;
}

static int program(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    static const char *const axes[] = {"tensor", NULL};
    const struct sl_vocabulary vocabulary = {.size = 4, .dimension = HIDDEN};
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor"};
    const int ranks = sl_axis_size(self, "model"), rank = sl_axis_index(self, "model");
    struct sl_module *stage[STAGES] = {0}, *part[STAGES];
    struct sl_schedule schedule;
    SL_TRY(sl_schedule_make(&schedule, trial->schedule, ranks, trial->loops, MICROBATCHES, &self->error));
    SL_TRY(sl_schedule_lower(&schedule, &self->error));
    const int each = STAGES / (ranks * trial->loops);
    for (int l = 0; l < trial->loops; l++) {
        const int first = sl_schedule_stage(&schedule, rank, l) * each;
        for (int i = 0; i < each; i++) part[i] = stage_of(first + i);
        if (first == 0 && trial->tokens) {
            sl_module_free(part[0]);
            part[0] = sl_token_embedding(&vocabulary, &channels);
        }
        stage[l] = sl_sequential("", each, part);
    }
    struct sl_model model = {.loops = trial->loops, .stage = stage, .loss = sl_softmax_cross_entropy(CLASSES)};
    float *gradient = sl_device.take(sizeof trial->gradient);
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .group_axes = axes,
                                                            .schedule = &schedule,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .storage = trial->storage,
                                                            .rows = ROWS,
                                                            .wgrad_group = 1,
                                                            .batch_gradient = rank == 0 ? gradient : NULL},
                                               .data_axis = "data",
                                               .optimizer = sl_sgd_defaults(0.1f)};
    const int status = train(self, trial, &options, &model);
    sl_device.give(gradient);
    for (int l = 0; l < trial->loops; l++) sl_module_free(stage[l]);
    sl_module_free(model.loss);
    sl_schedule_free(&schedule);
    return status;
}

static struct trial trial_of(const char *schedule, int loops, enum sl_dtype storage) {
    struct trial trial = {.schedule = schedule, .loops = loops, .storage = storage};
    for (int i = 0; i < BATCH * IN; i++) trial.inputs[i] = sinf((float)(i * i));
    return trial;
}

static void run(struct trial *trial, const char *mesh) {
    struct sl_error error;
    if (run_on((struct test_run){.mesh = mesh, .arg = trial}, program, &error)) fail_msg("%s", error.message);
}

static void it_is_the_slope_of_the_loss(void **state) {
    (void)state;
    const float step = 1.0f / 64;
    struct trial trial = trial_of("gpipe", 1, SL_F32);
    run(&trial, "model=1");
    float largest = 0;
    for (int i = 0; i < BATCH * IN; i++) largest = fmaxf(largest, fabsf(trial.gradient[i]));
    assert_true(largest > 1e-4f);
    for (int i = 0; i < BATCH * IN; i++) {
        struct trial above = trial_of("gpipe", 1, SL_F32), below = above;
        above.inputs[i] += step;
        below.inputs[i] -= step;
        run(&above, "model=1");
        run(&below, "model=1");
        const float slope = (above.loss - below.loss) / (2 * step);
        assert_true(fabsf(slope - trial.gradient[i]) < 2e-3f * largest);
    }
}

static void every_layout_has_it(void **state) {
    (void)state;
    const struct {
        const char *mesh, *schedule;
        int loops;
    } layout[] = {{"model=2", "gpipe", 1},
                  {"model=4", "1f1b", 1},
                  {"model=2", "looped-bfs", 2},
                  {"model=2", "zbv", 2},
                  {"model=4", "pipedream-flush", 1}};
    struct trial single = trial_of("gpipe", 1, SL_F32);
    run(&single, "model=1");
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        struct trial trial = trial_of(layout[i].schedule, layout[i].loops, SL_F32);
        run(&trial, layout[i].mesh);
        assert_memory_equal(trial.gradient, single.gradient, sizeof trial.gradient);
    }
}

static void with_storage_bf16_it_is_floats(void **state) {
    (void)state;
    struct trial single = trial_of("gpipe", 1, SL_F32), stored = trial_of("gpipe", 1, SL_BF16);
    float largest = 0;
    run(&single, "model=1");
    run(&stored, "model=2");
    for (int i = 0; i < BATCH * IN; i++) largest = fmaxf(largest, fabsf(single.gradient[i]));
    for (int i = 0; i < BATCH * IN; i++) assert_true(fabsf(stored.gradient[i] - single.gradient[i]) < 0.05f * largest);
}

static void tokens_have_none(void **state) {
    (void)state;
    struct trial trial = trial_of("gpipe", 1, SL_F32);
    trial.tokens = true;
    EXPECT_VERDICT(((struct test_run){.mesh = "model=1", .arg = &trial}), program, SL_BAD_INPUT,
                   "the pipeline's batch_gradient: the first stage reads tokens, which have no gradient");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_slope_of_the_loss),
        cmocka_unit_test(every_layout_has_it),
        cmocka_unit_test(with_storage_bf16_it_is_floats),
        cmocka_unit_test(tokens_have_none),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
