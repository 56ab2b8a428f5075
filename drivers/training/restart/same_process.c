/* same_process.c - messages between a watcher and its process: one packet each. */
#include "drivers/training/restart/same_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char variable[] = "SHARDLOOP_WATCHER"; /* the number of the inherited descriptor */

/* ---- the watcher ---- */

bool sl_same_process_open(int ends[2]) { return !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends); }

void sl_same_process_inherit(int end) {
    char number[16];
    snprintf(number, sizeof number, "%d", end);
    if (!fcntl(end, F_SETFD, 0)) setenv(variable, number, 1);
}

bool sl_same_process_hear(int end, struct sl_error *reason) {
    return recv(end, reason, sizeof *reason, 0) == sizeof *reason;
}

void sl_same_process_answer(int end, const char *place) { send(end, place, strlen(place) + 1, MSG_NOSIGNAL); }

/* ---- its process ---- */

/* The inherited descriptor; -1: none. No other program inherits it. */
static int inherited(void) {
    const char *text = getenv(variable);
    const int end = text ? atoi(text) : -1;
    return end >= 0 && !fcntl(end, F_SETFD, FD_CLOEXEC) ? end : -1;
}

bool sl_same_process_is_watched(void) { return inherited() >= 0; }

bool sl_same_process_asks(const struct sl_error *reason, char place[SL_MAX_PATH]) {
    const int end = inherited();
    ssize_t count;
    if (send(end, reason, sizeof *reason, MSG_NOSIGNAL) < 0) return false;
    do count = recv(end, place, SL_MAX_PATH, 0);
    while (count < 0 && errno == EINTR);
    return count > 0 && !place[count - 1];
}
