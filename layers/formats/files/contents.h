/* contents.h - the bytes of a file in memory: mapped; copied, if the file is small; or unpacked, if it is a gzip or
 * zstd file.
 *
 * A mapped file must not shrink: reading the lost part ends the process (SIGBUS). */
#ifndef SL_LAYERS_FORMATS_FILES_CONTENTS_H
#define SL_LAYERS_FORMATS_FILES_CONTENTS_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Small files are copied, not mapped: a process may have only some 65,000 mappings, and a directory more files. */
enum { SL_MOST_COPIED = 1 << 14 }; /* bytes; larger files are mapped */

/* Zero-initialize; free with sl_contents_close. */
struct sl_contents {
    void *bytes; /* NULL: there are none */
    size_t count;
    bool mapped; /* if false, the bytes are in memory of malloc */
};

/* Opens the regular file PATH. SL_BAD_INPUT gives the reason if it cannot be read; a Git LFS pointer is refused,
 * too. */
int sl_contents_open(struct sl_contents *contents, const char *path, struct sl_error *error);
void sl_contents_close(struct sl_contents *contents);
/* SL_BAD_INPUT if the COUNT BYTES begin like a Git LFS pointer, a placeholder for a large file. */
int sl_contents_refuse_pointer(const void *bytes, size_t count, const char *path, struct sl_error *error);

/* Whether there is a zero in the first 8 KiB of CONTENTS, after unpacking: texts have none, and nearly all other files
 * do. (A text with 16 or 32 bits per character counts as binary.) */
bool sl_contents_are_binary(const struct sl_contents *contents);

/* Whether CONTENTS begin like a gzip or zstd file. */
bool sl_contents_are_packed(const struct sl_contents *contents);
/* Unpacks CONTENTS, all members or frames of the file. SL_BAD_INPUT, with CONTENTS unchanged, if they are damaged, cut
 * short or followed by other data, or if the result exceeds MOST bytes: a small file can claim any amount of memory.
 * PATH is for messages. */
int sl_contents_unpack(struct sl_contents *contents, const char *path, size_t most, struct sl_error *error);

/* Bytes of the UTF-8 byte order mark at the start of CONTENTS; 0: there is none. */
size_t sl_contents_mark(const struct sl_contents *contents);
/* Whether PATH is a name of JSON lines: .jsonl or .ndjson, packed or not, in any case. */
bool sl_contents_are_lines(const char *path);
/* Likely kind of CONTENTS read only as bytes, by their first bytes or by the name PATH: "a Parquet file". NULL: they
 * look like a text. */
const char *sl_contents_kind(const struct sl_contents *contents, const char *path);

SL_END_C
#endif
