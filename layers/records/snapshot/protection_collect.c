/* protection_collect.c - brings the parts of a step to the host of coordinate 0. */
#include "layers/records/snapshot/protection_collect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/collectives.h"
#include "layers/formats/files/contents.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/training/exchange.h"

enum { MOST = 1 << 30 }; /* elements sent in a call */
typedef int32_t word;

/* A collection at one coordinate. */
struct collection {
    struct sl_spmd *self;
    char start[SL_MAX_PATH];
    int32_t parts, place; /* of each step; of the chosen step */
    int64_t *seen;        /* [coordinates, parts, SL_PROTECTION_PLACES]: steps in the host's memory; -1: none */
    int32_t *from;        /* [parts]: a coordinate on a host that has the part */
    size_t moved;
};

/* ---- the choice ---- */

static int progress(void *arg) { return sl_progress(arg); }

/* Lists the steps that this coordinate's host has. */
static void look(struct collection *c) {
    int64_t *own = c->seen + (size_t)c->self->coordinate * (size_t)c->parts * SL_PROTECTION_PLACES;
    char path[SL_MAX_PATH];
    for (int part = 0; part < c->parts; part++)
        for (int place = 0; place < SL_PROTECTION_PLACES; place++) {
            sl_protection_part(c->start, place, part + 1, c->parts, path);
            *own++ = sl_protection_is_own(c->start) ? sl_protection_read_part(path, NULL) : -1;
        }
}

static int64_t seen_at(const struct collection *c, int coordinate, int part, int place) {
    return c->seen[((size_t)coordinate * (size_t)c->parts + (size_t)part) * SL_PROTECTION_PLACES + (size_t)place];
}

/* The latest step before LIMIT that some coordinate has a part of, and its place; -1: none. */
static int64_t latest_before(const struct collection *c, int64_t limit, int32_t *place) {
    const size_t count = (size_t)c->self->mesh->size * (size_t)c->parts * SL_PROTECTION_PLACES;
    int64_t latest = -1;
    for (size_t i = 0; i < count; i++)
        if (c->seen[i] > latest && c->seen[i] < limit) {
            latest = c->seen[i];
            *place = (int32_t)(i % SL_PROTECTION_PLACES);
        }
    return latest;
}

/* Finds the first coordinate that has each part of STEP. Returns the first part that none has; parts: there is none. */
static int find_parts(struct collection *c, int64_t step) {
    for (int part = 0; part < c->parts; part++) {
        int owner = 0;
        while (owner < c->self->mesh->size && seen_at(c, owner, part, c->place) != step) owner++;
        if (owner == c->self->mesh->size) return part;
        c->from[part] = owner;
    }
    return c->parts;
}

/* Chooses the latest step that has all parts, at coordinate 0. */
static int choose(struct collection *c, int64_t *step) {
    int lacks = -1;
    *step = INT64_MAX;
    c->place = 0;
    while ((*step = latest_before(c, *step, &c->place)) >= 0) {
        const int missing = find_parts(c, *step);
        if (missing == c->parts) return SL_OK;
        if (lacks < 0) lacks = missing;
    }
    return sl_fail(c->self, SL_FAILED,
                   "--protect: no step in memory is whole: no host of this run has the part of the former "
                   "coordinate %d",
                   lacks < 0 ? 0 : lacks);
}

/* ---- moving ---- */

/* Sends COUNT BYTES, a file of whole words, from the second member of PAIR to the first. */
static int move(struct sl_spmd *self, const struct sl_group *pair, char *bytes, size_t count) {
    word *at = (word *)(void *)bytes;
    for (size_t left = count / sizeof *at, some; left; left -= some, at += some) {
        some = left < MOST ? left : MOST;
        SL_TRY(sl_broadcast(self, pair, SL_I32, at, at, some, 1));
    }
    return SL_OK;
}

static int send_part(struct collection *c, const struct sl_group *pair, const char *path) {
    struct sl_contents file = {0};
    SL_TRY(sl_contents_open(&file, path, &c->self->error));
    uint64_t count = file.count;
    int status = sl_broadcast(c->self, pair, SL_I32, &count, &count, sizeof count / sizeof(word), 1);
    if (status == SL_OK) status = move(c->self, pair, file.bytes, file.count);
    sl_contents_close(&file);
    return status;
}

/* Receives a file, which gets its name PATH once it is complete. */
static int receive_part(struct collection *c, const struct sl_group *pair, const char *path) {
    struct sl_store file = {0};
    char coming[SL_MAX_PATH];
    uint64_t count = 0;
    int number;
    SL_TRY(sl_broadcast(c->self, pair, SL_I32, &count, &count, sizeof count / sizeof(word), 1));
    snprintf(coming, sizeof coming, "%.*s/coming", SL_MAX_PATH - 10, c->start);
    unlink(coming);
    int status = sl_safetensors_place_copy(&file, count, coming, &number, &c->self->error);
    if (status == SL_OK) status = move(c->self, pair, file.mapping, count);
    sl_store_free(&file);
    if (status == SL_OK && rename(coming, path)) status = sl_fail(c->self, SL_FAILED, "%s: cannot be made", path);
    c->moved += count;
    return status;
}

/* Brings a part to coordinate 0's host, unless it is there. */
static int bring(struct collection *c, int part) {
    const int both[] = {0, c->from[part]};
    struct sl_group pair;
    char path[SL_MAX_PATH];
    if (!c->from[part]) return SL_OK;
    sl_protection_part(c->start, c->place, part + 1, c->parts, path);
    SL_TRY(sl_group_list(c->self, 2, both, &pair));
    if (pair.rank < 0) return SL_OK;
    SL_TRY(pair.rank == 0 ? receive_part(c, &pair, path) : send_part(c, &pair, path));
    return sl_group_close(c->self, &pair);
}

/* ---- a collection ---- */

static int collect(struct collection *c, const struct sl_group *world, char index[SL_MAX_PATH]) {
    struct sl_spmd *self = c->self;
    const size_t row = (size_t)c->parts * SL_PROTECTION_PLACES;
    int64_t step = -1;
    c->seen = calloc((size_t)self->mesh->size * row, sizeof *c->seen);
    c->from = calloc((size_t)c->parts, sizeof *c->from);
    if (!c->seen || !c->from) return sl_fail(self, SL_FAILED, "no memory to list %d parts", c->parts);
    look(c);
    SL_TRY(sl_gather_records(self, c->seen, row * sizeof *c->seen));
    if (self->coordinate == 0) SL_TRY(choose(c, &step));
    SL_TRY(sl_broadcast(self, world, SL_I32, &c->place, &c->place, 1, 0));
    SL_TRY(sl_broadcast(self, world, SL_I32, c->from, c->from, (size_t)c->parts, 0));
    for (int part = 0; part < c->parts; part++) SL_TRY(bring(c, part));
    if (self->coordinate == 0 && !sl_protection_complete(c->start, c->place, c->parts, step, index, progress, self))
        return sl_fail(self, SL_FAILED, "--protect: step %" PRId64 " in the memory of several hosts is damaged", step);
    return SL_OK;
}

int sl_protection_collect(struct sl_spmd *self, const char *sought, char index[SL_MAX_PATH], size_t *moved) {
    struct collection c = {.self = self};
    struct sl_group world;
    snprintf(c.start, sizeof c.start, "%.*s", (int)(strrchr(sought, '/') - sought), sought);
    snprintf(index, SL_MAX_PATH, "%s", sought);
    SL_TRY(sl_group_axes(self, "*", &world));
    /* No parts: nothing is missing, or the reader of checkpoints says that the step does not exist. */
    if (self->coordinate == 0 && access(sought, F_OK)) c.parts = sl_protection_parts(c.start);
    int status = sl_broadcast(self, &world, SL_I32, &c.parts, &c.parts, 1, 0);
    if (status == SL_OK && c.parts) status = collect(&c, &world, index);
    /* After the death of another coordinate, sl_progress fails: the steps are needed then. */
    if (status && self->coordinate == 0 && sl_progress(self) == SL_OK) sl_protection_remove(c.start, NULL);
    free(c.seen);
    free(c.from);
    *moved = c.moved;
    return status ? status : sl_group_close(self, &world);
}
