/* sampler.c - continues prompts at one coordinate, in the replica of its data. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/formats/stores/safetensors.h"

struct transformer_sampler {
    struct sl_worker *worker;
    struct sl_generator *generator;
    int sequences;   /* per replica */
    int32_t *tokens; /* [sequences, length] */
    int32_t *all;    /* [data, sequences, length] */
    int *lengths;    /* [data, sequences]: final lengths of the samples */
    struct transformer_ending ending;
    float *logits; /* [length - 1, vocabulary]; NULL: not wanted */
    struct sl_group replicas;
};

static bool wants_logits(const struct transformer_job *job) {
    return job->command == TRANSFORMER_GENERATE && job->config->logits;
}

static struct sl_generation generation_of(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    return (struct sl_generation){
        .transformer = &job->model,
        .schedule = &job->job.schedule,
        .gemm = job->job.gemm,
        .precision = job->job.precision,
        .storage = job->job.options->storage == 1 ? SL_BF16 : SL_F32,
        .no_rewrite = job->job.options->no_rewrite,
        .sequences = transformer_own_samples(job),
        .in_flight = transformer_in_flight(job),
        .groups = transformer_groups(job),
        .prompt = sl_prompt_length(&job->prompts, 0),
        .length = job->length,
        .cache = transformer_cache(job),
        .logits = wants_logits(job),
        .unpacked = !config->copies,
        .threads = config->threads ? config->threads : job->job.cores_each,
        .sampling = {config->temperature, config->top_k, config->top_p},
        .never = job->textless.token,
        .nevers = (int)job->textless.count,
        .seed = config->common.seed,
    };
}

/* Samples of a training, and samples with logits, have their full length. */
static struct transformer_ending ending_of(const struct transformer_job *job) {
    struct transformer_ending ending = {.job = job, .turn = -1};
    if (job->command == TRANSFORMER_GENERATE && !job->config->logits) transformer_open_ending(&ending, job);
    return ending;
}

int transformer_open_generator(struct sl_generator **generator, struct sl_worker *worker,
                               struct transformer_ending *ending, bool sizes_only) {
    const struct transformer_job *job = transformer_job_of(worker);
    const int samples = transformer_own_samples(job) * job->job.data;
    struct sl_generation generation = generation_of(job);
    int *prompts = calloc((size_t)samples, sizeof *prompts);
    if (!prompts) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    for (int i = 0; i < samples; i++) prompts[i] = sl_prompt_length(&job->prompts, transformer_prompt_of(job, i));
    generation.prompts = prompts;
    generation.sizes_only = sizes_only;
    generation.arg = ending;
    generation.converses = job->config->interactive;
    if (transformer_has_ending(ending) || generation.converses) generation.ends = transformer_ends;
    if (generation.converses && ending->printer) generation.stops = transformer_stops_talk;
    if (ending->printer) generation.told = transformer_print_token;
    const int status = sl_generator_open(generator, worker->self, &generation, sl_trainer_parameters(worker->trainer));
    free(prompts);
    return status;
}

/* Counts the elements of the sampler's own arrays. */
static size_t room_tokens(const struct transformer_job *job) {
    if (job->config->interactive) return (size_t)job->length;
    return (size_t)transformer_own_samples(job) * (size_t)job->length * (1 + (size_t)job->job.data);
}

static size_t logits_of(const struct transformer_job *job) {
    return wants_logits(job) ? (size_t)(job->length - 1) * (size_t)job->model.vocabulary : 0;
}

int transformer_plan_sampler(struct sl_worker *worker, struct sl_budget *budget) {
    const struct transformer_job *job = transformer_job_of(worker);
    struct transformer_ending ending = ending_of(job);
    struct sl_generator *generator = NULL;
    const int status = transformer_open_generator(&generator, worker, &ending, true);
    if (status == SL_OK) sl_generator_plan_bytes(generator, budget);
    sl_generator_close(generator);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, room_tokens(job) * sizeof(int32_t) + logits_of(job) * sizeof(float));
    return status;
}

/* Whether text is printed as it is generated: a single sample, read by people. */
static bool streams(const struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    return worker->self->coordinate == 0 && job->command == TRANSFORMER_GENERATE && !job->config->common.json &&
           transformer_samples(job) == 1 && transformer_shows_text(job);
}

int transformer_open_sampler(struct transformer_sampler **sampler, struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    const int sequences = transformer_own_samples(job);
    const size_t count = (size_t)sequences * (size_t)job->length;
    struct transformer_sampler *s = *sampler = calloc(1, sizeof *s);
    if (!s) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    s->worker = worker;
    s->sequences = sequences;
    s->tokens = calloc(count, sizeof *s->tokens);
    s->all = calloc(count * (size_t)job->job.data, sizeof *s->all);
    s->lengths = calloc((size_t)sequences * (size_t)job->job.data, sizeof *s->lengths);
    s->logits = wants_logits(job) ? calloc(logits_of(job) + 1, sizeof *s->logits) : NULL;
    if (!s->tokens || !s->all || !s->lengths || (wants_logits(job) && !s->logits))
        return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    sl_budget_add(&worker->self->held, SL_MEMORY_RUNTIME,
                  room_tokens(job) * sizeof *s->tokens + logits_of(job) * sizeof *s->logits);
    if (job->job.data > 1) SL_TRY(sl_group_axes(worker->self, sl_data_axis, &s->replicas));
    s->ending = ending_of(job);
    if (streams(worker))
        SL_TRY(transformer_open_printer(&s->ending, sl_prompt_tokens(&job->prompts, 0),
                                        sl_prompt_length(&job->prompts, 0), &worker->self->error));
    return transformer_open_generator(&s->generator, worker, &s->ending, false);
}

void transformer_close_sampler(struct transformer_sampler *s) {
    if (!s) return;
    sl_generator_close(s->generator);
    sl_group_close(s->worker->self, &s->replicas);
    free(s->tokens);
    free(s->all);
    free(s->lengths);
    transformer_close_printer(&s->ending);
    free(s->logits);
    free(s);
}

/* Writes the prompts of this replica's samples. */
static void write_prompts(const struct transformer_sampler *s) {
    const struct transformer_job *job = transformer_job_of(s->worker);
    const int first = sl_axis_index(s->worker->self, sl_data_axis) * s->sequences;
    for (int i = 0; i < s->sequences; i++) {
        const int prompt = transformer_prompt_of(job, first + i), length = sl_prompt_length(&job->prompts, prompt);
        memcpy(s->tokens + (size_t)i * (size_t)job->length, sl_prompt_tokens(&job->prompts, prompt),
               (size_t)(length < job->length ? length : job->length) * sizeof *s->tokens);
    }
}

static int write_logits(const struct transformer_job *job, const float *logits, struct sl_error *error) {
    const size_t shape[] = {(size_t)(job->length - 1), (size_t)job->model.vocabulary};
    struct sl_store store = {0};
    struct sl_tensor *tensor = sl_store_add(&store, "logits", SL_F32, 2, shape);
    int status = tensor ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for the logits");
    if (tensor) memcpy(tensor->array.data, logits, sl_tensor_bytes(tensor));
    if (tensor) status = sl_safetensors_write(&store, job->config->logits, error);
    sl_store_free(&store);
    return status;
}

/* Gathers the lengths of all replicas from each replica's own. */
static int gather_lengths(struct transformer_sampler *s) {
    struct sl_spmd *self = s->worker->self;
    int32_t *own = s->lengths + (size_t)sl_axis_index(self, sl_data_axis) * (size_t)s->sequences;
    memmove(own, s->lengths, (size_t)s->sequences * sizeof *own);
    return sl_all_gather(self, &s->replicas, SL_I32, own, s->lengths, (size_t)s->sequences);
}

int transformer_sampler_run(struct transformer_sampler *s, int64_t step, struct sl_generated *generated) {
    struct transformer_job *job = transformer_job_of(s->worker);
    struct sl_spmd *self = s->worker->self;
    const int32_t *all = s->tokens;
    const size_t sequences = (size_t)s->sequences;
    write_prompts(s);
    *generated = (struct sl_generated){.tokens = s->tokens, .lengths = s->lengths, .logits = s->logits};
    SL_TRY(sl_generator_run(s->generator, generated));
    if (s->replicas.size > 1) {
        SL_TRY(sl_all_gather(self, &s->replicas, SL_I32, s->tokens, s->all, sequences * (size_t)job->length));
        SL_TRY(gather_lengths(s));
        all = s->all;
    }
    if (self->coordinate > 0) return SL_OK;
    if (s->logits) SL_TRY(write_logits(job, s->logits, &self->error));
    if (!s->ending.printer) return transformer_print_samples(job, step, all, s->lengths, &self->error);
    return transformer_end_print(&s->ending, &self->error);
}

int transformer_sample(struct transformer_sampler *s, int64_t step) {
    struct sl_generated generated;
    if (s->worker->self->coordinate == 0) sl_progress_clear(&transformer_job_of(s->worker)->training.report.progress);
    return transformer_sampler_run(s, step, &generated);
}
