/* draft.h - writes a file under a temporary name, and renames it once it is complete. A crash leaves either the old
 * file or the new one, never a part. */
#ifndef SL_LAYERS_FORMATS_FILES_DRAFT_H
#define SL_LAYERS_FORMATS_FILES_DRAFT_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum { SL_MAX_PATH = 4096 }; /* bytes of a path, including the final zero */

/* Treatment of symbolic links. Follow links named by users: they mean the target. Replace links under names made by a
 * program: a link there is foreign, and must not redirect the program's data. */
enum sl_links { SL_LINKS_FOLLOWED, SL_LINKS_REPLACED };

/* Zero-initialize. */
struct sl_draft {
    char path[SL_MAX_PATH], temporary[SL_MAX_PATH]; /* of followed links: the target */
    bool open;
    int descriptor; /* for reading and writing, while open */
};

/* SL_BAD_INPUT if PATH cannot be written: it is not a regular file, or its directory is missing or not writable. */
int sl_draft_check(const char *path, enum sl_links links, struct sl_error *error);
/* Creates the empty file PATH.PROCESS.tmp. End with sl_draft_finish or sl_draft_give_up. */
int sl_draft_open(struct sl_draft *draft, const char *path, enum sl_links links, struct sl_error *error);
/* Appends COUNT BYTES. Returns 0, or an errno to pass to sl_draft_finish. */
int sl_draft_write(const struct sl_draft *draft, const void *bytes, size_t count);
/* Syncs the draft, renames it to its path and syncs the directory. NUMBER is the errno of an earlier failed write, or
 * 0. After a failure, earlier or here, the draft is removed, and ERROR names the path and the reason. */
int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error);
/* Removes the temporary file. DRAFT may be NULL, or have ended already. */
void sl_draft_give_up(struct sl_draft *draft);

/* Syncs the directory of PATH, a file or a directory, so that its creation or renaming is durable. Returns 0, or an
 * errno. */
int sl_sync_parent(const char *path);

SL_END_C
#endif
