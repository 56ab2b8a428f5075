/* profile_report.c - a table, or JSON lines, of profiles. */
#include "drivers/speed/profile_report.h"

#include <math.h>

#include "drivers/speed/cores.h"
#include "drivers/common/metrics.h"
#include "drivers/speed/traffic_report.h"

static const char *const work_name[SL_WORKS] = {"other",         "products",  "kernels",  "optimizer",
                                                "communication", "not_ready", "transfer", "no_core"};

/* Returns the seconds of all kinds of waiting. */
static double waiting(const struct sl_profile *profile) {
    return profile->seconds[SL_WORK_NOT_READY] + profile->seconds[SL_WORK_TRANSFER] + profile->seconds[SL_WORK_NO_CORE];
}

static double total(const struct sl_profile *profile) {
    double seconds = 0;
    for (int w = 0; w < SL_WORKS; w++) seconds += profile->seconds[w];
    return seconds;
}

/* Returns the share of the time with a named kind of work. */
static double accounted(const struct sl_profile *profile) {
    const double seconds = total(profile);
    return seconds > 0 ? 1 - profile->seconds[SL_WORK_OTHER] / seconds : 0;
}

static json_t *object_of(const struct sl_profile *profile, int coordinate, int64_t steps) {
    json_t *object = json_pack("{si}", "coordinate", coordinate);
    for (int w = 0; object && w < SL_WORKS; w++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ms", work_name[w]);
        if (w == SL_WORK_NOT_READY)
            json_object_set_new(object, "waiting_ms", sl_json_real(1e3 * waiting(profile) / (double)steps));
        json_object_set_new(object, key, sl_json_real(1e3 * profile->seconds[w] / (double)steps));
    }
    if (object) json_object_set_new(object, "accounted", sl_json_real(accounted(profile)));
    json_t *sent = sl_traffic_object(profile->sent, steps);
    if (sent) json_object_set_new(object, "sent", sent);
    return object;
}

static void print_row(struct sl_table *table, const struct sl_profile *profile, const char *name, int64_t steps) {
    sl_table_cell(table, "%s", name);
    for (int w = 1; w < SL_WORKS; w++) sl_table_cell(table, "%.2f", 1e3 * profile->seconds[w] / (double)steps);
    sl_table_cell(table, "%.2f", 1e3 * profile->seconds[SL_WORK_OTHER] / (double)steps);
    sl_table_cell(table, "%.2f", 1e3 * total(profile) / (double)steps);
    sl_table_cell(table, "%.1f %%", 100 * accounted(profile));
}

int sl_profile_report(const struct sl_profile *profile, const struct sl_mesh *mesh, int cores, int64_t steps, bool json,
                      struct sl_error *error) {
    static const struct sl_column column[] = {{"ms a step", -22}, {"products", 8},  {"kernels", 7},  {"optimizer", 9},
                                              {"moving", 6},      {"not ready", 9}, {"transfer", 8}, {"no core", 7},
                                              {"other", 6},       {"total", 8},     {"accounted", 9}};
    if (steps < 1) return SL_OK;
    struct sl_table table;
    if (!json) sl_cores_print(stdout, mesh->size, cores);
    if (!json && !profile->divided) printf("not ready: all waiting; the engine does not tell transfer from it\n");
    if (!json) sl_table_begin(&table, stdout, 11, column);
    for (int c = 0; c < mesh->size; c++) {
        if (json) {
            SL_TRY(sl_json_print(stdout, "stdout", object_of(&profile[c], c, steps), error));
        } else {
            char name[128];
            print_row(&table, &profile[c], sl_mesh_describe(mesh, c, name, sizeof name), steps);
        }
    }
    if (!json) sl_traffic_print(profile->sent, sizeof *profile, mesh->size, steps);
    return SL_OK;
}

int sl_profile_graphs(const struct sl_graph_report *graphs, bool json, struct sl_error *error) {
    const struct sl_graph_report *g = graphs;
    if (json)
        return sl_json_print(stdout, "stdout",
                             json_pack("{s{sisisisisisisiss}}", "graphs", "steps", g->steps, "replayed", g->replayed,
                                       "parted", g->parted, "calls", g->calls, "graphs", g->graphs, "in_graphs",
                                       g->kept, "changed", g->changed, "why_not", g->why),
                             error);
    if (!sl_device.report_graphs) return puts("graphs: the device has none") == EOF ? SL_FAILED : SL_OK;
    printf("graphs: %d of %d steps", g->replayed, g->steps);
    if (g->parted) printf(", %d of them in part", g->parted);
    if (g->replayed)
        printf("; in the last one %d of %d calls were in %d graphs, where %d kernels had new numbers", g->kept,
               g->calls, g->graphs, g->changed);
    printf("%s%s\n", *g->why ? "; a step was none: " : "", g->why);
    return SL_OK;
}

double sl_profile_no_core(const struct sl_profile *profile, int coordinates) {
    double part = 0, all = 0;
    for (int c = 0; c < coordinates; c++)
        for (enum sl_work w = 0; w < SL_WORKS; w++) {
            if (w == SL_WORK_NO_CORE) part += profile[c].seconds[w];
            if (w != SL_WORK_OPTIMIZER) all += profile[c].seconds[w];
        }
    return all > 0 ? part / all : NAN;
}
