/* draft.h - writes a file under a temporary name and renames it once it is whole. A crash leaves either the old file or
 * the new one, never a part. */
#ifndef SL_LAYERS_STORAGE_DRAFT_H
#define SL_LAYERS_STORAGE_DRAFT_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum { SL_MAX_PATH = 4096 }; /* bytes of a path, including the final zero */

/* What is done where the path is a symbolic link. A user who names a link means the file that it leads to. Under names
 * that a program makes itself a link is a stranger, which must not lead the program's data elsewhere. */
enum sl_links { SL_LINKS_FOLLOWED, SL_LINKS_REPLACED };

/* Zero-initialize. */
struct sl_draft {
    char path[SL_MAX_PATH], temporary[SL_MAX_PATH]; /* of links that are followed, where they lead to */
    bool open;
    int descriptor; /* for reading and writing, while it is open */
};

/* SL_BAD_INPUT if PATH cannot be written: it is not a regular file, or its directory is missing or not writable. */
int sl_draft_check(const char *path, enum sl_links links, struct sl_error *error);
/* Creates the empty file PATH.PROCESS.tmp. End with sl_draft_finish or sl_draft_give_up. */
int sl_draft_open(struct sl_draft *draft, const char *path, enum sl_links links, struct sl_error *error);
/* Writes COUNT BYTES behind what has been written. Returns 0, or the number of the error, which sl_draft_finish takes.
 */
int sl_draft_write(const struct sl_draft *draft, const void *bytes, size_t count);
/* Syncs the draft, renames it to its path and syncs the directory. NUMBER is the errno of an earlier failed write, or
 * 0. After a failure, earlier or here, the draft is removed, and the line in ERROR names the path and the reason. */
int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error);
/* Removes the temporary file. DRAFT may be NULL, or have ended already. */
void sl_draft_give_up(struct sl_draft *draft);

/* Makes it last that PATH, a file or a directory, was made or renamed: syncs the directory that it is in. Returns 0, or
 * the number of the error. */
int sl_sync_parent(const char *path);

SL_END_C
#endif
