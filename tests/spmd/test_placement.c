/* test_placement.c - places of coordinates: on made-up machines, on matrices of devices, and on this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "spmd/placement/placement.h"
#include "spmd/random.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

/* Uniform in [0, n), the same in every run. */
static int draw(int n) {
    static uint32_t count;
    return (int)(sl_random_word(sl_key_of_seed(3), UINT32_MAX, count++) % (uint32_t)n);
}

static struct sl_mesh mesh_of(const char *text) {
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, text, NULL), SL_OK);
    return mesh;
}

/* ---- machines ---- */

/* Packages of caches of cores of threads, each package a NUMA node. */
struct machine {
    int packages, caches, cores, threads;
};

static struct sl_topology build(struct machine machine) {
    struct sl_topology topology = {.count = machine.packages * machine.caches * machine.cores * machine.threads};
    const int core = machine.threads, cache = core * machine.cores, package = cache * machine.caches;
    for (int i = 0; i < topology.count; i++) {
        const int next = i + 1;
        topology.pu[i] = (struct sl_pu){
            .number = i,
            .core = i / core,
            .package = i / package,
            .node = i / package,
            .gap = next % package == 0 ? 4
                   : next % cache == 0 ? 3
                   : next % core == 0  ? 2
                                       : 1,
        };
    }
    return topology;
}

/* By the definition: the largest gap between them. */
static int distance_between(const struct sl_topology *topology, int number, int other) {
    int largest = 0;
    bool inside = false;
    for (int i = 0; i < topology->count && number != other; i++) {
        const bool end = topology->pu[i].number == number || topology->pu[i].number == other;
        if (end && inside) break;
        inside = inside || end;
        if (inside && topology->pu[i].gap > largest) largest = topology->pu[i].gap;
    }
    return largest;
}

static const struct sl_pu *find(const struct sl_topology *topology, int number) {
    for (int i = 0; i < topology->count; i++) {
        if (topology->pu[i].number == number) return &topology->pu[i];
    }
    return NULL;
}

/* Different items of LIST[count]. */
static int count_different(const int *list, int count) {
    int different = 0;
    for (int i = 0; i < count; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen = seen || list[j] == list[i];
        different += !seen;
    }
    return different;
}

static void test_keep(void **state) {
    (void)state;
    const struct sl_topology all = build((struct machine){3, 2, 3, 2});
    for (int round = 0; round < 200; round++) {
        struct sl_topology some = all;
        bool keep[SL_MAX_PUS];
        int kept = 0;
        for (int i = 0; i < all.count; i++) kept += keep[i] = draw(3) == 0;
        sl_topology_keep(&some, keep);
        assert_int_equal(some.count, kept);
        for (int i = 0; i < some.count; i++) {
            assert_true(keep[some.pu[i].number]); /* numbers are positions here */
            assert_int_equal(some.pu[i].core, all.pu[some.pu[i].number].core);
            for (int j = 0; j < some.count; j++) {
                const int one = some.pu[i].number, other = some.pu[j].number;
                assert_int_equal(distance_between(&some, one, other), distance_between(&all, one, other));
            }
        }
        if (kept) assert_int_equal(some.pu[kept - 1].gap, 4);
    }
}

/* ---- coordinates on cores ---- */

/* Returns room for a placement. It is used again after a few more calls. */
static struct sl_placement room(void) {
    enum { ROOMS = 8 };
    static int places[ROOMS][2][MOST_COORDINATES], next;
    next = (next + 1) % ROOMS;
    return (struct sl_placement){places[next][0], places[next][1]};
}

/* Each thread has its own PU; they use as many cores as there are, or as are needed. */
static void check_apart(const struct sl_topology *topology, const struct sl_mesh *mesh,
                        const struct sl_placement *placement) {
    int core[MOST_COORDINATES], all[SL_MAX_PUS];
    for (int c = 0; c < mesh->size; c++) {
        const struct sl_pu *pu = find(topology, placement->pu[c]);
        assert_non_null(pu);
        core[c] = pu->core;
        assert_int_equal(placement->device[c], -1);
    }
    for (int i = 0; i < topology->count; i++) all[i] = topology->pu[i].core;
    const int cores = count_different(all, topology->count);
    assert_int_equal(count_different(placement->pu, mesh->size), mesh->size);
    assert_int_equal(count_different(core, mesh->size), mesh->size < cores ? mesh->size : cores);
}

/* The largest distance between coordinates of the same index along "data". */
static int spread_of_groups(const struct sl_topology *topology, const struct sl_mesh *mesh,
                            const struct sl_placement *placement) {
    const int data = sl_mesh_find_axis(mesh, "data");
    int largest = 0;
    for (int a = 0; a < mesh->size; a++) {
        for (int b = 0; b < a; b++) {
            if (data >= 0 && sl_mesh_index(mesh, a, data) != sl_mesh_index(mesh, b, data)) continue;
            const int distance = distance_between(topology, placement->pu[a], placement->pu[b]);
            if (distance > largest) largest = distance;
        }
    }
    return largest;
}

static struct sl_placement place(const char *text, const struct sl_topology *topology, int here) {
    const struct sl_mesh mesh = mesh_of(text);
    const struct sl_placement placement = room();
    sl_place_coordinates(&mesh, topology, here, NULL, &placement);
    check_apart(topology, &mesh, &placement);
    return placement;
}

/* Groups that fit a cache, or a package, get one, wherever the caller runs. */
static void test_groups_stay_together(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        struct machine machine;
        int spread; /* of a group at most: 2 within a cache, 3 within a package */
    } cases[] = {
        {"data=2,model=4", {1, 2, 4, 1}, 2},          {"model=4,data=2", {2, 1, 4, 1}, 2},
        {"data=4,model=4", {2, 2, 4, 2}, 2},          {"data=2,model=8", {2, 2, 4, 1}, 3},
        {"data=3,model=3", {2, 2, 4, 1}, 2},          {"pipe=2,data=2,tensor=2", {2, 1, 4, 2}, 2},
        {"data=2,model=3", {4, 1, 4, 1}, 2},          {"x=2,y=2", {2, 2, 4, 1}, 2},
        {"data=3,model=2,tensor=2", {3, 1, 5, 1}, 2}, {"data=2,model=8", {2, 1, 4, 2}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct sl_topology topology = build(cases[i].machine);
        const struct sl_mesh mesh = mesh_of(cases[i].mesh);
        for (int here = 0; here < topology.count; here++) {
            const struct sl_placement placement = place(cases[i].mesh, &topology, here);
            assert_in_range(spread_of_groups(&topology, &mesh, &placement), 1, cases[i].spread);
        }
    }
}

/* In any order of the mesh's axes, coordinates along tensor are closest, then a pipeline's ranks, then replicas. */
static void test_order_of_axes(void **state) {
    static const char *const meshes[] = {"data=2,pipe=2,tensor=2", "tensor=2,pipe=2,data=2", "pipe=2,tensor=2,data=2",
                                         "pipe=2,data=2,tensor=2", "tensor=2,data=2,pipe=2", "data=2,tensor=2,pipe=2"};
    const struct sl_topology topology = build((struct machine){.packages = 2, .caches = 2, .cores = 2, .threads = 1});
    static const char *const axes[] = {"tensor", "pipe", "data"};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const struct sl_mesh mesh = mesh_of(meshes[i]);
        const struct sl_placement placement = place(meshes[i], &topology, 0);
        for (int c = 0; c < mesh.size; c++)
            for (int a = 0; a < 3; a++) { /* gaps of 2 within a cache, 3 within a package, 4 */
                const int axis = sl_mesh_find_axis(&mesh, axes[a]), index = sl_mesh_index(&mesh, c, axis);
                const int other = sl_mesh_neighbour(&mesh, c, axis, 1 - index);
                assert_int_equal(distance_between(&topology, placement.pu[c], placement.pu[other]), 2 + a);
            }
    }
}

static void test_data_alone(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){2, 1, 4, 2});
    const struct sl_placement placement = place("data=4", &topology, -1);
    for (int c = 0; c < 4; c++) assert_int_equal(find(&topology, placement.pu[c])->package, 0);
}

/* The first of equally good places: runs side by side tend to differ. */
static void test_begins_at_the_caller(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){2, 2, 4, 2});
    for (int here = 0; here < topology.count; here++) {
        assert_int_equal(place("data=2", &topology, here).pu[0], here / 2 * 2); /* its core's first thread */
        const int cache = here % 8 ? (here / 8 + 1) % 4 : here / 8;             /* from there on the first whole one */
        const int own = here % 8 == 1 ? here / 8 : cache;                       /* thread 1 of a cache's first core */
        assert_int_equal(place("model=4", &topology, here).pu[0] / 8, own);
    }
    assert_int_equal(place("data=2", &topology, 1000).pu[0], 0);
    struct sl_topology half = topology;
    bool keep[SL_MAX_PUS] = {false};
    for (int i = 16; i < 32; i++) keep[i] = true;
    sl_topology_keep(&half, keep);
    for (int here = 16; here < 32; here++) assert_int_equal(place("data=2", &half, here).pu[0], here / 2 * 2);
}

static void test_threads_of_a_core(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){2, 1, 4, 2});
    const struct sl_placement few = place("data=2,model=4", &topology, 0);
    for (int c = 0; c < 8; c++) assert_int_equal(few.pu[c] % 2, 0);
    place("model=10", &topology, 5); /* eight cores, two of them twice */
    place("data=3,model=5", &topology, 5);
    place("data=2,model=8", &topology, 5);
    const struct sl_topology four = build((struct machine){1, 1, 3, 4});
    place("model=7", &four, 0);
    place("model=12", &four, 0);
}

static void test_too_many(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){1, 1, 4, 1});
    const struct sl_mesh mesh = mesh_of("data=5");
    const struct sl_placement placement = room();
    sl_place_coordinates(&mesh, &topology, 0, NULL, &placement);
    for (int c = 0; c < 5; c++) assert_true(placement.pu[c] == -1 && placement.device[c] == -1);
    sl_place_coordinates(&mesh, NULL, 0, NULL, &placement);
    for (int c = 0; c < 5; c++) assert_int_equal(placement.pu[c], -1);
}

/* Whole replicas, as many to each PU; parts of one are not bound. */
static void test_replicas_share(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){1, 1, 2, 1});
    static const char *const whole[] = {"data=2,model=4", "model=4,data=2", "data=4,pipe=2,tensor=2", "data=4"};
    static const char *const parts[] = {"model=8", "data=1,model=4", "data=3,model=2"};
    const struct sl_placement placement = room();
    for (int i = 0; i < 4; i++) {
        const struct sl_mesh mesh = mesh_of(whole[i]);
        const int data = sl_mesh_find_axis(&mesh, "data"), replicas = sl_mesh_axis_size(&mesh, "data");
        sl_place_coordinates(&mesh, &topology, 1, NULL, &placement);
        for (int c = 0; c < mesh.size; c++)
            assert_int_equal(placement.pu[c], topology.pu[2 * sl_mesh_index(&mesh, c, data) / replicas].number);
    }
    for (int i = 0; i < 3; i++) {
        const struct sl_mesh mesh = mesh_of(parts[i]);
        sl_place_coordinates(&mesh, &topology, 1, NULL, &placement);
        for (int c = 0; c < mesh.size; c++) assert_int_equal(placement.pu[c], -1);
    }
}

/* The system may not list its PUs. */
static void test_no_pus(void **state) {
    (void)state;
    const struct sl_topology none = {0};
    const struct sl_mesh mesh = mesh_of("data=2,model=2");
    const struct sl_placement placement = room();
    sl_place_coordinates(&mesh, &none, -1, NULL, &placement);
    for (int c = 0; c < 4; c++) assert_int_equal(placement.pu[c], -1);
}

/* Promises that hold for any mesh on any part of any machine. */
static void test_random_machines(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct sl_topology topology = build((struct machine){1 + draw(3), 1 + draw(3), 1 + draw(6), 1 + draw(2)});
        bool keep[SL_MAX_PUS];
        for (int i = 0; i < topology.count; i++) keep[i] = draw(5) > 0 || i == 0;
        sl_topology_keep(&topology, keep);
        const int most = topology.count < MOST_COORDINATES ? topology.count : MOST_COORDINATES;
        const int data = 1 + draw(most), model = 1 + draw(most / data);
        char text[64];
        snprintf(text, sizeof text, draw(2) ? "data=%d,model=%d" : "data=%d,x=1,model=%d", data, model);
        place(text, &topology, draw(40));
    }
}

/* ---- devices ---- */

struct matrix {
    int count, island[MOST_COORDINATES], node[MOST_COORDINATES];
};

/* 0 on the same island, 1 between islands A and B with A / 10 == B / 10, 2 otherwise. */
static int distance(int one, int other, void *arg) {
    const struct matrix *matrix = arg;
    const int a = matrix->island[one], b = matrix->island[other];
    assert_true(one >= 0 && one < matrix->count && other >= 0 && other < matrix->count);
    return a == b ? 0 : a / 10 == b / 10 ? 1 : 2;
}

static const char *const address[] = {"0000:00:00.0", "0000:01:00.0", NULL};

static const char *bus(int device, void *arg) {
    const struct matrix *matrix = arg;
    return matrix->node[device] < 0 ? NULL : address[matrix->node[device]];
}

static int node_of(const char *text) { return text == address[0] ? 0 : text == address[1] ? 1 : -1; }

static struct sl_placement place_on(const char *text, struct matrix *matrix) {
    const struct sl_mesh mesh = mesh_of(text);
    const struct sl_placement_devices devices = {.count = matrix->count, .distance = distance, .arg = matrix};
    const struct sl_placement placement = room();
    sl_place_coordinates(&mesh, NULL, -1, &devices, &placement);
    for (int c = 0; c < mesh.size; c++) {
        assert_in_range(placement.device[c], 0, matrix->count - 1);
        assert_int_equal(placement.pu[c], -1);
    }
    return placement;
}

/* Eight GPUs, NVLink joins the even ones and the odd ones. */
static void test_islands(void **state) {
    (void)state;
    struct matrix matrix = {.count = 8, .island = {0, 10, 0, 10, 0, 10, 0, 10}};
    const struct sl_placement last = place_on("data=2,model=4", &matrix), first = place_on("model=4,data=2", &matrix);
    assert_int_equal(count_different(last.device, 8), 8);
    assert_int_equal(count_different(first.device, 8), 8);
    for (int c = 0; c < 8; c++) {
        assert_int_equal(last.device[c] % 2, last.device[c / 4 * 4] % 2); /* as the first of its group */
        assert_int_equal(first.device[c] % 2, first.device[c % 2] % 2);
    }
    const struct sl_placement few = place_on("data=2,model=2", &matrix);
    assert_int_equal(count_different(few.device, 4), 4);
    assert_int_equal(few.device[0] % 2, few.device[1] % 2);
    assert_int_equal(few.device[2] % 2, few.device[3] % 2);
}

/* A group does not begin on the rest of an island if another island has room for all of it. */
static void test_islands_of_three(void **state) {
    (void)state;
    struct matrix matrix = {.count = 9, .island = {0, 10, 20, 20, 10, 0, 0, 20, 10}};
    const struct sl_placement placement = place_on("data=3,model=2", &matrix);
    for (int c = 0; c < 6; c += 2)
        assert_int_equal(matrix.island[placement.device[c]], matrix.island[placement.device[c + 1]]);
}

/* Islands of islands, numbered at random: groups of four in one, groups of eight in two neighbours. */
static void test_nested_islands(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct matrix matrix = {.count = 32};
        for (int d = 0; d < 32; d++) matrix.island[d] = d / 8 * 10 + d / 4 % 2;
        for (int d = 31; d > 0; d--) {
            const int other = draw(d + 1), island = matrix.island[d];
            matrix.island[d] = matrix.island[other];
            matrix.island[other] = island;
        }
        const struct sl_placement fours = place_on("data=8,model=4", &matrix),
                                  eights = place_on("data=2,model=8", &matrix);
        assert_int_equal(count_different(fours.device, 32), 32);
        for (int c = 0; c < 32; c++)
            assert_int_equal(matrix.island[fours.device[c]], matrix.island[fours.device[c / 4 * 4]]);
        for (int c = 0; c < 16; c++)
            assert_int_equal(matrix.island[eights.device[c]] / 10, matrix.island[eights.device[c / 8 * 8]] / 10);
    }
}

/* Links that do not join all devices: 0 and 1 are hubs of three each; later 0, 2, 1, 3 are a ring. */
static int hubs(int one, int other, void *arg) {
    (void)arg;
    return one % 2 == other % 2 && (one < 2 || other < 2) ? 0 : 1;
}

static int ring(int one, int other, void *arg) {
    static const int position[] = {0, 2, 1, 3};
    (void)arg;
    return (position[one] - position[other]) % 2 ? 0 : 1;
}

static void test_links(void **state) {
    (void)state;
    const struct sl_placement_devices of_hubs = {.count = 6, .distance = hubs},
                                      of_ring = {.count = 4, .distance = ring};
    const struct sl_mesh threes = mesh_of("data=2,model=3"), four = mesh_of("model=4");
    const struct sl_placement placement = room();
    sl_place_coordinates(&threes, NULL, -1, &of_hubs, &placement);
    for (int c = 0; c < 6; c++) assert_int_equal(placement.device[c] % 2, placement.device[c / 3 * 3] % 2);
    sl_place_coordinates(&four, NULL, -1, &of_ring, &placement);
    for (int c = 0; c < 4; c++) assert_int_equal(ring(placement.device[c], placement.device[(c + 1) % 4], NULL), 0);
    assert_int_equal(count_different(placement.device, 4), 4);
}

/* Distances of devices that cannot reach each other; the last three can. */
static int unreachable(int one, int other, void *arg) {
    (void)arg;
    return one == other || (one > 1 && other > 1) ? 0 : INT_MAX;
}

static void test_unreachable(void **state) {
    (void)state;
    const struct sl_placement_devices devices = {.count = 5, .distance = unreachable};
    const struct sl_mesh mesh = mesh_of("model=3");
    const struct sl_placement placement = room();
    sl_place_coordinates(&mesh, NULL, -1, &devices, &placement);
    for (int c = 0; c < 3; c++) assert_in_range(placement.device[c], 2, 4);
}

static void test_shared_devices(void **state) {
    (void)state;
    struct matrix one = {.count = 1}, two = {.count = 2}, four = {.count = 4, .island = {0, 10, 0, 10}};
    const struct sl_placement alone = place_on("data=2,model=4", &one), halves = place_on("model=4,data=2", &two),
                              pairs = place_on("data=2,model=4", &four);
    for (int c = 0; c < 8; c++) {
        assert_int_equal(alone.device[c], 0);
        assert_int_equal(halves.device[c], halves.device[c % 2]);
        assert_int_equal(pairs.device[c], pairs.device[c / 2 * 2]);
        assert_int_equal(four.island[pairs.device[c]], four.island[pairs.device[c / 4 * 4]]);
    }
    assert_int_equal(count_different(halves.device, 8), 2);
    assert_int_equal(count_different(pairs.device, 8), 4);
}

/* Cores are taken at the devices' nodes as long as there are any. */
static void test_cores_at_devices(void **state) {
    (void)state;
    const struct sl_topology topology = build((struct machine){2, 1, 4, 2});
    const struct sl_mesh mesh = mesh_of("data=2,model=2"), wide = mesh_of("data=2,model=3");
    struct matrix matrix = {.count = 2, .island = {0, 10}, .node = {1, 0}};
    const struct sl_placement_devices devices = {
        .count = 2, .distance = distance, .bus = bus, .node_of = node_of, .arg = &matrix};
    const struct sl_placement placement = room();
    for (int here = -1; here < topology.count; here++) {
        sl_place_coordinates(&mesh, &topology, here, &devices, &placement);
        assert_int_equal(count_different(placement.pu, 4), 4);
        for (int c = 0; c < 4; c++) {
            assert_int_equal(placement.pu[c] % 2, 0);
            assert_int_equal(find(&topology, placement.pu[c])->node, matrix.node[placement.device[c]]);
        }
    }
    matrix.node[0] = 0; /* six coordinates at a node of four cores */
    sl_place_coordinates(&wide, &topology, 0, &devices, &placement);
    int there = 0;
    for (int c = 0; c < 6; c++) there += find(&topology, placement.pu[c])->node == 0;
    assert_int_equal(there, 4);
    assert_int_equal(count_different(placement.pu, 6), 6);
    matrix.node[1] = -1; /* nothing is known of one */
    sl_place_coordinates(&mesh, &topology, 0, &devices, &placement);
    assert_int_equal(count_different(placement.pu, 4), 4);
}

static void test_addresses(void **state) {
    (void)state;
    assert_int_equal(sl_topology_node_of(""), -1);
    assert_int_equal(sl_topology_node_of("nothing"), -1);
    assert_int_equal(sl_topology_node_of("ffff:ff:1f.7"), -1);
    assert_int_equal(sl_topology_node_of("../../../etc"), -1);
}

/* ---- hwloc ---- */

/* The list built here is the one that hwloc reads off its tree, except for the sizes of gaps, of which only the order
 * counts. */
static void test_synthetic(void **state) {
    (void)state;
    static const struct machine machines[] = {{2, 2, 4, 2}, {1, 1, 3, 1}, {3, 1, 2, 2}, {2, 3, 2, 1}};
    struct sl_topology topology;
    if (!sl_topology_synthetic(&topology, "core:2 pu:1")) {
        print_message("# hwloc is not in this build\n");
        return;
    }
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        const struct machine machine = machines[m];
        const struct sl_topology expected = build(machine);
        char text[100];
        snprintf(text, sizeof text, "package:%d numa:1 l3:%d core:%d pu:%d", machine.packages, machine.caches,
                 machine.cores, machine.threads);
        assert_true(sl_topology_synthetic(&topology, text));
        assert_int_equal(topology.count, expected.count);
        for (int i = 0; i < topology.count; i++) {
            assert_int_equal(topology.pu[i].number, expected.pu[i].number);
            assert_int_equal(topology.pu[i].core, expected.pu[i].core);
            assert_int_equal(topology.pu[i].package, expected.pu[i].package);
            assert_int_equal(topology.pu[i].node, expected.pu[i].node);
            for (int j = 0; j < topology.count - 1 && i < topology.count - 1; j++)
                assert_int_equal(topology.pu[i].gap < topology.pu[j].gap, expected.pu[i].gap < expected.pu[j].gap);
            assert_true(topology.pu[i].gap <= topology.pu[topology.count - 1].gap);
        }
    }
    assert_false(sl_topology_synthetic(&topology, "no machine"));
}

/* PUs in Linux's numbering: all first threads before all second ones. */
static void test_synthetic_numbers(void **state) {
    (void)state;
    struct sl_topology topology;
    if (!sl_topology_synthetic(&topology, "package:2 core:4 pu:2(indexes=2*8:1*2)")) return;
    const struct sl_mesh mesh = mesh_of("data=2,model=4");
    const struct sl_placement placement = place("data=2,model=4", &topology, 12); /* of core 4 */
    assert_int_equal(find(&topology, 12)->core, 4);
    assert_int_equal(spread_of_groups(&topology, &mesh, &placement), topology.pu[1].gap);
    for (int c = 0; c < 8; c++) assert_in_range(placement.pu[c], 0, 7);
    for (int c = 0; c < 8; c++) assert_int_equal(find(&topology, placement.pu[c])->package, c < 4 ? 1 : 0);
}

/* ---- this machine ---- */

static void test_this_machine(void **state) {
    (void)state;
    for (int distances = 0; distances < 2; distances++) {
        cpu_set_t usable;
        struct sl_topology topology;
        int number[SL_MAX_PUS];
        assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
        sl_topology_read(&topology, distances);
        assert_int_equal(topology.count, CPU_COUNT(&usable));
        assert_int_equal(topology.count, sl_topology_usable());
        for (int i = 0; i < topology.count; i++) {
            number[i] = topology.pu[i].number;
            assert_true(CPU_ISSET(number[i], &usable));
        }
        assert_int_equal(count_different(number, topology.count), topology.count);
    }
}

static int record_affinity(struct sl_spmd *self, void *arg) {
    cpu_set_t *set = (cpu_set_t *)arg + self->coordinate;
    return sched_getaffinity(0, sizeof *set, set) ? SL_FAILED : SL_OK;
}

/* If there are as many threads as PUs, each has one PU. With one thread more, and with a single thread, each may use
 * all. */
static void test_local_engine(void **state) {
    (void)state;
    cpu_set_t usable, set[MOST_COORDINATES], all;
    struct sl_engine engine;
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    assert_int_equal(sl_engine_open(&engine, "local", NULL), SL_OK);
    const int usables = CPU_COUNT(&usable), most = usables < MOST_COORDINATES ? usables : MOST_COORDINATES;
    for (int size = 1; size <= most + 1 && size <= MOST_COORDINATES; size++) {
        char text[32];
        snprintf(text, sizeof text, "model=%d", size);
        const struct sl_mesh mesh = mesh_of(text);
        assert_int_equal(sl_run(&mesh, &engine, record_affinity, set), SL_OK);
        const bool bound = size > 1 && size <= usables;
        CPU_ZERO(&all);
        for (int c = 0; c < size; c++) {
            if (bound)
                assert_int_equal(CPU_COUNT(&set[c]), 1);
            else
                assert_true(CPU_EQUAL(&set[c], &usable));
            CPU_OR(&all, &all, &set[c]);
        }
        if (bound) assert_int_equal(CPU_COUNT(&all), size);
    }
    cpu_set_t after;
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&after, &usable));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_groups_stay_together),
        cmocka_unit_test(test_order_of_axes),
        cmocka_unit_test(test_data_alone),
        cmocka_unit_test(test_begins_at_the_caller),
        cmocka_unit_test(test_threads_of_a_core),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_replicas_share),
        cmocka_unit_test(test_no_pus),
        cmocka_unit_test(test_random_machines),
        cmocka_unit_test(test_islands),
        cmocka_unit_test(test_islands_of_three),
        cmocka_unit_test(test_nested_islands),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_shared_devices),
        cmocka_unit_test(test_cores_at_devices),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_numbers),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_local_engine),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
