/* ring.h - records the messages received by a coordinate in its last steps, on disk, to replay it alone: writes the
 * files of layers/records/replay/frames.h, and finds a step in them.
 *
 * Segments have half as many steps as the ring, rounded up; each begins with the coordinate's state. A segment is
 * removed when it has no steps of the ring any longer, so up to one and a half times as many steps exist. Steps
 * allocate no memory once messages have reached their largest size, and write a file once, at their end.
 *
 * The head is an object: shardloop.ring (the version, 1), coordinate, engine, apart and both_ends (of the engine),
 * words (the program and its arguments, to run it again). */
#ifndef SL_LAYERS_RECORDS_REPLAY_RING_H
#define SL_LAYERS_RECORDS_REPLAY_RING_H

#include "collectives/replay/player.h"
#include "layers/records/replay/frames.h"
#include "layers/records/replay/state.h"

SL_BEGIN_C

enum { SL_RING_VERSION = 1 };

/* ---- recording, for a training loop ---- */

struct sl_ring; /* opaque; each coordinate has its own */

struct sl_ring_options {
    const char *directory; /* must exist, and outlive the ring */
    int steps;
    const char *const *word; /* ends with NULL */
};

/* Removes files of this coordinate left by an earlier run, and starts to record all messages of SELF. SL_BAD_INPUT if a
 * file cannot be created; SL_FAILED if memory is short. Free with sl_ring_close, also after a failure, at the very end
 * of the coordinate's program. */
int sl_ring_open(struct sl_ring **ring, struct sl_spmd *self, const struct sl_ring_options *options);
/* RING may be NULL. */
void sl_ring_close(struct sl_ring *ring);

/* The functions below do nothing if RING is NULL. */

/* Pauses recording, or continues it. Pause for messages unneeded by a replay: calls for files and other records. */
void sl_ring_pause(struct sl_ring *ring, bool pauses);
/* Writes the messages before the first step, and pauses. */
int sl_ring_start(struct sl_ring *ring);
/* Called around a step of TRAINER; SAMPLES were used before it. STATUS is the step's, and is returned. */
int sl_ring_begin_step(struct sl_ring *ring, struct sl_trainer *trainer, int64_t samples);
int sl_ring_end_step(struct sl_ring *ring, int status);

/* ---- replaying ---- */

struct sl_ring_file {
    void *head; /* json_t */
    int coordinate;
    struct sl_player_like like;
    const char **word;        /* in the head's memory; ends with NULL */
    struct sl_frames opening; /* contents: its messages */
    struct sl_frames segment; /* contents: the last frame read */
    int64_t step, samples;    /* before the first step of the segment */
};

/* Finds STEP of COORDINATE in DIRECTORY; reads the head, the opening, and the state at the beginning of the step's
 * segment. SL_BAD_INPUT if they are missing or damaged; if the step was not recorded, the error names the recorded
 * steps. Close it also after a failure. */
int sl_ring_find(struct sl_ring_file *file, const char *directory, int coordinate, int64_t step,
                 struct sl_error *error);
/* Writes the last complete step of COORDINATE in DIRECTORY to *STEP. SL_BAD_INPUT if there is none. */
int sl_ring_last(const char *directory, int coordinate, int64_t *step, struct sl_error *error);
void sl_ring_file_close(struct sl_ring_file *file);
/* Reads the messages of the next step into file->segment. SL_BAD_INPUT if this is not STEP. */
int sl_ring_next(struct sl_ring_file *file, int64_t step, struct sl_error *error);
/* Restores TRAINER's state from file->segment. SL_FAILED if it is the state of another layout. */
int sl_ring_restore(const struct sl_ring_file *file, struct sl_trainer *trainer);

/* ---- names ---- */

int sl_ring_opening_name(const char *directory, int coordinate, char path[SL_MAX_PATH], struct sl_error *error);
/* Lists the first steps of COORDINATE's segments in DIRECTORY, ascending, in *FIRST, which the caller frees. Returns
 * their number, or -1 if memory is short. */
int sl_ring_list(const char *directory, int coordinate, int64_t **first);
int sl_ring_segment_name(const char *directory, int coordinate, int64_t first, char path[SL_MAX_PATH],
                         struct sl_error *error);

SL_END_C
#endif
