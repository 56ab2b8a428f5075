/* draft.h - writes a file under a temporary name and renames it once it is whole. A crash leaves either the old file or
 * the new one, never a part. */
#ifndef SL_LAYERS_STORAGE_DRAFT_H
#define SL_LAYERS_STORAGE_DRAFT_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum { SL_MAX_PATH = 4096 }; /* bytes of a path, including the final zero */

struct sl_draft {
    char path[SL_MAX_PATH], temporary[SL_MAX_PATH]; /* symbolic links resolved, so that a link stays a link */
    int descriptor;                                 /* for reading and writing; -1: not open */
};

/* SL_BAD_INPUT if PATH cannot be written: it is not a regular file, or its directory is missing or not writable. */
int sl_draft_check(const char *path, struct sl_error *error);
/* Creates the empty file PATH.PROCESS.tmp. End with sl_draft_finish or sl_draft_give_up. */
int sl_draft_open(struct sl_draft *draft, const char *path, struct sl_error *error);
/* Syncs the draft, renames it to its path and syncs the directory. NUMBER is the errno of an earlier failed write, or
 * 0. After a failure, earlier or here, the draft is removed, and the line in ERROR names the path and the reason. */
int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error);
/* Removes the temporary file. DRAFT may be NULL, or have ended already. */
void sl_draft_give_up(struct sl_draft *draft);

SL_END_C
#endif
