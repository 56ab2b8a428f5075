/* test_unchecked.c - comparison of calls without checked mode: found and unnoticed differences; and the switches of
 * checked mode. */
#include "tests/rigs/run_on.h"

#include <stdlib.h>

static int open_world(struct sl_spmd *self, struct sl_group *world) { return sl_group_axes(self, "*", world); }

static void test_environment_checks(void **state) {
    struct sl_engine engine;
    struct sl_error error;
    (void)state;
    for (int checked = 0; checked < 2; checked++) {
        setenv("SHARDLOOP_CHECKED", checked ? "1" : "0", true);
        assert_int_equal(sl_engine_open(&engine, test_engine, NULL), SL_OK);
        assert_int_equal(engine.checked, checked);
    }
    setenv("SHARDLOOP_CHECKED", "yes", true);
    assert_int_equal(sl_engine_open(&engine, test_engine, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "SHARDLOOP_CHECKED is \"yes\": choose 0 or 1");
    unsetenv("SHARDLOOP_CHECKED");
}

/* Coordinate 1 skips the first of two sums, which differ only in their lines. */
static int skipping_program(struct sl_spmd *self, void *arg) {
    struct sl_group world;
    float *sums = arg, mine = (float)(self->coordinate + 1), second = 0;
    SL_TRY(open_world(self, &world));
    if (self->coordinate != 1) SL_TRY(sl_psum(self, &world, SL_F32, &mine, &sums[self->coordinate], 1));
    mine *= 100;
    SL_TRY(sl_psum(self, &world, SL_F32, &mine, &second, 1));
    if (self->coordinate == 1) sums[1] = second;
    return SL_OK;
}

static void test_skipped_sum(void **state) {
    (void)state;
    for (int checked = 0; checked < 2; checked++) {
        float sums[3] = {0};
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .checked = checked, .arg = sums}), skipping_program, SL_FAILED,
                       checked ? "calls over \"*\" differ" : "coordinate 1 (x=1) returned after psum");
        for (int i = 0; i < 3 && shares_memory(); i++) assert_true(sums[i] == (checked ? 0 : 204));
    }
}

struct skipping {
    int before; /* groups opened before; beyond 32 of them, MPI's messages go beside the data */
    float last[3];
};

/* Coordinate 1 skips the maximum between two sums. */
static int skipping_another_program(struct sl_spmd *self, void *arg) {
    struct sl_group world;
    struct skipping *skipping = arg;
    float mine = 1, sum = 0;
    for (int i = 0; i <= skipping->before; i++) SL_TRY(open_world(self, &world));
    SL_TRY(sl_psum(self, &world, SL_F32, &mine, &sum, 1));
    if (self->coordinate != 1) SL_TRY(sl_pmax(self, &world, SL_F32, &mine, &sum, 1));
    return sl_psum(self, &world, SL_F32, &mine, &skipping->last[self->coordinate], 1);
}

static void test_skipped_maximum(void **state) {
    (void)state;
    for (int i = compares_always() ? 0 : 2; i < 4; i++) {
        struct skipping skipping = {.before = i % 2 ? 32 : 0};
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .checked = i / 2, .arg = &skipping}), skipping_another_program,
                       SL_FAILED, "calls over \"*\" differ: ", "coordinate 1 (x=1) calls psum of 1 f32",
                       "calls pmax of 1 f32");
        for (int c = 0; c < 3; c++) assert_true(skipping.last[c] == 0);
    }
}

/* Coordinate 1 calls gather; in the other coordinates' call it exchanges nothing with gather's root. */
static int gathering_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    float x[3] = {0}, y[3] = {0};
    SL_TRY(open_world(self, &world));
    SL_TRY(self->coordinate == 1 ? sl_gather(self, &world, SL_F32, x, y, 1, 2)
                                 : sl_broadcast(self, &world, SL_F32, x, x, 1, 0));
    return sl_barrier(self, &world);
}

static void test_gather_beside_broadcast(void **state) {
    (void)state;
    for (int checked = !shares_memory(); checked < 2; checked++) {
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .checked = checked}), gathering_program, SL_FAILED,
                       "coordinate 1 (x=1) calls gather of 1 f32 to position 2", "broadcast of 1 f32 from position 0");
    }
}

/* Coordinate 0 opens two groups in another order than the others. Threads match groups by members; processes by number,
 * and with shared memory they see the members. */
static int crossed_opening_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group first, second;
    float one = 1, sum = 0;
    SL_TRY(sl_group_axes(self, self->coordinate ? "b" : "a", &first));
    SL_TRY(sl_group_axes(self, self->coordinate ? "a" : "b", &second));
    return sl_psum(self, &first, SL_F32, &one, &sum, 1);
}

static void test_crossed_openings(void **state) {
    (void)state;
    for (int checked = 0; checked < 2 && compares_always(); checked++)
        EXPECT_VERDICT(((struct test_run){.mesh = "a=2,b=2", .checked = checked}), crossed_opening_program, SL_FAILED,
                       "coordinate ",
                       shares_memory() || checked ? " waits for coordinate " : "calls over other members");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_checks), cmocka_unit_test(test_skipped_sum),
        cmocka_unit_test(test_skipped_maximum),    cmocka_unit_test(test_gather_beside_broadcast),
        cmocka_unit_test(test_crossed_openings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
