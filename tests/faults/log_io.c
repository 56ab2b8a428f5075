/* log_io.c - preloaded into a program, logs its calls on the disk: names that it makes, moves and removes under a
 * folder, and contents of files when they are synced.
 *
 *     LD_PRELOAD=log_io.so IO_UNDER=FOLDER IO_LOG=FOLDER2 PROGRAM ...
 *
 * IO_LOG/events has a line for each call that succeeded, in their order: "create PATH", "mkdir PATH", "sync PATH
 * NUMBER", "syncdir PATH", "rename FROM TO NUMBER", "unlink PATH". NUMBER names the file IO_LOG/NUMBER, a copy of the
 * file after the call; it is a process's own, for several may run at once. Paths have no space in them. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int opens(const char *, int, ...);
typedef int takes_file(int);
typedef int takes_path(const char *);
typedef int takes_paths(const char *, const char *);
typedef int takes_name(int, const char *, int);
typedef int makes_folder(const char *, mode_t);

static opens *real_open;
static takes_file *real_fsync, *real_fdatasync;
static takes_path *real_unlink;
static takes_paths *real_rename;
static takes_name *real_unlinkat;
static makes_folder *real_mkdir;
static const char *under, *folder;
static FILE *events;
static int copies;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* A pointer to data becomes one to a function, which C has no cast for. */
#define FIND(name)                                                                                                     \
    do {                                                                                                               \
        void *symbol = dlsym(RTLD_NEXT, #name);                                                                        \
        memcpy(&real_##name, &symbol, sizeof symbol);                                                                  \
    } while (0)

__attribute__((constructor)) static void open_log(void) {
    char path[PATH_MAX];
    FIND(open);
    FIND(fsync);
    FIND(fdatasync);
    FIND(unlink);
    FIND(unlinkat);
    FIND(rename);
    FIND(mkdir);
    under = getenv("IO_UNDER");
    folder = getenv("IO_LOG");
    if (!under || !folder) return;
    snprintf(path, sizeof path, "%s/events", folder);
    events = fopen(path, "a");
}

static bool is_ours(const char *path) { return events && !strncmp(path, under, strlen(under)); }

static bool path_of(int file, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length >= 0) path[length] = '\0';
    return length >= 0;
}

/* Copies the content of PATH. Returns the copy's number. */
static int copy(const char *path) {
    char buffer[1 << 16], name[PATH_MAX];
    snprintf(name, sizeof name, "%s/%ld.%d", folder, (long)getpid(), copies);
    const int from = real_open(path, O_RDONLY), to = real_open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t count; from >= 0 && to >= 0 && (count = read(from, buffer, sizeof buffer)) > 0;)
        if (write(to, buffer, (size_t)count) != count) abort();
    close(from);
    close(to);
    return copies++;
}

/* CALL PATH, or CALL PATH OTHER; then the number of a copy of COPIED unless it is NULL. */
static void tell(const char *what, const char *path, const char *other, const char *copied) {
    pthread_mutex_lock(&one_at_a_time);
    fprintf(events, "%s %s", what, path);
    if (other) fprintf(events, " %s", other);
    if (copied) fprintf(events, " %ld.%d", (long)getpid(), copy(copied));
    fputc('\n', events);
    fflush(events);
    pthread_mutex_unlock(&one_at_a_time);
}

static int open_with(const char *path, int flags, va_list more) {
    struct stat before;
    const bool creates = flags & O_CREAT, made = creates && is_ours(path) && stat(path, &before);
    const int file = real_open(path, flags, creates || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0);
    if (file >= 0 && made) tell("create", path, NULL, NULL);
    return file;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const int file = open_with(path, flags, more);
    va_end(more);
    return file;
}

/* Offsets have 64 bits with either name. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));

static int synced(int file, int result) {
    char path[PATH_MAX];
    struct stat what;
    if (result || !path_of(file, path) || !is_ours(path) || fstat(file, &what)) return result;
    if (S_ISDIR(what.st_mode))
        tell("syncdir", path, NULL, NULL);
    else
        tell("sync", path, NULL, path);
    return result;
}

int fsync(int file) { return synced(file, real_fsync(file)); }
int fdatasync(int file) { return synced(file, real_fdatasync(file)); }

int rename(const char *from, const char *to) {
    const int result = real_rename(from, to);
    if (!result && is_ours(to)) tell("rename", from, to, to);
    return result;
}

int unlink(const char *path) {
    const int result = real_unlink(path);
    if (!result && is_ours(path)) tell("unlink", path, NULL, NULL);
    return result;
}

int unlinkat(int at, const char *name, int flags) {
    char path[PATH_MAX + NAME_MAX + 2] = "";
    const bool known = path_of(at, path);
    const int result = real_unlinkat(at, name, flags);
    if (known) snprintf(path + strlen(path), NAME_MAX + 2, "/%s", name);
    if (!result && known && is_ours(path)) tell("unlink", path, NULL, NULL);
    return result;
}

int mkdir(const char *path, mode_t mode) {
    const int result = real_mkdir(path, mode);
    if (!result && is_ours(path)) tell("mkdir", path, NULL, NULL);
    return result;
}
