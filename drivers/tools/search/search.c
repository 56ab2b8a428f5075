/* search.c - predicts every layout, and selects the fastest one that fits. */
#include "drivers/tools/search/search.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/tools/machine/measure.h"
#include "drivers/memory/fit.h"
#include "drivers/tools/search/start.h"

enum {
    SHOWN = 10,
    BALANCED = 8,      /* number of best layouts to balance */
    MOST_WHOLE = 2000, /* limit of layouts that are all planned; if there are more, */
    PRUNED_TO = 12     /* so many meshes with numbers of microbatches are tried with all schedules */
};

/* Minimal relative gain: predictions are not more accurate (docs/planning.md). */
static const double worth = 0.05;

/* ---- the search ---- */

struct search {
    struct sl_job *job;
    const struct sl_engine *engine;
    struct sl_engine meant; /* the machine's engine; without a table: the command's */
    const struct sl_options *command;
    const struct sl_search_options *options;
    struct sl_layout_limits limits;
    const struct sl_machine *known; /* NULL: named by the options, or measured */
    struct sl_machine machine;
    struct sl_layouts layouts;
    int devices, tried, unplanned, too_large, pruned;
    double memory, began;   /* bytes available to a coordinate; sl_now() */
    bool free_mesh;         /* layouts other than the job's own may have any options */
    bool stays;             /* the first layout is the job's own, and stays in the list */
    double smallest;        /* bytes of the smallest layout that does not fit */
    char refusal[200];      /* reason of the first failed plan */
    struct sl_error failed; /* error of planning itself, such as missing memory: the result is incomplete */
};

/* Predicts VARIANT in PREDICTION. */
static bool predict(struct search *search, const struct sl_variant *variant, struct sl_prediction *prediction) {
    struct sl_error why = {0};
    const struct sl_job_type *type = search->job->type;
    struct sl_job *copy = type->copy(search->job, variant, search->engine, &why);
    const bool done = copy && sl_predict(copy, search->engine, &search->machine, prediction, &why) == SL_OK;
    if (copy) type->free_copy(copy);
    if (!done && why.status != SL_BAD_INPUT && !search->failed.status) {
        search->failed = why;
        search->failed.status = SL_FAILED;
    }
    if (!done && !search->refusal[0]) snprintf(search->refusal, sizeof search->refusal, "%.199s", why.message);
    search->tried++;
    return done;
}

static void plan(struct search *search, struct sl_layout *layout) {
    layout->planned = predict(search, &layout->variant, &layout->prediction);
    layout->fits = layout->planned && layout->prediction.bytes <= search->memory;
}

/* Whether LAYOUT fits with all memory-saving steps. */
static bool can_fit(struct search *search, const struct sl_layout *layout) {
    struct sl_layout least = *layout;
    while (sl_layout_save(&least, search->job, &search->limits));
    plan(search, &least);
    if (least.planned && !least.fits) search->smallest = fmin(search->smallest, least.prediction.bytes);
    return least.fits;
}

/* The same with bf16 activations, which stay in LAYOUT. They change results, so they are tried only if nothing else
 * helps. */
static bool can_fit_rounded(struct search *search, struct sl_layout *layout) {
    if (!sl_layout_round(layout, search->job, &search->limits)) return false;
    plan(search, layout);
    return layout->planned && (layout->fits || can_fit(search, layout));
}

/* Plans LAYOUT, with memory-saving steps until it fits. */
static void plan_to_fit(struct search *search, struct sl_layout *layout) {
    plan(search, layout);
    if (!layout->planned) search->unplanned++;
    if (!layout->planned || layout->fits) return;
    if (!can_fit(search, layout) && !can_fit_rounded(search, layout)) {
        search->too_large++;
        return;
    }
    while (layout->planned && !layout->fits && sl_layout_save(layout, search->job, &search->limits))
        plan(search, layout);
}

/* Orders layouts: those that fit first; the fastest first, then the smallest. */
static int compare(const void *a, const void *b) {
    const struct sl_layout *x = a, *y = b;
    if (x->fits != y->fits) return x->fits ? -1 : 1;
    if (x->prediction.ms != y->prediction.ms) return x->prediction.ms < y->prediction.ms ? -1 : 1;
    return (x->prediction.bytes > y->prediction.bytes) - (x->prediction.bytes < y->prediction.bytes);
}

/* ---- of very many layouts ---- */

/* Whether A and B differ only in their schedules, in the order of their axes, and in their ways to attend and to divide
 * over tensor. */
static bool have_one_size(const struct sl_job *job, const struct sl_layout *a, const struct sl_layout *b) {
    const struct sl_mesh *x = &a->variant.mesh, *y = &b->variant.mesh;
    for (const char *const *axis = job->type->axes; *axis; axis++)
        if (sl_mesh_axis_size(x, *axis) != sl_mesh_axis_size(y, *axis)) return false;
    return a->variant.options.microbatches == b->variant.options.microbatches;
}

/* Whether A and B differ only in their schedules and in the order of their axes. Ways of the job's type are compared
 * by address. */
static bool are_alike(const struct sl_job *job, const struct sl_layout *a, const struct sl_layout *b) {
    return have_one_size(job, a, b) && a->variant.context_by == b->variant.context_by &&
           a->variant.tensor_layout == b->variant.tensor_layout;
}

static bool is_plain(const struct sl_layout *layout) { return !strcmp(layout->variant.options.schedule, "1f1b"); }

/* Moves one layout of each kind, with a plain schedule, to the beginning of the list; returns their number. */
static int gather_plain(struct sl_layouts *layouts, const struct sl_job *job) {
    int plain = 0;
    for (int i = 0; i < layouts->count; i++) {
        int same = 0;
        if (!is_plain(&layouts->list[i])) continue;
        while (same < plain && !are_alike(job, &layouts->list[same], &layouts->list[i])) same++;
        if (same < plain) continue;
        const struct sl_layout kept = layouts->list[plain];
        layouts->list[plain++] = layouts->list[i];
        layouts->list[i] = kept;
    }
    return plain;
}

/* Prunes the list. A schedule changes the bubble, and the order of axes a link, but neither makes up for slow
 * products of a mesh, or for a slow way to attend. So only the meshes and numbers of microbatches that are best with
 * one schedule are tried with all, each in its best way. */
static void prune(struct search *search) {
    struct sl_layouts *layouts = &search->layouts;
    const int plain = gather_plain(layouts, search->job), all = layouts->count;
    if (plain == 0) return;
    for (int i = 0; i < plain; i++) plan_to_fit(search, &layouts->list[i]);
    qsort(layouts->list, (size_t)plain, sizeof *layouts->list, compare);
    int best = 0;
    for (int i = 0; i < plain && best < PRUNED_TO && layouts->list[i].fits; i++) {
        int same = 0;
        while (same < best && !have_one_size(search->job, &layouts->list[same], &layouts->list[i])) same++;
        if (same == best) layouts->list[best++] = layouts->list[i];
    }
    int kept = best;
    for (int i = plain; i < all; i++) {
        int same = 0;
        while (same < best && !are_alike(search->job, &layouts->list[same], &layouts->list[i])) same++;
        if (same < best) layouts->list[kept++] = layouts->list[i];
    }
    search->pruned = all - (kept > plain ? kept : plain);
    layouts->count = best ? kept : plain;
}

static void sort(struct search *search) {
    qsort(search->layouts.list, (size_t)search->layouts.count, sizeof *search->layouts.list, compare);
}

/* Plans the layout again with balanced stages: by whole layers, and by half layers if the model has them, also with
 * equal numbers per stage, since the two halves of a layer differ. With bf16 storage only whole layers are possible. */
static void balance_one(struct search *search, struct sl_layout *layout) {
    const struct sl_layout even = *layout;
    const struct sl_prediction *of = &even.prediction;
    const int ways = search->job->type->halves && even.variant.options.storage == 0 ? 3 : 1;
    for (int way = 0; way < ways; way++) {
        struct sl_layout balanced = even;
        const double *stage = way < 2 ? of->stage_ms : NULL;
        if (!sl_layout_balance(&balanced, stage, of->stages, search->job, way ? 2 : 1)) continue;
        plan(search, &balanced); /* text points into it */
        if (balanced.fits && compare(&balanced, layout) < 0) *layout = balanced;
    }
}

/* Balances the best layouts. */
static void balance(struct search *search) {
    struct sl_layouts *layouts = &search->layouts;
    for (int i = 0; i < BALANCED && i < layouts->count && layouts->list[i].fits; i++)
        if (!search->limits.stage_layers && layouts->list[i].prediction.stages > 1)
            balance_one(search, &layouts->list[i]);
    sort(search);
}

/* Prefers the job's own layout, unless another one is faster by more than the predictions' accuracy. */
static int prefer_own(struct search *search, struct sl_error *error) {
    struct sl_layouts *layouts = &search->layouts;
    struct sl_layout own = {.variant.options = *search->job->options};
    struct sl_mesh *mesh = &own.variant.mesh;
    SL_TRY(sl_mesh_parse(mesh, search->options->given, error));
    if (mesh->size != search->devices || !layouts->count || !layouts->list[0].fits) return SL_OK;
    plan(search, &own);
    if (!own.fits || layouts->list[0].prediction.ms < (1 - worth) * own.prediction.ms) return SL_OK;
    SL_TRY(sl_layouts_insert_own(layouts, search->job, mesh, error));
    plan(search, &layouts->list[0]);
    search->stays = true;
    return SL_OK;
}

static int find_machine(struct search *search, struct sl_error *error) {
    const struct sl_search_options *options = search->options;
    const struct sl_measurement brief = {.gemm = search->job->gemm, .brief = true};
    if (search->known) search->machine = *search->known;
    if (search->known) return SL_OK;
    if (options->machine) return sl_machine_read(&search->machine, options->machine, error);
    return sl_machine_measure(&search->machine, search->engine, &brief, error);
}

const struct sl_engine_table sl_search_processes = {.name = "mpi", .apart = true, .both_ends = true};
static const struct sl_engine_table gpus = {.name = "nccl", .apart = true, .both_ends = true};

static int nodes_of(const struct sl_machine *machine) {
    int nodes = 0;
    for (int i = 0; i < machine->kinds; i++) nodes += machine->nodes[i].count;
    return nodes;
}

/* Finds the engine. Threads share memory, so they run on one host. For a machine file with several nodes, or with
 * GPUs, coordinates are processes unless the user asks for threads. */
static int find_engine(struct search *search, struct sl_error *error) {
    const struct sl_machine *machine = &search->machine;
    const int nodes = nodes_of(machine);
    bool has_gpus = false;
    for (int i = 0; i < machine->kinds; i++) has_gpus |= machine->nodes[i].gpus > 0;
    if (search->known || !search->options->machine || !search->engine->table->gather_from) return SL_OK;
    if (nodes == 1 && (!has_gpus || sl_option_given(search->command, "engine"))) return SL_OK;
    if (sl_option_given(search->command, "engine"))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--engine %s: the machine \"%s\" has %d nodes, and threads are of one: choose mpi or nccl",
                            search->engine->table->name, machine->name, nodes);
    search->meant = *search->engine;
    search->meant.table = has_gpus ? &gpus : &sl_search_processes;
    search->engine = &search->meant;
    return SL_OK;
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
    search->devices = options->devices ? options->devices : search->job->mesh.size;
    if (sl_option_given(search->command, "mesh") && search->devices != search->job->mesh.size)
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
        .storage = sl_option_given(command, "storage"),
        .stage_layers = sl_option_given(command, "stage-layers"),
        .context_by = sl_option_given(command, "context-by"),
        .tensor_layout = sl_option_given(command, "tensor-layout"),
        .spread = search->machine.kinds > 1 || search->machine.nodes[0].count > 1};
}

static int find_layouts(struct search *search, struct sl_error *error) {
    SL_TRY(check_devices(search, error));
    if (!search->job->type->copy)
        return sl_error_set(error, SL_BAD_INPUT, "--plan: %s has one layout", search->job->type->model);
    SL_TRY(find_machine(search, error));
    SL_TRY(find_engine(search, error));
    if (sl_machine_room(&search->machine) < search->devices)
        return sl_error_set(error, SL_BAD_INPUT, "--devices %d: the machine \"%s\" has %d", search->devices,
                            search->machine.name, sl_machine_room(&search->machine));
    find_memory(search);
    find_limits(search);
    search->began = sl_now();
    search->smallest = INFINITY;
    SL_TRY(sl_layouts_list(&search->layouts, search->job, search->devices, &search->limits, error));
    if (search->layouts.count > MOST_WHOLE) prune(search);
    for (int i = 0; i < search->layouts.count; i++)
        if (!search->layouts.list[i].planned) plan_to_fit(search, &search->layouts.list[i]);
    sort(search);
    balance(search);
    return SL_OK;
}

/* ---- output ---- */

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

/* Returns why a layout is slower than the best one: the part of a place's time with the largest increase. */
static const char *reason(const struct search *search, const struct sl_prediction *of, char *text, size_t size) {
    const struct sl_prediction *best = &search->layouts.list[0].prediction;
    static const char *const names[] = {"products", "attention",      "kernels",  "calls in modules",
                                        "bubble",   "sums over data", "optimizer"};
    double more[7];
    int most = 0;
    for (int i = 0; i < SL_SHARES; i++) more[i] = of->sharers * (of->share_ms[i] - best->share_ms[i]);
    more[4] = of->idle_ms - best->idle_ms;
    more[5] = of->sharers * (of->reduce_ms - best->reduce_ms);
    more[6] = of->sharers * (of->optimizer_ms - best->optimizer_ms);
    for (int i = 1; i < 7; i++) most = more[i] > more[most] ? i : most;
    if (of == best || more[most] <= 0)
        snprintf(text, size, of != best ? "as good" : search->stays ? "as given" : "the best");
    else
        snprintf(text, size, more[most] < 1e3 ? "%s +%.3g ms" : "%s +%.0f ms", names[most], more[most]);
    return text;
}

static void print_traffic(FILE *stream, const struct sl_prediction *of) {
    bool any = false;
    for (int link = 0; link < SL_LINKS; link++) {
        if (of->traffic[link] == 0) continue;
        fprintf(stream, of->traffic[link] < 1e9 ? "%s%s %.3g MB" : "%s%s %.0f MB", any ? ", " : "", sl_link_name[link],
                of->traffic[link] / 1e6);
        fprintf(stream, of->link_ms[link] < 1e3 ? " in %.3g ms" : " in %.0f ms", of->link_ms[link]);
        any = true;
    }
    if (!any) fprintf(stream, "none");
}

/* Whether two layouts with different order of axes or schedule have equal predictions. */
static bool is_equal(const struct sl_job *job, const struct sl_layout *a, const struct sl_layout *b) {
    return are_alike(job, a, b) && a->prediction.ms == b->prediction.ms && a->prediction.bytes == b->prediction.bytes;
}

static void print_best(const struct search *search, FILE *stream) {
    const struct sl_layout *list = search->layouts.list;
    char why[64], limit[32];
    fprintf(stream, "the best of %d layouts on %d devices of \"%s\", %s each:\n",
            search->layouts.count + search->pruned, search->devices, search->machine.name,
            isinf(search->memory) ? "any memory" : sl_bytes_describe(search->memory, limit, sizeof limit));
    if (search->meant.table)
        fprintf(stream, "with --engine %s, as the machine has %d node%s\n", search->meant.table->name,
                nodes_of(&search->machine), nodes_of(&search->machine) > 1 ? "s" : ", of GPUs");
    fprintf(stream, "  ms a step  bubble        MB  %-20s  sent a step; layout\n", "why");
    for (int i = 0, shown = 0; shown < SHOWN && i < search->layouts.count && list[i].fits; i++) {
        const struct sl_prediction *of = &list[i].prediction;
        if (i > 0 && is_equal(search->job, &list[i - 1], &list[i])) continue;
        shown++;
        fprintf(stream, of->ms < 1e4 ? "%11.4g  %5.1f%%  %8.1f  %-20s  " : "%11.0f  %5.1f%%  %8.1f  %-20s  ", of->ms,
                100 * of->bubble, of->bytes / 1e6, reason(search, of, why, sizeof why));
        print_traffic(stream, of);
        fprintf(stream, "; %s\n", list[i].text);
    }
    fprintf(stream, "%d layouts planned in %.2f s; %d do not fit, %d are not possible", search->tried,
            sl_now() - search->began, search->too_large, search->unplanned);
    if (search->pruned) fprintf(stream, ", %d are on meshes that are slow with 1f1b", search->pruned);
    if (search->stays) fprintf(stream, "\nwhat is given stays: nothing is predicted to be %.0f %% faster", 100 * worth);
    fputc('\n', stream);
}

static json_t *json_of(const struct search *search, const struct sl_layout *layout) {
    const struct sl_prediction *of = &layout->prediction;
    char why[64];
    json_t *traffic = json_object(), *memory = json_object(), *links = json_object();
    for (int c = 0; memory && c < SL_MEMORY_CATEGORIES; c++)
        json_object_set_new(memory, sl_memory_name[c], json_integer((json_int_t)of->budget.bytes[c]));
    for (int link = 0; traffic && links && link < SL_LINKS; link++) {
        json_object_set_new(traffic, sl_link_name[link], json_integer((json_int_t)of->traffic[link]));
        json_object_set_new(links, sl_link_name[link], json_real(of->link_ms[link]));
    }
    return json_pack("{ss sf sf sI ss so so so}", "layout", layout->text, "predicted_ms", of->ms, "bubble", of->bubble,
                     "bytes", (json_int_t)of->bytes, "reason", reason(search, of, why, sizeof why), "traffic", traffic,
                     "calls_ms", links, "memory", memory);
}

static int print_json(const struct search *search, struct sl_error *error) {
    const struct sl_layout *list = search->layouts.list;
    for (int i = 0; i < search->layouts.count && list[i].fits; i++)
        SL_TRY(sl_json_print(stdout, "stdout", json_of(search, &list[i]), error));
    return sl_json_print(stdout, "stdout",
                         json_pack("{si sf si si si ss}", "planned", search->tried, "seconds", sl_now() - search->began,
                                   "too_large", search->too_large, "impossible", search->unplanned, "pruned",
                                   search->pruned, "engine", search->engine->table->name),
                         error);
}

static int use(struct search *search, bool json, struct sl_error *error) {
    const struct sl_search_options *options = search->options;
    const bool starts = options->plan == SL_PLAN_AUTO;
    const struct sl_layout *best = search->layouts.list;
    const char *meant = search->meant.table ? search->meant.table->name : NULL;
    if (!search->layouts.count || !best->fits) return refuse(search, error);
    if (starts && meant)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--plan auto: \"%s\" is a machine for --engine %s: search with --save-options FILE, and "
                            "start @FILE there",
                            search->machine.name, meant);
    if (json && !starts)
        SL_TRY(print_json(search, error));
    else
        print_best(search, starts ? stderr : stdout);
    char layout[sizeof best->text + 32];
    snprintf(layout, sizeof layout, "%s%s%s", best->text, meant ? " --engine " : "", meant ? meant : "");
    if (options->save) SL_TRY(sl_start_save(search->command, layout, options->save, error));
    return starts ? sl_start_again(search->command, best->text, error) : SL_OK;
}

int sl_search_compare(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
                      const struct sl_search_options *options, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_layout *best, struct sl_error *error) {
    struct search *search = calloc(1, sizeof *search);
    if (!search) return sl_error_set(error, SL_FAILED, "no memory to predict a run");
    *search = (struct search){
        .job = job, .engine = engine, .command = command, .options = options, .known = machine, .free_mesh = true};
    int status = find_layouts(search, error);
    if (status == SL_OK) status = sl_search_predict(job, engine, &search->machine, own, error);
    if (status == SL_OK && search->layouts.count) *best = search->layouts.list[0];
    free(search->layouts.list);
    free(search);
    return status;
}

int sl_search_predict(struct sl_job *job, const struct sl_engine *engine, const struct sl_machine *machine,
                      struct sl_prediction *own, struct sl_error *error) {
    const struct sl_variant same = {.options = *job->options, .mesh = job->mesh};
    struct sl_job *copy = job->type->copy(job, &same, engine, error);
    if (!copy) return error->status ? error->status : SL_FAILED;
    const int status = sl_predict(copy, engine, machine, own, error);
    job->type->free_copy(copy);
    return status;
}

/* Refuses processes of a launcher: each would search by itself; and a single process cannot measure links between
 * processes. */
static int check_engine(const struct sl_engine *engine, const char *machine, struct sl_error *error) {
    if (!engine->table->apart || (machine && sl_launch_of_process().processes == 1)) return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "--plan: not with engine %s: search without a launcher, with --machine FILE as mpirun plan measure "
        "--save writes it and --save-options FILE, and start @FILE",
        engine->table->name);
}

int sl_search(struct sl_job *job, const struct sl_engine *engine, const struct sl_options *command,
              const struct sl_search_options *options, bool json, struct sl_error *error) {
    struct search *search = calloc(1, sizeof *search);
    if (!search) return sl_error_set(error, SL_FAILED, "no memory to search for layouts");
    *search = (struct search){.job = job, .engine = engine, .command = command, .options = options};
    int status = check_engine(engine, options->machine, error);
    if (status == SL_OK) status = find_layouts(search, error);
    if (status == SL_OK) status = prefer_own(search, error);
    if (status == SL_OK && search->failed.status)
        status = sl_error_set(error, SL_FAILED, "--plan: %s", search->failed.message);
    if (status == SL_OK) status = use(search, json, error);
    free(search->layouts.list);
    free(search);
    return status;
}
