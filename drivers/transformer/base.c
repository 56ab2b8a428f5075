/* base.c - checkpoints with only the values of adapters: finds the other values, and checks that they have not
 * changed.
 *
 * Such a checkpoint notes the option, --model or --params, from which its run read all other values, the path, and a
 * hash of each tensor there. A run that resumes from it or uses it reads the same values again, and the adapters
 * come from the checkpoint. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/transformer/transformer.h"
#include "spmd/base/hash.h"

static const char option_key[] = SL_CHECKPOINT_BASE_KEY ".option", hash_prefix[] = SL_CHECKPOINT_BASE_KEY ".xxh3.";
enum { KEY = 160, SOME = 1 << 14 /* floats read at once */ };

/* ---- tensors of --model or --params ---- */

static int tensors_of(const struct transformer_job *job) {
    return job->config->params ? job->params.count : job->published.weights.count;
}

/* Returns the name of tensor I; NULL: it has no data. */
static const char *name_of(const struct transformer_job *job, int i) {
    if (!job->config->params)
        return job->published.weights.weight[i].data ? job->published.weights.weight[i].name : NULL;
    return strncmp(job->params.tensor[i].name, "optimizer.", 10) != 0 ? job->params.tensor[i].name : NULL;
}

static size_t elements_of(const struct transformer_job *job, int i) {
    return job->config->params ? sl_array_elements(&job->params.tensor[i].array)
                               : sl_weight_elements(&job->published.weights.weight[i]);
}

static void read_some(const struct transformer_job *job, int i, size_t first, size_t count, float *values) {
    if (job->config->params)
        sl_tensor_read(&job->params.tensor[i], first, count, values);
    else
        sl_weight_read(&job->published.weights.weight[i], first, count, values);
}

/* Called for each tensor with its name and hash. */
typedef int take_hash(struct transformer_job *job, const char *name, const char *hash, struct sl_error *error);
static int hash_all(struct transformer_job *job, take_hash *take, struct sl_error *error) {
    struct sl_hasher hasher;
    float *values = malloc(SOME * sizeof *values);
    char hash[SL_HASH_DIGITS + 1];
    sl_hasher_begin(&hasher);
    int status = values ? SL_OK : sl_error_set(error, SL_FAILED, "no memory to hash the frozen values");
    for (int i = 0; i < tensors_of(job) && status == SL_OK; i++) {
        const size_t elements = name_of(job, i) ? elements_of(job, i) : 0;
        for (size_t first = 0, count; first < elements; first += count) {
            count = elements - first < SOME ? elements - first : SOME;
            read_some(job, i, first, count, values);
            sl_hasher_add(&hasher, values, count * sizeof *values);
        }
        if (elements) status = take(job, name_of(job, i), sl_hash_print(sl_hasher_end(&hasher), hash), error);
    }
    free(values);
    return status;
}

/* ---- saving ---- */

static int note_hash(struct transformer_job *job, const char *name, const char *hash, struct sl_error *error) {
    char key[KEY];
    snprintf(key, sizeof key, "%s%s", hash_prefix, name);
    if (!sl_store_set_note(&job->training.notes, key, hash)) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory to describe the run");
}

int transformer_describe_base(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    struct sl_store *notes = &job->training.notes;
    if (config->save_frozen || !config->training.checkpoints.save) return SL_OK;
    if (!config->lora_rank || (!config->params && !config->model))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--no-save-frozen: it is for adapters of a model that --model or --params gives: without "
                            "one the frozen values would be lost");
    char *path = realpath(config->params ? job->params.path : config->model, NULL);
    int status = !path ? SL_FAILED : sl_store_set_note(notes, SL_CHECKPOINT_BASE_KEY, path);
    free(path);
    if (status == SL_OK) status = sl_store_set_note(notes, option_key, config->params ? "params" : "model");
    if (status) return sl_error_set(error, SL_FAILED, "no memory to describe the run");
    return hash_all(job, note_hash, error);
}

/* ---- resuming ---- */

static const struct sl_store *notes_of(const struct transformer_job *job) {
    return &job->config->common.command->adoption.notes;
}

static int check_hash(struct transformer_job *job, const char *name, const char *hash, struct sl_error *error) {
    char key[KEY];
    snprintf(key, sizeof key, "%s%s", hash_prefix, name);
    const char *there = sl_store_note(notes_of(job), key);
    if (there && !strcmp(there, hash)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s %s: the adapters of %s were trained beside %s",
                        sl_store_note(notes_of(job), SL_CHECKPOINT_BASE_KEY), name,
                        there ? "has other values now" : "is new", job->config->common.command->adoption.file,
                        there ? "the old ones" : "others");
}

static bool has_tensor(const struct transformer_job *job, const char *name) {
    return job->config->params ? sl_store_find(&job->params, name) != NULL
                               : sl_weights_find(&job->published.weights, name) != NULL;
}

int transformer_check_base(struct transformer_job *job, struct sl_error *error) {
    if (!job->base) return SL_OK;
    const struct sl_store *notes = notes_of(job);
    SL_TRY(hash_all(job, check_hash, error));
    for (int i = 0; i < notes->notes; i++) {
        const char *key = notes->note[i].key, *name = key + strlen(hash_prefix);
        if (strncmp(key, hash_prefix, strlen(hash_prefix)) != 0 || has_tensor(job, name)) continue;
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is missing: the adapters of %s were trained beside it",
                            sl_store_note(notes, SL_CHECKPOINT_BASE_KEY), name,
                            job->config->common.command->adoption.file);
    }
    return SL_OK;
}

/* Takes over the adapters of a run that is used but not resumed, as --adapters does; the checkpoint's notes describe
 * them. */
static int take_adapters(struct transformer_job *job, struct transformer_config *config,
                         const struct sl_adoption *adoption, struct sl_error *error) {
    const struct {
        const char *name;
        void *target;
    } kept[] = {{"lora-rank", &config->lora_rank},
                {"lora-alpha", &config->lora_alpha},
                {"lora-modules", &config->lora_modules}};
    int version;
    for (int i = 0; i < 3; i++) {
        char key[KEY];
        snprintf(key, sizeof key, "option.%s", kept[i].name);
        const char *text = sl_store_note(&adoption->notes, key);
        if (text && !sl_option_read(&transformer_adapter_table[i], text, kept[i].target))
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: --%s is \"%.80s\" in the checkpoint, which is none of its values", adoption->file,
                                kept[i].name, text);
    }
    if (config->lora_rank < 1)
        return sl_error_set(error, SL_BAD_INPUT, "%s: it has the values of adapters alone, and tells no rank of them",
                            adoption->file);
    job->peft.rank = config->lora_rank;
    return sl_checkpoint_map(&job->peft.values, adoption->file, &version, error);
}

int transformer_take_base(struct transformer_job *job, enum transformer_command command,
                          struct transformer_config *config, const struct sl_options *options, struct sl_error *error) {
    const struct sl_adoption *adoption = &options->adoption;
    const char *path = *adoption->file ? sl_store_note(&adoption->notes, SL_CHECKPOINT_BASE_KEY) : NULL;
    const char *option = path ? sl_store_note(&adoption->notes, option_key) : NULL;
    struct stat file;
    if (!path) return SL_OK;
    if (!option || (strcmp(option, "model") != 0 && strcmp(option, "params") != 0))
        return sl_error_set(error, SL_BAD_INPUT, "%s: %s is %.40s in the checkpoint, neither model nor params",
                            adoption->file, option_key, option ? option : "missing");
    if (command == TRANSFORMER_TRAIN && !adoption->resumes)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--params: %s has the values of adapters alone: go on with them by --resume, or export the "
                            "model, and begin with that",
                            adoption->file);
    if (stat(path, &file))
        return sl_error_set(error, SL_BAD_INPUT, "%s: its frozen values are those of %s, which cannot be read: %s",
                            adoption->file, path, strerror(errno));
    const bool published = !strcmp(option, "model");
    job->base = true;
    config->model = published ? path : NULL;
    config->params = published ? NULL : path;
    return adoption->resumes ? SL_OK : take_adapters(job, config, adoption, error);
}
