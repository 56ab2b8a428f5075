/* test_tensor_rows.c - tensor layout rows: losses and gradients equal those of one coordinate, in layouts with data and
 * pipe, for kinds of models, and with options that save memory. */
#include "tests/rigs/transformer_job.h"

enum { SEQUENCE = 24 }; /* shares of 2, 3, 4 and 8 coordinates */

static struct job job_of(const char *mesh) {
    struct job job = small_job(mesh);
    job.model.blocks = 2;
    job.model.attention = SL_ATTENTION_GROUPED;
    job.model.tensor_layout = SL_TENSOR_ROWS;
    job.model.positions = job.sequence = SEQUENCE;
    job.batch = 4;
    job.steps = 1;
    return job;
}

static struct job grouped(const char *mesh) { return job_of(mesh); }
static struct job llama(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.key_heads = 4;
    job.model.biases = SL_BIASES_NONE;
    job.model.mlp = SL_MLP_GATED_SILU;
    job.model.head_norms = true;
    job.model.window = 10;
    job.document = 7;
    return job;
}
static struct job centered(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.norm = SL_NORM_LAYER;
    job.model.mlp = SL_MLP_ERF_GELU;
    job.model.untied_head = true;
    return job;
}
static struct job dropping(const char *mesh) {
    struct job job = llama(mesh);
    job.model.dropout = sl_kernels_select()->draws_dropout ? 0 : 0.2;
    job.model.vocabulary_parallel = true;
    return job;
}

static struct job latent(const char *mesh) {
    struct job job = job_of(mesh);
    job.model.attention = SL_ATTENTION_LATENT;
    job.model.dropout = sl_kernels_select()->draws_dropout ? 0 : 0.1;
    return job;
}

static struct job without_dropout(const char *mesh) {
    struct job job = latent(mesh);
    job.model.dropout = 0;
    return job;
}

static struct job (*const kinds[])(const char *mesh) = {grouped, llama, centered, dropping, latent};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void compare(struct job job, const struct job *want, const char *what, double loss, double gradient) {
    char name[120];
    snprintf(name, sizeof name, "%s on %s", what, job.mesh);
    run_job(&job);
    if (has_results()) {
        expect_near_numbers(name, 1, job.loss, want->loss, loss);
        expect_near_noisy_store(name, &job.gradients, &want->gradients, gradient, 1e-7);
    }
    free_job(&job);
}

static void every_layout_has_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,tensor=2", "data=1,pipe=1,tensor=4", "data=2,pipe=1,tensor=2",
                                         "data=1,pipe=2,tensor=2", "data=2,pipe=2,tensor=2", "tensor=2,data=4,pipe=1",
                                         "pipe=2,tensor=4,data=1"};
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
            char what[24];
            if (test_runs_few && (m + k) % 3) continue;
            snprintf(what, sizeof what, "kind %d", k);
            compare(kinds[k](meshes[m]), &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* Sharding of states, gradients and kernels, recomputation, schedules, passes: the same numbers. */
static void ways_to_train_have_the_same_numbers(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k += 2) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int way = 0; way < 10; way++) {
            char what[24];
            struct job job = kinds[k](way % 2 ? "data=1,pipe=2,tensor=2" : "data=2,pipe=1,tensor=2");
            job.model.fsdp = way == 3 || way == 4 || way == 8;
            job.late = way == 8;
            job.shared_out = way < 3 ? way : 1;
            job.model.recomputation = way == 5 ? SL_RECOMPUTE_SELECTIVE : way == 6 ? SL_RECOMPUTE_FULL : 0;
            if (way == 6) job.accumulate = 2;
            if (way == 7) job.schedule = "gpipe";
            if (way == 7 || way == 9) job.group = 1;
            if (way == 7) job.run = 2;
            if (way == 9) job.schedule = "zbv";
            if (way == 9) job.loops = 2;
            snprintf(what, sizeof what, "kind %d, way %d", k, way);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* Coordinates along context have their blocks' rows, and those along tensor shares of these. */
static void divided_sequences_have_the_same_numbers(void **state) {
    (void)state;
    if (strcmp(sl_device.name, "cpu") != 0) {
        printf("# SKIP on devices test_context_devices divides sequences\n");
        skip();
    }
    struct job want = llama("data=1,pipe=1,tensor=1");
    run_job(&want);
    compare(llama("data=1,pipe=1,context=2,tensor=2"), &want, "gather", 1e-6, 4e-6);
    struct job ring = llama("data=2,context=2,pipe=1,tensor=2");
    ring.context_by = SL_CONTEXT_BY_RING;
    compare(ring, &want, "ring", 1e-6, 4e-6);
    free_job(&want);
    want = without_dropout("data=1,pipe=1,tensor=1");
    run_job(&want);
    for (int way = 0; way < 5; way++) {
        char what[24];
        struct job job =
            without_dropout(way % 2 ? "data=1,pipe=1,context=2,tensor=2" : "data=2,context=2,pipe=1,tensor=2");
        job.context_by = SL_CONTEXT_BY_LATENTS;
        job.model.fsdp = way > 1;
        job.shared_out = way == 3 ? 2 : 1;
        job.model.recomputation = way == 4 ? SL_RECOMPUTE_FULL : 0;
        if (way == 1) job.group = 1;
        snprintf(what, sizeof what, "latents, way %d", way);
        compare(job, &want, what, 1e-6, 4e-6);
    }
    free_job(&want);
}

/* Saved numbers of bf16 are rounded in other places of sums: as far apart as with other tensor sizes. */
static void storage_of_bf16_is_near(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1"), job = kinds[k]("data=2,pipe=1,tensor=2");
        want.storage = job.storage = SL_BF16;
        run_job(&want);
        compare(job, &want, "bf16", 1e-5, 2e-2);
        free_job(&want);
    }
}

/* ---- refusals ---- */

static void refuse(struct job job, const char *reason) {
    struct sl_error error = {0};
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    if (!strstr(error.message, reason)) fail_msg("\"%s\" does not say \"%s\"", error.message, reason);
    free_job(&job);
}

static void misfits_are_refused(void **state) {
    (void)state;
    struct job job = grouped("data=1,pipe=1,tensor=4");
    job.sequence = 22;
    refuse(job, "22 rows of a sequence do not divide by the 4 coordinates along \"tensor\" (tensor layout rows)");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_the_numbers_of_one_coordinate),
        cmocka_unit_test(ways_to_train_have_the_same_numbers),
        cmocka_unit_test(divided_sequences_have_the_same_numbers),
        cmocka_unit_test(storage_of_bf16_is_near),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
