/* one_file.h - a file that is written again and again: FOLDER/file, in a new folder of the test's. */
#ifndef SL_TESTS_RIGS_ONE_FILE_H
#define SL_TESTS_RIGS_ONE_FILE_H

#include "tests/rigs/folder.h"

static char folder[FOLDER], path[FOLDER + 30];

/* For a group's set-up, which gives the test's NAME. */
static inline int make_one_file(const char *name) {
    if (!make_folder(folder, name)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

/* A group's tear-down: fails where another file is left. */
static inline int remove_one_file(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

#endif
