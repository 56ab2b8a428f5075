/* protection_copies.c - sends parts of steps to the host that keeps their copies. */
#include "layers/records/snapshot/protection_copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "layers/formats/stores/safetensors.h"
#include "layers/records/snapshot/saved_parts_internal.h"

/* A copy is sent in one call for the file's first 8 bytes, which are written last, and in at most PIECES calls of MOST
 * words for the rest. */
enum { FIRST = 8, PIECES = SL_MAX_IN_FLIGHT - 1, MOST = 1 << 30 };
typedef int32_t word;

/* Pieces of the file that are sent, in words. */
struct pieces {
    uint64_t count;
    struct piece {
        uint64_t begin, words;
    } list[PIECES];
};

struct sl_protection_copy {
    int owner;
    size_t bytes;         /* of the file */
    struct sl_group pair; /* owner and keeper */
    struct pieces pieces;
    struct sl_store *file;    /* [places], at the keeper */
    struct sl_held_list held; /* tensors that the keeper copies itself */
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

/* Adds the file's bytes [BEGIN, END); false if there are too many pieces. */
static bool add_piece(struct pieces *pieces, size_t begin, size_t end) {
    for (size_t at = begin / sizeof(word), stop = end / sizeof(word), some; at < stop; at += some) {
        some = stop - at < MOST ? stop - at : MOST;
        if (pieces->count == PIECES) return false;
        pieces->list[pieces->count++] = (struct piece){at, some};
    }
    return true;
}

/* Finds the place of each held tensor, and adds the header and the other tensors as pieces; false if there are too many
 * pieces. */
static bool choose_pieces(struct sl_protection_copy *copy, struct sl_store *store) {
    size_t at = copy->bytes, begin = FIRST, end;
    bool fits = true;
    for (int i = 0; i < store->count; i++) at -= sl_tensor_bytes(&store->tensor[i]);
    end = at;
    for (int i = 0, h; i < store->count; at += sl_tensor_bytes(&store->tensor[i++])) {
        for (h = 0; h < copy->held.count && strcmp(copy->held.list[h].name, store->tensor[i].name) != 0; h++) continue;
        if (h < copy->held.count) {
            copy->held.list[h].at = at;
            continue;
        }
        if (at > end) fits = add_piece(&copy->pieces, begin, end) && fits;
        if (at > end) begin = at;
        end = at + sl_tensor_bytes(&store->tensor[i]);
    }
    return add_piece(&copy->pieces, begin, end) && fits;
}

/* Decides which tensors of COPY, which this coordinate keeps, are sent. */
static void plan_copy(struct sl_protection_copy *copy, struct sl_store *store, struct sl_error *mine) {
    if (!copy->bytes) return; /* the owner has failed */
    sl_store_sort(store);
    if (choose_pieces(copy, store)) return;
    copy->held.count = 0;
    copy->pieces.count = 0;
    if (!add_piece(&copy->pieces, FIRST, copy->bytes) && !mine->status)
        sl_error_set(mine, SL_BAD_INPUT, "--protect: coordinate %d's %.1f GB are too much for a copy: give 0",
                     copy->owner, 1e-9 * (double)copy->bytes);
}

/* The number of parts that COORDINATE keeps. */
static int kept_by(const struct sl_protection_hosts *hosts, int coordinates, int coordinate) {
    int count = 0;
    for (int owner = 0; owner < coordinates; owner++) count += hosts->keeper[owner] == coordinate;
    return count;
}

/* Plans each copy at its keeper, which tells the owner. */
static int plan_copies(struct sl_protection_copies *copies, struct sl_spmd *self, struct sl_trainer *trainer,
                       const struct sl_protection_hosts *hosts, struct sl_error *mine) {
    const int size = self->mesh->size;
    int rounds = 0, next = 0;
    for (int c = 0; c < size; c++) rounds = kept_by(hosts, size, c) > rounds ? kept_by(hosts, size, c) : rounds;
    for (int round = 0; round < rounds; round++) {
        struct sl_store store = {0};
        while (next < copies->count && copies->list[next].owner == self->coordinate) next++;
        struct sl_protection_copy *copy = next < copies->count ? &copies->list[next++] : NULL;
        const int status =
            sl_saved_parts_declare_copy(self, trainer, copy ? copy->owner : -1, &store, copy ? &copy->held : NULL);
        if (copy && status == SL_OK) plan_copy(copy, &store, mine);
        sl_store_free(&store);
        SL_TRY(status);
    }
    for (int i = 0; i < copies->count; i++) {
        struct pieces *pieces = &copies->list[i].pieces;
        SL_TRY(sl_broadcast(self, &copies->list[i].pair, SL_I32, pieces, pieces, sizeof *pieces / sizeof(word), 1));
    }
    return SL_OK;
}

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

int sl_protection_copies_open(struct sl_protection_copies *copies, struct sl_spmd *self, struct sl_trainer *trainer,
                              const struct sl_protection_hosts *hosts, const char *start, int places, size_t bytes,
                              int *number, struct sl_error *mine) {
    const struct sl_group *world = sl_trainer_world(trainer);
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
        const bool keeps = owner != self->coordinate && copy->bytes; /* no bytes: the owner has failed */
        if (keeps && !mine->status) make_files(copy, start, places, self->mesh->size, number, mine);
    }
    free(all);
    return status ? status : plan_copies(copies, self, trainer, hosts, mine);
}

void sl_protection_copies_free(struct sl_protection_copies *copies) {
    for (int i = 0; i < copies->count; i++) {
        struct sl_protection_copy *copy = &copies->list[i];
        for (int place = 0; copy->file && place < SL_PROTECTION_PLACES; place++) sl_store_free(&copy->file[place]);
        free(copy->file);
        free(copy->held.list);
    }
    free(copies->list);
    *copies = (struct sl_protection_copies){0};
}

/* ---- steps ---- */

/* Starts the calls of COPY, between the owner's and the keeper's FILE. */
static int start_calls(struct sl_protection_copy *copy, struct sl_spmd *self, struct sl_store *file) {
    word *data = (word *)(void *)file->mapping;
    SL_TRY(sl_broadcast_start(self, &copy->request[copy->calls++], &copy->pair, SL_I32, &copy->sealed, &copy->sealed,
                              sizeof copy->sealed / sizeof *data, 0));
    for (uint64_t i = 0; i < copy->pieces.count; i++) {
        const struct piece *piece = &copy->pieces.list[i];
        word *at = data + piece->begin;
        SL_TRY(sl_broadcast_start(self, &copy->request[copy->calls++], &copy->pair, SL_I32, at, at, piece->words, 0));
    }
    return SL_OK;
}

/* Copies the tensors of COPY that this coordinate, its keeper, has itself. */
static int copy_held(const struct sl_protection_copy *copy, struct sl_spmd *self, struct sl_trainer *trainer) {
    char *file = copy->file[copy->place].mapping;
    for (int i = 0; i < copy->held.count; i++) {
        const struct sl_held *held = &copy->held.list[i];
        SL_TRY(sl_export_held(self, sl_trainer_parameters(trainer), held, (float *)(void *)(file + held->at)));
    }
    return SL_OK;
}

static size_t bytes_sent(const struct pieces *pieces) {
    size_t words = FIRST / sizeof(word);
    for (uint64_t i = 0; i < pieces->count; i++) words += pieces->list[i].words;
    return words * sizeof(word);
}

int sl_protection_copies_start(struct sl_protection_copies *copies, struct sl_spmd *self, struct sl_trainer *trainer,
                               int place, struct sl_store *own) {
    for (int i = 0; i < copies->count; i++) {
        struct sl_protection_copy *copy = &copies->list[i];
        const bool sends = copy->owner == self->coordinate;
        copy->place = place;
        copy->sealed = sends ? sl_safetensors_sealed(own) : 0;
        if (!sends) sl_safetensors_unseal(&copy->file[place]);
        SL_TRY(start_calls(copy, self, sends ? own : &copy->file[place]));
        if (sends) copies->sent += bytes_sent(&copy->pieces);
    }
    for (int i = 0; i < copies->count; i++)
        if (copies->list[i].owner != self->coordinate) SL_TRY(copy_held(&copies->list[i], self, trainer));
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
