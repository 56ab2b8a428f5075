/* generate.c - continues prompts as a command, and reports its speed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* ---- every coordinate ---- */

/* Returns tokens per second; NaN without tokens. */
static double rate(double tokens, double ms) { return tokens > 0 ? 1e3 * tokens / ms : NAN; }

/* Counts the new tokens of the first replica's samples. */
static double new_tokens(const struct transformer_job *job, const int *lengths, int samples) {
    double tokens = 0;
    for (int i = 0; i < samples; i++)
        tokens += lengths[i] - sl_prompt_length(&job->prompts, transformer_prompt_of(job, i));
    return tokens;
}

/* Reports the speed of the first replica. */
static int report_speed(struct transformer_job *job, const struct sl_generated *made, int samples,
                        struct sl_error *error) {
    const int data = job->job.data, groups = transformer_groups(job);
    const double prefill = data * rate(made->prefill_tokens, made->prefill_ms);
    const double decode = data * rate(made->decode_tokens, made->decode_ms);
    const double all = data * rate(new_tokens(job, made->lengths, samples), made->prefill_ms + made->decode_ms);
    const struct sl_memory *memory = job->training.memory;
    const struct sl_mesh *mesh = &job->job.mesh;
    if (job->config->common.json)
        return sl_report_print(
            &job->training.report,
            json_pack("{so so so so so so so si si so so}", "prefill_tokens_per_second", sl_json_real(prefill),
                      "decode_tokens_per_second", sl_json_real(decode), "prefill_ms", sl_json_real(made->prefill_ms),
                      "decode_ms", sl_json_real(made->decode_ms), "tokens_per_second", sl_json_real(all),
                      "token_ms_p50", sl_json_real(made->p50_ms), "token_ms_p99", sl_json_real(made->p99_ms), "groups",
                      groups, "in_flight", transformer_in_flight(job), "memory", sl_memory_json(memory, mesh),
                      "processes", sl_memory_json_processes(memory, mesh)),
            error);
    if (made->decode_tokens > 0) fprintf(stderr, "prefill %.0f tokens/s, decode %.0f tokens/s", prefill, decode);
    if (made->p50_ms > 0)
        fprintf(stderr, "; a token of a sample %.3g ms (p50), %.3g ms (p99); %d in flight in %d group%s", made->p50_ms,
                made->p99_ms, transformer_in_flight(job), groups, groups == 1 ? "" : "s");
    if (made->decode_tokens > 0) fputc('\n', stderr);
    sl_memory_print_end(stderr, memory, mesh, false);
    return SL_OK;
}

/* Prints the heading on stderr: stdout has only the generated text. */
static void print_heading(const struct transformer_job *job) {
    const struct sl_prompts *prompts = &job->prompts;
    transformer_warn_of_source(job);
    if (job->config->common.json) return;
    fprintf(stderr, "transformer: ");
    transformer_print_source(job, stderr);
    fprintf(stderr, "; samples of %d tokens, ", job->length);
    if (prompts->count == 1)
        fprintf(stderr, "the prompt's %d included\n", sl_prompt_length(prompts, 0));
    else
        fprintf(stderr, "those of %d prompts included\n", prompts->count);
}

static int sample(struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    struct transformer_worker *own = worker->own;
    struct sl_spmd *self = worker->self;
    struct sl_generated generated = {0};
    SL_TRY(transformer_open_sampler(&own->sampler, worker));
    if (self->coordinate == 0) print_heading(job);
    SL_TRY(transformer_sampler_run(own->sampler, NO_STEP, &generated));
    SL_TRY(sl_memory_gather_held(self, job->training.memory));
    if (self->coordinate != 0) return SL_OK;
    return report_speed(job, &generated, transformer_own_samples(job), &self->error);
}

static int program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    bool opened;
    int status = transformer_open_worker(&worker, self, job, &opened);
    if (status == SL_OK && opened) status = (job->config->interactive ? transformer_talk : sample)(&worker);
    sl_worker_close(&worker);
    return status;
}

int transformer_run_generation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(transformer_open_lines(job, error));
    if (sl_run(&job->job.mesh, engine, program, job))
        return sl_memory_explain(&job->job, engine, job->training.memory, error);
    if (job->job.sizes_only) return transformer_print_plan(job, engine, error);
    return sl_memory_refuse(&job->job, engine, job->training.memory, error);
}
