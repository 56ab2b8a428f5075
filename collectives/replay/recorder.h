/* recorder.h - an engine on top of another one; it saves all data received by a coordinate.
 *
 * After sl_recorder_open a program runs on the same engine with one difference: coordinates do not read each other's
 * memory (sl_reads_peers), since such reads leave no message to save. Every coordinate opens a recorder, before it
 * opens groups and channels. */
#ifndef SL_COLLECTIVES_REPLAY_RECORDER_H
#define SL_COLLECTIVES_REPLAY_RECORDER_H

#include "collectives/replay/messages.h"
#include "spmd/engine.h"

SL_BEGIN_C

struct sl_recorder; /* opaque; each coordinate has its own */

/* Puts a recorder between SELF and its engine and starts recording. SL_BAD_INPUT if the host cannot read the device's
 * memory; SL_FAILED without memory. */
int sl_recorder_open(struct sl_recorder **recorder, struct sl_spmd *self);
/* Restores SELF's engine and frees RECORDER, which may be NULL. The program's last call. */
void sl_recorder_close(struct sl_recorder *recorder, struct sl_spmd *self);

/* Empties the block of messages, and counts calls from 0 again. */
void sl_recorder_begin(struct sl_recorder *recorder);
/* Pauses or resumes recording. No call may be under way. Groups and channels opened during a pause are never recorded.
 */
void sl_recorder_pause(struct sl_recorder *recorder, bool pauses);
/* Messages recorded since sl_recorder_begin. */
struct sl_messages *sl_recorder_messages(struct sl_recorder *recorder);

SL_END_C
#endif
