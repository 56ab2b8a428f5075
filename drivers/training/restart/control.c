/* control.c - sends and takes messages to the watcher of a run. */
#include "drivers/training/restart/control.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "layers/records/snapshot/protection_folder.h"

enum { PATIENCE = 1000 }; /* milliseconds for a request to come, once its sender has connected */

/* The address of the socket beside FOLDER. */
static bool address_beside(const char *folder, struct sockaddr_un *address) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address->sun_path, sizeof address->sun_path, "%s.control", folder) < (int)sizeof address->sun_path;
}

static bool address_of(const char *save, struct sockaddr_un *address, struct sl_error *error) {
    char folder[SL_MAX_PATH];
    return !sl_protection_name(save, folder, error) && address_beside(folder, address);
}

static int open_socket(void) { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

/* Whether the other end's process is this user's: all users can bind a name there, and perhaps connect to it. */
static bool is_own(int descriptor) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    return !getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == getuid();
}

static bool connects(int descriptor, const struct sockaddr_un *address) {
    return !connect(descriptor, (const struct sockaddr *)address, sizeof *address) && is_own(descriptor);
}

int sl_control_listen(const char *save) {
    struct sockaddr_un address;
    if (!address_of(save, &address, NULL)) return -1;
    const int probe = open_socket(), descriptor = open_socket();
    const bool taken = probe < 0 || connects(probe, &address);
    if (probe >= 0) close(probe);
    if (!taken) unlink(address.sun_path); /* of a dead watcher */
    if (!taken && descriptor >= 0 && !bind(descriptor, (const struct sockaddr *)&address, sizeof address) &&
        !listen(descriptor, 1))
        return descriptor;
    if (descriptor >= 0) close(descriptor);
    return -1;
}

void sl_control_close(int descriptor, const char *save) {
    char folder[SL_MAX_PATH];
    if (descriptor < 0) return;
    if (!sl_protection_name(save, folder, NULL)) sl_control_remove(folder);
    close(descriptor);
}

/* Reads a line. */
static bool read_line(int descriptor, int patience, char text[SL_CONTROL_TEXT]) {
    size_t used = 0;
    struct pollfd one = {descriptor, POLLIN, 0};
    while (used < SL_CONTROL_TEXT && poll(&one, 1, patience) > 0) {
        const ssize_t count = read(descriptor, text + used, SL_CONTROL_TEXT - used);
        char *end = count > 0 ? memchr(text + used, '\n', (size_t)count) : NULL;
        if (end) *end = '\0';
        if (end) return true;
        if (count <= 0) return false;
        used += (size_t)count;
    }
    return false;
}

static void write_line(int descriptor, const char *text) {
    char line[SL_CONTROL_TEXT + 1];
    const int length = snprintf(line, sizeof line, "%.*s\n", SL_CONTROL_TEXT - 2, text);
    send(descriptor, line, (size_t)length, MSG_NOSIGNAL);
}

int sl_control_take(int descriptor, char text[SL_CONTROL_TEXT]) {
    const int answer = accept4(descriptor, NULL, NULL, SOCK_CLOEXEC);
    if (answer < 0 || (is_own(answer) && read_line(answer, PATIENCE, text))) return answer;
    close(answer);
    return -1;
}

void sl_control_answer(int answer, const char *text) {
    if (answer < 0) return;
    write_line(answer, text);
    close(answer);
}

int sl_control_ask(const char *save, const char *request, char answer[SL_CONTROL_TEXT], struct sl_error *error) {
    struct sockaddr_un address;
    if (!address_of(save, &address, error)) return SL_BAD_INPUT;
    const int descriptor = open_socket();
    if (descriptor < 0 || !connects(descriptor, &address)) {
        if (descriptor >= 0) close(descriptor);
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: no watcher of a run listens: it needs --restart N and --protect 1 on this machine",
                            save);
    }
    write_line(descriptor, request);
    const bool told = read_line(descriptor, -1, answer);
    close(descriptor);
    return told ? SL_OK : sl_error_set(error, SL_FAILED, "%s: the watcher has ended without an answer", save);
}

/* ---- leftovers ---- */

bool sl_control_listens(const char *folder) {
    struct sockaddr_un address;
    const int descriptor = open_socket();
    const bool listens = descriptor >= 0 && address_beside(folder, &address) && connects(descriptor, &address);
    if (descriptor >= 0) close(descriptor);
    return listens;
}

void sl_control_remove(const char *folder) {
    struct sockaddr_un address;
    if (address_beside(folder, &address)) unlink(address.sun_path);
}
