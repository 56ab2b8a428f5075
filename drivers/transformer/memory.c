/* memory.c - what the transformer needs at least, told from its sizes alone. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"
#include "layers/modules/sequence/token_chunks.h"

/* Tables of rotary positions: each coordinate has cosines and sines of the pairs of the shared key, and of its heads'
 * queries. The last layer of a block has no rotary positions, and it may be the only one. */
static double rotary_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    if (m->layers_per_block < 2) return 0;
    const double keys = m->rope,
                 queries = (double)m->rope * m->heads / sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis);
    return (double)m->positions * (keys + queries) * job->job.mesh.size;
}

/* Caches of all coordinates together. Each coordinate along the tensor axis has the latents and the rotary keys, or its
 * heads' keys and values; the last layer of a block has no rotary keys. With latents each replica has tables of kv_up
 * (layers/modules/sequence/mla_caches.c). */
static double cached_floats(const struct transformer_job *job) {
    const struct sl_transformer *m = &job->model;
    const bool latent = job->config->cache == SL_CACHE_LATENT;
    const double tensor = sl_mesh_axis_size(&job->job.mesh, sl_tensor_axis), data = job->job.data;
    const double layers = (double)m->blocks * m->layers_per_block;
    const double rotary = (layers - m->blocks) * m->rope * tensor;
    const double once = latent ? 2 * data * layers * m->latent * m->dimension : 0;
    const double floats = rotary + layers * (latent ? m->latent * tensor : 2.0 * m->dimension);
    return once + ceil(job->config->samples / data) * data * job->length * floats;
}

/* The head's logits of a chunk of classes, and their softmax where there is a backward pass: for a microbatch of each
 * replica at least. */
static double logit_floats(const struct transformer_job *job, double tokens) {
    const struct sl_vocabulary vocabulary = {.size = job->model.vocabulary, .chunk = job->model.chunk};
    const double rows = tokens / job->config->training.accumulate / job->job.schedule.microbatches;
    return (job->job.forward_only ? 1 : 2) * rows * (double)sl_token_chunk(&vocabulary);
}

int transformer_check_memory(const struct transformer_job *job, const struct sl_engine *engine,
                             struct sl_error *error) {
    const bool generates = job->command == TRANSFORMER_GENERATE;
    const double tokens = (double)job->config->training.batch * job->config->sequence;
    const double computed = generates ? cached_floats(job) : logit_floats(job, tokens);
    const struct sl_memory_need need = {
        .parameters = sl_memory_of_parameters(&job->job, sl_transformer_parameters(&job->model)),
        .activations = sizeof(float) * (rotary_floats(job) + computed),
        .data = generates ? 0 : 2 * sizeof(int32_t) * tokens,
    };
    if (!job->one_machine || job->job.sizes_only) return SL_OK;
    return sl_memory_check(&job->job, engine, &need, 0, error);
}

/* ---- the same with other options ---- */

struct copy {
    struct transformer_config config;
    struct transformer_job job;
};

struct sl_job *transformer_copy_job(const struct sl_job *from, const struct sl_training_options *options,
                                    const struct sl_engine *engine, struct sl_error *error) {
    const struct transformer_job *old = from->own;
    struct copy *copy = calloc(1, sizeof *copy);
    if (!copy) return NULL;
    struct transformer_job *job = &copy->job;
    copy->config = *old->config;
    copy->config.training = *options;
    *job = *old;
    job->config = &copy->config;
    job->model.recomputation = options->recompute;
    job->model.fsdp = options->fsdp;
    job->job = (struct sl_job){.type = from->type,
                               .options = &copy->config.training,
                               .own = job,
                               .seed = from->seed,
                               .sequence = from->sequence,
                               .forward_only = from->forward_only,
                               .local = 1,
                               .pass = 1};
    int status = sl_job_open(&job->job, &from->mesh, engine, error);
    if (status == SL_OK) status = sl_transformer_check(&job->model, &job->job.mesh, error);
    if (status == SL_OK) status = transformer_fit(job, error);
    job->job.sizes_only = true;
    if (status == SL_OK) return &job->job;
    transformer_free_copy(&job->job);
    return NULL;
}

/* What the job has beside its schedule is the other one's. */
void transformer_free_copy(struct sl_job *copy) {
    struct transformer_job *job = copy->own;
    sl_job_close(copy);
    free((char *)job - offsetof(struct copy, job));
}
