/* test_overlap.c - a loop's gradients are sent while other loops compute, and a slow network is hidden as in the
 * simulation. Every message and every sum has a delay, so long that computation takes no time beside it. */
#include <math.h>
#include <string.h>

#include "tests/rigs/trainer_rig.h"

#include "spmd/schedule/simulate.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

enum { LOOPS = 4, MICROBATCHES = 4, TRACED = 4096, STEP_COUNT = 3 };
static double delay = 0.01; /* seconds, of a message or a sum */
static const double shortest = 0.005, longest = 0.16;

struct record {
    struct sl_trace trace[MOST_COORDINATES];
    double seconds; /* of the fastest step after the first, on coordinate 0 */
};

static int train_traced(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    struct record *record = job->user;
    struct sl_trace *trace = &record->trace[self->coordinate];
    trace->self = self;
    for (int step = 0; step < STEP_COUNT; step++) {
        const double began = sl_now();
        if (step == 1) sl_trainer_set_trace(trainer, trace);
        SL_TRY(train_steps(self, job, trainer, step, step + 1));
        const double seconds = sl_now() - began;
        if (self->coordinate == 0 && step > 0 && (record->seconds == 0 || seconds < record->seconds))
            record->seconds = seconds;
    }
    return SL_OK;
}

/* Two replicas of a looping pipeline on two ranks. SHAPE NULL: the rig's; SHARDED: as of the table. */
static struct job run_delayed(struct record *record, bool overlap, const struct sl_classifier *shape, bool sharded) {
    struct job job = {.mesh = "data=2,model=2",
                      .schedule = "looped-bfs",
                      .loops = LOOPS,
                      .layers = 2 * LOOPS,
                      .microbatches = MICROBATCHES,
                      .group = MICROBATCHES,
                      .steps = STEP_COUNT,
                      .zero = true,
                      .overlap = overlap,
                      .delay = delay,
                      .shape = shape,
                      .sharded = sharded,
                      .module_axes = shape ? sl_classifier_axes(shape) : NULL,
                      .rules = shape ? sl_classifier_rules(shape) : NULL,
                      .train = train_traced,
                      .user = record};
    *record = (struct record){0};
    for (int c = 0; c < 4; c++) {
        record->trace[c].event = calloc(TRACED, sizeof *record->trace[c].event);
        record->trace[c].capacity = TRACED;
        assert_non_null(record->trace[c].event);
    }
    run_job(&job);
    for (int c = 0; c < 4; c++) assert_int_equal(record->trace[c].dropped, 0);
    return job;
}

static void free_record(struct record *record) {
    for (int c = 0; c < 4; c++) free(record->trace[c].event);
}

/* The event called NAME of LOOP in STEP: the last one. */
static const struct sl_trace_event *find(const struct sl_trace *trace, const char *name, int step, int loop) {
    const struct sl_trace_event *found = NULL;
    for (int i = 0; i < trace->count; i++) {
        const struct sl_trace_event *event = &trace->event[i];
        if (event->work != SL_TRACE_WAITING && event->step == step && event->loop == loop && !strcmp(event->name, name))
            found = event;
    }
    if (!found) fail_msg("step %d has no %s of loop %d", step, name, loop);
    return found;
}

/* A sum over data begins after its loop's weight gradients, and before those of the loops below. */
static void reductions_run_beside_other_loops(void **state) {
    (void)state;
    struct record record;
    struct job job = run_delayed(&record, true, NULL, false);
    for (int c = 0; c < 4; c++) {
        for (int step = 1; step < STEP_COUNT; step++) {
            for (int loop = 0; loop < LOOPS; loop++) {
                const struct sl_trace_event *weights = find(&record.trace[c], "W", step, loop);
                const struct sl_trace_event *reduce = find(&record.trace[c], "reduce", step, loop);
                assert_true(reduce->begin >= weights->end);
                assert_true(reduce->end >= reduce->begin + 2 * delay); /* summed and gathered */
                if (loop > 0) assert_true(reduce->begin < find(&record.trace[c], "W", step, loop - 1)->begin);
            }
        }
    }
    free_record(&record);
    free_job(&job);
}

/* Returns the simulated time of a step. The metrics' sum comes after it. */
static double step_of(const struct job *job, const struct sl_costs *costs) {
    struct sl_simulation simulation;
    struct sl_error error;
    if (sl_schedule_simulate(&job->table, costs, &simulation, &error)) fail_msg("%s", error.message);
    const double step = simulation.step;
    sl_simulation_free(&simulation);
    return step + delay;
}

/* On a network with this delay. */
static double simulated(const struct job *job, bool overlap) {
    const struct sl_stage_costs stage = {.reduce = 2 * delay};
    const struct sl_costs costs = {
        .count = 1, .stage = &stage, .communication = delay, .overlap = overlap, .group = MICROBATCHES};
    return step_of(job, &costs);
}

/* Computation takes no time here, so steps differ by delays only. If other programs use the cores, a step is late by
 * about the same time for any delay: one of several attempts has to come within half a delay for each reduction, and
 * the next attempt has delays that are long compared with that lateness. No step may be early. */
enum { ATTEMPTS = 5 };

static double allowed(void) { return 0.5 * delay * LOOPS; }

/* Lengthens the delay after a step that was LATE, so the next attempt would allow half as much again. */
static void lengthen_delay(double late) { delay = fmin(longest, fmax(delay, 1.5 * late / (0.5 * LOOPS))); }

static void delays_are_hidden_as_simulated(void **state) {
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) {
        bool on_time = false;
        delay = shortest;
        for (int attempt = 0; attempt < ATTEMPTS && !on_time; attempt++) {
            struct record record;
            struct job job = run_delayed(&record, overlap, NULL, false);
            const double expected = simulated(&job, overlap);
            print_message("# %s overlap: %.1f ms, simulated %.1f ms\n", overlap ? "with" : "without",
                          1e3 * record.seconds, 1e3 * expected);
            assert_true(record.seconds > expected - 0.5 * delay);
            on_time = record.seconds < expected + allowed();
            if (!on_time) lengthen_delay(record.seconds - expected);
            free_record(&record);
            free_job(&job);
        }
        assert_true(on_time);
    }
}

/* ---- kernels over data ---- */

enum { STAGES = 2 * LOOPS };
static const struct sl_classifier over_data = {
    .inputs = INPUTS, .hidden = HIDDEN, .expansion = 2, .classes = CLASSES, .fsdp = true};

/* Returns the simulated time of a step that gathers a loop's kernels in UNSHARD. Gradients of kernels are scattered
 * while a rank waits for other ranks; only the last scatters of the first stage, at the end of a step, are waited
 * for. */
static double simulated_shards(const struct job *job, double unshard) {
    struct sl_stage_costs stage[STAGES];
    for (int s = 0; s < STAGES; s++)
        stage[s] = (struct sl_stage_costs){
            .weight_gradient = s == 0 ? delay / MICROBATCHES : 0, .reduce = 2 * delay, .unshard = unshard};
    const struct sl_costs costs = {
        .count = STAGES, .stage = stage, .communication = delay, .overlap = true, .group = MICROBATCHES};
    return step_of(job, &costs);
}

/* Each gather except the first begins while another loop computes, and ends before its own loop computes. */
static void expect_gathers_ahead(const struct sl_trace *trace) {
    for (int step = 1; step < STEP_COUNT; step++) {
        for (int loop = 1; loop < LOOPS; loop++) {
            const struct sl_trace_event *gather = find(trace, "unshard", step, loop);
            assert_true(gather->end >= gather->begin + delay);
        }
        const struct sl_trace_event *last = find(trace, "unshard", step, 0); /* for its backwards */
        assert_true(last->begin < find(trace, "I", step, 1)->begin);
        assert_true(last->end <= find(trace, "I", step, 0)->begin + 1e-3);
    }
}

/* Only the first gather of a step takes time, and every bit is the same as with a gather before each use. */
static void gathers_vanish_behind_other_loops(void **state) {
    (void)state;
    struct record record;
    bool on_time = false;
    delay = shortest;
    struct job late = run_delayed(&record, true, &over_data, false);
    const double late_seconds = record.seconds; /* of four times as many delays: no attempt does it again */
    free_record(&record);
    for (int attempt = 0; attempt < ATTEMPTS && !on_time; attempt++) {
        struct job job = run_delayed(&record, true, &over_data, true);
        const double expected = simulated_shards(&job, delay), none = simulated_shards(&job, 0);
        print_message(
            "# gathers ahead: %.1f ms, simulated %.1f ms, without gathers %.1f ms, for each use %.0f delays\n",
            1e3 * record.seconds, 1e3 * expected, 1e3 * none, late_seconds / shortest);
        assert_true(expected < none + 1.001 * delay);
        assert_true(record.seconds > expected - 0.5 * delay);
        if (attempt == 0) assert_true(record.seconds < late_seconds);
        on_time = record.seconds < expected + allowed();
        for (int c = 0; c < 4; c++) expect_gathers_ahead(&record.trace[c]);
        expect_same_store(&job.values, &late.values);
        expect_same_store(&job.gradients, &late.gradients);
        if (!on_time) lengthen_delay(record.seconds - expected);
        free_record(&record);
        free_job(&job);
    }
    assert_true(on_time);
    free_job(&late);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_run_beside_other_loops),
        cmocka_unit_test(delays_are_hidden_as_simulated),
        cmocka_unit_test(gathers_vanish_behind_other_loops),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
