/* checkpoint.h - a training run in a file: values and optimizer state under their global names, and the run's progress.
 *
 * The layout does not depend on the mesh: a run saved on one mesh can be loaded on another, bit for bit. Files are
 * safetensors (layers/formats/stores/safetensors.h), which other programs can read. docs/checkpoints/format.md
 * describes them. Their metadata are:
 *
 *     shardloop.checkpoint  version of this layout: 2; files of version 1 have no checksums, and can be loaded
 *     shardloop.xxh3        checksums of all other contents (layers/formats/stores/checksums.h)
 *     step, samples, seed   the fields of struct sl_checkpoint
 *     optimizer             its name, as in layers/training/optimizers/optimizer.h; adamw if the entry is missing
 *     base                  if only adapters' values are saved: the source of the other values; base.*
 *                           are the writer's notes that identify them. Without base the file has all values
 *     config.KEY            settings to compare when the run resumes, such as the model's sizes
 *     others                notes of the training program
 *
 * A directory holds a run's latest checkpoints as step-00000100.safetensors; the entry step must match the name. If
 * processes have written their own parts (layers/records/snapshot/saved_parts.h), it holds step-00000100.index.json, an
 * index as in layers/formats/stores/store_parts.h with the same notes. All readers of checkpoints take either. An older
 * one is removed only after the new one is complete and on the disk. A crash may leave partial files whose names end in
 * .tmp, and parts without an index. If a checkpoint's name is a symbolic link, saving replaces the link and does not
 * follow it. */
#ifndef SL_LAYERS_TRAINING_CHECKPOINT_H
#define SL_LAYERS_TRAINING_CHECKPOINT_H

#include "layers/formats/files/draft.h"
#include "layers/training/exchange.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

#define SL_CHECKPOINT_INDEX ".index.json"
/* Note in a part of a checkpoint, to mark it. */
#define SL_CHECKPOINT_PART_KEY "shardloop.part"
/* Note with the source of the missing values. */
#define SL_CHECKPOINT_BASE_KEY "base"

struct sl_checkpoint {
    int64_t step;    /* optimizer steps taken so far */
    int64_t samples; /* samples used so far; the run resumes with the next one */
    uint64_t seed;
    bool compares; /* only for saving: compare replicas (layers/training/replicas.h) before copied data are written, so
                      that a bit that has flipped since the step's own check is not saved */
    int64_t version; /* of the file it was read from; 1: the file has no checksums. Ignored when saving */
};

/* A list of settings ends with a key of NULL. A NULL list is empty. */
struct sl_setting {
    const char *key;
    char value[64];
};

/* The setting KEY with a text of at most 63 characters, or with a number. */
struct sl_setting sl_setting_text(const char *key, const char *value);
struct sl_setting sl_setting_number(const char *key, int64_t value);

/* ---- one file ---- */

/* Saves the run in PATH; coordinate 0 writes it. Collective. The step is the trainer's; ABOUT's step is ignored. NOTES
 * (may be NULL) are saved, too; their keys must differ from those above. All coordinates return the same status:
 * SL_FAILED if the file system fails or a value is not finite, SL_CHECK_FAILED if compared replicas differ; an older
 * file of that name then remains. */
int sl_checkpoint_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes);

/* Loads PATH, which coordinate 0 reads; the other coordinates ignore PATH and SETTINGS. Collective. TRAINER must be
 * open. It receives the values, the optimizer's state and the number of steps; ABOUT receives the other fields.
 * SL_BAD_INPUT on all coordinates, with nothing changed, if the file is not a complete checkpoint; if it is damaged
 * (checksums, a non-finite value, or a step other than its name's); if its settings or optimizer differ (the error
 * names both); or if its tensors are not those of the model and the optimizer. If the directory of a damaged file has
 * an older checkpoint, the error names it. */
int sl_checkpoint_load(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_setting *settings, struct sl_checkpoint *about);

/* Checks PATH before a run, as far as possible without a trainer and without reading all data, and fills in ABOUT.
 * OPTIMIZER is the name of the run's; NULL: any. SL_BAD_INPUT as above. */
int sl_checkpoint_check(const char *path, const struct sl_setting *settings, const char *optimizer,
                        struct sl_checkpoint *about, struct sl_error *error);

/* Maps PATH, a checkpoint or another safetensors file, for its values. *VERSION is as in struct sl_checkpoint; 0: the
 * file is not a checkpoint. SL_BAD_INPUT as above; the data have not been checked yet. Free FILE also after a
 * failure. */
int sl_checkpoint_map(struct sl_store *file, const char *path, int *version, struct sl_error *error);
/* SL_BAD_INPUT if the checkpoint FILE, from PATH, has only adapters' values. */
int sl_checkpoint_whole(const struct sl_store *file, const char *path, struct sl_error *error);
/* Verifies all data of the mapped STORE before they are used; only coordinate 0 reads it, other coordinates' STORE is
 * ignored. Collective. TRAINER is planned. SL_BAD_INPUT on all coordinates if the data are damaged or not finite. */
int sl_checkpoint_verify(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_store *store);

/* ---- steps of saving, for other writers ---- */

/* sl_checkpoint_kinds returns the number of kinds of tensors in a checkpoint: values, then the optimizer's tensors.
 * sl_checkpoint_kind returns kind number I. */
static inline int sl_checkpoint_kinds(struct sl_trainer *trainer) { return 1 + sl_trainer_parameters(trainer)->states; }
static inline enum sl_state sl_checkpoint_kind(int i, bool adapters) {
    const enum sl_state values = adapters ? SL_ADAPTERS : SL_VALUES;
    return i == 0 ? values : (enum sl_state)(SL_STATES + i - 1);
}
/* Adds a checkpoint's notes to STORE, and requests checksums. The step is the trainer's. SL_FAILED if memory is
 * short. */
int sl_checkpoint_note(struct sl_store *store, struct sl_trainer *trainer, const struct sl_checkpoint *about,
                       const struct sl_setting *settings, const struct sl_store *notes);
/* Declares a checkpoint's tensors in STORE on coordinate 0. Collective. */
int sl_checkpoint_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* Copies values and optimizer state of all coordinates to STORE on coordinate 0, which has the tensors. Collective. */
int sl_checkpoint_gather(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* As sl_checkpoint_gather, but if coordinates share memory and all pass the same STORE, each copies its own part to
 * it. */
int sl_checkpoint_copy(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store);
/* Returns coordinate 0's status on all coordinates; OWN is its error. Collective. */
int sl_checkpoint_agree(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_error *own);

/* ---- a directory of checkpoints ---- */

/* Writes the name of the checkpoint after STEP steps to PATH: of a whole file, of an index, or of part PART, from 1, of
 * PARTS. SL_BAD_INPUT if it is too long. */
int sl_checkpoint_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error);
int sl_checkpoint_index_name(const char *directory, int64_t step, char path[SL_MAX_PATH], struct sl_error *error);
int sl_checkpoint_part_name(const char *directory, int64_t step, int part, int parts, char path[SL_MAX_PATH],
                            struct sl_error *error);
/* Writes the name of the existing checkpoint after STEP steps to PATH: the index if only the index exists, otherwise
 * the whole file's name. Returns whether either exists. */
bool sl_checkpoint_at(const char *directory, int64_t step, char path[SL_MAX_PATH]);

/* Writes the name of the complete checkpoint with the most steps to PATH. A checkpoint is complete if its size is right
 * or, if it is an index, all its parts exist with the right sizes. SL_BAD_INPUT if there is none. SKIPPED (may be NULL)
 * names an incomplete one with more steps; its status is SL_OK if there is none. */
int sl_checkpoint_latest(const char *directory, char path[SL_MAX_PATH], struct sl_error *skipped,
                         struct sl_error *error);
/* Writes the name of the complete checkpoint with the most steps below those of the checkpoint PATH to OLDER. False if
 * there is none, or if PATH is not a checkpoint's name. */
bool sl_checkpoint_older(const char *path, char older[SL_MAX_PATH]);
/* Steps in the name of PATH; -1 if it is not a checkpoint's name. */
int64_t sl_checkpoint_step_of(const char *path);

/* Steps of the latest checkpoint in DIRECTORY, found by sl_checkpoint_latest; -1 if there is none. */
int64_t sl_checkpoint_last_step(const char *directory);

/* Removes checkpoints with fewer steps than STEP, except the latest KEEP - 1 of them and the one with BEST steps (-1:
 * none); also files left by crashes, and an index beside a whole file of the same step. The index of a checkpoint in
 * parts is removed before its parts. */
int sl_checkpoint_prune(const char *directory, int64_t step, int keep, int64_t best, struct sl_error *error);

SL_END_C
#endif
