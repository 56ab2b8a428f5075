/* frames.h - the files of a ring of messages: frames, one after another.
 *
 * A coordinate's files lie beside its journal: coordinate-05.opening has a SL_FRAME_HEAD and a SL_FRAME_OPENING, and
 * each coordinate-05-000000000812.segment, whose first step is its name, a SL_FRAME_STATE and then a SL_FRAME_STEP a
 * step. A frame that is cut off at the end, where a run was killed, does not count. Numbers are little-endian:
 *
 *     bytes 0-7    "slframe1"
 *     bytes 8-11   enum sl_frame_kind
 *     bytes 12-15  0
 *     bytes 16-23  the step: whose messages these are, or which comes after the state
 *     bytes 24-31  samples of the data that were taken before the step
 *     bytes 32-39  bytes of the contents
 *     bytes 40-55  0
 *     bytes 56-63  XXH3 of the bytes before
 *     then the contents, and their XXH3 in 8 bytes */
#ifndef SL_LAYERS_REPLAY_FRAMES_H
#define SL_LAYERS_REPLAY_FRAMES_H

#include <stdio.h>

#include "collectives/replay/messages.h"
#include "layers/storage/draft.h"
#include "spmd/base/hash.h"

SL_BEGIN_C

enum sl_frame_kind {
    SL_FRAME_HEAD = 1, /* JSON: what the run was (layers/replay/ring.h) */
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

/* Writes FRAME, whose kind, step, samples and bytes are given, its contents DATA [bytes] and their hash, and flushes;
 * 0, or errno. Takes no memory. */
int sl_frame_write(FILE *stream, struct sl_frame *frame, const void *data);
/* The same with contents that come piece by piece. Each is 0, or errno. */
int sl_frame_begin(FILE *stream, struct sl_hasher **hasher, struct sl_frame *frame);
int sl_frame_add(FILE *stream, struct sl_hasher *hasher, const void *data, size_t bytes);
/* Frees HASHER and flushes. Call it also after a failure. */
int sl_frame_end(FILE *stream, struct sl_hasher *hasher);

/* A file that is read. */
struct sl_frames {
    char path[SL_MAX_PATH];
    FILE *stream;
    struct sl_frame frame; /* the one that was read last */
    struct sl_messages contents;
};

/* SL_BAD_INPUT if PATH cannot be read. Close it also after a failure. */
int sl_frames_open(struct sl_frames *frames, const char *path, struct sl_error *error);
void sl_frames_close(struct sl_frames *frames);
/* Reads the next frame that is whole, and its contents if READS; *MORE is false where there is none. SL_BAD_INPUT where
 * the file is damaged; contents that are not read are not looked at. SL_FAILED without memory. */
int sl_frames_next(struct sl_frames *frames, bool reads, bool *more, struct sl_error *error);

SL_END_C
#endif
