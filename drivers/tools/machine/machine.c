/* machine.c - computes seconds from rates. */
#include "drivers/tools/machine/machine.h"

#include <limits.h>
#include <math.h>

const char *const sl_link_name[SL_LINKS] = {"core", "gpu", "package", "node", "network"};
const char *const sl_machine_kernel_name[SL_MACHINE_KERNELS] = {"moves",   "norms",   "gelu",
                                                                "softmax", "dropout", "optimizer"};

/* ---- products ---- */

static const double other_type = 1e6;

/* Returns the distance of two shapes: the square of the distance of their logarithms. Another type or another
 * transposition counts as very far, so such a product is used only if no other is known. */
static double distance(const struct sl_machine_product *a, const struct sl_machine_product *b) {
    const double m = log2((double)a->m / b->m), n = log2((double)a->n / b->n), k = log2((double)a->k / b->k);
    const int turned = (a->a_transposed != b->a_transposed) + (a->b_transposed != b->b_transposed);
    return m * m + n * n + k * k + 1e3 * turned + (a->type == b->type ? 0 : other_type);
}

enum { NEAREST = 12, TERMS = 4 };

/* A measured product: its distance from the wanted shape, its position relative to it, its rate. */
struct neighbour {
    double apart, at[TERMS], rate; /* at[0] is 1; rate is a logarithm */
};

/* Finds the products nearest to SHAPE; returns their number. */
static int find_neighbours(const struct sl_machine *machine, const struct sl_machine_product *shape,
                           struct neighbour *near) {
    int count = 0;
    for (int i = 0; i < machine->products; i++) {
        const struct sl_machine_product *of = &machine->product[i];
        const double apart = distance(shape, of);
        if (count == NEAREST && apart >= near[NEAREST - 1].apart) continue;
        int at = count < NEAREST ? count++ : NEAREST - 1;
        for (; at > 0 && apart < near[at - 1].apart; at--) near[at] = near[at - 1];
        near[at] = (struct neighbour){
            apart,
            {1, log2((double)of->m / shape->m), log2((double)of->n / shape->n), log2((double)of->k / shape->k)},
            log(of->gflops)};
    }
    return count;
}

/* Solves A x = y by elimination for a positive definite A, and returns the first element of x. */
static double solve_first(double a[TERMS][TERMS], double y[TERMS]) {
    for (int pivot = TERMS - 1; pivot > 0; pivot--) {
        for (int row = 0; row < pivot; row++) {
            const double factor = a[row][pivot] / a[pivot][pivot];
            for (int column = 0; column < pivot; column++) a[row][column] -= factor * a[pivot][column];
            y[row] -= factor * y[pivot];
        }
    }
    return y[0] / a[0][0];
}

/* Returns the logarithm of the rate: a plane over the logarithms of the sizes, fitted to the nearest measured
 * products with weights by closeness (Cleveland, "Robust locally weighted regression", 1979). In directions without
 * data the plane is flat. */
static double rate_of(const struct sl_machine *machine, const struct sl_machine_product *shape) {
    static const double flat = 0.01;
    struct neighbour near[NEAREST];
    double a[TERMS][TERMS] = {{0}}, y[TERMS] = {0}, weights = 0, fastest = -INFINITY;
    const int count = find_neighbours(machine, shape, near);
    if (!count) return 1;
    if (near[0].apart == 0) return exp(near[0].rate);
    for (int i = 0; i < count; i++) weights += 1 / (near[i].apart * near[i].apart);
    for (int i = 0; i < count; i++) {
        const double weight = 1 / (near[i].apart * near[i].apart * weights);
        for (int t = 0; t < TERMS; t++) {
            for (int u = 0; u < TERMS; u++) a[t][u] += weight * near[i].at[t] * near[i].at[u];
            y[t] += weight * near[i].at[t] * near[i].rate;
        }
        if (i == 0 || near[i].apart < other_type) fastest = fmax(fastest, near[i].rate);
    }
    for (int t = 1; t < TERMS; t++) a[t][t] += flat;
    return exp(fmin(solve_first(a, y), fastest));
}

double sl_machine_product(const struct sl_machine *machine, enum sl_dtype type, int m, int n, int k, bool a_transposed,
                          bool b_transposed) {
    const struct sl_machine_product shape = {type, m, n, k, a_transposed, b_transposed, 0};
    return 2.0 * m * n * k / (1e9 * rate_of(machine, &shape));
}

/* ---- other work ---- */

double sl_machine_kernels(const struct sl_machine *machine, enum sl_machine_kernel kind, double elements) {
    return machine->kernel[kind] * elements;
}

double sl_machine_attention(const struct sl_machine *machine, double multiply_adds) {
    return multiply_adds > 0 ? multiply_adds / machine->attention : 0;
}

double sl_machine_action(const struct sl_machine *machine) { return machine->action; }

double sl_machine_far(const struct sl_machine *machine, double bytes) { return bytes / machine->far; }

/* Interpolates logarithms linearly between two sizes. */
double sl_machine_moved(const struct sl_machine *machine, double bytes, double used) {
    const struct sl_machine_memory *size = machine->memory;
    const int last = machine->sizes - 1;
    int above = 0;
    if (!machine->sizes) return 0;
    while (above <= last && size[above].bytes < used) above++;
    if (above == 0 || above > last) return bytes / size[above ? last : 0].bandwidth;
    const double part = log(used / size[above - 1].bytes) / log(size[above].bytes / size[above - 1].bytes);
    return bytes / (size[above - 1].bandwidth * pow(size[above].bandwidth / size[above - 1].bandwidth, part));
}

double sl_machine_message(const struct sl_machine *machine, enum sl_link link, double bytes) {
    return machine->latency[link] + bytes / machine->bandwidth[link];
}

/* Returns the bandwidth of the smallest group with at least MEMBERS, or of the largest group. */
static double bandwidth_of(const struct sl_machine_turns *turns, int members, double link) {
    const struct sl_machine_group *group = turns ? turns->group : NULL;
    const int groups = turns ? turns->groups : 0;
    for (int g = 0; g < groups; g++)
        if (group[g].members >= members || g == groups - 1)
            return group[g].bandwidth > 0 ? fmin(link, group[g].bandwidth) : link;
    return link;
}

double sl_machine_collective(const struct sl_machine *machine, const struct sl_machine_turns *turns, enum sl_link link,
                             enum sl_operation operation, int members, double bytes) {
    const int rounds = operation == SL_PSUM ? 2 : 1; /* a sum is scattered, then gathered */
    const double bandwidth = bandwidth_of(turns, members, machine->bandwidth[link]);
    if (members <= 1) return 0;
    if (operation == SL_PPERMUTE) return machine->latency[link] + bytes / bandwidth;
    return rounds * (members - 1) * (machine->latency[link] + bytes / members / bandwidth);
}

double sl_machine_turn(const struct sl_machine_turns *turns, int members) {
    const struct sl_machine_group *group = turns->group;
    const int last = turns->groups - 1;
    int above = 0;
    if (!turns->groups) return turns->call;
    while (above <= last && group[above].members < members) above++;
    if (above > last) return group[last].call * members / group[last].members;
    if (above == 0) return group[0].call;
    const double part =
        (double)(members - group[above - 1].members) / (group[above].members - group[above - 1].members);
    return group[above - 1].call + part * (group[above].call - group[above - 1].call);
}

/* A sum's data are read and written completely, in shares; of a scattered sum a share is written. */
double sl_machine_touched(enum sl_operation operation, int members, double bytes) {
    if (members <= 1) return 0;
    return operation == SL_PSUM_SCATTER ? bytes + bytes / members : 2 * bytes;
}

/* ---- places ---- */

/* A coordinate's node, and its place there. */
struct place {
    int kind, node, place;
};

/* Coordinates beyond the last place share places, from the first one on. */
static struct place place_of(const struct sl_machine *machine, int coordinate) {
    const int room = sl_machine_room(machine);
    int places = 0, node = 0;
    for (int k = 0; k < machine->kinds; k++) places += machine->nodes[k].count * machine->nodes[k].places;
    if (room == INT_MAX && places > 0) coordinate %= places;
    for (int k = 0; k < machine->kinds; k++) {
        const struct sl_machine_nodes *nodes = &machine->nodes[k];
        const int all = nodes->count * nodes->places;
        if (coordinate < all) return (struct place){k, node + coordinate / nodes->places, coordinate % nodes->places};
        coordinate -= all;
        node += nodes->count;
    }
    return (struct place){machine->kinds - 1, node, 0};
}

/* Whether A and B are in the same group of SIZE neighbours; 0: no groups. */
static bool are_together(int a, int b, int size) { return size > 0 && a / size == b / size; }

enum sl_link sl_machine_link(const struct sl_machine *machine, int coordinate, int other) {
    const struct place a = place_of(machine, coordinate), b = place_of(machine, other);
    if (a.node != b.node) return SL_LINK_NETWORK;
    const struct sl_machine_nodes *nodes = &machine->nodes[a.kind];
    if (a.place == b.place || are_together(a.place, b.place, nodes->core)) return SL_LINK_CORE;
    if (are_together(a.place, b.place, nodes->gpus)) return SL_LINK_GPU;
    return nodes->package > 0 && !are_together(a.place, b.place, nodes->package) ? SL_LINK_NODE : SL_LINK_PACKAGE;
}

int sl_machine_node(const struct sl_machine *machine, int coordinate) { return place_of(machine, coordinate).node; }

int sl_machine_room(const struct sl_machine *machine) {
    int places = 0;
    for (int k = 0; k < machine->kinds; k++) {
        if (machine->nodes[k].shares) return INT_MAX;
        places += machine->nodes[k].count * machine->nodes[k].places;
    }
    return places;
}

int sl_machine_sharing(const struct sl_machine *machine, int coordinates) {
    int places = 0;
    for (int k = 0; k < machine->kinds; k++) places += machine->nodes[k].count * machine->nodes[k].places;
    return coordinates > places ? places : 0;
}

bool sl_machine_ties(const struct sl_machine *machine, int coordinates, int replicas) {
    const int places = sl_machine_sharing(machine, coordinates);
    return places > 0 && replicas % places == 0;
}

static double speed_of(const struct sl_machine *machine, int coordinate) {
    const struct place place = place_of(machine, coordinate);
    const struct sl_machine_nodes *nodes = &machine->nodes[place.kind];
    const double own = place.place < SL_MACHINE_SPEEDS ? nodes->speeds[place.place] : 0;
    return nodes->speed * (own > 0 ? own : 1);
}

double sl_machine_speed(const struct sl_machine *machine, int coordinates, int replicas) {
    const int shared = sl_machine_sharing(machine, coordinates), used = shared ? shared : coordinates;
    double slowest = INFINITY, sum = 0;
    for (int c = 0; c < used; c++) {
        slowest = fmin(slowest, speed_of(machine, c));
        sum += speed_of(machine, c);
    }
    return shared && !sl_machine_ties(machine, coordinates, replicas) ? sum / used : slowest;
}

double sl_machine_memory(const struct sl_machine *machine, int coordinates) {
    double least = 0;
    for (int c = 0; c < coordinates; c++) {
        const double memory = machine->nodes[place_of(machine, c).kind].memory;
        if (memory > 0 && (least == 0 || memory < least)) least = memory;
    }
    return least;
}
