/* generate.c - continues the prompt: alone, or now and then during a training. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

struct transformer_sampler {
    struct sl_worker *worker;
    struct sl_generator *generator;
    int sequences;   /* of a replica */
    int32_t *tokens; /* [sequences, length] */
    int32_t *all;    /* [data, sequences, length] */
    struct sl_group replicas;
};

int transformer_open_sampler(struct transformer_sampler **sampler, struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    const struct transformer_config *config = job->config;
    const int sequences = (config->samples + job->job.data - 1) / job->job.data;
    const size_t count = (size_t)sequences * (size_t)job->length;
    const struct sl_generation generation = {
        .transformer = &job->model,
        .schedule = &job->job.schedule,
        .gemm = job->job.gemm,
        .precision = job->job.precision,
        .sequences = sequences,
        .prompt = job->prompt_length,
        .length = job->length,
        .sampling = {config->temperature, config->top_k, config->top_p},
        .seed = config->common.seed,
    };
    struct transformer_sampler *s = *sampler = calloc(1, sizeof *s);
    if (!s) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
    s->worker = worker;
    s->sequences = sequences;
    s->tokens = calloc(count, sizeof *s->tokens);
    s->all = calloc(count * (size_t)job->job.data, sizeof *s->all);
    if (!s->tokens || !s->all) return sl_fail(worker->self, SL_FAILED, "no memory to generate");
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

static int print_json(struct transformer_job *job, int number, const int32_t *tokens, bool text,
                      struct sl_error *error) {
    json_t *list = json_array();
    char *bytes = malloc((size_t)job->length * 4 + 1), *next = bytes;
    for (int i = 0; list && i < job->length; i++) json_array_append_new(list, json_integer(tokens[i]));
    json_t *object = json_pack("{si so}", "sample", number, "tokens", list);
    if (text && object && bytes) { /* bytes as code points: JSON has no others */
        for (int i = 0; i < job->length; i++) {
            if (tokens[i] >= 0x80) *next++ = (char)(0xc0 | tokens[i] >> 6);
            *next++ = (char)(tokens[i] >= 0x80 ? 0x80 | (tokens[i] & 0x3f) : tokens[i]);
        }
        json_object_set_new(object, "text", json_stringn(bytes, (size_t)(next - bytes)));
    }
    free(bytes);
    return sl_report_print(&job->training.report, object, error);
}

static void print_text(const struct transformer_job *job, const int32_t *tokens, bool text) {
    for (int i = 0; i < job->length; i++) {
        const uint8_t byte = (uint8_t)tokens[i];
        if (text)
            sl_print_bytes(stdout, &byte, 1);
        else
            printf(i ? " %d" : "%d", tokens[i]);
    }
    printf("\n");
}

static int report(struct transformer_job *job, const int32_t *tokens, struct sl_error *error) {
    const bool text = job->model.vocabulary <= 256;
    for (int s = 0; s < job->config->samples; s++, tokens += job->length) {
        if (job->config->common.json) {
            SL_TRY(print_json(job, s, tokens, text, error));
            continue;
        }
        if (job->config->samples > 1) printf("---- sample %d\n", s);
        print_text(job, tokens, text);
    }
    fflush(stdout);
    return SL_OK;
}

/* ---- every coordinate ---- */

static int generate(struct transformer_sampler *s, struct sl_generated *generated) {
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
    return self->coordinate == 0 ? report(job, all, &self->error) : SL_OK;
}

int transformer_sample(struct transformer_sampler *s) {
    struct sl_generated generated;
    if (s->worker->self->coordinate == 0) sl_progress_clear(&transformer_job_of(s->worker)->training.report.progress);
    return generate(s, &generated);
}

static int report_speed(struct transformer_job *job, const struct sl_generated *generated, int sequences,
                        struct sl_error *error) {
    const double all = (double)sequences * job->job.data, decoded = job->length - job->prompt_length - 1;
    const double prefill = 1e3 * all * job->prompt_length / generated->prefill_ms;
    const double decode = decoded > 0 ? 1e3 * all * decoded / generated->decode_ms : NAN;
    if (!job->config->common.json) {
        fprintf(stderr, "prefill %.0f tokens/s, decode %.0f tokens/s\n", prefill, decoded > 0 ? decode : 0.0);
        return SL_OK;
    }
    return sl_report_print(&job->training.report,
                           json_pack("{so so so so}", "prefill_tokens_per_second", sl_json_real(prefill),
                                     "decode_tokens_per_second", sl_json_real(decode), "prefill_ms",
                                     sl_json_real(generated->prefill_ms), "decode_ms",
                                     sl_json_real(generated->decode_ms)),
                           error);
}

int transformer_generate_program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    struct sl_generated generated = {0};
    int status = transformer_open_worker(&worker, self, job);
    struct transformer_worker *own = worker.own;
    if (status == SL_OK) status = transformer_open_sampler(&own->sampler, &worker);
    if (status == SL_OK) status = generate(own->sampler, &generated);
    if (status == SL_OK && self->coordinate == 0)
        status = report_speed(job, &generated, own->sampler->sequences, &self->error);
    sl_worker_close(&worker);
    return status;
}
