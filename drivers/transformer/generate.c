/* generate.c - continues the prompt: alone, or now and then during a training. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

struct transformer_sampler {
    struct sl_worker *worker;
    struct sl_generator *generator;
    int sequences;   /* of a replica */
    int32_t *tokens; /* [sequences, length] */
    int32_t *all;    /* [data, sequences, length] */
    struct sl_group replicas;
};

/* Of a replica. */
static int sequences_of(const struct transformer_job *job) {
    return (job->config->samples + job->job.data - 1) / job->job.data;
}

static struct sl_generation generation_of(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    return (struct sl_generation){
        .transformer = &job->model,
        .schedule = &job->job.schedule,
        .gemm = job->job.gemm,
        .precision = job->job.precision,
        .storage = job->job.options->storage == 1 ? SL_BF16 : SL_F32,
        .sequences = sequences_of(job),
        .prompt = job->prompt_length,
        .length = job->length,
        .cache = (enum sl_cache_form)config->cache,
        .threads = config->threads ? config->threads : job->job.cores_each,
        .sampling = {config->temperature, config->top_k, config->top_p},
        .seed = config->common.seed,
    };
}

/* Elements of the sampler's own arrays. */
static size_t room_tokens(const struct transformer_job *job) {
    return (size_t)sequences_of(job) * (size_t)job->length * (1 + (size_t)job->job.data);
}

int transformer_plan_sampler(struct sl_worker *worker, struct sl_budget *budget) {
    const struct transformer_job *job = transformer_job_of(worker);
    struct sl_generation generation = generation_of(job);
    struct sl_generator *generator = NULL;
    generation.sizes_only = true;
    int status = sl_generator_open(&generator, worker->self, &generation, sl_trainer_parameters(worker->trainer));
    if (status == SL_OK) sl_generator_plan_bytes(generator, budget);
    sl_generator_close(generator);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, room_tokens(job) * sizeof(int32_t));
    return status;
}

int transformer_open_sampler(struct transformer_sampler **sampler, struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    const int sequences = sequences_of(job);
    const size_t count = (size_t)sequences * (size_t)job->length;
    const struct sl_generation generation = generation_of(job);
    struct transformer_sampler *s = *sampler = calloc(1, sizeof *s);
    if (!s) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    s->worker = worker;
    s->sequences = sequences;
    s->tokens = calloc(count, sizeof *s->tokens);
    s->all = calloc(count * (size_t)job->job.data, sizeof *s->all);
    if (!s->tokens || !s->all) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    sl_budget_add(&worker->self->held, SL_MEMORY_RUNTIME, room_tokens(job) * sizeof *s->tokens);
    if (job->job.data > 1) SL_TRY(sl_group_axes(worker->self, sl_data_axis, &s->replicas));
    return sl_generator_open(&s->generator, worker->self, &generation, sl_trainer_parameters(worker->trainer));
}

void transformer_close_sampler(struct transformer_sampler *s) {
    if (!s) return;
    sl_generator_close(s->generator);
    sl_group_close(s->worker->self, &s->replicas);
    free(s->tokens);
    free(s->all);
    free(s);
}

/* ---- what coordinate 0 says ---- */

/* Outside of a training. */
enum { NO_STEP = -1 };

/* A copy of a sample's tokens, each of which is a byte; NULL without memory. */
static uint8_t *bytes_of(const struct transformer_job *job, const int32_t *tokens) {
    uint8_t *bytes = malloc((size_t)job->length + 1);
    for (int i = 0; bytes && i < job->length; i++) bytes[i] = (uint8_t)tokens[i];
    return bytes;
}

/* What is no UTF-8 is lost in the text; the tokens have it. */
static json_t *json_text(const struct transformer_job *job, const int32_t *tokens) {
    uint8_t *bytes = bytes_of(job, tokens);
    char *text = malloc(3 * (size_t)job->length + 1);
    json_t *string = NULL;
    if (bytes && text) string = json_stringn(text, sl_utf8_of_bytes(bytes, (size_t)job->length, text));
    free(bytes);
    free(text);
    return string;
}

static int print_json(struct transformer_job *job, int64_t step, int number, const int32_t *tokens, bool text,
                      struct sl_error *error) {
    json_t *list = json_array(), *object = json_object();
    for (int i = 0; list && i < job->length; i++) json_array_append_new(list, json_integer(tokens[i]));
    if (step != NO_STEP) json_object_set_new(object, "step", json_integer(step));
    json_object_set_new(object, "sample", json_integer(number));
    json_object_set_new(object, "tokens", list);
    if (text) json_object_set_new(object, "text", json_text(job, tokens));
    return sl_report_print(&job->training.report, object, error);
}

/* Each line begins with MARGIN. */
static int print_text(const struct transformer_job *job, const int32_t *tokens, const char *margin,
                      struct sl_error *error) {
    uint8_t *bytes = bytes_of(job, tokens);
    if (!bytes) return sl_error_set(error, SL_FAILED, "no memory for a sample's text");
    const uint8_t *line = bytes, *end = bytes + job->length;
    while (line <= end) {
        const uint8_t *newline = memchr(line, '\n', (size_t)(end - line)), *next = newline ? newline : end;
        fputs(margin, stdout);
        sl_print_bytes(stdout, line, (size_t)(next - line));
        putchar('\n');
        line = next + 1;
    }
    free(bytes);
    return SL_OK;
}

static void print_numbers(const struct transformer_job *job, const int32_t *tokens, const char *margin) {
    fputs(margin, stdout);
    for (int i = 0; i < job->length; i++) printf(i ? " %d" : "%d", tokens[i]);
    printf("\n");
}

/* In a training samples stand between rows of numbers. */
static int print_sample(const struct transformer_job *job, int64_t step, int number, const int32_t *tokens, bool text,
                        struct sl_error *error) {
    const bool several = job->config->samples > 1;
    const char *margin = step == NO_STEP ? "" : "    ";
    if (step != NO_STEP && several)
        printf("after step %" PRId64 ": sample %d\n", step, number);
    else if (step != NO_STEP)
        printf("after step %" PRId64 ": sample\n", step);
    else if (several)
        printf("---- sample %d\n", number);
    if (text) return print_text(job, tokens, margin, error);
    print_numbers(job, tokens, margin);
    return SL_OK;
}

static int report(struct transformer_job *job, int64_t step, const int32_t *tokens, struct sl_error *error) {
    const bool text = job->model.vocabulary <= 256, json = job->config->common.json;
    for (int s = 0; s < job->config->samples; s++, tokens += job->length)
        SL_TRY(json ? print_json(job, step, s, tokens, text, error) : print_sample(job, step, s, tokens, text, error));
    fflush(stdout);
    return SL_OK;
}

/* ---- every coordinate ---- */

/* Reports it, where it is done in a training, under STEP. */
static int generate(struct transformer_sampler *s, int64_t step, struct sl_generated *generated) {
    struct transformer_job *job = transformer_job_of(s->worker);
    struct sl_spmd *self = s->worker->self;
    const size_t count = (size_t)s->sequences * (size_t)job->length;
    const int32_t *all = s->tokens;
    for (int i = 0; i < s->sequences; i++)
        memcpy(s->tokens + (size_t)i * (size_t)job->length, job->prompt,
               (size_t)job->prompt_length * sizeof *s->tokens);
    *generated = (struct sl_generated){.tokens = s->tokens};
    SL_TRY(sl_generator_run(s->generator, generated));
    if (s->replicas.size > 1) {
        SL_TRY(sl_all_gather(self, &s->replicas, SL_I32, s->tokens, s->all, count));
        all = s->all;
    }
    return self->coordinate == 0 ? report(job, step, all, &self->error) : SL_OK;
}

int transformer_sample(struct transformer_sampler *s, int64_t step) {
    struct sl_generated generated;
    if (s->worker->self->coordinate == 0) sl_progress_clear(&transformer_job_of(s->worker)->training.report.progress);
    return generate(s, step, &generated);
}

static int report_speed(struct transformer_job *job, const struct sl_generated *generated, int sequences,
                        struct sl_error *error) {
    const double all = (double)sequences * job->job.data, decoded = job->length - job->prompt_length - 1;
    const double prefill = 1e3 * all * job->prompt_length / generated->prefill_ms;
    const double decode = decoded > 0 ? 1e3 * all * decoded / generated->decode_ms : NAN;
    const struct sl_memory *memory = job->training.memory;
    const struct sl_mesh *mesh = &job->job.mesh;
    if (!job->config->common.json) {
        if (decoded > 0) fprintf(stderr, "prefill %.0f tokens/s, decode %.0f tokens/s\n", prefill, decode);
        sl_memory_print_end(stderr, memory, mesh, false);
        return SL_OK;
    }
    return sl_report_print(&job->training.report,
                           json_pack("{so so so so so so}", "prefill_tokens_per_second", sl_json_real(prefill),
                                     "decode_tokens_per_second", sl_json_real(decode), "prefill_ms",
                                     sl_json_real(generated->prefill_ms), "decode_ms",
                                     sl_json_real(generated->decode_ms), "memory", sl_memory_json(memory, mesh),
                                     "processes", sl_memory_json_processes(memory, mesh)),
                           error);
}

/* On stderr: what is generated can go into a file. */
static void print_heading(const struct transformer_job *job) {
    transformer_warn_of_source(job);
    if (job->config->common.json) return;
    fprintf(stderr, "transformer: ");
    transformer_print_source(job, stderr);
    fprintf(stderr, "; samples of %d tokens, the prompt's %d included\n", job->length, job->prompt_length);
}

static int sample(struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    struct transformer_worker *own = worker->own;
    struct sl_spmd *self = worker->self;
    struct sl_generated generated = {0};
    SL_TRY(transformer_open_sampler(&own->sampler, worker));
    if (self->coordinate == 0) print_heading(job);
    SL_TRY(generate(own->sampler, NO_STEP, &generated));
    SL_TRY(sl_memory_gather_held(self, job->training.memory));
    if (self->coordinate != 0) return SL_OK;
    return report_speed(job, &generated, own->sampler->sequences, &self->error);
}

static int program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    bool opened;
    int status = transformer_open_worker(&worker, self, job, &opened);
    if (status == SL_OK && opened) status = sample(&worker);
    sl_worker_close(&worker);
    return status;
}

int transformer_run_generation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(sl_run(&job->job.mesh, engine, program, job));
    if (job->job.sizes_only) return transformer_print_plan(job, engine, error);
    return sl_memory_refuse(&job->job, engine, job->training.memory, error);
}
