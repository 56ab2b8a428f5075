/* store_parts.h - one store in several files: parts, which are safetensors files, and an index in JSON with the places
 * of each tensor's elements. Parts are useless without the index, so the index is written last.
 *
 * A part has checksums, and tensors of one dim, each with the name of the whole tensor whose elements it has. The index
 * is
 *
 *     {"shardloop.xxh3":"0123456789abcdef",
 *     "shardloop.index":"1","notes":{KEY:TEXT,...},"parts":[[FILE,ROOT],...],
 *     "tensors":{NAME:{"shape":[...],"pieces":[[PART,FIRST,COUNT,[SEGMENTS,SEGMENT,START,PIECE],...],...]},...}}
 *
 * in two lines. shardloop.xxh3 is the checksum of all bytes of the second line, including its newline. FILE is in the
 * index's folder, and ROOT is the root of its checksums (layers/formats/stores/checksums.h), so a different part is
 * detected. A piece says: part PART, from 1, has elements [FIRST, FIRST + COUNT) of a shard. The tensor's elements, in
 * row-major order, are seen as an array with one dim for each list of the piece. A dim consists of SEGMENTS segments of
 * SEGMENT elements; the shard has the elements [START, START + PIECE) of each segment. Without lists the shard is the
 * whole tensor. Each element of a tensor is in exactly one of its pieces, and all elements of parts are in the index.
 * Tensors are float32. docs/checkpoints/format.md also describes the format. */
#ifndef SL_LAYERS_FORMATS_STORES_STORE_PARTS_H
#define SL_LAYERS_FORMATS_STORES_STORE_PARTS_H

#include "layers/formats/files/draft.h"
#include "layers/formats/stores/store.h"

SL_BEGIN_C

/* A part as named in the index. */
struct sl_part {
    const char *path; /* in the index's folder */
    uint64_t root;
};

/* Writes the index PATH of STORE, whose tensors have pieces, and of its PARTS, which are on the disk: under a temporary
 * name, then synced and renamed; the folder is synced. SL_FAILED if the file system fails. */
int sl_parts_write_index(const struct sl_store *store, int parts, const struct sl_part *part, const char *path,
                         struct sl_error *error);

/* Writes the index PATH in the folder of the index FROM, as FROM but with these PARTS, and with the NOTES' texts under
 * their keys. SL_BAD_INPUT if FROM is no index of as many parts. */
int sl_parts_renew_index(const char *from, const struct sl_store *notes, int parts, const struct sl_part *part,
                         const char *path, struct sl_error *error);
/* The number of parts of the index PATH; 0: it is no valid index. Adds its notes to NOTES (may be NULL). Does not open
 * the parts. */
int sl_parts_count(const char *path, struct sl_store *notes);

/* Whether PATH is a name of an index: "....json". */
bool sl_parts_is_index(const char *path);
/* Replaces STORE by the contents of index PATH, sorted by name. Its tensors have pieces in mapped parts, as after
 * sl_safetensors_map; read them with sl_tensor_read and sl_tensor_hold. SL_BAD_INPUT, with STORE unchanged, if the
 * index is missing, malformed or damaged; if a part is missing, does not match the index, or has a damaged header; or
 * if pieces overlap or leave holes. */
int sl_parts_map(struct sl_store *store, const char *path, struct sl_error *error);
/* Whether PATH is incomplete, as after an interrupted copy: a part is missing, or the index or a part ends too early.
 * ERROR then has the reason. */
bool sl_parts_are_cut(const char *path, struct sl_error *error);

SL_END_C
#endif
