/* snapshot.h - saves a training run while it goes on: a copy of what a checkpoint holds is taken between two steps, and
 * a thread writes it while the next steps run.
 *
 * Coordinate 0's process has the copy, as large as the file, and the thread; all memory is taken before the first step.
 * The file has the bytes of the one that sl_checkpoint_save would write, and takes its place in the same way. There is
 * one copy: the next one waits until it has been written.
 *
 * In parts (layers/snapshot/saved_parts.h) each coordinate's process has the copy of its own part, and a thread.
 * Coordinate 0's thread writes the index once it sees the others' parts in the directory, so that steps go on without a
 * message. */
#ifndef SL_LAYERS_SNAPSHOT_SNAPSHOT_H
#define SL_LAYERS_SNAPSHOT_SNAPSHOT_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

struct sl_snapshot; /* opaque. Coordinates that share memory pass the same one; others than coordinate 0's process may
                       pass NULL */

/* What there was to do so far. */
struct sl_snapshot_account {
    int64_t copies;
    size_t bytes;          /* of one */
    double copied, waited; /* seconds between steps: of the copies, and before them for the thread */
};

/* Starts the thread, before the run, in the process of coordinate 0, and for parts in all: it may then run on all cores
 * that the process may. SL_FAILED without memory. Free with sl_snapshot_close. */
int sl_snapshot_start(struct sl_snapshot **snapshot, struct sl_error *error);
/* Waits until what was handed over is written, and ends the thread. SNAPSHOT may be NULL. */
void sl_snapshot_close(struct sl_snapshot *snapshot);

/* Collective: adds to BUDGET what sl_snapshot_open will take on this coordinate. TRAINER is planned. */
int sl_snapshot_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, bool parts, struct sl_budget *budget);
/* Collective: takes the memory, and counts it. PARTS: for parts, which must be possible. SL_FAILED if there is not
 * enough. */
int sl_snapshot_open(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer, bool parts);

/* Collective, between two steps: copies the run and hands the copy over to be saved as sl_checkpoint_save does, under
 * its name in DIRECTORY; then all but the latest KEEP checkpoints, and that of BEST steps (-1: none), are removed. Of
 * parts, DIRECTORY has no checkpoint of this step yet. First waits for the last copy to be written: SL_FAILED on all
 * coordinates if that has failed. */
int sl_snapshot_save(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer,
                     const char *directory, const struct sl_checkpoint *about, const struct sl_setting *settings,
                     const struct sl_store *notes, int keep, int64_t best);
/* Collective: waits until everything is written. SL_FAILED on all coordinates, with its line, if something could not be
 * written. */
int sl_snapshot_wait(struct sl_snapshot *snapshot, struct sl_spmd *self, struct sl_trainer *trainer);

/* Where the thread is: whether something could not be written, as sl_snapshot_wait will say. SNAPSHOT may be NULL. */
bool sl_snapshot_has_failed(struct sl_snapshot *snapshot);
/* On coordinate 0, or after the run. */
struct sl_snapshot_account sl_snapshot_account(const struct sl_snapshot *snapshot);

SL_END_C
#endif
