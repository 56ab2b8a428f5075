/* saved_parts.h - a checkpoint of several processes, each of which writes its own part. Except for state shared by
 * replicas, no state is sent to other processes.
 *
 * Part K of M, step-00000100.part-K-of-M.safetensors with K from 1, is written by coordinate K - 1. The checkpoint is
 * valid once coordinate 0 has written its index, step-00000100.index.json (layers/formats/stores/store_parts.h), after
 * all parts. All processes must see the same directory. Readers of checkpoints (layers/training/checkpoint.h) take the
 * index like any other checkpoint. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_SAVED_PARTS_H
#define SL_LAYERS_RECORDS_SNAPSHOT_SAVED_PARTS_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

/* Whether the coordinates are processes, and more than one. */
bool sl_saved_parts_are_possible(const struct sl_spmd *self);

/* Checks that every coordinate can read a file of coordinate 0 in its own DIRECTORY, which is writable at coordinate 0.
 * SL_BAD_INPUT on all coordinates names the first one to fail. Collective. */
int sl_saved_parts_prove(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory);

/* Saves the run as sl_checkpoint_save does, in parts in DIRECTORY, which must not have a checkpoint of this step yet
 * (sl_saved_parts_are_new). All coordinates return the same status; after a failure no index has been written.
 * Collective. */
int sl_saved_parts_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory,
                        const struct sl_checkpoint *about, const struct sl_setting *settings,
                        const struct sl_store *notes);

/* Sets *ARE_NEW: whether coordinate 0's DIRECTORY has no checkpoint of the trainer's step. If it has one, save a whole
 * file, which replaces it in one rename; new parts would overwrite parts in use. Collective. */
int sl_saved_parts_are_new(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory, bool *are_new);

SL_END_C
#endif
