/* complexity.h - tests how the time of a call grows with the size of its input.
 *
 * A row is measured at sizes n, 4n and 16n. With each doubling of the size, linear time (or nearly so) doubles, and
 * quadratic time becomes four times as long. The limit between them is 2.5. Other programs on the machine and its
 * caches make the longest call up to twice as long; over four doublings, they change the mean growth by a fifth at
 * most. */
#ifndef SL_TESTS_RIGS_COMPLEXITY_H
#define SL_TESTS_RIGS_COMPLEXITY_H

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COMPLEXITY_LIMIT 2.5
#define COMPLEXITY_SHORTEST 0.001 /* seconds of size n: shorter calls are repeated */
enum { COMPLEXITY_SIZES = 3, COMPLEXITY_ATTEMPTS = 12, COMPLEXITY_MOST_CALLS = 100000 };

struct complexity_row {
    char name[80];
    int n;
    void (*prepare)(const struct complexity_row *row, int n); /* not measured; may be NULL */
    void (*run)(const struct complexity_row *row, int n);
    const void *about;
    int argument;
};

static inline double complexity_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline double complexity_time(const struct complexity_row *row, int n, int calls) {
    const double begin = complexity_clock();
    for (int i = 0; i < calls; i++) row->run(row, n);
    return complexity_clock() - begin;
}

/* Returns how often to repeat the call, so clocks and caches do not matter. */
static inline int complexity_calls(const struct complexity_row *row, int n) {
    int calls = 1;
    while (calls < COMPLEXITY_MOST_CALLS) {
        const double time = complexity_time(row, n, calls);
        if (time >= COMPLEXITY_SHORTEST) break;
        const double wanted = calls * 1.2 * COMPLEXITY_SHORTEST / fmax(time, 1e-5);
        calls = wanted < 2 * calls ? 2 * calls : (int)wanted;
    }
    return calls;
}

/* Waits, longer with each attempt: other programs that share the machine's caches may end meanwhile. */
static inline void complexity_pause(int attempt) {
    const struct timespec pause = {.tv_nsec = 50000000L * attempt};
    nanosleep(&pause, NULL);
}

/* Tests the mean growth per doubling, from the shortest times so far. Other programs only make times longer, so a row
 * that grows too much is measured again before the test fails. */
static inline void complexity_test(void **state) {
    const struct complexity_row *row = *state;
    double best[COMPLEXITY_SIZES] = {INFINITY, INFINITY, INFINITY}, growth = INFINITY;
    int calls = 0;
    for (int attempt = 0; attempt < COMPLEXITY_ATTEMPTS && growth > COMPLEXITY_LIMIT; attempt++) {
        complexity_pause(attempt);
        for (int s = 0; s < COMPLEXITY_SIZES; s++) {
            const int n = row->n << 2 * s;
            if (row->prepare) row->prepare(row, n);
            if (!calls) calls = complexity_calls(row, n);
            for (int i = s; i < COMPLEXITY_SIZES; i++) best[s] = fmin(best[s], complexity_time(row, n, calls));
        }
        growth = pow(best[2] / best[0], 0.25);
    }
    print_message("# %s: %.2f a doubling; %d calls, n = %d: %.1f ms, %.1f ms, %.1f ms\n", row->name, growth, calls,
                  row->n, 1e3 * best[0], 1e3 * best[1], 1e3 * best[2]);
    if (growth > COMPLEXITY_LIMIT) fail_msg("%s: grows by %.2f a doubling", row->name, growth);
}

/* One test a row. */
static inline int complexity_run(const char *group, struct complexity_row *row, int rows) {
    struct CMUnitTest *test = calloc((size_t)rows, sizeof *test);
    if (!test) return 1;
    /* Free memory stays in the process: the kernel's time for new pages is not the reader's. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    for (int i = 0; i < rows; i++)
        test[i] = (struct CMUnitTest){.name = row[i].name, .test_func = complexity_test, .initial_state = &row[i]};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests(group, test, (size_t)rows, NULL, NULL);
    free(test);
    return failed;
}

#endif
