/* pieces.c - finds a tensor's elements among its pieces. */
#include "layers/formats/stores/store.h"

#include <string.h>

#include "spmd/base/memory.h"

int sl_pieces_add(struct sl_tensor *tensor, const struct sl_tensor_piece *piece) {
    struct sl_tensor_piece *grown = sl_grow(tensor->piece, tensor->pieces, &tensor->most_pieces, 1, sizeof *grown);
    if (!grown) return SL_FAILED;
    tensor->piece = grown;
    grown[tensor->pieces++] = *piece;
    return SL_OK;
}

static bool multiply(size_t *product, size_t by) { return !__builtin_mul_overflow(*product, by, product); }

bool sl_piece_is_possible(const struct sl_tensor_piece *piece, size_t elements) {
    const struct sl_shard *shard = &piece->shard;
    size_t there = 1, local = 1;
    for (int d = shard->dims - 1; d >= 0; d--) {
        const struct sl_shard_dim *dim = &shard->dim[d];
        const bool fits = dim->piece > 0 && dim->piece <= dim->segment && dim->start <= dim->segment - dim->piece;
        if (!fits || dim->stride != there || dim->local % dim->piece || !multiply(&local, dim->local)) return false;
        if (!multiply(&there, dim->local / dim->piece) || !multiply(&there, dim->segment)) return false;
    }
    return there == elements && piece->count > 0 && piece->first <= local && piece->count <= local - piece->first;
}

/* Number of the tensor's consecutive elements from AT on that are adjacent in PIECE, from element *PLACE on; 0: PIECE
 * does not have AT. */
static size_t find(const struct sl_tensor_piece *piece, size_t at, size_t *place) {
    size_t local = 0, run = 0;
    for (int d = 0; d < piece->shard.dims; d++) {
        const struct sl_shard_dim *dim = &piece->shard.dim[d];
        const size_t index = at / dim->stride, segment = index / dim->segment, within = index % dim->segment;
        if (within < dim->start || within - dim->start >= dim->piece) return 0;
        at -= index * dim->stride;
        local = local * dim->local + segment * dim->piece + (within - dim->start);
        run = dim->piece - (within - dim->start);
    }
    if (local < piece->first || local - piece->first >= piece->count) return 0;
    *place = local - piece->first;
    const size_t left = piece->count - *place;
    return run < left ? run : left;
}

/* As find, among all pieces, *NEXT first: elements after those of one piece are usually in the next one. *NEXT becomes
 * the piece with AT. */
static size_t find_any(const struct sl_tensor *tensor, size_t at, int *next, size_t *place) {
    for (int i = 0; i < tensor->pieces; i++) {
        const int number = (*next + i) % tensor->pieces;
        const size_t found = find(&tensor->piece[number], at, place);
        if (!found) continue;
        *next = number;
        return found;
    }
    return 0;
}

size_t sl_pieces_missing(const struct sl_tensor *tensor) {
    const size_t elements = sl_array_elements(&tensor->array);
    size_t at = 0, place;
    for (int next = 0; at < elements; next = (next + 1) % tensor->pieces) {
        const size_t found = find_any(tensor, at, &next, &place);
        if (!found) return at;
        at += found;
    }
    return elements;
}

void sl_pieces_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to) {
    size_t place;
    for (int next = 0; count > 0; next = (next + 1) % tensor->pieces) {
        size_t some = find_any(tensor, first, &next, &place);
        if (!some) return; /* not reached: pieces are checked when they are made */
        if (some > count) some = count;
        memcpy(to, tensor->piece[next].data + place, some * sizeof *to);
        first += some;
        count -= some;
        to += some;
    }
}
