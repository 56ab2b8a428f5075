/* checkpoint.c - saves and loads a training run. */
#include "layers/training/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/stores/store_parts.h"
#include "layers/training/exchange.h"
#include "layers/training/replicas.h"

static const char version_key[] = "shardloop.checkpoint", config_prefix[] = "config.";
/* Version 2 has checksums. '1' and '2' differ in two bits, so a single wrong bit cannot turn a file with checksums into
 * a file without. */
static const char first_version[] = "1", version[] = "2";
static const char optimizer_key[] = "optimizer", first_optimizer[] = "adamw"; /* of files without one */

static bool saves_adapters(struct sl_trainer *trainer) { return sl_trainer_parameters(trainer)->alone.saved; }
static const char *optimizer_of(const struct sl_trainer *trainer) {
    const struct sl_optimizer *method = sl_trainer_optimizer(trainer)->method;
    return method ? method->name : "none"; /* a forward_only trainer may have none */
}

struct sl_setting sl_setting_text(const char *key, const char *value) {
    struct sl_setting setting = {.key = key};
    snprintf(setting.value, sizeof setting.value, "%s", value);
    return setting;
}

struct sl_setting sl_setting_number(const char *key, int64_t value) {
    struct sl_setting setting = {.key = key};
    snprintf(setting.value, sizeof setting.value, "%" PRId64, value);
    return setting;
}

/* ---- notes ---- */

static int set_number(struct sl_store *store, const char *key, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return sl_store_set_note(store, key, text);
}

int sl_checkpoint_note(struct sl_store *store, struct sl_trainer *trainer, const struct sl_checkpoint *about,
                       const struct sl_setting *settings, const struct sl_store *notes) {
    store->checksums = store->replaces_links = true;
    for (int i = 0; notes && i < notes->notes; i++)
        SL_TRY(sl_store_set_note(store, notes->note[i].key, notes->note[i].text));
    SL_TRY(sl_store_set_note(store, version_key, version));
    SL_TRY(sl_store_set_note(store, optimizer_key, optimizer_of(trainer)));
    SL_TRY(set_number(store, "step", (uint64_t)sl_trainer_steps(trainer)));
    SL_TRY(set_number(store, "samples", (uint64_t)about->samples));
    SL_TRY(set_number(store, "seed", about->seed));
    for (; settings && settings->key; settings++) {
        char key[128];
        snprintf(key, sizeof key, "%s%s", config_prefix, settings->key);
        SL_TRY(sl_store_set_note(store, key, settings->value));
    }
    return SL_OK;
}

static int read_number(const struct sl_store *store, const char *path, const char *key, uint64_t most, uint64_t *number,
                       struct sl_error *error) {
    const char *text = sl_store_note(store, key);
    *number = 0;
    bool valid = text && *text;
    for (const char *c = text; valid && *c; c++) {
        const unsigned digit = (unsigned char)*c - '0';
        valid = digit <= 9 && *number <= (most - digit) / 10;
        *number = 10 * *number + digit;
    }
    if (valid) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: not a checkpoint: %s is %.80s, not a number up to %" PRIu64, path,
                        key, text ? text : "missing", most);
}

static const char *find_setting(const struct sl_setting *settings, const char *key) {
    for (; settings && settings->key; settings++)
        if (!strcmp(settings->key, key)) return settings->value;
    return NULL;
}

static int refuse_setting(const char *path, const char *key, const char *there, const char *here,
                          struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: %.80s is %.80s in the checkpoint, and %.80s here", path, key,
                        there ? there : "not set", here ? here : "not set");
}

static int compare_settings(const struct sl_store *store, const char *path, const struct sl_setting *settings,
                            struct sl_error *error) {
    for (const struct sl_setting *s = settings; s && s->key; s++) {
        char key[128];
        snprintf(key, sizeof key, "%s%s", config_prefix, s->key);
        const char *there = sl_store_note(store, key);
        if (!there || strcmp(there, s->value)) return refuse_setting(path, s->key, there, s->value, error);
    }
    for (int i = 0; i < store->notes; i++) {
        const char *key = store->note[i].key;
        if (strncmp(key, config_prefix, sizeof config_prefix - 1)) continue;
        key += sizeof config_prefix - 1;
        if (!find_setting(settings, key)) return refuse_setting(path, key, store->note[i].text, NULL, error);
    }
    return SL_OK;
}

/* ---- opening ---- */

/* Adds to ERROR the name of an older checkpoint to resume from, if there is one. PATH is damaged. */
static int name_older(const char *path, struct sl_error *error) {
    char older[SL_MAX_PATH];
    if (!error || !sl_checkpoint_older(path, older)) return error ? error->status : SL_BAD_INPUT;
    const struct sl_error reason = *error;
    return sl_error_set(error, reason.status, "%s; an older checkpoint is %s", reason.message, older);
}

/* Reads the file's version; 0: FILE is not a checkpoint. */
static int read_version(const struct sl_store *file, const char *path, int *number, struct sl_error *error) {
    const char *found = sl_store_note(file, version_key);
    const bool first = found && !strcmp(found, first_version);
    *number = !found ? 0 : first ? 1 : 2;
    if (!found || first) return SL_OK;
    if (strcmp(found, version))
        return sl_error_set(error, SL_BAD_INPUT, "%s: a checkpoint of version %.20s, not %s or %s", path, found,
                            first_version, version);
    if (file->checksums) return SL_OK;
    sl_error_set(error, SL_BAD_INPUT, "%s: damaged: a checkpoint of version %s has checksums, and this one has none",
                 path, version);
    return name_older(path, error);
}

/* Reads the step of a file. If the file's name has a step, the two must agree. */
static int read_step(const struct sl_store *file, const char *path, uint64_t *step, struct sl_error *error) {
    const int64_t named = sl_checkpoint_step_of(path);
    SL_TRY(read_number(file, path, "step", INT64_MAX, step, error));
    if (named < 0 || (uint64_t)named == *step) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: the name says step %" PRId64 ", and the checkpoint says step %" PRIu64, path, named,
                        *step);
}

static int map_file(struct sl_store *file, const char *path, int *number, uint64_t *step, struct sl_error *error) {
    if ((sl_parts_is_index(path) ? sl_parts_map : sl_safetensors_map)(file, path, error))
        return name_older(path, error);
    if (sl_store_note(file, SL_CHECKPOINT_PART_KEY))
        return sl_error_set(error, SL_BAD_INPUT, "%s: a part of a checkpoint: its index, step-*%s, names all of them",
                            path, SL_CHECKPOINT_INDEX);
    SL_TRY(read_version(file, path, number, error));
    return *number ? read_step(file, path, step, error) : SL_OK;
}

int sl_checkpoint_map(struct sl_store *file, const char *path, int *number, struct sl_error *error) {
    uint64_t step;
    return map_file(file, path, number, &step, error);
}

/* Maps PATH and checks by its notes that it is a checkpoint with these settings. Free FILE also after a failure. */
static int open_file(struct sl_store *file, const char *path, const struct sl_setting *settings,
                     struct sl_checkpoint *about, struct sl_error *error) {
    int number = 0;
    uint64_t step, samples;
    SL_TRY(map_file(file, path, &number, &step, error));
    if (!number)
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a checkpoint: its metadata have no %s", path, version_key);
    SL_TRY(read_number(file, path, "samples", INT64_MAX, &samples, error));
    SL_TRY(read_number(file, path, "seed", UINT64_MAX, &about->seed, error));
    about->step = (int64_t)step;
    about->samples = (int64_t)samples;
    about->version = number;
    return compare_settings(file, path, settings, error);
}

static int compare_optimizers(const struct sl_store *file, const char *here, const char *path, struct sl_error *error) {
    const char *note = sl_store_note(file, optimizer_key), *there = note ? note : first_optimizer;
    if (!strcmp(there, here)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: the optimizer is %.80s in the checkpoint, and %s here", path, there,
                        here);
}

int sl_checkpoint_check(const char *path, const struct sl_setting *settings, const char *optimizer,
                        struct sl_checkpoint *about, struct sl_error *error) {
    struct sl_store file = {0};
    int status = open_file(&file, path, settings, about, error);
    if (status == SL_OK && optimizer) status = compare_optimizers(&file, optimizer, path, error);
    sl_store_free(&file);
    return status;
}

/* ---- collective ---- */

int sl_checkpoint_agree(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_error *own) {
    _Static_assert(sizeof *own % sizeof(int32_t) == 0, "sent as words");
    SL_TRY(sl_broadcast(self, sl_trainer_world(trainer), SL_I32, own, own, sizeof *own / sizeof(int32_t), 0));
    return own->status ? sl_fail(self, own->status, "%s", own->message) : SL_OK;
}

static int progress(void *arg) { return sl_progress(arg); }

int sl_checkpoint_verify(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_store *store) {
    struct sl_error error = {0};
    if (self->coordinate == 0) {
        const int status = sl_safetensors_verify(store, progress, self, &error);
        if (!error.status) SL_TRY(status); /* the run has ended meanwhile */
        if (error.status == SL_BAD_INPUT) name_older(store->path, &error);
    }
    return sl_checkpoint_agree(self, trainer, &error);
}

static int declare(struct sl_spmd *self, struct sl_trainer *trainer, bool adapters, struct sl_store *store) {
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_declare(self, sl_trainer_world(trainer), sl_trainer_parameters(trainer),
                          sl_checkpoint_kind(i, adapters), store));
    return SL_OK;
}

int sl_checkpoint_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store) {
    return declare(self, trainer, saves_adapters(trainer), store);
}

/* ---- saving ---- */

int sl_checkpoint_gather(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store) {
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_export(self, sl_trainer_world(trainer), sl_trainer_parameters(trainer),
                         sl_checkpoint_kind(i, saves_adapters(trainer)), 1.0f, store));
    return SL_OK;
}

int sl_checkpoint_copy(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *store) {
    const struct sl_group *world = sl_trainer_world(trainer);
    if (self->engine->table->apart) return sl_checkpoint_gather(self, trainer, store);
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_export_beside(self, world, sl_trainer_parameters(trainer),
                                sl_checkpoint_kind(i, saves_adapters(trainer)), store));
    return sl_barrier(self, world);
}

/* Creates the file. If the path was writable at the start of the run and is gone now, the run fails: this is not bad
 * input. */
static void create(struct sl_store *file, struct sl_trainer *trainer, const char *path,
                   const struct sl_checkpoint *about, const struct sl_setting *settings, const struct sl_store *notes,
                   struct sl_error *error) {
    if (sl_checkpoint_note(file, trainer, about, settings, notes))
        sl_error_set(error, SL_FAILED, "%s: no memory to save the run", path);
    else if (sl_safetensors_create(file, path, error))
        error->status = SL_FAILED;
}

static int save(struct sl_spmd *self, struct sl_trainer *trainer, const char *path, const struct sl_checkpoint *about,
                const struct sl_setting *settings, const struct sl_store *notes, struct sl_store *file) {
    struct sl_error error = {0};
    SL_TRY(sl_checkpoint_declare(self, trainer, file));
    if (self->coordinate == 0) create(file, trainer, path, about, settings, notes, &error);
    SL_TRY(sl_checkpoint_agree(self, trainer, &error));
    SL_TRY(sl_checkpoint_gather(self, trainer, file));
    if (about->compares) SL_TRY(sl_check_replicas(self, trainer));
    if (self->coordinate == 0) {
        const int status = sl_safetensors_commit(file, progress, self, &error);
        if (!error.status) SL_TRY(status); /* the run has ended meanwhile */
    }
    return sl_checkpoint_agree(self, trainer, &error);
}

int sl_checkpoint_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes) {
    struct sl_store file = {0};
    const int status = save(self, trainer, path, about, settings, notes, &file);
    sl_store_free(&file);
    return status;
}

/* ---- loading ---- */

static bool same_shape(const struct sl_array *a, const struct sl_array *b) {
    return a->dtype == b->dtype && a->dims == b->dims &&
           !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape);
}

/* Writes "[8,16] of F32", for messages. */
static const char *describe(const struct sl_array *array, char text[160]) {
    int used = snprintf(text, 160, "[");
    for (int d = 0; d < array->dims; d++)
        used += snprintf(text + used, 160 - (size_t)used, "%s%zu", d ? "," : "", array->shape[d]);
    snprintf(text + used, 160 - (size_t)used, "] of %s", sl_dtypes[array->dtype].label);
    return text;
}

/* Checks that the file has exactly the tensors of the model and its optimizer. */
static int compare_tensors(const struct sl_store *file, const struct sl_store *wanted, const char *path,
                           struct sl_error *error) {
    char there[160], here[160];
    for (int i = 0; i < wanted->count; i++) {
        const struct sl_tensor *tensor = &wanted->tensor[i], *found = sl_store_find(file, tensor->name);
        if (!found) return sl_error_set(error, SL_BAD_INPUT, "%s: there is no tensor %s", path, tensor->name);
        if (!same_shape(&found->array, &tensor->array))
            return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is %s in the checkpoint, and %s here", path,
                                tensor->name, describe(&found->array, there), describe(&tensor->array, here));
    }
    for (int i = 0; i < file->count; i++)
        if (!sl_store_find(wanted, file->tensor[i].name))
            return sl_error_set(error, SL_BAD_INPUT, "%s: the model has no tensor %s", path, file->tensor[i].name);
    return SL_OK;
}

int sl_checkpoint_whole(const struct sl_store *file, const char *path, struct sl_error *error) {
    const char *base = sl_store_note(file, SL_CHECKPOINT_BASE_KEY);
    if (!base) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: it has the values of adapters alone; the others are those of %s",
                        path, base);
}

static int check(struct sl_spmd *self, struct sl_trainer *trainer, const char *path, const struct sl_setting *settings,
                 struct sl_store *file, struct sl_store *wanted, struct sl_checkpoint *about) {
    struct sl_error error = {0};
    const bool adapters = sl_trainer_parameters(trainer)->alone.loaded;
    SL_TRY(declare(self, trainer, adapters, wanted));
    if (self->coordinate == 0 && open_file(file, path, settings, about, &error) == SL_OK &&
        compare_optimizers(file, optimizer_of(trainer), path, &error) == SL_OK &&
        (adapters || sl_checkpoint_whole(file, path, &error) == SL_OK))
        compare_tensors(file, wanted, path, &error);
    return sl_checkpoint_agree(self, trainer, &error);
}

static int move(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_store *file,
                struct sl_checkpoint *about) {
    const struct sl_group *world = sl_trainer_world(trainer);
    struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_import(self, world, parameters, sl_checkpoint_kind(i, parameters->alone.loaded), file));
    SL_TRY(sl_broadcast(self, world, SL_I32, about, about, sizeof *about / sizeof(int32_t), 0));
    sl_trainer_set_steps(trainer, about->step);
    return SL_OK;
}

int sl_checkpoint_load(struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                       const struct sl_setting *settings, struct sl_checkpoint *about) {
    struct sl_store file = {0}, wanted = {0};
    int status = check(self, trainer, path, settings, &file, &wanted, about);
    if (status == SL_OK) status = sl_checkpoint_verify(self, trainer, &file);
    if (status == SL_OK) status = move(self, trainer, &file, about);
    sl_store_free(&file);
    sl_store_free(&wanted);
    return status;
}
