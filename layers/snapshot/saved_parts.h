/* saved_parts.h - a checkpoint of several processes, of which each writes its own part: all of the state, but for what
 * replicas hold alike, stays where it is until it is on the disk.
 *
 * Part K of M, step-00000100.part-K-of-M.safetensors with K from 1, is that of coordinate K - 1. The checkpoint counts
 * once coordinate 0 has written its index, step-00000100.index.json (layers/storage/parts.h), and that comes after all
 * parts. All processes must see one directory. What reads checkpoints (layers/training/checkpoint.h) takes the index as
 * any other checkpoint. */
#ifndef SL_LAYERS_SNAPSHOT_SAVED_PARTS_H
#define SL_LAYERS_SNAPSHOT_SAVED_PARTS_H

#include "layers/training/checkpoint.h"

SL_BEGIN_C

/* Whether the coordinates are processes, and more than one. */
bool sl_saved_parts_are_possible(const struct sl_spmd *self);

/* Collective: proves that what coordinate 0 writes in DIRECTORY, which is writable, every coordinate can read in its
 * own DIRECTORY: SL_BAD_INPUT on all of them names the first one that cannot. */
int sl_saved_parts_prove(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory);

/* Collective: saves the run as sl_checkpoint_save does, in parts in DIRECTORY, which has no checkpoint of this step yet
 * (sl_saved_parts_are_new). All coordinates return the same status, and after a failure no index has been written. */
int sl_saved_parts_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory,
                        const struct sl_checkpoint *about, const struct sl_setting *settings,
                        const struct sl_store *notes);

/* Collective: whether coordinate 0's DIRECTORY has no checkpoint of the trainer's step. If it has, new parts would take
 * the places of those in force: a whole file, in one rename, is to be saved then. */
int sl_saved_parts_are_new(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory, bool *are_new);

SL_END_C
#endif
