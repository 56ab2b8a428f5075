/* protection.h - a run's latest steps in memory that outlives its processes: --protect.
 *
 * Each coordinate writes its own part, as for a checkpoint in parts (layers/records/snapshot/saved_parts.h), to a file
 * in /dev/shm (layers/records/snapshot/protection_folder.h). There is room for two steps, used in turns and reserved
 * before the first step. Each step ends with a sum over all coordinates. So when a coordinate ends step K, all
 * coordinates have written step K - 1, and it may write over step K - 2.
 *
 * If the coordinates are on several hosts, each part is also copied to the next host while the next step is computed
 * (layers/records/snapshot/protection_copies.h), and there is room for three steps: when a coordinate ends step K, all
 * copies of step K - 2 are complete, and it may write over step K - 3. So each of two hosts always has a whole step. Of
 * more hosts, those that remain have one if no two neighbours are lost. A run that continues brings its parts together
 * (layers/records/snapshot/protection_collect.h). If it is to continue on another mesh, they are brought together
 * before it ends, because hosts may leave it (layers/records/snapshot/protection_leave.h). */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

struct sl_protection; /* opaque, of all coordinates of a process */

/* The copies that a coordinate has made so far. */
struct sl_protection_account {
    int64_t steps;
    size_t bytes; /* of one step */
    size_t kept;  /* of one step of other coordinates, copied from the host before */
    size_t sent;  /* to the next host, in all steps */
    double seconds;
};

/* Returns NULL if memory is short. Free with sl_protection_close, which removes no files. */
struct sl_protection *sl_protection_new(int coordinates);
void sl_protection_close(struct sl_protection *protection);

/* Adds the memory that sl_protection_open will reserve on this coordinate to BUDGET. TRAINER must be planned.
 * Collective. */
int sl_protection_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_budget *budget);
/* Refuses a run for which there is no room once the steps of earlier runs are removed; removes nothing yet. SAVE is the
 * directory of --save, locked by coordinate 0's process; FROM, read at coordinate 0, is the checkpoint from which the
 * run continues (NULL: none). SL_BAD_INPUT if there is no room. Collective. */
int sl_protection_prepare(struct sl_protection *protection, struct sl_spmd *self, struct sl_trainer *trainer,
                          const char *save, const char *from);
/* After sl_protection_prepare: reserves the memory, and counts it. SAVE and FROM are as above, both read at coordinate
 * 0. Steps of earlier runs are removed, except FROM. ABOUT, SETTINGS and NOTES are as in sl_checkpoint_save.
 * SL_BAD_INPUT if there is no room: FROM then stays. Collective. */
int sl_protection_open(struct sl_protection *protection, struct sl_spmd *self, struct sl_trainer *trainer,
                       const char *save, const char *from, const struct sl_checkpoint *about,
                       const struct sl_setting *settings, const struct sl_store *notes);

/* Copies this coordinate's part of the step just taken; does not return if the run leaves its hosts. SAMPLES: number of
 * samples used so far. On several hosts, waits for the copies of the step before it, and starts to send those of this
 * step. If a value is not finite, the part stays invalid. */
int sl_protection_commit(struct sl_protection *protection, struct sl_spmd *self, struct sl_trainer *trainer,
                         int64_t samples);
/* Waits for copies still being sent. Call it on all coordinates after the last step. */
int sl_protection_settle(struct sl_protection *protection, struct sl_spmd *self);
/* Whether this coordinate is the first one on its host, and removes the host's steps. */
bool sl_protection_leads(const struct sl_protection *protection, const struct sl_spmd *self);
/* Removes all steps in this host's memory: the run has ended, or its values cannot be trusted. */
void sl_protection_end(struct sl_protection *protection, const struct sl_spmd *self);

/* The account of COORDINATE, a coordinate of this process. */
struct sl_protection_account sl_protection_account(const struct sl_protection *protection, int coordinate);

SL_END_C
#endif
