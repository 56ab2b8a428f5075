/* frames.h - the format of a ring's files: consecutive frames.
 *
 * A coordinate's files are beside its journal: coordinate-05.opening has a SL_FRAME_HEAD and a SL_FRAME_OPENING; each
 * coordinate-05-000000000812.segment, named by its first step, has a SL_FRAME_STATE and then a SL_FRAME_STEP per step.
 * An incomplete frame at the end, left by a killed run, is ignored. Numbers are little-endian:
 *
 *     bytes 0-7    "slframe1"
 *     bytes 8-11   enum sl_frame_kind
 *     bytes 12-15  0
 *     bytes 16-23  the step of the messages, or after the state
 *     bytes 24-31  samples of the data used before the step
 *     bytes 32-39  bytes of the contents
 *     bytes 40-55  0
 *     bytes 56-63  XXH3 of the bytes before
 *     then the contents, and their XXH3 in 8 bytes */
#ifndef SL_LAYERS_RECORDS_REPLAY_FRAMES_H
#define SL_LAYERS_RECORDS_REPLAY_FRAMES_H

#include <stdio.h>

#include "collectives/replay/messages.h"
#include "layers/formats/files/draft.h"
#include "spmd/base/hash.h"

SL_BEGIN_C

enum sl_frame_kind {
    SL_FRAME_HEAD = 1, /* JSON: description of the run (layers/records/replay/ring.h) */
    SL_FRAME_OPENING,  /* messages from the start of the coordinate's program to its first step */
    SL_FRAME_STATE,    /* the coordinate's own state before a step */
    SL_FRAME_STEP,     /* messages of a step */
    SL_FRAME_KINDS
};

struct sl_frame {
    char magic[8];
    uint32_t kind, zero;
    int64_t step, samples;
    uint64_t bytes, zeros[2], hash;
};

/* Writes FRAME, whose kind, step, samples and bytes are set, its contents DATA [bytes] and their hash, and flushes.
 * Returns 0, or an errno. Allocates nothing. */
int sl_frame_write(FILE *stream, struct sl_frame *frame, const void *data);
/* As sl_frame_write, with contents added piece by piece. Each returns 0, or an errno. */
int sl_frame_begin(FILE *stream, struct sl_hasher *hasher, struct sl_frame *frame);
int sl_frame_add(FILE *stream, struct sl_hasher *hasher, const void *data, size_t bytes);
/* Writes the hash, and flushes. */
int sl_frame_end(FILE *stream, struct sl_hasher *hasher);

/* A file being read. */
struct sl_frames {
    char path[SL_MAX_PATH];
    FILE *stream;
    struct sl_frame frame; /* the last frame read */
    struct sl_messages contents;
};

/* Opens PATH. SL_BAD_INPUT if it cannot be read. Close it also after a failure. */
int sl_frames_open(struct sl_frames *frames, const char *path, struct sl_error *error);
void sl_frames_close(struct sl_frames *frames);
/* Reads the next complete frame, and its contents if READS; *MORE is false if there is none. SL_BAD_INPUT if the file
 * is damaged; unread contents are not checked. SL_FAILED if memory is short. */
int sl_frames_next(struct sl_frames *frames, bool reads, bool *more, struct sl_error *error);

SL_END_C
#endif
