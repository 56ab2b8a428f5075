/* test_nccl.c - particulars of the nccl engine: memory on devices, and queues. The other tests run on it, too, with
 * memory of the host. For faults of NCCL see test_nccl_faults.c. */
#include "tests/rigs/run_on.h"

#include <math.h>
#include <stdlib.h>

/* ---- calls on device memory give the results of calls on host memory, which test_collectives.c checks ---- */

enum { MOST = 4096, GUARD = 64 };

struct arrays {
    char *device[2]; /* input, output */
    char host[2][4 * MOST], back[4 * MOST];
};

static struct sl_collective describe(const struct sl_group *group, int which, enum sl_dtype dtype, uint64_t random,
                                     const void *in, void *out) {
    const size_t count = (size_t)(1 + pick(&random, 40)), outer = (size_t)(1 + pick(&random, 4));
    const size_t size = (size_t)group->size, shape[3] = {size * (size_t)(1 + pick(&random, 2)), 2 * size, 5};
    const size_t scattered[2] = {outer, count * size}, gathered[2] = {outer, count};
    const int pairs[2][2] = {{0, group->size - 1}, {group->size - 1, 0}};
    struct sl_collective call;
    switch (which) {
    case 0:
        return sl_describe_psum(group, dtype, in, out, count);
    case 1:
        call = sl_describe_psum(group, dtype, in, out, count);
        if (dtype != SL_I32) call.scale = pick(&random, 2) ? 0.125f : 1.0f / (float)size;
        return call;
    case 2:
        return sl_describe_pmax(group, dtype, in, out, count);
    case 3:
        return sl_describe_psum_scatter_dim(group, dtype, in, out, 2, scattered, 1);
    case 4:
        return sl_describe_all_gather_dim(group, dtype, in, out, 2, gathered, 1);
    case 5:
        return sl_describe_all_to_all(group, dtype, in, out, 3, shape, pick(&random, 2), 2);
    case 6:
        return sl_describe_all_to_all(group, dtype, in, out, 3, shape, 1, 0);
    case 7:
        return sl_describe_broadcast(group, dtype, in, out, count, pick(&random, group->size));
    case 8:
        return sl_describe_ppermute(group, dtype, in, out, count, group->size > 1 ? 1 + pick(&random, 2) : 0, pairs);
    default:
        return sl_describe_gather(group, dtype, in, out, count, pick(&random, group->size));
    }
}

static float value_of(const char *array, enum sl_dtype dtype, size_t i) {
    uint32_t bits = 0;
    float value;
    if (dtype == SL_BF16) {
        memcpy((char *)&bits + 2, array + 2 * i, 2);
    } else {
        memcpy(&bits, array + 4 * i, 4);
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void fill(char *array, enum sl_dtype dtype, uint64_t seed) {
    for (size_t i = 0; i < MOST; i++) {
        const float value = (float)(mix(seed * 7919 + i) % 2001) * 1e-3f - 1;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (dtype == SL_I32) bits = mix(seed * 31 + i);
        memcpy(array + sl_dtype_size(dtype) * i, (char *)&bits + (dtype == SL_BF16 ? 2 : 0), sl_dtype_size(dtype));
    }
}

/* NCCL's sums are taken in an order of its own, and rounded on the way. */
static bool is_close(const char *a, const char *b, enum sl_dtype dtype, bool sum) {
    const size_t bytes = sl_dtype_size(dtype) * MOST;
    if (!sum || dtype == SL_I32) return !memcmp(a, b, bytes);
    for (size_t i = 0; i < MOST; i++) {
        const float difference = value_of(a, dtype, i) - value_of(b, dtype, i);
        if (memcmp(a + sl_dtype_size(dtype) * i, b + sl_dtype_size(dtype) * i, sl_dtype_size(dtype)) &&
            !(fabsf(difference) < (dtype == SL_BF16 ? 0.1f : 1e-5f)))
            return false;
    }
    return true;
}

/* Makes a call with input and output on the device or, by the bits of WHERE, on the host, without other waits than in
 * sl_wait and in the queue; expects the result of the call on the host. */
static int one_call(struct sl_spmd *self, const struct sl_group *group, struct arrays *a, uint64_t random) {
    const int which = pick(&random, 10), where = pick(&random, 5);
    const enum sl_dtype dtype = (enum sl_dtype)pick(&random, 3);
    const bool in_place = where == 0 && which < 3;
    const size_t bytes = sl_dtype_size(dtype) * MOST;
    fill(a->host[0], dtype, random + (uint64_t)self->coordinate);
    memset(a->host[1], 0x5a, bytes);
    memset(a->back, 0x5a, bytes);
    sl_device.copy(a->device[0], a->host[0], bytes);
    sl_device.copy(a->device[1], a->back, bytes);
    const void *in = where & 1 ? (void *)a->host[0] : a->device[0];
    void *out = where & 2 ? (void *)a->back : a->device[in_place ? 0 : 1];
    SL_TRY(sl_call(self, SL_HERE, describe(group, which, dtype, random, in, out)));
    if (!(where & 2)) sl_device.copy(a->back, out, bytes);
    SL_TRY(sl_device.settle(&self->error));
    if (in_place) memcpy(a->host[1], a->host[0], bytes);
    SL_TRY(sl_call(self, SL_HERE, describe(group, which, dtype, random, a->host[0], a->host[1])));
    if (is_close(a->back, a->host[1], dtype, which < 4)) return SL_OK;
    return sl_fail(self, SL_CHECK_FAILED, "operation %d, type %d, arrays %d over \"%s\" differ", which, dtype, where,
                   group->name);
}

static int device_program(struct sl_spmd *self, void *arg) {
    static const char *const axes[] = {"*", "a", "b", ""};
    struct sl_group group[5];
    const int backwards[] = {3, 1, 0};
    for (int i = 0; i < 4; i++) SL_TRY(sl_group_axes(self, axes[i], &group[i]));
    SL_TRY(sl_group_list(self, 3, backwards, &group[4]));
    struct arrays *a = calloc(1, sizeof *a);
    if (!a) return sl_fail(self, SL_FAILED, "no memory");
    for (int i = 0; i < 2; i++) a->device[i] = sl_device.take(4 * MOST);
    int status = SL_OK;
    for (uint64_t round = 0; round < *(uint64_t *)arg && !status; round++) {
        uint64_t random = round * 1000;
        const struct sl_group *g = &group[pick(&random, 5)];
        if (g->rank >= 0) status = one_call(self, g, a, random);
    }
    for (int i = 0; i < 2; i++) sl_device.give(a->device[i]);
    free(a);
    return status;
}

static void device_memory_is_as_good_as_the_hosts(void **state) {
    (void)state;
    uint64_t rounds = 400;
    expect_ok("a=2,b=2", device_program, &rounds);
}

/* ---- queues ---- */

/* Calls in flight at once, each on data that the queue is about to compute; the host waits only at the end. */
static int queue_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    enum { COUNT = 1000 };
    SL_TRY(sl_group_axes(self, "*", &world));
    int32_t *host = sl_device.take_host(SL_MAX_IN_FLIGHT * COUNT * sizeof *host);
    int32_t *x = sl_device.take(SL_MAX_IN_FLIGHT * COUNT * sizeof *x), *y = sl_device.take(COUNT * sizeof *y);
    CHECK(self, host && x && y);
    for (int round = 0; round < 20; round++) {
        struct sl_request request[SL_MAX_IN_FLIGHT];
        for (int i = 0; i < SL_MAX_IN_FLIGHT * COUNT; i++) host[i] = i + round + self->coordinate;
        for (int k = 0; k < SL_MAX_IN_FLIGHT; k++) {
            sl_device.copy(x + k * COUNT, host + k * COUNT, COUNT * sizeof *x);
            SL_TRY(sl_psum_start(self, &request[k], &world, SL_I32, x + k * COUNT, x + k * COUNT, COUNT));
        }
        for (int k = 0; k < SL_MAX_IN_FLIGHT; k++) {
            SL_TRY(sl_wait(self, &request[k]));
            SL_TRY(sl_psum(self, &world, SL_I32, x + k * COUNT, y, COUNT));
            sl_device.copy(x + k * COUNT, y, COUNT * sizeof *x);
        }
        sl_device.copy(host, x, SL_MAX_IN_FLIGHT * COUNT * sizeof *host);
        for (int i = 0; i < SL_MAX_IN_FLIGHT * COUNT; i++) CHECK(self, host[i] == 3 * (3 * (i + round) + 3));
    }
    sl_device.give(x);
    sl_device.give(y);
    sl_device.give_host(host);
    return SL_OK;
}

static void queues_keep_the_order(void **state) {
    (void)state;
    expect_ok("x=3", queue_program, NULL);
}

/* Through channels from queue to queue: no host reads or writes a slot. */
static int relay_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    enum { COUNT = 300, MESSAGES = 40 };
    const int me = self->coordinate, last = self->mesh->size - 1;
    struct sl_channel in, out;
    if (me < last) SL_TRY(sl_channel_open(self, &out, me, me + 1, COUNT * sizeof(int32_t), 2));
    if (me > 0) SL_TRY(sl_channel_open(self, &in, me - 1, me, COUNT * sizeof(int32_t), 2));
    int32_t *host = sl_device.take_host(MESSAGES * COUNT * sizeof *host);
    CHECK(self, host);
    for (int m = 0; m < MESSAGES; m++) {
        int32_t *message = host + m * COUNT;
        const void *from = message;
        void *to = message;
        for (int i = 0; i < COUNT; i++) message[i] = me ? -1 : 1000 * m + i;
        if (me > 0) SL_TRY(sl_channel_take(self, &in, &from));
        if (me < last) SL_TRY(sl_channel_acquire(self, &out, &to));
        sl_device.copy(to, from, COUNT * sizeof *host);
        if (me > 0) SL_TRY(sl_channel_release(self, &in));
        if (me < last) SL_TRY(sl_channel_post(self, &out));
    }
    SL_TRY(sl_device.settle(&self->error));
    for (int i = 0; i < MESSAGES * COUNT && me == last; i++) CHECK(self, host[i] == 1000 * (i / COUNT) + i % COUNT);
    sl_device.give_host(host);
    return SL_OK;
}

static void messages_go_from_queue_to_queue(void **state) {
    (void)state;
    expect_ok("x=4", relay_program, NULL);
}

/* Slots are written, wiped and used again by queues, and hosts wait for some of the messages alone. */
static int wiping_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    enum { COUNT = 300, MESSAGES = 60 };
    struct sl_channel channel;
    SL_TRY(sl_channel_open(self, &channel, 0, 1, COUNT * sizeof(int32_t), 2));
    int32_t *host = sl_device.take_host(MESSAGES * COUNT * sizeof *host);
    CHECK(self, host);
    for (int m = 0; m < MESSAGES; m++) {
        int32_t *message = host + m * COUNT;
        for (int i = 0; i < COUNT; i++) message[i] = 1000 * m + i;
        void *slot;
        const void *taken;
        if (self->coordinate == 0) {
            SL_TRY(sl_channel_acquire(self, &channel, &slot));
            sl_device.copy(slot, message, COUNT * sizeof *host);
            SL_TRY(sl_channel_post(self, &channel));
        } else {
            SL_TRY(sl_channel_take(self, &channel, &taken));
            memset(message, 0xff, COUNT * sizeof *host);
            if (m % 3 == 0) sl_device.copy(message, taken, COUNT * sizeof *host);
            for (int i = 0; i < COUNT && m % 3 == 0; i++) CHECK(self, message[i] == 1000 * m + i);
            if (m % 3 != 2) sl_device.zero((void *)(uintptr_t)taken, COUNT * sizeof *host);
            SL_TRY(sl_channel_release(self, &channel));
        }
    }
    SL_TRY(sl_device.settle(&self->error));
    sl_device.give_host(host);
    return SL_OK;
}

static void slots_are_used_again_when_queues_are_done(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) expect_ok("x=2", wiping_program, NULL);
}

/* Host memory may be changed as soon as a call has ended, even if the results are on the device. */
static int sending_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    enum { COUNT = 200, CALLS = 40 };
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    int32_t x[COUNT], *y = sl_device.take(CALLS * COUNT * sizeof *y), *all = calloc(CALLS * COUNT, sizeof *all);
    CHECK(self, y && all);
    for (int c = 0; c < CALLS; c++) {
        for (int i = 0; i < COUNT; i++) x[i] = 1000 * c + i;
        SL_TRY(sl_broadcast(self, &world, SL_I32, x, y + c * COUNT, COUNT, 0));
    }
    sl_device.copy(all, y, CALLS * COUNT * sizeof *all);
    for (int i = 0; i < CALLS * COUNT; i++) CHECK(self, all[i] == 1000 * (i / COUNT) + i % COUNT);
    sl_device.give(y);
    free(all);
    return SL_OK;
}

static void host_memory_is_free_when_a_call_has_ended(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) expect_ok("x=2", sending_program, NULL);
}

/* Messages that are never taken are lost, without an error. */
static int leftover_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    SL_TRY(sl_channel_open(self, &channel, 0, 1, 64, 4));
    for (int i = 0; i < 4; i++) {
        void *slot;
        const void *message;
        if (self->coordinate == 0) {
            SL_TRY(acquire_slot(self, &channel, &slot));
            memset(slot, i, 64);
            SL_TRY(sl_channel_post(self, &channel));
        } else if (i < 2) {
            SL_TRY(take_slot(self, &channel, &message));
            CHECK(self, *(const char *)message == i);
            SL_TRY(sl_channel_release(self, &channel));
        }
    }
    return SL_OK;
}

static void leftover_messages_are_no_failure(void **state) {
    (void)state;
    expect_ok("x=2", leftover_program, NULL);
}

/* A NaN anywhere gives NaN, though NCCL may not. */
static int nan_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    float host[3] = {self->coordinate == 0 ? NAN : 1, self->coordinate == 1 ? NAN : 1, (float)self->coordinate};
    float *x = sl_device.take(sizeof host);
    CHECK(self, x);
    sl_device.copy(x, host, sizeof host);
    SL_TRY(sl_pmax(self, &world, SL_F32, x, x, 3));
    sl_device.copy(host, x, sizeof host);
    CHECK(self, isnan(host[0]) && isnan(host[1]) && host[2] == 1);
    sl_device.give(x);
    return SL_OK;
}

static void maxima_of_nan_are_nan(void **state) {
    (void)state;
    expect_ok("x=2", nan_program, NULL);
}

/* An absent member of a permutation is named, before any queue waits for it. */
static int no_source_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    const int pair[1][2] = {{1, 0}};
    SL_TRY(sl_group_axes(self, "*", &world));
    float *x = sl_device.take(8 * sizeof *x);
    CHECK(self, x);
    int status = SL_OK;
    if (self->coordinate != 1)
        status = sl_call(self, "permute.c:8", sl_describe_ppermute(&world, SL_F32, x, x + 4, 4, 1, pair));
    sl_device.give(x);
    return status;
}

static void absent_sources_are_named(void **state) {
    (void)state;
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .timeout = 30}), no_source_program, SL_FAILED,
                   "coordinate 1 (x=1) returned after ",
                   "coordinate 0 (x=0) waits for coordinate 1 in ppermute over \"*\" at permute.c:8");
}

/* A coordinate gives up while the others' queues wait for sums in flight. */
static int deserting_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world, pair;
    const int two[] = {0, 1};
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_group_list(self, 2, two, &pair));
    if (self->coordinate == 2) return sl_fail(self, SL_BAD_INPUT, "no such file");
    float *x = sl_device.take(4 * sizeof *x);
    CHECK(self, x);
    struct sl_request request;
    int status = sl_psum_start(self, &request, &world, SL_F32, x, x, 4);
    while (!status) status = sl_psum(self, &pair, SL_F32, x, x, 4);
    sl_device.give(x);
    return status;
}

static void deserters_leave_no_queue_waiting(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .timeout = 30}), deserting_program, SL_BAD_INPUT,
                       "coordinate 2 (x=2): no such file");
    }
}

/* One of several processes of a launcher cannot run on its own. */
static void launched_processes_need_mpi(void **state) {
    (void)state;
    struct sl_engine engine;
    struct sl_error error = {0};
    if (!sl_engine_find("mpi")->missing) {
        print_message("# this build has MPI\n");
        return;
    }
    setenv("PMI_SIZE", "2", 1);
    assert_int_equal(sl_engine_open(&engine, "nccl", &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "-DSL_MPI=ON"));
    setenv("PMI_SIZE", "1", 1);
    assert_int_equal(sl_engine_open(&engine, "nccl", &error), SL_OK);
    unsetenv("PMI_SIZE");
}

int main(int argc, char **argv) {
    char *const arguments[] = {argv[0], "nccl"};
    if (sl_engine_nccl.missing) {
        printf("1..0 # SKIP engine nccl is not in this build\n");
        return 0;
    }
    struct sl_error error;
    if (sl_device.check(&error) || sl_device.count() < 4) {
        printf("1..0 # SKIP there are no four GPUs\n");
        return 0;
    }
    (void)argc;
    begin_tests(2, (char **)arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_memory_is_as_good_as_the_hosts),
        cmocka_unit_test(queues_keep_the_order),
        cmocka_unit_test(messages_go_from_queue_to_queue),
        cmocka_unit_test(slots_are_used_again_when_queues_are_done),
        cmocka_unit_test(host_memory_is_free_when_a_call_has_ended),
        cmocka_unit_test(leftover_messages_are_no_failure),
        cmocka_unit_test(absent_sources_are_named),
        cmocka_unit_test(maxima_of_nan_are_nan),
        cmocka_unit_test(deserters_leave_no_queue_waiting),
        cmocka_unit_test(launched_processes_need_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
