/* store.h - named tensors in host memory, with notes (text under a key). */
#ifndef SL_LAYERS_FORMATS_STORES_STORE_H
#define SL_LAYERS_FORMATS_STORES_STORE_H

#include "layers/formats/stores/names.h"
#include "spmd/spec.h"

SL_BEGIN_C

/* A product of two matrices, added to a tensor [rows, columns]. */
struct sl_low_rank {
    const float *a, *b; /* [rows, rank], [rank, columns]: not owned */
    size_t rank;        /* 0: there is none */
    float scale;
};

/* Some elements of a tensor whose elements are in several places: elements [first, first + count) of a shard. So a
 * sharded tensor, even with its shards shared out along data, needs only one piece per coordinate, for any number of
 * rows. */
struct sl_tensor_piece {
    int part;              /* index in the store's parts, from 0 */
    struct sl_shard shard; /* the shard's place in the tensor */
    size_t first, count;   /* elements of the shard */
    const float *data;     /* [count]: not owned; NULL: not in memory */
};

struct sl_tensor {
    char name[128];                /* constant while the tensor is in a store */
    struct sl_array array;         /* the store owns the data; NULL: the tensor is only declared */
    uint64_t checksum;             /* of the data in the store's file, if the file has checksums */
    struct sl_low_rank adapter;    /* sl_tensor_read adds scale A B */
    struct sl_tensor_piece *piece; /* [pieces]: places of the elements, if they are not in ARRAY */
    int pieces, most_pieces;
};

struct sl_note {
    char *key, *text;
};

/* A tensor of an unsupported type. */
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
    /* Options of writing (layers/formats/stores/safetensors.h). checksums: with checksums; reading sets it if the file
     * has them. */
    bool checksums;
    bool replaces_links; /* replace a symbolic link at the path; if false, replace its target */
    char *path;          /* the store's file; NULL: none */
    /* If the tensors are in a mapped file (layers/formats/stores/safetensors.h): */
    char *mapping;          /* its address; NULL: not mapped */
    size_t mapped;          /* in bytes */
    struct sl_draft *draft; /* the file until it is committed; else NULL */
    uint64_t root;          /* root checksum of a file read with checksums */
    /* If the tensors are in several files (layers/formats/stores/store_parts.h), and so have pieces: */
    struct sl_store *part;
    int parts;
    /* Set before mapping a file: list its tensors of unsupported types here, instead of refusing them. */
    bool lists_others;
    int others, most_others;
    struct sl_other_tensor *other;
};

/* Adds a zeroed tensor, or (declare) one without data. NULL if memory is short, the name is too long, or there are too
 * many dims. The pointer is valid until the next tensor is added. */
struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape);
struct sl_tensor *sl_store_declare(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                   const size_t *shape);
/* The tensor called NAME, or NULL. */
struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name);
/* Sorts the tensors by the bytes of their names. */
void sl_store_sort(struct sl_store *store);
/* Compares the keys of the struct sl_note A and B, for qsort. */
int sl_note_compare(const void *a, const void *b);
/* Sorts the notes by key. */
void sl_store_sort_notes(struct sl_store *store);
void sl_store_free(struct sl_store *store);
/* If the tensors are in a mapped file, releases the memory of the pages touched so far; their contents stay in the
 * file. Otherwise does nothing. */
void sl_store_relax(const struct sl_store *store);

/* Adds a note, or replaces the note under KEY, without allocations if both texts have one length. SL_FAILED if memory
 * is short. */
int sl_store_set_note(struct sl_store *store, const char *key, const char *text);
/* The note under KEY, or NULL. */
const char *sl_store_note(const struct sl_store *store, const char *key);

/* Writes the size of an array in bytes to *BYTES; false if it does not fit a size_t. */
bool sl_array_bytes(enum sl_dtype dtype, int dims, const size_t *shape, size_t *bytes);
size_t sl_tensor_bytes(const struct sl_tensor *tensor);
/* If the elements of TENSOR are in pieces, sl_tensor_hold copies them into its array, which sl_tensor_let_go frees.
 * Otherwise both do nothing. SL_FAILED if memory is short. */
int sl_tensor_hold(struct sl_tensor *tensor);
void sl_tensor_let_go(struct sl_tensor *tensor);
/* Reads elements of TENSOR, float32, from FIRST on into TO [count], and adds its adapter. */
void sl_tensor_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to);

/* ---- pieces ---- */

/* Appends PIECE to TENSOR, which is declared. SL_FAILED if memory is short. */
int sl_pieces_add(struct sl_tensor *tensor, const struct sl_tensor_piece *piece);

/* Whether PIECE's shard fits an array of ELEMENTS, each at most once, and PIECE's elements [first, first + count) fit
 * the shard. */
bool sl_piece_is_possible(const struct sl_tensor_piece *piece, size_t elements);

/* Returns the first element of TENSOR that is in no piece; if there is none, the number of elements. If there is none,
 * and the pieces together have as many elements as the tensor, each element is in exactly one piece. */
size_t sl_pieces_missing(const struct sl_tensor *tensor);

/* Reads elements of TENSOR from FIRST on into TO [count]; its pieces must have all of them. */
void sl_pieces_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to);

SL_END_C
#endif
