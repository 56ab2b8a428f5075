/* neighbours.c - the other processes of this host, as the system shows them; before MPI has started, too.
 *
 * A process that is stopped (SIGSTOP, or a job control that has forgotten it) is alive, but neither computes nor
 * answers. Others of its host see it in /proc, so it is told from one that is at work, however long that takes. */
#include "collectives/mpi/engine.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectives/launcher.h"

enum { PATH = 64, NAME = 80, JOB = 255, ENVIRONMENT = 1 << 17 };

/* ---- how launchers name processes ---- */

/* How this process was started. It is noted before MPI starts, which changes the environment while the watchdog runs,
 * and before the launcher may end: whoever is left has init for a parent, as strangers have. */
static struct {
    bool noted;
    int rank, parent;  /* rank -1: no launcher has told one */
    char job[JOB + 1]; /* PMIx's name; "": none */
} origin;

static void note_origin(void) {
    const char *job = getenv("PMIX_NAMESPACE");
    if (origin.noted) return;
    origin.rank = sl_launch_of_process().rank;
    origin.parent = getppid();
    snprintf(origin.job, sizeof origin.job, "%s", job ? job : "");
    origin.noted = true;
}

int sl_mpi_announced_rank(void) {
    note_origin();
    return origin.rank < 0 ? 0 : origin.rank;
}

/* What tells this job from others of the user: its launcher, where that gives no name. */
static void name_job(char name[NAME]) {
    note_origin();
    if (*origin.job) {
        snprintf(name, NAME, "%.60s", origin.job);
    } else {
        snprintf(name, NAME, "parent-%d", origin.parent);
    }
}

/* The address that holds the word for this job. Its name begins with a zero byte: it is in memory, and no file. */
static socklen_t name_word(struct sockaddr_un *address) {
    char job[NAME];
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    name_job(job);
    const int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "shardloop-%ld-%s", (long)getuid(), job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

bool sl_mpi_claim_word(void) {
    static bool held;
    struct sockaddr_un address;
    const socklen_t size = name_word(&address);
    if (held || origin.rank < 0) return true;
    const int door = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    held = door < 0 || !bind(door, (struct sockaddr *)&address, size);
    if (!held) close(door);
    return held;
}

bool sl_mpi_word_is_claimed(void) {
    struct sockaddr_un address;
    const socklen_t size = name_word(&address);
    const int door = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool claimed = door >= 0 && !connect(door, (struct sockaddr *)&address, size);
    if (door >= 0) close(door);
    return claimed;
}

/* ---- looking ---- */

/* Reads the file NAME of process PID, and ends it with a zero byte. Returns its length, 0 where it cannot be read. */
static size_t read_file(int pid, const char *name, char *text, size_t room) {
    char path[PATH];
    size_t length = 0;
    ssize_t got = 1;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && length + 1 < room && (got = read(file, text + length, room - 1 - length)) > 0)
        length += (size_t)got;
    if (file >= 0) close(file);
    text[length] = 0;
    return length;
}

/* Whether PID is stopped, and who has started it. */
static bool is_stopped(int pid, int *parent) {
    char text[512], state = 0;
    read_file(pid, "stat", text, sizeof text);
    const char *rest = strrchr(text, ')'); /* before it comes a name that may contain anything */
    return rest && sscanf(rest + 1, " %c %d", &state, parent) == 2 && state == 'T';
}

bool sl_mpi_is_stopped(int pid) {
    int parent;
    return is_stopped(pid, &parent);
}

/* The value of NAME among variables that end with zero bytes; NULL: there is none. */
static const char *find_variable(const char *environment, size_t size, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
        if (!strncmp(at, name, length) && at[length] == '=') return at + length + 1;
    return NULL;
}

/* Whether PID, whose parent is PARENT, is of this job. Writes its rank, -1 if that is not known. The parent is a
 * launcher, unless this process was started alone: then it is a shell, which may have stopped anything. */
static bool is_sibling(int pid, int parent, int *rank) {
    static char environment[ENVIRONMENT]; /* of the one watchdog */
    const size_t size = read_file(pid, "environ", environment, sizeof environment);
    const char *job = find_variable(environment, size, "PMIX_NAMESPACE");
    const bool launched = parent == origin.parent && origin.rank >= 0;
    *rank = -1;
    for (int i = 0; sl_launch_rank_names[i] && *rank < 0; i++) {
        const char *value = find_variable(environment, size, sl_launch_rank_names[i]);
        if (value) *rank = atoi(value);
    }
    return launched || (*origin.job && job && !strcmp(job, origin.job));
}

int sl_mpi_find_stopped_sibling(int suspect, int *rank) {
    int parent, found = -1;
    if (suspect > 0 && is_stopped(suspect, &parent) && is_sibling(suspect, parent, rank)) return suspect;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && found < 0 && (entry = readdir(all));) {
        const int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
        if (pid && is_stopped(pid, &parent) && is_sibling(pid, parent, rank)) found = pid;
    }
    if (all) closedir(all);
    return found;
}

double sl_mpi_count_standing(struct sl_mpi_standing *standing, int who, double most) {
    const double now = sl_now(), elapsed = now - standing->looked;
    const bool on = who >= 0 && who == standing->who;
    standing->seconds = on ? standing->seconds + (elapsed < most ? elapsed : most) : 0;
    standing->who = who;
    standing->looked = now;
    return standing->seconds;
}
