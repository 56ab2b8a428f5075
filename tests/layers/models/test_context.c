/* test_context.c - sequences divided over the axis "context": losses and gradients equal those of one coordinate, in
 * layouts with data, pipe and tensor, for kinds of attention, with documents, and with options that save memory. */
#include "tests/layers/models/context_job.h"

#include "layers/modules/sequence/context_internal.h"

/* ---- blocks ---- */

/* Pairs of queries and keys of coordinate PART's rows. */
static long long pairs_of(struct sl_cut cut, int sequence) {
    long long pairs = 0;
    for (int row = 0; row < sequence; row++) pairs += sl_cut_position(cut, sequence, row) + 1;
    return pairs;
}

static void coordinates_have_all_rows_once_and_equal_work(void **state) {
    (void)state;
    const int sizes[] = {1, 2, 3, 4, 8};
    for (int n = 0; n < 5; n++) {
        const int parts = sizes[n], sequence = SEQUENCE / parts;
        int found[2 * SEQUENCE] = {0};
        for (int part = 0; part < parts; part++) {
            const struct sl_cut cut = {.parts = parts, .part = part};
            for (int row = 0; row < 2 * sequence; row++)
                found[sl_cut_row(cut, (uint32_t)sequence, (uint32_t)row)] += 1 + row / sequence;
            assert_true(pairs_of(cut, sequence) == (long long)SEQUENCE * (SEQUENCE + 1) / 2 / parts);
        }
        for (int i = 0; i < 2 * SEQUENCE; i++) assert_int_equal(found[i], 1 + i / SEQUENCE);
    }
}

/* Pairs of queries and keys that coordinate PART of PARTS computes in STEP of a ring; its blocks have ROWS rows. */
static long long pairs_in_ring(int parts, int part, int step, int rows) {
    const struct sl_cut own = {.parts = parts, .part = part}, others = {.parts = parts, .part = (part + step) % parts};
    long long pairs = 0;
    for (int i = 0; i < 4; i++) {
        const int block = sl_cut_block(own, i / 2), keys = sl_cut_block(others, i % 2);
        if (!sl_context_sees(rows, 0, block, keys)) continue;
        for (int row = 0; row < rows; row++) pairs += block == keys ? row + 1 : rows;
    }
    return pairs;
}

/* Each step of a ring is equal work for all coordinates, and the steps together are all pairs. Blocks in one piece for
 * each coordinate would not be. */
static void coordinates_have_equal_work_in_each_step_of_a_ring(void **state) {
    (void)state;
    const int sizes[] = {2, 3, 4, 8};
    for (int n = 0; n < 4; n++) {
        const int parts = sizes[n], rows = SEQUENCE / (2 * parts);
        long long all = 0;
        for (int step = 0; step < parts; step++) {
            for (int part = 0; part < parts; part++) {
                const long long pairs = pairs_in_ring(parts, part, step, rows);
                assert_true(pairs == pairs_in_ring(parts, 0, step, rows) && pairs > 0);
                all += pairs;
            }
        }
        assert_true(all == (long long)SEQUENCE * (SEQUENCE + 1) / 2);
    }
}

/* Only blocks after the keys see them, and only if they see back so far. */
static void blocks_see_earlier_keys_within_reach(void **state) {
    (void)state;
    assert_true(sl_context_sees(8, 0, 3, 0) && sl_context_sees(8, 7, 3, 0) && !sl_context_sees(8, 8, 3, 0));
    assert_true(sl_context_sees(8, 30, 3, 3) && !sl_context_sees(8, 0, 2, 3));
}

/* ---- the numbers of one coordinate ---- */

static struct job (*const kinds[])(const char *mesh) = {
    latent, dropping, in_documents, grouped, of_one_key, windowed, windowed_in_documents, of_learned_positions};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void every_layout_has_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {
        "data=1,pipe=1,context=2",          "data=1,pipe=1,context=4",          "data=2,pipe=1,context=2",
        "data=1,pipe=2,context=2",          "data=1,context=2,pipe=1,tensor=2", "data=2,context=2,pipe=2",
        "data=2,tensor=2,pipe=1,context=2", "data=1,pipe=1,context=3",          "data=1,pipe=1,context=8",
        "pipe=2,data=1,context=4",          "tensor=2,pipe=2,data=1,context=2", "data=1,pipe=1,tensor=2,context=3",
        "context=2,pipe=1,data=1"};
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
            char what[24];
            if (test_runs_few && (m + k) % 6) continue;
            snprintf(what, sizeof what, "kind %d", k);
            compare(kinds[k](meshes[m]), &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* Experts are sharded over both axes. Slots of a sequence are those of one coordinate: the same tokens are dropped. */
static void experts_have_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,context=2", "data=1,pipe=1,context=4",
                                         "data=1,pipe=1,context=8", "data=2,pipe=1,context=2",
                                         "data=2,context=4,pipe=1", "data=1,context=2,pipe=1,tensor=2",
                                         "data=2,context=2,pipe=2", "data=4,pipe=1,context=2"};
    for (int k = 0; k < 2; k++) {
        struct job (*const make)(const char *mesh) = k ? of_experts_of_one_choice : of_experts;
        struct job want = make("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
            char what[32];
            struct job job = make(meshes[m]);
            if (test_runs_few && (m + k) % 3) continue;
            job.model.fsdp = m % 2;
            job.shared_out = m % 3;
            if (m == 1) job.context_by = SL_CONTEXT_BY_RING;
            if (m == 2 || m == 6) job.model.recomputation = SL_RECOMPUTE_FULL;
            if (m == 4) job.context_by = SL_CONTEXT_BY_LATENTS;
            if (m == 5) job.accumulate = 2;
            snprintf(what, sizeof what, "experts %d", k);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* By heads, where they divide. */
static void heads_have_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,context=2", "data=2,pipe=1,context=2",
                                         "data=1,pipe=2,context=4", "data=1,context=2,pipe=1,tensor=2"};
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        if (want.model.attention == SL_ATTENTION_GROUPED && want.model.key_heads == 1) continue;
        run_job(&want);
        for (int m = 0; m < 4; m++) {
            char what[24];
            struct job job = kinds[k](meshes[m]);
            if (test_runs_few && (m + k) % 3) continue;
            job.context_by = SL_CONTEXT_BY_HEADS;
            if (m == 2) job.model.recomputation = SL_RECOMPUTE_FULL;
            snprintf(what, sizeof what, "kind %d by heads", k);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* By latents: kinds 0 to 2 have them. Kernels may be sharded over both axes, and frozen. */
static void latents_have_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,context=2",          "data=1,pipe=1,context=3",
                                         "data=2,pipe=1,context=4",          "data=1,pipe=1,context=8",
                                         "data=1,pipe=2,context=2",          "data=1,context=2,pipe=1,tensor=2",
                                         "data=2,tensor=2,pipe=1,context=2", "data=2,context=2,pipe=2"};
    for (int k = 0; k < 3; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
            char what[32];
            struct job job = kinds[k](meshes[m]);
            if (test_runs_few && (m + k) % 3) continue;
            job.context_by = SL_CONTEXT_BY_LATENTS;
            job.model.fsdp = m % 3 != 1;
            job.late = m == 3 || m == 6;
            job.shared_out = m % 3;
            if (m == 2) job.model.recomputation = SL_RECOMPUTE_FULL;
            if (m == 4) job.accumulate = 2;
            if (m == 5) job.schedule = "gpipe", job.run = 2, job.microbatches = 4;
            snprintf(what, sizeof what, "kind %d by latents", k);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* In a ring, with windows and documents of which some coordinates see nothing. */
static void a_ring_has_the_numbers_of_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,context=2", "data=1,pipe=1,context=3",
                                         "data=2,pipe=1,context=4", "data=1,pipe=1,context=8",
                                         "data=1,pipe=2,context=2", "data=1,context=2,pipe=1,tensor=2"};
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
            char what[24];
            struct job job = kinds[k](meshes[m]);
            if (test_runs_few && (m + k) % 3) continue;
            job.context_by = SL_CONTEXT_BY_RING;
            if (m == 2) job.model.recomputation = SL_RECOMPUTE_FULL;
            if (m == 4) job.accumulate = 2;
            snprintf(what, sizeof what, "kind %d in a ring", k);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* Turned queries may have more rotated columns than others. In forward-only plans no array follows the room. */
static void all_turned_arrays_have_room(void **state) {
    enum { ROWS = 32, HEADS = 4, WIDTH = 2, ROPE = 16 };
    const struct sl_attention shape = {.sequences = ROWS / 8,
                                       .queries = 8,
                                       .heads = HEADS,
                                       .width = WIDTH,
                                       .rope = ROPE,
                                       .key_stride = (size_t)2 * HEADS * WIDTH};
    struct sl_context_keys keys = {.beside = true, .columns = {(size_t)2 * HEADS * WIDTH, ROPE}};
    struct sl_error error = {0};
    struct sl_plan plan = {.rows = ROWS, .sequence = 8, .cut = {.parts = 2}, .forward_only = true, .error = &error};
    (void)state;
    assert_int_equal(sl_plan_context_heads(&plan, &shape, &keys), SL_OK);
    assert_true(plan.workspace >= keys.moved.offset + (size_t)ROWS * HEADS * ROPE * sizeof(float));
}

/* Sharding of states, gradients and kernels over both axes, recomputation, schedules, passes: the same numbers. */
static void ways_to_train_have_the_same_numbers(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct job want = kinds[k ? 6 : 1]("data=1,pipe=1,tensor=1");
        run_job(&want);
        for (int way = 0; way < 8; way++) {
            char what[24];
            struct job job = kinds[k ? 6 : 1](way % 2 ? "data=1,pipe=2,context=2" : "data=2,pipe=1,context=2");
            job.model.fsdp = way == 3 || way == 4;
            job.late = way == 3;
            job.shared_out = way < 3 ? way : 1;
            job.model.recomputation = way == 5 ? SL_RECOMPUTE_SELECTIVE : way == 6 ? SL_RECOMPUTE_FULL : 0;
            if (way == 6) job.accumulate = 2;
            if (way == 7) job.schedule = "gpipe";
            if (way == 7) job.model.vocabulary_parallel = true;
            snprintf(what, sizeof what, "way %d", way);
            compare(job, &want, what, 1e-6, 4e-6);
        }
        free_job(&want);
    }
}

/* Saved numbers of bf16 are rounded in other places of sums: as far apart as with other tensor sizes. In a ring
 * forward's sums have another order, too: some numbers are rounded to a neighbour, 0.4 % away. */
static void storage_of_bf16_is_near(void **state) {
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct job want = kinds[k]("data=1,pipe=1,tensor=1"), job = kinds[k]("data=2,pipe=1,context=2"), ring = job;
        struct job latents = job, heads = job;
        want.storage = job.storage = ring.storage = latents.storage = heads.storage = SL_BF16;
        heads.context_by = SL_CONTEXT_BY_HEADS;
        ring.context_by = SL_CONTEXT_BY_RING;
        latents.context_by = SL_CONTEXT_BY_LATENTS;
        run_job(&want);
        compare(job, &want, "bf16", 1e-5, 2e-3);
        compare(ring, &want, "bf16 in a ring", 1e-4, 1e-2);
        if (k != 4 && k != 7) compare(heads, &want, "bf16 by heads", 1e-5, 2e-3); /* not of one key */
        if (k < 3) compare(latents, &want, "bf16 by latents", 1e-4, 2e-2);
        free_job(&want);
    }
}

/* Latent attention's kinds come first. */
static void products_of_bf16_are_near(void **state) {
    (void)state;
    const char *const meshes[] = {"data=2,pipe=1,context=2", "data=1,pipe=1,context=2,tensor=2"};
    for (int i = 0; i < 12; i++) {
        struct job want = kinds[i % 3]("data=1,pipe=1,tensor=1"), job = kinds[i % 3](meshes[i / 3 % 2]);
        want.precision = job.precision = SL_BF16;
        want.storage = job.storage = i < 6 ? SL_F32 : SL_BF16;
        job.context_by = SL_CONTEXT_BY_LATENTS;
        run_job(&want);
        compare(job, &want, "products of bf16, by latents", 1e-4, 2e-2);
        free_job(&want);
    }
}

/* ---- the same bits ---- */

/* With leaves of sequences, sizes of context, stages and schedules have the same bits. */
static void leaves_have_the_same_bits(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=1,context=2", "data=1,pipe=2,context=2",
                                         "data=1,pipe=1,context=4", "data=1,pipe=1,context=8",
                                         "pipe=2,data=1,context=4"};
    for (int k = 0; k < KINDS; k++) {
        for (int half = 0; half < 2; half++) {
            struct job want = with_leaves(kinds[k]("data=1,pipe=1,tensor=1"), half);
            run_job(&want);
            for (int m = 0; m < (int)(sizeof meshes / sizeof *meshes); m++) {
                char what[64];
                struct job job = with_leaves(kinds[k](meshes[m]), half);
                if (test_runs_few && (m + k + half) % 3) continue;
                job.model.recomputation = m == 1 ? SL_RECOMPUTE_FULL : m == 3 ? SL_RECOMPUTE_SELECTIVE : 0;
                job.schedule = m == 4 ? "gpipe" : "1f1b";
                run_job(&job);
                snprintf(what, sizeof what, "kind %d on %s", k, job.mesh);
                if (has_results()) {
                    expect_near_numbers(what, 1, job.loss, want.loss, 1e-14);
                    expect_same_store(what, &job.gradients, &want.gradients);
                    expect_same_store(what, &job.values, &want.values);
                }
                free_job(&job);
            }
            free_job(&want);
        }
    }
}

/* ---- refusals ---- */

static int batch_with_gaps(struct worker *worker) {
    struct sl_batch batch = batch_of(worker);
    struct sl_metrics metrics;
    bool stop = false;
    worker->places[1] = 5;
    return sl_trainer_step(worker->trainer, &batch, &metrics, &stop);
}
static int batch_of_the_future(struct worker *worker) {
    struct sl_batch batch = batch_of(worker);
    struct sl_metrics metrics;
    bool stop = false;
    worker->places[0]++;
    return sl_trainer_step(worker->trainer, &batch, &metrics, &stop);
}
static int batch_without_places(struct worker *worker) {
    struct sl_batch batch = batch_of(worker);
    struct sl_metrics metrics;
    bool stop = false;
    batch.places = NULL;
    return sl_trainer_step(worker->trainer, &batch, &metrics, &stop);
}

static const struct sl_key *no_keys(void *arg) {
    (void)arg;
    return NULL;
}

static void misfits_are_refused(void **state) {
    (void)state;
    struct job job = latent("data=1,pipe=1,context=2");
    job.program = batch_with_gaps;
    refuse(job, "places have 5 in row 1");
    job.program = batch_of_the_future;
    refuse(job, "places have ");
    job.program = batch_without_places;
    refuse(job, "the batch has no places, which attention to divided sequences");
    job = latent("data=1,pipe=1,context=4");
    job.sequence = 44;
    refuse(job, "with sequences of 11 rows a coordinate");
    refuse(latent("context=2,data=2,pipe=1"), "must be the mesh's last of the trainer's data_axis");
    job = latent("data=1,pipe=1,context=2");
    job.model.experts = 2;
    job.model.choices = 1;
    job.model.expert_dimension = 16;
    refuse(with_leaves(job, false), "moe.experts: sums over leaves take whole sequences, and these are divided");
    job.model.experts = 3;
    refuse(job, "the number of experts 3 does not divide over the 2 coordinates along \"data,context\"");
    job = latent("data=1,pipe=1,context=2");
    job.context_leaves = 2;
    refuse(job, "context_leaves is 2: it does not go with exact 0");
    job.leaves = 1;
    refuse(job, "context_leaves is 2: it does not go with a sharded schedule");
    job.context_leaves = 3;
    refuse(job, "context_leaves is 3: it must be 1, 2, 4, ..., and a multiple of the 2 coordinates");
    for (int leaves = 0; leaves < 2; leaves++) {
        job = with_leaves(latent(leaves ? "data=1,pipe=1" : "data=1,pipe=1,context=2"), false);
        if (!leaves) job.context_leaves = job.leaves = 0;
        job.step_keys = no_keys;
        refuse(job, "option step_keys is set: it must be NULL if sequences are divided");
    }
    job = of_one_key("data=1,pipe=1,context=2");
    job.context_by = SL_CONTEXT_BY_HEADS;
    refuse(job, "heads: 8 of queries and 1 of keys on a coordinate do not divide over \"context\", of size 2");
    job = grouped("data=1,pipe=1,context=2");
    job.context_by = SL_CONTEXT_BY_LATENTS;
    refuse(job, "gqa.latents: only latent attention has latents to gather over \"context\"");
    job = latent("data=1,pipe=1,context=2");
    job.model.positions = SEQUENCE / 2;
    refuse(job, "sequences of 48, but there are only 24 positions");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinates_have_all_rows_once_and_equal_work),
        cmocka_unit_test(coordinates_have_equal_work_in_each_step_of_a_ring),
        cmocka_unit_test(blocks_see_earlier_keys_within_reach),
        cmocka_unit_test(every_layout_has_the_numbers_of_one_coordinate),
        cmocka_unit_test(experts_have_the_numbers_of_one_coordinate),
        cmocka_unit_test(heads_have_the_numbers_of_one_coordinate),
        cmocka_unit_test(latents_have_the_numbers_of_one_coordinate),
        cmocka_unit_test(a_ring_has_the_numbers_of_one_coordinate),
        cmocka_unit_test(all_turned_arrays_have_room),
        cmocka_unit_test(ways_to_train_have_the_same_numbers),
        cmocka_unit_test(storage_of_bf16_is_near),
        cmocka_unit_test(products_of_bf16_are_near),
        cmocka_unit_test(leaves_have_the_same_bits),
        cmocka_unit_test(misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
