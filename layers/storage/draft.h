/* draft.h - a file under a temporary name, which takes its place once it is whole: a crash leaves either the old file
 * or the new one. */
#ifndef SL_LAYERS_STORAGE_DRAFT_H
#define SL_LAYERS_STORAGE_DRAFT_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum { SL_MAX_PATH = 4096 }; /* bytes of a path, with the zero after it */

struct sl_draft {
    char path[SL_MAX_PATH], temporary[SL_MAX_PATH]; /* a link at the path stays one: these are what it names */
    int descriptor;                                 /* for reading and writing; -1: there is none */
};

/* SL_BAD_INPUT where PATH could not be written: something other than a regular file, or in no directory of ours. */
int sl_draft_check(const char *path, struct sl_error *error);
/* Makes PATH.PROCESS.tmp, empty. Ends by sl_draft_finish or sl_draft_give_up. */
int sl_draft_open(struct sl_draft *draft, const char *path, struct sl_error *error);
/* Syncs the draft, renames it to its path and syncs the directory. NUMBER is the error that writing has met with (0:
 * none): then, and where this fails, the draft is given up, and the line names the path and the error. */
int sl_draft_finish(struct sl_draft *draft, int number, struct sl_error *error);
/* Removes what is there of it; NULL, and one that has ended, are allowed. */
void sl_draft_give_up(struct sl_draft *draft);

SL_END_C
#endif
