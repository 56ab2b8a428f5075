/* memory_check.c - compares what a run needs with what there is. */
#include "drivers/training/memory_check.h"

#include <string.h>

#include "drivers/training/memory_options.h"

double sl_memory_of_parameters(const struct sl_job *job, double parameters) {
    const struct sl_training_options *options = job->options;
    const double replicas = options->fsdp ? 1 : job->data, states = options->zero ? 1 : replicas;
    const double gradients = options->zero == 2 ? 1 : replicas;
    const bool stored = options->storage == 1, rounded = job->precision == SL_BF16;
    const bool alone = job->forward_only && stored && (rounded || job->gemm->widens); /* kernels are bf16 */
    double copies = alone ? 0 : replicas;
    if (!job->forward_only) copies += gradients + sl_optimizer_states(&job->optimizer) * states;
    if (rounded || alone || (stored && !job->forward_only)) copies += replicas / 2;
    return sizeof(float) * parameters * copies;
}

/* ---- by sizes alone ---- */

/* The first limit that BYTES exceed; SL_LIMITS: none. */
static enum sl_limit exceeded(const struct sl_limits *limits, double bytes) {
    int limit = 0;
    while (limit < SL_LIMIT_DEVICE && bytes <= limits->room[limit]) limit++;
    return limit < SL_LIMIT_DEVICE ? (enum sl_limit)limit : SL_LIMITS;
}

/* Planning takes time with the square of a stage's parameters, and what is far too large no option makes fit. */
static bool can_be_planned(const struct sl_job *job, double bytes, double room) {
    enum { MOST_LAYERS = 256, FAR = 1024 };
    return job->layers / job->ranks <= MOST_LAYERS && bytes < FAR * room;
}

int sl_memory_check(const struct sl_job *job, const struct sl_engine *engine, const struct sl_memory_need *need,
                    double unplanned, struct sl_error *error) {
    const double bytes = need->parameters + need->activations + need->data;
    const struct sl_limits limits = sl_limits_now();
    const enum sl_limit limit = exceeded(&limits, bytes);
    char has[128];
    bool planned;
    if (limit == SL_LIMITS) return SL_OK;
    if (can_be_planned(job, bytes, limits.room[limit])) {
        const int status = sl_memory_refuse_early(job, engine, unplanned, &planned, error);
        if (status || planned) return status;
    }
    return sl_error_set(error, SL_BAD_INPUT,
                        "the run needs at least %.1f GB (parameters %.1f, activations %.1f, data %.1f), and %s",
                        bytes / 1e9, need->parameters / 1e9, need->activations / 1e9, need->data / 1e9,
                        sl_limit_describe(limit, limits.room[limit], limits.whole[limit], has, sizeof has));
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
