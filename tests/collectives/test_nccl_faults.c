/* test_nccl_faults.c - faults in NCCL end the run with the call's name: errors, calls that hang, lost messages, also in
 * graphs of a step. Threads in place of GPUs fail to order (tests/fake_cuda). */
#include "tests/rigs/run_on.h"

/* Makes a call of each kind that opening groups does not use. The host waits for its queue after each. */
static int faulty_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    float *x = sl_device.take(30 * sizeof *x), *y = sl_device.take(30 * sizeof *y);
    int status = x && y ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
    for (int i = 0; i < 3 && !status; i++) {
        const struct sl_collective call = i == 0   ? sl_describe_psum_scatter(&world, SL_F32, x, y, 10)
                                          : i == 1 ? sl_describe_broadcast(&world, SL_F32, x, x, 10, 0)
                                                   : sl_describe_all_gather(&world, SL_F32, x, y, 10);
        status = sl_call(self, i == 0 ? "sum.c:1" : i == 1 ? "cast.c:2" : "gather.c:3", call);
        if (!status) status = sl_device.settle(&self->error);
    }
    if (!status) status = sl_barrier(self, &world);
    sl_device.give(x);
    sl_device.give(y);
    return status;
}

static void expect_fault(const char *variable, const char *order, double timeout, const char *what, const char *why) {
    const double began = sl_now();
    setenv(variable, order, 1);
    EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .timeout = timeout}), faulty_program, SL_FAILED, "coordinate ",
                   what, why);
    unsetenv(variable);
    assert_true(sl_now() - began < 20);
    expect_ok("x=3", faulty_program, NULL); /* and no trace of it remains */
}

static void asynchronous_errors_end_the_run(void **state) {
    (void)state;
    expect_fault("FAKE_NCCL_FAIL", "ncclReduceScatter@2", 30, "psum_scatter over \"*\" at sum.c:1",
                 "remote process exited or there was a network error");
    expect_fault("FAKE_NCCL_FAIL", "ncclBroadcast@1", 30, "broadcast over \"*\" at cast.c:2", "network error");
}

/* A failure on a GPU is not reported as a slow call. */
static void failures_on_devices_end_the_run(void **state) {
    (void)state;
    expect_fault("FAKE_CUDA_FAIL", "cudaEventQuery@1", 30, "over \"*\"", "cudaEventQuery: unknown error");
}

static void calls_that_hang_are_aborted(void **state) {
    (void)state;
    expect_fault("FAKE_NCCL_HANG", "ncclBroadcast@3", 0.5, "broadcast over \"*\" at cast.c:2",
                 "has not ended after 0.5 s, though all that it needs have begun it");
}

static void refused_calls_end_the_run(void **state) {
    (void)state;
    expect_fault("FAKE_NCCL_REFUSE", "ncclAllGather@2", 30, "all_gather over \"*\" at gather.c:3: ncclAllGather",
                 "internal error");
    expect_fault("FAKE_NCCL_REFUSE", "ncclGetUniqueId@1", 30, "the opening of a group", "unhandled system error");
}

/* The receiver's half of a message gets lost; the host waits for it in its queue. */
static int lost_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_channel channel;
    const void *message;
    void *slot;
    SL_TRY(sl_channel_open_at(self, "open.c:4", &channel, 0, 1, 100, 2));
    for (int i = 0; i < 3; i++) {
        if (self->coordinate == 0) {
            SL_TRY(acquire_slot(self, &channel, &slot));
            SL_TRY(sl_channel_post(self, &channel));
        } else {
            SL_TRY(take_slot(self, &channel, &message));
            SL_TRY(sl_channel_release(self, &channel));
        }
    }
    return SL_OK;
}

static void lost_messages_are_noticed(void **state) {
    (void)state;
    setenv("FAKE_NCCL_HANG", "ncclRecv@3", 1);
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .timeout = 0.5}), lost_program, SL_FAILED, "coordinate ",
                   "on channel 0 -> 1, opened at open.c:4: has not ended after 0.5 s");
    unsetenv("FAKE_NCCL_HANG");
}

/* A coordinate that leaves the run, and its step. */
struct leaver {
    int coordinate, step;
};

/* Steps that become graphs. ARG: the leaver, or NULL. A step's messages fit into the slots. */
static int replayed_program(struct sl_spmd *self, void *arg) {
    enum { STEPS = 8, MESSAGES = 4 };
    struct sl_channel channel;
    SL_TRY(sl_channel_open_at(self, "open.c:5", &channel, 0, 1, 4 * sizeof(float), 4));
    float *x = sl_device.take(4 * sizeof *x);
    CHECK(self, x);
    const struct leaver *leaver = arg;
    int status = SL_OK;
    for (int step = 0; step < STEPS && !status; step++) {
        if (leaver && self->coordinate == leaver->coordinate && step == leaver->step) break;
        sl_device.begin_step(x, SL_GRAPHS_ON);
        for (int m = 0; m < MESSAGES && !status; m++) {
            void *slot = NULL;
            const void *message = NULL;
            status = self->coordinate == 0 ? sl_channel_acquire(self, &channel, &slot)
                                           : sl_channel_take(self, &channel, &message);
            if (status) break;
            sl_device.copy(slot ? slot : x, slot ? x : message, 4 * sizeof *x);
            status = slot ? sl_channel_post(self, &channel) : sl_channel_release(self, &channel);
        }
        sl_channels_rest(self);
        sl_device.end_step();
        if (!status) status = sl_device.settle(&self->error);
    }
    if (!status) status = sl_progress(self);
    struct sl_graph_report report;
    sl_device.report_graphs(&report);
    if (!status && !arg && report.replayed != STEPS - 2) status = sl_fail(self, SL_FAILED, "%s", report.why);
    sl_device.give(x);
    return status;
}

static void messages_that_are_lost_in_graphs_are_noticed(void **state) {
    (void)state;
    expect_ok("x=2", replayed_program, NULL);
    setenv("FAKE_NCCL_HANG", "ncclRecv@11", 1); /* captured in the third step */
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .timeout = 0.5}), replayed_program, SL_FAILED, "coordinate ",
                   "on channel 0 -> 1, opened at open.c:5: has not ended after 0.5 s");
    unsetenv("FAKE_NCCL_HANG");
    struct leaver sender = {0, 5}, receiver = {1, 5};
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .timeout = 30, .arg = &receiver}), replayed_program, SL_FAILED,
                   "coordinate 1 (x=1) returned after ",
                   "coordinate 0 (x=0) waits for coordinate 1 in acquire on channel 0 -> 1, opened at open.c:5");
    EXPECT_VERDICT(((struct test_run){.mesh = "x=2", .timeout = 30, .arg = &sender}), replayed_program, SL_FAILED,
                   "coordinate 0 (x=0) returned after ",
                   "coordinate 1 (x=1) waits for coordinate 0 in take on channel "
                   "0 -> 1, opened at open.c:5");
}

int main(int argc, char **argv) {
    char *const arguments[] = {argv[0], "nccl"};
    if (sl_engine_nccl.missing || !getenv("FAKE_CUDA_DEVICES")) {
        printf("1..0 # SKIP only threads in the place of GPUs fail to order\n");
        return 0;
    }
    (void)argc;
    begin_tests(2, (char **)arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asynchronous_errors_end_the_run),
        cmocka_unit_test(failures_on_devices_end_the_run),
        cmocka_unit_test(calls_that_hang_are_aborted),
        cmocka_unit_test(refused_calls_end_the_run),
        cmocka_unit_test(lost_messages_are_noticed),
        cmocka_unit_test(messages_that_are_lost_in_graphs_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
