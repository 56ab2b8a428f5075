/* checkpoint.h - a training run in a file: values and optimizer state under their global names, and how far the run has
 * come.
 *
 * The layout does not depend on the mesh: a run that one mesh has saved, another mesh can load, bit for bit. Files are
 * safetensors (layers/storage/safetensors.h), which other programs can read. docs/checkpoints_format.md describes them.
 * Their metadata are:
 *
 *     shardloop.checkpoint  the version of this layout: 2; files of version 1 have no checksums, and can be loaded
 *     shardloop.xxh3        checksums of all the rest (layers/storage/checksums.h)
 *     step, samples, seed   the fields of struct sl_checkpoint
 *     optimizer             its name, as in layers/training/optimizer.h; adamw if the entry is missing
 *     base                  where values are that the file leaves out, all but those of adapters; and what tells that
 *                           they are the same (base.*), which is its writer's. Without it the file has all values
 *     config.KEY            settings that must be the same when the run goes on, such as the model's sizes
 *     others                what the program that trains wants to find again
 *
 * A directory holds a run's latest checkpoints as step-00000100.safetensors, which is also what their step entry must
 * say; or, where processes have written their own parts (layers/snapshot/saved_parts.h), as step-00000100.index.json,
 * an index as in layers/storage/parts.h with the same notes. Whatever reads a checkpoint takes either. An older one is
 * removed only after the new one is whole and on the disk. A crash may leave partial files whose names end in .tmp, and
 * parts without an index. A symbolic link under a checkpoint's name is replaced, never followed, when the run saves. */
#ifndef SL_LAYERS_TRAINING_CHECKPOINT_H
#define SL_LAYERS_TRAINING_CHECKPOINT_H

#include "layers/storage/draft.h"
#include "layers/training/exchange.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

#define SL_CHECKPOINT_INDEX ".index.json"
/* The note by which a part tells that it is one. */
#define SL_CHECKPOINT_PART_KEY "shardloop.part"
/* The note that tells where values are that the file leaves out. */
#define SL_CHECKPOINT_BASE_KEY "base"

struct sl_checkpoint {
    int64_t step;    /* optimizer steps taken so far */
    int64_t samples; /* samples taken so far; the run goes on with the next one */
    uint64_t seed;
    int64_t version; /* of the file that it was read from; 1: the file has no checksums. Saving ignores it */
};

/* A list of these ends with a key of NULL. A NULL list is empty. */
struct sl_setting {
    const char *key;
    char value[64];
};

/* The setting KEY with a text of at most 63 characters, or with a number. */
struct sl_setting sl_setting_text(const char *key, const char *value);
struct sl_setting sl_setting_number(const char *key, int64_t value);

/* ---- one file ---- */

/* Collective: saves the run in PATH, which coordinate 0 writes. The step is the trainer's; ABOUT's is ignored. The
 * notes in NOTES (may be NULL) are saved, too: their keys are others than those above. All coordinates return the same
 * status: SL_FAILED if the file system fails, or if a value is not finite, and then an older file of that name is still
 * there. */
int sl_checkpoint_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes);

/* Collective: loads PATH, which coordinate 0 reads; the other coordinates ignore PATH and SETTINGS. TRAINER must be
 * open. It gets the values, the optimizer's state and the number of steps; ABOUT gets the rest. SL_BAD_INPUT on all
 * coordinates, with nothing changed, if the file is no whole checkpoint, if it is damaged (its checksums tell, or a
 * value is not finite, or its name says another step), if it has other settings or another optimizer (the line names
 * both), or if its tensors are not those of the model and the optimizer. Where a damaged file lies in a directory that
 * has an older one, the line names that one. */
int sl_checkpoint_load(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_setting *settings, struct sl_checkpoint *about);

/* Checks PATH before a run, as far as that is possible without a trainer and without reading all data, and fills in
 * ABOUT. OPTIMIZER is the name of the run's; NULL: any will do. SL_BAD_INPUT as above. */
int sl_checkpoint_check(const char *path, const struct sl_setting *settings, const char *optimizer,
                        struct sl_checkpoint *about, struct sl_error *error);

/* Maps PATH, the checkpoint of any run or another safetensors file, for its values. *VERSION is as in struct
 * sl_checkpoint; 0: the file is no checkpoint. SL_BAD_INPUT as above; the data have not been looked at yet. Free FILE
 * also after a failure. */
int sl_checkpoint_map(struct sl_store *file, const char *path, int *version, struct sl_error *error);
/* SL_BAD_INPUT if the checkpoint FILE, from PATH, leaves values out. */
int sl_checkpoint_whole(const struct sl_store *file, const char *path, struct sl_error *error);
/* Collective: coordinate 0 reads all data of STORE, which was mapped, before they are used; the others' STORE is
 * ignored. TRAINER is planned. SL_BAD_INPUT on all coordinates if the data are damaged or not finite. */
int sl_checkpoint_verify(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_store *store);

/* ---- its parts, for those that write it in another way ---- */

/* What a checkpoint has, kind by kind, of COUNT: values, then the optimizer's tensors. */
static inline int sl_checkpoint_kinds(struct sl_trainer *trainer) { return 1 + sl_trainer_parameters(trainer)->states; }
static inline enum sl_state sl_checkpoint_kind(int i, bool adapters) {
    const enum sl_state values = adapters ? SL_ADAPTERS : SL_VALUES;
    return i == 0 ? values : (enum sl_state)(SL_STATES + i - 1);
}
/* Gives STORE a checkpoint's notes, and the checksums that it will have. The step is the trainer's. SL_FAILED without
 * memory. */
int sl_checkpoint_note(struct sl_store *store, struct sl_trainer *trainer, const struct sl_checkpoint *about,
                       const struct sl_setting *settings, const struct sl_store *notes);
/* Collective: declares a checkpoint's tensors in STORE on coordinate 0. */
int sl_checkpoint_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* Collective: copies values and the optimizer's state of all coordinates to STORE on coordinate 0, which has the
 * tensors. */
int sl_checkpoint_gather(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* The same where coordinates that share memory all pass the same STORE: then each copies its own part of it. */
int sl_checkpoint_copy(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* Collective: all return what coordinate 0 has come to, whose error is OWN. */
int sl_checkpoint_agree(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_error *own);

/* ---- a directory of checkpoints ---- */

/* Writes the name of the checkpoint after STEP steps to PATH: of a whole file, of an index, or of part PART, from 1, of
 * PARTS. SL_BAD_INPUT if it is too long. */
int sl_checkpoint_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error);
int sl_checkpoint_index_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error);
int sl_checkpoint_part_name(const char *directory, int64_t step, int part, int parts, char path[SL_MAX_PATH],
                            struct sl_error *error);
/* Writes to PATH the name of the checkpoint after STEP steps that is there: the index if only that is, otherwise the
 * whole file's. Returns whether one of them is there. */
bool sl_checkpoint_at(const char *directory, int64_t step, char path[SL_MAX_PATH]);

/* Writes to PATH the name of the checkpoint with the most steps that is whole, as far as sizes tell; of parts, also as
 * far as they are there. SL_BAD_INPUT if there is none. SKIPPED (may be NULL) says which one of more steps is not
 * whole; its status is SL_OK if none is. */
int sl_checkpoint_latest(const char *directory, char path[SL_MAX_PATH], struct sl_error *skipped,
                         struct sl_error *error);
/* The same with fewer steps than the checkpoint PATH has. False if there is none, or if PATH's name is no checkpoint's.
 */
bool sl_checkpoint_older(const char *path, char older[SL_MAX_PATH]);
/* How many steps the name of PATH says; -1 if it is no checkpoint's. */
int64_t sl_checkpoint_step_of(const char *path);

/* The steps of the checkpoint that sl_checkpoint_latest finds in DIRECTORY; -1 if there is none. */
int64_t sl_checkpoint_last_step(const char *directory);

/* Removes the checkpoints of fewer steps than STEP, except the latest KEEP - 1 of them and that of BEST steps (-1:
 * there is none); the files that crashes have left; and an index beside a whole file of the same step. Of a checkpoint
 * in parts the index goes first. */
int sl_checkpoint_prune(const char *directory, int64_t step, int keep, int64_t best, struct sl_error *error);

SL_END_C
#endif
