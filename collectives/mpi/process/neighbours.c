/* neighbours.c - the other processes of this host, as the system shows them; also before MPI has started.
 *
 * A stopped process (SIGSTOP, or forgotten by job control) is alive, but neither computes nor answers. Others of its
 * host see its state in /proc, so it is distinguished from a working one for any length of work. */
#include "collectives/mpi/process/process.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "collectives/launcher.h"

enum { PATH = 64, NAME = 80, JOB = 255, ENVIRONMENT = 1 << 17 };

/* ---- names of processes by launchers ---- */

/* How this process was started. Read before MPI starts, because MPI changes the environment while the watchdog may read
 * it, and before the launcher can end: then the parent is init, as for processes of other jobs. */
static struct {
    bool noted;
    int rank, parent;  /* rank -1: not set by a launcher */
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

/* Distinguishes this job from the user's others: by PMIx's name, or by the launcher's process id. */
static void name_job(char name[NAME]) {
    note_origin();
    if (*origin.job) {
        snprintf(name, NAME, "%.60s", origin.job);
    } else {
        snprintf(name, NAME, "parent-%d", origin.parent);
    }
}

/* The job's socket address for PURPOSE; one process at a time can bind it. The name begins with a zero byte, so no file
 * has this name. */
static socklen_t name_address(struct sockaddr_un *address, const char *purpose) {
    char job[NAME];
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    name_job(job);
    const int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "shardloop-%ld-%s%s",
                                (long)getuid(), job, purpose);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
static socklen_t name_word(struct sockaddr_un *address) { return name_address(address, ""); }

static struct {
    bool held, found_held;
    int door; /* socket to which other processes send a byte if they find the word held; -1: none */
} word = {.door = -1};

bool sl_mpi_claim_word(void) {
    struct sockaddr_un address;
    const socklen_t size = name_word(&address);
    if (word.held || origin.rank < 0) return true;
    const int door = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    word.held = door < 0 || !bind(door, (struct sockaddr *)&address, size);
    if (word.held) {
        word.door = door;
        return true;
    }
    if (!word.found_held) sendto(door, "", 1, MSG_DONTWAIT, (struct sockaddr *)&address, size);
    word.found_held = true;
    close(door);
    return false;
}

bool sl_mpi_word_is_claimed(void) {
    struct sockaddr_un address;
    const socklen_t size = name_word(&address);
    const int door = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool claimed = door >= 0 && !connect(door, (struct sockaddr *)&address, size);
    if (door >= 0) close(door);
    return claimed;
}

/* ---- checking processes ---- */

/* Reads the file NAME of process PID, and ends it with a zero byte. Returns its length, 0 if it cannot be read. */
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

/* The state letter of PID, 0 if there is none, and its parent. */
static char state_of(int pid, int *parent) {
    char text[512], state = 0;
    read_file(pid, "stat", text, sizeof text);
    const char *rest = strrchr(text, ')'); /* behind the name, which may contain anything */
    return rest && sscanf(rest + 1, " %c %d", &state, parent) == 2 ? state : 0;
}

static bool is_stopped(int pid, int *parent) { return state_of(pid, parent) == 'T'; }

bool sl_mpi_is_stopped(int pid) {
    int parent;
    return is_stopped(pid, &parent);
}

/* The value of NAME among zero-terminated variables; NULL: not set. */
static const char *find_variable(const char *environment, size_t size, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
        if (!strncmp(at, name, length) && at[length] == '=') return at + length + 1;
    return NULL;
}

/* Whether PID, whose parent is PARENT, belongs to this job. Writes its rank, -1 if not known. The parent is a launcher,
 * unless this process was started alone: then it is a shell, which may have stopped anything. */
static bool is_sibling(int pid, int parent, int *rank) {
    static char environment[ENVIRONMENT]; /* used only by the checking thread */
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

/* Purposes of addresses. The holder of the first checks all processes of this host, the others check only the holder;
 * the second is held once a stopped process has been found. */
static const char looks_at_all[] = "-watch", has_found[] = "-found";
static int held[2] = {-1, -1};

/* Holds the address of PURPOSE in *DOOR, if no other process does. */
static bool hold(int *door, const char *purpose) {
    struct sockaddr_un address;
    const socklen_t size = name_address(&address, purpose);
    if (*door >= 0) return true;
    const int taken = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (taken < 0) return false;
    if (!bind(taken, (struct sockaddr *)&address, size) && !listen(taken, SOMAXCONN)) *door = taken;
    if (*door < 0) close(taken);
    return *door >= 0;
}

/* The holder of the address of PURPOSE; 0: none, or it does not answer because too many ask. */
static int holder_of(const char *purpose) {
    struct sockaddr_un address;
    struct ucred holder = {0};
    socklen_t size = name_address(&address, purpose), length = sizeof holder;
    const int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door < 0) return 0;
    if (connect(door, (struct sockaddr *)&address, size) || getsockopt(door, SOL_SOCKET, SO_PEERCRED, &holder, &length))
        holder.pid = 0;
    close(door);
    return holder.pid;
}

/* Closes the connections of earlier askers, to make room for more. */
static void clear(int door) {
    for (int asker; (asker = accept4(door, NULL, NULL, SOCK_CLOEXEC)) >= 0;) close(asker);
}

/* The process that checks all of this host; 0: this process must. */
static int find_watcher(void) {
    if (origin.rank < 0) return 0;
    if (!hold(&held[0], looks_at_all)) return holder_of(looks_at_all);
    clear(held[0]);
    return 0;
}

void sl_mpi_say_stopped(void) { hold(&held[1], has_found); }
bool sl_mpi_is_said_stopped(void) { return origin.rank >= 0 && held[1] < 0 && holder_of(has_found); }

void sl_mpi_stop_watching(void) {
    for (int i = 0; i < 2; i++) {
        if (held[i] >= 0) close(held[i]);
        held[i] = -1;
    }
}

int sl_mpi_find_stopped_sibling(int suspect, bool alone, int *rank) {
    int parent, found = -1;
    if (suspect > 0 && is_stopped(suspect, &parent) && is_sibling(suspect, parent, rank)) return suspect;
    const int watcher = alone ? 0 : find_watcher();
    if (watcher) return is_stopped(watcher, &parent) && is_sibling(watcher, parent, rank) ? watcher : -1;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && found < 0 && (entry = readdir(all));) {
        const int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
        if (pid && is_stopped(pid, &parent) && is_sibling(pid, parent, rank)) found = pid;
    }
    if (all) closedir(all);
    return found;
}

static bool is_of_this_program(int pid) {
    char link[PATH], theirs[512], mine[512];
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    const ssize_t length = readlink(link, theirs, sizeof theirs), own = readlink("/proc/self/exe", mine, sizeof mine);
    return length > 0 && length == own && !memcmp(theirs, mine, (size_t)length);
}

/* Counts other runnable processes of this job and program: not ended or stopped. */
static int count_siblings(void) {
    int parent, rank, count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && (entry = readdir(all));) {
        const int pid = isdigit((unsigned char)*entry->d_name) ? atoi(entry->d_name) : 0;
        const char state = pid && pid != getpid() ? state_of(pid, &parent) : 0;
        if (state && !strchr("TZX", state) && is_of_this_program(pid) && is_sibling(pid, parent, &rank)) count++;
    }
    if (all) closedir(all);
    return count;
}

void sl_mpi_keep_word(double most) {
    const struct timespec pause = {.tv_nsec = 50000000};
    const double until = sl_now() + most;
    char byte;
    for (int found = 0; word.door >= 0 && sl_now() < until; nanosleep(&pause, NULL)) {
        while (recv(word.door, &byte, 1, MSG_DONTWAIT) == 1) found++;
        if (found >= count_siblings()) break;
    }
}

double sl_mpi_count_standing(struct sl_mpi_standing *standing, int who, double most) {
    const double now = sl_now(), elapsed = now - standing->looked;
    const bool on = who >= 0 && who == standing->who;
    standing->seconds = on ? standing->seconds + (elapsed < most ? elapsed : most) : 0;
    standing->who = who;
    standing->looked = now;
    return standing->seconds;
}
