/* hosts.h - the file in which a launcher finds its hosts: when hosts are lost or return, someone or something changes
 * it, and the watcher of a run sees how many processes they take. */
#ifndef SL_DRIVERS_TRAINING_RESTART_HOSTS_H
#define SL_DRIVERS_TRAINING_RESTART_HOSTS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "layers/formats/files/draft.h"

enum { SL_HOSTS_UNKNOWN = INT_MAX }; /* slots: any number */

/* Zero-initialize. */
struct sl_hosts {
    char path[SL_MAX_PATH]; /* "": the launcher's words name no file */
    struct stat used, seen; /* the file as it was when last told, and as it was at the last look */
    double since;           /* when it got its present state */
};

/* Finds the file in the COUNT words WORD of a launcher: after --hostfile, -hostfile, --machinefile, -machinefile or
 * -f. */
void sl_hosts_open(struct sl_hosts *hosts, char *const *word, int count);
/* Whether the file has other contents than at the last call that returned true, or at sl_hosts_open, and has been left
 * alone for a moment: it is complete. */
bool sl_hosts_have_changed(struct sl_hosts *hosts);
/* The number of processes that the hosts in the file take; SL_HOSTS_UNKNOWN if it does not say so of each host, or
 * cannot be read. */
int sl_hosts_slots(const struct sl_hosts *hosts);
/* The slots in a LINE of such a file: "node1 slots=4" (Open MPI), "node1:4" (MPICH); 0 in a comment or an empty line.
 */
int sl_hosts_line_slots(const char *line);

#endif
