/* memory_options.c - plans a job again and again, each time with one option more, and reports the options that help.
 *
 * Planning allocates no large memory and starts no processes. The speaking process does it, with a thread per
 * coordinate, for any engine: plans are the same for all engines except for channels, with slots at each end or
 * shared by both. */
#include "drivers/training/memory_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/engines.h"
#include "spmd/placement/topology.h"

enum { MOST_TOLD = 3, MOST_PASSES = 4096, MOST_MICROBATCHES = 256 }; /* a table of more actions takes long to make */
/* Limit of all plans together, and again of those that change the run, in seconds of computing, so the advice does
 * not depend on the machine's load. */
static const double most_seconds = 2;

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

/* Plans JOB and writes its bytes to MEMORY; returns false if it cannot be planned. */
static bool plan(struct sl_job *job, const struct sl_engine *engine, struct sl_memory *memory) {
    struct sl_engine_table table = sl_engine_local;
    struct sl_error unread = {0};
    const struct sl_engine here = {.table = &table, .timeout = engine->timeout, .error = &unread};
    struct planning planning = {job, memory};
    table.both_ends = engine->table->both_ends;
    return sl_run(&job->mesh, &here, program, &planning) == SL_OK;
}

/* ---- attempts ---- */

static struct sl_variant variant_of(const struct sl_job *job) {
    return (struct sl_variant){.options = *job->options, .mesh = job->mesh};
}

static bool shard_states(const struct sl_job *job, int attempt, struct sl_variant *variant,
                         char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    options->zero += attempt + 1;
    snprintf(text, SL_ATTEMPT_TEXT, "--zero %d", options->zero);
    return options->zero <= 2 && job->replicas > 1 && !job->forward_only;
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

/* A pass saves the rows of all its microbatches until their weight gradients: more passes with the same number of
 * microbatches save fewer rows. */
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
    if (job->replicas == 1 || attempt > !options->fsdp || (options->fsdp && !options->prefetch)) return false;
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

/* Turns replicas into ranks of a pipeline: fewer replicas hold the parameters. */
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

/* Smaller batches: this changes the training. */
static bool learn_from_less(const struct sl_job *job, int attempt, struct sl_variant *variant,
                            char text[SL_ATTEMPT_TEXT]) {
    struct sl_training_options *options = &variant->options;
    options->batch = job->options->batch >> (attempt + 1);
    snprintf(text, SL_ATTEMPT_TEXT, "--batch %d", options->batch);
    return !job->forward_only && options->batch >= job->data;
}

/* Attempts of all drivers, the mildest first. */
static sl_attempt *const general[] = {
    shard_states, group_less,     accumulate,   cut_smaller,    shard_parameters, one_forward_one_backward,
    recompute,    offload_states, round_stored, round_operands, fewer_replicas,   NULL};
/* Attempts with changes of the run, tried if no others suffice. */
static sl_attempt *const changing[] = {learn_from_less, NULL};

/* Returns attempt I: the driver's mild ones, the common ones, then the driver's others; NULL after the last.
 * CHANGES: attempts with changes of the run. */
static sl_attempt *attempt_of(const struct sl_job *job, bool changes, int i) {
    const struct sl_job_type *type = job->type;
    sl_attempt *const *const lists[2][3] = {{type->gentle, general, type->harsh}, {changing, type->smaller}};
    for (int l = 0; l < 3; l++) {
        for (sl_attempt *const *list = lists[changes][l]; list && *list; list++)
            if (i-- == 0) return *list;
    }
    return NULL;
}

/* ---- the search ---- */

enum { OPTIONS_TEXT = 320 };

/* Options, and the job's bytes with them. */
struct way {
    char text[OPTIONS_TEXT];
    double bytes;
};
struct ways {
    struct way way[MOST_TOLD];
    int count;
};

struct search {
    const struct sl_job *job;
    const struct sl_engine *engine;
    const struct sl_memory *given; /* [coordinates] of the original job: limits, hosts, processes */
    struct sl_memory *memory;      /* [coordinates] of the present attempt */
    double until, extra, need;     /* limit of worked(); bytes besides the planned ones; bytes of the original job */
    enum sl_limit limit;           /* exceeded limit; byte counts are of the coordinates sharing it */
    int fullest;
    bool least; /* looks for the least need instead of a sufficient one */
};

/* Returns the bytes of the coordinates sharing the exceeded limit, with the job changed to VARIANT; NAN if it cannot
 * be planned. *FITS: whether the job fits. */
static double plan_with(struct search *search, const struct sl_variant *variant, bool *fits) {
    const struct sl_job *job = search->job;
    struct sl_error unread = {0};
    struct sl_misfit misfit = {0};
    struct sl_job *copy = job->type->copy(job, variant, search->engine, &unread);
    const bool planned = copy && plan(copy, search->engine, search->memory);
    if (copy) job->type->free_copy(copy);
    if (!planned) return NAN;
    for (int c = 0; c < job->mesh.size; c++) {
        const struct sl_budget budget = search->memory[c].planned;
        search->memory[c] = search->given[c];
        search->memory[c].planned = budget;
    }
    const double extra = search->extra * variant->options.batch / job->options->batch; /* examples of a batch */
    search->memory[0].planned.bytes[SL_MEMORY_BATCH] += (uint64_t)extra;
    *fits = !search->least && sl_memory_fits(search->memory, &job->mesh, &misfit);
    return sl_memory_sharing(search->memory, &job->mesh, search->fullest, search->limit).need;
}

/* Returns this process's seconds of computing, divided by the cores available to the planning threads. */
static double worked(const struct sl_job *job) {
    struct timespec time;
    const int usable = sl_topology_usable(), cores = usable < job->mesh.size ? usable : job->mesh.size;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return ((double)time.tv_sec + 1e-9 * (double)time.tv_nsec) / (cores > 1 ? cores : 1);
}

static bool has_time(const struct search *search) { return worked(search->job) < search->until; }

static void add(struct ways *ways, const struct way *way) {
    if (ways->count < MOST_TOLD) ways->way[ways->count++] = *way;
}

/* Finds the first of the ATTEMPT's changes that makes BASE fit, and writes it to WAY. Returns false if none does;
 * WAY is then the change with the least need, if one is below NEED. */
static bool try_kind(struct search *search, const struct sl_variant *base, double need, sl_attempt *attempt,
                     struct way *way) {
    *way = (struct way){.bytes = need};
    for (int i = 0; has_time(search); i++) {
        struct sl_variant variant = *base;
        char text[SL_ATTEMPT_TEXT];
        bool fits = false;
        if (!attempt(search->job, i, &variant, text)) return false;
        const double bytes = plan_with(search, &variant, &fits);
        if (isnan(bytes) || (!fits && bytes >= way->bytes)) continue;
        snprintf(way->text, sizeof way->text, "%s", text);
        way->bytes = bytes;
        if (fits) return true;
    }
    return false;
}

/* Combines the last change of each kind that lowers the need, until the job fits. Writes the options to WAY, and
 * changes VARIANT to the job with them. Returns whether it fits. */
static bool try_all(struct search *search, struct sl_variant *variant, struct way *way) {
    bool fits = false;
    sl_attempt *attempt;
    for (int k = 0; !fits && (attempt = attempt_of(search->job, false, k)); k++) {
        for (int i = 0; has_time(search); i++) {
            struct sl_variant next = *variant, alone = variant_of(search->job);
            char text[SL_ATTEMPT_TEXT], other[SL_ATTEMPT_TEXT];
            bool enough = false;
            const size_t used = strlen(way->text);
            if (!attempt(search->job, i, &next, text)) break;
            const double bytes = plan_with(search, &next, &enough);
            if (!(bytes < way->bytes) || used + strlen(text) + 2 > sizeof way->text) continue;
            if (attempt(search->job, i + 1, &alone, other)) continue; /* a later change needs at most as much */
            snprintf(way->text + used, sizeof way->text - used, "%s%s", used ? " " : "", text);
            *variant = next, way->bytes = bytes, fits = enough;
        }
    }
    return fits;
}

/* Tries changes of the run. Adds to FIT the changes that suffice alone. Otherwise, for the job BASE, which needs
 * NEED, adds to BESIDE the changes that make BASE fit. Adds the best of the rest to NEAR. */
static void try_changes(struct search *search, const struct sl_variant *base, double need, struct ways *fit,
                        struct ways *beside, struct ways *near) {
    const struct sl_variant same = variant_of(search->job);
    sl_attempt *attempt;
    struct way way;
    search->until = worked(search->job) + most_seconds;
    for (int k = 0; fit->count < MOST_TOLD && (attempt = attempt_of(search->job, true, k)); k++) {
        if (try_kind(search, &same, search->need, attempt, &way))
            add(fit, &way);
        else if (base && try_kind(search, base, need, attempt, &way))
            add(beside, &way);
        else if (*way.text)
            add(near, &way);
    }
}

/* "; it would fit with A (1.20 GB), B (1.10 GB) or C (1.00 GB)". */
static void tell(const struct ways *ways, const char *begin, const char *last, char *told, size_t size) {
    char figure[32];
    for (int i = 0; i < ways->count; i++) {
        const size_t used = strlen(told);
        const char *before = i == 0 ? begin : i + 1 < ways->count ? ", " : last;
        snprintf(told + used, size - used, "%s%s (%s)", before, ways->way[i].text,
                 sl_bytes_describe(ways->way[i].bytes, figure, sizeof figure));
    }
}

/* Writes up to three ways to fit; if there are fewer, also the best attempts. */
static void advise(struct search *search, char *told, size_t size) {
    const struct sl_variant same = variant_of(search->job);
    struct sl_variant all = same;
    struct way way, together = {.bytes = search->need};
    struct ways fit = {.count = 0}, beside = {.count = 0}, near = {.count = 0};
    char figure[32];
    sl_attempt *attempt;
    for (int k = 0; fit.count < MOST_TOLD && (attempt = attempt_of(search->job, false, k)); k++)
        if (try_kind(search, &same, search->need, attempt, &way)) add(&fit, &way);
    const bool alone = fit.count > 0, enough = !alone && try_all(search, &all, &together);
    const bool adds = !alone && !enough && *together.text;
    if (enough) add(&fit, &together);
    try_changes(search, adds ? &all : NULL, together.bytes, &fit, &beside, &near);
    tell(&fit, "; it would fit with ", " or ", told, size);
    if (fit.count == MOST_TOLD || alone || enough) return;
    if (adds)
        snprintf(told + strlen(told), size - strlen(told), "; with %s it would still need %s", together.text,
                 sl_bytes_describe(together.bytes, figure, sizeof figure));
    tell(&beside, "; beside these it would fit with ", " or ", told, size);
    const char *nearest = beside.count ? ", and come nearest with "
                          : adds       ? "; beside these it would come nearest with "
                                       : "; it would come nearest with ";
    tell(&near, nearest, " or ", told, size);
}

bool sl_memory_least(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     int fullest, char *text, size_t size, double *bytes) {
    const struct sl_variant same = variant_of(job);
    struct search search = {.job = job,
                            .engine = engine,
                            .given = memory,
                            .memory = calloc((size_t)job->mesh.size, sizeof *search.memory),
                            .until = worked(job) + most_seconds,
                            .limit = SL_LIMIT_DEVICE,
                            .fullest = fullest,
                            .least = true};
    sl_attempt *attempt;
    struct way way, best = {.bytes = sl_memory_sharing(memory, &job->mesh, fullest, SL_LIMIT_DEVICE).need};
    for (int k = 0; search.memory && job->type->copy && (attempt = attempt_of(job, false, k)); k++) {
        try_kind(&search, &same, best.bytes, attempt, &way);
        if (*way.text) best = way;
    }
    free(search.memory);
    snprintf(text, size, "%s", best.text);
    *bytes = best.bytes;
    return *best.text != '\0';
}

/* ---- the message ---- */

static int refuse(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                  double extra, const struct sl_misfit *misfit, struct sl_error *error) {
    char needs[32], most[32], own[32], who[128], has[128], told[600] = "", of[200] = "", parts[SL_BUDGET_TEXT];
    struct search search = {.job = job,
                            .engine = engine,
                            .given = memory,
                            .until = worked(job) + most_seconds,
                            .extra = extra,
                            .need = misfit->need,
                            .limit = misfit->limit,
                            .fullest = misfit->fullest};
    search.memory = calloc((size_t)job->mesh.size, sizeof *search.memory);
    if (search.memory && job->type->copy && sl_speaks(engine)) advise(&search, told, sizeof told);
    free(search.memory);
    sl_mesh_describe(&job->mesh, misfit->fullest, who, sizeof who);
    if (misfit->besides > 0)
        snprintf(of, sizeof of, ", %s of it for libraries and stacks",
                 sl_bytes_describe(misfit->besides, own, sizeof own));
    if (misfit->others)
        snprintf(of + strlen(of), sizeof of - strlen(of), ", %s of it at coordinate %s",
                 sl_bytes_describe(misfit->most, most, sizeof most), who);
    return sl_error_set(error, SL_BAD_INPUT, "%s%s needs %s%s (%s), and %s%s",
                        misfit->others ? "the run" : "coordinate ", misfit->others ? "" : who,
                        sl_bytes_describe(misfit->need, needs, sizeof needs), of,
                        sl_budget_describe(&memory[misfit->fullest].planned, parts, sizeof parts),
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
