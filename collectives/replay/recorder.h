/* recorder.h - an engine over another one, which keeps what a coordinate receives.
 *
 * A program that calls sl_recorder_open goes on over the same engine, but for one thing: coordinates do not read each
 * other's memory (sl_reads_peers), as there would be no message to keep. Every coordinate opens one, before it opens
 * groups and channels. */
#ifndef SL_COLLECTIVES_REPLAY_RECORDER_H
#define SL_COLLECTIVES_REPLAY_RECORDER_H

#include "collectives/replay/messages.h"
#include "spmd/engine.h"

SL_BEGIN_C

struct sl_recorder; /* opaque; each coordinate has its own */

/* Puts a recorder between SELF and its engine; it records from now on. SL_BAD_INPUT where the host does not read the
 * device's memory; SL_FAILED without memory. */
int sl_recorder_open(struct sl_recorder **recorder, struct sl_spmd *self);
/* The last thing that a program does. RECORDER may be NULL. */
void sl_recorder_close(struct sl_recorder *recorder, struct sl_spmd *self);

/* Empties the block of messages, and counts calls from 0 again. */
void sl_recorder_begin(struct sl_recorder *recorder);
/* Stops recording, or goes on. No call may be under way. What is opened meanwhile is never recorded. */
void sl_recorder_pause(struct sl_recorder *recorder, bool pauses);
/* What has been recorded since sl_recorder_begin. */
struct sl_messages *sl_recorder_messages(struct sl_recorder *recorder);

SL_END_C
#endif
