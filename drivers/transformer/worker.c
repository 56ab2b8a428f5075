/* worker.c - one coordinate's part of the transformer: model, batches. */
#include <stdlib.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* Tokens of whole sequences. */
static size_t batch_tokens(const struct sl_worker *worker) {
    return (size_t)worker->job->local * (size_t)worker->job->sequence * (size_t)worker->job->parts;
}

int transformer_plan_bytes(struct sl_worker *worker, struct sl_budget *budget) {
    const struct transformer_job *job = transformer_job_of(worker);
    const size_t arrays = 2 + transformer_has_places(job);
    sl_budget_add(budget, SL_MEMORY_BATCH, arrays * batch_tokens(worker) * sizeof(int32_t));
    transformer_plan_choices(job, budget);
    const bool samples = job->command == TRANSFORMER_TRAIN && job->config->sample_every;
    return samples || job->command == TRANSFORMER_GENERATE ? transformer_plan_sampler(worker, budget) : SL_OK;
}

static int open_worker(struct sl_worker *worker, struct sl_trainer_options *options) {
    const struct transformer_job *job = transformer_job_of(worker);
    struct sl_spmd *self = worker->self;
    const size_t tokens = batch_tokens(worker);
    struct transformer_worker *own = worker->own = calloc(1, sizeof *own);
    if (!own) return sl_fail(self, SL_FAILED, "no memory for a coordinate");
    if (!worker->job->sizes_only) {
        own->inputs = calloc(tokens, sizeof *own->inputs);
        own->labels = calloc(tokens, sizeof *own->labels);
        if (!own->inputs || !own->labels) return sl_fail(self, SL_FAILED, "no memory for %zu tokens", tokens);
        sl_budget_add(&self->held, SL_MEMORY_BATCH, tokens * (sizeof *own->inputs + sizeof *own->labels));
        if (transformer_has_places(job)) {
            own->places = calloc(tokens, sizeof *own->places);
            if (!own->places) return sl_fail(self, SL_FAILED, "no memory for %zu tokens", tokens);
            sl_budget_add(&self->held, SL_MEMORY_BATCH, tokens * sizeof *own->places);
        }
    }
    options->pipeline.context_by = (enum sl_context_way)job->config->context_by;
    options->pipeline.rules = sl_transformer_rules(&job->model, self->mesh);
    options->pipeline.group_axes = sl_transformer_axes(self->mesh);
    options->optimizer.exact = true;
    options->adapters = job->adapters;
    options->source = job->in_file ? &job->blocks : NULL;
    options->alone =
        (struct sl_adapters_alone){.saved = job->adapters && !job->config->save_frozen, .loaded = job->base};
    if (job->command == TRANSFORMER_EVALUATE && !worker->job->sizes_only && !worker->job->gemm->on_device)
        own->crew = sl_crew_open(worker->job->cores_each);
    options->pipeline.crew = own->crew;
    struct sl_transformer model = job->model;
    model.halves = options->pipeline.storage == SL_BF16;
    return sl_transformer_build(&model, self->mesh, &worker->job->schedule, sl_axis_index(self, sl_pipe_axis),
                                &worker->model, &self->error);
}

static void close_worker(struct sl_worker *worker) {
    struct transformer_worker *own = worker->own;
    if (own) {
        transformer_close_sampler(own->sampler);
        sl_crew_close(own->crew);
        free(own->inputs);
        free(own->labels);
        free(own->places);
    }
    sl_model_free(&worker->model);
    free(own);
}

static const char *const axes[] = {
    [SL_JOB_DATA] = sl_data_axis, [SL_JOB_PIPE] = sl_pipe_axis, sl_tensor_axis, sl_context_axis, NULL};
const struct sl_job_type transformer_job_type = {
    .model = "the transformer",
    .axes = axes,
    .leaf_axis = sl_tensor_axis,
    .context_axis = sl_context_axis,
    .replica_axes = sl_replica_axes,
    .context_ways = transformer_context_ways,
    .tensor_layouts = transformer_tensor_layouts,
    .samples = "sequences",
    .halves = true,
    .open = open_worker,
    .gives = transformer_gives_values,
    .load = transformer_load_model,
    .adapt = transformer_load_adapters,
    .close = close_worker,
    .plan_bytes = transformer_plan_bytes,
    .copy = transformer_copy_job,
    .free_copy = transformer_free_copy,
    .heads = transformer_heads,
    .gentle = transformer_gentle_attempts,
    .harsh = transformer_harsh_attempts,
    .smaller = transformer_smaller_attempts,
};

int transformer_open_worker(struct sl_worker *worker, struct sl_spmd *self, struct transformer_job *job, bool *opened) {
    bool fits = false;
    *opened = false;
    SL_TRY(sl_worker_plan(worker, self, &job->job));
    SL_TRY(sl_memory_plan(worker, job->training.memory, &fits));
    if (!fits || job->job.sizes_only) return SL_OK;
    SL_TRY(sl_worker_open(worker, job->training.from));
    *opened = true;
    return SL_OK;
}
