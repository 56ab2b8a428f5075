/* paths.h - checks the files named on a command line against the uses of their options. */
#ifndef SL_DRIVERS_COMMAND_LINE_PATHS_H
#define SL_DRIVERS_COMMAND_LINE_PATHS_H

#include "spmd/base/error.h"

/* An option's use of the file it names. */
enum sl_path_use {
    SL_PATH_NONE,       /* the option names no file */
    SL_PATH_ARGUMENTS,  /* reads arguments from it: a regular file, a pipe or a device */
    SL_PATH_TEXT,       /* reads it from beginning to end: a regular file or a pipe */
    SL_PATH_DATA,       /* reads it: a regular file, or a directory and all files below it */
    SL_PATH_PUBLISHED,  /* as SL_PATH_DATA, but made by others: it must exist */
    SL_PATH_CHECKPOINT, /* reads it: a regular file, or a directory and the checkpoints in it */
    SL_PATH_RUN,        /* reads it: a regular file or a pipe, or a directory and the records of a run in it */
    SL_PATH_STREAM,     /* writes it from beginning to end: a regular file, a pipe or a device */
    SL_PATH_REPLACED,   /* replaces it by another file: a regular file */
    SL_PATH_SAVED,      /* saves checkpoints in it: a directory */
    SL_PATH_JOURNAL,    /* writes a journal's files in it: a directory */
    SL_PATH_EVENTS,     /* writes TensorBoard's files in it: a directory */
};

struct sl_path {
    const char *option; /* as in messages: "--data" */
    const char *path;
    enum sl_path_use use;
};

/* Checks the COUNT paths of a command line, before anything is written. Returns SL_BAD_INPUT if a path exists and
 * has a kind that its option does not take, or if an output (stdout included) is the same file as another path or as
 * a file of another path's directory. Files are compared by device and inode, so other spellings and links are
 * found. A run may resume from checkpoints in the directory it saves to. */
int sl_paths_check(const struct sl_path *path, int count, struct sl_error *error);

#endif
