/* protection_copies.c - sends parts of steps to the host that keeps their copies. */
#include "layers/records/snapshot/protection_copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"

/* A copy is sent in one call for the file's first word, which is written last, and in at most PIECES calls of MOST
 * words for the rest. */
enum { PIECES = SL_MAX_IN_FLIGHT - 1, MOST = 1 << 30 };
typedef int32_t word;

struct sl_protection_copy {
    int owner;
    size_t bytes;          /* of the file */
    struct sl_group pair;  /* owner and keeper */
    struct sl_store *file; /* [places], at the keeper */
    /* Under way: */
    int place, calls;
    uint64_t sealed; /* the file's first word */
    struct sl_request request[1 + PIECES];
};

/* ---- sizes ---- */

/* Gathers the NUMBER of each coordinate; the caller frees it. NULL after a failure, with *STATUS. */
static uint64_t *gather(struct sl_spmd *self, const struct sl_group *world, uint64_t number, int *status) {
    uint64_t *all = calloc((size_t)world->size, sizeof *all);
    *status = all ? sl_all_gather(self, world, SL_I32, &number, all, sizeof number / sizeof(word))
                  : sl_fail(self, SL_FAILED, "no memory to list %d parts", world->size);
    if (!*status) return all;
    free(all);
    return NULL;
}

int sl_protection_copies_size(struct sl_spmd *self, const struct sl_group *world,
                              const struct sl_protection_hosts *hosts, size_t own, size_t *kept) {
    int status = SL_OK;
    *kept = 0;
    if (hosts->count < 2) return SL_OK;
    uint64_t *bytes = gather(self, world, own, &status);
    for (int owner = 0; owner < world->size && bytes; owner++)
        if (hosts->keeper[owner] == self->coordinate) *kept += bytes[owner];
    free(bytes);
    return status;
}

/* ---- opening ---- */

/* Makes the keeper's files. */
static void make_files(struct sl_protection_copy *copy, const char *start, int places, int parts, int *number,
                       struct sl_error *mine) {
    char path[SL_MAX_PATH];
    copy->file = calloc((size_t)places, sizeof *copy->file);
    if (!copy->file) sl_error_set(mine, SL_FAILED, "no memory to protect the run");
    for (int place = 0; place < places && !mine->status; place++) {
        sl_protection_part(start, place, copy->owner + 1, parts, path);
        sl_safetensors_place_copy(&copy->file[place], copy->bytes, path, number, mine);
    }
}

/* Opens the pair of OWNER and its keeper. */
static int open_copy(struct sl_protection_copies *copies, struct sl_spmd *self, const struct sl_protection_hosts *hosts,
                     int owner, struct sl_protection_copy **copy) {
    const int both[] = {owner, hosts->keeper[owner]};
    struct sl_group pair;
    *copy = NULL;
    SL_TRY(sl_group_list(self, 2, both, &pair));
    if (pair.rank < 0) return SL_OK;
    *copy = &copies->list[copies->count++];
    (*copy)->owner = owner;
    (*copy)->pair = pair;
    return SL_OK;
}

int sl_protection_copies_open(struct sl_protection_copies *copies, struct sl_spmd *self, const struct sl_group *world,
                              const struct sl_protection_hosts *hosts, const char *start, int places, size_t bytes,
                              int *number, struct sl_error *mine) {
    int status = SL_OK;
    if (hosts->count < 2) return SL_OK;
    uint64_t *all = gather(self, world, bytes, &status);
    copies->list = calloc((size_t)world->size, sizeof *copies->list);
    if (status == SL_OK && !copies->list) status = sl_fail(self, SL_FAILED, "no memory to protect the run");
    for (int owner = 0; owner < world->size && status == SL_OK; owner++) {
        struct sl_protection_copy *copy;
        status = open_copy(copies, self, hosts, owner, &copy);
        if (!copy) continue;
        copy->bytes = all[owner];
        if (copy->bytes / sizeof(word) > (size_t)PIECES * MOST && !mine->status)
            sl_error_set(mine, SL_BAD_INPUT, "--protect: coordinate %d's %.1f GB are too much for a copy: give 0",
                         owner, 1e-9 * (double)copy->bytes);
        const bool keeps = owner != self->coordinate && copy->bytes; /* no bytes: the owner has failed */
        if (keeps && !mine->status) make_files(copy, start, places, self->mesh->size, number, mine);
    }
    free(all);
    return status;
}

void sl_protection_copies_free(struct sl_protection_copies *copies) {
    for (int i = 0; i < copies->count; i++) {
        struct sl_protection_copy *copy = &copies->list[i];
        for (int place = 0; copy->file && place < SL_PROTECTION_PLACES; place++) sl_store_free(&copy->file[place]);
        free(copy->file);
    }
    free(copies->list);
    *copies = (struct sl_protection_copies){0};
}

/* ---- steps ---- */

/* Starts the calls of COPY, between the owner's and the keeper's FILE. */
static int start_copy(struct sl_protection_copy *copy, struct sl_spmd *self, struct sl_store *file) {
    word *data = (word *)(void *)file->mapping;
    size_t left = copy->bytes / sizeof *data - sizeof copy->sealed / sizeof *data;
    data += sizeof copy->sealed / sizeof *data;
    SL_TRY(sl_broadcast_start(self, &copy->request[0], &copy->pair, SL_I32, &copy->sealed, &copy->sealed,
                              sizeof copy->sealed / sizeof *data, 0));
    for (copy->calls = 1; left > 0; copy->calls++) {
        const size_t some = left < MOST ? left : MOST;
        SL_TRY(sl_broadcast_start(self, &copy->request[copy->calls], &copy->pair, SL_I32, data, data, some, 0));
        data += some;
        left -= some;
    }
    return SL_OK;
}

int sl_protection_copies_start(struct sl_protection_copies *copies, struct sl_spmd *self, int place,
                               struct sl_store *own) {
    for (int i = 0; i < copies->count; i++) {
        struct sl_protection_copy *copy = &copies->list[i];
        const bool sends = copy->owner == self->coordinate;
        copy->place = place;
        copy->sealed = sends ? sl_safetensors_sealed(own) : 0;
        if (!sends) sl_safetensors_unseal(&copy->file[place]);
        SL_TRY(start_copy(copy, self, sends ? own : &copy->file[place]));
        if (sends) copies->sent += copy->bytes;
    }
    return SL_OK;
}

int sl_protection_copies_end(struct sl_protection_copies *copies, struct sl_spmd *self) {
    for (int i = 0; i < copies->count; i++) {
        struct sl_protection_copy *copy = &copies->list[i];
        const int calls = copy->calls;
        copy->calls = 0;
        for (int call = 0; call < calls; call++) SL_TRY(sl_wait(self, &copy->request[call]));
        if (calls && copy->owner != self->coordinate) sl_safetensors_seal_copy(&copy->file[copy->place], copy->sealed);
    }
    return SL_OK;
}
