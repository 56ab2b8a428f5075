/* memory.c - what the transformer needs at least, told from its sizes alone. */
#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* Tables of rotary positions: each coordinate has cosines and sines of the pairs of the shared key, and of its heads'
 * queries. The last layer of a block has no rotary positions, and it may be the only one. */
static double rotary_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    if (m->layers_per_block < 2) return 0;
    const double keys = m->rope,
                 queries = (double)m->rope * m->heads / sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis);
    return (double)m->positions * (keys + queries) * job->job.mesh.size;
}

/* For each token of each sample, in all layers: keys and values, or the latent at each coordinate along the tensor
 * axis. */
static double cached_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    const double layers = (double)m->blocks * m->layers_per_block;
    const double latents = (double)m->latent * sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis);
    const double floats = job->config->cache == SL_CACHE_LATENT ? latents : 2.0 * m->dimension;
    return (double)job->config->samples * job->length * layers * floats;
}

/* Logits of all rows of a pass, and their gradients. */
static double logit_floats(const struct transformer_job *job, double tokens) {
    return 2 * tokens / job->config->training.accumulate * job->model.vocabulary;
}

int transformer_check_memory(const struct transformer_job *job, struct sl_error *error) {
    const bool generates = job->command == TRANSFORMER_GENERATE;
    const double tokens = (double)job->config->training.batch * job->config->sequence;
    const double computed = generates ? cached_floats(job) : job->job.forward_only ? 0 : logit_floats(job, tokens);
    const struct sl_memory_need need = {
        .parameters = sl_memory_of_parameters(&job->job, sl_transformer_parameters(&job->model)),
        .activations = sizeof(float) * (rotary_floats(job) + computed),
        .data = generates ? 0 : 2 * sizeof(int32_t) * tokens,
    };
    if (!job->one_machine || job->job.sizes_only) return SL_OK;
    return sl_memory_check(&need, error);
}
