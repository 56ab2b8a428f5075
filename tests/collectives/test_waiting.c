/* test_waiting.c - parts of the time of waits: engine local's account of them, and profiles, whose kinds of work add up
 * to all of the time. */
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "collectives/channel.h"
#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "layers/modules/calls/profile.h"

/* Seconds. */
struct record {
    double waited, transferred, starved, at_work, elapsed;
    struct sl_profile profile;
};

struct job {
    double delay, work[2]; /* CPU seconds of each coordinate before they meet */
    int (*meet)(struct sl_spmd *self);
    struct record record[2];
};

static void work(double seconds) {
    const double end = sl_cpu_now() + seconds;
    while (sl_cpu_now() < end) continue;
}

static int program(struct sl_spmd *self, void *arg) {
    struct job *job = arg;
    struct record *record = &job->record[self->coordinate];
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    sl_profile_start(&record->profile, self);
    SL_TRY(sl_barrier(self, &world)); /* both have a stamp, and begin together */
    const double began = sl_now(), at_work = sl_starved_at_work(self, began, sl_cpu_now());
    const struct record before = {.waited = self->waited, .transferred = self->transferred, .starved = self->starved};
    sl_profile_start(&record->profile, self);
    const enum sl_work kind = sl_profile_begin(&record->profile, SL_WORK_KERNELS);
    work(job->work[self->coordinate]);
    sl_profile_begin(&record->profile, SL_WORK_COMMUNICATION);
    SL_TRY(job->meet(self));
    sl_profile_end(&record->profile, kind);
    record->elapsed = sl_now() - began;
    record->waited = self->waited - before.waited;
    record->transferred = self->transferred - before.transferred;
    record->starved = self->starved - before.starved;
    record->at_work = sl_starved_at_work(self, began + record->elapsed, sl_cpu_now()) - at_work;
    return SL_OK;
}

static int send_and_take(struct sl_spmd *self) {
    struct sl_channel channel;
    void *slot;
    const void *message;
    SL_TRY(sl_channel_open(self, &channel, 0, 1, 64, 2));
    if (self->coordinate == 0) {
        SL_TRY(sl_channel_acquire(self, &channel, &slot));
        return sl_channel_post(self, &channel);
    }
    SL_TRY(sl_channel_take(self, &channel, &message));
    return sl_channel_release(self, &channel);
}

static int sum(struct sl_spmd *self) {
    struct sl_group world;
    float one = 1;
    SL_TRY(sl_group_axes(self, "*", &world));
    return sl_psum(self, &world, SL_F32, &one, &one, 1);
}

static double bubble(const struct record *record) { return record->waited - record->transferred - record->starved; }

/* Returns whether RECORD's kinds of work add up, and its own work took WORK seconds. Wall time and CPU time are read
 * one after the other: if a thread loses its core in between, neither need hold. */
static bool adds_up(const struct record *record, double work) {
    const double *seconds = record->profile.seconds, own = seconds[SL_WORK_KERNELS];
    double all = 0;
    for (int w = 0; w < SL_WORKS; w++) all += seconds[w];
    const double apart = record->elapsed - all - (record->at_work - seconds[SL_WORK_NO_CORE] + record->starved);
    return apart > -5e-3 && apart < 5e-3 && own > 0.9 * work && own < 1.1 * work + 1e-3;
}

/* Checks the properties that hold under any load of the machine. Returns whether the times add up, too, as they must in
 * one of several attempts. */
static bool run_job(struct job *job) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    bool all = true;
    assert_int_equal(sl_mesh_parse(&mesh, "data=2", NULL), SL_OK);
    assert_int_equal(sl_engine_open(&engine, "local", NULL), SL_OK);
    engine.delay = job->delay;
    assert_int_equal(sl_run(&mesh, &engine, program, job), SL_OK);
    for (int c = 0; c < 2; c++) {
        const struct record *record = &job->record[c];
        print_message("# %d: %.1f ms: waited %.2f, bubble %.2f, transfer %.2f, no core %.2f and at work %.2f\n", c,
                      1e3 * record->elapsed, 1e3 * record->waited, 1e3 * bubble(record), 1e3 * record->transferred,
                      1e3 * record->starved, 1e3 * record->at_work);
        assert_true(record->transferred >= 0 && record->starved >= 0 && bubble(record) > -1e-6);
        assert_true(record->profile.divided);
        all = all && adds_up(record, job->work[c]);
    }
    return all;
}

/* The message is sent at once: nearly all of the wait is the delay. If other programs use the cores, the sender may
 * begin late: one of several attempts has to be in time. */
static void a_delay_is_transfer(void **state) {
    (void)state;
    int (*const meet[])(struct sl_spmd *) = {send_and_take, sum};
    for (int i = 0; i < 2; i++) {
        bool in_time = false;
        for (int attempt = 0; attempt < 10 && !in_time; attempt++) {
            struct job job = {.delay = 0.03, .meet = meet[i]};
            in_time = run_job(&job) && job.record[1].transferred > 0.02 &&
                      bubble(&job.record[1]) < 0.1 * job.record[1].transferred;
        }
        assert_true(in_time);
    }
}

/* The sender computes for a while: that is bubble, however long the sender takes on a machine with other work. */
static void a_late_sender_is_bubble(void **state) {
    (void)state;
    int (*const meet[])(struct sl_spmd *) = {send_and_take, sum};
    for (int i = 0; i < 2; i++) {
        bool in_time = false;
        for (int attempt = 0; attempt < 10 && !in_time; attempt++) {
            struct job job = {.work = {0.03, 0}, .meet = meet[i]};
            in_time = run_job(&job) && bubble(&job.record[1]) > 0.025 && bubble(&job.record[1]) < 0.035;
        }
        assert_true(in_time);
    }
}

/* Both compute for the same time on one core: the shared core causes their waits for each other. */
static void one_core_for_two_is_no_core(void **state) {
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    bool in_time = false;
    for (int attempt = 0; attempt < 10 && !in_time; attempt++) {
        struct job job = {.work = {0.04, 0.04}, .meet = sum};
        in_time = run_job(&job);
        double starved = 0;
        for (int c = 0; c < 2; c++) starved += job.record[c].starved + job.record[c].at_work;
        assert_true(starved > 0.03);
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(in_time);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delay_is_transfer),
        cmocka_unit_test(a_late_sender_is_bubble),
        cmocka_unit_test(one_core_for_two_is_no_core),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
