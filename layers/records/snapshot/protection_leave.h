/* protection_leave.h - the end of a run on several hosts that continues on another mesh, perhaps without some of them.
 *
 * The watcher asks by a file beside the run's steps (layers/records/snapshot/protection_folder.h). Coordinate 0 tells
 * the others, and all leave after the same step: the parts that coordinate 0's host lacks are sent there, the other
 * hosts remove their steps, because no process of the next run may be there to do so, and the watcher ends the run. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_LEAVE_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_LEAVE_H

#include "collectives/collectives.h"
#include "layers/records/snapshot/protection_hosts.h"

SL_BEGIN_C

/* A coordinate's part in hearing the request. Zero-initialize; on one host it stays so. */
struct sl_protection_leave {
    struct sl_group world; /* of the calls that tell of it; empty on one host */
    struct sl_request request;
    int32_t asked; /* the call's value */
    bool under_way;
};

/* Opens the calls, if there are several HOSTS. Collective. */
int sl_protection_leave_open(struct sl_protection_leave *leave, struct sl_spmd *self,
                             const struct sl_protection_hosts *hosts);
/* Ends the call of the step before; *ASKED: whether the watcher had asked then, the same on all coordinates. */
int sl_protection_leave_hear(struct sl_protection_leave *leave, struct sl_spmd *self, bool *asked);
/* Starts a call, in which coordinate 0 tells whether the watcher has asked, beside the folder FOLDER. */
int sl_protection_leave_tell(struct sl_protection_leave *leave, struct sl_spmd *self, const char *folder);
/* Leaves after STEP of START, all of whose copies are complete, and waits to be ended. Returns only a failure.
 * Collective. */
int sl_protection_leave(struct sl_protection_leave *leave, struct sl_spmd *self,
                        const struct sl_protection_hosts *hosts, const char *folder, const char *start, int64_t step);

SL_END_C
#endif
