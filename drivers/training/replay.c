/* replay.c - replays a coordinate's steps with its recorded messages. */
#include "drivers/training/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "collectives/replay/player.h"
#include "drivers/common/metrics.h"
#include "drivers/training/memory_check.h"
#include "layers/records/replay/ring.h"

struct replay {
    struct sl_training *training;
    int coordinate;
    int64_t last; /* the last step to replay */
    struct sl_ring_file file;
    struct sl_journal_file journal;
    struct sl_journal_expected expected;
    int64_t step, hashes; /* the last replayed step, and the number of matching hashes */
    bool differs;
};

/* ---- differences ---- */

/* Writes a description of RECORD to WORDS. */
static void describe(const struct replay *replay, const struct sl_journal_record *record, char words[300]) {
    const char *name = record->item < replay->journal.tensors ? replay->journal.tensor[record->item].name : "";
    switch (record->kind) {
    case SL_JOURNAL_ROWS:
        snprintf(words, 300, "the rows that stage %d gives of microbatch %d", record->item, record->microbatch);
        break;
    case SL_JOURNAL_ROW_GRADIENT:
        snprintf(words, 300, "the gradient of the rows that stage %d is given of microbatch %d", record->item,
                 record->microbatch);
        break;
    case SL_JOURNAL_GRADIENT:
        snprintf(words, 300, "the gradient of %s", name);
        break;
    case SL_JOURNAL_VALUE:
        snprintf(words, 300, "the values of %s", name);
        break;
    default:
        snprintf(words, 300, "%s", record->kind == SL_JOURNAL_NORM ? "the norm of all gradients" : "the loss");
    }
}

static int print(const struct replay *replay, const char *differs, struct sl_error *error) {
    const struct sl_training *training = replay->training;
    if (training->json)
        return sl_json_print(stdout, "stdout",
                             json_pack("{sb si sI sI sI sI ss}", "equal", !replay->differs, "coordinate",
                                       replay->coordinate, "first", (json_int_t)replay->file.step, "step",
                                       (json_int_t)replay->step, "last", (json_int_t)replay->last, "hashes",
                                       (json_int_t)replay->hashes, "differs", differs),
                             error);
    if (!replay->differs)
        printf("coordinate %d, steps %" PRId64 " to %" PRId64 ": %" PRId64 " hashes, all what they were\n",
               replay->coordinate, replay->file.step, replay->step, replay->hashes);
    return SL_OK;
}

/* Reports the result; SL_CHECK_FAILED if a hash differs. */
static int tell(const struct replay *replay, struct sl_error *error) {
    const struct sl_journal_expected *expected = &replay->expected;
    const bool missing = expected->first >= 0 && expected->first < expected->count;
    char words[300] = "";
    if (replay->differs) describe(replay, missing ? &expected->record[expected->first] : &expected->found, words);
    SL_TRY(print(replay, words, error));
    if (!replay->differs) return SL_OK;
    const bool many = !strncmp(words, "the rows", 8) || !strncmp(words, "the values", 10);
    return sl_error_set(error, SL_CHECK_FAILED, "coordinate %d, step %" PRId64 ": %s: not what %s in the journal",
                        replay->coordinate, replay->step, words, many ? "they were" : "it was");
}

/* ---- steps ---- */

/* Finds the journal's records of STEP. */
static int expect(struct replay *replay, int64_t step, struct sl_error *error) {
    struct sl_journal_file *journal = &replay->journal;
    bool more = true;
    while (more && journal->step < step) SL_TRY(sl_journal_next(journal, &more, error));
    replay->expected = (struct sl_journal_expected){.record = journal->record, .count = journal->count, .first = -1};
    if (journal->step == step) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: the journal has no step %" PRId64, journal->path, step);
}

static int take_step(struct replay *replay, struct sl_worker *worker, int64_t step) {
    const struct sl_training *training = replay->training;
    struct sl_spmd *self = worker->self;
    struct sl_metrics metrics;
    struct sl_batch batch;
    bool stop = false;
    SL_TRY(sl_ring_next(&replay->file, step, &self->error));
    SL_TRY(expect(replay, step, &self->error));
    sl_player_use(self, &replay->file.segment.contents);
    SL_TRY(training->type->fetch(worker, step, &batch));
    sl_trainer_set_learning_rate(worker->trainer, (float)sl_learning_rate_at(&training->rate, step));
    const int status = sl_trainer_step(worker->trainer, &batch, &metrics, &stop);
    replay->step = step;
    replay->differs = replay->expected.first >= 0;
    if (!replay->differs) replay->hashes += replay->expected.count;
    return status;
}

static int take_steps(struct replay *replay, struct sl_worker *worker, struct sl_journal **journal) {
    const struct sl_journal_options options = {.expected = &replay->expected};
    worker->first = replay->file.step;
    worker->samples = replay->file.samples;
    if (replay->training->type->begin) SL_TRY(replay->training->type->begin(worker));
    SL_TRY(sl_ring_restore(&replay->file, worker->trainer));
    SL_TRY(sl_trainer_open_journal(worker->trainer, &worker->model, &options, journal));
    for (int64_t step = replay->file.step; step <= replay->last && !replay->differs; step++)
        SL_TRY(take_step(replay, worker, step));
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct replay *replay = arg;
    struct sl_training *training = replay->training;
    struct sl_worker worker;
    struct sl_journal *journal = NULL;
    bool fits = true;
    int status = sl_worker_plan(&worker, self, training->job);
    if (status == SL_OK) status = sl_memory_plan(&worker, training->memory, &fits);
    if (status == SL_OK) status = sl_worker_open(&worker, training->from);
    if (status == SL_OK) status = take_steps(replay, &worker, &journal);
    sl_worker_close(&worker);
    sl_journal_close(journal);
    return status;
}

/* ---- before the replay ---- */

static int read_place(const char *text, struct sl_replay_place *place, struct sl_error *error) {
    int end = 0;
    if (sscanf(text, "%d@%" SCNd64 "%n", &place->coordinate, &place->step, &end) == 2 && !text[end] &&
        place->coordinate >= 0 && place->step >= 0)
        return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--replay \"%.60s\": it is COORDINATE@STEP, two numbers from 0, such as 5@812", text);
}

int sl_replay_check(const struct sl_training_options *options, const struct sl_engine *engine,
                    struct sl_replay_place *place, struct sl_error *error) {
    if (options->replay) {
        SL_TRY(read_place(options->replay, place, error));
        if (options->journal && !options->journal_messages) return SL_OK;
        return sl_error_set(error, SL_BAD_INPUT,
                            options->journal ? "--replay %.60s: it reads messages, and --journal-messages keeps them"
                                             : "--replay %.60s: needs the journal to read, --journal DIR",
                            options->replay);
    }
    if (!options->journal_messages) return SL_OK;
    if (options->journal_every > 1)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--journal-messages and --journal-every %d: a replay compares the hashes of all steps",
                            options->journal_every);
    if (engine->table == &sl_engine_nccl)
        return sl_error_set(error, SL_BAD_INPUT, "--journal-messages: not with engine nccl: choose local or mpi");
    return SL_OK;
}

static int open_files(struct replay *replay, struct sl_error *error) {
    const struct sl_job *job = replay->training->job;
    const char *directory = job->options->journal;
    char path[SL_MAX_PATH];
    if (replay->coordinate >= job->mesh.size)
        return sl_error_set(error, SL_BAD_INPUT, "--replay: coordinate %d: the mesh has coordinates 0 to %d",
                            replay->coordinate, job->mesh.size - 1);
    SL_TRY(sl_ring_find(&replay->file, directory, replay->coordinate, replay->last, error));
    SL_TRY(sl_journal_name(directory, replay->coordinate, path, error));
    SL_TRY(sl_journal_file_open(&replay->journal, path, error));
    replay->journal.step = INT64_MIN;
    return SL_OK;
}

int sl_training_replay(struct sl_training *training, struct sl_replay_place place, struct sl_error *error) {
    struct replay replay = {.training = training, .coordinate = place.coordinate, .last = place.step};
    int status = open_files(&replay, error);
    if (status == SL_OK)
        status = sl_player_run(&training->job->mesh, &replay.file.like, replay.coordinate,
                               &replay.file.opening.contents, program, &replay, error);
    /* A step that failed in the recorded run fails in the replay, too, after its hashes. */
    if (status == SL_OK || replay.differs) {
        *error = (struct sl_error){0};
        status = tell(&replay, error);
    }
    sl_journal_file_close(&replay.journal);
    sl_ring_file_close(&replay.file);
    return status;
}
