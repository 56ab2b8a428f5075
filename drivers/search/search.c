/* search.c - predicts every layout, and takes the fastest of those that fit. */
#include "drivers/search/search.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "drivers/machine/machine_file.h"
#include "drivers/machine/measure.h"
#include "drivers/memory/fit.h"
#include "drivers/search/start.h"

enum { SHOWN = 10, BALANCED = 8 /* the best that are tried with balanced stages */ };

/* ---- the search ---- */

struct search {
    struct sl_job *job;
    const struct sl_engine *engine;
    const struct sl_options *command;
    const struct sl_search_options *options;
    struct sl_layout_limits limits;
    struct sl_machine machine;
    struct sl_layouts layouts;
    int devices, tried, unplanned, too_large;
    double memory, began; /* bytes that a coordinate may take; sl_now() */
    bool free_mesh;       /* other layouts than the job's own may have any options */
    double smallest;      /* bytes of the smallest layout that does not fit */
    char refusal[200];    /* why the first one that cannot be planned cannot */
};

static void plan(struct search *search, struct sl_layout *layout) {
    struct sl_error why = {0};
    const struct sl_job_type *type = search->job->type;
    struct sl_job *copy = type->copy(search->job, &layout->variant, search->engine, &why);
    layout->planned = copy && sl_predict(copy, search->engine, &search->machine, &layout->prediction, &why) == SL_OK;
    layout->fits = layout->planned && layout->prediction.bytes <= search->memory;
    if (!layout->planned && !search->refusal[0]) snprintf(search->refusal, sizeof search->refusal, "%s", why.message);
    if (copy) type->free_copy(copy);
    search->tried++;
}

/* Without what it lacks memory for, as far as that goes. */
static void plan_to_fit(struct search *search, struct sl_layout *layout) {
    plan(search, layout);
    if (!layout->planned) search->unplanned++;
    while (layout->planned && !layout->fits && sl_layout_save(layout, search->job, &search->limits))
        plan(search, layout);
    if (!layout->planned || layout->fits) return;
    search->too_large++;
    search->smallest = fmin(search->smallest, layout->prediction.bytes);
}

/* The fastest first, then the smallest; those that do not fit last. */
static int compare(const void *a, const void *b) {
    const struct sl_layout *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    if (x->prediction.ms != y->prediction.ms) return x->prediction.ms < y->prediction.ms ? -1 : 1;
    return (x->prediction.bytes > y->prediction.bytes) - (x->prediction.bytes < y->prediction.bytes);
}

static void sort(struct search *search) {
    qsort(search->layouts.list, (size_t)search->layouts.count, sizeof *search->layouts.list, compare);
}

/* The best ones once more, with stages that end at the same time. */
static void balance(struct search *search) {
    struct sl_layouts *layouts = &search->layouts;
    for (int i = 0; i < BALANCED && i < layouts->count && layouts->list[i].fits; i++) {
        struct sl_layout balanced = layouts->list[i];
        const struct sl_prediction *of = &balanced.prediction;
        if (search->limits.stage_layers || of->stages < 2) continue;
        if (!sl_layout_balance(&balanced, of->stage_ms, of->stages, search->job)) continue;
        plan(search, &balanced); /* its text lies here */
        if (balanced.fits && compare(&balanced, &layouts->list[i]) < 0) layouts->list[i] = balanced;
    }
    sort(search);
}

static int find_machine(struct search *search, struct sl_error *error) {
    const struct sl_search_options *options = search->options;
    const struct sl_measurement brief = {.gemm = search->job->gemm, .brief = true};
    if (options->machine) return sl_machine_read(&search->machine, options->machine, error);
    return sl_machine_measure(&search->machine, search->engine, &brief, error);
}

static void find_memory(struct search *search) {
    const char *text = search->options->memory;
    const int devices = search->devices;
    if (text && sl_search_bytes(text, &search->memory)) return;
    search->memory = sl_machine_memory(&search->machine, devices);
    if (search->memory == 0)
        search->memory = search->options->machine ? INFINITY : sl_limits_now().room[SL_LIMIT_MACHINE] / devices;
}

static int check_devices(struct search *search, struct sl_error *error) {
    const struct sl_search_options *options = search->options;
    const bool given = sl_option_given(search->command, "mesh");
    search->devices = options->devices ? options->devices : search->job->mesh.size;
    if (given && search->devices != search->job->mesh.size)
        return sl_error_set(error, SL_BAD_INPUT, "--devices %d: the mesh that is given has %d coordinates",
                            search->devices, search->job->mesh.size);
    return SL_OK;
}

static void find_limits(struct search *search) {
    const struct sl_options *command = search->command;
    if (search->free_mesh) return;
    search->limits = (struct sl_layout_limits){
        .mesh = sl_option_given(command, "mesh"),
        .schedule = sl_option_given(command, "schedule") || sl_option_given(command, "schedule-file"),
        .loops = sl_option_given(command, "loops"),
        .microbatches = sl_option_given(command, "microbatches"),
        .recompute = sl_option_given(command, "recompute"),
        .stage_layers = sl_option_given(command, "stage-layers"),
        .spread = search->machine.kinds > 1 || search->machine.nodes[0].count > 1};
}

static int find_layouts(struct search *search, struct sl_error *error) {
    SL_TRY(check_devices(search, error));
    if (!search->job->type->copy)
        return sl_error_set(error, SL_BAD_INPUT, "--plan: %s has one layout", search->job->type->model);
    SL_TRY(find_machine(search, error));
    if (sl_machine_room(&search->machine) < search->devices)
        return sl_error_set(error, SL_BAD_INPUT, "--devices %d: the machine \"%s\" has %d", search->devices,
                            search->machine.name, sl_machine_room(&search->machine));
    find_memory(search);
    find_limits(search);
    search->began = sl_now();
    search->smallest = INFINITY;
    SL_TRY(sl_layouts_list(&search->layouts, search->job, search->devices, &search->limits, error));
    for (int i = 0; i < search->layouts.count; i++) plan_to_fit(search, &search->layouts.list[i]);
    sort(search);
    balance(search);
    return SL_OK;
}

/* ---- what is told ---- */

static int refuse(const struct search *search, struct sl_error *error) {
    char has[32], least[32];
    if (!search->layouts.count)
        return sl_error_set(error, SL_BAD_INPUT, "--plan: there is no layout of this batch on %d devices",
                            search->devices);
    if (!search->too_large)
        return sl_error_set(error, SL_BAD_INPUT, "--plan: no layout on %d devices is possible: %s", search->devices,
                            search->refusal);
    return sl_error_set(error, SL_BAD_INPUT,
                        "--plan: no layout on %d devices fits into %s a coordinate: the smallest of %d needs %s",
                        search->devices, sl_bytes_describe(search->memory, has, sizeof has), search->layouts.count,
                        sl_bytes_describe(search->smallest, least, sizeof least));
}

/* What makes a layout slower than the best one: the part of its time that is longest beyond the best's. */
static const char *reason(const struct sl_prediction *best, const struct sl_prediction *of, char *text, size_t size) {
    static const char *const names[] = {"products", "attention",      "kernels",  "calls in modules",
                                        "bubble",   "sums over data", "optimizer"};
    double more[7];
    int most = 0;
    for (int i = 0; i < SL_SHARES; i++) more[i] = of->share_ms[i] - best->share_ms[i];
    more[4] = of->pipeline_ms * of->bubble - best->pipeline_ms * best->bubble;
    more[5] = of->reduce_ms - best->reduce_ms;
    more[6] = of->optimizer_ms - best->optimizer_ms;
    for (int i = 1; i < 7; i++) most = more[i] > more[most] ? i : most;
    if (of == best || more[most] <= 0)
        snprintf(text, size, of == best ? "the best" : "as good but for its memory");
    else
        snprintf(text, size, "%s +%.3g ms", names[most], more[most]);
    return text;
}

static void print_traffic(FILE *stream, const struct sl_prediction *of) {
    bool any = false;
    for (int link = 0; link < SL_LINKS; link++) {
        if (of->traffic[link] == 0) continue;
        fprintf(stream, "%s%s %.3g MB", any ? ", " : "", sl_link_name[link], of->traffic[link] / 1e6);
        any = true;
    }
    if (!any) fprintf(stream, "none");
}

static void print_best(const struct search *search, FILE *stream) {
    const struct sl_layout *list = search->layouts.list;
    char why[64], limit[32];
    fprintf(stream, "the best of %d layouts on %d devices of \"%s\", %s each:\n", search->layouts.count,
            search->devices, search->machine.name,
            isinf(search->memory) ? "any memory" : sl_bytes_describe(search->memory, limit, sizeof limit));
    fprintf(stream, "  ms a step  bubble        MB  %-20s  sent a step; layout\n", "why");
    for (int i = 0; i < SHOWN && i < search->layouts.count && list[i].fits; i++) {
        const struct sl_prediction *of = &list[i].prediction;
        fprintf(stream, "%11.4g  %5.1f%%  %8.1f  %-20s  ", of->ms, 100 * of->bubble, of->bytes / 1e6,
                reason(&list[0].prediction, of, why, sizeof why));
        print_traffic(stream, of);
        fprintf(stream, "; %s\n", list[i].text);
    }
    fprintf(stream, "%d layouts planned in %.2f s; %d do not fit, %d are not possible\n", search->tried,
            sl_now() - search->began, search->too_large, search->unplanned);
}

static json_t *json_of(const struct sl_layout *layout, const struct sl_prediction *best) {
    const struct sl_prediction *of = &layout->prediction;
    char why[64];
    json_t *traffic = json_object();
    for (int link = 0; traffic && link < SL_LINKS; link++)
        json_object_set_new(traffic, sl_link_name[link], json_integer((json_int_t)of->traffic[link]));
    return json_pack("{ss sf sf sI ss so}", "layout", layout->text, "predicted_ms", of->ms, "bubble", of->bubble,
                     "bytes", (json_int_t)of->bytes, "reason", reason(best, of, why, sizeof why), "traffic", traffic);
}

static int print_json(const struct search *search, struct sl_error *error) {
    const struct sl_layout *list = search->layouts.list;
    for (int i = 0; i < search->layouts.count && list[i].fits; i++)
        SL_TRY(sl_json_print(stdout, "stdout", json_of(&list[i], &list[0].prediction), error));
    return sl_json_print(stdout, "stdout",
                         json_pack("{si sf si si}", "planned", search->tried, "seconds", sl_now() - search->began,
                                   "too_large", search->too_large, "impossible", search->unplanned),
                         error);
}

static int use(struct search *search, bool json, struct sl_error *error) {
    const struct sl_search_options *options = search->options;
    const bool starts = options->plan == SL_PLAN_AUTO;
    const struct sl_layout *best = search->layouts.list;
    if (!search->layouts.count || !best->fits) return refuse(search, error);
    if (json && !starts)
        SL_TRY(print_json(search, error));
    else
        print_best(search, starts ? stderr : stdout);
    if (options->save) SL_TRY(sl_start_save(search->command, best->text, options->save, error));
    return starts ? sl_start_again(search->command, best->text, error) : SL_OK;
}

int sl_search_compare(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
                      const struct sl_search_options *options, struct sl_prediction *own, struct sl_layout *best,
                      struct sl_error *error) {
    struct search *search = calloc(1, sizeof *search);
    struct sl_layout same = {.variant = {.options = *job->options, .mesh = job->mesh}};
    if (!search) return sl_error_set(error, SL_FAILED, "no memory to predict a run");
    *search = (struct search){.job = job, .engine = engine, .command = command, .options = options, .free_mesh = true};
    int status = find_layouts(search, error);
    if (status == SL_OK) plan(search, &same);
    if (status == SL_OK && !same.planned) status = sl_error_set(error, SL_BAD_INPUT, "%s", search->refusal);
    if (status == SL_OK) *own = same.prediction;
    if (status == SL_OK && search->layouts.count) *best = search->layouts.list[0];
    free(search->layouts.list);
    free(search);
    return status;
}

/* Processes of a launcher would search one by one. */
static int check_engine(const struct sl_engine *engine, struct sl_error *error) {
    if (!engine->table->apart) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--plan: not with engine %s: search without a launcher, --save-options FILE, and start @FILE",
                        engine->table->name);
}

int sl_search(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
              const struct sl_search_options *options, bool json, struct sl_error *error) {
    struct search *search = calloc(1, sizeof *search);
    if (!search) return sl_error_set(error, SL_FAILED, "no memory to search for layouts");
    *search = (struct search){.job = job, .engine = engine, .command = command, .options = options};
    int status = check_engine(engine, error);
    if (status == SL_OK) status = find_layouts(search, error);
    if (status == SL_OK) status = use(search, json, error);
    free(search->layouts.list);
    free(search);
    return status;
}
