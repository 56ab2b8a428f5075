/* protection_leave.c - brings a step to coordinate 0's host, and removes those of the other hosts. */
#include "layers/records/snapshot/protection_leave.h"

#include <unistd.h>

#include "layers/records/snapshot/protection_collect.h"
#include "layers/training/checkpoint.h"

static const double time_to_be_ended = 30; /* seconds, for the watcher */

int sl_protection_leave_open(struct sl_protection_leave *leave, struct sl_spmd *self,
                             const struct sl_protection_hosts *hosts) {
    return hosts->count > 1 ? sl_group_axes(self, "*", &leave->world) : SL_OK;
}

int sl_protection_leave_hear(struct sl_protection_leave *leave, struct sl_spmd *self, bool *asked) {
    *asked = false;
    if (!leave->under_way) return SL_OK;
    leave->under_way = false;
    SL_TRY(sl_wait(self, &leave->request));
    *asked = leave->asked;
    return SL_OK;
}

int sl_protection_leave_tell(struct sl_protection_leave *leave, struct sl_spmd *self, const char *folder) {
    if (!leave->world.size) return SL_OK;
    leave->asked = self->coordinate == 0 && sl_protection_is_asked_to_leave(folder);
    SL_TRY(sl_broadcast_start(self, &leave->request, &leave->world, SL_I32, &leave->asked, &leave->asked, 1, 0));
    leave->under_way = true;
    return SL_OK;
}

static int wait_to_be_ended(struct sl_spmd *self) {
    const double end = sl_now() + time_to_be_ended;
    while (sl_now() < end) {
        SL_TRY(sl_progress(self));
        usleep(1000);
    }
    return sl_fail(self, SL_FAILED, "--protect: the run was to go on on another mesh, but nobody has ended it");
}

int sl_protection_leave(struct sl_protection_leave *leave, struct sl_spmd *self,
                        const struct sl_protection_hosts *hosts, const char *folder, const char *start, int64_t step) {
    const int *first = hosts->first, me = self->coordinate;
    char sought[SL_MAX_PATH], index[SL_MAX_PATH];
    size_t moved;
    SL_TRY(sl_barrier(self, &leave->world)); /* all copies are complete */
    SL_TRY(sl_checkpoint_index_name(start, step, sought, &self->error));
    SL_TRY(sl_protection_collect(self, sought, index, &moved));
    SL_TRY(sl_barrier(self, &leave->world)); /* coordinate 0's host has the step */
    if (first[me] == me && me != first[0]) sl_protection_remove(folder, NULL);
    SL_TRY(sl_barrier(self, &leave->world)); /* no other host has one */
    if (me == 0) sl_protection_say_left(folder);
    return wait_to_be_ended(self);
}
