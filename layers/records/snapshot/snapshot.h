/* snapshot.h - saves a training run in the background: the checkpoint's data are copied between two steps, and a thread
 * writes the copy while the next steps run.
 *
 * Coordinate 0's process has the copy, as large as the file, and the thread; all memory is allocated before the first
 * step. The file has the same bytes as one of sl_checkpoint_save, and is renamed to its path in the same way. There is
 * one copy: the next save waits until it has been written.
 *
 * In parts (layers/records/snapshot/saved_parts.h) each coordinate's process has a copy of its own part, and a thread.
 * Coordinate 0's thread writes the index once it sees the others' parts in the directory, so steps continue without
 * messages. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_SNAPSHOT_H
#define SL_LAYERS_RECORDS_SNAPSHOT_SNAPSHOT_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

struct sl_snapshot; /* opaque. Coordinates with shared memory pass the same one; processes other than coordinate 0's may
                       pass NULL */

/* Work so far. */
struct sl_snapshot_account {
    int64_t copies;
    size_t bytes;          /* of one copy */
    double copied, waited; /* seconds between steps: for the copies, and before them for the thread */
};

/* Starts the thread, before the run, to let it use all cores of the process: in the process of coordinate 0; for parts,
 * in all processes. SL_FAILED if memory is short. Free with sl_snapshot_close. */
int sl_snapshot_start(struct sl_snapshot **snapshot, struct sl_error *error);
/* Waits until the last copy is written, and ends the thread. SNAPSHOT may be NULL. */
void sl_snapshot_close(struct sl_snapshot *snapshot);

/* Adds the memory of sl_snapshot_open on this coordinate to BUDGET. TRAINER is planned. Collective. */
int sl_snapshot_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, bool parts, struct sl_budget *budget);
/* Allocates the memory, and counts it. PARTS: save in parts, which must be possible. SL_FAILED if memory is short.
 * Collective. */
int sl_snapshot_open(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer, bool parts);

/* Copies the run between two steps, and starts to save the copy as sl_checkpoint_save does, under its name in
 * DIRECTORY; then all checkpoints but the latest KEEP, and that of BEST steps (-1: none), are removed. With parts,
 * DIRECTORY must not have a checkpoint of this step yet. First waits until the last copy is written: SL_FAILED on all
 * coordinates if this has failed. Collective. */
int sl_snapshot_save(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer,
                     const char *directory, const struct sl_checkpoint *about, const struct sl_setting *settings,
                     const struct sl_store *notes, int keep, int64_t best);
/* Waits until everything is written. SL_FAILED on all coordinates, with the error, if a write has failed.
 * Collective. */
int sl_snapshot_wait(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer);

/* Whether a write has failed, in a process with the thread; sl_snapshot_wait then returns the error. SNAPSHOT may be
 * NULL. */
bool sl_snapshot_has_failed(struct sl_snapshot *snapshot);
/* The account; call it on coordinate 0, or after the run. */
struct sl_snapshot_account sl_snapshot_account(const struct sl_snapshot *snapshot);

SL_END_C
#endif
