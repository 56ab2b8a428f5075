/* ring.c - writes a ring's files. */
#include "layers/records/replay/ring.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/replay/recorder.h"
#include "spmd/base/file.h"

struct sl_ring {
    struct sl_spmd *self;
    struct sl_recorder *recorder;
    struct sl_ring_options options;
    int64_t length; /* steps of a segment */
    char path[SL_MAX_PATH];
    FILE *stream; /* the opening, or the current segment */
    struct sl_hasher hasher;
    int64_t first, step, samples; /* of the segment, and of the current step; -1: none */
};

static int refuse(struct sl_ring *r, int number) {
    return sl_fail(r->self, SL_FAILED, "journal %s: %s", r->path, strerror(number));
}

/* ---- files ---- */

/* Removes this coordinate's segments without steps from BEFORE on. */
static int remove_segments(struct sl_ring *r, int64_t before) {
    char path[SL_MAX_PATH];
    int64_t *first;
    const int count = sl_ring_list(r->options.directory, r->self->coordinate, &first);
    for (int i = 0; i < count; i++) {
        const int64_t end = i + 1 < count ? first[i + 1] : r->first;
        if (end > before) continue;
        if (!sl_ring_segment_name(r->options.directory, r->self->coordinate, first[i], path, NULL)) unlink(path);
    }
    free(first);
    return count < 0 ? refuse(r, ENOMEM) : SL_OK;
}

static int open_file(struct sl_ring *r) {
    const char *reason;
    if (r->stream) fclose(r->stream);
    r->stream = sl_file_write(r->path, false, SL_FILE_REGULAR | SL_FILE_DEVICE, &reason);
    return r->stream ? SL_OK : sl_fail(r->self, SL_BAD_INPUT, "journal %s: %s", r->path, reason);
}

static int write_frame(struct sl_ring *r, struct sl_frame frame, const void *data) {
    const int number = sl_frame_write(r->stream, &frame, data);
    return number ? refuse(r, number) : SL_OK;
}

static int write_messages(struct sl_ring *r, enum sl_frame_kind kind) {
    const struct sl_messages *messages = sl_recorder_messages(r->recorder);
    const struct sl_frame frame = {
        .kind = kind, .step = r->step < 0 ? 0 : r->step, .samples = r->samples, .bytes = messages->size};
    return write_frame(r, frame, messages->block);
}

static int write_head(struct sl_ring *r) {
    const struct sl_engine_table *table = r->self->engine->table;
    json_t *words = json_array();
    for (int i = 0; r->options.word[i]; i++) json_array_append_new(words, json_string(r->options.word[i]));
    json_t *head = json_pack("{s:i, s:i, s:s, s:b, s:b, s:o}", "shardloop.ring", SL_RING_VERSION, "coordinate",
                             r->self->coordinate, "engine", table->name, "apart", table->apart, "both_ends",
                             table->both_ends, "words", words);
    char *text = head ? json_dumps(head, JSON_COMPACT) : NULL;
    json_decref(head);
    if (!text) return refuse(r, ENOMEM);
    const int status = write_frame(r, (struct sl_frame){.kind = SL_FRAME_HEAD, .bytes = strlen(text)}, text);
    free(text);
    return status;
}

/* ---- before the first step ---- */

int sl_ring_open(struct sl_ring **ring, struct sl_spmd *self, const struct sl_ring_options *options) {
    struct sl_ring *r = calloc(1, sizeof *r);
    *ring = r;
    if (!r) return sl_fail(self, SL_FAILED, "no memory to keep messages");
    r->self = self;
    r->options = *options;
    r->length = (options->steps + 1) / 2;
    r->step = r->first = -1;
    SL_TRY(sl_ring_opening_name(options->directory, self->coordinate, r->path, &self->error));
    SL_TRY(remove_segments(r, INT64_MAX));
    SL_TRY(open_file(r));
    SL_TRY(write_head(r));
    return sl_recorder_open(&r->recorder, self);
}

void sl_ring_close(struct sl_ring *r) {
    if (!r) return;
    if (r->stream) fclose(r->stream);
    sl_recorder_close(r->recorder, r->self);
    free(r);
}

void sl_ring_pause(struct sl_ring *r, bool pauses) {
    if (r) sl_recorder_pause(r->recorder, pauses);
}

int sl_ring_start(struct sl_ring *r) {
    if (!r) return SL_OK;
    SL_TRY(write_messages(r, SL_FRAME_OPENING));
    sl_messages_free(sl_recorder_messages(r->recorder));
    sl_ring_pause(r, true);
    return SL_OK;
}

/* ---- steps ---- */

static int add_state(void *arg, void *data, size_t bytes) {
    struct sl_ring *r = arg;
    const int number = bytes ? sl_frame_add(r->stream, &r->hasher, data, bytes) : 0;
    if (number) refuse(r, number); /* adds the file's name */
    return number;
}

static int begin_segment(struct sl_ring *r, struct sl_trainer *trainer) {
    struct sl_frame frame = {
        .kind = SL_FRAME_STATE, .step = r->step, .samples = r->samples, .bytes = sl_state_bytes(trainer)};
    r->first = r->step;
    SL_TRY(remove_segments(r, r->step - r->options.steps + 1));
    SL_TRY(sl_ring_segment_name(r->options.directory, r->self->coordinate, r->step, r->path, &r->self->error));
    SL_TRY(open_file(r));
    const int number = sl_frame_begin(r->stream, &r->hasher, &frame);
    const int status = number ? refuse(r, number) : sl_state_read(trainer, add_state, r);
    const int ended = sl_frame_end(r->stream, &r->hasher);
    return status ? status : ended ? refuse(r, ended) : SL_OK;
}

int sl_ring_begin_step(struct sl_ring *r, struct sl_trainer *trainer, int64_t samples) {
    if (!r) return SL_OK;
    r->step = sl_trainer_steps(trainer);
    r->samples = samples;
    if (r->first < 0 || r->step >= r->first + r->length) SL_TRY(begin_segment(r, trainer));
    sl_recorder_begin(r->recorder);
    sl_ring_pause(r, false);
    return SL_OK;
}

int sl_ring_end_step(struct sl_ring *r, int status) {
    if (!r) return status;
    sl_ring_pause(r, true);
    const int written = write_messages(r, SL_FRAME_STEP); /* also of a failed step */
    return status ? status : written;
}
