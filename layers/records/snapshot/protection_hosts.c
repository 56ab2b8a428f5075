/* protection_hosts.c - finds out which coordinates are on one host, and chooses keepers of copies. */
#include "layers/records/snapshot/protection_hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/collectives.h"
#include "layers/records/snapshot/protection_folder.h"
#include "spmd/base/hash.h"

/* Returns a number other than 0 for the memory that this process sees: each start of a system has a name of its own,
 * and each file system in memory a number. */
static uint64_t identify(void) {
    char text[160] = "";
    struct stat root = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    const bool read = file && fgets(text, 64, file);
    if (file) fclose(file);
    if (!read) gethostname(text, 63);
    if (stat(SL_PROTECTION_ROOT, &root) == 0) snprintf(text + strlen(text), 64, " %" PRIu64, (uint64_t)root.st_dev);
    return sl_hash(text, strlen(text)) | 1;
}

/* Fills in the first coordinate on each coordinate's host. */
static void find_first(struct sl_protection_hosts *hosts, int coordinates, const uint64_t *identity) {
    for (int c = 0; c < coordinates; c++) {
        int first = 0;
        while (identity[first] != identity[c]) first++;
        hosts->first[c] = first;
        hosts->count += first == c;
    }
}

/* The position of COORDINATE among the coordinates on its host. */
static int position_of(const struct sl_protection_hosts *hosts, int coordinate) {
    int position = 0;
    for (int c = 0; c < coordinate; c++) position += hosts->first[c] == hosts->first[coordinate];
    return position;
}

/* The keeper of coordinate C's part, if there are several hosts: the one at C's position on the next host, which may
 * have fewer coordinates. */
static int keeper_of(const struct sl_protection_hosts *hosts, int coordinates, int c) {
    int next = -1, here = 0, position = position_of(hosts, c);
    for (int other = hosts->first[c] + 1; other < coordinates && next < 0; other++)
        if (hosts->first[other] == other) next = other;
    if (next < 0) next = 0; /* the first host follows the last one */
    for (int other = next; other < coordinates; other++) here += hosts->first[other] == next;
    position %= here;
    for (int other = next;; other++)
        if (hosts->first[other] == next && position-- == 0) return other;
}

int sl_protection_hosts_find(struct sl_spmd *self, const struct sl_group *world, struct sl_protection_hosts *hosts) {
    const int size = world->size;
    uint64_t *identity = calloc((size_t)size, sizeof *identity);
    hosts->first = calloc((size_t)size, sizeof *hosts->first);
    hosts->keeper = calloc((size_t)size, sizeof *hosts->keeper);
    hosts->count = 0;
    int status = SL_OK;
    if (!identity || !hosts->first || !hosts->keeper)
        status = sl_fail(self, SL_FAILED, "no memory to list %d coordinates", size);
    const uint64_t mine = identify();
    if (status == SL_OK) status = sl_all_gather(self, world, SL_I32, &mine, identity, sizeof mine / sizeof(int32_t));
    for (int c = 0; c < size && status == SL_OK; c++)
        if (!identity[c]) identity[c] = mine; /* in planning alone, peers do not answer */
    if (status == SL_OK) find_first(hosts, size, identity);
    for (int c = 0; c < size && status == SL_OK; c++)
        hosts->keeper[c] = hosts->count == 1 ? -1 : keeper_of(hosts, size, c);
    free(identity);
    return status;
}

void sl_protection_hosts_free(struct sl_protection_hosts *hosts) {
    free(hosts->first);
    free(hosts->keeper);
    *hosts = (struct sl_protection_hosts){0};
}
