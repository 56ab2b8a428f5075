/* faults.h - the argument of --fail: coordinates that are to fail, and when. */
#ifndef SL_DRIVERS_TRAINING_FAULTS_H
#define SL_DRIVERS_TRAINING_FAULTS_H

#include "collectives/failing.h"

/* Zero-initialize; free with sl_faults_free. */
struct sl_faults {
    int count, room;
    struct sl_fault *list;
};

/* Reads "2@17,0@40:90" (COORDINATE@STEP:CALL, see collectives/failing.h; without CALL, it is 0) for a run of STEPS on
 * MESH. TEXT may be NULL: no faults. SL_BAD_INPUT if it is something else, or names a coordinate or step that the run
 * lacks. */
int sl_faults_read(struct sl_faults *faults, const char *text, const struct sl_mesh *mesh, int64_t steps,
                   struct sl_error *error);
void sl_faults_free(struct sl_faults *faults);

#endif
