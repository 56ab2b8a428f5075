/* memory_options.c - plans a job again and again, each time with one option more, and tells which of them help.
 *
 * Planning takes no large memory and starts nothing. It is done by the process that speaks, with a thread a coordinate,
 * whatever the engine is: planning is the same for all, but for channels, whose slots each end has or both share. */
#include "drivers/training/memory_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"

enum { MOST_TOLD = 3, MOST_PASSES = 4096, MOST_MICROBATCHES = 256 }; /* a table of more takes long to make */
static const double most_seconds = 2;                                /* for all plannings together */

/* ---- one planning ---- */

struct planning {
    struct sl_job *job;
    struct sl_memory *memory; /* [coordinates] */
};

static int program(struct sl_spmd *self, void *arg) {
    const struct planning *planning = arg;
    struct sl_worker worker;
    struct sl_budget planned = {0};
    int status = sl_worker_plan(&worker, self, planning->job);
    if (status == SL_OK) status = sl_worker_plan_bytes(&worker, &planned);
    if (status == SL_OK) status = sl_memory_gather_planned(self, &planned, planning->memory);
    sl_worker_close(&worker);
    return status;
}

/* What JOB would take, in MEMORY; false where it cannot be planned. */
static bool plan(struct sl_job *job, const struct sl_engine *engine, struct sl_memory *memory) {
    struct sl_engine_table table = sl_engine_local;
    struct sl_error unread = {0};
    const struct sl_engine here = {.table = &table, .timeout = engine->timeout, .error = &unread};
    struct planning planning = {job, memory};
    table.both_ends = engine->table->both_ends;
    return sl_run(&job->mesh, &here, program, &planning) == SL_OK;
}

/* ---- what can be tried ---- */

static struct sl_variant variant_of(const struct sl_job *job) {
    return (struct sl_variant){.options = *job->options, .mesh = job->mesh};
}

static bool shard_states(const struct sl_job *job, int attempt, struct sl_variant *variant,
                         char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    options->zero += attempt + 1;
    snprintf(text, SL_ATTEMPT_TEXT, "--zero %d", options->zero);
    return options->zero <= 2 && job->data > 1 && !job->forward_only;
}

static bool offload_states(const struct sl_job *job, int attempt, struct sl_variant *variant,
                           char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    static const char *const words[] = {"optimizer", "optimizer,activations", "optimizer,activations,weights"};
    static const int bits[] = {SL_OFFLOAD_OPTIMIZER, SL_OFFLOAD_OPTIMIZER | SL_OFFLOAD_ACTIVATIONS,
                               SL_OFFLOAD_OPTIMIZER | SL_OFFLOAD_ACTIVATIONS | SL_OFFLOAD_WEIGHTS};
    for (int i = 0; i < (int)(sizeof bits / sizeof *bits); i++) {
        if ((bits[i] | options->offload) != bits[i] || bits[i] == options->offload || attempt-- > 0) continue;
        options->offload = bits[i];
        snprintf(text, SL_ATTEMPT_TEXT, "--offload %s", words[i]);
        return !job->forward_only;
    }
    return false;
}

static bool group_less(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    int group = job->wgrad_group;
    if (job->forward_only) return false;
    for (int i = 0; i <= attempt; i++) {
        if (group == 1) return false;
        group = sl_largest_divisor(job->wgrad_group, group / 2);
    }
    snprintf(text, SL_ATTEMPT_TEXT, "--wgrad-group %d", options->wgrad_group = group);
    return true;
}

static bool one_forward_one_backward(const struct sl_job *job, int attempt, struct sl_variant *variant,
                                     char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    static const char name[] = "1f1b";
    if (attempt || job->ranks == 1 || job->forward_only || options->schedule_file) return false;
    if (!strcmp(job->schedule.name, name)) return false;
    options->schedule = name;
    options->loops = 0;
    if (job->schedule.microbatches > 1) options->wgrad_group = 1;
    snprintf(text, SL_ATTEMPT_TEXT, "--schedule %s%s", name, options->wgrad_group == 1 ? " --wgrad-group 1" : "");
    return true;
}

/* A pass keeps the rows of all its microbatches until their weight gradients: with as many microbatches in each of more
 * passes there are fewer of them. */
static bool accumulate(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    const int passes = job->options->accumulate << (attempt + 1);
    if (job->forward_only || passes > MOST_PASSES || job->local % passes) return false;
    snprintf(text, SL_ATTEMPT_TEXT, "--accumulate %d", options->accumulate = passes);
    return true;
}

static bool cut_smaller(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    const int microbatches = job->schedule.microbatches << (attempt + 1);
    if (job->sequence == 1 || microbatches > MOST_MICROBATCHES || options->schedule_file) return false;
    if (job->pass % microbatches) return false;
    snprintf(text, SL_ATTEMPT_TEXT, "--microbatches %d", options->microbatches = microbatches);
    return true;
}

static bool shard_parameters(const struct sl_job *job, int attempt, struct sl_variant *variant,
                             char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    if (job->data == 1 || attempt > !options->fsdp || (options->fsdp && !options->prefetch)) return false;
    const bool gathers_late = attempt || options->fsdp;
    if (gathers_late && job->forward_only) return false;
    snprintf(text, SL_ATTEMPT_TEXT, "%s%s%s", options->fsdp ? "" : "--fsdp", attempt ? " " : "",
             gathers_late ? "--no-prefetch" : "");
    options->prefetch = options->prefetch && !gathers_late;
    return options->fsdp = true;
}

static bool recompute(const struct sl_job *job, int attempt, struct sl_variant *variant, char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    static const char *const name[] = {"none", "selective", "full"};
    options->recompute += attempt + 1;
    if (job->forward_only || options->recompute > 2) return false;
    snprintf(text, SL_ATTEMPT_TEXT, "--recompute %s", name[options->recompute]);
    return true;
}

static bool round_stored(const struct sl_job *job, int attempt, struct sl_variant *variant,
                         char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    (void)job;
    snprintf(text, SL_ATTEMPT_TEXT, "--storage bf16");
    if (attempt || options->storage) return false;
    options->storage = 1;
    return true;
}

static bool round_operands(const struct sl_job *job, int attempt, struct sl_variant *variant,
                           char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    (void)job;
    snprintf(text, SL_ATTEMPT_TEXT, "--precision bf16");
    if (attempt || options->precision == SL_PRODUCTS_BF16) return false;
    options->precision = SL_PRODUCTS_BF16;
    return true;
}

/* Coordinates of other replicas become ranks of a pipeline: fewer replicas hold the parameters. */
static bool fewer_replicas(const struct sl_job *job, int attempt, struct sl_variant *variant,
                           char text[SL_ATTEMPT_TEXT]) {
    struct sl_mesh *mesh = &variant->mesh;
    char printed[SL_ATTEMPT_TEXT - 8];
    const int factor = 2 << attempt, replicas = sl_mesh_find_axis(mesh, sl_job_axis(job, SL_JOB_DATA));
    if (job->data % factor || variant->options.schedule_file) return false;
    mesh->axis[replicas].size = job->data / factor;
    mesh->axis[sl_mesh_find_axis(mesh, sl_job_axis(job, SL_JOB_PIPE))].size = job->ranks * factor;
    snprintf(text, SL_ATTEMPT_TEXT, "--mesh %s", sl_mesh_print(mesh, printed, sizeof printed));
    return true;
}

/* The gentlest first. */
static sl_attempt *const general[] = {
    shard_states,   group_less,   one_forward_one_backward, accumulate,     cut_smaller, shard_parameters, recompute,
    offload_states, round_stored, round_operands,           fewer_replicas, NULL};

/* The driver's gentle ones, those of all drivers, the driver's others: number I; NULL after the last. */
static sl_attempt *attempt_of(const struct sl_job *job, int i) {
    sl_attempt *const *const lists[] = {job->type->gentle, general, job->type->harsh};
    for (int l = 0; l < 3; l++) {
        for (sl_attempt *const *list = lists[l]; list && *list; list++)
            if (i-- == 0) return *list;
    }
    return NULL;
}

/* ---- the search ---- */

struct search {
    const struct sl_job *job;
    const struct sl_engine *engine;
    const struct sl_memory *given; /* [coordinates] of the job itself: limits, hosts, processes */
    struct sl_memory *memory;      /* [coordinates] of an attempt */
    double began, extra;           /* sl_now(); bytes beside what is planned */
    enum sl_limit limit;           /* the figures are those of the coordinates that share it */
    int fullest;
    char told[MOST_TOLD][SL_ATTEMPT_TEXT + 32]; /* with figures */
    int count;
};

/* The bytes of coordinates that share the exceeded limit, where the job is VARIANT; NAN where it cannot be planned.
 * *FITS: whether all fits. */
static double plan_with(struct search *search, const struct sl_variant *variant, bool *fits) {
    const struct sl_mesh *mesh = &search->job->mesh;
    struct sl_error unread = {0};
    struct sl_misfit misfit = {0};
    struct sl_job *copy = search->job->type->copy(search->job, variant, search->engine, &unread);
    const bool planned = copy && plan(copy, search->engine, search->memory);
    if (copy) search->job->type->free_copy(copy);
    if (!planned) return NAN;
    for (int c = 0; c < mesh->size; c++) {
        const struct sl_budget budget = search->memory[c].planned;
        search->memory[c] = search->given[c];
        search->memory[c].planned = budget;
    }
    search->memory[0].planned.bytes[SL_MEMORY_BATCH] += (uint64_t)search->extra;
    *fits = sl_memory_fits(search->memory, mesh, &misfit);
    return sl_memory_sharing(search->memory, mesh, search->fullest, search->limit).need;
}

static bool has_time(const struct search *search) { return sl_now() - search->began < most_seconds; }

/* The first attempt of a kind that is enough. */
static void try_kind(struct search *search, sl_attempt *attempt) {
    char text[SL_ATTEMPT_TEXT], need[32];
    for (int i = 0; has_time(search); i++) {
        struct sl_variant variant = variant_of(search->job);
        bool fits = false;
        if (!attempt(search->job, i, &variant, text)) return;
        const double bytes = plan_with(search, &variant, &fits);
        if (!fits || isnan(bytes)) continue;
        snprintf(search->told[search->count++], sizeof *search->told, "%s (%s)", text,
                 sl_bytes_describe(bytes, need, sizeof need));
        return;
    }
}

/* The last attempt of every kind that needs less than without it, together: as far as options help. */
static void try_all(struct search *search, double need, char *told, size_t size) {
    struct sl_variant variant = variant_of(search->job);
    char all[256] = "", text[SL_ATTEMPT_TEXT], figure[32];
    bool fits = false;
    sl_attempt *attempt;
    for (int k = 0; (attempt = attempt_of(search->job, k)); k++) {
        for (int i = 0; has_time(search); i++) {
            struct sl_variant next = variant;
            bool enough = false;
            if (!attempt(search->job, i, &next, text)) break;
            const double bytes = plan_with(search, &next, &enough);
            if (!(bytes < need)) continue;
            struct sl_variant alone = variant_of(search->job);
            char other[SL_ATTEMPT_TEXT];
            if (attempt(search->job, i + 1, &alone, other)) continue; /* a later one needs no more */
            variant = next, need = bytes, fits = enough;
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *all ? " " : "", text);
        }
        if (fits) break;
    }
    if (*all)
        snprintf(told, size, fits ? "; it would fit with %s (%s)" : "; with %s it would still need %s", all,
                 sl_bytes_describe(need, figure, sizeof figure));
}

static void advise(struct search *search, double need, char *told, size_t size) {
    sl_attempt *attempt;
    for (int k = 0; search->count < MOST_TOLD && (attempt = attempt_of(search->job, k)); k++) try_kind(search, attempt);
    if (!search->count) try_all(search, need, told, size);
    for (int i = 0; i < search->count; i++) {
        const char *before = i == 0 ? "; it would fit with " : i + 1 < search->count ? ", " : " or ";
        snprintf(told + strlen(told), size - strlen(told), "%s%s", before, search->told[i]);
    }
}

/* ---- the line ---- */

static int refuse(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                  double extra, const struct sl_misfit *misfit, struct sl_error *error) {
    char needs[32], most[32], own[32], who[128], has[128], told[400] = "", of[200] = "";
    struct search search = {.job = job,
                            .engine = engine,
                            .given = memory,
                            .began = sl_now(),
                            .extra = extra,
                            .limit = misfit->limit,
                            .fullest = misfit->fullest};
    search.memory = calloc((size_t)job->mesh.size, sizeof *search.memory);
    if (search.memory && job->type->copy && sl_speaks(engine)) advise(&search, misfit->need, told, sizeof told);
    free(search.memory);
    sl_mesh_describe(&job->mesh, misfit->fullest, who, sizeof who);
    if (misfit->others)
        snprintf(of, sizeof of, ", %s of it at coordinate %s", sl_bytes_describe(misfit->most, most, sizeof most), who);
    if (misfit->besides > 0)
        snprintf(of + strlen(of), sizeof of - strlen(of), ", %s of it for libraries and stacks",
                 sl_bytes_describe(misfit->besides, own, sizeof own));
    return sl_error_set(error, SL_BAD_INPUT, "%s%s needs %s%s, and %s%s", misfit->others ? "the run" : "coordinate ",
                        misfit->others ? "" : who, sl_bytes_describe(misfit->need, needs, sizeof needs), of,
                        sl_limit_describe(misfit->limit, misfit->room, misfit->whole, has, sizeof has), told);
}

int sl_memory_refuse(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     struct sl_error *error) {
    struct sl_misfit misfit = {0};
    return sl_memory_fits(memory, &job->mesh, &misfit) ? SL_OK : refuse(job, engine, memory, 0, &misfit, error);
}

int sl_memory_refuse_early(const struct sl_job *job, const struct sl_engine *engine, double data, bool *planned,
                           struct sl_error *error) {
    struct sl_memory *memory = calloc((size_t)job->mesh.size, sizeof *memory);
    struct sl_error unread = {0};
    struct sl_misfit misfit = {0};
    int status = SL_OK;
    const struct sl_variant same = variant_of(job);
    struct sl_job *copy = memory && job->type->copy ? job->type->copy(job, &same, engine, &unread) : NULL;
    *planned = copy && plan(copy, engine, memory);
    if (*planned) {
        memory[0].planned.bytes[SL_MEMORY_BATCH] += (uint64_t)data;
        if (!sl_memory_fits(memory, &job->mesh, &misfit)) status = refuse(job, engine, memory, data, &misfit, error);
    }
    if (copy) job->type->free_copy(copy);
    free(memory);
    return status;
}
