/* protection.c - copies a run's steps to memory that outlives its processes. */
#include "layers/records/snapshot/protection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "layers/formats/stores/store_parts.h"
#include "layers/records/snapshot/protection_folder.h"
#include "layers/records/snapshot/saved_parts_internal.h"

/* One coordinate's. */
struct part {
    char folder[SL_MAX_PATH], start[SL_MAX_PATH]; /* "": nothing is protected */
    struct sl_store place[SL_PROTECTION_STEPS];
    struct sl_protection_account account;
};

struct sl_protection {
    int coordinates;
    struct part part[]; /* [coordinates] */
};

struct sl_protection *sl_protection_new(int coordinates) {
    struct sl_protection *p = calloc(1, sizeof *p + (size_t)coordinates * sizeof *p->part);
    if (p) p->coordinates = coordinates;
    return p;
}

void sl_protection_close(struct sl_protection *p) {
    for (int c = 0; p && c < p->coordinates; c++) {
        struct part *part = &p->part[c];
        for (int i = 0; i < SL_PROTECTION_STEPS; i++) sl_store_free(&part->place[i]);
    }
    free(p);
}

struct sl_protection_account sl_protection_account(const struct sl_protection *p, int coordinate) {
    return p->part[coordinate].account;
}

/* ---- memory ---- */

static size_t bytes_of(const struct sl_store *store) {
    size_t bytes = 0;
    for (int i = 0; i < store->count; i++) bytes += sl_tensor_bytes(&store->tensor[i]);
    return bytes;
}

int sl_protection_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_budget *budget) {
    struct sl_store own = {0}, whole = {0};
    const int status = sl_saved_parts_declare(self, trainer, &own, &whole);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, SL_PROTECTION_STEPS * bytes_of(&own));
    sl_store_free(&own);
    sl_store_free(&whole);
    return status;
}

/* Sets the note KEY to NUMBER, always with as many digits. */
static int set_number(struct sl_store *store, const char *key, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%020" PRId64, number);
    return sl_store_set_note(store, key, text);
}

static int set_notes(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *place, int64_t samples) {
    SL_TRY(sl_saved_parts_note(self, trainer, place));
    SL_TRY(set_number(place, "step", sl_trainer_steps(trainer)));
    return set_number(place, "samples", samples);
}

/* Reserves the memory of one step. */
static void reserve(struct part *part, int number, struct sl_spmd *self, struct sl_trainer *trainer,
                    struct sl_error *error) {
    struct sl_store *place = &part->place[number];
    char path[SL_MAX_PATH];
    int reason = ENOMEM;
    sl_protection_part(part->start, number, self->coordinate + 1, self->mesh->size, path);
    if (!set_notes(self, trainer, place, 0) && !sl_safetensors_place(place, path, &reason, error)) return;
    const bool full = reason == ENOSPC;
    sl_error_set(error, full ? SL_BAD_INPUT : SL_FAILED,
                 "--protect: %s %s for coordinate %d's %.1f MB of steps in memory%s", SL_PROTECTION_ROOT,
                 full ? "has no room" : strerror(reason), self->coordinate,
                 1e-6 * SL_PROTECTION_STEPS * (double)bytes_of(place),
                 full ? ": enlarge it (docker run --shm-size), or give --protect 0" : "");
}

/* ---- the folder ---- */

/* Coordinate 0 makes the folder of this start and broadcasts its name. *SHARED becomes whether all coordinates see it;
 * *GOES_ON, on coordinate 0, whether the run continues from a step in memory. */
static int make_folder(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                       const char *from, bool *shared, bool *goes_on) {
    const struct sl_group *world = sl_trainer_world(trainer);
    struct sl_error error = {0};
    if (self->coordinate == 0 && !sl_protection_name(save, part->folder, &error))
        *goes_on = sl_protection_keep(part->folder, from);
    if (self->coordinate == 0 && !error.status) sl_protection_make(save, part->start, &error);
    SL_TRY(sl_checkpoint_agree(self, trainer, &error));
    _Static_assert(SL_MAX_PATH % sizeof(int32_t) == 0, "sent as words");
    SL_TRY(sl_broadcast(self, world, SL_I32, part->folder, part->folder, SL_MAX_PATH / sizeof(int32_t), 0));
    SL_TRY(sl_broadcast(self, world, SL_I32, part->start, part->start, SL_MAX_PATH / sizeof(int32_t), 0));
    int32_t absent = access(part->start, W_OK) != 0;
    SL_TRY(sl_psum(self, world, SL_I32, &absent, &absent, 1));
    *shared = absent == 0;
    return SL_OK;
}

/* Writes the layout of all parts: an index without a step. */
static void write_layout(const struct part *part, struct sl_spmd *self, struct sl_trainer *trainer,
                         struct sl_store *whole, const struct sl_checkpoint *about, const struct sl_setting *settings,
                         const struct sl_store *notes, struct sl_error *error) {
    const int parts = self->mesh->size;
    struct sl_part *list = calloc((size_t)parts, sizeof *list);
    char layout[SL_MAX_PATH];
    snprintf(layout, sizeof layout, "%.*s/%s", SL_MAX_PATH - 20, part->start, SL_PROTECTION_LAYOUT);
    for (int i = 0; list && i < parts; i++) list[i].path = "-";
    if (!list || sl_checkpoint_note(whole, trainer, about, settings, notes))
        sl_error_set(error, SL_FAILED, "no memory to protect the run");
    else
        sl_parts_write_index(whole, parts, list, layout, error);
    free(list);
}

/* A run that goes on from a step in memory reserves its own beside that one: its room must be there from the first
 * start on. */
static int check_room(const struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, bool goes_on) {
    float bytes = (float)part->account.bytes;
    struct statvfs room;
    struct sl_error error = {0};
    SL_TRY(sl_psum(self, sl_trainer_world(trainer), SL_F32, &bytes, &bytes, 1));
    if (self->coordinate == 0 && !goes_on && !statvfs(SL_PROTECTION_ROOT, &room) &&
        (double)room.f_bavail * (double)room.f_frsize < (double)bytes)
        sl_error_set(&error, SL_BAD_INPUT,
                     "--protect: " SL_PROTECTION_ROOT " has room for two steps, and a restart needs three, of %.1f MB: "
                     "enlarge it (docker run --shm-size), or give --protect 0",
                     1e-6 * (double)bytes);
    return sl_checkpoint_agree(self, trainer, &error);
}

static int open_part(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                     const char *from, const struct sl_checkpoint *about, const struct sl_setting *settings,
                     const struct sl_store *notes, bool *shared) {
    struct sl_error mine = {0}, first;
    bool goes_on = false;
    SL_TRY(make_folder(part, self, trainer, save, from, shared, &goes_on));
    if (!*shared) {
        if (self->coordinate == 0) sl_protection_remove(part->folder, NULL);
        *part->start = '\0';
        return SL_OK;
    }
    for (int i = 0; i < SL_PROTECTION_STEPS; i++) {
        struct sl_store whole = {0};
        int status = sl_saved_parts_declare(self, trainer, &part->place[i], &whole);
        if (status == SL_OK && !mine.status) reserve(part, i, self, trainer, &mine);
        if (status == SL_OK && !mine.status && i == 0 && self->coordinate == 0)
            write_layout(part, self, trainer, &whole, about, settings, notes, &mine);
        sl_store_free(&whole);
        SL_TRY(status);
    }
    part->account.bytes = bytes_of(&part->place[0]);
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, SL_PROTECTION_STEPS * part->account.bytes);
    int status = sl_saved_parts_agree(self, trainer, &mine, &first, 0, NULL);
    if (status == SL_OK) status = check_room(part, self, trainer, goes_on);
    if (status && self->coordinate == 0) sl_protection_remove(part->start, NULL);
    return status;
}

int sl_protection_open(struct sl_protection *p, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                       const char *from, const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes, bool *shared) {
    struct part *part = &p->part[self->coordinate];
    const int status = open_part(part, self, trainer, save, from, about, settings, notes, shared);
    if (status) *part->folder = *part->start = '\0'; /* the step to go on from stays */
    return status;
}

/* ---- steps ---- */

static int progress(void *arg) { return sl_progress(arg); }

int sl_protection_commit(struct sl_protection *p, struct sl_spmd *self, struct sl_trainer *trainer, int64_t samples) {
    struct part *part = &p->part[self->coordinate];
    struct sl_store *place = &part->place[sl_protection_place(sl_trainer_steps(trainer))];
    struct sl_error error = {0};
    if (!*part->start) return SL_OK;
    const double began = sl_now();
    sl_safetensors_unseal(place);
    if (set_notes(self, trainer, place, samples)) return sl_fail(self, SL_FAILED, "no memory to protect the step");
    SL_TRY(sl_saved_parts_export(self, trainer, place));
    const int status = sl_safetensors_seal(place, progress, self, &error);
    /* With an error, such as values that are not finite, the part stays invalid, and no restart uses it or removes the
     * step before it; otherwise the run has ended meanwhile. */
    if (status) return error.status ? SL_OK : status;
    /* All coordinates have this run's first step now, so the step from which the run continued is no longer needed. */
    if (++part->account.steps == SL_PROTECTION_STEPS && self->coordinate == 0) {
        char own[SL_MAX_PATH];
        snprintf(own, sizeof own, "%.*s/%s", SL_MAX_PATH - 20, part->start, SL_PROTECTION_LAYOUT);
        sl_protection_remove(part->folder, own);
    }
    part->account.seconds += sl_now() - began;
    return SL_OK;
}

void sl_protection_end(struct sl_protection *p, const struct sl_spmd *self) {
    const struct part *part = &p->part[self->coordinate];
    if (*part->folder) sl_protection_remove(part->folder, NULL);
}
