/* one_file.h - one file for a test to write again and again: FOLDER/file, in a new folder. */
#ifndef SL_TESTS_RIGS_ONE_FILE_H
#define SL_TESTS_RIGS_ONE_FILE_H

#include "tests/rigs/folder.h"

static char folder[FOLDER], path[FOLDER + 30];

/* Group set-up: makes the folder. NAME begins the folder's name. */
static inline int make_one_file(const char *name) {
    if (!make_folder(folder, name)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

/* Group tear-down: removes the file and its folder. Fails if the folder has another file. */
static inline int remove_one_file(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

#endif
