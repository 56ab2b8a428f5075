/* segments.c - unlinks Open MPI's shared memory once all processes of this host have it mapped.
 *
 * Each process makes a file in /dev/shm, which its neighbours map while MPI starts. Without a name the memory exists as
 * long as it is mapped, so nothing is left when the launcher, which would remove the files, is killed. When MPI is left
 * in order, it removes the file itself, with a loud message if there is none: it gets an empty one for that. */
#include "collectives/mpi/process/shared.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 4096 };

static const char *const prefixes[] = {"/dev/shm/vader_segment.", "/dev/shm/sm_segment."}; /* Open MPI 4, 5 */
static char *own; /* this process's file; NULL: none, or not unlinked */

/* The path of a segment on LINE of /proc/self/maps, or NULL. */
static char *find_segment(char *line) {
    line[strcspn(line, "\n")] = 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char *path = strstr(line, prefixes[i]);
        if (path && !strstr(path, " (deleted)")) return path;
    }
    return NULL;
}

/* Whether PATH, which ends with a process's number on this host, belongs to RANK. */
static bool is_of(const char *path, int rank) {
    const char *number = strrchr(path, '.');
    return number && strtol(number + 1, NULL, 10) == rank;
}

/* Counts the segments mapped here, each once, and sets `own` to the one of RANK. */
static int count_segments(int rank) {
    char line[LINE], last[LINE] = "";
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        const char *path = find_segment(line);
        if (!path || !strcmp(path, last)) continue;
        strcpy(last, path);
        count++;
        if (!own && is_of(path, rank)) own = strdup(path);
    }
    if (maps) fclose(maps);
    return count;
}

void sl_mpi_hide_segments(MPI_Comm host) {
    int processes, rank;
    MPI_Comm_size(host, &processes);
    MPI_Comm_rank(host, &rank);
    int all = count_segments(rank) == processes && own;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, host);
    if (all && !unlink(own)) return;
    free(own);
    own = NULL;
}

void sl_mpi_show_segments(void) {
    const int file = own ? open(own, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (file >= 0) close(file);
    free(own);
    own = NULL;
}

/* Removes the job's files, which differ only in the last number. */
static void remove_like(const char *path) {
    const char *name = strrchr(path, '/') + 1;
    const size_t same = (size_t)(strrchr(name, '.') + 1 - name);
    DIR *folder = opendir("/dev/shm");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        if (!strncmp(entry->d_name, name, same)) unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
}

void sl_mpi_remove_segments(void) {
    char line[LINE];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        const char *path = find_segment(line);
        if (!path) continue;
        remove_like(path);
        break;
    }
    if (maps) fclose(maps);
}
