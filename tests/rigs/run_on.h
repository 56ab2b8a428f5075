/* run_on.h - runs a test's program on a mesh; assertions stay in the test's own thread. */
#ifndef SL_TESTS_RIGS_RUN_ON_H
#define SL_TESTS_RIGS_RUN_ON_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/channel.h"
#include "collectives/engines.h"
#include "collectives/waits.h"
#include "spmd/device/device.h"

static const char *test_engine = "local"; /* the test's argument */

/* The second argument is "few": run fewer settings, because another preset runs all of them in less time. */
static bool test_runs_few;

/* The second argument is "small": run fewer settings, because products are slow. */
static bool test_is_small;

/* The build has ThreadSanitizer. It finds nothing in a single thread's work, so such tests run fewer settings here;
 * AddressSanitizer and the other presets run more. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
enum { TEST_WATCHES_THREADS = __has_feature(thread_sanitizer) };

/* Returns whether all coordinates share this process's memory. */
static inline bool shares_memory(void) { return !strcmp(test_engine, "local"); }

/* Returns whether the engine compares members' calls in any mode, except for lines and pairs. */
static inline bool compares_always(void) { return strcmp(test_engine, "nccl") != 0; }

/* Returns whether coordinate 0's results are in this process's memory. */
static inline bool has_results(void) {
    const struct sl_engine engine = {.table = sl_engine_find(test_engine)};
    return sl_speaks(&engine);
}

/* Reads the engine from the command line, and a pattern of test names from SL_TEST_FILTER. If several processes run the
 * same tests, the first prints TAP, the others print failures on stderr. */
static inline void begin_tests(int argc, char **argv) {
    struct sl_engine engine;
    struct sl_error error;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("SL_TEST_FILTER"));
    if (argc > 1) test_engine = argv[1];
    test_is_small = argc > 2 && !strcmp(argv[2], "small");
    test_runs_few = argc > 2 && !strcmp(argv[2], "few") && !getenv("SL_TEST_LONG");
    if (sl_engine_open(&engine, test_engine, &error)) {
        printf("Bail out! %s\n", error.message);
        exit(error.status);
    }
    if (has_results()) return;
    cmocka_set_message_output(CM_OUTPUT_STDOUT);
    if (!freopen("/dev/null", "w", stdout)) exit(SL_FAILED);
}

struct test_run {
    const char *mesh;
    bool checked;
    double timeout;         /* 0: the engine's own */
    double delay;           /* seconds */
    struct sl_waits *waits; /* receives who waits for whom; NULL: nothing */
    void *arg;
};

/* Returns the run's status; *ERROR is its verdict. */
static inline int run_on(struct test_run run, sl_program *program, struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    *error = (struct sl_error){0};
    assert_int_equal(sl_mesh_parse(&mesh, run.mesh, error), SL_OK);
    assert_int_equal(sl_engine_open(&engine, test_engine, error), SL_OK);
    engine.checked = run.checked;
    if (run.timeout > 0) engine.timeout = run.timeout;
    engine.delay = run.delay;
    engine.spare = true;
    engine.error = error;
    engine.waits = run.waits;
    return sl_run(&mesh, &engine, program, run.arg);
}

/* The program succeeds in both modes. */
static inline void expect_ok(const char *mesh, sl_program *program, void *arg) {
    for (int checked = 0; checked < 2; checked++) {
        struct sl_error error;
        const int status = run_on((struct test_run){.mesh = mesh, .checked = checked, .arg = arg}, program, &error);
        if (status) fail_msg("on %s%s: status %d: %s", mesh, checked ? ", checked" : "", status, error.message);
    }
}

/* Seconds after which a deadlock is certain enough; with shared memory it is proven at once. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOWLY 2
#endif
#endif
#ifndef SLOWLY
#define SLOWLY 1
#endif
static const double test_patience = SLOWLY;

/* Runs PROGRAM and fails unless it ends with STATUS and a verdict that contains all of the NULL-terminated TEXTS. */
static inline void expect_verdict(struct test_run run, sl_program *program, int status, const char *const *texts) {
    struct sl_error error;
    if (!shares_memory() && run.timeout == 0) run.timeout = test_patience;
    const int got = run_on(run, program, &error);
    if (got != status) fail_msg("status %d, not %d: %s", got, status, error.message);
    for (; *texts; texts++) {
        if (!strstr(error.message, *texts)) fail_msg("\"%s\" is not in: %s", *texts, error.message);
    }
}
#define EXPECT_VERDICT(run, program, status, ...)                                                                      \
    expect_verdict(run, program, status, (const char *const[]){__VA_ARGS__, NULL})

/* In a program: fails it, and reports the line, if CONDITION is false. */
#define CHECK(self, condition)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) return sl_fail(self, SL_CHECK_FAILED, "line %d: %s", __LINE__, #condition);                  \
    } while (0)

/* Returns the slot after the queue has ended its work on it, so the host may write and read it. */
static inline int acquire_slot(struct sl_spmd *self, struct sl_channel *channel, void **slot) {
    SL_TRY(sl_channel_acquire(self, channel, slot));
    return sl_device.settle(&self->error);
}
static inline int take_slot(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    SL_TRY(sl_channel_take(self, channel, slot));
    return sl_device.settle(&self->error);
}

/* Ends a call by waiting, or by testing until it has ended; now and then by both. */
static inline int end_call(struct sl_spmd *self, struct sl_request *request, int tests) {
    bool done = false;
    for (int i = 0; !done && (tests < 0 || i < tests); i++) {
        SL_TRY(sl_test(self, request, &done));
        if (!done) sched_yield();
    }
    return done ? SL_OK : sl_wait(self, request);
}

/* 32 well mixed bits of X. */
static inline uint32_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(x >> 32 ^ x >> 3);
}

/* A sequence of random numbers, the same wherever it begins with the same state. */
static inline int pick(uint64_t *state, int below) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return (int)(mix(*state) % (uint32_t)below);
}

/* A call of each operation, for tests that count. */
enum { COUNTED_CALLS = 14 };

/* Makes CALL case number I of a call over GROUP; false: there are no more. */
static inline bool make_call(const struct sl_group *group, int i, size_t n, char *in, char *out,
                             struct sl_collective *call) {
    int pairs[group->size][2];
    for (int k = 0; k < group->size; k++) pairs[k][0] = k, pairs[k][1] = (k + 1) % group->size;
    const struct sl_collective cases[COUNTED_CALLS] = {
        sl_describe_barrier(group),
        sl_describe_ppermute(group, SL_F32, in, out, n, group->size, (const int(*)[2])pairs),
        sl_describe_psum(group, SL_F32, in, out, n),
        sl_describe_pmean(group, SL_BF16, in, out, n),
        sl_describe_pmax(group, SL_F32, in, out, n),
        sl_describe_psum(group, SL_I32, in, out, n),
        sl_describe_psum_tree(group, SL_F32, in, out, n),
        sl_describe_psum_scatter(group, SL_F32, in, out, n),
        sl_describe_psum_scatter_tree(group, SL_F32, in, out, n),
        sl_describe_all_gather(group, SL_F32, in, out, n),
        sl_describe_all_to_all(group, SL_F32, in, out, 2,
                               (const size_t[]){(size_t)group->size, n * (size_t)group->size}, 0, 1),
        sl_describe_broadcast(group, SL_F32, in, out, n, group->size - 1),
        sl_describe_gather(group, SL_F32, in, out, n, 0),
        sl_describe_psum(group, SL_F32, out, out, 0),
    };
    if (i < COUNTED_CALLS) *call = cases[i];
    return i < COUNTED_CALLS;
}

/* Returns the elements of an input, and of an output, that case number I needs in a group of SIZE members. Cases from
 * number 7 on have a block for each member; all_to_all has as many as the square of their number. */
static inline size_t counted_elements(int i, size_t n, size_t size) {
    return i == 10 ? n * size * size : i > 6 ? n * size : n;
}

#endif
