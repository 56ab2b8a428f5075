/* store.h - named tensors in host memory, with notes (text under a key). */
#ifndef SL_LAYERS_STORAGE_STORE_H
#define SL_LAYERS_STORAGE_STORE_H

#include "layers/storage/names.h"
#include "spmd/spec.h"

SL_BEGIN_C

/* A product of two matrices that belongs to a tensor [rows, columns]. */
struct sl_low_rank {
    const float *a, *b; /* [rows, rank], [rank, columns]: not owned */
    size_t rank;        /* 0: there is none */
    float scale;
};

/* Some of a tensor's elements, where these lie in several places: elements [first, first + count) of a shard. So a
 * tensor that was sharded, and whose shards were shared out along data, needs one piece a coordinate, however many rows
 * it has. */
struct sl_tensor_piece {
    int part;              /* of the store's parts, from 0 */
    struct sl_shard shard; /* where its elements are in the tensor */
    size_t first, count;   /* elements of the shard */
    const float *data;     /* [count]: not owned; NULL: they are not at hand */
};

struct sl_tensor {
    char name[128];                /* stays as it is while the tensor is in a store */
    struct sl_array array;         /* the store owns the data; NULL: the tensor is only declared */
    uint64_t checksum;             /* of the data in the file that the store was read from, if it has checksums */
    struct sl_low_rank adapter;    /* sl_tensor_read adds scale A B */
    struct sl_tensor_piece *piece; /* [pieces]: where the elements lie that have no place in ARRAY */
    int pieces, most_pieces;
};

struct sl_note {
    char *key, *text;
};

/* A tensor of a type that is none of ours. */
struct sl_other_tensor {
    char name[128], type[16]; /* "BOOL" */
};

/* Zero-initialize; free with sl_store_free. */
struct sl_store {
    int count, capacity;
    struct sl_tensor *tensor;
    int notes, most_notes;
    struct sl_note *note;
    struct sl_names tensor_names, note_names;
    /* How it is written (layers/storage/safetensors.h); reading sets checksums to what the file has. */
    bool checksums;
    bool replaces_links; /* a symbolic link at the path is replaced itself; otherwise the file that it leads to */
    char *path;          /* the file that it was read from; NULL: none */
    /* If the tensors lie in a mapped file (layers/storage/safetensors.h): */
    char *mapping;          /* where it is mapped; NULL: they do not */
    size_t mapped;          /* bytes */
    struct sl_draft *draft; /* the file while it has not been committed; else NULL */
    uint64_t root;          /* the checksum of all the rest, of a file with checksums that was read */
    /* If they lie in several files (layers/storage/parts.h), of which tensors then have pieces: */
    struct sl_store *part;
    int parts;
    /* Set before a file is mapped: its tensors of other types are listed here, in place of being refused. */
    bool lists_others;
    int others, most_others;
    struct sl_other_tensor *other;
};

/* Adds a zeroed tensor; sl_store_declare adds one without data. NULL if there is no memory, or if the name is too long
 * or the dims are too many. The pointer is valid until the next tensor is added. */
struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape);
struct sl_tensor *sl_store_declare(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                   const size_t *shape);
/* The tensor called NAME, or NULL. */
struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name);
/* Sorts the tensors by name, in the order of the names' bytes. */
void sl_store_sort(struct sl_store *store);
void sl_store_free(struct sl_store *store);
/* If the tensors lie in a mapped file: releases the memory of the pages touched so far. Their contents stay in the
 * file. Otherwise does nothing. */
void sl_store_relax(const struct sl_store *store);

/* Adds a note, or replaces the note under KEY. SL_FAILED if there is no memory. */
int sl_store_set_note(struct sl_store *store, const char *key, const char *text);
/* The note under KEY, or NULL. */
const char *sl_store_note(const struct sl_store *store, const char *key);

/* Writes the bytes of an array to *BYTES; false if they do not fit a size_t. */
bool sl_array_bytes(enum sl_dtype dtype, int dims, const size_t *shape, size_t *bytes);
size_t sl_tensor_bytes(const struct sl_tensor *tensor);
/* Copies the elements of TENSOR into memory, one after another, if they lie in pieces: its array has the data until
 * sl_tensor_let_go. Otherwise both do nothing. SL_FAILED without memory. */
int sl_tensor_hold(struct sl_tensor *tensor);
void sl_tensor_let_go(struct sl_tensor *tensor);
/* TO [count] = the elements of TENSOR, of float32, from FIRST on, with its adapter. */
void sl_tensor_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to);

/* ---- pieces ---- */

/* Appends PIECE to TENSOR, which is declared. SL_FAILED without memory. */
int sl_pieces_add(struct sl_tensor *tensor, const struct sl_tensor_piece *piece);

/* Whether SHARD has the elements of an array of ELEMENTS, each at most once, and has the elements [first, first +
 * count) of PIECE. */
bool sl_piece_is_possible(const struct sl_tensor_piece *piece, size_t elements);

/* The first element of TENSOR that none of its pieces has; as many as there are: none. If the pieces have as many
 * elements as the tensor, each of them then lies in one piece. */
size_t sl_pieces_missing(const struct sl_tensor *tensor);

/* TO [count] = the elements of TENSOR from FIRST on, all of which its pieces have. */
void sl_pieces_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to);

SL_END_C
#endif
