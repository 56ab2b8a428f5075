/* hosts.c - reads a launcher's file of hosts, and sees when it changes. */
#include "drivers/training/restart/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/spmd.h"

enum { MOST = 1000000 };          /* slots of a host */
static const double moment = 0.5; /* seconds in which a complete file does not change */

void sl_hosts_open(struct sl_hosts *hosts, char *const *word, int count) {
    static const char *const names[] = {"--hostfile", "-hostfile", "--machinefile", "-machinefile", "-f"};
    for (int i = 0; i + 1 < count && !*hosts->path; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!strcmp(word[i], names[k])) snprintf(hosts->path, sizeof hosts->path, "%s", word[i + 1]);
    stat(hosts->path, &hosts->used);
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool sl_hosts_have_changed(struct sl_hosts *hosts) {
    struct stat now;
    if (!*hosts->path || stat(hosts->path, &now)) return false;
    if (!is_same(&now, &hosts->seen)) hosts->since = sl_now();
    hosts->seen = now;
    if (is_same(&now, &hosts->used) || sl_now() < hosts->since + moment) return false;
    hosts->used = now;
    return true;
}

/* Reads TEXT as a number of slots that ends a word. */
static int read_slots(const char *text) {
    char *end;
    const long slots = strtol(text, &end, 10);
    const bool valid = *text >= '0' && *text <= '9' && slots <= MOST && (!*end || strchr(" \t\r\n", *end));
    return valid ? (int)slots : SL_HOSTS_UNKNOWN;
}

int sl_hosts_line_slots(const char *line) {
    static const char blanks[] = " \t\r\n", key[] = "slots=";
    const char *const host = line + strspn(line, blanks), *word = host;
    const char *colon = memchr(host, ':', strcspn(host, blanks));
    if (!*host || *host == '#') return 0;
    while (*(word += strcspn(word, blanks)) && *(word += strspn(word, blanks)) && *word != '#')
        if (!strncmp(word, key, strlen(key))) return read_slots(word + strlen(key));
    return colon ? read_slots(colon + 1) : SL_HOSTS_UNKNOWN;
}

int sl_hosts_slots(const struct sl_hosts *hosts) {
    FILE *file = *hosts->path ? fopen(hosts->path, "re") : NULL;
    char *line = NULL;
    size_t room = 0;
    int all = file ? 0 : SL_HOSTS_UNKNOWN;
    while (file && all < SL_HOSTS_UNKNOWN && getline(&line, &room, file) > 0) {
        const int slots = sl_hosts_line_slots(line);
        all = slots < SL_HOSTS_UNKNOWN - all ? all + slots : SL_HOSTS_UNKNOWN;
    }
    free(line);
    if (file) fclose(file);
    return all;
}
