/* launched.c - finds, watches and kills the processes below a launcher. */
#include "drivers/training/restart/launched.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spmd/base/memory.h"

/* Calls USE with each child of each thread of PROCESS. */
static void each_child(pid_t process, void (*use)(pid_t child, void *arg), void *arg) {
    char path[64 + NAME_MAX];
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *threads = opendir(path);
    for (const struct dirent *thread; threads && (thread = readdir(threads));) {
        int child;
        snprintf(path, sizeof path, "/proc/%d/task/%s/children", (int)process, thread->d_name);
        FILE *list = *thread->d_name == '.' ? NULL : fopen(path, "r");
        while (list && fscanf(list, "%d", &child) == 1) use(child, arg);
        if (list) fclose(list);
    }
    if (threads) closedir(threads);
}

/* The rank that the launcher has given PROCESS, by its environment; -1: not known. */
static int rank_of(pid_t process) {
    static const char *const keys[] = {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK="};
    char path[64], *entry = NULL;
    size_t room = 0;
    int rank = -1;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)process);
    FILE *file = fopen(path, "r");
    while (file && rank < 0 && getdelim(&entry, &room, '\0', file) > 0)
        for (int i = 0; i < 3; i++)
            if (!strncmp(entry, keys[i], strlen(keys[i]))) rank = atoi(entry + strlen(keys[i]));
    if (file) fclose(file);
    free(entry);
    return rank;
}

struct search {
    struct sl_launched *members;
    const char *program;
};

static void add(pid_t process, void *arg) {
    const struct search *search = arg;
    struct sl_launched *m = search->members;
    char path[64], file[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)process);
    const ssize_t length = readlink(path, file, sizeof file - 1);
    each_child(process, add, arg);
    if (length < 0 || (size_t)length != strlen(search->program) || memcmp(file, search->program, (size_t)length))
        return;
    struct sl_launched_process *list = sl_grow(m->list, m->count, &m->room, 16, sizeof *list);
    if (!list) return;
    m->list = list;
    const int descriptor = (int)syscall(SYS_pidfd_open, process, 0);
    if (descriptor >= 0) list[m->count++] = (struct sl_launched_process){process, descriptor, rank_of(process)};
}

void sl_launched_free(struct sl_launched *m) {
    for (int i = 0; i < m->count; i++) close(m->list[i].descriptor);
    free(m->list);
    *m = (struct sl_launched){0};
}

void sl_launched_find(struct sl_launched *m, pid_t launcher, const char *program) {
    struct search search = {m, program};
    sl_launched_free(m);
    each_child(launcher, add, &search);
}

int sl_launched_ended(const struct sl_launched *m, int *rank) {
    int ended = 0;
    for (int i = m->count - 1; i >= 0; i--) {
        struct pollfd one = {m->list[i].descriptor, POLLIN, 0};
        if (poll(&one, 1, 0) != 1) continue;
        *rank = m->list[i].rank;
        ended++;
    }
    return ended;
}

int sl_launched_wait(const struct sl_launched *m, bool ends, const int other[SL_EARS], double seconds) {
    const int watched = ends ? m->count : 0;
    struct pollfd list[SL_EARS + watched];
    for (int i = 0; i < SL_EARS; i++) list[i] = (struct pollfd){other[i], POLLIN, 0};
    for (int i = 0; i < watched; i++) list[SL_EARS + i] = (struct pollfd){m->list[i].descriptor, POLLIN, 0};
    if (poll(list, (nfds_t)(SL_EARS + watched), seconds < 0 ? -1 : (int)(1e3 * seconds)) <= 0) return -1;
    for (int i = 0; i < SL_EARS; i++)
        if (list[i].revents & POLLIN) return i;
    return -1;
}

static void kill_below(pid_t process, void *arg) {
    kill(process, SIGSTOP); /* it starts no others meanwhile */
    each_child(process, kill_below, arg);
    kill(process, SIGKILL);
}

void sl_launched_kill(pid_t launcher) { kill_below(launcher, NULL); }
