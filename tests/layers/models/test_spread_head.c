/* test_spread_head.c - a head spread over the ranks of a pipeline gives the bits of a head on the last rank; if ranks
 * share rows, its numbers. */
#include "tests/rigs/transformer_job.h"

#include "layers/modules/sequence/token_chunks.h"

static const char *const schedules[] = {"interleaved-1f1b", "looped-bfs", "looped-dfs", "interleaved-zb",
                                        "rotating-inputs"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/* Tokens up to 4096 are one chunk; more are 8 chunks, or 16, and each stage needs whole ones. */
static void stages_need_whole_chunks(void **state) {
    static const struct {
        int size, chunk, shards;
        bool divides;
    } trial[] = {{40, 5, 8, true},     {40, 5, 3, false},    {40, 5, 1, true},    {41, 0, 0, true},
                 {41, 5, 1, true},     {41, 5, 2, false},    {4096, 0, 2, false}, {50304, 0, 4, true},
                 {50304, 0, 16, true}, {50304, 0, 5, false}, {50257, 0, 2, false}};
    (void)state;
    for (size_t i = 0; i < sizeof trial / sizeof *trial; i++) {
        const struct sl_vocabulary vocabulary = {
            .size = trial[i].size, .dimension = 8, .chunk = trial[i].chunk, .shards = trial[i].shards};
        assert_int_equal(sl_vocabulary_divides(&vocabulary), trial[i].divides);
    }
}

/* Eight chunks. */
static struct job spread_job(const char *mesh) {
    struct job job = small_job(mesh);
    job.model.chunk = 5;
    job.microbatches = 4;
    return job;
}

typedef void expect_alike(const char *what, const struct job *got, const struct job *want);

/* Runs JOB with its head spread over MESH, under all schedules. BODY loops have layers. */
static void expect_spread(struct job job, int spread, const char *mesh, int body, const struct job *want,
                          expect_alike *expect) {
    char what[128];
    job.mesh = mesh;
    job.model.spread_head = spread;
    job.loops = body + sl_spread_loops(spread);
    for (int i = 0; i < SCHEDULES; i++) {
        if (test_is_small && i % 2) continue;
        job.schedule = schedules[i];
        if (!strcmp(job.schedule, "rotating-inputs") && spread == SL_SPREAD_ROWS)
            continue; /* it has two loops for ends */
        job.table = (struct sl_schedule){0};
        job.model.recomputation = i % 3;
        job.model.keep_logits = i / 2 % 2;
        snprintf(what, sizeof what, "%s with %d loops on %s, groups of %d", job.schedule, job.loops, mesh, job.group);
        run_job(&job);
        if (has_results()) expect(what, &job, want);
        free_job(&job);
    }
}

static void compare(struct job job, const char *mesh, int body) {
    struct job want = job;
    run_job(&want);
    expect_spread(job, SL_SPREAD_VOCABULARY, mesh, body, &want, expect_same_bits);
    free_job(&want);
}

static void ranks_that_share_the_head_give_the_same_bits(void **state) {
    (void)state;
    for (int group = 1; group <= 4; group *= 2) {
        struct job job = spread_job("data=1,pipe=1,tensor=1");
        job.group = group;
        job.model.untied_head = group == 2;
        compare(job, "data=1,pipe=2,tensor=1", 1);
        compare(job, "data=1,pipe=4,tensor=1", 2);
    }
}

static void shared_tables_do_beside_data_and_tensor(void **state) {
    (void)state;
    struct job job = spread_job("data=2,pipe=1,tensor=2");
    job.clip = 0.5f;
    job.model.dropout = 0.1;
    compare(job, "data=2,pipe=2,tensor=2", 2);
}

static void rounded_operands_are_rounded_alike(void **state) {
    (void)state;
    struct job job = spread_job("data=2,pipe=1,tensor=1");
    job.precision = SL_BF16;
    compare(job, "data=2,pipe=2,tensor=1", 1);
}

/* ---- saved logits ---- */

static void expect_kept(struct job job) {
    struct job want = job;
    run_job(&want);
    job.model.keep_logits = true;
    run_job(&job);
    if (has_results()) expect_same_bits(job.mesh, &job, &want);
    free_job(&job);
    free_job(&want);
}

/* More chunks than may be saved; runs of microbatches; W of several. */
static void kept_logits_have_the_same_bits(void **state) {
    (void)state;
    static const char *const mesh[] = {"data=1,pipe=1,tensor=1", "data=2,pipe=1,tensor=2", "data=1,pipe=2,tensor=1"};
    for (int i = 0; i < 6; i++) {
        struct job job = spread_job(mesh[i / 2]);
        job.model.vocabulary = i == 1 ? SL_KEPT_CHUNKS + 6 : job.model.vocabulary;
        job.model.chunk = i == 1 ? 1 : 7;
        job.model.vocabulary_parallel = i == 3;
        job.group = i % 2 ? 2 : 1;
        job.schedule = i < 4 ? "gpipe" : "1f1b";
        job.run = i == 0 || i == 3 ? 2 : 0;
        job.precision = job.storage = i == 4 ? SL_BF16 : SL_F32;
        expect_kept(job);
    }
}

/* ---- rows ---- */

/* Returns whether the gradient is a sum over rows: the head's, which may include other uses of the table. */
static bool is_table(const char *name) { return !strcmp(name, "embedding") || !strcmp(name, "head"); }

/* A row's numbers have the same bits in any company. Sums over rows have another order: the losses, the table's
 * gradient. */
static void expect_same_but_sums(const char *what, const struct job *got, const struct job *want) {
    expect_near_numbers(what, got->steps, got->loss, want->loss, 1e-6);
    expect_near_store(what, &got->gradients, &want->gradients, 1e-6);
    for (int i = 0; i < got->gradients.count; i++) {
        const struct sl_tensor *tensor = &got->gradients.tensor[i], *wanted = same_tensor(&want->gradients, tensor);
        const size_t count = sl_array_elements(&tensor->array);
        if (is_table(tensor->name)) continue;
        if (memcmp(tensor->array.data, wanted->array.data, count * sizeof(float)))
            fail_msg("%s: other bits of %s", what, tensor->name);
    }
}

static void expect_rows(struct job job, const char *mesh, int body) {
    struct job want = job;
    run_job(&want);
    expect_spread(job, SL_SPREAD_ROWS, mesh, body, &want, expect_same_but_sums);
    free_job(&want);
}

/* One step: the next one begins with another table. */
static struct job rows_job(const char *mesh) {
    struct job job = spread_job(mesh);
    job.steps = 1;
    return job;
}

static void ranks_that_share_rows_give_the_same_numbers(void **state) {
    (void)state;
    for (int group = 1; group <= 4; group *= 2) {
        struct job job = rows_job("data=1,pipe=1,tensor=1");
        job.group = group;
        job.model.untied_head = group == 2;
        expect_rows(job, "data=1,pipe=2,tensor=1", 1);
        expect_rows(job, "data=1,pipe=4,tensor=1", 2);
    }
}

/* Each rank looks up its share of the microbatches, which travel to the first layers. */
static void ranks_that_share_the_batch_give_the_same_numbers(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        struct job job = rows_job("data=1,pipe=1,tensor=1"), want;
        job.group = 4 / ranks;
        job.model.untied_head = ranks == 4;
        want = job;
        run_job(&want);
        expect_spread(job, SL_SPREAD_BATCH, ranks == 2 ? "data=1,pipe=2,tensor=1" : "data=1,pipe=4,tensor=1",
                      3 - ranks / 2, &want, expect_same_but_sums);
        free_job(&want);
    }
    struct job job = rows_job("data=2,pipe=1,tensor=2"), want;
    job.model.dropout = 0.1;
    job.group = 2;
    want = job;
    run_job(&want);
    expect_spread(job, SL_SPREAD_BATCH, "data=2,pipe=2,tensor=2", 2, &want, expect_same_but_sums);
    free_job(&want);
}

/* With --zero 2, W of a loop takes all groups at once, so that the layers' gradients are complete one after another. */
static void all_groups_at_once_give_the_same_numbers(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct job job = rows_job("data=2,pipe=1,tensor=1"), want;
        job.model.fsdp = false;
        job.group = 1 + i % 2;
        want = job;
        run_job(&want);
        job.mesh = "data=2,pipe=2,tensor=1";
        job.schedule = "looped-bfs";
        job.shared_out = 2;
        job.model.spread_head = SL_SPREAD_VOCABULARY + i / 2;
        job.loops = 1 + sl_spread_loops(job.model.spread_head);
        run_job(&job);
        if (has_results()) expect_same_but_sums("all groups at once", &job, &want);
        free_job(&job);
        free_job(&want);
    }
}

/* A table of both ends on one rank would have some shares twice, and others not at all. */
static void ends_are_on_all_ranks(void **state) {
    (void)state;
    struct sl_model model = {0};
    struct sl_schedule schedule;
    struct sl_error error = {0};
    struct sl_mesh mesh;
    struct job job = spread_job("data=1,pipe=2,tensor=1");
    assert_int_equal(sl_mesh_parse(&mesh, job.mesh, &error), SL_OK);
    assert_int_equal(sl_schedule_make(&schedule, "rotating", 2, 3, 4, &error), SL_OK);
    job.model.spread_head = SL_SPREAD_ROWS;
    assert_int_equal(sl_transformer_build(&job.model, &mesh, &schedule, 0, &model, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "schedule rotating: a spread head needs stage 4 on rank 0, and it is on rank "
                                       "1: choose a looped or interleaved schedule, or rotating-inputs");
    sl_model_free(&model);
    sl_schedule_free(&schedule);
}

/* Eight ranks have a token or two of each sequence; a table in one chunk keeps its logits. */
static void so_they_do_beside_data_and_tensor(void **state) {
    (void)state;
    struct job job = rows_job("data=2,pipe=1,tensor=2");
    job.model.dropout = 0.1;
    expect_rows(job, "data=2,pipe=2,tensor=2", 2);
    job.model.vocabulary_parallel = true;
    job.model.chunk = 0;
    expect_rows(job, "data=2,pipe=2,tensor=2", 1);
    job = rows_job("data=1,pipe=1,tensor=1");
    expect_rows(job, "data=1,pipe=8,tensor=1", 1);
}

/* All ranks' copies of the table stay the same, also with a limit on the norm, in which the table counts once. */
static void expect_same_tables(bool untied) {
    struct job job = spread_job("data=1,pipe=1,tensor=1"), want;
    job.optimizer = sl_sgd_defaults(0.1f);
    job.clip = 0.5f;
    job.steps = 4;
    job.model.untied_head = untied;
    want = job;
    run_job(&want);
    job.mesh = "data=1,pipe=4,tensor=1";
    job.model.spread_head = SL_SPREAD_ROWS;
    job.schedule = "looped-bfs";
    job.loops = 2;
    run_job(&job);
    if (has_results()) {
        expect_near_numbers("losses", job.steps, job.loss, want.loss, 1e-5);
        expect_near_numbers("norms", job.steps, job.norm, want.norm, 1e-5);
        expect_near_store("values", &job.values, &want.values, 1e-5);
    }
    free_job(&job);
    free_job(&want);
}

static void tables_stay_the_same(void **state) {
    (void)state;
    expect_same_tables(false);
    expect_same_tables(true);
}

/* ---- refusals ---- */

static void expect_refusal(struct job job, const char *text) {
    struct sl_error error = {0};
    if (!job.model.spread_head) job.model.spread_head = SL_SPREAD_VOCABULARY;
    job.schedule = "interleaved-1f1b";
    if (!job.loops) job.loops = 3;
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    if (has_results() && !strstr(error.message, text)) fail_msg("\"%s\" lacks \"%s\"", error.message, text);
    free_job(&job);
}

static void what_does_not_divide_is_refused(void **state) {
    (void)state;
    struct job job = spread_job("data=1,pipe=2,tensor=1");
    job.loops = 2;
    expect_refusal(job, "a spread head needs a schedule of 3 loops or more; interleaved-1f1b has 2");
    job.loops = 0;
    job.model.chunk = 0;
    expect_refusal(job, "a vocabulary of 40 tokens in chunks of 40 does not divide over 2 stages");
    job = spread_job("data=1,pipe=2,tensor=4");
    job.sequence = 6;
    job.loops = 0;
    expect_refusal(job, "sequences of 6 tokens do not divide by the 4 coordinates along \"tensor\"");
    job = spread_job("data=1,pipe=4,tensor=1");
    job.model.spread_head = SL_SPREAD_ROWS;
    job.loops = 1;
    expect_refusal(job, "a spread head needs a schedule of 2 loops or more; interleaved-1f1b has 1");
    job.loops = 2;
    job.sequence = 5;
    expect_refusal(job, "10 tokens of a microbatch do not divide over the 4 ranks that share the head");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_need_whole_chunks),
        cmocka_unit_test(ranks_that_share_the_head_give_the_same_bits),
        cmocka_unit_test(shared_tables_do_beside_data_and_tensor),
        cmocka_unit_test(rounded_operands_are_rounded_alike),
        cmocka_unit_test(kept_logits_have_the_same_bits),
        cmocka_unit_test(ranks_that_share_rows_give_the_same_numbers),
        cmocka_unit_test(ranks_that_share_the_batch_give_the_same_numbers),
        cmocka_unit_test(all_groups_at_once_give_the_same_numbers),
        cmocka_unit_test(ends_are_on_all_ranks),
        cmocka_unit_test(so_they_do_beside_data_and_tensor),
        cmocka_unit_test(tables_stay_the_same),
        cmocka_unit_test(what_does_not_divide_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
