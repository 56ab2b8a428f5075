/* folder.h - a folder for a test's files. */
#ifndef SL_TESTS_RIGS_FOLDER_H
#define SL_TESTS_RIGS_FOLDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FOLDER = 256 };

/* Makes a new FOLDER with a name that begins with NAME: in TMPDIR if set, otherwise in memory (/dev/shm), so
 * syncing is short. */
static inline bool make_folder(char folder[FOLDER], const char *name) {
    const char *parent = getenv("TMPDIR"), *memory = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(folder, FOLDER, "%.150s/%.90s.XXXXXX", parent ? parent : memory, name);
    return mkdtemp(folder);
}

#endif
