/* training.c - the loop over steps, and the work around it. */
#include "drivers/training/training.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "collectives/engines.h"
#include "collectives/waits.h"
#include "drivers/speed/cores.h"
#include "drivers/common/interrupt.h"
#include "drivers/training/memory_check.h"
#include "drivers/training/replay.h"
#include "drivers/training/restart/same_process.h"
#include "drivers/training/shardings_report.h"
#include "drivers/training/training_end.h"
#include "layers/records/replay/ring.h"
#include "layers/training/exchange.h"
#include "layers/training/replicas.h"

int64_t sl_training_samples(const struct sl_worker *worker, int64_t step) {
    return worker->samples + (step - worker->first) * worker->job->options->batch;
}

/* ---- work of every coordinate ---- */

/* Whether the step is printed for people. */
static bool shows(const struct sl_training *training, int64_t number) {
    const int every = training->job->options->log_every;
    if (every) return (number + 1) % every == 0 || number + 1 == training->steps;
    return !training->type->shows || training->type->shows(training, number);
}

/* Reports a step. The heading is printed with the first step, so a run that is refused earlier prints nothing on
 * stdout. LAST: a signal has ended the run after this step. */
static int report_step(struct sl_training *training, const struct sl_step *step, bool last, struct sl_error *error) {
    if (!training->json && sl_training_done(training) == 0) {
        sl_progress_clear(&training->report.progress);
        sl_heading_print(stdout, training->job, &training->heading);
    }
    const bool shown = last || shows(training, step->number);
    return sl_report_step(&training->report, step, shown, error);
}

/* Runs the replayable part of a step. */
static int take_kept_step(struct sl_training *training, struct sl_worker *worker, struct sl_step *step,
                          struct sl_ring *ring, bool *stop) {
    struct sl_batch batch;
    SL_TRY(sl_ring_begin_step(ring, worker->trainer, sl_training_samples(worker, step->number)));
    int status = training->type->fetch(worker, step->number, &batch);
    sl_trainer_set_learning_rate(worker->trainer, (float)step->rate);
    if (status == SL_OK) status = sl_trainer_step(worker->trainer, &batch, &step->metrics, stop);
    return sl_ring_end_step(ring, status);
}

static int take_step(struct sl_training *training, struct sl_worker *worker, struct sl_step *step, struct sl_ring *ring,
                     bool *stop) {
    struct sl_spmd *self = worker->self;
    const struct sl_training_options *options = training->job->options;
    const double began = sl_now();
    step->rate = sl_learning_rate_at(&training->rate, step->number);
    step->norm = NAN;
    *stop = sl_interrupt_arrived() != 0;
    if (self->coordinate == 0 && training->report.lost.status) *stop = true;
    if (sl_snapshot_has_failed(training->checkpoints.snapshot)) *stop = true;
    SL_TRY(take_kept_step(training, worker, step, ring, stop));
    if (options->check_replicas) SL_TRY(sl_check_replicas(self, worker->trainer));
    if (options->clip > 0) step->norm = sl_trainer_norm(worker->trainer);
    const double ended = sl_now();
    step->ms = 1e3 * (ended - began);
    if (self->coordinate != 0) return SL_OK;
    if (options->trace && step->number > worker->first)
        sl_trace_file_step(&training->trace, step->number, began, ended, sl_step_loss(step, NULL));
    return report_step(training, step, *stop, &self->error);
}

/* Starts records at the second step: the first one touches memory and generates code. */
static void start_records(struct sl_training *training, struct sl_worker *worker) {
    struct sl_spmd *self = worker->self;
    struct sl_profile *profile = &training->profile[self->coordinate];
    if (training->job->options->trace) sl_trainer_set_trace(worker->trainer, sl_trace_file_of(&training->trace, self));
    if (!training->job->options->profile && !training->watched) return;
    sl_profile_start(profile, self);
    sl_trainer_set_profile(worker->trainer, profile);
}

static void stop_watching(struct sl_training *training, struct sl_worker *worker) {
    struct sl_profile *profile = &training->profile[worker->self->coordinate];
    if (training->job->options->profile || !profile->self || !training->watched) return;
    sl_profile_end(profile, SL_WORK_OTHER);
    profile->self = NULL;
    sl_trainer_set_profile(worker->trainer, NULL);
    worker->self->timed = training->job->options->trace != NULL;
}

static int gather_records(struct sl_training *training, struct sl_spmd *self) {
    struct sl_profile *profile = &training->profile[self->coordinate];
    if (profile->self) sl_profile_end(profile, SL_WORK_OTHER);
    self->sent = NULL;
    if (self->coordinate == 0 && sl_device.report_graphs) sl_device.report_graphs(&training->graphs);
    if (training->job->options->profile || training->watched)
        SL_TRY(sl_gather_records(self, training->profile, sizeof *training->profile));
    return training->job->options->trace ? sl_gather_traces(self, training->trace.trace) : SL_OK;
}

static int resume(struct sl_training *training, struct sl_worker *worker) {
    struct sl_checkpoint about;
    SL_TRY(sl_checkpoints_resume(&training->checkpoints, worker->self, worker->trainer, &about));
    worker->first = about.step;
    worker->samples = about.samples;
    return sl_checkpoints_make_room(&training->checkpoints, worker->self, worker->trainer);
}

/* Opens the record files. They are emptied only now, after damaged checkpoints have been refused. */
static int open_records(struct sl_training *training, struct sl_error *error) {
    const struct sl_training_options *options = training->job->options;
    if (options->trace) SL_TRY(sl_trace_file_create(&training->trace, "--trace", options->trace, error));
    return sl_report_open(&training->report, options->metrics, options->tensorboard,
                          training->checkpoints.options.resume, training->checkpoints.first, training->steps, error);
}

/* Opens the journal, after resuming; *JOURNAL is closed after the trainer. */
static int open_journal(const struct sl_training *training, struct sl_worker *worker, struct sl_journal **journal) {
    const struct sl_training_options *options = training->job->options;
    const struct sl_journal_options asked = {.directory = options->journal,
                                             .every = options->journal_every,
                                             .resumes = training->checkpoints.options.resume != NULL,
                                             .notes = &training->notes};
    if (!options->journal) return SL_OK;
    return sl_trainer_open_journal(worker->trainer, &worker->model, &asked, journal);
}

static int train(struct sl_training *training, struct sl_worker *worker, struct sl_ring *ring,
                 struct sl_failing *failing, struct sl_journal **journal) {
    const struct sl_training_type *type = training->type;
    bool stop = false;
    sl_ring_pause(ring, true);
    SL_TRY(resume(training, worker));
    /* If there are no steps left, the files of the earlier run stay unchanged. */
    const bool starts = worker->first < training->steps || !training->checkpoints.options.resume;
    if (starts && worker->self->coordinate == 0) SL_TRY(open_records(training, &worker->self->error));
    if (starts) SL_TRY(open_journal(training, worker, journal));
    if (worker->self->coordinate == 0) sl_checkpoints_tell_begin(&training->checkpoints, training->steps);
    sl_ring_pause(ring, false);
    if (type->begin) SL_TRY(type->begin(worker));
    SL_TRY(sl_ring_start(ring));
    SL_TRY(sl_checkpoints_open_memory(&training->checkpoints, worker->self, worker->trainer));
    if (worker->self->coordinate == 0) SL_TRY(sl_report_flush(&training->report, &worker->self->error));
    for (int64_t number = worker->first; number < training->steps && !stop; number++) {
        struct sl_step step = {.number = number};
        sl_failing_begin_step(failing, number);
        SL_TRY(take_step(training, worker, &step, ring, &stop));
        if (number == worker->first) start_records(training, worker);
        if (number == worker->first + SL_TRAINING_WATCHED) stop_watching(training, worker);
        const bool last = stop || number + 1 == training->steps;
        if (stop && worker->self->coordinate == 0) training->interrupted = number + 1 < training->steps;
        SL_TRY(sl_checkpoints_save(&training->checkpoints, worker->self, worker->trainer,
                                   sl_training_samples(worker, number + 1), last));
        if (type->after) SL_TRY(type->after(worker, &step, last));
        if (worker->self->coordinate == 0) SL_TRY(sl_report_flush(&training->report, &worker->self->error));
        SL_TRY(sl_checkpoints_protect(&training->checkpoints, worker->self, worker->trainer,
                                      sl_training_samples(worker, number + 1), last));
    }
    if (training->steps == 0 && starts)
        SL_TRY(sl_checkpoints_save(&training->checkpoints, worker->self, worker->trainer, 0, true));
    SL_TRY(gather_records(training, worker->self));
    SL_TRY(sl_memory_gather_held(worker->self, training->memory));
    if (!training->job->options->gradients) return SL_OK;
    return sl_trainer_export(worker->trainer, true, &training->gradients);
}

/* Opens the ring of recorded messages, before the coordinate opens groups and channels; *RING is closed last. */
static int open_ring(const struct sl_training *training, struct sl_spmd *self, struct sl_ring **ring) {
    const struct sl_training_options *options = training->job->options;
    const struct sl_ring_options asked = {.directory = options->journal,
                                          .steps = options->journal_messages,
                                          .word = (const char *const *)training->words};
    return training->words && !options->dry_run ? sl_ring_open(ring, self, &asked) : SL_OK;
}

/* If some parameters are frozen, and no adapters are trained instead, counts the trained ones. */
static int count_trained(struct sl_training *training, const struct sl_worker *worker) {
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    struct sl_spmd *self = worker->self;
    const int axis = sl_mesh_find_axis(self->mesh, sl_job_axis(training->job, SL_JOB_PIPE));
    const int rank = sl_mesh_index(self->mesh, self->coordinate, axis);
    const bool elsewhere = training->job->schedule.copies > 1 ? parameters->tied_elsewhere : rank > 0;
    double *own = &training->trained[self->coordinate];
    if (!training->job->options->freeze || training->heading.adapters > 0) return SL_OK;
    for (int i = 0; i < parameters->count && sl_mesh_neighbour(self->mesh, 0, axis, rank) == self->coordinate; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const bool again = parameter->second || (parameter->tied && elsewhere); /* the first stage has it */
        double elements = again || parameter->frozen ? 0 : 1;
        for (int d = 0; d < parameter->dims; d++) elements *= (double)parameter->shape[d];
        *own += elements;
    }
    SL_TRY(sl_gather_records(self, training->trained, sizeof *own));
    for (int c = 0; self->coordinate == 0 && c < self->mesh->size; c++)
        training->heading.trained += training->trained[c];
    return SL_OK;
}

/* Ends the run before arrays of calls under way are freed: when it returns, no peer reads them. */
static void give_up(struct sl_spmd *self, int status) {
    if (!self->engine->table->give_up) return;
    self->engine->table->give_up(self, status);
    sl_progress(self);
}

static int run_coordinate(struct sl_training *training, struct sl_spmd *self, struct sl_ring *ring,
                          struct sl_failing *failing) {
    struct sl_worker worker;
    struct sl_journal *journal = NULL;
    bool fits = false;
    int status = sl_worker_plan(&worker, self, training->job);
    if (status == SL_OK) status = count_trained(training, &worker);
    if (status == SL_OK) status = sl_memory_plan(&worker, training->memory, &fits);
    if (fits && !training->job->options->dry_run) {
        if (status == SL_OK) status = sl_worker_open(&worker, training->from);
        if (status == SL_OK) status = train(training, &worker, ring, failing, &journal);
        sl_checkpoints_end(&training->checkpoints, self, worker.trainer, status);
        if (status) give_up(self, status);
    }
    sl_worker_close(&worker);
    sl_journal_close(journal);
    return status;
}

static int program(struct sl_spmd *self, void *arg) {
    const struct sl_faults *faults = &((struct sl_training *)arg)->faults;
    struct sl_ring *ring = NULL;
    struct sl_failing *failing = NULL;
    int status = open_ring(arg, self, &ring);
    if (status == SL_OK) status = sl_failing_open(&failing, self, faults->list, faults->count);
    if (status == SL_OK) status = run_coordinate(arg, self, ring, failing);
    sl_failing_close(failing, self);
    sl_ring_close(ring);
    return status;
}

/* ---- before and after ---- */

static int check_trace(struct sl_training *training, struct sl_error *error) {
    if (training->steps - training->checkpoints.first < 2)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--trace records from the second step on: --steps must be 2 at least%s",
                            training->checkpoints.first ? " after the checkpoint" : "");
    const struct sl_trace_run run = sl_job_trace(training->job);
    return sl_trace_file_open(&training->trace, &run, training->steps - 1, error);
}

/* Checks all outputs before the training, so errors do not come after it. */
static int check_outputs(struct sl_training *training, struct sl_error *error) {
    const struct sl_training_options *options = training->job->options;
    SL_TRY(sl_report_check_folder("--metrics", options->metrics, error));
    SL_TRY(sl_metrics_check(options->metrics, error));
    SL_TRY(sl_report_check_folder("--tensorboard", options->tensorboard, error));
    SL_TRY(sl_report_check_folder("--trace", options->trace, error));
    if (options->trace) SL_TRY(check_trace(training, error));
    if (options->journal) SL_TRY(sl_journal_prepare(options->journal, error));
    if (options->gradients && training->steps <= training->checkpoints.first)
        return sl_error_set(error, SL_BAD_INPUT, "--gradients: no steps, so no gradients");
    return options->gradients ? sl_safetensors_can_write(options->gradients, error) : SL_OK;
}

static void open_checkpoints(struct sl_training *training, uint64_t seed) {
    training->checkpoints.options = training->job->options->checkpoints;
    training->checkpoints.seed = seed;
    training->checkpoints.optimizer = training->job->optimizer.method->name;
    memcpy(training->checkpoints.setting, training->setting, sizeof training->setting);
    training->checkpoints.command = training->command;
    training->checkpoints.notes = &training->notes;
    training->checkpoints.brief = training->json;
    training->checkpoints.coordinates = training->job->mesh.size;
    training->checkpoints.compares = training->job->options->check_replicas;
}

/* The work of a process without output. */
static int take_part(struct sl_training *training, const struct sl_engine *engine, struct sl_error *error) {
    struct sl_job *job = training->job;
    const struct sl_trace_run run = sl_job_trace(job);
    if (job->options->trace && training->steps > 1)
        SL_TRY(sl_trace_file_open(&training->trace, &run, training->steps - 1, error));
    SL_TRY(sl_checkpoints_join(&training->checkpoints, error));
    SL_TRY(sl_run(&job->mesh, engine, program, training));
    return sl_memory_refuse(job, engine, training->memory, error);
}

/* Runs all coordinates, from the checkpoint on. */
static int run_coordinates(struct sl_training *training, const struct sl_engine *engine, struct sl_error *error) {
    struct sl_job *job = training->job;
    SL_TRY(sl_checkpoints_open(&training->checkpoints, error));
    SL_TRY(check_outputs(training, error));
    training->report = (struct sl_report){.json = training->json,
                                          .progress_every = job->options->progress_every,
                                          .field = training->type->field,
                                          .own = job->own,
                                          .rows = job->sequence ? "tokens" : "samples",
                                          .final_loss = NAN,
                                          .first_step_ms = NAN};
    const int status = sl_run(&job->mesh, engine, program, training);
    sl_progress_clear(&training->report.progress);
    return status ? sl_memory_explain(job, engine, training->memory, error)
                  : sl_memory_refuse(job, engine, training->memory, error);
}

/* Frees the notes and records of coordinates that have ended. */
static void forget(struct sl_training *training) {
    const size_t size = (size_t)training->noted;
    memset(training->trained, 0, size * sizeof *training->trained);
    memset(training->memory, 0, size * sizeof *training->memory);
    memset(training->profile, 0, size * sizeof *training->profile);
    training->heading.trained = 0;
    training->interrupted = false;
    sl_store_free(&training->gradients);
    sl_trace_file_free(&training->trace);
    sl_report_close(&training->report, NULL);
}

/* Returns whether the coordinates, which have ended with ERROR, are to start again in this process. */
static bool starts_again(struct sl_training *training, const struct sl_engine *engine, struct sl_error *error) {
    char place[SL_MAX_PATH];
    struct sl_checkpoints *checkpoints = &training->checkpoints;
    if (!checkpoints->watched || error->status != SL_FAILED) return false;
    fflush(stdout);
    sl_checkpoints_finish(checkpoints);
    if (!sl_same_process_asks(error, place)) return false;
    sl_checkpoints_begin_at(checkpoints, *place ? place : training->job->options->checkpoints.resume);
    forget(training);
    if (engine->waits) engine->waits->coordinates = 0;
    *error = (struct sl_error){0};
    return true;
}

static int run(struct sl_training *training, const struct sl_engine *engine, struct sl_error *error) {
    struct sl_report *report = &training->report;
    int status;
    training->checkpoints.watched = engine->table == &sl_engine_local && sl_same_process_is_watched();
    do status = run_coordinates(training, engine, error);
    while (status && starts_again(training, engine, error));
    if (status == SL_OK) status = sl_training_finish(training, error);
    if (status == SL_OK && report->lost.status) {
        *error = report->lost;
        status = error->status;
    }
    const int closed = sl_report_close(report, status ? NULL : error);
    if (status == SL_OK && closed == SL_OK) sl_training_tell_end(training);
    return status ? status : closed;
}

int sl_training_delay(const struct sl_training_options *options, struct sl_engine *engine, struct sl_error *error) {
    engine->delay = 1e-3 * options->delay_ms;
    if (options->delay_ms == 0 || engine->table == &sl_engine_local) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--delay-ms: only engine local has delays, not %s", engine->table->name);
}

int sl_training_describe(struct sl_training *training, const struct sl_options *command,
                         const struct sl_signature *data, struct sl_error *error) {
    struct sl_signature_entry entry;
    training->command = command;
    SL_TRY(sl_describe_options(command, &training->notes, error));
    for (size_t at = 0; sl_signature_next(data->bytes, data->size, &at, &entry);)
        if (sl_store_set_note(&training->notes, entry.key, entry.text))
            return sl_error_set(error, SL_FAILED, "no memory to describe the run");
    return SL_OK;
}

static void free_notes(struct sl_training *training) {
    free(training->trained);
    free(training->memory);
    free(training->profile);
}

int sl_training_take_notes(struct sl_training *training, const struct sl_mesh *mesh, struct sl_error *error) {
    const size_t size = (size_t)mesh->size;
    if (training->noted == mesh->size) return SL_OK;
    free_notes(training);
    training->noted = mesh->size;
    training->trained = calloc(size, sizeof *training->trained);
    training->memory = calloc(size, sizeof *training->memory);
    training->profile = calloc(size, sizeof *training->profile);
    if (training->trained && training->memory && training->profile) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory to note what %zu coordinates do", size);
}

/* Prints a remark if the warm-up is longer than the run, which may be the beginning of a longer run. */
static void tell_warmup(const struct sl_training *training) {
    const struct sl_learning_rate *rate = &training->rate;
    if (rate->warmup <= rate->steps || rate->steps == 0) return;
    sl_remark("--warmup %" PRId64 " is longer than the run's %" PRId64
              " steps: the learning rate rises to %.3g, and to "
              "--lr %.3g only if a run with more steps goes on from this one",
              rate->warmup, rate->steps, sl_learning_rate_at(rate, rate->steps - 1), rate->highest);
}

int sl_training_run(struct sl_training *training, struct sl_engine *engine, struct sl_error *error) {
    struct sl_job *job = training->job;
    const struct sl_training_options *options = job->options;
    struct sl_replay_place place = {0};
    SL_TRY(sl_training_take_notes(training, &job->mesh, error));
    open_checkpoints(training, job->seed);
    SL_TRY(sl_training_delay(options, engine, error));
    SL_TRY(sl_faults_read(&training->faults, options->fail, &job->mesh, training->steps, error));
    engine->error = error;
    SL_TRY(sl_replay_check(options, engine, &place, error));
    engine->recorded = options->journal_messages && !options->replay;
    if (options->replay) return sl_training_replay(training, place, error);
    if (options->show_shardings) return sl_shardings_report(job, engine, training->json);
    if (options->dry_run) {
        SL_TRY(sl_run(&job->mesh, engine, program, training));
        if (sl_speaks(engine) && !training->json) sl_heading_parameters(stdout, &training->heading);
        return sl_speaks(engine) ? sl_memory_print(training->memory, &job->mesh, NULL, training->json, error) : SL_OK;
    }
    if (sl_speaks(engine)) tell_warmup(training);
    struct sl_replay_words words = {0};
    if (options->journal_messages) SL_TRY(sl_journal_prepare(options->journal, error));
    int status = options->journal_messages ? sl_replay_describe(training, &words, error) : SL_OK;
    training->words = words.word;
    const char *end = options->checkpoints.save ? "this step and saves" : "this step";
    sl_interrupt_catch(sl_speaks(engine) ? end : NULL,
                       !training->json && !engine->table->apart); /* launchers send signals, too */
    if (status == SL_OK) status = sl_checkpoints_collect(&training->checkpoints, &job->mesh, engine);
    if (status == SL_OK) status = sl_speaks(engine) ? run(training, engine, error) : take_part(training, engine, error);
    sl_replay_words_free(&words);
    return status;
}

void sl_training_close(struct sl_training *training) {
    sl_store_free(&training->gradients);
    sl_store_free(&training->notes);
    sl_trace_file_free(&training->trace);
    sl_checkpoints_close(&training->checkpoints);
    sl_faults_free(&training->faults);
    free_notes(training);
}
