/* paths.h - the files that a command line names, and whether they can be what their options make of them. */
#ifndef SL_DRIVERS_COMMAND_LINE_PATHS_H
#define SL_DRIVERS_COMMAND_LINE_PATHS_H

#include "spmd/base/error.h"

/* What becomes of the file that an option names. */
enum sl_path_use {
    SL_PATH_NONE,       /* the option names no file */
    SL_PATH_ARGUMENTS,  /* its words are arguments: a regular file, a pipe or a device */
    SL_PATH_TEXT,       /* it is read from its beginning to its end: a regular file or a pipe */
    SL_PATH_DATA,       /* it is read: a regular file, or a directory and all files below it */
    SL_PATH_PUBLISHED,  /* the same, which others have published: it must be there */
    SL_PATH_CHECKPOINT, /* it is read: a regular file, or a directory and the checkpoints in it */
    SL_PATH_RUN,        /* it is read: a regular file or a pipe, or a directory and the records of a run in it */
    SL_PATH_STREAM,     /* it is written from its beginning to its end: a regular file, a pipe or a device */
    SL_PATH_REPLACED,   /* another file takes its place: a regular file */
    SL_PATH_SAVED,      /* checkpoints are saved in it: a directory */
    SL_PATH_JOURNAL,    /* a journal's files are written in it: a directory */
    SL_PATH_EVENTS,     /* TensorBoard's files are written in it: a directory */
};

struct sl_path {
    const char *option; /* as messages call it: "--data" */
    const char *path;
    enum sl_path_use use;
};

/* Checks the COUNT paths of a command line, before anything is written. SL_BAD_INPUT where one is there and is not of a
 * kind that its option takes, or where something that is written, stdout among them, is the same file as another path,
 * or a file of another path's directory. Which files are the same is told by device and inode: no spelling and no link
 * hides it. A run may go on from checkpoints where it saves its own. */
int sl_paths_check(const struct sl_path *path, int count, struct sl_error *error);

#endif
