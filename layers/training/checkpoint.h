/* checkpoint.h - a training run in a file: values and optimizer state under their global names, and where the run is.
 *
 * One layout whatever the mesh is: what one mesh has saved another one loads, bit by bit. Files are safetensors
 * (layers/storage/safetensors.h), readable by its other libraries; their metadata are
 *     shardloop.checkpoint  the version of this layout, 1
 *     step, samples, seed   struct sl_checkpoint
 *     optimizer             its name, as in layers/training/optimizer.h; adamw where it is missing
 *     config.KEY            settings: what has to be the same where the run goes on, such as the model's sizes
 *
 * A directory holds a run's latest checkpoints as step-00000100.safetensors. A new one is whole and on the disk before
 * an older one is removed; what a crash leaves of one has a name that ends in .tmp. */
#ifndef SL_LAYERS_TRAINING_CHECKPOINT_H
#define SL_LAYERS_TRAINING_CHECKPOINT_H

#include "layers/storage/draft.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

struct sl_checkpoint {
    int64_t step;    /* optimizer steps taken */
    int64_t samples; /* taken from the data, which goes on there */
    uint64_t seed;
};

/* Lists of them end with a key of NULL. */
struct sl_setting {
    const char *key;
    char value[64];
};

struct sl_setting sl_setting_text(const char *key, const char *value);
struct sl_setting sl_setting_number(const char *key, int64_t value);

/* ---- one file ---- */

/* Collective: saves the run in PATH, which coordinate 0 writes. The step is the trainer's, whatever ABOUT says. All
 * coordinates return the same status: SL_FAILED where the file system fails; an older file then stays. */
int sl_checkpoint_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_checkpoint *about, const struct sl_setting *settings);

/* Collective: goes on from PATH, which coordinate 0 reads (PATH and SETTINGS may differ elsewhere). TRAINER is open; it
 * gets values, the optimizer's state and the number of steps, ABOUT the rest. SL_BAD_INPUT everywhere, and nothing
 * changed, for a file that is no whole checkpoint, of other settings or another optimizer (the line names both), or
 * whose tensors are not those of the model and the optimizer. */
int sl_checkpoint_load(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_setting *settings, struct sl_checkpoint *about);

/* What can be told of PATH before a run: fills ABOUT in, or refuses it as above. */
int sl_checkpoint_check(const char *path, const struct sl_setting *settings, struct sl_checkpoint *about,
                        struct sl_error *error);

/* ---- a directory of them ---- */

/* Writes the name of the checkpoint after STEP steps. */
int sl_checkpoint_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error);

/* Writes the name of the checkpoint with the most steps that is whole, as far as its size can tell. SL_BAD_INPUT where
 * there is none. */
int sl_checkpoint_latest(const char *directory, char path[SL_MAX_PATH], struct sl_error *error);

/* The most steps of a file that is called as a checkpoint; -1: there is none, or no such directory. */
int64_t sl_checkpoint_last_step(const char *directory);

/* Removes all checkpoints of fewer steps than STEP but the latest KEEP - 1, and what crashes have left. */
int sl_checkpoint_prune(const char *directory, int64_t step, int keep, struct sl_error *error);

SL_END_C
#endif
