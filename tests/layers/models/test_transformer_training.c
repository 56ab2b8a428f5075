/* test_transformer_training.c - options of a transformer's training, the same on one coordinate and on eight:
 * accumulation, clipping, dropout, shardings, lengths that do not divide, bf16. */
#include "tests/rigs/transformer_job.h"

static const char alone[] = "data=1,pipe=1,tensor=1";

/* ---- gradient accumulation ---- */

/* Twice half of the microbatches; with dropout, which depends on the global row. */
static void accumulated_gradients_are_those_of_one_pass(void **state) {
    (void)state;
    static const char *const meshes[] = {alone, "data=2,pipe=2,tensor=2", "data=1,pipe=4,tensor=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
            struct job whole = small_job(meshes[i]);
            whole.schedule = "gpipe";
            whole.model.dropout = 0.1;
            whole.microbatches = 4;
            whole.group = one_by_one;
            whole.steps = 1;
            struct job halves = whole, four = whole;
            halves.accumulate = 2;
            halves.microbatches = 2;
            four.accumulate = 4;
            four.microbatches = 1;
            run_job(&whole);
            run_job(&halves);
            run_job(&four);
            if (has_results()) {
                expect_near_numbers(meshes[i], 1, halves.loss, whole.loss, 1e-6);
                expect_near_store(meshes[i], &halves.gradients, &whole.gradients, 1e-6);
                expect_near_store(meshes[i], &four.gradients, &whole.gradients, 1e-6);
                /* Groups of one are added up in the same order. */
                if (one_by_one) expect_same_store(meshes[i], &halves.gradients, &whole.gradients);
                if (one_by_one) expect_same_store(meshes[i], &four.gradients, &whole.gradients);
            }
            free_job(&whole);
            free_job(&halves);
            free_job(&four);
        }
    }
}

/* ---- clipping ---- */

enum { CLIPPED_STEPS = 5 };

/* Each coordinate's norm of its own gradients, of any part. */
struct own_norms {
    float norm[MOST_COORDINATES][1];
};

static int train_and_keep_norms(struct worker *worker) {
    struct job *job = worker->job;
    struct own_norms *own = job->user;
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    double squares = 0;
    SL_TRY(train_steps(worker, 0, 1));
    for (int i = 0; i < parameters->count; i++) {
        const size_t count = parameters->list[i].count;
        float *gradient = malloc(count * sizeof *gradient);
        if (!gradient) return sl_fail(worker->self, SL_FAILED, "no memory");
        sl_device.copy(gradient, sl_parameter_gradient(parameters, i), count * sizeof *gradient);
        const double norm = norm_of(count, gradient, NULL);
        squares += norm * norm;
        free(gradient);
    }
    own->norm[worker->self->coordinate][0] = (float)(sqrt(squares) / sl_axis_size(worker->self, "data"));
    SL_TRY(sl_gather_records(worker->self, own->norm, sizeof *own->norm));
    return train_steps(worker, 1, job->steps);
}

/* An epsilon as large as gradients are makes AdamW notice how large they are. */
static struct job clipped_job(const struct reference *reference, const char *mesh, struct own_norms *own) {
    struct job job = reference_job(reference, mesh);
    job.steps = CLIPPED_STEPS;
    job.clip = 0.5f;
    job.optimizer.epsilon = 1e-3f;
    job.program = train_and_keep_norms;
    job.user = own;
    return job;
}

static double reference_norm(const struct reference *reference) {
    double squares = 0;
    for (int i = 0; i < reference->gradients.count; i++) {
        const struct sl_tensor *tensor = &reference->gradients.tensor[i];
        if (!strcmp(tensor->name, "logits")) continue;
        const double norm = norm_of(sl_array_elements(&tensor->array), tensor->array.data, NULL);
        squares += norm * norm;
    }
    return sqrt(squares);
}

static void expect_clipped(const struct reference *reference, struct job job, const struct job *single) {
    char what[128];
    struct own_norms *own = job.user;
    const double norm = reference_norm(reference);
    snprintf(what, sizeof what, "%s%s%s%s", job.mesh, job.model.fsdp ? ", fsdp" : "", job.shared_out ? ", zero" : "",
             job.overlap ? ", overlap" : "");
    run_job(&job);
    if (has_results()) {
        expect_near_numbers(what, 1, job.norm, &norm, 1e-6);
        expect_near_numbers(what, CLIPPED_STEPS, job.loss, single->loss, 5e-6);
        expect_near_numbers(what, CLIPPED_STEPS, job.norm, single->norm, 1e-4);
        for (int c = 0; c < 8; c++)
            if (fabs(own->norm[c][0] / norm - 1) < 1e-3)
                fail_msg("%s: coordinate %d could have told the norm by itself", what, c);
    }
    free_job(&job);
}

static void norms_and_clipping_are_the_same_in_every_layout(void **state) {
    (void)state;
    struct reference reference;
    struct own_norms own;
    char mesh[MAX_LAYOUTS][LAYOUT];
    open_reference(&reference);
    const double norm = reference_norm(&reference);
    struct job single = clipped_job(&reference, alone, &own), unclipped = single;
    unclipped.clip = 0;
    run_job(&single);
    run_job(&unclipped);
    if (has_results()) {
        assert_true(norm > 2 * (double)single.clip);
        expect_near_numbers("alone", 1, single.norm, &norm, 1e-6);
        assert_true(fabs(unclipped.loss[CLIPPED_STEPS - 1] / single.loss[CLIPPED_STEPS - 1] - 1) > 1e-3);
        assert_true(unclipped.norm[0] == 0);
    }
    const int layouts = list_layouts(8, mesh);
    for (int i = 0; i < layouts; i++) {
        struct job job = clipped_job(&reference, mesh[i], &own);
        if (test_is_small && i % 3 != 1) continue;
        job.shared_out = i % 3;
        job.overlap = i % 3;
        job.model.fsdp = i % 4;
        expect_clipped(&reference, job, &single);
    }
    /* Loops that finish while others compute must wait for the norm. */
    for (int i = 0; i < 8; i += test_is_small ? 5 : 1) {
        struct job job = clipped_job(&reference, "tensor=2,pipe=2,data=2", &own);
        job.schedule = "looped-bfs";
        job.loops = 2;
        job.shared_out = i % 3;
        job.overlap = !(i & 2);
        job.model.fsdp = i & 4;
        expect_clipped(&reference, job, &single);
    }
    free_job(&single);
    free_job(&unclipped);
    close_reference(&reference);
}

/* Sums that must be waited for, and a norm below the limit: nothing else changes. */
static void a_norm_that_is_small_enough_changes_no_bits(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job free_of = small_job("data=2,pipe=2,tensor=2");
        free_of.schedule = "interleaved-1f1b";
        free_of.loops = 2;
        free_of.shared_out = i & 1;
        free_of.overlap = i & 2;
        struct job clipped = free_of;
        clipped.clip = 1e6f;
        run_job(&free_of);
        run_job(&clipped);
        if (has_results()) {
            assert_true(clipped.norm[0] > 0);
            expect_same_bits("a large clip", &clipped, &free_of);
        }
        free_job(&free_of);
        free_job(&clipped);
    }
}

/* ---- other shardings, and lengths ---- */

struct variant {
    const char *mesh;
    bool vocabulary_parallel, whole, alone_with_state; /* no FSDP; no ZeRO */
    int sequence;                                      /* 0: eight */
    const char *schedule;
    int loops;
};

static void shardings_and_lengths_agree_with_one_coordinate(void **state) {
    (void)state;
    static const struct variant variant[] = {
        {"data=2,pipe=2,tensor=2", true, false, false, 0, "1f1b", 1},
        {"data=2,pipe=2,tensor=2", false, true, false, 0, "1f1b", 1},
        {"data=2,pipe=2,tensor=2", false, false, true, 0, "1f1b", 1},
        {"data=2,pipe=2,tensor=2", true, true, true, 0, "looped-bfs", 2},
        {"data=2,pipe=2,tensor=2", true, false, true, 15, "zbv", 2},
        {"data=2,pipe=2,tensor=2", true, true, false, 0, "dualpipe", 2},
        {"data=1,pipe=2,tensor=4", false, true, true, 15, "dualpipe", 2},
        {"data=1,pipe=1,tensor=8", true, false, false, 0, "gpipe", 1},
        {"data=8,pipe=1,tensor=1", false, true, false, 0, "gpipe", 1},
        {"data=4,pipe=1,tensor=2", true, true, false, 15, "gpipe", 1},
        {"data=1,pipe=2,tensor=4", true, false, false, 15, "1f1b", 1},
        {"data=1,pipe=1,tensor=2", false, false, false, 15, "gpipe", 1},
        {"data=1,pipe=1,tensor=4", false, false, false, 15, "gpipe", 1},
        {"data=2,pipe=1,tensor=4", false, false, false, 15, "gpipe", 1},
        {"data=2,pipe=1,tensor=2", false, true, true, 1, "gpipe", 1},
        {"tensor=2,pipe=1,data=1", true, false, false, 3, "gpipe", 1},
        {"pipe=8,tensor=1,data=1", true, false, false, 1, "1f1b", 1},
        {"data=2,tensor=1,pipe=1", false, false, false, 15, "gpipe", 1},
    };
    for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
        const struct variant *v = &variant[i];
        struct job job = small_job(v->mesh);
        job.model.fsdp = !v->whole;
        job.model.vocabulary_parallel = v->vocabulary_parallel;
        job.model.vocabulary -= v->vocabulary_parallel;      /* does not divide */
        if (!strcmp(v->schedule, "dualpipe")) job.group = 2; /* of 4; each copy has half of them */
        job.clip = 0.3f;
        job.shared_out = !v->alone_with_state;
        if (v->sequence) job.sequence = v->sequence;
        job.schedule = v->schedule;
        job.loops = v->loops;
        job.steps = 1;
        struct job single = job;
        single.mesh = alone;
        single.schedule = "gpipe";
        single.group = 0;
        single.loops = 1;
        single.model.vocabulary_parallel = false;
        run_job(&single);
        run_job(&job);
        if (has_results()) {
            char what[128];
            snprintf(what, sizeof what, "variant %zu on %s", i, v->mesh);
            expect_near_numbers(what, 1, job.loss, single.loss, 1e-6);
            expect_near_numbers(what, 1, job.norm, single.norm, 1e-6);
            expect_near_numbers(what, 1, &job.evaluated, &single.evaluated,
                                1e-4); /* after AdamW's first, signed step */
            /* If a sequence is one token, gradients of queries and keys are only rounding errors. */
            expect_near_noisy_store(what, &job.gradients, &single.gradients, 1e-5, v->sequence == 1 ? 0x1p-22 : 0);
            assert_int_equal(job.gradients.count, single.gradients.count);
        }
        free_job(&single);
        free_job(&job);
    }
}

/* Some of the kernels are replicas, or all. */
static void kernels_that_do_not_divide_over_data_stay_whole(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        int batch, rope;
    } uneven[] = {{"data=3,pipe=1,tensor=2", 6, 8}, {"data=4,pipe=2,tensor=1", 8, 2}, {"data=3,pipe=2,tensor=1", 6, 6}};
    for (int i = 0; i < 3; i++) {
        struct job job = small_job(uneven[i].mesh);
        job.batch = uneven[i].batch;
        job.model.rope = uneven[i].rope;
        job.clip = 0.3f;
        job.steps = 1;
        struct job single = job;
        single.mesh = alone;
        run_job(&single);
        run_job(&job);
        if (has_results()) {
            expect_near_numbers(job.mesh, 1, job.loss, single.loss, 1e-6);
            expect_near_numbers(job.mesh, 1, job.norm, single.norm, 1e-6);
            expect_near_numbers(job.mesh, 1, &job.evaluated, &single.evaluated, 1e-4);
            expect_near_store(job.mesh, &job.gradients, &single.gradients, 1e-5);
            assert_int_equal(job.gradients.count, single.gradients.count);
        }
        free_job(&single);
        free_job(&job);
    }
}

/* ---- dropout ---- */

static void dropout_is_the_same_in_every_layout(void **state) {
    (void)state;
    struct job single = small_job(alone), without;
    single.model.dropout = 0.2;
    without = single;
    without.model.dropout = 0;
    run_job(&single);
    run_job(&without);
    if (has_results()) {
        assert_true(fabs(single.loss[0] / without.loss[0] - 1) > 1e-3);
        assert_true(single.loss[0] != single.loss[1]);
        assert_true(fabs(single.evaluated / single.loss[1] - 1) > 1e-3); /* nothing is dropped there */
    }
    for (int size = 2; size <= 8; size *= 2) {
        char mesh[MAX_LAYOUTS][LAYOUT];
        const int layouts = list_layouts(size, mesh);
        for (int i = 0; i < layouts; i++) {
            struct job job = small_job(mesh[i]);
            job.model.dropout = 0.2;
            job.model.recomputation = i % 3;
            run_job(&job);
            if (has_results()) {
                expect_near_numbers(mesh[i], job.steps, job.loss, single.loss, 1e-6);
                expect_near_numbers(mesh[i], 1, &job.evaluated, &single.evaluated, 1e-5);
            }
            free_job(&job);
        }
    }
    free_job(&single);
    free_job(&without);
}

/* ---- bf16 ---- */

static bool has_bf16(void) {
    struct sl_error error;
    const struct sl_gemm_backend *gemm = sl_gemm_find(NULL, &error);
    return gemm && sl_gemm_supports(gemm, SL_BF16);
}

static void bf16_stays_close_and_repeats_its_bits(void **state) {
    (void)state;
    static const char *const schedule[] = {"gpipe", "1f1b", "interleaved-zb", "zbv"};
    struct reference reference;
    struct job first = {0};
    double losses[MAX_STEPS];
    if (!has_bf16()) {
        print_message("# products of bf16 are not to be had here\n");
        return;
    }
    open_reference(&reference);
    losses_of(&reference, losses);
    for (int i = 0; i < (test_is_small ? 2 : 4); i++) {
        struct job job = reference_job(&reference, i % 2 ? "data=2,pipe=2,tensor=2" : "data=2,pipe=1,tensor=2");
        job.precision = SL_BF16;
        job.microbatches = 4;
        job.schedule = schedule[i];
        job.loops = i > 2 ? 2 : 1;
        if (i > 1) job.mesh = "data=2,pipe=2,tensor=2";
        job.steps = test_is_small ? 3 : MAX_STEPS;
        run_job(&job);
        if (has_results()) {
            expect_near_numbers(schedule[i], job.steps, job.loss, losses, 5e-3);
            expect_near_numbers(schedule[i], 1, job.loss, losses, 2e-3);
            assert_true(job.loss[0] != losses[0] && job.loss[job.steps - 1] < job.loss[0] - 0.5);
            if (i > 0) expect_same_bits(schedule[i], &job, &first);
        }
        if (i == 0)
            first = job;
        else
            free_job(&job);
    }
    free_job(&first);
    close_reference(&reference);
}

/* ---- rows that move in pieces ---- */

/* With plain products, a row does not depend on the rows beside it. Storage, precision and mesh choose the moved rows
 * and their type; pieces of a run of microbatches are the same as without a run. */
static void pieces_of_rows_change_no_bit(void **state) {
    static const struct {
        const char *mesh;
        enum sl_dtype precision, storage;
        bool whole; /* no FSDP */
        int run, attention;
    } variant[] = {{"data=1,pipe=1,tensor=2", SL_F32, SL_F32, true, 0, SL_ATTENTION_LATENT},
                   {"data=2,pipe=1,tensor=4", SL_F32, SL_BF16, false, 0, SL_ATTENTION_GROUPED},
                   {"data=1,pipe=2,tensor=4", SL_BF16, SL_F32, true, 0, SL_ATTENTION_LATENT},
                   {"data=1,pipe=2,tensor=2", SL_BF16, SL_BF16, false, 0, SL_ATTENTION_GROUPED},
                   {"data=2,pipe=1,tensor=2", SL_F32, SL_F32, false, 2, SL_ATTENTION_GROUPED}};
    (void)state;
    for (size_t i = 0; i < sizeof variant / sizeof *variant; i++) {
        struct job job[2];
        for (int pieces = 0; pieces < 2; pieces++) {
            job[pieces] = small_job(variant[i].mesh);
            job[pieces].gemm = &sl_gemm_reference;
            job[pieces].schedule = "gpipe";
            job[pieces].steps = 1;
            job[pieces].precision = variant[i].precision;
            job[pieces].storage = variant[i].storage;
            job[pieces].run = variant[i].run;
            if (variant[i].run) job[pieces].microbatches = 4;
            job[pieces].model.attention = variant[i].attention;
            job[pieces].model.fsdp = !variant[i].whole;
            job[pieces].model.blocks = 2;
            job[pieces].model.tensor_pieces = pieces ? i % 2 ? 8 : 2 : 1;
            run_job(&job[pieces]);
        }
        if (has_results()) expect_same_bits(variant[i].mesh, &job[1], &job[0]);
        free_job(&job[0]);
        free_job(&job[1]);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulated_gradients_are_those_of_one_pass),
        cmocka_unit_test(norms_and_clipping_are_the_same_in_every_layout),
        cmocka_unit_test(a_norm_that_is_small_enough_changes_no_bits),
        cmocka_unit_test(shardings_and_lengths_agree_with_one_coordinate),
        cmocka_unit_test(kernels_that_do_not_divide_over_data_stay_whole),
        cmocka_unit_test(dropout_is_the_same_in_every_layout),
        cmocka_unit_test(bf16_stays_close_and_repeats_its_bits),
        cmocka_unit_test(pieces_of_rows_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
