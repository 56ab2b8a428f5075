/* training_end.c - the last object and lines of a training run, and the files written with them. */
#include "drivers/training/training_end.h"

#include <math.h>
#include <string.h>

#include "drivers/speed/profile_report.h"
#include "drivers/training/reports/saving_report.h"

/* Whether a checkpoint has the end of the run. */
static bool saves(const struct sl_training *training) {
    const struct sl_checkpoint_options *options = &training->checkpoints.options;
    return options->save && (sl_training_done(training) || !options->resume);
}

/* Returns options by name, as texts; omits options without a value. */
static json_t *options_of(const struct sl_signature *signature) {
    json_t *options = json_object();
    struct sl_signature_entry entry;
    for (size_t at = 0; options && sl_signature_next(signature->bytes, signature->size, &at, &entry);)
        if (!strncmp(entry.key, "--", 2) && strcmp(entry.text, "nan") != 0)
            json_object_set_new(options, entry.key, json_string(entry.text));
    return options;
}

static int run_of(const struct sl_training *training) { return sl_schedule_run(&training->job->schedule, SL_FORWARD); }

/* Returns the number of steps in the profile. */
static int64_t steps_profiled(const struct sl_training *training) {
    const int64_t done = sl_training_done(training) - 1;
    return !training->job->options->profile && done > SL_TRAINING_WATCHED ? SL_TRAINING_WATCHED : done;
}

struct sl_training_measured sl_training_measure(const struct sl_job *job, struct sl_step_times *times,
                                                const struct sl_profile *profile, int64_t profiled,
                                                const struct sl_memory *memory) {
    /* If coordinates share cores, waiting for a core would count as bubble. */
    const bool shared = job->sharing.cores > 0 && job->sharing.coordinates > job->sharing.cores;
    const bool known = !shared && profiled > 0;
    return (struct sl_training_measured){.steps = times->count,
                                         .median = sl_step_times_median(times),
                                         .fast = sl_step_times_quantile(times, 0.1),
                                         .slow = sl_step_times_quantile(times, 0.9),
                                         .bytes = sl_memory_most(memory, &job->mesh),
                                         .bubble = known ? sl_profile_bubble(profile, sizeof *profile, job->mesh.size)
                                                         : (double)NAN,
                                         .taken = known ? sl_profile_no_core(profile, job->mesh.size) : (double)NAN};
}

static struct sl_training_measured measured_of(struct sl_training *training) {
    return sl_training_measure(training->job, &training->report.times, training->profile, steps_profiled(training),
                               training->memory);
}

static void add_forecast(struct sl_training *training, json_t *object) {
    const struct sl_training_measured measured = measured_of(training);
    json_object_set_new(object, "predicted", training->forecast->json(training->forecast));
    if (!isnan(measured.bubble)) json_object_set_new(object, "measured_bubble", sl_json_real(measured.bubble));
}

static int report_end(struct sl_training *training, struct sl_error *error) {
    const struct sl_checkpoint_options *options = &training->checkpoints.options;
    json_t *object = training->type->end(training);
    char saved[SL_MAX_PATH];
    const int64_t step = training->checkpoints.first + sl_training_done(training);
    if (object) json_object_set_new(object, "memory", sl_memory_json(training->memory, &training->job->mesh));
    if (object)
        json_object_set_new(object, "processes", sl_memory_json_processes(training->memory, &training->job->mesh));
    if (object) json_object_set_new(object, "options", options_of(&training->command->signature));
    if (object) json_object_set_new(object, "coordinates", json_integer(training->job->mesh.size));
    if (object) json_object_set_new(object, "cores", json_integer(training->job->cores)); /* 0: unknown */
    if (object) json_object_set_new(object, "fused", json_integer(run_of(training)));
    if (object && training->forecast && training->forecast->made) add_forecast(training, object);
    if (object) sl_saving_describe(&training->checkpoints, object);
    if (object && training->interrupted) json_object_set_new(object, "interrupted", json_true());
    if (object && saves(training) && sl_checkpoint_at(options->save, step, saved))
        json_object_set_new(object, "saved", json_string(saved));
    if (object && !sl_training_done(training) && options->resume)
        json_object_set_new(object, "nothing_to_do", json_true());
    return sl_report_print(&training->report, object, error);
}

static void print_forecast(struct sl_training *training) {
    const struct sl_training_measured measured = measured_of(training);
    training->forecast->print(training->forecast, stdout, &measured);
}

int sl_training_finish(struct sl_training *training, struct sl_error *error) {
    struct sl_job *job = training->job;
    const struct sl_training_options *options = job->options;
    if (options->profile && !training->report.lost.status)
        SL_TRY(sl_profile_report(training->profile, &job->mesh, job->cores, sl_training_done(training) - 1,
                                 training->json, error));
    if (options->profile && !training->json)
        printf("a forward and an input gradient take %d of %d microbatches at once\n", run_of(training),
               job->schedule.microbatches);
    if (options->profile && options->graph) SL_TRY(sl_profile_graphs(&training->graphs, training->json, error));
    if (training->forecast)
        training->forecast->settle(training->forecast, training, steps_profiled(training), training->report.seconds);
    SL_TRY(report_end(training, error));
    if (!training->json && training->forecast && training->forecast->made) print_forecast(training);
    if (!training->json) sl_saving_print(&training->checkpoints);
    if (!training->json) sl_memory_print_end(stdout, training->memory, &job->mesh, options->profile);
    if (options->gradients && training->type->name) SL_TRY(training->type->name(training, &training->gradients, error));
    if (options->gradients && sl_safetensors_write(&training->gradients, options->gradients, error))
        return error->status = SL_FAILED; /* it was writable when the run began */
    return options->trace ? sl_trace_file_write(&training->trace, error) : SL_OK;
}

void sl_training_tell_end(const struct sl_training *training) {
    const int64_t step = training->checkpoints.first + sl_training_done(training);
    if (saves(training) || training->interrupted)
        sl_checkpoints_tell_end(&training->checkpoints, step, training->steps, training->interrupted);
}
