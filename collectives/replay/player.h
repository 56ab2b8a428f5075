/* player.h - replays one coordinate of a mesh alone: an engine whose peers are messages saved by sl_recorder.
 *
 * Receives and collectives return their recorded results; sent data is discarded. A call without a recorded message, or
 * with a message of another operation or size, ends the run with SL_FAILED. */
#ifndef SL_COLLECTIVES_REPLAY_PLAYER_H
#define SL_COLLECTIVES_REPLAY_PLAYER_H

#include "collectives/replay/messages.h"
#include "spmd/engine.h"

SL_BEGIN_C

/* Properties of the recorded engine. */
struct sl_player_like {
    const char *name;
    bool apart, both_ends;
};

/* Runs PROGRAM at COORDINATE of MESH in the caller's thread. MESSAGES are the recorded ones for its beginning. Returns
 * PROGRAM's status; on failure ERROR has the message. */
int sl_player_run(const struct sl_mesh *mesh, const struct sl_player_like *like, int coordinate,
                  const struct sl_messages *messages, sl_program *program, void *arg, struct sl_error *error);

/* Called by PROGRAM: from now on calls receive MESSAGES, which must outlive these calls, and call numbers begin at 0.
 * NULL: no messages. */
void sl_player_use(struct sl_spmd *self, const struct sl_messages *messages);

SL_END_C
#endif
