/* memory_check.c - compares what a run needs with what the machine has. */
#include "drivers/training/memory_check.h"

#include <unistd.h>

double sl_memory_of_parameters(const struct sl_job *job, double parameters) {
    const struct sl_training_options *options = job->options;
    const double replicas = options->fsdp ? 1 : job->data, states = options->zero ? 1 : replicas;
    double copies = replicas;
    if (!job->forward_only) copies += replicas + sl_optimizer_states(&job->optimizer) * states;
    if (job->precision == SL_BF16) copies += replicas / 2;
    return sizeof(float) * parameters * copies;
}

int sl_memory_check(const struct sl_memory_need *need, struct sl_error *error) {
    const double bytes = need->parameters + need->activations + need->data;
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (bytes <= memory) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "the run needs at least %.1f GB (parameters %.1f, activations %.1f, data %.1f), this machine "
                        "has %.1f GB",
                        bytes / 1e9, need->parameters / 1e9, need->activations / 1e9, need->data / 1e9, memory / 1e9);
}

int sl_memory_check_planned(const struct sl_worker *worker) {
    struct sl_spmd *self = worker->self;
    size_t state, activations;
    sl_trainer_bytes(worker->trainer, &state, &activations);
    float sum[2] = {(float)state, (float)activations};
    SL_TRY(sl_psum(self, sl_trainer_world(worker->trainer), SL_F32, sum, sum, 2));
    const struct sl_memory_need need = {.parameters = (double)sum[0], .activations = (double)sum[1]};
    return sl_memory_check(&need, &self->error);
}
