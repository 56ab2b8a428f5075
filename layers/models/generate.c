/* generate.c - prefill and decode: two pipelines over one set of parameters and caches. */
#include "layers/models/generate.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"

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
    struct pass prefill, decode;
    struct sl_group stages; /* the pipeline's ranks */
    int last_rank, replica;
    float *logits;  /* [sequences, vocabulary], the host's, where they are made; else NULL */
    int32_t *next;  /* [sequences] */
    int32_t *batch; /* [sequences, prompt] */
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
                                                 .slots = SL_PIPELINE_FEWEST_SLOTS,
                                                 .rows = options->sequences * sequence,
                                                 .sequence = sequence,
                                                 .forward_only = true,
                                                 .caches = &g->caches,
                                                 .wgrad_group = 1};
    SL_TRY(sl_transformer_build(options->transformer, self->mesh, &g->schedule, sl_axis_index(self, sl_pipe_axis),
                                &pass->model, &self->error));
    return sl_pipeline_plan(&pass->pipeline, self, &pipeline, &pass->model, parameters);
}

static int open_rooms(struct sl_generator *g) {
    struct sl_spmd *self = g->self;
    const size_t sequences = (size_t)g->options.sequences, vocabulary = (size_t)g->options.transformer->vocabulary;
    g->next = calloc(sequences, sizeof *g->next);
    g->batch = calloc(sequences * (size_t)g->options.prompt, sizeof *g->batch);
    if (!g->next || !g->batch) return sl_fail(self, SL_FAILED, "no memory to generate");
    if (sl_axis_index(self, sl_pipe_axis) != g->last_rank) return SL_OK;
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
    g->caches = (struct sl_caches){.sequences = options->sequences, .positions = options->length};
    g->last_rank = sl_schedule_rank_of(options->schedule, sl_schedule_stages(options->schedule) - 1);
    g->replica = sl_axis_index(self, sl_data_axis);
    SL_TRY(sl_schedule_forward(&g->schedule, options->schedule, 1, &self->error));
    if (sl_axis_size(self, sl_pipe_axis) > 1) SL_TRY(sl_group_axes(self, sl_pipe_axis, &g->stages));
    SL_TRY(open_pass(g, &g->prefill, options->prompt, parameters));
    SL_TRY(open_pass(g, &g->decode, 1, parameters));
    SL_TRY(sl_caches_take(&g->caches, &self->error));
    SL_TRY(open_rooms(g));
    SL_TRY(sl_pipeline_open(g->prefill.pipeline));
    return sl_pipeline_open(g->decode.pipeline);
}

static void close_pass(struct pass *pass) {
    sl_pipeline_close(pass->pipeline);
    sl_model_free(&pass->model);
}

void sl_generator_close(struct sl_generator *g) {
    if (!g) return;
    close_pass(&g->prefill);
    close_pass(&g->decode);
    sl_group_close(g->self, &g->stages);
    sl_caches_close(&g->caches);
    sl_schedule_free(&g->schedule);
    sl_sampling_room_close(&g->room);
    free(g->logits);
    free(g->next);
    free(g->batch);
    free(g);
}

size_t sl_generator_bytes(const struct sl_generator *g) {
    return sl_caches_bytes(&g->caches) + sl_pipeline_bytes(g->prefill.pipeline) + sl_pipeline_bytes(g->decode.pipeline);
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

/* Runs PASS over tokens that begin at POSITION; g->next are then those at position NEXT. */
static int run_pass(struct sl_generator *g, struct pass *pass, enum sl_phase phase, const int32_t *tokens, int position,
                    int next) {
    struct sl_pipeline_step step = {.batch = {.rows = sl_pipeline_rows(pass->pipeline), .tokens = tokens},
                                    .position = position};
    SL_TRY(sl_pipeline_generate(pass->pipeline, &step, phase));
    if (g->logits) SL_TRY(choose(g, pass, next));
    if (g->stages.size < 2) return SL_OK;
    return sl_broadcast(g->self, &g->stages, SL_I32, g->next, g->next, (size_t)g->options.sequences, g->last_rank);
}

static void keep(const struct sl_generator *g, struct sl_generated *generated, int position) {
    for (int s = 0; s < g->options.sequences; s++) generated->tokens[s * g->options.length + position] = g->next[s];
    if (generated->chosen) generated->chosen(generated->arg, position, g->next);
}

int sl_generator_run(struct sl_generator *g, struct sl_generated *generated) {
    const int prompt = g->options.prompt, length = g->options.length;
    const double began = sl_now();
    for (int s = 0; s < g->options.sequences; s++)
        memcpy(g->batch + s * prompt, generated->tokens + s * length, (size_t)prompt * sizeof *g->batch);
    generated->prefill_ms = generated->decode_ms = 0;
    if (prompt >= length) return SL_OK;
    SL_TRY(run_pass(g, &g->prefill, SL_PREFILL, g->batch, 0, prompt));
    keep(g, generated, prompt);
    const double filled = sl_now();
    for (int position = prompt; position + 1 < length; position++) {
        SL_TRY(run_pass(g, &g->decode, SL_DECODE, g->next, position, position + 1));
        keep(g, generated, position + 1);
    }
    generated->prefill_ms = 1e3 * (filled - began);
    generated->decode_ms = 1e3 * (sl_now() - filled);
    return SL_OK;
}
