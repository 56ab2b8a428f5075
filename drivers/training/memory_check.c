/* memory_check.c - compares a run's memory with the available memory. */
#include "drivers/training/memory_check.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "drivers/training/memory_options.h"
#include "spmd/device/device.h"

/* Returns the floats per parameter in all coordinates together, for JOB with OPTIONS, at least: threads that share out
 * the optimizer's state hold values once. */
static double copies_of(const struct sl_job *job, const struct sl_training_options *options) {
    const bool trains = !job->forward_only, once = options->fsdp || (trains && options->zero);
    const double replicas = once ? 1 : job->replicas, states = replicas;
    const double gradients = options->fsdp || options->zero == 2 ? 1 : job->replicas;
    const bool stored = options->storage == 1, rounded = job->precision == SL_BF16;
    const bool alone = job->forward_only && stored && (rounded || job->gemm->widens); /* bf16 kernels only */
    double copies = alone ? 0 : replicas;
    if (trains) copies += gradients + sl_optimizer_states(&job->optimizer) * states;
    if (rounded || alone || (stored && trains)) copies += replicas / 2;
    return copies;
}

double sl_memory_of_parameters(const struct sl_job *job, double parameters) {
    return sizeof(float) * parameters * copies_of(job, job->options);
}

double sl_memory_of_values(const struct sl_job *job, double parameters) {
    return sizeof(float) * parameters * (job->options->fsdp ? 1 : job->replicas);
}

/* ---- by sizes alone ---- */

/* Returns the first limit exceeded by BYTES; SL_LIMITS: none. */
static enum sl_limit exceeded(const struct sl_limits *limits, double bytes) {
    int limit = 0;
    while (limit < SL_LIMIT_DEVICE && bytes <= limits->room[limit]) limit++;
    return limit < SL_LIMIT_DEVICE ? (enum sl_limit)limit : SL_LIMITS;
}

/* Whether planning is worth it: it takes time, and if the job is far too
 * large, no options make it fit on this machine. */
static bool can_be_planned(const struct sl_job *job, double bytes, double room) {
    enum { MOST_LAYERS = 256, FAR = 1024 };
    return job->layers / job->ranks <= MOST_LAYERS && bytes < FAR * room;
}

enum { MOST_MACHINES = 64 }; /* largest mesh in advice */

/* Advice for a job that cannot be planned. */
struct advice {
    const struct sl_job *job;
    const struct sl_memory_need *need;
    double room;
    char *text;
    size_t size;
    int count;
};

static void advise(struct advice *advice, const char *what, double bytes) {
    char figure[32];
    const size_t used = strlen(advice->text);
    snprintf(advice->text + used, advice->size - used, "%s%s (%s)",
             advice->count++ ? ", or with " : "; by sizes alone it would fit with ", what,
             sl_bytes_describe(bytes, figure, sizeof figure));
}

/* Tries a batch with room for the parameters. */
static void try_batch(struct advice *advice) {
    const struct sl_memory_need *need = advice->need;
    const double batch = advice->job->options->batch, rows = need->activations + need->data;
    const double fits = floor(batch * (advice->room - need->parameters) / rows);
    char what[48];
    if (!(fits >= 1 && fits < batch)) return;
    snprintf(what, sizeof what, "--batch %.0f", fits);
    advise(advice, what, need->parameters + rows * fits / batch);
}

/* Returns the bytes of all coordinates together if replicas share all parameters among them. */
static double divided(const struct advice *advice, bool stored) {
    const struct sl_job *job = advice->job;
    const struct sl_memory_need *need = advice->need;
    struct sl_training_options options = *job->options;
    options.fsdp = true;
    options.storage = stored ? 1 : options.storage;
    return need->parameters * copies_of(job, &options) / copies_of(job, job->options) + need->activations + need->data;
}

/* Tries as many machines as necessary with a coordinate each, up to the largest mesh. */
static void try_machines(struct advice *advice, bool stored) {
    const double bytes = divided(advice, stored), machines = ceil(bytes / advice->room);
    char what[96];
    if (stored && bytes >= divided(advice, false)) return;
    if (machines < 2 || machines > MOST_MACHINES) return;
    snprintf(what, sizeof what, "--engine mpi --fsdp%s on %.0f machines with as much", stored ? " --storage bf16" : "",
             machines);
    advise(advice, what, bytes / machines);
}

/* Tries fewer layers, or, if not even one fits, fewer parameters. */
static void try_smaller(struct advice *advice) {
    const struct sl_memory_need *need = advice->need;
    const double model = need->parameters + need->activations, room = advice->room - need->data;
    const double layers = floor(advice->job->layers * room / model);
    char what[96];
    if (room <= 0 || model <= room) return;
    if (layers >= 1)
        snprintf(what, sizeof what, "about %.0f of its %d layers", layers, advice->job->layers);
    else
        snprintf(what, sizeof what, "a model of 1/%.0f of its size", ceil(model / room));
    advise(advice, what,
           need->data + (layers >= 1 ? model * layers / advice->job->layers : model / ceil(model / room)));
}

/* For a job that does not fit on MOST_MACHINES machines like this one: advises the memory that each would need, and the
 * part of the model that would fit on as many with this machine's memory. */
static void try_largest_mesh(struct advice *advice) {
    const bool stored = divided(advice, true) < divided(advice, false);
    const char *rounded = stored ? " --storage bf16" : "";
    const double each = divided(advice, stored) / MOST_MACHINES, times = ceil(each / advice->room);
    char what[128];
    if (each <= advice->room) return;
    snprintf(what, sizeof what, "--engine mpi --fsdp%s on %d machines with more", rounded, MOST_MACHINES);
    advise(advice, what, each);
    snprintf(what, sizeof what, "a model of 1/%.0f of its size on %d with as much", times, MOST_MACHINES);
    advise(advice, what, each / times);
}

static char *advise_by_sizes(const struct sl_job *job, const struct sl_memory_need *need, double room, char *text,
                             size_t size) {
    struct advice advice = {job, need, room, text, size, 0};
    *text = '\0';
    try_batch(&advice);
    try_machines(&advice, false);
    try_machines(&advice, true);
    try_largest_mesh(&advice);
    try_smaller(&advice);
    return text;
}

int sl_memory_check(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory_need *need,
                    double unplanned, struct sl_error *error) {
    const double bytes = need->parameters + need->activations + need->data;
    const struct sl_limits limits = sl_limits_now();
    const enum sl_limit limit = exceeded(&limits, bytes);
    char has[128], advice[400];
    bool planned;
    if (limit == SL_LIMITS) return SL_OK;
    if (can_be_planned(job, bytes, limits.room[limit])) {
        const int status = sl_memory_refuse_early(job, engine, unplanned, &planned, error);
        if (status || planned) return status;
    }
    return sl_error_set(error, SL_BAD_INPUT,
                        "the run needs at least %.1f GB (parameters %.1f, activations %.1f, data %.1f), and %s%s",
                        bytes / 1e9, need->parameters / 1e9, need->activations / 1e9, need->data / 1e9,
                        sl_limit_describe(limit, limits.room[limit], limits.whole[limit], has, sizeof has),
                        advise_by_sizes(job, need, limits.room[limit], advice, sizeof advice));
}

/* ---- by planning ---- */

int sl_memory_plan(struct sl_worker *worker, struct sl_memory *memory, bool *fits) {
    struct sl_spmd *self = worker->self;
    struct sl_budget planned = {0};
    struct sl_misfit misfit;
    SL_TRY(sl_worker_plan_bytes(worker, &planned));
    SL_TRY(sl_memory_gather_planned(self, &planned, memory));
    float too_much = self->coordinate == 0 && !sl_memory_fits(memory, self->mesh, &misfit);
    SL_TRY(sl_psum(self, sl_trainer_world(worker->trainer), SL_F32, &too_much, &too_much, 1));
    *fits = too_much == 0.0f;
    return SL_OK;
}

/* ---- memory refused by a device ---- */

static void add(struct sl_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct sl_error *error, const char *format, ...) {
    const size_t used = strlen(error->message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message + used, sizeof error->message - used, format, arguments);
    va_end(arguments);
}

static void add_refusal(const struct sl_refusal *refusal, struct sl_error *error) {
    char asked[32], room[32], whole[32];
    if (*refusal->why) {
        add(error, "; device %d: %s", refusal->device, refusal->why);
        return;
    }
    if (!refusal->whole) return;
    add(error, "; device %d had %s free of %s", refusal->device,
        sl_bytes_describe((double)refusal->room, room, sizeof room),
        sl_bytes_describe((double)refusal->whole, whole, sizeof whole));
    if (refusal->bytes)
        add(error, " when it was asked for %s", sl_bytes_describe((double)refusal->bytes, asked, sizeof asked));
}

/* Adds the planned bytes of DEVICE's coordinates, and the option with the largest saving. */
static void add_plan(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                     int device, struct sl_error *error) {
    char need[32], most[32], who[128], parts[SL_BUDGET_TEXT], option[128], with[32];
    double bytes;
    int c = 0;
    while (c < job->mesh.size && (memory[c].device != device || !sl_budget_total(&memory[c].planned))) c++;
    if (c == job->mesh.size) return; /* the run failed before planning */
    const struct sl_misfit sum = sl_memory_sharing(memory, &job->mesh, c, SL_LIMIT_DEVICE);
    sl_mesh_describe(&job->mesh, sum.fullest, who, sizeof who);
    sl_budget_describe(&memory[sum.fullest].planned, parts, sizeof parts);
    sl_bytes_describe(sum.need, need, sizeof need);
    if (sum.others)
        add(error, "; its %d coordinates need %s, %s of it coordinate %s (%s)", sum.others + 1, need,
            sl_bytes_describe(sum.most, most, sizeof most), who, parts);
    else
        add(error, "; coordinate %s needs %s (%s)", who, need, parts);
    if (sl_memory_least(job, engine, memory, sum.fullest, option, sizeof option, &bytes))
        add(error, ", and least with %s (%s)", option, sl_bytes_describe(bytes, with, sizeof with));
}

/* Explains only errors about memory, all of which have these words: an earlier refusal may have been harmless, and
 * the run failed for another reason. */
int sl_memory_explain(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory *memory,
                      struct sl_error *error) {
    struct sl_refusal refusal;
    const bool told = strstr(error->message, "no memory") || strstr(error->message, "out of memory");
    if (!told || !sl_speaks(engine) || !sl_device.refused || !sl_device.refused(&refusal)) return error->status;
    add_refusal(&refusal, error);
    if (!*refusal.why) add_plan(job, engine, memory, refusal.device, error);
    return error->status;
}
