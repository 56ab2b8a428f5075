/* measure_pairs.c - finds the places of processes, and times messages between near and distant pairs. */
#include "drivers/tools/machine/measure_pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/channel.h"
#include "collectives/collectives.h"
#include "spmd/base/hash.h"
#include "spmd/placement/topology.h"

enum { THROWS = 40, LARGE = 1 << 20 };

/* Place of a process; sent as integers. */
struct site {
    int32_t host, package, core; /* a hash of its name; -1: the process may run on several */
    int32_t device;              /* -1: the coordinate computes on the host */
};

static struct site own_site(const struct sl_spmd *self) {
    char name[256] = "";
    struct sl_topology topology;
    struct site site = {.package = -1, .core = -1, .device = self->device};
    gethostname(name, sizeof name - 1);
    site.host = (int32_t)(sl_hash(name, strlen(name)) & INT32_MAX);
    sl_topology_read(&topology, true);
    if (topology.count) site.package = topology.pu[0].package;
    if (topology.count) site.core = topology.pu[0].core;
    for (int i = 1; i < topology.count; i++) {
        if (topology.pu[i].package != site.package) site.package = -1;
        if (topology.pu[i].core != site.core) site.core = -1;
    }
    return site;
}

static enum sl_link link_of(const struct site *a, const struct site *b) {
    if (a->host != b->host) return SL_LINK_NETWORK;
    if (a->device >= 0 && b->device >= 0) return SL_LINK_GPU;
    if (a->core >= 0 && a->core == b->core && a->package == b->package) return SL_LINK_CORE;
    return a->package != b->package ? SL_LINK_NODE : SL_LINK_PACKAGE;
}

/* ---- a pair ---- */

/* Writes and reads the message at both ends: processes of a host may share its memory. */
static int post(struct sl_spmd *self, struct sl_channel *channel, const char *message, size_t bytes) {
    void *slot;
    SL_TRY(sl_channel_acquire(self, channel, &slot));
    memcpy(slot, message, bytes);
    return sl_channel_post(self, channel);
}

static int take(struct sl_spmd *self, struct sl_channel *channel, char *message, size_t bytes) {
    const void *slot;
    SL_TRY(sl_channel_take(self, channel, &slot));
    memcpy(message, slot, bytes);
    return sl_channel_release(self, channel);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures the SECONDS of a message of BYTES to or from PARTNER: half of the median round trip. */
static int throw(struct sl_spmd * self, int partner, char *message, size_t bytes, double *seconds) {
    struct sl_channel out, back;
    const int me = self->coordinate;
    double round[THROWS];
    SL_TRY(sl_channel_open(self, &out, me, partner, bytes, 2));
    SL_TRY(sl_channel_open(self, &back, partner, me, bytes, 2));
    for (int i = 0; i < THROWS; i++) {
        const double began = sl_now();
        if (me == 0) SL_TRY(post(self, &out, message, bytes));
        SL_TRY(take(self, &back, message, bytes));
        if (me != 0) SL_TRY(post(self, &out, message, bytes));
        round[i] = (sl_now() - began) / 2;
    }
    qsort(round, THROWS, sizeof *round, compare);
    *seconds = round[THROWS / 2];
    return SL_OK;
}

static int time_pair(struct sl_spmd *self, int partner, double *latency, double *bandwidth) {
    double large = 0;
    char *message = calloc(LARGE, 1);
    int status = message ? SL_OK : sl_fail(self, SL_FAILED, "no memory to measure this machine");
    if (status == SL_OK) status = throw(self, partner, message, SL_CACHE_LINE, latency);
    if (status == SL_OK) status = throw(self, partner, message, LARGE, &large);
    *bandwidth = LARGE / fmax(large - *latency, 1e-6);
    free(message);
    return status;
}

/* ---- all classes ---- */

static bool all_alike(const struct site *site, int count) {
    for (int i = 1; i < count; i++)
        if (link_of(&site[0], &site[i]) != link_of(&site[0], &site[1])) return false;
    return true;
}

/* Times coordinate 0 with the first coordinate of each class. A class without a pair is as the nearer one, or the
 * next farther one. If all pairs are of one class, the calls' results are used. */
static int time_classes(struct sl_spmd *self, const struct site *site, struct sl_machine *machine) {
    bool known[SL_LINKS] = {false};
    for (int link = 0; link < SL_LINKS; link++) {
        int partner = 1;
        while (partner < self->mesh->size && link_of(&site[0], &site[partner]) != (enum sl_link)link) partner++;
        if (partner == self->mesh->size) continue;
        known[link] = true;
        if (self->coordinate == 0)
            SL_TRY(time_pair(self, partner, &machine->latency[link], &machine->bandwidth[link]));
        else if (self->coordinate == partner)
            SL_TRY(time_pair(self, 0, &machine->latency[link], &machine->bandwidth[link]));
    }
    for (int link = 0; link < SL_LINKS; link++) {
        int like = link;
        while (like > 0 && !known[like]) like--;
        while (like < SL_LINKS - 1 && !known[like]) like++;
        machine->latency[link] = machine->latency[like];
        machine->bandwidth[link] = machine->bandwidth[like];
    }
    return SL_OK;
}

/* Groups neighbours on one host as a node; consecutive hosts with equal numbers are one kind. */
static void list_nodes(const struct site *site, int count, struct sl_machine *machine) {
    machine->kinds = 0;
    for (int i = 0, here; i < count; i += here) {
        struct sl_machine_nodes own = {.count = 1, .speed = 1};
        for (here = 0; i + here < count && site[i + here].host == site[i].host; here++) {
            const enum sl_link link = here ? link_of(&site[i], &site[i + here]) : SL_LINK_CORE;
            own.core += link == SL_LINK_CORE;
            own.gpus += site[i].device >= 0 && link <= SL_LINK_GPU;
            own.package += link <= SL_LINK_PACKAGE;
        }
        own.places = here;
        if (own.package == here) own.package = 0;
        struct sl_machine_nodes *last = machine->kinds ? &machine->nodes[machine->kinds - 1] : NULL;
        const bool alike = last && last->places == here && last->package == own.package && last->core == own.core &&
                           last->gpus == own.gpus;
        if (alike)
            last->count++;
        else if (machine->kinds < SL_MACHINE_NODES)
            machine->nodes[machine->kinds++] = own;
    }
}

int sl_measure_pairs(struct sl_spmd *self, const struct sl_group *world, struct sl_machine *machine) {
    const int count = self->mesh->size;
    const struct site own = own_site(self);
    struct site *site = calloc((size_t)count, sizeof *site);
    int status = site ? SL_OK : sl_fail(self, SL_FAILED, "no memory to measure this machine");
    if (status == SL_OK) status = sl_all_gather(self, world, SL_I32, &own, site, sizeof own / sizeof(int32_t));
    if (status == SL_OK) list_nodes(site, count, machine);
    if (status == SL_OK && !all_alike(site, count)) status = time_classes(self, site, machine);
    free(site);
    return status;
}
