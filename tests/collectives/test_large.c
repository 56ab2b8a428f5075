/* test_large.c - groups of more than 64 members: their results against sums computed without them, and verdicts with
 * lists too long to print. There are as few processes as that needs; with --long there are 1,024 threads, too. */
#include "tests/rigs/run_on.h"

#include <time.h>

#include "spmd/random.h"

enum { SHORT = 37, LONG = 5000 }; /* elements: one takes a short sum for all; in a long one each has a share */

/* Element I of member M: sums of them depend on their order. */
static float element(int m, int i) {
    const uint32_t word = sl_random_word(sl_key_of_seed(3), UINT32_MAX, (uint32_t)(m * LONG + i));
    return ((float)(word >> 8) - 8388608.0f) * (word & 1 ? 1e-3f : 1.0f);
}

/* Returns the sum of element I of COUNT members from FIRST on, STRIDE apart: in order within blocks of 64, then over
 * the blocks' sums. */
static float in_blocks(int first, int stride, int count, int i) {
    float sum = 0;
    for (int block = 0; block < count; block += 64) {
        float its = element(first + block * stride, i);
        for (int m = block + 1; m < count && m < block + 64; m++) its += element(first + m * stride, i);
        sum = block ? sum + its : its;
    }
    return sum;
}

static float by_tree(int first, int stride, int count, int i) {
    if (count == 1) return element(first, i);
    int half = 1;
    while (2 * half < count) half *= 2;
    return by_tree(first, stride, half, i) + by_tree(first + half * stride, stride, count - half, i);
}

/* Checks a few elements of a psum of COUNT elements, in place and not, by blocks and by tree. */
static int check_sums(struct sl_spmd *self, const struct sl_group *group, int count) {
    static const int looks = 7;
    float in[LONG], out[LONG];
    const int first = sl_group_member(group, 0), stride = sl_group_member(group, 1) - first;
    for (int i = 0; i < count; i++) in[i] = element(self->coordinate, i);
    SL_TRY(sl_psum_tree(self, group, SL_F32, in, out, (size_t)count));
    for (int k = 0; k < looks; k++) {
        const int i = (group->rank * looks + k) * 131 % count;
        CHECK(self, out[i] == by_tree(first, stride, group->size, i));
    }
    SL_TRY(sl_psum(self, group, SL_F32, in, in, (size_t)count));
    for (int k = 0; k < looks; k++) {
        const int i = (group->rank * looks + k) * 131 % count;
        CHECK(self, in[i] == in_blocks(first, stride, group->size, i));
    }
    return SL_OK;
}

static int check_integers(struct sl_spmd *self, const struct sl_group *group) {
    const int size = group->size, me = group->rank;
    int32_t mine = self->coordinate, sum, most, got, all[size], ring[size][2];
    SL_TRY(sl_psum(self, group, SL_I32, &mine, &sum, 1));
    SL_TRY(sl_pmax(self, group, SL_I32, &mine, &most, 1));
    SL_TRY(sl_all_gather(self, group, SL_I32, &mine, all, 1));
    int32_t wanted = 0;
    for (int i = 0; i < size; i++) {
        wanted += sl_group_member(group, i);
        CHECK(self, all[i] == sl_group_member(group, i));
        ring[i][0] = i, ring[i][1] = (i + 1) % size;
    }
    CHECK(self, sum == wanted && most == sl_group_member(group, size - 1));
    SL_TRY(sl_ppermute(self, group, SL_I32, &mine, &got, 1, size, (const int(*)[2])ring));
    CHECK(self, got == sl_group_member(group, (me + size - 1) % size));
    got = me == size - 2 ? 77 : 0;
    SL_TRY(sl_broadcast(self, group, SL_I32, &got, &got, 1, size - 2));
    CHECK(self, got == 77);
    SL_TRY(sl_psum_scatter(self, group, SL_I32, all, &got, 1));
    CHECK(self, got == size * sl_group_member(group, me));
    return sl_barrier(self, group);
}

/* A scattered sum of floats has the order of psum's. */
static int check_scatter(struct sl_spmd *self, const struct sl_group *group) {
    float in[2 * group->size], out[2];
    for (int i = 0; i < 2 * group->size; i++) in[i] = element(self->coordinate, i);
    SL_TRY(sl_psum_scatter(self, group, SL_F32, in, out, 2));
    const int first = sl_group_member(group, 0), stride = sl_group_member(group, 1) - first;
    for (int i = 0; i < 2; i++) CHECK(self, out[i] == in_blocks(first, stride, group->size, 2 * group->rank + i));
    return SL_OK;
}

static int collectives_program(struct sl_spmd *self, void *arg) {
    const int rounds = *(int *)arg;
    struct sl_group world, rows, odd;
    const int size = self->mesh->size;
    int list[size];
    for (int i = 0; i < size; i++) list[i] = i; /* no range with a stride: its last two change places */
    list[size - 2] = size - 1, list[size - 1] = size - 2;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_group_axes(self, "a", &rows));
    SL_TRY(sl_group_list(self, size, list, &odd));
    CHECK(self, sl_group_member(&odd, size - 1) == size - 2 && sl_group_member(&odd, odd.rank) == self->coordinate);
    for (int round = 0; round < rounds; round++) {
        SL_TRY(check_sums(self, &world, SHORT));
        SL_TRY(check_sums(self, &rows, SHORT));
        SL_TRY(check_integers(self, &rows));
        SL_TRY(check_integers(self, &world));
        SL_TRY(sl_barrier(self, &odd));
    }
    SL_TRY(check_sums(self, &rows, LONG));
    SL_TRY(check_scatter(self, &rows));
    SL_TRY(sl_group_close(self, &odd));
    return sl_group_close(self, &rows);
}

/* More calls than slots, several at once, with gates and without. */
static int overlapping_program(struct sl_spmd *self, void *arg) {
    const int rounds = *(int *)arg;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    const int size = world.size;
    for (int round = 0; round < rounds; round++) {
        struct sl_request sum, from, barrier, most;
        int32_t a[2] = {self->coordinate, round}, b[2], root = world.rank == round ? 1000 + round : 0, top;
        SL_TRY(sl_psum_start(self, &sum, &world, SL_I32, a, b, 2));
        SL_TRY(sl_broadcast_start(self, &from, &world, SL_I32, &root, &root, 1, round));
        SL_TRY(sl_barrier_start(self, &barrier, &world));
        SL_TRY(sl_pmax_start(self, &most, &world, SL_I32, a, &top, 1));
        SL_TRY(end_call(self, &sum, self->coordinate % 3));
        SL_TRY(end_call(self, &from, self->coordinate % 2));
        SL_TRY(end_call(self, &barrier, self->coordinate % 5));
        SL_TRY(end_call(self, &most, 0));
        CHECK(self, b[0] == size * (size - 1) / 2 && b[1] == size * round);
        CHECK(self, root == 1000 + round && top == size - 1);
    }
    return SL_OK;
}

static void run_both(const char *mesh, int rounds) {
    expect_ok(mesh, collectives_program, &rounds);
    expect_ok(mesh, overlapping_program, &rounds);
}

static void members_of_large_groups_agree(void **state) {
    (void)state;
    run_both("a=65", shares_memory() ? 3 : 1);
    if (!shares_memory()) return;
    run_both("b=2,a=130", 2);
    run_both("a=128,b=1", TEST_WATCHES_THREADS ? 1 : 3);
}

static void a_thousand_agree(void **state) {
    (void)state;
    int rounds = 1;
    if (!getenv("SL_TEST_LONG") || !shares_memory()) return;
    struct sl_error error;
    const struct test_run run = {.mesh = "a=1024", .arg = &rounds};
    assert_int_equal(run_on(run, collectives_program, &error), SL_OK);
    assert_int_equal(run_on(run, overlapping_program, &error), SL_OK);
}

/* ---- verdicts ---- */

/* Timeouts in seconds. PATIENCE: the engines' default, because many processes share few cores. PATIENCE_IN_VAIN: for
 * the deadlock, which lasts the whole timeout. */
enum { PATIENCE = 30, PATIENCE_IN_VAIN = 8 };

/* Coordinate 0 waits for a message that coordinate 1 would send only after the barrier. */
static int crossed_program(struct sl_spmd *self, void *arg) {
    struct sl_group world;
    struct sl_channel in;
    const void *message;
    (void)arg;
    SL_TRY(sl_group_axes(self, "*", &world));
    if (self->coordinate < 2) SL_TRY(sl_channel_open(self, &in, 1, 0, 8, 1));
    if (self->coordinate == 0) SL_TRY(sl_channel_take(self, &in, &message));
    return sl_barrier(self, &world);
}

static void who_is_missing_is_named(void **state) {
    (void)state;
    if (!shares_memory()) return; /* the circle below shows it */
    EXPECT_VERDICT(((struct test_run){.mesh = "data=16,pipe=8"}), crossed_program, SL_FAILED,
                   "deadlock: 2 coordinates wait for one another",
                   "coordinate 0 (data=0, pipe=0) waits for coordinate 1 in take on channel 1 -> 0",
                   "coordinate 1 (data=0, pipe=1) waits for coordinate 0 in barrier over \"*\"");
}

/* A circle of more waits than a screen has room for: each takes a message from the next, which does not send one. */
static int ring_program(struct sl_spmd *self, void *arg) {
    const int size = self->mesh->size, me = self->coordinate;
    struct sl_channel from, to;
    const void *message;
    (void)arg;
    SL_TRY(sl_channel_open(self, &from, (me + 1) % size, me, 8, 1));
    SL_TRY(sl_channel_open(self, &to, me, (me + size - 1) % size, 8, 1));
    return sl_channel_take(self, &from, &message);
}

static void a_circle_of_many_is_told(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.timeout = PATIENCE_IN_VAIN, .mesh = "data=66"}), ring_program, SL_FAILED,
                   "deadlock: 66 coordinates wait for one another", " in take on channel ", "more");
}

/* The last coordinate returns once the others wait for it. */
static int leave_program(struct sl_spmd *self, void *arg) {
    const struct timespec nap = {.tv_nsec = 10000000};
    struct sl_group rows;
    (void)arg;
    SL_TRY(sl_group_axes(self, "data", &rows));
    if (self->coordinate < self->mesh->size - 1) return sl_barrier(self, &rows);
    for (int i = 0; i < 100 && sl_progress(self) == SL_OK; i++) nanosleep(&nap, NULL);
    return SL_OK;
}

static void who_waits_is_told_by_ranges(void **state) {
    (void)state;
    if (!shares_memory()) { /* a process that finds it reports only its own wait */
        EXPECT_VERDICT(((struct test_run){.timeout = PATIENCE, .mesh = "pipe=1,data=66"}), leave_program, SL_FAILED,
                       "coordinate 65 (pipe=0, data=65) returned after ",
                       " waits for coordinate 65 in barrier over \"data\" at ");
        return;
    }
    EXPECT_VERDICT(((struct test_run){.timeout = PATIENCE, .mesh = "pipe=2,data=100"}), leave_program, SL_FAILED,
                   "coordinate 199 (pipe=1, data=99) returned after ", " coordinates (pipe=1, data=", ") wait for ",
                   "pipe=1, data=99 in barrier over \"data\" at ");
}

/* One member makes another call: a kind for all members, or a kind for two. */
static int differing_program(struct sl_spmd *self, void *arg) {
    const bool alike = *(bool *)arg;
    struct sl_group world;
    int32_t x = 0;
    SL_TRY(sl_group_axes(self, "*", &world));
    if (self->coordinate != 65) return sl_psum(self, &world, SL_I32, &x, &x, 1);
    return alike ? sl_barrier(self, &world) : sl_broadcast(self, &world, SL_I32, &x, &x, 1, 65);
}

static void calls_that_differ_are_told(void **state) {
    (void)state;
    for (int alike = 0; alike < 2; alike++)
        for (int checked = 0; checked < 2; checked++) {
            bool arg = alike;
            const char *const mesh = shares_memory() ? "x=100" : "x=66";
            EXPECT_VERDICT(((struct test_run){.timeout = PATIENCE, .mesh = mesh, .checked = checked, .arg = &arg}),
                           differing_program, SL_FAILED, "calls over \"*\" differ: ", "coordinate 65 (x=65) calls ",
                           "calls psum of 1 i32");
        }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_large_groups_agree), cmocka_unit_test(a_thousand_agree),
        cmocka_unit_test(who_is_missing_is_named),       cmocka_unit_test(who_waits_is_told_by_ranges),
        cmocka_unit_test(a_circle_of_many_is_told),      cmocka_unit_test(calls_that_differ_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
