/* parts.h - one store in several files: parts, which are safetensors files, and an index in JSON, which says where each
 * tensor's elements are. Without the index the parts mean nothing: whoever writes them writes the index last.
 *
 * A part has tensors of one dim, each called as the whole tensor of which it has elements; and checksums. The index is
 *
 *     {"shardloop.xxh3":"0123456789abcdef",
 *     "shardloop.index":"1","notes":{KEY:TEXT,...},"parts":[[FILE,ROOT],...],
 *     "tensors":{NAME:{"shape":[...],"pieces":[[PART,FIRST,COUNT,[SEGMENTS,SEGMENT,START,PIECE],...],...]},...}}
 *
 * in two lines. shardloop.xxh3 is the checksum of all bytes of the second one, with its end. FILE is in the index's
 * folder, and ROOT is the root of its checksums (layers/storage/checksums.h), so that no other part can take its place.
 * A piece says: part PART, from 1, has elements [FIRST, FIRST + COUNT) of a shard. The tensor's elements, in row-major
 * order, are seen as an array of as many dims as the piece has lists. A dim consists of SEGMENTS segments of SEGMENT
 * elements; the shard has the elements [START, START + PIECE) of each of them. Without lists the shard is the whole
 * tensor. All elements of a tensor are in its pieces, each in one, and all elements of parts are in the index. Tensors
 * are of float32. docs/checkpoints_format.md describes it, too. */
#ifndef SL_LAYERS_STORAGE_PARTS_H
#define SL_LAYERS_STORAGE_PARTS_H

#include "layers/storage/draft.h"
#include "layers/storage/store.h"

SL_BEGIN_C

/* A part as the index names it. */
struct sl_part {
    const char *path; /* in the index's folder */
    uint64_t root;
};

/* Writes the index PATH of STORE, whose tensors have pieces, and its PARTS, which are on the disk: under a temporary
 * name, synced, renamed; the folder is synced. SL_FAILED if the file system fails. */
int sl_parts_write_index(const struct sl_store *store, int parts, const struct sl_part *part, const char *path,
                         struct sl_error *error);

/* Whether PATH is called as an index: "....json". */
bool sl_parts_is_index(const char *path);
/* Replaces STORE by what the index PATH says, sorted by name: its tensors have pieces, which lie in mapped parts, as
 * after sl_safetensors_map; sl_tensor_read and sl_tensor_hold read them. SL_BAD_INPUT if the index is missing,
 * malformed or damaged, if a part is missing, another one than the index means, or damaged in its header, or if pieces
 * overlap or leave holes; STORE is untouched. */
int sl_parts_map(struct sl_store *store, const char *path, struct sl_error *error);
/* Whether only a part of the files of PATH is there, as after a copy that was cut short: a part is missing, or the
 * index or a part ends too early, as the line in ERROR then tells. */
bool sl_parts_are_cut(const char *path, struct sl_error *error);

SL_END_C
#endif
