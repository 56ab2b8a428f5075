/* placement_report.c - reports the placement that each coordinate finds, not the planned one. */
#include "drivers/speed/placement_report.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/metrics.h"
#include "layers/training/exchange.h"
#include "spmd/set.h"
#include "spmd/placement/topology.h"

/* Numbers of PUs, cores, packages or nodes. */
typedef cpu_set_t numbers;

/* Findings of a coordinate; sent as words. */
struct sight {
    char host[64];
    numbers pus, cores, packages, nodes;
    int32_t device;
    int32_t others; /* whether its host has PUs that the coordinate may not use */
};
_Static_assert(sizeof(struct sight) % sizeof(int32_t) == 0, "sent as words");

struct report {
    struct sl_topology topology; /* of this process */
    struct sight *sight;         /* [coordinates] */
};

/* ---- finding the placement ---- */

static void add(numbers *set, int number) {
    if (number >= 0 && number < CPU_SETSIZE) CPU_SET(number, set);
}

static void look(const struct sl_topology *topology, struct sight *sight) {
    memset(sight, 0, sizeof *sight);
    gethostname(sight->host, sizeof sight->host - 1);
    sched_getaffinity(0, sizeof sight->pus, &sight->pus);
    for (int i = 0; i < topology->count; i++) {
        const struct sl_pu *pu = &topology->pu[i];
        if (!CPU_ISSET(pu->number, &sight->pus)) continue;
        add(&sight->cores, pu->core);
        add(&sight->packages, pu->package);
        add(&sight->nodes, pu->node);
    }
    sight->others = CPU_COUNT(&sight->pus) < sysconf(_SC_NPROCESSORS_ONLN);
}

static int program(struct sl_spmd *self, void *arg) {
    struct report *report = arg;
    struct sight *mine = &report->sight[self->coordinate];
    look(&report->topology, mine);
    mine->device = self->device;
    return sl_gather_records(self, report->sight, sizeof *report->sight);
}

/* ---- printing ---- */

/* Counts the coordinates on its host that may use a PU of coordinate C; C is one of them. */
static int count_sharers(const struct report *report, const struct sl_mesh *mesh, int c) {
    int sharers = 0;
    for (int other = 0; other < mesh->size; other++) {
        numbers common;
        CPU_AND(&common, &report->sight[c].pus, &report->sight[other].pus);
        sharers += CPU_COUNT(&common) > 0 && !strcmp(report->sight[c].host, report->sight[other].host);
    }
    return sharers;
}

/* Whether coordinate C has PUs for itself. */
static bool is_bound(const struct report *report, const struct sl_mesh *mesh, int c) {
    return report->sight[c].others && count_sharers(report, mesh, c) == 1;
}

/* Writes "0-3,8", or "-" for an empty set; returns TEXT. */
static char *print_numbers(const numbers *set, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "-");
    for (int first = 0; first < CPU_SETSIZE && used < size; first++) {
        int last = first;
        if (!CPU_ISSET(first, set)) continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
        used += (size_t)snprintf(text + used, size - used, "%s%d", used ? "," : "", first);
        if (last > first && used < size) used += (size_t)snprintf(text + used, size - used, "-%d", last);
        first = last;
    }
    return text;
}

static bool same_sight(const void *arg, int a, int b) {
    const struct report *report = arg;
    return !memcmp(&report->sight[a], &report->sight[b], sizeof *report->sight);
}

static void print_row(struct sl_table *table, const struct report *report, const struct sl_mesh *mesh, int c,
                      const char *name) {
    const struct sight *sight = &report->sight[c];
    const int sharers = count_sharers(report, mesh, c), cores = CPU_COUNT(&sight->cores);
    char text[256];
    sl_table_cell(table, "%s", name);
    sl_table_cell(table, "%s", sight->host);
    sl_table_cell(table, "%s", print_numbers(&sight->pus, text, sizeof text));
    sl_table_cell(table, "%s", print_numbers(&sight->packages, text, sizeof text));
    sl_table_cell(table, "%s", print_numbers(&sight->nodes, text, sizeof text));
    snprintf(text, sizeof text, "%d", sight->device);
    sl_table_cell(table, "%s", sight->device < 0 ? "-" : text);
    if (is_bound(report, mesh, c))
        sl_table_cell(table, "bound");
    else
        sl_table_cell(table, "not bound: %d coordinate%s %d core%s", sharers, sharers == 1 ? " has" : "s share", cores,
                      cores == 1 ? "" : "s");
}

static json_t *list_numbers(const numbers *set) {
    json_t *list = json_array();
    for (int number = 0; number < CPU_SETSIZE; number++) {
        if (CPU_ISSET(number, set)) json_array_append_new(list, json_integer(number));
    }
    return list;
}

static json_t *object_of(const struct report *report, const struct sl_mesh *mesh, int c) {
    const struct sight *sight = &report->sight[c];
    json_t *axes = json_object();
    for (int axis = 0; axis < mesh->axes; axis++)
        json_object_set_new(axes, mesh->axis[axis].name, json_integer(sl_mesh_index(mesh, c, axis)));
    return json_pack("{s:i, s:o, s:s, s:o, s:b, s:i, s:o, s:o, s:o}", "coordinate", c, "axes", axes, "host",
                     sight->host, "pus", list_numbers(&sight->pus), "bound", is_bound(report, mesh, c), "sharers",
                     count_sharers(report, mesh, c), "packages", list_numbers(&sight->packages), "nodes",
                     list_numbers(&sight->nodes), "device",
                     sight->device < 0 ? json_null() : json_integer(sight->device));
}

static int print(const struct report *report, const struct sl_mesh *mesh, bool json, struct sl_error *error) {
    static const struct sl_column column[] = {{"coordinate", -28}, {"host", -16}, {"PU", 8},         {"package", 8},
                                              {"NUMA node", 10},   {"device", 7}, {"  threads", -40}};
    struct sl_table table;
    char name[128];
    uint64_t told[sl_set_words(mesh->size)];
    memset(told, 0, sizeof told);
    if (!json) sl_table_begin(&table, stdout, 7, column);
    for (int c = 0; c < mesh->size; c++) {
        if (json)
            SL_TRY(sl_json_print(stdout, "stdout", object_of(report, mesh, c), error));
        else if (sl_row_of(mesh, c, same_sight, report, told, name, sizeof name))
            print_row(&table, report, mesh, c, name);
    }
    return SL_OK;
}

int sl_placement_report(const struct sl_mesh *mesh, struct sl_engine *engine, bool json, struct sl_error *error) {
    struct report report = {.topology = {0}};
    engine->error = error;
    sl_topology_read(&report.topology, true);
    report.sight = calloc((size_t)mesh->size, sizeof *report.sight);
    if (!report.sight) return sl_error_set(error, SL_FAILED, "no memory to show %d coordinates", mesh->size);
    int status = sl_run(mesh, engine, program, &report);
    if (status == SL_OK && sl_speaks(engine)) status = print(&report, mesh, json, error);
    free(report.sight);
    return status;
}
