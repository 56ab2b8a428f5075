/* ring.h - what a coordinate received in its last steps, on disk, so that it can be run again alone: writes the files
 * of layers/replay/frames.h, and finds a step in them.
 *
 * Segments have half as many steps as the ring, rounded up; each begins with the coordinate's state. A segment is
 * removed when the ring's steps lie behind it, so that up to one and a half times as many are there. In a step nothing
 * is allocated once messages have had their largest size, and a file is written once, at its end.
 *
 * The head is an object: shardloop.ring (the version, 1), coordinate, engine, apart and both_ends (of the engine),
 * words (the program and its arguments that run again what has run). */
#ifndef SL_LAYERS_REPLAY_RING_H
#define SL_LAYERS_REPLAY_RING_H

#include "collectives/replay/player.h"
#include "layers/replay/frames.h"
#include "layers/replay/state.h"

SL_BEGIN_C

enum { SL_RING_VERSION = 1 };

/* ---- for whoever trains ---- */

struct sl_ring; /* opaque; each coordinate has its own */

struct sl_ring_options {
    const char *directory; /* which is there; it outlives the ring */
    int steps;
    const char *const *word; /* ends with NULL */
};

/* Removes what an earlier run has left of this coordinate, and keeps all messages of SELF from now on. SL_BAD_INPUT if
 * no file can be made; SL_FAILED without memory. Free with sl_ring_close, also after a failure, as the last thing of
 * the coordinate's program. */
int sl_ring_open(struct sl_ring **ring, struct sl_spmd *self, const struct sl_ring_options *options);
/* RING may be NULL. */
void sl_ring_close(struct sl_ring *ring);

/* These do nothing where RING is NULL. */

/* Messages that no replay asks for are not kept: calls for files and other records. */
void sl_ring_pause(struct sl_ring *ring, bool pauses);
/* Before the first step: writes what came until now, and pauses. */
int sl_ring_start(struct sl_ring *ring);
/* Around a step of TRAINER, before which SAMPLES were taken. STATUS is the step's, which is returned. */
int sl_ring_begin_step(struct sl_ring *ring, struct sl_trainer *trainer, int64_t samples);
int sl_ring_end_step(struct sl_ring *ring, int status);

/* ---- for whoever replays ---- */

struct sl_ring_file {
    void *head; /* json_t */
    int coordinate;
    struct sl_player_like like;
    const char **word;        /* the head's; ends with NULL */
    struct sl_frames opening; /* contents: its messages */
    struct sl_frames segment; /* contents: what was read last */
    int64_t step, samples;    /* before the first step of the segment */
};

/* Finds STEP of COORDINATE in DIRECTORY; reads the head, the opening and the state with which its segment begins.
 * SL_BAD_INPUT where they are not there, or damaged; where the step is none that was kept, the line says which were.
 * Close it also after a failure. */
int sl_ring_find(struct sl_ring_file *file, const char *directory, int coordinate, int64_t step,
                 struct sl_error *error);
/* Writes to *STEP the last whole step of COORDINATE that DIRECTORY has. SL_BAD_INPUT where there is none. */
int sl_ring_last(const char *directory, int coordinate, int64_t *step, struct sl_error *error);
void sl_ring_file_close(struct sl_ring_file *file);
/* Reads the messages of the next step to file->segment. SL_BAD_INPUT where that is not STEP. */
int sl_ring_next(struct sl_ring_file *file, int64_t step, struct sl_error *error);
/* Gives TRAINER the state, which file->segment has. SL_FAILED if it is that of another layout. */
int sl_ring_restore(const struct sl_ring_file *file, struct sl_trainer *trainer);

/* ---- names ---- */

int sl_ring_opening_name(const char *directory, int coordinate, char path[SL_MAX_PATH], struct sl_error *error);
/* The first steps of COORDINATE's segments in DIRECTORY, ascending, in *FIRST, which the caller frees: how many there
 * are, or -1 without memory. */
int sl_ring_list(const char *directory, int coordinate, int64_t **first);
int sl_ring_segment_name(const char *directory, int coordinate, int64_t first, char path[SL_MAX_PATH],
                         struct sl_error *error);

SL_END_C
#endif
