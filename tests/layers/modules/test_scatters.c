/* test_scatters.c - gradients of sharded kernels that are summed while others are computed: each member's result equals
 * psum_scatter's, to the bit. */
#include "layers/kernels/kernels.h"
#include "layers/modules/parameters/scatters.h"
#include "tests/rigs/run_on.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 40, KERNELS = 7, ROUNDS = 3 };

/* Columns of kernel K: whole pieces of a member's shard, and others. The sums take long enough to expose a member that
 * reads too early. */
static size_t columns_of(int k, int members) { return (size_t)members * (k % 3 == 0 ? 640 : k % 3 == 1 ? 7 : 1000); }

/* Members differ, so sums of more than two depend on the order. */
static float element(const struct sl_spmd *self, int round, int k, size_t i) {
    const unsigned mixed = (unsigned)(i * 2654435761u + (unsigned)(97 * self->coordinate + 31 * k + 7 * round));
    return (float)(mixed * 2246822519u >> 8) / (1 << 22);
}

static void fill(struct sl_spmd *self, int round, int k, size_t n, float *gradient) {
    float *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = element(self, round, k, i);
    sl_device.copy(gradient, values, n * sizeof *values);
    free(values);
}

/* The members' shards of all kernels after all rounds, one after another. */
struct shards {
    float *late, *once; /* by sl_scatters, and by psum_scatter */
    size_t first[KERNELS + 1];
};

static int sum_at_once(struct sl_spmd *self, struct sl_group *group, const struct shards *shards, bool tree, int round,
                       int k, float *whole, float *sum) {
    const struct sl_kernels *kernels = sl_kernels_select();
    const size_t shape[] = {ROWS, columns_of(k, group->size)}, n = shards->first[k + 1] - shards->first[k];
    fill(self, round, k, ROWS * shape[1], whole);
    if (tree)
        SL_TRY(sl_psum_scatter_tree_dim(self, group, SL_F32, whole, sum, 2, shape, 1));
    else
        SL_TRY(sl_psum_scatter_dim(self, group, SL_F32, whole, sum, 2, shape, 1));
    if (round)
        kernels->add(n, sum, shards->once + shards->first[k]);
    else
        sl_device.copy(shards->once + shards->first[k], sum, n * sizeof *sum);
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    const struct sl_kernels *kernels = sl_kernels_select();
    struct sl_group group;
    struct sl_scatters scatters;
    struct shards shards;
    const bool tree = arg != NULL;
    SL_TRY(sl_group_axes(self, "*", &group));
    SL_TRY(sl_scatters_plan(&scatters, self, "*", tree));
    shards.first[0] = 0;
    for (int k = 0; k < KERNELS; k++) {
        const size_t whole = ROWS * columns_of(k, group.size);
        sl_scatters_add(&scatters, whole);
        shards.first[k + 1] = shards.first[k] + whole / (size_t)group.size;
    }
    const uint64_t held = sl_budget_total(&self->held);
    SL_TRY(sl_scatters_open(&scatters, self, &self->held));
    CHECK(self, sl_budget_total(&self->held) - held == (uint64_t)sl_scatters_bytes(&scatters));
    const size_t count = shards.first[KERNELS], bytes = count * sizeof(float);
    shards.late = sl_device.take(bytes);
    shards.once = sl_device.take(bytes);
    float *whole = sl_device.take(ROWS * columns_of(2, group.size) * sizeof *whole), *sum = sl_device.take(bytes);
    for (int step = 0; step < 2; step++) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int k = 0; k < KERNELS; k++) {
                float *room;
                const size_t floats = ROWS * columns_of(k, group.size);
                SL_TRY(sl_scatters_room(&scatters, self, kernels, floats, &room));
                fill(self, round, k, floats, room);
                SL_TRY(sl_scatters_start(&scatters, self, kernels, ROWS, columns_of(k, group.size), round > 0,
                                         shards.late + shards.first[k]));
            }
        }
        SL_TRY(sl_scatters_end(&scatters, self, kernels));
        for (int i = 0; i < ROUNDS * KERNELS; i++) /* only now: they keep members in step */
            SL_TRY(sum_at_once(self, &group, &shards, tree, i / KERNELS, i % KERNELS, whole, sum));
        float *late = malloc(bytes), *once = malloc(bytes);
        sl_device.copy(late, shards.late, bytes);
        sl_device.copy(once, shards.once, bytes);
        const bool same = !memcmp(late, once, bytes);
        free(late);
        free(once);
        CHECK(self, same);
    }
    float *arrays[] = {shards.late, shards.once, whole, sum};
    for (int i = 0; i < 4; i++) sl_device.give(arrays[i]);
    sl_scatters_close(&scatters, self);
    sl_group_close(self, &group);
    return SL_OK;
}

static void sums_are_those_of_psum_scatter(void **state) {
    (void)state;
    expect_ok("data=4", program, NULL);
}

static void sums_follow_a_tree(void **state) {
    (void)state;
    int tree = 1;
    expect_ok("data=4", program, &tree);
    expect_ok("data=3", program, &tree);
}

static int meet(struct sl_spmd *self, const struct sl_group *group) { return sl_barrier(self, group); }

/* The last coordinate computes no gradient until the others have filled their room: the others need not wait for it. */
static int run_ahead(struct sl_spmd *self, void *arg) {
    enum { COLUMNS = 64, WHOLE = ROWS * COLUMNS };
    const struct sl_kernels *kernels = sl_kernels_select();
    struct sl_group group;
    struct sl_scatters scatters;
    (void)arg;
    SL_TRY(sl_group_axes(self, "*", &group));
    SL_TRY(sl_scatters_plan(&scatters, self, "*", false));
    for (int i = 0; i < 2 * SL_SCATTERS_LARGEST; i++) sl_scatters_add(&scatters, WHOLE);
    SL_TRY(sl_scatters_open(&scatters, self, &self->held));
    float *sum = sl_device.take(WHOLE * sizeof *sum), *room;
    const bool late = group.rank == group.size - 1;
    if (late) SL_TRY(meet(self, &group));
    for (int i = 0; i < SL_SCATTERS_LARGEST; i++) {
        SL_TRY(sl_scatters_room(&scatters, self, kernels, WHOLE, &room));
        fill(self, i, 0, WHOLE, room);
        SL_TRY(sl_scatters_start(&scatters, self, kernels, ROWS, COLUMNS, i > 0, sum));
    }
    if (!late) SL_TRY(meet(self, &group));
    SL_TRY(sl_scatters_end(&scatters, self, kernels));
    sl_device.give(sum);
    sl_scatters_close(&scatters, self);
    sl_group_close(self, &group);
    return SL_OK;
}

static void members_run_ahead(void **state) {
    (void)state;
    expect_ok("data=4", run_ahead, NULL);
}

/* With few gradients there is less room: shards need that much less, and one gradient has room in any case. */
static int take_what_is_saved(struct sl_spmd *self, void *arg) {
    enum { WHOLE = 4096, LINE = SL_CACHE_LINE / sizeof(float) };
    struct sl_scatters scatters;
    (void)arg;
    SL_TRY(sl_scatters_plan(&scatters, self, "*", false));
    const size_t members = (size_t)scatters.group.size, own = scatters.reads ? 0 : WHOLE / members;
    const size_t saved = (WHOLE - WHOLE / members) / LINE * LINE, largest = WHOLE + own;
    for (size_t count = 1; count < 12; count++) {
        const size_t most = SL_SCATTERS_LARGEST * largest, some = count * saved > largest ? count * saved : largest;
        sl_scatters_add(&scatters, WHOLE);
        CHECK(self, sl_scatters_bytes(&scatters) == (some < most ? some : most) * sizeof(float));
    }
    sl_scatters_close(&scatters, self);
    return SL_OK;
}

static void few_have_less_room(void **state) {
    (void)state;
    expect_ok("data=4", take_what_is_saved, NULL);
    expect_ok("data=2", take_what_is_saved, NULL);
}

/* On a slow network peers' memory is not read. */
static void sums_arrive_late(void **state) {
    (void)state;
    struct sl_error error;
    if (!shares_memory()) return; /* other engines have no delay, and never read peers' memory */
    const int status = run_on((struct test_run){.mesh = "data=3", .delay = 0.001}, program, &error);
    if (status) fail_msg("%s", error.message);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_psum_scatter),
                                       cmocka_unit_test(sums_follow_a_tree), cmocka_unit_test(members_run_ahead),
                                       cmocka_unit_test(few_have_less_room), cmocka_unit_test(sums_arrive_late)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
