/* contents.h - the bytes of a file in memory: mapped; copied, where the file is small; or unpacked, where gzip or
 * zstd has packed it.
 *
 * A file that is mapped must not shrink: reading the lost part ends the process (SIGBUS). */
#ifndef SL_LAYERS_STORAGE_CONTENTS_H
#define SL_LAYERS_STORAGE_CONTENTS_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* A process may have some 65,000 mappings, and directories have more small files than that. */
enum { SL_MOST_COPIED = 1 << 14 }; /* bytes; larger files are mapped */

/* Zero-initialize; free with sl_contents_close. */
struct sl_contents {
    void *bytes; /* NULL: there are none */
    size_t count;
    bool mapped; /* otherwise they lie in memory of malloc */
};

/* Opens the regular file PATH. SL_BAD_INPUT says why it cannot be read; a pointer of Git LFS is refused, too. */
int sl_contents_open(struct sl_contents *contents, const char *path, struct sl_error *error);
void sl_contents_close(struct sl_contents *contents);
/* SL_BAD_INPUT if the COUNT BYTES begin as a pointer of Git LFS does, which stands where a large file should. */
int sl_contents_refuse_pointer(const void *bytes, size_t count, const char *path, struct sl_error *error);

/* Whether there is a zero in the first 8 KiB of what CONTENTS hold, packed or not: no text has one, and nearly all
 * other files do. (A text of 16 or 32 bits a character passes for binary.) */
bool sl_contents_are_binary(const struct sl_contents *contents);

/* Whether they begin as files of gzip or of zstd do. */
bool sl_contents_are_packed(const struct sl_contents *contents);
/* Replaces packed contents by what they were packed from, all members or frames of the file. SL_BAD_INPUT, and CONTENTS
 * stay, if they are damaged, cut short or followed by something else, or if there are more than MOST bytes: a small
 * file can claim any amount of memory. PATH is for messages. */
int sl_contents_unpack(struct sl_contents *contents, const char *path, size_t most, struct sl_error *error);

/* Bytes of a mark of byte order, as UTF-8 has it, with which CONTENTS begin; 0: there is none. */
size_t sl_contents_mark(const struct sl_contents *contents);
/* Whether the name PATH is that of lines of JSON: .jsonl or .ndjson, packed or not, in any case. */
bool sl_contents_are_lines(const char *path);
/* What CONTENTS, which nothing reads but as bytes, may be by how they begin or by the name PATH: "a Parquet file".
 * NULL: they look like a text. */
const char *sl_contents_kind(const struct sl_contents *contents, const char *path);

SL_END_C
#endif
