/* checksums.h - finds damage in safetensors files: a checksum of each tensor's data, and one of all else.
 *
 * Checksums are XXH3 with 64 bits (spmd/base/hash.h), written as 16 lower-case hexadecimal digits. A file with
 * checksums has the note shardloop.xxh3: the tensors' checksums in the order of the tensors' names, then the root,
 * separated by one space. The root is the checksum of these texts, each with a zero byte at its end:
 *
 *     for each other note, in the order of the keys:    key, text
 *     for each tensor, in the order of the names:       name, dtype ("F32"), shape ("8,16"; "" of a scalar), checksum
 *
 * Orders are by bytes. Formatting of the header, and the places of tensors, are not covered: if another program
 * rewrites the same notes and tensors, the checksums stay valid. docs/checkpoints/format.md has a program to verify a
 * file.
 *
 * The functions are for layers/formats/stores/safetensors.h, and for whoever fills in a file that it seals. */
#ifndef SL_LAYERS_FORMATS_STORES_CHECKSUMS_H
#define SL_LAYERS_FORMATS_STORES_CHECKSUMS_H

#include "layers/formats/stores/store.h"
#include "spmd/base/hash.h"

SL_BEGIN_C

#define SL_CHECKSUMS_KEY "shardloop.xxh3"

/* Length of the note of COUNT tensors. */
static inline size_t sl_checksums_length(int count) { return 17 * (size_t)count + 16; }

/* Reads the data of TENSOR[store->count], STORE's tensors or copies, and sets their checksums. SL_FAILED names a tensor
 * with a non-finite float. BETWEEN (may be NULL) is called after every few megabytes; a status other than SL_OK ends
 * the work and is returned. */
int sl_checksums_make(const struct sl_store *store, struct sl_tensor *tensor, const char *path,
                      int (*between)(void *arg), void *arg, struct sl_error *error);
/* The same for data that come in pieces, while a core has them in its cache: begin; for each tensor add all its bytes
 * in their order, then end, which sets its checksum. */
struct sl_checking {
    struct sl_hasher hasher;
    bool spoiled; /* some float was not finite */
};
void sl_checking_begin(struct sl_checking *checking);
void sl_checking_add(struct sl_checking *checking, enum sl_dtype dtype, const void *data, size_t bytes);
void sl_checking_end(struct sl_checking *checking, struct sl_tensor *tensor);

/* Writes the note of TENSOR[store->count], which are sorted and have checksums, to TEXT: sl_checksums_length
 * characters, without a zero after them. SL_FAILED if memory is short; if STORE's notes are sorted
 * (sl_store_sort_notes), no memory is needed. */
int sl_checksums_print(const struct sl_store *store, const struct sl_tensor *tensor, char *text);

/* Sets the checksums of STORE's sorted tensors from the note TEXT. SL_BAD_INPUT if the root does not match the notes
 * and tensors. */
int sl_checksums_parse(struct sl_store *store, const char *text, struct sl_error *error);
/* Reads the data of STORE. SL_BAD_INPUT names a tensor whose data do not match its checksum, if there are checksums, or
 * have a non-finite float. BETWEEN as above. */
int sl_checksums_verify(const struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error);

SL_END_C
#endif
