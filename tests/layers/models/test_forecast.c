/* test_forecast.c - forecasts of a step's time from profiles, with known steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "layers/models/forecast.h"
#include "spmd/schedule/registry.h"

enum { MICROBATCHES = 4, STEPS = 10 };

struct job {
    struct sl_mesh mesh;
    struct sl_schedule schedule;
    struct sl_trace_run run;
    struct sl_watch watch[8];
};

/* COORDINATE computes for SECONDS a step, from FIRST to LAST. */
static void computes(struct job *job, int coordinate, double first, double last, double seconds) {
    struct sl_profile *profile = &job->watch[coordinate].profile;
    profile->first = STEPS * first;
    profile->last = STEPS * last;
    profile->computing = STEPS * seconds;
}

/* Every coordinate computes for 12 ms a step, a ms for each part of a microbatch, and updates for 2. */
static void open_job(struct job *job, const char *mesh, int cores) {
    struct sl_error error;
    memset(job, 0, sizeof *job);
    assert_int_equal(sl_mesh_parse(&job->mesh, mesh, &error), SL_OK);
    const int ranks = sl_mesh_axis_size(&job->mesh, "pipe");
    assert_int_equal(sl_schedule_make(&job->schedule, "gpipe", ranks, 1, MICROBATCHES, &error), SL_OK);
    assert_int_equal(sl_schedule_lower(&job->schedule, &error), SL_OK);
    job->run = (struct sl_trace_run){.mesh = &job->mesh,
                                     .pipe_axis = "pipe",
                                     .data_axis = "data",
                                     .schedule = &job->schedule,
                                     .passes = 1,
                                     .wgrad_group = 1,
                                     .cores = cores};
    for (int c = 0; c < job->mesh.size; c++) {
        double *seconds = job->watch[c].profile.seconds;
        seconds[SL_WORK_PRODUCTS] = STEPS * 8e-3;
        seconds[SL_WORK_KERNELS] = STEPS * 2e-3;
        seconds[SL_WORK_COMMUNICATION] = STEPS * 1.5e-3;
        seconds[SL_WORK_OTHER] = STEPS * 0.5e-3;
        seconds[SL_WORK_OPTIMIZER] = STEPS * 2e-3;
        computes(job, c, 0, 12e-3, 12e-3);
    }
}

static struct sl_step_forecast forecast(const struct job *job) {
    struct sl_step_forecast forecast;
    struct sl_error error;
    if (sl_step_forecast_make(&forecast, &job->run, job->watch, STEPS, &error)) fail_msg("%s", error.message);
    return forecast;
}

static bool near(double a, double b) { return fabs(a - b) < 1e-9; }

static void one_rank_takes_its_work(void **state) {
    struct job job;
    (void)state;
    open_job(&job, "data=2,pipe=1", 2);
    const struct sl_step_forecast told = forecast(&job);
    assert_true(near(told.ms, 14) && near(told.bubble, 0));
    assert_true(near(told.measured_ms, 14) && near(told.measured_bubble, 0));
    assert_true(told.most == SL_WORK_KERNELS && near(told.most_ms, 2));
    sl_schedule_free(&job.schedule);
}

/* Forward passes the ramp once, and so do input gradients: weight gradients of the last microbatch come at the end. Of
 * two ranks with 12 ms each one waits for a forward and an input gradient, or for a whole backward. */
static void ranks_wait_for_each_other(void **state) {
    struct job job;
    (void)state;
    open_job(&job, "pipe=2", 2);
    for (int c = 0; c < 2; c++) job.watch[c].profile.seconds[SL_WORK_NOT_READY] = STEPS * 3e-3;
    computes(&job, 0, 1e-3, 16e-3, 12e-3);
    computes(&job, 1, 2e-3, 14e-3, 9e-3);
    const struct sl_step_forecast told = forecast(&job);
    assert_true(told.ms >= 14 + 2 - 1e-9 && told.ms <= 14 + 3 + 1e-9);
    assert_true(near(told.bubble, 1 - 12 / (told.ms - 2)));
    assert_true(near(told.measured_ms, 17) && near(told.measured_bubble, 1 - 21.0 / (2 * 15)));
    assert_true(told.most == SL_WORK_NOT_READY && near(told.most_ms, 3));
    sl_schedule_free(&job.schedule);
}

/* Two steps: computation is counted from their beginnings, without the coordinate's other work. */
static void compute_is_added_up(void **state) {
    struct sl_profile profile = {.computing = 0};
    (void)state;
    for (int step = 0; step < 2; step++) {
        sl_profile_step(&profile);
        const double began = profile.began = sl_now() - 10; /* seconds ago */
        profile.latest = 0;
        sl_profile_compute(&profile, began + 4);
        sl_profile_compute(&profile, sl_now());
    }
    assert_true(fabs(profile.first - 8) < 1 && fabs(profile.last - 20) < 1 && fabs(profile.computing - 12) < 1);
    const struct sl_profile pair[] = {profile, {.computing = 0}};
    assert_true(fabs(sl_profile_bubble(pair, sizeof *pair, 2) - 0.5) < 0.1);
    assert_true(isnan(sl_profile_bubble(&pair[1], sizeof *pair, 1)));
}

/* Four coordinates on two cores take at least twice as long, and the bubble is unknown. */
static void cores_may_be_shared(void **state) {
    struct job job;
    (void)state;
    open_job(&job, "data=2,pipe=2", 2);
    const struct sl_step_forecast told = forecast(&job);
    assert_true(told.ms >= 2 * 14 - 1e-9);
    assert_true(isnan(told.measured_bubble));
    sl_schedule_free(&job.schedule);
}

/* The slower rank counts; a rank's replicas are taken in the mean. Passes but the last end without the optimizer. */
static void ranks_differ_and_passes_follow(void **state) {
    struct job job;
    (void)state;
    open_job(&job, "data=2,pipe=2", 4);
    const double before = forecast(&job).ms;
    job.watch[1].profile.seconds[SL_WORK_PRODUCTS] += STEPS * 12e-3;
    job.watch[3].profile.seconds[SL_WORK_PRODUCTS] += STEPS * 12e-3;
    const double after = forecast(&job).ms;
    assert_true(after >= 2 * 12 + 2 && after > before);
    sl_schedule_free(&job.schedule);
    open_job(&job, "pipe=1", 1);
    job.run.passes = 3;
    assert_true(near(forecast(&job).ms, 14));
    sl_schedule_free(&job.schedule);
}

static void bytes_are_those_of_the_fullest(void **state) {
    struct job job;
    (void)state;
    open_job(&job, "pipe=2", 2);
    job.watch[0].planned.bytes[SL_MEMORY_KEPT] = 1000;
    job.watch[0].held.bytes[SL_MEMORY_KEPT] = 1000;
    job.watch[1].planned.bytes[SL_MEMORY_KEPT] = 3000;
    job.watch[1].held.bytes[SL_MEMORY_KEPT] = 2900;
    const struct sl_step_forecast told = forecast(&job);
    assert_true(told.planned == 3000 && told.held == 2900);
    char text[512] = "";
    FILE *stream = fmemopen(text, sizeof text, "w");
    assert_non_null(stream);
    sl_step_forecast_print(&told, stream);
    fclose(stream);
    assert_non_null(strstr(text, " ms a step, measured 14; planned 3.0 KB a coordinate, held 2.9; bubble predicted "));
    assert_non_null(strstr(text, "\nafter products, most time goes to norms and other passes over rows: 2 ms\n"));
    sl_schedule_free(&job.schedule);
}

static void no_step_shows_nothing(void **state) {
    struct job job;
    struct sl_step_forecast told;
    struct sl_error error;
    (void)state;
    open_job(&job, "pipe=1", 1);
    assert_int_equal(sl_step_forecast_make(&told, &job.run, job.watch, 0, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "1 step at least"));
    sl_schedule_free(&job.schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_its_work),
        cmocka_unit_test(ranks_wait_for_each_other),
        cmocka_unit_test(compute_is_added_up),
        cmocka_unit_test(cores_may_be_shared),
        cmocka_unit_test(ranks_differ_and_passes_follow),
        cmocka_unit_test(bytes_are_those_of_the_fullest),
        cmocka_unit_test(no_step_shows_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("forecast", tests, NULL, NULL);
}
