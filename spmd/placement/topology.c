/* topology.c - the PUs this process may use. */
#include "spmd/placement/topology.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static int find_usable(cpu_set_t *usable) {
    CPU_ZERO(usable);
    return sched_getaffinity(0, sizeof *usable, usable) ? 0 : CPU_COUNT(usable);
}

int sl_topology_usable(void) {
    cpu_set_t usable;
    return find_usable(&usable);
}

void sl_topology_keep(struct sl_topology *topology, const bool *keep) {
    int kept = 0;
    for (int i = 0; i < topology->count; i++) {
        const struct sl_pu pu = topology->pu[i];
        struct sl_pu *before = kept ? &topology->pu[kept - 1] : NULL;
        if (keep[i])
            topology->pu[kept++] = pu;
        else if (before && pu.gap > before->gap)
            before->gap = pu.gap;
    }
    topology->count = kept;
}

/* ---- this machine ---- */

/* The machine's PUs do not change while a process runs; the set of usable PUs may. */
static struct sl_topology machine;
static bool machine_known;

static void ask_machine(void) { machine_known = sl_topology_machine(&machine); }

/* Lists PUs in order of their numbers, each as a core of its own with unknown package and node. */
static void list_plainly(struct sl_topology *topology, const cpu_set_t *usable) {
    topology->count = 0;
    for (int number = 0; number < SL_MAX_PUS; number++) {
        if (!CPU_ISSET(number, usable)) continue;
        const int i = topology->count++;
        topology->pu[i] = (struct sl_pu){.number = number, .core = i, .package = -1, .node = -1, .gap = 1};
    }
}

void sl_topology_read(struct sl_topology *topology, bool distances) {
    _Static_assert(SL_MAX_PUS <= CPU_SETSIZE, "a PU's number fits a set");
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    cpu_set_t usable;
    bool keep[SL_MAX_PUS];
    const int count = find_usable(&usable);
    if (distances) pthread_once(&once, ask_machine);
    if (distances && machine_known) {
        *topology = machine;
        for (int i = 0; i < machine.count; i++) keep[i] = CPU_ISSET(machine.pu[i].number, &usable);
        sl_topology_keep(topology, keep);
        if (topology->count == count) return;
    }
    list_plainly(topology, &usable);
}

/* ---- devices ---- */

int sl_topology_node_of(const char *bus) {
    unsigned domain, number, device, function;
    char path[100];
    int node = -1;
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4) return -1;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%04x:%02x:%02x.%x/numa_node", domain, number, device, function);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (fscanf(file, "%d", &node) != 1) node = -1;
    fclose(file);
    return node;
}
