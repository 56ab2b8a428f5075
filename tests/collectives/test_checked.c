/* test_checked.c - faulty programs end with a verdict that names coordinates and call sites, and never hang. */
#include "tests/rigs/run_on.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_COORDINATES = 64 }; /* of its meshes */

static void sleep_us(int us) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&time, NULL);
}
static void sleep_ms(int ms) { sleep_us(1000 * ms); }

static int open_world(struct sl_spmd *self, struct sl_group *world) { return sl_group_axes(self, "*", world); }

/* ---- the default ---- */

static void test_debug_builds_are_checked(void **state) {
    struct sl_engine engine;
    (void)state;
    unsetenv("SHARDLOOP_CHECKED");
    assert_int_equal(sl_engine_open(&engine, test_engine, NULL), SL_OK);
    assert_int_equal(engine.checked, SL_DEBUG_BUILD);
}

/* ---- differing calls ---- */

enum difference { OPERATION, DTYPE, COUNT, ROOT, SCALE, SITE, PAIRS, ONE_SIDED_PAIR, DIFFERENCES };

/* Coordinate 1's call differs. Arrays are large enough for the others' calls. */
static int differing_program(struct sl_spmd *self, void *arg) {
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    float x[64] = {0}, y[64] = {0};
    const bool odd = self->coordinate == 1;
    const int ring[3][2] = {{0, 1}, {1, 2}, {2, 0}}, back[3][2] = {{1, 0}, {2, 1}, {0, 2}};
    const struct sl_collective psum = sl_describe_psum(&world, SL_F32, x, x, 8);
    struct sl_collective call[DIFFERENCES][2] = {
        [OPERATION] = {psum, sl_describe_pmax(&world, SL_F32, x, x, 8)},
        [DTYPE] = {psum, sl_describe_psum(&world, SL_BF16, x, x, 8)},
        [COUNT] = {psum, sl_describe_psum(&world, SL_F32, x, x, 9)},
        [ROOT] = {sl_describe_broadcast(&world, SL_F32, x, x, 8, 0), sl_describe_broadcast(&world, SL_F32, x, x, 8, 2)},
        [SCALE] = {psum, sl_describe_pmean(&world, SL_F32, x, x, 8)},
        [SITE] = {psum, psum},
        [PAIRS] = {sl_describe_ppermute(&world, SL_F32, x, y, 8, 3, ring),
                   sl_describe_ppermute(&world, SL_F32, x, y, 8, 3, back)},
        [ONE_SIDED_PAIR] = {sl_describe_ppermute(&world, SL_F32, x, y, 8, 1, ring),
                            sl_describe_ppermute(&world, SL_F32, x, y, 8, 0, NULL)},
    };
    const enum difference difference = *(enum difference *)arg;
    SL_TRY(sl_call(self, difference == SITE && odd ? "odd.c:2" : "even.c:1", call[difference][odd]));
    return sl_call(self, "last.c:3", sl_describe_barrier(&world));
}

static void test_differing_calls(void **state) {
    (void)state;
    static const char *const text[DIFFERENCES][2] = {
        [OPERATION] = {"calls psum of 8 f32", "calls pmax of 8 f32"},
        [DTYPE] = {"of 8 f32", "of 8 bf16"},
        [COUNT] = {"psum of 8 f32", "psum of 9 f32"},
        [ROOT] = {"broadcast of 8 f32 from position 0", "broadcast of 8 f32 from position 2"},
        [SCALE] = {"calls psum", "calls pmean"},
        [SITE] = {"at even.c:1", "at odd.c:2"},
        [PAIRS] = {"ppermute", "coordinate 1 (x=1) calls ppermute of 8 f32 from position 2 to position 0 at even.c:1"},
        [ONE_SIDED_PAIR] = {"ppermute of 8 f32 from nobody to position 1", "ppermute of 8 f32 from nobody to nobody"},
    };
    for (int checked = !compares_always(); checked < 2; checked++) {
        for (enum difference d = OPERATION; d < (checked ? DIFFERENCES : SITE); d++)
            EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .checked = checked, .arg = &d}), differing_program,
                           SL_FAILED, "calls over \"*\" differ: ", "coordinate 1 (x=1) calls ", text[d][0], text[d][1]);
    }
}

/* Members without a common message are compared, too: 2 is a hole of the permutation. */
static int distant_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    const int swap[2][2] = {{0, 1}, {1, 0}};
    float x[2] = {0}, y[2];
    for (int i = 0; i < 100; i++) {
        SL_TRY(sl_ppermute(self, &world, SL_F32, x, y, self->coordinate == 2 && i == 50 ? 1 : 2, 2, swap));
    }
    return SL_OK;
}

static void test_distant_members(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .checked = true}), distant_program, SL_FAILED,
                   "calls over \"*\" differ: ", "coordinate 2 (x=2) calls ppermute of 1 f32 from nobody to nobody",
                   "ppermute of 2 f32");
}

/* No data are moved between differing calls, whichever comes first. */
static int shorter_program(struct sl_spmd *self, void *arg) {
    struct sl_group world;
    float(*x)[1000] = arg;
    SL_TRY(open_world(self, &world));
    for (int i = 0; i < 1000; i++) x[self->coordinate][i] = 1;
    SL_TRY(sl_barrier(self, &world));
    return sl_psum(self, &world, SL_F32, x[self->coordinate], x[self->coordinate], self->coordinate ? 10 : 1000);
}

static void test_nothing_moves(void **state) {
    (void)state;
    static float x[2][1000];
    for (int repeat = 0; repeat < (shares_memory() ? 300 : 100); repeat++) {
        const bool checked = repeat % 2 || !compares_always();
        EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .checked = checked, .arg = x}), shorter_program, SL_FAILED,
                       "psum of 1000 f32", "psum of 10 f32");
        for (int c = 0; c < 2; c++) {
            const bool here = shares_memory() || x[c][0] != 0;
            for (int i = 0; i < 1000 && here; i++) assert_true(x[c][i] == 1);
        }
    }
}

/* The same of calls with fitting sizes at different lines, in device memory. */
enum { ALIKE = 1000 };

static int alike_program(struct sl_spmd *self, void *arg) {
    bool *moved = arg;
    struct sl_group world;
    float numbers[ALIKE];
    SL_TRY(open_world(self, &world));
    float *x = sl_device.take(sizeof numbers);
    CHECK(self, x);
    for (int i = 0; i < ALIKE; i++) numbers[i] = 1;
    sl_device.copy(x, numbers, sizeof numbers);
    int status = sl_barrier(self, &world);
    if (!status) {
        const struct sl_collective sum = sl_describe_psum(&world, SL_F32, x, x, ALIKE);
        status = sl_call(self, self->coordinate ? "odd.c:2" : "even.c:1", sum);
    }
    sl_device.copy(numbers, x, sizeof numbers);
    for (int i = 0; i < ALIKE; i++) moved[self->coordinate] |= numbers[i] != 1;
    sl_device.give(x);
    return status;
}

static void test_nothing_alike_moves(void **state) {
    (void)state;
    for (int repeat = 0; repeat < (shares_memory() ? 100 : 20); repeat++) {
        bool moved[2] = {false};
        EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .checked = true, .arg = moved}), alike_program, SL_FAILED,
                       "psum of 1000 f32 at even.c:1", "psum of 1000 f32 at odd.c:2");
        assert_false(moved[0] || moved[1]);
    }
}

/* ---- peers that have returned ---- */

struct early {
    int ms;       /* to sleep before returning */
    double begin; /* when that was over */
};

static int early_program(struct sl_spmd *self, void *arg) {
    struct early *early = arg;
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    SL_TRY(sl_call(self, "first.c:1", sl_describe_barrier(&world)));
    if (self->coordinate != 2) return sl_call(self, "second.c:2", sl_describe_barrier(&world));
    sleep_ms(early->ms);
    early->begin = sl_now();
    return SL_OK;
}

/* The verdict comes at once, whether or not the others are asleep by then. */
static void test_returned(void **state) {
    (void)state;
    double fastest = 1e9;
    for (int i = 0; i < 10; i++) {
        struct early early = {.ms = i % 2 ? 50 : 0};
        const struct test_run run = {.mesh = "data=2,model=2", .checked = i % 4 / 2, .arg = &early};
        EXPECT_VERDICT(run, early_program, SL_FAILED,
                       "coordinate 2 (data=1, model=0) returned after barrier over \"*\" at first.c:1",
                       " waits for coordinate 2 in barrier over \"*\" at second.c:2");
        const double took = sl_now() - early.begin;
        if (early.ms && took < fastest) fastest = took;
    }
    if (shares_memory()) assert_true(fastest < 0.03);
}

static int no_sender_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    const void *slot;
    SL_TRY(sl_channel_open_at(self, "open.c:7", &channel, 0, 1, 8, 1));
    return self->coordinate == 0 ? SL_OK : sl_channel_take(self, &channel, &slot);
}

static void test_returned_sender(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2"}), no_sender_program, SL_FAILED,
                   "coordinate 0 (x=0) returned after opening a channel at open.c:7",
                   "coordinate 1 (x=1) waits for coordinate 0 in take on channel 0 -> 1, opened at open.c:7");
}

/* ---- deadlocks ---- */

/* Two groups of the same members, called in different orders. */
static int crossed_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group a, b;
    SL_TRY(sl_group_axes(self, "x", &a));
    SL_TRY(sl_group_axes(self, "x", &b));
    SL_TRY(self->coordinate ? sl_call(self, "b.c:2", sl_describe_barrier(&b))
                            : sl_call(self, "a.c:1", sl_describe_barrier(&a)));
    return SL_OK;
}

static void test_crossed_groups(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2"}), crossed_program, SL_FAILED,
                   "deadlock: 2 coordinates wait for one another",
                   "coordinate 0 (x=0) waits for coordinate 1 in barrier over \"x\" at a.c:1",
                   "coordinate 1 (x=1) waits for coordinate 0 in barrier over \"x\" at b.c:2");
}

/* Each coordinate of the ring takes from the next before it sends; a coordinate outside it computes to the end. */
static int hungry_program(struct sl_spmd *self, void *arg) {
    struct sl_channel in, out;
    const void *message;
    const int size = *(int *)arg, me = self->coordinate;
    if (me == size) {
        while (sl_progress(self) == SL_OK) sleep_ms(1);
        return SL_FAILED;
    }
    SL_TRY(sl_channel_open_at(self, "ring.c:1", &in, (me + 1) % size, me, 8, 1));
    SL_TRY(sl_channel_open_at(self, "ring.c:1", &out, me, (me + size - 1) % size, 8, 1));
    return sl_channel_take(self, &in, &message);
}

/* Each of the first RING coordinates waits for the next one. One process knows the waits. */
static void check_ring(const struct sl_waits *waits, int ring) {
    for (int i = 0; i < ring && waits->coordinates; i++) {
        const struct sl_waiting *of = &waits->coordinate[i];
        assert_int_equal(of->state, SL_WAITS);
        assert_int_equal(of->peer, (i + 1) % ring);
        assert_string_equal(of->verb, "take");
        assert_string_equal(of->site, "ring.c:1");
        assert_int_equal(of->steps, 0);
        assert_string_equal(of->module, "");
    }
}

static void test_channel_circle(void **state) {
    (void)state;
    int ring = 4;
    for (int outside = 0; outside < 2; outside++) {
        const double begin = sl_now();
        struct sl_waiting of[5];
        struct sl_waits waits = {.coordinate = of};
        EXPECT_VERDICT(((struct test_run){.mesh = outside ? "x=5" : "x=4", .waits = &waits, .arg = &ring}),
                       hungry_program, SL_FAILED, "deadlock: 4 coordinates wait for one another",
                       "coordinate 3 (x=3) waits for coordinate 0 in take on channel 0 -> 3, opened at ring.c:1");
        assert_true(sl_now() - begin < 5);
        check_ring(&waits, ring);
    }
}

static int full_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    void *slot;
    SL_TRY(sl_channel_open(self, &channel, 0, 0, 8, 2));
    for (int i = 0; i < 3; i++) {
        SL_TRY(sl_channel_acquire(self, &channel, &slot));
        SL_TRY(sl_channel_post(self, &channel));
    }
    return SL_OK;
}

static void test_waits_for_itself(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=1"}), full_program, SL_FAILED, "waits for itself",
                   "acquire on channel 0 -> 0");
}

/* One coordinate waits in a collective, the next at a channel, and a third waits for both without being part of the
 * circle. */
static int mixed_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    struct sl_channel channel;
    const void *message;
    SL_TRY(open_world(self, &world));
    if (self->coordinate < 2) SL_TRY(sl_channel_open(self, &channel, 0, 1, 8, 1));
    if (self->coordinate == 1) return sl_channel_take(self, &channel, &message);
    return sl_call(self, "mixed.c:1", sl_describe_barrier(&world));
}

static void test_mixed(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3"}), mixed_program, SL_FAILED,
                   "deadlock: 2 coordinates wait for one another",
                   "coordinate 0 (x=0) waits for coordinate 1 in barrier over \"*\" at mixed.c:1",
                   "coordinate 1 (x=1) waits for coordinate 0 in take on channel 0 -> 1");
}

/* ---- absent peers ---- */

struct pause {
    int ms, steps;
    bool progress;
};

static int pausing_program(struct sl_spmd *self, void *arg) {
    const struct pause *pause = arg;
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    SL_TRY(sl_call(self, "before.c:1", sl_describe_barrier(&world)));
    for (int i = 0; i < pause->steps && self->coordinate == 1; i++) {
        sleep_ms(pause->ms / pause->steps);
        if (pause->progress) SL_TRY(sl_progress(self));
    }
    return sl_call(self, "after.c:2", sl_describe_barrier(&world));
}

static void test_absent(void **state) {
    (void)state;
    struct pause pause = {.ms = 1000, .steps = 1};
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .timeout = 0.3, .arg = &pause}), pausing_program, SL_FAILED,
                   "coordinate 1 (x=1) is absent: no sign of it for 0.3 s",
                   shares_memory() ? "since barrier over \"*\" at before.c:1" : "",
                   "waits for coordinate 1 in barrier over \"*\" at after.c:2");
}

static void test_computing_is_not_absent(void **state) {
    (void)state;
    struct pause pause = {.ms = 2000, .steps = 100, .progress = true};
    struct sl_error error;
    const struct test_run run = {.mesh = "x=3", .timeout = 1, .checked = true, .arg = &pause};
    assert_int_equal(run_on(run, pausing_program, &error), SL_OK);
}

/* Who waits for an absent one is not absent itself: coordinate 2 is waited for through a chain. */
static int chain_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel in, out;
    const void *message;
    const int me = self->coordinate;
    if (me < 2) SL_TRY(sl_channel_open(self, &in, me + 1, me, 8, 1));
    if (me > 0) SL_TRY(sl_channel_open(self, &out, me, me - 1, 8, 1));
    if (me == 2) sleep_ms(1000);
    return me == 2 ? SL_OK : sl_channel_take(self, &in, &message);
}

static void test_absent_behind_others(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .timeout = 0.3}), chain_program, SL_FAILED,
                   "coordinate 2 (x=2) is absent", "coordinate 1 (x=1) waits for coordinate 2");
}

/* More coordinates than a message has room for: the rest is counted. */
static int crowd_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel in;
    const void *message;
    const int size = self->mesh->size, me = self->coordinate;
    SL_TRY(sl_channel_open(self, &in, (me + 1) % size, me, 8, 1));
    return sl_channel_take(self, &in, &message);
}

static void test_crowd(void **state) {
    (void)state;
    const bool many = shares_memory();
    EXPECT_VERDICT(((struct test_run){.mesh = many ? "a=4,b=16" : "a=2,b=4"}), crowd_program, SL_FAILED,
                   many ? "deadlock: 64 coordinates" : "deadlock: 8 coordinates",
                   " wait for one another:\n  coordinate ", "\n  and ", " more");
}

/* ---- programs that fail on purpose ---- */

struct giving_up {
    int status;
    const char *message;
    int seen[MOST_COORDINATES]; /* statuses of the others' calls */
};

static int giving_up_program(struct sl_spmd *self, void *arg) {
    struct giving_up *giving_up = arg;
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    giving_up->seen[self->coordinate] = sl_barrier(self, &world); /* a late one hears of the end here */
    if (giving_up->seen[self->coordinate]) return giving_up->seen[self->coordinate];
    if (self->coordinate == 5) {
        sleep_ms(20);
        return giving_up->message ? sl_fail(self, giving_up->status, "%s", giving_up->message) : giving_up->status;
    }
    float *x = calloc(1000, sizeof *x); /* freed at once: no other coordinate may access it any more */
    for (int i = 0, status = SL_OK; i < 3 && x; i++) {
        status = sl_psum(self, &world, SL_F32, x, x, 1000);
        giving_up->seen[self->coordinate] = status;
    }
    free(x);
    return giving_up->seen[self->coordinate];
}

static void test_giving_up(void **state) {
    (void)state;
    struct giving_up cases[] = {
        {.status = SL_BAD_INPUT, .message = "layers: 7 do not divide by 4"},
        {.status = SL_FAILED, .message = "disk full"},
        {.status = SL_CHECK_FAILED},
    };
    for (int i = 0; i < 3; i++) {
        EXPECT_VERDICT(
            ((struct test_run){.mesh = "data=2,model=4", .arg = &cases[i]}), giving_up_program, cases[i].status,
            "coordinate 5 (data=1, model=1): ", cases[i].message ? cases[i].message : "the program returned status 1");
        for (int c = 0; c < 8; c++) {
            if (shares_memory() || cases[i].seen[c]) assert_int_equal(cases[i].seen[c], c == 5 ? 0 : SL_FAILED);
        }
    }
}

/* 0 gives up while 1 and 2 add up arrays, and they unmap these as soon as their call has ended in any way: a later
 * access crashes. 1 comes late: 2, asleep by then, is still busy when 1 has done its share. */
static int abrupt_program(struct sl_spmd *self, void *arg) {
    const int me = self->coordinate, alone[] = {0}, two[] = {1, 2};
    struct sl_group group;
    const size_t count = (size_t)1 << (test_runs_few ? 15 : 20); /* slow sums of fewer elements take as long */
    SL_TRY(sl_group_list(self, me ? 2 : 1, me ? two : alone, &group));
    if (me == 0) {
        sleep_us(500 + 100 * *(int *)arg);
        return sl_fail(self, SL_FAILED, "enough");
    }
    for (int status = SL_OK;;) {
        uint16_t *x = mmap(NULL, count * sizeof *x, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (x == MAP_FAILED) return sl_fail(self, SL_FAILED, "no memory");
        if (me == 1) sleep_us(300);
        status = sl_psum(self, &group, SL_BF16, x, x, count);
        munmap(x, count * sizeof *x);
        SL_TRY(status);
    }
}

static void test_abrupt_end(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .arg = &i}), abrupt_program, SL_FAILED,
                       "coordinate 0 (x=0): enough");
    }
}

/* ---- arguments ---- */

static int argument_program(struct sl_spmd *self, void *arg) {
    const int which = *(int *)arg;
    struct sl_group world, part, alone, not_open = {0};
    struct sl_request request;
    float x[30] = {0}, y[30] = {0};
    const int first[1] = {0}, twice[2] = {1, 1}, beyond[1] = {4};
    const int outside[1][2] = {{0, 4}}, sources[2][2] = {{0, 1}, {0, 2}}, targets[2][2] = {{0, 1}, {2, 1}};
    const size_t shape[2] = {6, 4}, wide[2] = {2, 12};
    SL_TRY(open_world(self, &world));
    SL_TRY(sl_group_list(self, 1, first, &part));
    SL_TRY(sl_group_axes(self, "", &alone));
    if (self->coordinate != 3) return SL_OK;
    switch (which) {
    case 0:
        return sl_psum(self, &world, SL_F32, NULL, x, 3);
    case 1:
        return sl_psum(self, &world, SL_F32, x, NULL, 3);
    case 2:
        return sl_psum(self, &part, SL_F32, x, x, 3);
    case 3:
        return sl_psum(self, &not_open, SL_F32, x, x, 3);
    case 4:
        return sl_broadcast(self, &world, SL_F32, x, x, 3, 4);
    case 5:
        return sl_broadcast(self, &world, SL_F32, x, x, 3, -1);
    case 6:
        return sl_ppermute(self, &world, SL_F32, x, y, 3, 1, outside);
    case 7:
        return sl_ppermute(self, &world, SL_F32, x, y, 3, 2, sources);
    case 8:
        return sl_ppermute(self, &world, SL_F32, x, y, 3, 2, targets);
    case 9:
        return sl_ppermute(self, &world, SL_F32, x, y, 3, 5, targets);
    case 10:
        return sl_ppermute(self, &world, SL_F32, x, y, 3, 1, NULL);
    case 11:
        return sl_all_to_all(self, &world, SL_F32, x, y, 2, shape, 0, 1);
    case 12:
        return sl_all_to_all(self, &world, SL_F32, x, y, 2, shape, 1, 1);
    case 13:
        return sl_all_to_all(self, &world, SL_F32, x, y, 2, shape, 1, 2);
    case 14:
        return sl_all_to_all(self, &world, SL_F32, x, y, 1, shape, 0, 0);
    case 15:
        return sl_pmean(self, &world, SL_I32, x, y, 3);
    case 16:
        return sl_psum(self, &world, SL_F32, x, x + 1, 3);
    case 17:
        return sl_all_gather(self, &world, SL_F32, x, x, 3);
    case 18:
        return sl_psum_scatter_dim(self, &world, SL_F32, x, x + 9, 2, wide, 1);
    case 19:
        return sl_group_axes(self, "data", &part);
    case 20:
        return sl_group_list(self, 2, twice, &part);
    case 21:
        return sl_group_list(self, 1, beyond, &part);
    case 22:
        return sl_group_list(self, 0, first, &part);
    case 23:
        for (int i = 0; i < SL_MAX_IN_FLIGHT; i++) SL_TRY(sl_barrier_start(self, &request, &world));
        return sl_barrier_start(self, &request, &world);
    case 24:
        return sl_psum(self, NULL, SL_F32, x, x, 3);
    case 25:
        SL_TRY(sl_barrier_start(self, &request, &alone));
        SL_TRY(sl_wait(self, &request));
        return sl_wait(self, &request);
    case 26:
        return sl_gather(self, &world, SL_F32, x, y, 3, 4);
    case 27:
        return sl_gather(self, &world, SL_F32, x, x, 3, 3);
    case 28:
        return sl_psum_scatter_dim(self, &world, SL_F32, x, y, 2, shape, 2);
    case 29:
        return sl_psum_scatter_dim(self, &world, SL_F32, x, y, 2, wide, 0);
    case 30:
        return sl_all_gather_dim(self, &world, SL_F32, x, y, 0, shape, 0);
    case 31:
        return sl_all_gather_dim(self, &world, SL_F32, x, y, 2, wide, -1);
    case 32:
        SL_TRY(sl_barrier_start(self, &request, &alone));
        return sl_group_close(self, &alone);
    case 33:
        SL_TRY(sl_group_close(self, &alone));
        return sl_barrier(self, &alone);
    case 34:
        SL_TRY(sl_group_close(self, &alone));
        return sl_psum_scatter(self, &alone, SL_F32, x, y, 3);
    case 35:
        SL_TRY(sl_group_close(self, &alone));
        return sl_all_to_all(self, &alone, SL_F32, x, y, 2, shape, 0, 1);
    case 36:
        return sl_pmean(self, &world, (enum sl_dtype)1000, x, y, 3);
    default:
        return -1;
    }
}

static void test_arguments(void **state) {
    (void)state;
    static const char *const text[] = {
        "psum over \"*\": the input is NULL (called at ",
        "psum over \"*\": the output is NULL",
        "psum over \"{0}\": this coordinate is not a member",
        "psum: the group is NULL or not open",
        "broadcast over \"*\": the root is not a position in the group",
        "broadcast over \"*\": the root is not a position in the group",
        "ppermute: the pair (0, 4) is not within a group of 4 members",
        "ppermute: two pairs have the source 0",
        "ppermute: two pairs have the destination 1",
        "ppermute: a group of 4 members cannot have 5 pairs",
        "ppermute: the pairs are NULL",
        "all_to_all: dim 0 of 6 does not divide by 4 members",
        "all_to_all: split 1 and concat 1 are not two dims of 2",
        "all_to_all: split 1 and concat 2 are not two dims of 2",
        "all_to_all: an array has 2 to 6 dims, not 1",
        "pmean: the mean of i32 is not defined",
        "psum over \"*\": input and output overlap",
        "all_gather over \"*\": input and output overlap",
        "psum_scatter over \"*\": input and output overlap",
        "group: \"data\" is not a list of axes of the mesh x=4",
        "group: coordinate 1 is listed twice",
        "group: the mesh has coordinates 0 to 3, not 4",
        "group: a list has 1 to 4 coordinates, not 0",
        "barrier over \"*\": more than 8 calls are under way",
        "psum: the group is NULL or not open",
        "barrier over \"\": waited for twice",
        "gather over \"*\": the root is not a position in the group",
        "gather over \"*\": input and output overlap",
        "psum_scatter: dim 2 is not one of 2 dims",
        "psum_scatter: dim 0 of 2 does not divide by 4 members",
        "all_gather: an array has 1 to 6 dims, not 0",
        "all_gather: dim -1 is not one of 2 dims",
        "the group \"\" has calls under way (closed at ",
        "barrier: the group is NULL or not open",
        "psum_scatter: the group is NULL or not open",
        "all_to_all: the group is NULL or not open",
        "pmean over \"*\": there is no such data type",
    };
    for (int i = 0; i < (int)(sizeof text / sizeof *text); i++) {
        EXPECT_VERDICT(((struct test_run){.mesh = "x=4", .checked = true, .arg = &i}), argument_program, SL_BAD_INPUT,
                       "coordinate 3 (x=3): ", text[i]);
    }
}

/* Allowed overlaps, and NULL for data that are not read, are no errors. */
static int allowed_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    SL_TRY(open_world(self, &world));
    float x[8] = {0}, y[2];
    const size_t no_rows[] = {0, 8}, no_columns[] = {3, 0};
    const int me = self->coordinate, pair[1][2] = {{0, 1}};
    SL_TRY(sl_psum_scatter(self, &world, SL_F32, x, x + 2 * me, 2));
    SL_TRY(sl_all_gather(self, &world, SL_F32, x + 2 * me, x, 2));
    SL_TRY(sl_broadcast(self, &world, SL_F32, me ? NULL : x, x, 8, 0));
    SL_TRY(sl_ppermute(self, &world, SL_F32, me ? NULL : x, y, 2, 1, pair));
    SL_TRY(sl_psum(self, &world, SL_F32, NULL, NULL, 0));
    SL_TRY(sl_broadcast(self, &world, SL_F32, NULL, NULL, 0, 0));
    SL_TRY(sl_all_gather_dim(self, &world, SL_F32, NULL, NULL, 2, no_rows, 1));
    SL_TRY(sl_ppermute(self, &world, SL_F32, NULL, NULL, 0, 0, NULL));
    return sl_psum_scatter_dim(self, &world, SL_F32, NULL, NULL, 2, no_columns, 1);
}

static void test_allowed(void **state) {
    (void)state;
    expect_ok("x=4", allowed_program, NULL);
}

/* ---- targets of verdicts, and engines ---- */

static int failing_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    return sl_fail(self, SL_BAD_INPUT, "no such file");
}

/* Without an error to fill in, the verdict is printed on stderr: one line here. */
static void test_stderr(void **state) {
    (void)state;
    struct sl_mesh mesh;
    struct sl_engine engine;
    assert_int_equal(sl_mesh_parse(&mesh, "x=1", NULL), SL_OK);
    assert_int_equal(sl_engine_open(&engine, test_engine, NULL), SL_OK);
    engine.spare = true;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int saved = dup(2);
    dup2(fileno(file), 2);
    const int status = sl_run(&mesh, &engine, failing_program, NULL);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    char text[200] = "";
    rewind(file);
    const size_t read = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_int_equal(status, SL_BAD_INPUT);
    assert_int_equal(read, strlen(text));
    assert_string_equal(text, sl_speaks(&engine) ? "shardloop: coordinate 0 (x=0): no such file\n" : "");
}

static int returns_at_once(struct sl_spmd *self, void *arg) {
    (void)self, (void)arg;
    return SL_OK;
}

static void test_engines(void **state) {
    (void)state;
    struct sl_engine engine;
    struct sl_error error;
    assert_int_equal(sl_engine_open(&engine, "local", &error), SL_OK);
    assert_string_equal(engine.table->name, "local");
    assert_true(engine.timeout == 30 && !engine.error);
    assert_int_equal(sl_engine_open(&engine, "tpu", &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "there is no engine \"tpu\": choose one of local, mpi, nccl");
    /* An engine outside the build is found; opening it, or a run, reports the build option. */
    if (sl_engine_mpi.missing) {
        assert_int_equal(sl_engine_open(&engine, "mpi", &error), SL_BAD_INPUT);
        assert_string_equal(error.message, "engine \"mpi\" is not in this build: configure with -DSL_MPI=ON");
    }
    if (sl_engine_nccl.missing) {
        assert_int_equal(sl_engine_open(&engine, "nccl", &error), SL_BAD_INPUT);
        assert_string_equal(error.message,
                            "engine \"nccl\" is not in this build: configure with -DSL_DEVICE=cuda -DSL_NCCL=ON");
    }
    const struct sl_engine_table table = {.name = "tpu", .missing = "SL_TPU"};
    engine.table = &table;
    engine.error = &error;
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, "x=1", &error), SL_OK);
    assert_int_equal(sl_run(&mesh, &engine, returns_at_once, NULL), SL_BAD_INPUT);
    assert_string_equal(error.message, "engine \"tpu\" is not in this build: configure with -DSL_TPU=ON");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debug_builds_are_checked),
        cmocka_unit_test(test_differing_calls),
        cmocka_unit_test(test_distant_members),
        cmocka_unit_test(test_nothing_moves),
        cmocka_unit_test(test_nothing_alike_moves),
        cmocka_unit_test(test_returned),
        cmocka_unit_test(test_returned_sender),
        cmocka_unit_test(test_crossed_groups),
        cmocka_unit_test(test_channel_circle),
        cmocka_unit_test(test_waits_for_itself),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_computing_is_not_absent),
        cmocka_unit_test(test_absent_behind_others),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_giving_up),
        cmocka_unit_test(test_abrupt_end),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_allowed),
        cmocka_unit_test(test_stderr),
        cmocka_unit_test(test_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
