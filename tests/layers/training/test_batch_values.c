/* test_batch_values.c - invalid labels, tokens and places of a batch end in a line with the row, the value and the
 * allowed range, before they are used as an index. */
#include "tests/rigs/run_on.h"

#include "layers/modules/modules.h"
#include "layers/modules/transformer_modules.h"
#include "layers/training/trainer.h"

enum {
    SEQUENCE = 4,
    ROWS = 2 * SEQUENCE,
    MICROBATCHES = 2,
    BATCH = ROWS * MICROBATCHES,
    SIZE = 7,
    DIMENSION = 6,
    IN = 3
};

struct trial {
    bool classifies; /* a classifier of SIZE classes, not a language model */
    int32_t labels[BATCH], tokens[BATCH], places[BATCH];
    bool evaluates;
};

static struct trial complete(bool classifies) {
    struct trial trial = {.classifies = classifies};
    for (int i = 0; i < BATCH; i++) {
        trial.labels[i] = i % (SIZE + 1) - 1;
        trial.tokens[i] = i % SIZE;
        trial.places[i] = i % SEQUENCE == 3 ? 0 : i % SEQUENCE; /* the last token of each is another document's */
    }
    return trial;
}

static int program(struct sl_spmd *self, void *arg) {
    const struct trial *trial = arg;
    static const float inputs[BATCH * IN];
    const struct sl_vocabulary vocabulary = {.size = SIZE, .dimension = DIMENSION};
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor"};
    struct sl_schedule schedule;
    SL_TRY(sl_schedule_make(&schedule, "gpipe", 1, 1, MICROBATCHES, &self->error));
    SL_TRY(sl_schedule_lower(&schedule, &self->error));
    struct sl_module *stage =
        trial->classifies ? sl_dense("dense", IN, SIZE) : sl_token_embedding(&vocabulary, &channels);
    struct sl_model model = {.loops = 1,
                             .stage = &stage,
                             .loss = trial->classifies ? sl_softmax_cross_entropy(SIZE)
                                                       : sl_token_head(&vocabulary, &channels)};
    static const char *const axes[] = {"tensor", NULL};
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .group_axes = axes,
                                                            .schedule = &schedule,
                                                            .gemm = sl_gemm_find("reference", &self->error),
                                                            .rows = ROWS,
                                                            .sequence = trial->classifies ? 0 : SEQUENCE,
                                                            .wgrad_group = 1},
                                               .data_axis = "data",
                                               .optimizer = sl_sgd_defaults(0.1f)};
    const struct sl_batch batch = {.rows = BATCH,
                                   .inputs = inputs,
                                   .labels = trial->labels,
                                   .tokens = trial->classifies ? NULL : trial->tokens,
                                   .places = trial->classifies ? NULL : trial->places,
                                   .counted = 1};
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics = {0};
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    if (status == SL_OK)
        status = trial->evaluates ? sl_trainer_evaluate(trainer, &batch, &metrics)
                                  : sl_trainer_step(trainer, &batch, &metrics, &stop);
    sl_trainer_close(trainer);
    sl_module_free(stage);
    sl_module_free(model.loss);
    sl_schedule_free(&schedule);
    return status;
}

static void refuses(struct trial trial, const char *text) {
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        trial.evaluates = evaluates;
        EXPECT_VERDICT(((struct test_run){.mesh = "data=1", .arg = &trial}), program, SL_BAD_INPUT, text);
    }
}

static void what_fits_runs(void **state) {
    (void)state;
    for (int classifies = 0; classifies < 2; classifies++) {
        struct trial trial = complete(classifies);
        struct sl_error error;
        if (run_on((struct test_run){.mesh = "data=1", .arg = &trial}, program, &error)) fail_msg("%s", error.message);
    }
}

static void labels_are_classes(void **state) {
    (void)state;
    for (int classifies = 0; classifies < 2; classifies++) {
        struct trial trial = complete(classifies);
        trial.labels[BATCH - 1] = SIZE;
        refuses(trial, "the batch's labels have 7 in row 15: they must be -1 to 6");
        trial.labels[3] = 100000000;
        refuses(trial, "the batch's labels have 100000000 in row 3: they must be -1 to 6");
        trial.labels[0] = -2;
        refuses(trial, "the batch's labels have -2 in row 0: they must be -1 to 6");
        trial.labels[0] = INT32_MIN;
        refuses(trial, "the batch's labels have -2147483648 in row 0: they must be -1 to 6");
    }
}

static void tokens_are_in_the_vocabulary(void **state) {
    (void)state;
    struct trial trial = complete(false);
    trial.tokens[9] = SIZE;
    refuses(trial, "the batch's tokens have 7 in row 9: they must be 0 to 6");
    trial.tokens[2] = -1;
    refuses(trial, "the batch's tokens have -1 in row 2: they must be 0 to 6");
}

static void places_count_tokens_of_a_document(void **state) {
    (void)state;
    struct trial trial = complete(false);
    trial.places[6] = 3;
    refuses(trial, "the batch's places have 3 in row 6, row 2 of its sequence: it must be 0 or 2");
    trial.places[4] = 1;
    refuses(trial, "the batch's places have 1 in row 4, row 0 of its sequence: it must be 0");
    trial.places[1] = -1;
    refuses(trial, "the batch's places have -1 in row 1, row 1 of its sequence: it must be 0 or 1");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_runs),
        cmocka_unit_test(labels_are_classes),
        cmocka_unit_test(tokens_are_in_the_vocabulary),
        cmocka_unit_test(places_count_tokens_of_a_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
