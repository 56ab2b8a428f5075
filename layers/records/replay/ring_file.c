/* ring_file.c - finds a step in a ring's files. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "layers/records/replay/ring.h"

static int damaged(const struct sl_frames *frames, const char *what, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: %s", frames->path, what);
}

/* ---- the opening ---- */

static int read_words(struct sl_ring_file *file, const json_t *words, struct sl_error *error) {
    const size_t count = json_array_size(words);
    if (!count) return damaged(&file->opening, "its head has no words", error);
    file->word = calloc(count + 1, sizeof *file->word);
    if (!file->word) return sl_error_set(error, SL_FAILED, "no memory to replay");
    for (size_t i = 0; i < count; i++) {
        file->word[i] = json_string_value(json_array_get(words, i));
        if (!file->word[i]) return damaged(&file->opening, "a word of its head is none", error);
    }
    return SL_OK;
}

static int read_head(struct sl_ring_file *file, struct sl_error *error) {
    const char *name;
    int version, apart, both_ends;
    const json_t *words;
    file->head = json_loadb(file->opening.contents.block, file->opening.contents.size, 0, NULL);
    if (!file->head ||
        json_unpack(file->head, "{s:i, s:i, s:s, s:b, s:b, s:o}", "shardloop.ring", &version, "coordinate",
                    &file->coordinate, "engine", &name, "apart", &apart, "both_ends", &both_ends, "words", &words))
        return damaged(&file->opening, "not a head of recorded messages", error);
    if (version != SL_RING_VERSION)
        return sl_error_set(error, SL_BAD_INPUT, "%s: messages of version %d: this program reads version %d",
                            file->opening.path, version, SL_RING_VERSION);
    file->like = (struct sl_player_like){.name = name, .apart = apart, .both_ends = both_ends};
    return read_words(file, words, error);
}

static int read_opening(struct sl_ring_file *file, const char *path, int coordinate, struct sl_error *error) {
    bool more;
    SL_TRY(sl_frames_open(&file->opening, path, error));
    SL_TRY(sl_frames_next(&file->opening, true, &more, error));
    if (!more || file->opening.frame.kind != SL_FRAME_HEAD)
        return damaged(&file->opening, "not a file of recorded messages", error);
    SL_TRY(read_head(file, error));
    if (file->coordinate != coordinate) return damaged(&file->opening, "another coordinate's", error);
    SL_TRY(sl_frames_next(&file->opening, true, &more, error));
    if (!more || file->opening.frame.kind != SL_FRAME_OPENING)
        return damaged(&file->opening, "the run ended before its first step", error);
    return SL_OK;
}

/* ---- segments ---- */

/* Counts the complete steps of the segment with first step FIRST. */
static int count_steps(const char *directory, int coordinate, int64_t first, int64_t *steps, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_frames frames = {0};
    bool more = true;
    *steps = 0;
    int status = sl_ring_segment_name(directory, coordinate, first, path, error);
    if (status == SL_OK) status = sl_frames_open(&frames, path, error);
    while (status == SL_OK && more) {
        status = sl_frames_next(&frames, false, &more, error);
        if (status == SL_OK && more && frames.frame.kind == SL_FRAME_STEP) ++*steps;
    }
    sl_frames_close(&frames);
    return status;
}

/* The recorded steps: of all segments but the last ones without a complete step. */
struct kept {
    int64_t *first; /* [count] */
    int count;
    int64_t last;
};

static int list(const char *directory, int coordinate, struct kept *kept, struct sl_error *error) {
    kept->count = sl_ring_list(directory, coordinate, &kept->first);
    if (kept->count < 0) return sl_error_set(error, SL_FAILED, "no memory to replay");
    for (; kept->count; kept->count--) {
        const int64_t first = kept->first[kept->count - 1];
        int64_t steps;
        SL_TRY(count_steps(directory, coordinate, first, &steps, error));
        kept->last = first + steps - 1;
        if (steps) return SL_OK;
    }
    return sl_error_set(error, SL_BAD_INPUT, "%s: there is no whole step of coordinate %d", directory, coordinate);
}

int sl_ring_last(const char *directory, int coordinate, int64_t *step, struct sl_error *error) {
    struct kept kept = {0};
    const int status = list(directory, coordinate, &kept, error);
    *step = kept.last;
    free(kept.first);
    return status;
}

/* Finds the first step of the segment with STEP. */
static int choose(const char *directory, int coordinate, int64_t step, int64_t *first, struct sl_error *error) {
    struct kept kept = {0};
    int status = list(directory, coordinate, &kept, error);
    if (status == SL_OK && (step < kept.first[0] || step > kept.last))
        status = sl_error_set(error, SL_BAD_INPUT,
                              "step %" PRId64 " of coordinate %d is not there: %s has the messages of steps %" PRId64
                              " to %" PRId64,
                              step, coordinate, directory, kept.first[0], kept.last);
    for (int i = 0; status == SL_OK && i < kept.count && kept.first[i] <= step; i++) *first = kept.first[i];
    free(kept.first);
    return status;
}

static int read_state(struct sl_ring_file *file, const char *directory, int64_t first, struct sl_error *error) {
    char path[SL_MAX_PATH];
    bool more;
    SL_TRY(sl_ring_segment_name(directory, file->coordinate, first, path, error));
    SL_TRY(sl_frames_open(&file->segment, path, error));
    SL_TRY(sl_frames_next(&file->segment, true, &more, error));
    if (!more || file->segment.frame.kind != SL_FRAME_STATE || file->segment.frame.step != first)
        return damaged(&file->segment, "does not begin with a state before its step", error);
    file->step = first;
    file->samples = file->segment.frame.samples;
    return SL_OK;
}

int sl_ring_find(struct sl_ring_file *file, const char *directory, int coordinate, int64_t step,
                 struct sl_error *error) {
    char path[SL_MAX_PATH];
    int64_t first = 0;
    *file = (struct sl_ring_file){0};
    SL_TRY(sl_ring_opening_name(directory, coordinate, path, error));
    SL_TRY(read_opening(file, path, coordinate, error));
    SL_TRY(choose(directory, coordinate, step, &first, error));
    return read_state(file, directory, first, error);
}

void sl_ring_file_close(struct sl_ring_file *file) {
    sl_frames_close(&file->opening);
    sl_frames_close(&file->segment);
    json_decref(file->head);
    free(file->word);
    *file = (struct sl_ring_file){0};
}

int sl_ring_next(struct sl_ring_file *file, int64_t step, struct sl_error *error) {
    bool more;
    SL_TRY(sl_frames_next(&file->segment, true, &more, error));
    if (more && file->segment.frame.kind == SL_FRAME_STEP && file->segment.frame.step == step) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: step %" PRId64 " is not where it should be", file->segment.path,
                        step);
}

/* ---- the state ---- */

struct reading {
    const char *at;
    size_t left;
};

static int give(void *arg, void *data, size_t bytes) {
    struct reading *reading = arg;
    if (bytes > reading->left) return EINVAL;
    if (bytes) memcpy(data, reading->at, bytes);
    reading->at += bytes;
    reading->left -= bytes;
    return 0;
}

int sl_ring_restore(const struct sl_ring_file *file, struct sl_trainer *trainer) {
    struct reading reading = {file->segment.contents.block, file->segment.contents.size};
    const size_t bytes = sl_state_bytes(trainer);
    if (bytes != reading.left)
        return sl_fail(sl_trainer_self(trainer), SL_FAILED,
                       "%s: a state of %zu bytes, and this layout has one of %zu: the run had other options or files",
                       file->segment.path, reading.left, bytes);
    SL_TRY(sl_state_write(trainer, give, &reading));
    sl_trainer_set_steps(trainer, file->step);
    return SL_OK;
}
