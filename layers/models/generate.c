/* generate.c - prefill and decode: pipelines over one set of parameters and caches.
 *
 * A long prompt is evaluated part by part, so that only the caches grow with it. */
#include "layers/models/generate.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/crew.h"
#include "spmd/device/device.h"

enum { PART = 1024 }; /* tokens of a prompt's parts, but for the last one: enough for fast products */

/* The model for sequences of one length, with its pipeline. */
struct pass {
    struct sl_model model;
    struct sl_pipeline *pipeline;
};

struct sl_generator {
    struct sl_spmd *self;
    struct sl_generation options;
    struct sl_schedule schedule; /* forward alone, one microbatch */
    struct sl_caches caches;
    struct sl_crew *crew;
    struct pass part, prefill, decode; /* the prompt's parts, if there are several; the last one, or all of it */
    int parts;                         /* tokens of all parts but the last one */
    struct sl_group stages;            /* the pipeline's ranks */
    int last_rank, replica;
    float *logits;  /* [sequences, vocabulary], the host's, where they are made; else NULL */
    int32_t *next;  /* [sequences] */
    int32_t *batch; /* [sequences, tokens of a part] */
    struct sl_sampling_room room;
};

static int open_pass(struct sl_generator *g, struct pass *pass, int sequence, struct sl_parameters *parameters) {
    struct sl_spmd *self = g->self;
    const struct sl_generation *options = &g->options;
    const struct sl_pipeline_options pipeline = {.rules = sl_transformer_rules(options->transformer),
                                                 .axis = sl_pipe_axis,
                                                 .group_axes = sl_transformer_axes,
                                                 .schedule = &g->schedule,
                                                 .gemm = options->gemm,
                                                 .precision = options->precision,
                                                 .storage = options->storage,
                                                 .slots = SL_PIPELINE_FEWEST_SLOTS,
                                                 .rows = options->sequences * sequence,
                                                 .sequence = sequence,
                                                 .forward_only = true,
                                                 .sizes_only = options->sizes_only,
                                                 .crew = g->crew,
                                                 .caches = &g->caches,
                                                 .wgrad_group = 1};
    SL_TRY(sl_transformer_build(options->transformer, self->mesh, &g->schedule, sl_axis_index(self, sl_pipe_axis),
                                &pass->model, &self->error));
    return sl_pipeline_plan(&pass->pipeline, self, &pipeline, &pass->model, parameters);
}

static bool has_logits(const struct sl_generator *g) { return sl_axis_index(g->self, sl_pipe_axis) == g->last_rank; }

/* Tokens of a sequence in the longest pass. */
static size_t batch_tokens(const struct sl_generator *g) { return (size_t)(g->parts ? PART : g->options.prompt); }

/* The host's arrays below. */
static size_t room_bytes(const struct sl_generator *g) {
    const size_t sequences = (size_t)g->options.sequences, vocabulary = (size_t)g->options.transformer->vocabulary;
    const size_t tokens = sequences * (1 + batch_tokens(g)) * sizeof *g->next;
    return tokens + (has_logits(g) ? sequences * vocabulary * sizeof *g->logits : 0);
}

static int open_rooms(struct sl_generator *g) {
    struct sl_spmd *self = g->self;
    const size_t sequences = (size_t)g->options.sequences, vocabulary = (size_t)g->options.transformer->vocabulary;
    g->next = calloc(sequences, sizeof *g->next);
    g->batch = calloc(sequences * batch_tokens(g), sizeof *g->batch);
    if (!g->next || !g->batch) return sl_fail(self, SL_FAILED, "no memory to generate");
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, room_bytes(g));
    if (!has_logits(g)) return SL_OK;
    g->logits = calloc(sequences * vocabulary, sizeof *g->logits);
    if (!g->logits || !sl_sampling_room_open(&g->room, (int)vocabulary))
        return sl_fail(self, SL_FAILED, "no memory to generate");
    return SL_OK;
}

int sl_generator_open(struct sl_generator **generator, struct sl_spmd *self, const struct sl_generation *options,
                      struct sl_parameters *parameters) {
    struct sl_generator *g = *generator = calloc(1, sizeof *g);
    if (!g) return sl_fail(self, SL_FAILED, "no memory to generate");
    g->self = self;
    g->options = *options;
    if (options->prompt < 1 || options->length > options->transformer->positions)
        return sl_fail(self, SL_BAD_INPUT, "a prompt of %d tokens, %d in the end: at least 1, at most %d",
                       options->prompt, options->length, options->transformer->positions);
    g->caches = (struct sl_caches){.form = options->cache,
                                   .storage = options->storage,
                                   .sequences = options->sequences,
                                   .positions = options->length,
                                   .held = &self->held};
    g->last_rank = sl_schedule_rank_of(options->schedule, sl_schedule_stages(options->schedule) - 1);
    g->replica = sl_axis_index(self, sl_data_axis);
    SL_TRY(sl_schedule_forward(&g->schedule, options->schedule, 1, &self->error));
    if (sl_axis_size(self, sl_pipe_axis) > 1) SL_TRY(sl_group_axes(self, sl_pipe_axis, &g->stages));
    if (!options->sizes_only && !options->gemm->on_device) g->crew = sl_crew_open(options->threads);
    g->parts = (options->prompt - 1) / PART * PART;
    if (g->parts) SL_TRY(open_pass(g, &g->part, PART, parameters));
    SL_TRY(open_pass(g, &g->prefill, options->prompt - g->parts, parameters));
    SL_TRY(open_pass(g, &g->decode, 1, parameters));
    if (options->sizes_only) return SL_OK;
    SL_TRY(sl_caches_take(&g->caches, &self->error));
    SL_TRY(open_rooms(g));
    if (g->parts) SL_TRY(sl_pipeline_open(g->part.pipeline));
    SL_TRY(sl_pipeline_open(g->prefill.pipeline));
    return sl_pipeline_open(g->decode.pipeline);
}

static void close_pass(struct pass *pass) {
    sl_pipeline_close(pass->pipeline);
    sl_model_free(&pass->model);
}

void sl_generator_close(struct sl_generator *g) {
    if (!g) return;
    close_pass(&g->part);
    close_pass(&g->prefill);
    close_pass(&g->decode);
    sl_crew_close(g->crew);
    sl_group_close(g->self, &g->stages);
    sl_caches_close(&g->caches);
    sl_schedule_free(&g->schedule);
    sl_sampling_room_close(&g->room);
    free(g->logits);
    free(g->next);
    free(g->batch);
    free(g);
}

void sl_generator_plan_bytes(const struct sl_generator *g, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_CACHES, sl_caches_bytes(&g->caches));
    if (g->parts) sl_pipeline_plan_bytes(g->part.pipeline, budget);
    sl_pipeline_plan_bytes(g->prefill.pipeline, budget);
    sl_pipeline_plan_bytes(g->decode.pipeline, budget);
    sl_budget_add(budget, SL_MEMORY_RUNTIME, room_bytes(g));
}

size_t sl_generator_bytes(const struct sl_generator *g) {
    struct sl_budget budget = {0};
    sl_generator_plan_bytes(g, &budget);
    return (size_t)sl_budget_total(&budget);
}

/* ---- tokens ---- */

/* Where the logits are: chooses the token at POSITION of every sequence. */
static int choose(struct sl_generator *g, const struct pass *pass, int position) {
    const size_t sequences = (size_t)g->options.sequences, vocabulary = (size_t)g->options.transformer->vocabulary;
    sl_device.copy(g->logits, sl_pipeline_outputs(pass->pipeline), sequences * vocabulary * sizeof *g->logits);
    SL_TRY(sl_device.settle(&g->self->error));
    const struct sl_key key = sl_fold_in(sl_key_of_seed(g->options.seed), (uint32_t)position);
    for (size_t s = 0; s < sequences; s++) {
        const uint32_t number = (uint32_t)g->replica * (uint32_t)sequences + (uint32_t)s;
        g->next[s] = sl_sample_token(&g->options.sampling, (int)vocabulary, g->logits + s * vocabulary,
                                     sl_fold_in(key, number), &g->room);
        if (g->next[s] < 0)
            return sl_fail(g->self, SL_FAILED, "the logits at position %d of sequence %zu are not finite", position, s);
    }
    return SL_OK;
}

/* Runs PASS over tokens that begin at POSITION. */
static int run_pass(struct pass *pass, enum sl_phase phase, const int32_t *tokens, int position) {
    struct sl_pipeline_step step = {.batch = {.rows = sl_pipeline_rows(pass->pipeline), .tokens = tokens},
                                    .position = position};
    return sl_pipeline_generate(pass->pipeline, &step, phase);
}

/* The same; g->next are then the tokens at position NEXT. */
static int run_and_choose(struct sl_generator *g, struct pass *pass, enum sl_phase phase, const int32_t *tokens,
                          int position, int next) {
    SL_TRY(run_pass(pass, phase, tokens, position));
    if (g->logits) SL_TRY(choose(g, pass, next));
    if (g->stages.size < 2) return SL_OK;
    return sl_broadcast(g->self, &g->stages, SL_I32, g->next, g->next, (size_t)g->options.sequences, g->last_rank);
}

static void keep(const struct sl_generator *g, struct sl_generated *generated, int position) {
    for (int s = 0; s < g->options.sequences; s++) generated->tokens[s * g->options.length + position] = g->next[s];
    if (generated->chosen) generated->chosen(generated->arg, position, g->next);
}

/* COUNT tokens of each prompt, from FIRST on. */
static const int32_t *part_of(struct sl_generator *g, const struct sl_generated *generated, int first, int count) {
    for (int s = 0; s < g->options.sequences; s++)
        memcpy(g->batch + s * count, generated->tokens + s * g->options.length + first,
               (size_t)count * sizeof *g->batch);
    return g->batch;
}

static int prefill(struct sl_generator *g, const struct sl_generated *generated) {
    const int prompt = g->options.prompt, rest = prompt - g->parts;
    for (int first = 0; first < g->parts; first += PART)
        SL_TRY(run_pass(&g->part, SL_PREFILL, part_of(g, generated, first, PART), first));
    return run_and_choose(g, &g->prefill, SL_PREFILL, part_of(g, generated, g->parts, rest), g->parts, prompt);
}

int sl_generator_run(struct sl_generator *g, struct sl_generated *generated) {
    const int prompt = g->options.prompt, length = g->options.length;
    const double began = sl_now();
    generated->prefill_ms = generated->decode_ms = 0;
    if (prompt >= length) return SL_OK;
    SL_TRY(prefill(g, generated));
    keep(g, generated, prompt);
    const double filled = sl_now();
    for (int position = prompt; position + 1 < length; position++) {
        SL_TRY(run_and_choose(g, &g->decode, SL_DECODE, g->next, position, position + 1));
        keep(g, generated, position + 1);
    }
    generated->prefill_ms = 1e3 * (filled - began);
    generated->decode_ms = 1e3 * (sl_now() - filled);
    return SL_OK;
}
