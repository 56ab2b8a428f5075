/* placement.c - neighbours in the mesh become neighbours on the machine. */
#include "spmd/placement/placement.h"

#include <stdlib.h>
#include <string.h>

/* Places in an order with close places as neighbours: two are as far apart as the largest gap between them. The last
 * gap, back to the first place, is the largest of all. */
struct chain {
    int count;
    int place[SL_MAX_PUS], gap[SL_MAX_PUS];
};

/* The coordinates in placement order: blocks, one after another; coordinates of a block talk most. */
struct walk {
    int blocks, size; /* coordinates of a block */
    int *coordinate;
};

/* Orders the axes; axes whose coordinates talk least come first. */
static void order_axes(const struct sl_mesh *mesh, int *axis) {
    const int data = sl_mesh_find_axis(mesh, "data"), pipe = sl_mesh_find_axis(mesh, "pipe");
    int count = 0;
    if (data >= 0) axis[count++] = data;
    if (pipe >= 0) axis[count++] = pipe;
    for (int a = 0; a < mesh->axes; a++)
        if (a != data && a != pipe) axis[count++] = a;
}

/* COORDINATE's position in a walk over AXIS[], the last axis fastest. */
static int place_in_walk(const struct sl_mesh *mesh, const int *axis, int coordinate) {
    int place = 0;
    for (int i = 0; i < mesh->axes; i++)
        place = place * mesh->axis[axis[i]].size + sl_mesh_index(mesh, coordinate, axis[i]);
    return place;
}

static void walk_mesh(const struct sl_mesh *mesh, struct walk *walk) {
    int axis[SL_MAX_AXES];
    order_axes(mesh, axis);
    walk->blocks = sl_mesh_axis_size(mesh, "data");
    walk->size = mesh->size / walk->blocks;
    for (int c = 0; c < mesh->size; c++) walk->coordinate[place_in_walk(mesh, axis, c)] = c;
}

/* ---- blocks on a chain ---- */

/* For each place the spread of a block from there on, and the smallest spread. A spread is the sum of the block's gaps,
 * which may be INT_MAX each. */
struct spread {
    int64_t from[SL_MAX_PUS], least;
};

static void measure_spread(const struct chain *chain, int size, struct spread *spread) {
    spread->least = INT64_MAX;
    for (int i = 0; i < chain->count; i++) {
        spread->from[i] = 0;
        for (int next = i; next < i + size - 1; next++) spread->from[i] += chain->gap[next % chain->count];
        if (spread->from[i] < spread->least) spread->least = spread->from[i];
    }
}

/* Lays the blocks out from START on; writes their first places to AT. A block may skip places to lie closer together if
 * enough remain for the later blocks. Returns the sum of their spreads. */
static int64_t lay_out(const struct chain *chain, const struct spread *spread, int start, const struct walk *walk,
                       int *at) {
    int spare = chain->count - walk->blocks * walk->size, position = start;
    int64_t sum = 0;
    for (int block = 0; block < walk->blocks; block++) {
        int best = position % chain->count, left_out = 0;
        for (int i = 1; i <= spare && spread->from[best] > spread->least; i++) {
            const int here = (position + i) % chain->count;
            if (spread->from[here] >= spread->from[best]) continue;
            best = here;
            left_out = i;
        }
        at[block] = best;
        sum += spread->from[best];
        spare -= left_out;
        position += left_out + walk->size;
    }
    return sum;
}

/* Gives each coordinate a place of its own, with the smallest sum of spreads; among equal layouts the first from START
 * on. */
static void place_blocks(const struct chain *chain, int start, const struct walk *walk, int *place) {
    struct spread spread;
    int at[walk->blocks], best[walk->blocks];
    int64_t least = INT64_MAX;
    measure_spread(chain, walk->size, &spread);
    for (int i = 0; i < chain->count && least > walk->blocks * spread.least; i++) {
        const int64_t sum = lay_out(chain, &spread, (start + i) % chain->count, walk, at);
        if (sum >= least) continue;
        least = sum;
        memcpy(best, at, sizeof best);
    }
    for (int i = 0; i < walk->blocks * walk->size; i++) {
        const int position = best[i / walk->size] + i % walk->size;
        place[walk->coordinate[i]] = chain->place[position % chain->count];
    }
}

/* ---- devices ---- */

/* Orders the devices: next comes the device closest to any earlier one; among equally close devices the one closest to
 * the last. So the chain covers an island of devices, and each island within it, without a break; the gaps are the
 * distances between islands. */
static void chain_devices(const struct sl_placement_devices *devices, struct chain *chain) {
    const int count = devices->count < SL_MOST_PLACED_DEVICES ? devices->count : SL_MOST_PLACED_DEVICES;
    int reach[SL_MOST_PLACED_DEVICES] = {0}; /* distance to the nearest earlier device */
    bool passed[SL_MOST_PLACED_DEVICES] = {false};
    int last = 0, largest = 0;
    chain->count = 0;
    for (int next = 0; next >= 0;) {
        if (chain->count > 0) chain->gap[chain->count - 1] = reach[next];
        if (reach[next] > largest) largest = reach[next];
        chain->place[chain->count++] = last = next;
        passed[last] = true;
        next = -1;
        int closest = 0;
        for (int d = 0; d < count; d++) {
            if (passed[d]) continue;
            const int distance = devices->distance(last, d, devices->arg);
            if (chain->count == 1 || distance < reach[d]) reach[d] = distance;
            if (next >= 0 && (reach[d] > reach[next] || (reach[d] == reach[next] && distance >= closest))) continue;
            next = d;
            closest = distance;
        }
    }
    chain->gap[chain->count - 1] = largest;
}

static void place_on_devices(const struct sl_placement_devices *devices, const struct walk *walk, int *device) {
    const int coordinates = walk->blocks * walk->size;
    struct chain chain;
    chain_devices(devices, &chain);
    if (coordinates <= chain.count) {
        place_blocks(&chain, 0, walk, device);
        return;
    }
    for (int i = 0; i < coordinates; i++)
        device[walk->coordinate[i]] = chain.place[(int64_t)i * chain.count / coordinates];
}

/* Writes the NUMA node of each coordinate's device; -1: unknown. Returns whether any is known. */
static bool find_nodes(const struct sl_placement_devices *devices, int coordinates, const int *device, int *node) {
    bool known = false;
    for (int c = 0; c < coordinates; c++) {
        const char *bus = device[c] >= 0 && devices->bus ? devices->bus(device[c], devices->arg) : NULL;
        node[c] = !bus ? -1 : devices->node_of ? devices->node_of(bus) : sl_topology_node_of(bus);
        known = known || node[c] >= 0;
    }
    return known;
}

/* ---- PUs ---- */

/* Keeps as many hardware threads as COORDINATES need: one of each core first; then, from the first core on, a second
 * one, and so on. */
static void choose_threads(struct sl_topology *topology, int coordinates) {
    bool keep[SL_MAX_PUS] = {false};
    int kept = 0;
    for (int thread = 0; kept < coordinates; thread++) {
        int before = 0; /* earlier threads of the same core */
        for (int i = 0; i < topology->count && (thread == 0 || kept < coordinates); i++) {
            before = i > 0 && topology->pu[i].core == topology->pu[i - 1].core ? before + 1 : 0;
            if (before != thread) continue;
            keep[i] = true;
            kept++;
        }
    }
    sl_topology_keep(topology, keep);
}

/* The core of PU number HERE; -1: there is none. */
static int core_of(const struct sl_topology *topology, int here) {
    for (int i = 0; i < topology->count; i++) {
        if (topology->pu[i].number == here) return topology->pu[i].core;
    }
    return -1;
}

/* Binds coordinates with a node to the first free PUs of that node from START on; the others get the remaining PUs. */
static void place_at_nodes(const struct sl_topology *topology, int start, const struct walk *walk, const int *node,
                           int *pu) {
    bool taken[SL_MAX_PUS] = {false};
    for (int anywhere = 0; anywhere < 2; anywhere++) {
        for (int i = 0; i < walk->blocks * walk->size; i++) {
            const int c = walk->coordinate[i];
            for (int step = 0; step < topology->count && pu[c] < 0; step++) {
                const int at = (start + step) % topology->count;
                if (taken[at] || (!anywhere && topology->pu[at].node != node[c])) continue;
                taken[at] = true;
                pu[c] = topology->pu[at].number;
            }
        }
    }
}

static void place_on_pus(const struct sl_topology *all, int here, const struct walk *walk, const int *node, int *pu) {
    const int core = core_of(all, here);
    struct sl_topology topology = *all;
    struct chain chain;
    int start = 0;
    choose_threads(&topology, walk->blocks * walk->size);
    chain.count = topology.count;
    for (int i = topology.count - 1; i >= 0; i--) {
        chain.place[i] = topology.pu[i].number;
        chain.gap[i] = topology.pu[i].gap;
        if (topology.pu[i].core == core) start = i;
    }
    if (node)
        place_at_nodes(&topology, start, walk, node, pu);
    else
        place_blocks(&chain, start, walk, pu);
}

/* Gives each PU the same number of blocks: messages within a block stay in one core's cache. */
static void share_pus(const struct sl_topology *topology, const struct walk *walk, int *pu) {
    const int coordinates = walk->blocks * walk->size, each = coordinates / topology->count;
    for (int i = 0; i < coordinates; i++) pu[walk->coordinate[i]] = topology->pu[i / each].number;
}

void sl_place_coordinates(const struct sl_mesh *mesh, const struct sl_topology *topology, int here,
                          const struct sl_placement_devices *devices, const struct sl_placement *placement) {
    const size_t size = (size_t)mesh->size;
    struct walk walk = {.coordinate = malloc(2 * size * sizeof *walk.coordinate)};
    int *node = walk.coordinate + size;
    bool nodes = false;
    memset(placement->pu, -1, size * sizeof *placement->pu);
    memset(placement->device, -1, size * sizeof *placement->device);
    if (!walk.coordinate) return; /* without memory the threads cannot be started, either */
    walk_mesh(mesh, &walk);
    if (devices && devices->count > 0) {
        place_on_devices(devices, &walk, placement->device);
        nodes = find_nodes(devices, mesh->size, placement->device, node);
    }
    if (topology && mesh->size <= topology->count)
        place_on_pus(topology, here, &walk, nodes ? node : NULL, placement->pu);
    else if (topology && topology->count > 0 && walk.blocks % topology->count == 0)
        share_pus(topology, &walk, placement->pu);
    free(walk.coordinate);
}
