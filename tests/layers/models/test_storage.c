/* test_storage.c - a transformer with bf16 storage of saved activations and messages: the same bits in every layout,
 * half of the floats' memory, and gradients that differ from the floats' by rounding. */
#include "tests/rigs/rounding.h"
#include "tests/rigs/transformer_job.h"

static struct job stored_job(const char *mesh) {
    struct job job = small_job(mesh);
    job.storage = SL_BF16;
    job.microbatches = 4;
    job.model.dropout = 0.1;
    return job;
}

/* ---- the same bits ---- */

static const struct layout {
    const char *schedule, *mesh;
    int loops, recomputation, run;
} layouts[] = {
    {"gpipe", "data=1,pipe=2,tensor=1", 1, SL_RECOMPUTE_NONE, 2},
    {"1f1b", "data=1,pipe=4,tensor=1", 1, SL_RECOMPUTE_SELECTIVE, 1},
    {"interleaved-1f1b", "data=1,pipe=2,tensor=1", 2, SL_RECOMPUTE_FULL, 1},
    {"looped-bfs", "data=1,pipe=2,tensor=1", 2, SL_RECOMPUTE_NONE, 4},
    {"looped-dfs", "data=1,pipe=2,tensor=1", 4, SL_RECOMPUTE_FULL, 2},
    {"zbv", "data=1,pipe=2,tensor=1", 2, SL_RECOMPUTE_SELECTIVE, 1},
    {"gpipe", "data=1,pipe=1,tensor=1", 1, SL_RECOMPUTE_FULL, 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* On as many coordinates along data and tensor as JOB's mesh has. */
static void expect_the_same_in_all_layouts(struct job job) {
    const int data = size_along(job.mesh, "data"), tensor = size_along(job.mesh, "tensor");
    struct job want = job;
    run_job(&want);
    for (int i = 0; i < LAYOUTS; i++) {
        if (test_is_small && i % 3) continue;
        const struct layout *layout = &layouts[i];
        char mesh[LAYOUT], what[256];
        snprintf(mesh, sizeof mesh, "data=%d,pipe=%d,tensor=%d", data, size_along(layout->mesh, "pipe"), tensor);
        if (coordinates_of(mesh) > MOST_COORDINATES) continue;
        struct job same = job;
        same.mesh = mesh;
        same.schedule = layout->schedule;
        same.loops = layout->loops;
        same.run = layout->run;
        same.model.recomputation = layout->recomputation;
        if (!make_table(&same)) continue;
        snprintf(what, sizeof what, "%s with %d loops on %s, groups of %d, runs of %d, recomputation %d",
                 layout->schedule, layout->loops, mesh, job.group, layout->run, layout->recomputation);
        run_job(&same);
        if (has_results()) expect_same_bits(what, &same, &want);
        free_job(&same);
    }
    free_job(&want);
}

static void layouts_give_the_same_bits(void **state) {
    (void)state;
    for (int group = 1; group <= 4; group *= 2) {
        struct job job = stored_job("data=1,pipe=1,tensor=1");
        job.group = group;
        expect_the_same_in_all_layouts(job);
    }
}

static void so_they_do_with_rounded_operands(void **state) {
    (void)state;
    struct job job = stored_job("data=1,pipe=1,tensor=1");
    job.precision = SL_BF16;
    job.group = 2;
    expect_the_same_in_all_layouts(job);
}

static void so_they_do_beside_data_and_tensor(void **state) {
    (void)state;
    struct job job = stored_job("data=2,pipe=1,tensor=2");
    job.clip = 0.5f;
    expect_the_same_in_all_layouts(job);
}

static void so_they_do_with_experts(void **state) {
    (void)state;
    struct job job = stored_job("data=2,pipe=1,tensor=1");
    job.model.experts = 4;
    job.model.choices = 2;
    job.model.capacity = 1.25;
    job.model.expert_dimension = 16;
    job.model.shared_experts = 1;
    expect_the_same_in_all_layouts(job);
}

/* Shares of the vocabulary over pipe, with products of PRECISION. Messages with sums stay floats. */
static void expect_the_same_spread(const char *whole, const char *mesh, int group, enum sl_dtype precision) {
    struct job job = stored_job(whole);
    job.model.chunk = 5;
    job.group = group;
    job.precision = precision;
    struct job want = job;
    run_job(&want);
    job.mesh = mesh;
    job.schedule = "interleaved-1f1b";
    job.model.spread_head = SL_SPREAD_VOCABULARY;
    job.loops = 3;
    run_job(&job);
    if (has_results()) expect_same_bits(mesh, &job, &want);
    free_job(&job);
    free_job(&want);
}

static void a_spread_head_gives_the_same_bits(void **state) {
    (void)state;
    for (int precision = SL_F32; precision <= SL_BF16; precision++) {
        for (int group = 1; group <= 4; group *= 2)
            expect_the_same_spread("data=1,pipe=1,tensor=1", "data=1,pipe=2,tensor=1", group, (enum sl_dtype)precision);
        expect_the_same_spread("data=2,pipe=1,tensor=2", "data=2,pipe=2,tensor=2", 2, (enum sl_dtype)precision);
    }
}

/* Each rank has its tokens: rows of layers have the same bits as with a head on one rank. */
static void shared_rows_give_the_same_numbers(void **state) {
    (void)state;
    for (int precision = SL_F32; precision <= SL_BF16; precision++) {
        struct job job = stored_job("data=1,pipe=1,tensor=1");
        job.precision = (enum sl_dtype)precision;
        job.steps = 1;
        struct job want = job;
        run_job(&want);
        job.mesh = "data=1,pipe=2,tensor=1";
        job.schedule = "interleaved-1f1b";
        job.model.spread_head = SL_SPREAD_ROWS;
        job.loops = 2;
        run_job(&job);
        for (int i = 0; i < job.gradients.count && has_results(); i++) {
            const struct sl_tensor *tensor = &job.gradients.tensor[i], *wanted = same_tensor(&want.gradients, tensor);
            if (!strcmp(tensor->name, "embedding")) continue; /* its sum has another order */
            if (memcmp(tensor->array.data, wanted->array.data, sl_tensor_bytes(tensor)))
                fail_msg("other bits of %s", tensor->name);
        }
        free_job(&job);
        free_job(&want);
    }
}

/* ---- against floats ---- */

static void gradients_differ_by_rounding_alone(void **state) {
    (void)state;
    /* Between a layer's modules, and within attention; on the way there and back. */
    enum { OF_A_LAYER = 2 * (6 + 8), OF_THE_ENDS = 6 };
    struct job stored = stored_job("data=1,pipe=2,tensor=1");
    stored.steps = 1;
    struct job floats = stored;
    floats.storage = SL_F32;
    const int roundings = OF_A_LAYER * stored.model.blocks * stored.model.layers_per_block + OF_THE_ENDS;
    run_job(&stored);
    run_job(&floats);
    if (has_results()) {
        const double difference = fabs(stored.loss[0] - floats.loss[0]) / floats.loss[0];
        assert_true(difference > 0 && difference <= rounding_error(roundings));
        for (int i = 0; i < floats.gradients.count; i++) {
            const struct sl_tensor *tensor = &floats.gradients.tensor[i];
            const struct sl_tensor *other = sl_store_find(&stored.gradients, tensor->name);
            const double error = norm_of_difference(tensor, other->array.data);
            const double relative = error / norm_of_difference(tensor, NULL);
            if (!(relative <= rounding_error(roundings)))
                fail_msg("%s: the gradient differs by %g of its norm", tensor->name, relative);
        }
    }
    free_job(&stored);
    free_job(&floats);
}

/* Training continues from values of the other storage. */
static void values_go_from_one_storage_to_the_other(void **state) {
    (void)state;
    struct job floats = stored_job("data=1,pipe=2,tensor=1");
    floats.storage = SL_F32;
    struct job stored = floats, back = floats;
    run_job(&floats);
    stored.storage = SL_BF16;
    stored.from = &floats.values;
    run_job(&stored);
    back.from = &stored.values;
    run_job(&back);
    if (has_results()) {
        assert_true(stored.loss[0] < floats.loss[0]);
        assert_true(back.loss[0] < stored.loss[0]);
    }
    free_job(&floats);
    free_job(&stored);
    free_job(&back);
}

/* ---- replicas with sharded float values of kernels ---- */

static int train_and_count(struct worker *worker) {
    struct sl_budget *budget = worker->job->user;
    const int me = worker->self->coordinate;
    sl_trainer_plan_bytes(worker->trainer, &budget[me]);
    if (worker->self->held.bytes[SL_MEMORY_PARAMETERS] != budget[me].bytes[SL_MEMORY_PARAMETERS])
        return sl_fail(worker->self, SL_FAILED, "other bytes of parameters are held than planned");
    SL_TRY(train_steps(worker, 0, worker->job->steps));
    return sl_gather_records(worker->self, budget, sizeof *budget);
}

/* Compares JOB with all floats on each replica, and with each replica's own share of the kernels' floats. */
static void expect_the_same_shared_out(struct job job) {
    struct sl_budget budget[2][MOST_COORDINATES] = {0};
    struct job way[2] = {job, job};
    for (int i = 0; i < 2; i++) {
        way[i].shared_out = i;
        way[i].user = budget[i];
        way[i].program = train_and_count;
        run_job(&way[i]);
    }
    if (has_results()) expect_same_bits(job.mesh, &way[1], &way[0]);
    for (int c = 0; c < coordinates_of(job.mesh) && has_results(); c++) {
        const double all = (double)budget[0][c].bytes[SL_MEMORY_PARAMETERS];
        const double own = (double)budget[1][c].bytes[SL_MEMORY_PARAMETERS];
        /* With two members: 2 + 4 / 2 bytes instead of 6, or half of all if members hold them together. */
        if (!(own < 0.72 * all)) fail_msg("coordinate %d of %s holds %g bytes, for %g", c, job.mesh, own, all);
    }
    for (int i = 0; i < 2; i++) free_job(&way[i]);
}

static void replicas_have_floats_of_their_own_kernels_alone(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2,pipe=1,tensor=1", "data=2,pipe=2,tensor=1", "data=2,pipe=2,tensor=2"};
    for (int i = 0; i < 3; i++) {
        struct job job = stored_job(meshes[i]);
        job.model.dimension = 64; /* a model that is mostly kernels */
        job.model.latent = 32;
        job.model.fsdp = false;
        if (i == 0) job.accumulate = 2, job.batch *= 2;
        if (i == 1) job.clip = 0.3f;
        expect_the_same_shared_out(job);
        job.precision = SL_BF16;
        job.overlap = !job.overlap;
        expect_the_same_shared_out(job);
    }
}

/* Each of the two ways reads checkpoints of the other. */
static void what_they_save_others_read(void **state) {
    (void)state;
    struct job shared = stored_job("data=2,pipe=1,tensor=1");
    shared.model.fsdp = false;
    struct job alone = shared, next[2];
    alone.shared_out = false;
    next[0] = shared;
    next[1] = alone;
    run_job(&shared);
    run_job(&alone);
    if (has_results()) expect_same_store("saved", &shared.values, &alone.values);
    for (int i = 0; i < 2; i++) {
        next[i].from = i ? &shared.values : &alone.values;
        run_job(&next[i]);
    }
    if (has_results()) expect_same_bits("resumed", &next[1], &next[0]);
    for (int i = 0; i < 2; i++) free_job(&next[i]);
    free_job(&shared);
    free_job(&alone);
}

/* ---- memory ---- */

static int tell_budget(struct worker *worker) {
    struct sl_budget *budget = worker->job->user;
    sl_trainer_plan_bytes(worker->trainer, &budget[worker->self->coordinate]);
    return sl_gather_records(worker->self, budget, sizeof *budget);
}

/* In layers that are not at the ends: a row's numbers, and arrays saved once per microbatch, stay floats. */
static void half_as_much_is_kept(void **state) {
    (void)state;
    for (int recomputation = 0; recomputation < 3; recomputation++) {
        struct sl_budget budget[2][MOST_COORDINATES] = {0};
        for (int storage = SL_F32; storage <= SL_BF16; storage++) {
            struct job job = stored_job("data=1,pipe=4,tensor=1");
            job.storage = (enum sl_dtype)storage;
            job.model.dimension = 512;
            job.model.latent = 128;
            job.sequence = job.model.positions = 64;
            job.group = 1;
            job.model.recomputation = recomputation;
            job.sizes_only = true;
            job.program = tell_budget;
            job.user = budget[storage];
            run_job(&job);
            free_job(&job);
        }
        for (int c = 1; c < 3 && has_results(); c++) {
            const enum sl_memory_kind category = SL_MEMORY_KEPT;
            const double floats = (double)budget[SL_F32][c].bytes[category];
            const double stored = (double)budget[SL_BF16][c].bytes[category];
            if (!(stored >= 0.5 * floats && stored <= 0.52 * floats))
                fail_msg("coordinate %d keeps %g bytes, %g of floats", c, stored, floats);
            assert_true(budget[SL_BF16][c].bytes[SL_MEMORY_HANDOVER] * 2 ==
                        budget[SL_F32][c].bytes[SL_MEMORY_HANDOVER]);
        }
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(so_they_do_with_rounded_operands),
        cmocka_unit_test(so_they_do_beside_data_and_tensor),
        cmocka_unit_test(so_they_do_with_experts),
        cmocka_unit_test(a_spread_head_gives_the_same_bits),
        cmocka_unit_test(shared_rows_give_the_same_numbers),
        cmocka_unit_test(gradients_differ_by_rounding_alone),
        cmocka_unit_test(values_go_from_one_storage_to_the_other),
        cmocka_unit_test(replicas_have_floats_of_their_own_kernels_alone),
        cmocka_unit_test(what_they_save_others_read),
        cmocka_unit_test(half_as_much_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
