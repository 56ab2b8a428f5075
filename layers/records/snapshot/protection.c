/* protection.c - copies a run's steps to memory that outlives its processes. */
#include "layers/records/snapshot/protection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "layers/formats/files/contents.h"
#include "layers/formats/stores/store_parts.h"
#include "layers/records/snapshot/protection_copies.h"
#include "layers/records/snapshot/protection_leave.h"
#include "layers/records/snapshot/saved_parts_internal.h"

/* One coordinate's. */
struct part {
    char folder[SL_MAX_PATH], start[SL_MAX_PATH]; /* "": nothing is protected */
    struct sl_protection_hosts hosts;
    int places; /* steps in memory */
    struct sl_store place[SL_PROTECTION_PLACES];
    struct sl_protection_copies copies;
    struct sl_protection_leave leave;
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
        for (int i = 0; i < SL_PROTECTION_PLACES; i++) sl_store_free(&part->place[i]);
        sl_protection_copies_free(&part->copies);
        sl_protection_hosts_free(&part->hosts);
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

/* On several hosts, a step counts one step later: once its copies have arrived. */
static int places_on(const struct sl_protection_hosts *hosts) {
    return hosts->count == 1 ? SL_PROTECTION_PLACES - 1 : SL_PROTECTION_PLACES;
}

/* Finds the hosts, and the bytes of a step at this coordinate. */
static int measure(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_protection_hosts *hosts,
                   struct sl_protection_account *account) {
    const struct sl_group *world = sl_trainer_world(trainer);
    struct sl_store own = {0}, whole = {0};
    int status = sl_saved_parts_declare(self, trainer, &own, &whole);
    account->bytes = bytes_of(&own);
    if (status == SL_OK) status = sl_protection_hosts_find(self, world, hosts);
    if (status == SL_OK) status = sl_protection_copies_size(self, world, hosts, account->bytes, &account->kept);
    sl_store_free(&own);
    sl_store_free(&whole);
    return status;
}

int sl_protection_plan_bytes(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_budget *budget) {
    struct sl_protection_hosts hosts = {0};
    struct sl_protection_account account = {0};
    const int status = measure(self, trainer, &hosts, &account);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, (size_t)places_on(&hosts) * (account.bytes + account.kept));
    sl_protection_hosts_free(&hosts);
    return status;
}

/* Sets the note KEY to NUMBER, always with as many digits. */
static int set_number(struct sl_store *store, const char *key, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%020" PRId64, number);
    return sl_store_set_note(store, key, text);
}

static int set_position(struct sl_store *place, const struct sl_trainer *trainer, int64_t samples) {
    SL_TRY(set_number(place, "step", sl_trainer_steps(trainer)));
    return set_number(place, "samples", samples);
}

/* For a file that could not be made because of REASON, an errno. */
static void explain(const struct part *part, const struct sl_spmd *self, int reason, struct sl_error *error) {
    const bool full = reason == ENOSPC;
    sl_error_set(error, full ? SL_BAD_INPUT : SL_FAILED,
                 "--protect: %s %s for coordinate %d's %.1f MB of steps in memory%s", SL_PROTECTION_ROOT,
                 full ? "has no room" : strerror(reason), self->coordinate,
                 1e-6 * part->places * (double)(part->account.bytes + part->account.kept),
                 full ? ": enlarge it (docker run --shm-size), or give --protect 0" : "");
}

/* Reserves the memory of this coordinate's part of one step. */
static void reserve(struct part *part, int number, struct sl_spmd *self, struct sl_trainer *trainer,
                    struct sl_error *error) {
    struct sl_store *place = &part->place[number];
    char path[SL_MAX_PATH];
    int reason = ENOMEM;
    sl_protection_part(part->start, number, self->coordinate + 1, self->mesh->size, path);
    if (!sl_saved_parts_note(self, trainer, place) && !set_position(place, trainer, 0) &&
        !sl_safetensors_place(place, path, &reason, error))
        return;
    explain(part, self, reason, error);
}

/* Reserves the memory of the copies that this coordinate keeps. */
static int reserve_copies(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, struct sl_error *mine) {
    const bool failed = mine->status;
    int reason = 0;
    SL_TRY(sl_protection_copies_open(&part->copies, self, trainer, &part->hosts, part->start, part->places,
                                     part->place[0].mapped, &reason, mine));
    if (!failed && reason) explain(part, self, reason, mine);
    return SL_OK;
}

/* ---- room ---- */

static bool leads(const struct part *part, const struct sl_spmd *self) {
    return part->hosts.first && part->hosts.first[self->coordinate] == self->coordinate;
}

/* Refuses a host where NEED bytes are more than ROOM. A run that goes on from a step in memory reserves its own beside
 * that one: if the run does not GO_ON, there must be room for another STEP from the first start on, on each host. Each
 * of two hosts has all parts; of more, coordinate 0's host receives them. */
static void compare_room(const struct part *part, const struct sl_spmd *self, double need, double step, double room,
                         bool goes_on, struct sl_error *error) {
    static const char *const words[] = {"no", "one", "two", "three", "four"};
    if (need > room)
        explain(part, self, ENOSPC, error);
    else if (!goes_on && need + step > room)
        sl_error_set(error, SL_BAD_INPUT,
                     "--protect: " SL_PROTECTION_ROOT " has room for %s steps, and a restart needs %s, of %.1f MB: "
                     "enlarge it (docker run --shm-size), or give --protect 0",
                     words[part->places], words[part->places + 1], 1e-6 * step);
}

/* Checks the room of each host, where BYTES are still to be reserved at this coordinate, and FREED bytes are removed
 * before. */
static int check_room(const struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, size_t bytes,
                      double freed, bool goes_on) {
    struct statvfs file_system;
    struct sl_error mine = {0}, first;
    const int count = self->mesh->size;
    float *needs = calloc((size_t)count + 1, sizeof *needs); /* of each coordinate; of a step */
    if (!needs) return sl_fail(self, SL_FAILED, "no memory to protect the run");
    needs[self->coordinate] = (float)bytes;
    needs[count] = (float)part->account.bytes;
    int status = sl_psum(self, sl_trainer_world(trainer), SL_F32, needs, needs, (size_t)count + 1);
    if (status == SL_OK && leads(part, self) && !statvfs(SL_PROTECTION_ROOT, &file_system)) {
        double need = 0;
        for (int c = 0; c < count; c++) need += part->hosts.first[c] == self->coordinate ? (double)needs[c] : 0;
        const double room = freed + (double)file_system.f_bavail * (double)file_system.f_frsize;
        compare_room(part, self, need, (double)needs[count], room, goes_on, &mine);
    }
    free(needs);
    return status ? status : sl_saved_parts_agree(self, trainer, &mine, &first, 0, NULL);
}

static size_t bytes_at(const struct part *part) {
    return (size_t)part->places * (part->account.bytes + part->account.kept);
}

int sl_protection_prepare(struct sl_protection *p, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                          const char *from) {
    struct part *part = &p->part[self->coordinate];
    float goes_on = self->coordinate == 0 && from && sl_protection_is_in_memory(from);
    SL_TRY(sl_psum(self, sl_trainer_world(trainer), SL_F32, &goes_on, &goes_on, 1));
    SL_TRY(measure(self, trainer, &part->hosts, &part->account));
    part->places = places_on(&part->hosts);
    const double freed = leads(part, self) ? sl_protection_bytes(save) : 0;
    return check_room(part, self, trainer, bytes_at(part), freed, goes_on > 0);
}

/* ---- the folder ---- */

/* Names for all hosts, from coordinate 0. */
struct names {
    char folder[SL_MAX_PATH], start[SL_MAX_PATH], real[SL_MAX_PATH], from[SL_MAX_PATH];
};
_Static_assert(sizeof(struct names) % sizeof(int32_t) == 0, "sent as words");

/* Makes the folder of this start on this host, without the steps of earlier runs except FROM. */
static bool make_here(struct names *names, struct sl_error *error) {
    const bool goes_on = sl_protection_keep(names->folder, *names->from ? names->from : NULL);
    sl_protection_make(names->folder, names->real, names->start, error);
    return goes_on;
}

static void choose_names(struct names *names, const char *save, const char *from, struct sl_error *error) {
    char *real = realpath(save, NULL);
    snprintf(names->real, sizeof names->real, "%s", real ? real : save);
    snprintf(names->from, sizeof names->from, "%s", from ? from : "");
    sl_protection_tell_no_more(save);
    sl_protection_name(save, names->folder, error);
    free(real);
}

/* Coordinate 0 makes the folder of this start, and then the first coordinate on each other host, under the same names.
 * *GOES_ON, on the first coordinate of each host, becomes whether this host has the step in memory from which the run
 * continues. */
static int make_folders(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                        const char *from, bool *goes_on) {
    struct names *names = calloc(1, sizeof *names);
    struct sl_error mine = {0}, first;
    if (!names) return sl_fail(self, SL_FAILED, "no memory to protect the run");
    if (self->coordinate == 0) choose_names(names, save, from, &mine);
    if (self->coordinate == 0 && !mine.status) *goes_on = make_here(names, &mine);
    int status = sl_checkpoint_agree(self, trainer, &mine);
    if (status == SL_OK)
        status =
            sl_broadcast(self, sl_trainer_world(trainer), SL_I32, names, names, sizeof *names / sizeof(int32_t), 0);
    if (status == SL_OK && self->coordinate != 0 && leads(part, self)) *goes_on = make_here(names, &mine);
    if (status == SL_OK) status = sl_saved_parts_agree(self, trainer, &mine, &first, 0, NULL);
    memcpy(part->folder, names->folder, sizeof part->folder);
    memcpy(part->start, names->start, sizeof part->start);
    free(names);
    return status;
}

static void name_layout(const struct part *part, char path[SL_MAX_PATH]) {
    snprintf(path, SL_MAX_PATH, "%.*s/%s", SL_MAX_PATH - 20, part->start, SL_PROTECTION_LAYOUT);
}

/* Writes the layout of all parts: an index without a step. */
static void write_layout(const struct part *part, struct sl_spmd *self, struct sl_trainer *trainer,
                         struct sl_store *whole, const struct sl_checkpoint *about, const struct sl_setting *settings,
                         const struct sl_store *notes, struct sl_error *error) {
    const int parts = self->mesh->size;
    struct sl_part *list = calloc((size_t)parts, sizeof *list);
    char layout[SL_MAX_PATH];
    name_layout(part, layout);
    for (int i = 0; list && i < parts; i++) list[i].path = "-";
    bool noted = list && !sl_checkpoint_note(whole, trainer, about, settings, notes);
    if (noted && part->hosts.count > 1) noted = !set_number(whole, SL_PROTECTION_HOSTS, part->hosts.count);
    if (!noted)
        sl_error_set(error, SL_FAILED, "no memory to protect the run");
    else
        sl_parts_write_index(whole, parts, list, layout, error);
    free(list);
}

/* Writes coordinate 0's file PATH on the other hosts, too. */
static int send_file(const struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, const char *path,
                     struct sl_error *mine) {
    const struct sl_group *world = sl_trainer_world(trainer);
    struct sl_contents contents = {0};
    struct sl_draft draft = {0};
    uint64_t bytes = 0;
    if (self->coordinate == 0 && !mine->status && !sl_contents_open(&contents, path, mine)) bytes = contents.count;
    int status = sl_broadcast(self, world, SL_I32, &bytes, &bytes, sizeof bytes / sizeof(int32_t), 0);
    const size_t words = (bytes + sizeof(int32_t) - 1) / sizeof(int32_t);
    int32_t *text = calloc(words + 1, sizeof *text);
    if (status == SL_OK && !text) status = sl_fail(self, SL_FAILED, "no memory to protect the run");
    if (status == SL_OK && contents.count) memcpy(text, contents.bytes, contents.count);
    if (status == SL_OK) status = sl_broadcast(self, world, SL_I32, text, text, words, 0);
    if (status == SL_OK && self->coordinate != 0 && leads(part, self) && bytes &&
        !sl_draft_open(&draft, path, SL_LINKS_REPLACED, mine))
        sl_draft_finish(&draft, sl_draft_write(&draft, text, bytes), mine);
    sl_contents_close(&contents);
    free(text);
    return status;
}

/* Reserves all memory of this coordinate, and writes the layout. */
static int reserve_all(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer,
                       const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes, struct sl_error *mine) {
    char layout[SL_MAX_PATH];
    for (int i = 0; i < part->places; i++) {
        struct sl_store whole = {0};
        int status = sl_saved_parts_declare(self, trainer, &part->place[i], &whole);
        if (status == SL_OK && !mine->status) reserve(part, i, self, trainer, mine);
        if (status == SL_OK && !mine->status && i == 0 && self->coordinate == 0)
            write_layout(part, self, trainer, &whole, about, settings, notes, mine);
        sl_store_free(&whole);
        SL_TRY(status);
    }
    SL_TRY(reserve_copies(part, self, trainer, mine));
    SL_TRY(sl_protection_leave_open(&part->leave, self, &part->hosts));
    name_layout(part, layout);
    return part->hosts.count > 1 ? send_file(part, self, trainer, layout, mine) : SL_OK;
}

static int open_part(struct part *part, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                     const char *from, const struct sl_checkpoint *about, const struct sl_setting *settings,
                     const struct sl_store *notes) {
    struct sl_error mine = {0}, first;
    bool goes_on = false;
    SL_TRY(sl_barrier(self, sl_trainer_world(trainer))); /* no coordinate has refused the run */
    SL_TRY(make_folders(part, self, trainer, save, from, &goes_on));
    SL_TRY(reserve_all(part, self, trainer, about, settings, notes, &mine));
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, bytes_at(part));
    int status = sl_saved_parts_agree(self, trainer, &mine, &first, 0, NULL);
    if (status == SL_OK) status = check_room(part, self, trainer, 0, 0, goes_on);
    if (status && leads(part, self)) sl_protection_remove(part->start, NULL);
    return status;
}

int sl_protection_open(struct sl_protection *p, struct sl_spmd *self, struct sl_trainer *trainer, const char *save,
                       const char *from, const struct sl_checkpoint *about, const struct sl_setting *settings,
                       const struct sl_store *notes) {
    struct part *part = &p->part[self->coordinate];
    const int status = open_part(part, self, trainer, save, from, about, settings, notes);
    if (status) *part->folder = *part->start = '\0'; /* the step to go on from stays */
    return status;
}

/* ---- steps ---- */

/* Writes this coordinate's part of the step to PLACE. With values that are not finite, the part stays invalid, and no
 * restart uses it or removes the step before it. */
static int write_part(struct part *part, struct sl_store *place, struct sl_spmd *self, struct sl_trainer *trainer,
                      int64_t samples) {
    struct sl_checking checking;
    sl_checking_begin(&checking);
    sl_safetensors_unseal(place);
    if (set_position(place, trainer, samples)) return sl_fail(self, SL_FAILED, "no memory to protect the step");
    SL_TRY(sl_saved_parts_export(self, trainer, place, &checking));
    part->account.steps += !checking.spoiled && sl_safetensors_seal(place);
    return SL_OK;
}

/* Ends the run after STEP if the watcher has asked for that. */
static int leave_if_asked(struct part *part, struct sl_spmd *self, int64_t step) {
    bool asked;
    SL_TRY(sl_protection_leave_hear(&part->leave, self, &asked));
    if (!asked) return sl_protection_leave_tell(&part->leave, self, part->folder);
    SL_TRY(sl_protection_copies_end(&part->copies, self));
    return sl_protection_leave(&part->leave, self, &part->hosts, part->folder, part->start, step);
}

int sl_protection_commit(struct sl_protection *p, struct sl_spmd *self, struct sl_trainer *trainer, int64_t samples) {
    struct part *part = &p->part[self->coordinate];
    const int64_t before = part->account.steps;
    if (!*part->start) return SL_OK;
    const int number = (int)(sl_trainer_steps(trainer) % part->places);
    const double began = sl_now();
    SL_TRY(sl_protection_copies_end(&part->copies, self));
    SL_TRY(write_part(part, &part->place[number], self, trainer, samples));
    SL_TRY(sl_protection_copies_start(&part->copies, self, trainer, number, &part->place[number]));
    /* All hosts have this run's first step now, so the step from which the run continued is no longer needed. */
    if (part->account.steps == part->places && part->account.steps > before && leads(part, self)) {
        char own[SL_MAX_PATH];
        name_layout(part, own);
        sl_protection_remove(part->folder, own);
    }
    part->account.sent = part->copies.sent;
    part->account.seconds += sl_now() - began;
    return leave_if_asked(part, self, sl_trainer_steps(trainer));
}

int sl_protection_settle(struct sl_protection *p, struct sl_spmd *self) {
    struct part *part = &p->part[self->coordinate];
    bool asked;
    SL_TRY(sl_protection_copies_end(&part->copies, self));
    return sl_protection_leave_hear(&part->leave, self, &asked);
}

bool sl_protection_leads(const struct sl_protection *p, const struct sl_spmd *self) {
    return leads(&p->part[self->coordinate], self);
}

void sl_protection_end(struct sl_protection *p, const struct sl_spmd *self) {
    const struct part *part = &p->part[self->coordinate];
    if (*part->folder) sl_protection_remove(part->folder, NULL);
}
