/* saved_parts.c - writes the parts of a checkpoint, and then their index. */
#include "layers/records/snapshot/saved_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "layers/records/snapshot/saved_parts_internal.h"
#include "layers/formats/stores/store_parts.h"
#include "layers/training/replicas.h"

bool sl_saved_parts_are_possible(const struct sl_spmd *self) {
    return self->engine->table->apart && self->mesh->size > 1;
}

/* ---- results of coordinates ---- */

/* Result of a coordinate, sent as words. */
struct record {
    struct sl_error error;
    uint64_t root; /* of its part */
};
_Static_assert(sizeof(struct record) % sizeof(int32_t) == 0, "sent as words");

int sl_saved_parts_agree(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_error *mine,
                         struct sl_error *first, uint64_t root, uint64_t *roots) {
    const int size = self->mesh->size;
    struct record *record = calloc((size_t)size, sizeof *record);
    *first = (struct sl_error){0};
    if (!record) return sl_fail(self, SL_FAILED, "no memory to save parts");
    record[self->coordinate] = (struct record){*mine, root};
    int status = sl_gather_records(self, record, sizeof *record);
    for (int c = 0; c < size && self->coordinate == 0 && status == SL_OK; c++) {
        if (!first->status) *first = record[c].error;
        if (roots) roots[c] = record[c].root;
    }
    free(record);
    return status ? status : sl_checkpoint_agree(self, trainer, first);
}

/* ---- one directory ---- */

/* A file written by coordinate 0, for all coordinates to read. */
struct proof {
    char name[256]; /* "": there is none */
    uint64_t token; /* its contents, unique */
};
_Static_assert(sizeof(struct proof) % sizeof(int32_t) == 0, "sent as words");

static void make_proof(struct sl_draft *draft, struct proof *proof, const char *directory, struct sl_error *error) {
    char path[SL_MAX_PATH];
    if (sl_checkpoint_index_name(directory, 0, path, error) || sl_draft_open(draft, path, SL_LINKS_REPLACED, error))
        return;
    snprintf(proof->name, sizeof proof->name, "%s", strrchr(draft->temporary, '/') + 1);
    if (getrandom(&proof->token, sizeof proof->token, GRND_NONBLOCK) != sizeof proof->token)
        proof->token = (uint64_t)getpid() ^ (uint64_t)(1e9 * sl_now());
    /* Other machines see synced data. */
    if (sl_draft_write(draft, &proof->token, sizeof proof->token) || fsync(draft->descriptor))
        sl_error_set(error, SL_FAILED, "%s: cannot be written", draft->temporary);
}

static void look_at_proof(const struct sl_spmd *self, const struct proof *proof, const char *directory,
                          struct sl_error *error) {
    char path[SL_MAX_PATH], host[64] = "";
    uint64_t token = 0;
    snprintf(path, sizeof path, "%.*s/%s", SL_MAX_PATH - 300, directory, proof->name);
    FILE *file = fopen(path, "rb");
    const bool read = file && fread(&token, sizeof token, 1, file) == 1;
    if (file) fclose(file);
    if (read && token == proof->token) return;
    gethostname(host, sizeof host - 1);
    sl_error_set(error, SL_BAD_INPUT,
                 "--save-parts: coordinate %d, on %s, does not see the file of coordinate 0 in %.200s: parts need "
                 "one directory for all processes; without --save-parts coordinate 0 writes one file",
                 self->coordinate, host, directory);
}

int sl_saved_parts_prove(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory) {
    struct sl_draft draft = {0};
    struct proof proof = {0};
    struct sl_error mine = {0}, first;
    if (self->coordinate == 0) make_proof(&draft, &proof, directory, &mine);
    int status =
        sl_broadcast(self, sl_trainer_world(trainer), SL_I32, &proof, &proof, sizeof proof / sizeof(int32_t), 0);
    if (*proof.name && self->coordinate != 0) look_at_proof(self, &proof, directory, &mine);
    if (status == SL_OK) status = sl_saved_parts_agree(self, trainer, &mine, &first, 0, NULL);
    sl_draft_give_up(&draft);
    return status;
}

int sl_saved_parts_are_new(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory, bool *are_new) {
    char path[SL_MAX_PATH];
    int32_t there = self->coordinate == 0 && sl_checkpoint_at(directory, sl_trainer_steps(trainer), path);
    SL_TRY(sl_broadcast(self, sl_trainer_world(trainer), SL_I32, &there, &there, 1, 0));
    *are_new = !there;
    return SL_OK;
}

/* ---- steps of a save ---- */

static enum sl_state kind_at(struct sl_trainer *trainer, int i) {
    return sl_checkpoint_kind(i, sl_trainer_parameters(trainer)->alone.saved);
}

int sl_saved_parts_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own,
                           struct sl_store *whole) {
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_declare_own(self, sl_trainer_world(trainer), sl_trainer_parameters(trainer), kind_at(trainer, i), own,
                              whole));
    sl_store_sort(whole);
    return SL_OK;
}

int sl_saved_parts_declare_copy(struct sl_spmd *self, struct sl_trainer *trainer, int of, struct sl_store *copy,
                                struct sl_held_list *held) {
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_declare_copy(self, sl_trainer_world(trainer), sl_trainer_parameters(trainer), kind_at(trainer, i), of,
                               copy, held));
    return SL_OK;
}

/* The notes name the part and the step, so roots of different parts differ. */
int sl_saved_parts_note(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own) {
    char part[40], step[24];
    snprintf(part, sizeof part, "%d of %d", self->coordinate + 1, self->mesh->size);
    snprintf(step, sizeof step, "%" PRId64, sl_trainer_steps(trainer));
    own->checksums = own->replaces_links = true;
    SL_TRY(sl_store_set_note(own, SL_CHECKPOINT_PART_KEY, part));
    return sl_store_set_note(own, "step", step);
}

int sl_saved_parts_export(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own,
                          struct sl_checking *checking) {
    for (int i = 0; i < sl_checkpoint_kinds(trainer); i++)
        SL_TRY(sl_export_own(self, sl_trainer_parameters(trainer), kind_at(trainer, i), own, checking));
    return SL_OK;
}

void sl_saved_parts_index(struct sl_store *whole, const char *directory, int64_t step, int parts, const uint64_t *root,
                          struct sl_error *error) {
    struct sl_part *part = calloc((size_t)parts, sizeof *part);
    char(*name)[SL_MAX_PATH] = calloc((size_t)parts, sizeof *name), path[SL_MAX_PATH];
    int status = SL_OK;
    if (!part || !name) status = sl_error_set(error, SL_FAILED, "%s: no memory for the index", directory);
    for (int i = 0; i < parts && status == SL_OK; i++) {
        status = sl_checkpoint_part_name(directory, step, i + 1, parts, name[i], error);
        part[i] = (struct sl_part){name[i], root[i]};
    }
    if (status == SL_OK) status = sl_checkpoint_index_name(directory, step, path, error);
    if (status == SL_OK) status = sl_parts_write_index(whole, parts, part, path, error);
    if (status) error->status = SL_FAILED; /* it could be written when the run began */
    free(part);
    free(name);
}

/* ---- saving at once ---- */

/* A save in progress at one coordinate. */
struct save {
    struct sl_spmd *self;
    struct sl_trainer *trainer;
    const char *directory;
    char path[SL_MAX_PATH]; /* of its part */
    struct sl_store own, whole;
    struct sl_error error;
    struct sl_error first; /* first error of all coordinates before the index was written */
    uint64_t root;         /* of its part */
};

static void create_part(struct save *s) {
    const int64_t step = sl_trainer_steps(s->trainer);
    if (sl_checkpoint_part_name(s->directory, step, s->self->coordinate + 1, s->self->mesh->size, s->path, &s->error))
        return;
    if (sl_saved_parts_note(s->self, s->trainer, &s->own))
        sl_error_set(&s->error, SL_FAILED, "%s: no memory to save the run", s->path);
    else if (sl_safetensors_create(&s->own, s->path, &s->error))
        s->error.status = SL_FAILED; /* it could be written when the run began */
}

static int progress(void *arg) { return sl_progress(arg); }

/* Commits the part, and reads its root. SL_FAILED only if the run has ended meanwhile. */
static int commit_part(struct save *s) {
    struct sl_store there = {0};
    const int status = sl_safetensors_commit(&s->own, progress, s->self, &s->error);
    if (status) return s->error.status ? SL_OK : status;
    if (sl_safetensors_map(&there, s->path, &s->error)) s->error.status = SL_FAILED;
    s->root = there.root;
    sl_store_free(&there);
    return SL_OK;
}

static int save(struct save *s, const struct sl_checkpoint *about, const struct sl_setting *settings,
                const struct sl_store *notes) {
    struct sl_spmd *self = s->self;
    struct sl_trainer *trainer = s->trainer;
    struct sl_error last = {0};
    uint64_t roots[self->mesh->size];
    SL_TRY(sl_saved_parts_declare(self, trainer, &s->own, &s->whole));
    if (self->coordinate == 0 && sl_checkpoint_note(&s->whole, trainer, about, settings, notes))
        sl_error_set(&s->error, SL_FAILED, "no memory to save the run");
    else
        create_part(s);
    SL_TRY(sl_saved_parts_agree(self, trainer, &s->error, &s->first, 0, NULL));
    SL_TRY(sl_saved_parts_export(self, trainer, &s->own, NULL));
    if (about->compares) SL_TRY(sl_check_replicas(self, trainer));
    SL_TRY(commit_part(s));
    SL_TRY(sl_saved_parts_agree(self, trainer, &s->error, &s->first, s->root, roots));
    if (self->coordinate == 0)
        sl_saved_parts_index(&s->whole, s->directory, sl_trainer_steps(trainer), self->mesh->size, roots, &last);
    return sl_checkpoint_agree(self, trainer, &last);
}

int sl_saved_parts_save(struct sl_spmd *self, struct sl_trainer *trainer, const char *directory,
                        const struct sl_checkpoint *about, const struct sl_setting *settings,
                        const struct sl_store *notes) {
    struct save s = {.self = self, .trainer = trainer, .directory = directory};
    const int status = save(&s, about, settings, notes);
    if (s.first.status && *s.path) unlink(s.path); /* useless without an index */
    sl_store_free(&s.own);
    sl_store_free(&s.whole);
    return status;
}
