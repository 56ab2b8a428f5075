/* test_groups.c - members' common memory, reads of peers' memory without their calls, and closing of groups. */
#include "tests/rigs/run_on.h"

#include <malloc.h>

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* ---- common memory of members ---- */

/* Each member gathers the others' columns of [2, 3] without their calls, any number of times. Engines that cannot read
 * peers are left out. */
static int alone_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "*", &group));
    const size_t shape[] = {2, 3};
    int32_t in[6], all[24];
    const int32_t *mine = in;
    const void *theirs[MOST_COORDINATES];
    if (!sl_reads_peers(self)) return SL_OK;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 6; i++) in[i] = 1000 * round + 100 * group.rank + i;
        SL_TRY(sl_all_gather(self, &group, SL_I32, &mine, theirs, sizeof(void *) / sizeof(int32_t)));
        for (int again = 0; again <= group.rank; again++) {
            for (int i = 0; i < 24; i++) all[i] = -1;
            SL_TRY(sl_gather_from(self, theirs, sl_describe_all_gather_dim(&group, SL_I32, in, all, 2, shape, 1)));
            for (int i = 0; i < 24; i++)
                CHECK(self, all[i] == 1000 * round + 100 * (i % 12 / 3) + 3 * (i / 12) + i % 3);
        }
        SL_TRY(sl_barrier(self, &group));
    }
    return SL_OK;
}

static void test_alone(void **state) {
    (void)state;
    expect_ok("x=4", alone_program, NULL);
}

/* Each member writes its own number into the common memory and then reads the others'. Every group has memory of its
 * own; asking again returns the same memory. */
static int common_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group, other;
    void *memory, *others, *again;
    if (!sl_reads_peers(self)) return SL_OK;
    for (int round = 0; round < 3; round++) {
        SL_TRY(sl_group_axes(self, "x", &group));
        SL_TRY(sl_group_axes(self, "x", &other));
        SL_TRY(sl_group_memory(self, &group, 4 * sizeof(int32_t), &memory));
        SL_TRY(sl_group_memory(self, &other, 4 * sizeof(int32_t), &others));
        SL_TRY(sl_group_memory(self, &group, 4 * sizeof(int32_t), &again));
        CHECK(self, memory == again && memory != others);
        int32_t *const number = memory, was;
        sl_device.copy(&was, number + group.rank, sizeof was);
        CHECK(self, was == 0);
        was = 100 * round + self->coordinate;
        sl_device.copy(number + group.rank, &was, sizeof was);
        SL_TRY(sl_barrier(self, &group));
        SL_TRY(sl_peers_begin(self));
        int32_t all[4];
        sl_device.copy(all, number, sizeof all);
        sl_peers_end(self);
        for (int i = 0; i < 4; i++) CHECK(self, all[i] == 100 * round + sl_group_member(&group, i));
        SL_TRY(sl_group_close(self, &group));
        if (round) SL_TRY(sl_group_close(self, &other)); /* the first one's is freed when the run ends */
    }
    return SL_OK;
}

static int unequal_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    void *memory;
    SL_TRY(sl_group_axes(self, "*", &group));
    if (self->coordinate) SL_TRY(sl_barrier(self, &group));
    SL_TRY(sl_group_memory(self, &group, self->coordinate ? 64 : 128, &memory));
    return self->coordinate ? SL_OK : sl_barrier(self, &group);
}

/* Gathers without the others, or over an empty group. */
static int apart_program(struct sl_spmd *self, void *arg) {
    const int32_t in[1] = {0}, *mine = in;
    int32_t out[2];
    const struct sl_group none = {0};
    struct sl_group group;
    void *memory;
    SL_TRY(sl_group_axes(self, "*", &group));
    switch (*(const int *)arg) {
    case 0:
        return sl_group_memory(self, &group, 4, &memory);
    case 1:
        return sl_peers_begin(self);
    case 2:
        return sl_gather_from(self, (const void *const[]){mine, mine},
                              sl_describe_all_gather(&group, SL_I32, in, out, 1));
    default:
        return sl_group_memory(self, &none, 4, &memory);
    }
}

static void test_apart(void **state) {
    (void)state;
    const char *const name[] = {"sl_group_memory: coord", "sl_peers_begin: coord", "sl_gather_from: coord",
                                "sl_group_memory: "};
    for (int what = 0; what < 4; what++)
        EXPECT_VERDICT(
            ((struct test_run){.mesh = "x=2", .delay = shares_memory() && what < 3 ? 1e-6 : 0, .arg = &what}),
            apart_program, SL_BAD_INPUT, name[what]);
}

static void test_common_memory(void **state) {
    (void)state;
    expect_ok("y=2,x=4", common_program, NULL);
    if (shares_memory())
        EXPECT_VERDICT(((struct test_run){.mesh = "x=2"}), unequal_program, SL_BAD_INPUT,
                       "the group \"*\" has 128 bytes in common, not 64");
}

/* ---- closed groups ---- */

/* Closes groups of members that lag behind each other, while others of their groups are open. */
static int open_and_close(struct sl_spmd *self, int round) {
    struct sl_group pair, row, other = {0};
    const int list[2] = {round % 4, (round + 1) % 4};
    int32_t sum = 0, own = self->coordinate + round;
    struct sl_request request;
    SL_TRY(sl_group_list(self, 2, list, &pair));
    SL_TRY(sl_group_axes(self, round % 2 ? "data" : "data,model", &row));
    if (round % 3 == 0) SL_TRY(sl_group_axes(self, "model", &other));
    if (pair.rank >= 0) {
        SL_TRY(sl_psum(self, &pair, SL_I32, &own, &sum, 1));
        CHECK(self, sum == list[0] + list[1] + 2 * round);
    }
    SL_TRY(sl_broadcast_start(self, &request, &row, SL_I32, &own, &sum, 1, 0));
    SL_TRY(sl_group_close(self, &pair));
    SL_TRY(end_call(self, &request, round % 2 ? -1 : 0));
    CHECK(self, sum == sl_group_member(&row, 0) + round);
    SL_TRY(sl_group_close(self, &row));
    SL_TRY(sl_group_close(self, &row));  /* it is empty now */
    return sl_group_close(self, &other); /* it was never open */
}

enum { SANITIZED = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) };

/* Returns whether the heap is glibc's, and this engine's allocations are on it. */
static bool counts_heap(void) { return !SANITIZED && strcmp(test_engine, "nccl") != 0; }

/* Bytes of all threads. */
static size_t heap_in_use(void) {
    if (!counts_heap()) return 0;
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A round releases all of its memory: after the first hundred rounds, the heap does not grow. */
static int closing_program(struct sl_spmd *self, void *arg) {
    const int rounds = *(const int *)arg;
    struct sl_group world;
    size_t before = 0;
    SL_TRY(sl_group_axes(self, "*", &world));
    for (int round = 0; round < rounds; round++) {
        if (round == 100) {
            SL_TRY(sl_barrier(self, &world));
            before = heap_in_use();
            SL_TRY(sl_barrier(self, &world));
        }
        SL_TRY(open_and_close(self, round));
    }
    SL_TRY(sl_barrier(self, &world));
    const size_t after = heap_in_use();
    SL_TRY(sl_barrier(self, &world));
    CHECK(self, after < before + (64 << 10));
    return sl_group_close(self, &world);
}

static void test_closing(void **state) {
    (void)state;
    int rounds = counts_heap() ? 3000 : 200;
    expect_ok("data=2,model=2", closing_program, &rounds);
}

/* Two groups of the same members do not see each other's calls, and hold their own calls under way. */
static int same_members_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group[2];
    SL_TRY(sl_group_axes(self, "x", &group[0]));
    SL_TRY(sl_group_axes(self, "*", &group[1]));
    struct sl_request request[2 * SL_MAX_IN_FLIGHT];
    int32_t x[2 * SL_MAX_IN_FLIGHT];
    for (int i = 0; i < 2 * SL_MAX_IN_FLIGHT; i++) {
        x[i] = i + self->coordinate;
        SL_TRY(sl_psum_start(self, &request[i], &group[i % 2], SL_I32, &x[i], &x[i], 1));
    }
    for (int i = 0; i < 2 * SL_MAX_IN_FLIGHT; i++) {
        SL_TRY(sl_wait(self, &request[i]));
        CHECK(self, x[i] == 2 * i + 1);
    }
    return SL_OK;
}

static void test_same_members(void **state) {
    (void)state;
    expect_ok("x=2", same_members_program, NULL);
}

/* The status of the opening was ignored. */
static int closed_program(struct sl_spmd *self, void *arg) {
    struct sl_group none, twice;
    float x = 1, sum = 2;
    (void)arg;
    CHECK(self, sl_group_axes(self, "nowhere", &none) == SL_BAD_INPUT);
    CHECK(self, sl_group_list(self, 2, (int[]){0, 0}, &twice) == SL_BAD_INPUT);
    CHECK(self, sl_psum(self, &none, SL_F32, &x, &sum, 1) == SL_BAD_INPUT);
    CHECK(self, sl_psum(self, &twice, SL_F32, &x, &sum, 1) == SL_BAD_INPUT);
    CHECK(self, sum == 2);
    return self->error.status;
}

static void test_not_opened(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2"}), closed_program, SL_BAD_INPUT,
                   "\"nowhere\" is not a list of axes");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),   cmocka_unit_test(test_common_memory), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_closing), cmocka_unit_test(test_same_members),  cmocka_unit_test(test_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
