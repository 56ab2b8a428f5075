/* player.h - one coordinate of a mesh again, alone: an engine whose peers are messages that sl_recorder has kept.
 *
 * Receives and collectives give what they gave; what the coordinate sends goes nowhere. A call for which there is no
 * message, or a message of another operation or size, ends the run with SL_FAILED. */
#ifndef SL_COLLECTIVES_REPLAY_PLAYER_H
#define SL_COLLECTIVES_REPLAY_PLAYER_H

#include "collectives/replay/messages.h"
#include "spmd/engine.h"

SL_BEGIN_C

/* What the recorded engine was. */
struct sl_player_like {
    const char *name;
    bool apart, both_ends;
};

/* Runs PROGRAM at COORDINATE of MESH in the caller's thread. MESSAGES are those of its beginning. Returns PROGRAM's
 * status; ERROR has its message. */
int sl_player_run(const struct sl_mesh *mesh, const struct sl_player_like *like, int coordinate,
                  const struct sl_messages *messages, sl_program *program, void *arg, struct sl_error *error);

/* For PROGRAM: from now on calls receive MESSAGES, which outlive the next calls, and are counted from 0. NULL: there
 * are none. */
void sl_player_use(struct sl_spmd *self, const struct sl_messages *messages);

SL_END_C
#endif
