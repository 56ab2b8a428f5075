/* worker.c - one coordinate's part of the transformer: model, batches. */
#include <stdlib.h>

#include "drivers/transformer/transformer.h"

static int open_worker(struct sl_worker *worker, struct sl_trainer_options *options) {
    const struct transformer_job *job = transformer_job_of(worker);
    struct sl_spmd *self = worker->self;
    const size_t tokens = (size_t)worker->job->local * (size_t)worker->job->sequence;
    struct transformer_worker *own = worker->own = calloc(1, sizeof *own);
    if (!own) return sl_fail(self, SL_FAILED, "no memory for a coordinate");
    if (!worker->job->sizes_only) {
        own->inputs = calloc(tokens, sizeof *own->inputs);
        own->labels = calloc(tokens, sizeof *own->labels);
        if (!own->inputs || !own->labels) return sl_fail(self, SL_FAILED, "no memory for %zu tokens", tokens);
    }
    options->pipeline.rules = sl_transformer_rules(&job->model);
    options->pipeline.group_axes = sl_transformer_axes;
    options->optimizer.exact = true;
    return sl_transformer_build(&job->model, self->mesh, &worker->job->schedule, sl_axis_index(self, sl_pipe_axis),
                                &worker->model, &self->error);
}

static void close_worker(struct sl_worker *worker) {
    struct transformer_worker *own = worker->own;
    if (own) {
        transformer_close_sampler(own->sampler);
        free(own->inputs);
        free(own->labels);
    }
    sl_model_free(&worker->model);
    free(own);
}

static const char *const axes[] = {[SL_JOB_DATA] = sl_data_axis, [SL_JOB_PIPE] = sl_pipe_axis, sl_tensor_axis, NULL};
const struct sl_job_type transformer_job_type = {"the transformer", axes, "sequences", open_worker, close_worker};

int transformer_open_worker(struct sl_worker *worker, struct sl_spmd *self, struct transformer_job *job) {
    SL_TRY(sl_worker_plan(worker, self, &job->job));
    return sl_worker_open(worker, job->training.from);
}

int transformer_fetch(struct sl_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch) {
    const struct transformer_job *job = transformer_job_of(worker);
    const struct transformer_worker *own = worker->own;
    const int64_t mine = first + (int64_t)sl_axis_index(worker->self, sl_data_axis) * worker->job->local;
    const struct sl_tokens *tokens = evaluation && job->eval_tokens.files ? &job->eval_tokens : &job->tokens;
    const int status = sl_tokens_fetch(tokens, evaluation, worker->job->seed, mine, worker->job->local,
                                       worker->job->sequence, own->inputs, own->labels, &worker->self->error);
    *batch = (struct sl_batch){
        .rows = worker->job->local * worker->job->sequence, .tokens = own->inputs, .labels = own->labels};
    return status;
}
