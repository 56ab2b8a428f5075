/* become.c - finds the program in this program's folder. */
#include "drivers/command_line/become.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spmd/base/error.h"

int sl_become(const char *name, const char *called, char **argv) {
    char folder[PATH_MAX], path[PATH_MAX + 64];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1); /* the file, not a link to it */
    if (length > 0) {
        folder[length] = 0;
        *strrchr(folder, '/') = 0;
        argv[0] = (char *)called;
        snprintf(path, sizeof path, "%s/shardloop-%s", folder, name);
        execv(path, argv);
        if (errno == ENOENT) {
            snprintf(path, sizeof path, "%s/%s", folder, name);
            execv(path, argv);
        }
    }
    fprintf(stderr, "shardloop: %s: %s\n", length > 0 ? path : "/proc/self/exe", strerror(errno));
    return SL_FAILED;
}
