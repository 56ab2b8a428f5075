/* protection.h - a run's latest steps in memory that outlives its processes: --protect.
 *
 * Each coordinate writes its own part, as for a checkpoint in parts (layers/records/snapshot/saved_parts.h), into a
 * file in /dev/shm (layers/records/snapshot/protection_folder.h), whose space is reserved before the first step. There
 * is room for two steps, used in turns. A step ends with a sum over all coordinates, so that a coordinate that ends
 * step K knows that all have written step K - 1, and may write over step K - 2. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

struct sl_protection; /* opaque, of all coordinates of a process */

/* Work of a coordinate so far. */
struct sl_protection_account {
    int64_t steps;
    size_t bytes; /* of one step */
    double seconds;
};

/* Free with sl_protection_close, which removes a start's folder without a step. NULL: SL_FAILED, memory is short. */
struct sl_protection *sl_protection_new(int coordinates);
void sl_protection_close(struct sl_protection *protection);

/* Adds the memory of sl_protection_open on this coordinate to BUDGET. TRAINER is planned. Collective. */
int sl_protection_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_budget *budget);
/* Reserves the memory, and counts it. Coordinate 0 names the directory SAVE, which its process has locked, and FROM,
 * the checkpoint that the run goes on from (NULL: none); other steps of earlier runs are removed. ABOUT, SETTINGS and
 * NOTES as for sl_checkpoint_save. *SHARED: whether all coordinates see one folder; otherwise nothing is protected.
 * SL_BAD_INPUT if there is no room. Collective. */
int sl_protection_open(struct sl_protection *protection, struct sl_spmd *self, struct sl_trainer *trainer,
                       const char *save, const char *from, const struct sl_checkpoint *about,
                       const struct sl_setting *settings, const struct sl_store *notes, bool *shared);

/* Copies this coordinate's part of the step just taken, after which SAMPLES have been used. Does not wait for others. A
 * step with values that are not finite does not count. */
int sl_protection_commit(struct sl_protection *protection, struct sl_spmd *self, struct sl_trainer *trainer,
                         int64_t samples);
/* Removes all steps in memory: the run has ended, or its values cannot be trusted. */
void sl_protection_end(struct sl_protection *protection, const struct sl_spmd *self);

/* The account of COORDINATE, in its process. */
struct sl_protection_account sl_protection_account(const struct sl_protection *protection, int coordinate);

SL_END_C
#endif
