/* test_trace.c - a piece of work takes as long as it computes, however often its thread loses the core. */
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "collectives/engines.h"
#include "spmd/trace.h"

enum { COORDINATES = 4, PIECES = 200 };

struct record {
    struct sl_trace_event event[PIECES];
    double computed; /* CPU seconds of all pieces, and between them */
};

/* Computes without reading clocks: a thread that reads them may lose its core there. */
static void compute(void) {
    volatile double sum = 0;
    for (int i = 0; i < 150000; i++) sum = sum + i;
}

static int program(struct sl_spmd *self, void *arg) {
    struct record *record = &((struct record *)arg)[self->coordinate];
    struct sl_trace trace = {.self = self, .event = record->event, .capacity = PIECES};
    self->timed = true;
    const double began = sl_cpu_now();
    for (int i = 0; i < PIECES; i++) {
        const struct sl_trace_mark mark = sl_trace_begin(&trace);
        compute();
        sl_trace_end(&trace, mark, (struct sl_trace_event){.name = "F", .work = SL_TRACE_COMPUTE});
    }
    record->computed = sl_cpu_now() - began;
    return trace.count == PIECES ? SL_OK : SL_FAILED;
}

static void time_without_a_core_is_no_work(void **state) {
    (void)state;
    static struct record record[COORDINATES];
    cpu_set_t all, one;
    struct sl_mesh mesh;
    struct sl_engine engine;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(sl_mesh_parse(&mesh, "data=4", NULL), SL_OK);
    assert_int_equal(sl_engine_open(&engine, "local", NULL), SL_OK);
    assert_int_equal(sl_run(&mesh, &engine, program, record), SL_OK);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    for (int c = 0; c < COORDINATES; c++) {
        double took = 0, no_core = 0;
        for (int i = 0; i < PIECES; i++) {
            took += record[c].event[i].end - record[c].event[i].begin;
            no_core += record[c].event[i].no_core;
        }
        print_message("# %d: pieces took %.1f ms, of which no core %.1f; computed %.1f\n", c, 1e3 * took, 1e3 * no_core,
                      1e3 * record[c].computed);
        assert_true(took - no_core <= 1.05 * record[c].computed + 1e-3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(time_without_a_core_is_no_work)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
