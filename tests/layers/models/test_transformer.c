/* test_transformer.c - a transformer trained over data, pipeline and tensor coordinates: every layout gives a
 * reference's numbers, every schedule the same bits. */
#include "spmd/schedule/registry.h"
#include "tests/rigs/transformer_job.h"

/* ---- the reference's numbers ---- */

/* Repeats the reference's run: continues a prompt, and takes ten steps. GRADIENTS are the first step's. */
static int follow_the_reference(struct worker *worker) {
    struct job *job = worker->job;
    SL_TRY(continue_prompts(worker, job->user));
    SL_TRY(train_steps(worker, 0, 1));
    SL_TRY(sl_trainer_export(worker->trainer, true, &job->gradients));
    return train_steps(worker, 1, job->steps);
}

static void expect_continuation(const char *what, const struct continuation *made, int replicas, const double *want) {
    for (int c = 0; c < coordinates_of(what); c++)
        for (int i = 0; i < made->sequences / replicas * made->length; i++)
            if (made->tokens[c][i] != (int32_t)want[i % made->length])
                fail_msg("%s: coordinate %d: token %d of sequence %d is %d instead of %d", what, c, i % made->length,
                         i / made->length, made->tokens[c][i], (int32_t)want[i % made->length]);
}

static void follow(const struct reference *reference, const char *mesh, int steps) {
    struct continuation *made = calloc(1, sizeof *made);
    double losses[MAX_STEPS], loss, greedy[MOST_TOKENS], prompt[MOST_TOKENS];
    int32_t prompts[MOST_TOKENS];
    struct job job = reference_job(reference, mesh);
    assert_non_null(made);
    made->sequences = job.batch;
    made->prompt = numbers_of(reference, "prompt", MOST_TOKENS / made->sequences, prompt);
    made->length = numbers_of(reference, "greedy", MOST_TOKENS / made->sequences, greedy);
    made->prompts = prompts;
    for (int i = 0; i < made->sequences * made->prompt; i++) prompts[i] = (int32_t)prompt[i % made->prompt];
    job.program = follow_the_reference;
    job.user = made;
    job.steps = steps;
    run_job(&job);
    if (has_results()) {
        losses_of(reference, losses);
        loss = json_number_value(json_object_get(reference->json, "loss"));
        expect_near_numbers(mesh, 1, job.loss, &loss, 2e-6);
        expect_near_numbers(mesh, steps, job.loss, losses, 2e-6);
        assert_int_equal(job.gradients.count + 1, reference->gradients.count); /* the reference also has logits */
        expect_near_store(mesh, &job.gradients, &reference->gradients, 1e-5);
        expect_continuation(mesh, made, size_along(mesh, "data"), greedy);
    }
    free_job(&job);
    free(made);
}

static void every_layout_gives_the_numbers_of_the_reference(void **state) {
    (void)state;
    struct reference reference;
    open_reference(&reference);
    for (int size = 1; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = 0; i < layouts; i++) {
            if (test_runs_few && (size < 4 || i != layouts / 2)) continue;
            follow(&reference, mesh[i], test_runs_few || (test_is_small && i != layouts / 2) ? 1 : 10);
        }
    }
    close_reference(&reference);
}

/* ---- schedules ---- */

enum { MOST_LOOPS = 2 };

static const char *const recomputations[] = {"nothing", "attention", "layers"};

/* JOB under SCHEDULE, if it fits, with RECOMPUTATION: expects WANT's bits. */
static bool has_same_bits(struct job job, const char *schedule, int loops, int recomputation, const struct job *want) {
    char what[256];
    job.schedule = schedule;
    job.loops = loops;
    job.model.recomputation = recomputation;
    if (!make_table(&job)) return false;
    snprintf(what, sizeof what, "%s with %d loops on %s, %d microbatches in groups of %d, %s recomputed", schedule,
             loops, job.mesh, job.microbatches, job.group, recomputations[recomputation]);
    run_job(&job);
    if (has_results()) expect_same_bits(what, &job, want);
    free_job(&job);
    return true;
}

/* Returns whether to skip the case, if few are run. Selective recomputation is among these: on GPUs it sums into the
 * residual stream in another order. */
static bool is_left_out(int schedule, int recomputation) {
    return test_runs_few && (schedule % 4 != 1 || recomputation == SL_RECOMPUTE_SELECTIVE);
}

/* All schedules of JOB's mesh; returns how many fit. With ALL they meet all recomputations, else one each. */
static int compare_schedules(const struct job *job, bool all, const struct job *want) {
    int fitted = 0;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++)
        for (int loops = 1; kind->placement != SL_MIRRORED && loops <= MOST_LOOPS; loops++)
            for (int r = 0; r < 4; r++)
                if ((all || r == (i + loops) % 4) && !is_left_out(i, r))
                    fitted += has_same_bits(*job, kind->name, loops, r, want);
    return fitted;
}

/* JOB's own mesh, and PIPES with two and four ranks, give the same bits. */
static int compare_stage_counts(struct job job, int pipes, const char *const *pipe, bool all) {
    struct job want = job;
    int fitted = 0;
    run_job(&want);
    for (int r = test_runs_few ? SL_RECOMPUTE_FULL : SL_RECOMPUTE_SELECTIVE; r <= SL_RECOMPUTE_FULL; r++)
        assert_true(has_same_bits(job, job.schedule, job.loops, r, &want));
    for (int i = 0; i < pipes; i++) {
        job.mesh = pipe[i];
        fitted += compare_schedules(&job, all, &want);
    }
    free_job(&want);
    return fitted;
}

static void schedules_stage_counts_and_recomputation_give_the_same_bits(void **state) {
    (void)state;
    static const char *const pipe[] = {"data=1,pipe=2,tensor=1", "data=1,pipe=4,tensor=1"};
    if (test_runs_few) {
        struct job job = small_job("data=1,pipe=1,tensor=1");
        job.schedule = "gpipe";
        job.microbatches = 4;
        job.group = 1;
        assert_true(compare_stage_counts(job, 1, pipe, false) >= 2);
        return;
    }
    for (int microbatches = 4; microbatches <= (test_is_small ? 4 : 8); microbatches *= 2) {
        for (int group = 1; group <= microbatches; group += microbatches - 1) {
            struct job job = small_job("data=1,pipe=1,tensor=1");
            job.schedule = "gpipe";
            job.microbatches = microbatches;
            job.group = group;
            const bool all = shares_memory() && !test_is_small;
            assert_true(compare_stage_counts(job, 2, pipe, all) >= (all ? 69 : 23));
        }
    }
}

static void schedules_give_the_same_bits_on_data_and_tensor(void **state) {
    (void)state;
    static const char *const pipe[] = {"data=2,pipe=2,tensor=2"};
    static const char *const others[] = {"pipe=4,data=2,tensor=1"}; /* as data=2,pipe=1 */
    for (int group = 1; group <= 4; group += 3) {
        struct job job = small_job("data=2,tensor=2,pipe=1");
        job.schedule = "gpipe";
        job.microbatches = 4;
        job.group = group;
        job.model.dropout = 0.1;
        assert_true(compare_stage_counts(job, 1, pipe, false) >= 12);
        if (test_is_small) break;
        job.mesh = "data=2,tensor=1,pipe=1";
        assert_true(compare_stage_counts(job, 1, others, false) >= 11);
    }
}

/* Stages of different numbers of layers; a block's last layer has no rotations. */
static void seven_layers_are_divided_unevenly(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        int layers[4]; /* of the stages, as far as it is said; or halves of layers */
        bool halves;
    } splits[] = {{"data=1,pipe=2,tensor=1", {0}, false},    {"data=1,pipe=4,tensor=1", {0}, false},
                  {"data=1,pipe=2,tensor=1", {6, 1}, false}, {"data=1,pipe=4,tensor=1", {1, 3, 2, 1}, false},
                  {"data=1,pipe=2,tensor=1", {9, 5}, true},  {"data=1,pipe=4,tensor=1", {1, 6, 1, 6}, true}};
    for (int rotations = 0; rotations < 2; rotations++) {
        struct job want = small_job("data=1,pipe=1,tensor=1");
        want.model.blocks = rotations ? 1 : 7;
        want.model.layers_per_block = rotations ? 7 : 1;
        want.microbatches = 4;
        struct job first = want;
        run_job(&first);
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            struct job job = want;
            job.mesh = splits[i].mesh;
            if (splits[i].layers[0]) job.model.stage_layers = splits[i].layers;
            job.model.stage_halves = splits[i].halves;
            job.model.recomputation = i == 5 ? SL_RECOMPUTE_FULL : SL_RECOMPUTE_NONE;
            run_job(&job);
            if (has_results()) {
                expect_same_bits(splits[i].mesh, &job, &first);
                assert_int_equal(job.values.count, 7 * 16 + (rotations ? 6 * 4 : 0) + 3);
            }
            free_job(&job);
        }
        free_job(&first);
    }
}

static void layers_must_add_up(void **state) {
    (void)state;
    static const int bad[][2] = {{3, 5}, {4, 4}, {7, 0}, {0, 7}, {8, -1}, {INT32_MAX, INT32_MAX}};
    struct sl_schedule schedule;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(&schedule, "gpipe", 2, 1, 2, &error), SL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_model model;
        const struct sl_layers layers = {.count = 7, .of_stage = bad[i]};
        assert_int_equal(sl_model_open(&model, &schedule, 0, layers, 0, 0, &error), SL_BAD_INPUT);
        assert_string_equal(error.message, "the layers of 2 stages do not add up to 7");
        sl_model_free(&model);
    }
    sl_schedule_free(&schedule);
}

static void halves_must_add_up(void **state) {
    (void)state;
    static const int good[] = {5, 9}, bad[][2] = {{3, 4}, {14, 0}, {0, 14}, {15, -1}, {5, 10}};
    struct sl_schedule schedule;
    struct sl_error error = {0};
    struct sl_model model;
    assert_int_equal(sl_schedule_make(&schedule, "gpipe", 2, 1, 2, &error), SL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct sl_layers layers = {.count = 7, .of_stage = bad[i], .halves = true};
        assert_int_equal(sl_model_open(&model, &schedule, 0, layers, 0, 0, &error), SL_BAD_INPUT);
        assert_string_equal(error.message, "the layers of 2 stages do not add up to 7");
        sl_model_free(&model);
    }
    const struct sl_layers layers = {.count = 7, .of_stage = good, .halves = true};
    assert_int_equal(sl_model_open(&model, &schedule, 1, layers, 0, 0, &error), SL_OK);
    assert_int_equal(model.first_half[0], 5);
    sl_model_free(&model);
    sl_schedule_free(&schedule);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest few[] = {
        cmocka_unit_test(every_layout_gives_the_numbers_of_the_reference),
        cmocka_unit_test(schedules_stage_counts_and_recomputation_give_the_same_bits),
    };
    if (test_runs_few) return cmocka_run_group_tests_name("few", few, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_gives_the_numbers_of_the_reference),
        cmocka_unit_test(schedules_stage_counts_and_recomputation_give_the_same_bits),
        cmocka_unit_test(schedules_give_the_same_bits_on_data_and_tensor),
        cmocka_unit_test(seven_layers_are_divided_unevenly),
        cmocka_unit_test(layers_must_add_up),
        cmocka_unit_test(halves_must_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
