/* generate_open.c - plans and opens a generator: pipelines over one set of parameters and caches. */
#include <stdlib.h>

#include "layers/models/generate_internal.h"

enum { NO_PARTS = 1 << 30 };
enum { PART = 1024 }; /* tokens per part if all prompts have one length: enough for fast products */

int sl_generation_groups(const struct sl_schedule *schedule, int in_flight) {
    const int most = schedule->loops == 1 ? schedule->ranks : 1;
    return in_flight < most ? in_flight : most;
}

/* ---- sequences and groups ---- */

static int check(struct sl_generator *g, const int *prompts, int count) {
    const struct sl_generation *options = &g->options;
    for (int i = 0; i < count; i++)
        if (prompts[i] < 1 || options->length > options->transformer->positions)
            return sl_fail(g->self, SL_BAD_INPUT, "a prompt of %d tokens, %d in the end: at least 1, at most %d",
                           prompts[i], options->length, options->transformer->positions);
    if (options->converses && (options->sequences != 1 || prompts[0] != 1 || !options->ends || options->logits))
        return sl_fail(g->self, SL_BAD_INPUT, "a conversation has one sequence, which can end, and no logits");
    if (options->in_flight > options->sequences || options->groups < 1 || options->groups > options->in_flight)
        return sl_fail(
            g->self, SL_BAD_INPUT,
            "%d groups of %d sequences, %d of them in flight: of a replica's at least 1 are in flight, in at "
            "most as many groups",
            options->groups, options->sequences, options->in_flight);
    return SL_OK;
}

/* Tokens in whole parts of a prompt of TOKENS: at least one token is left, for the pass with logits. */
static int whole_parts(const struct sl_generator *g, int tokens) { return (tokens - 1) / g->part * g->part; }

/* Reads the prompts' lengths. All replicas make the same passes, those of the shortest prompt. */
static int read_prompts(struct sl_generator *g, int replicas) {
    const struct sl_generation *options = &g->options;
    const int sequences = options->sequences, *prompts = options->prompts;
    g->prompt = calloc((size_t)sequences, sizeof *g->prompt);
    g->fewest = calloc((size_t)sequences, sizeof *g->fewest);
    if (!g->prompt || !g->fewest) return sl_fail(g->self, SL_FAILED, "no memory to generate");
    SL_TRY(check(g, prompts ? prompts : &options->prompt, prompts ? replicas * sequences : 1));
    g->uniform = !options->logits && !options->converses; /* otherwise prompts are processed one token at a time */
    for (int i = 0; prompts && i < replicas * sequences; i++) g->uniform = g->uniform && prompts[i] == prompts[0];
    g->part = options->logits ? NO_PARTS : g->uniform ? PART : SL_PROMPT_PART;
    for (int s = 0; s < sequences; s++) {
        g->prompt[s] = prompts ? prompts[g->replica * sequences + s] : options->prompt;
        g->fewest[s] = g->prompt[s];
        for (int r = 0; prompts && r < replicas; r++)
            if (prompts[r * sequences + s] < g->fewest[s]) g->fewest[s] = prompts[r * sequences + s];
    }
    return SL_OK;
}

static int open_groups(struct sl_generator *g) {
    const int places = g->options.in_flight, groups = g->options.groups;
    g->place = calloc((size_t)places, sizeof *g->place);
    g->group = calloc((size_t)groups, sizeof *g->group);
    if (!g->place || !g->group) return sl_fail(g->self, SL_FAILED, "no memory to generate");
    for (int i = 0, first = 0; i < groups; i++) {
        g->group[i] = (struct group){.first = first, .width = places / groups + (i < places % groups)};
        first += g->group[i].width;
    }
    return SL_OK;
}

/* ---- passes ---- */

static int plan_pass(struct sl_generator *g, struct pass *pass, struct sl_parameters *parameters) {
    struct sl_spmd *self = g->self;
    const struct sl_generation *options = &g->options;
    const struct sl_pipeline_options pipeline = {.rules = sl_transformer_rules(options->transformer, self->mesh),
                                                 .axis = sl_pipe_axis,
                                                 .group_axes = sl_transformer_axes(self->mesh),
                                                 .schedule = &g->schedule,
                                                 .gemm = options->gemm,
                                                 .precision = options->precision,
                                                 .storage = options->storage,
                                                 .no_rewrite = options->no_rewrite,
                                                 .slots = SL_PIPELINE_FEWEST_SLOTS,
                                                 .rows = pass->width * pass->tokens,
                                                 .sequence = pass->tokens,
                                                 .forward_only = true,
                                                 .sizes_only = options->sizes_only,
                                                 .crew = g->crew,
                                                 .caches = &g->caches,
                                                 .wgrad_group = 1};
    SL_TRY(sl_transformer_build(options->transformer, self->mesh, &g->schedule, sl_axis_index(self, sl_pipe_axis),
                                &pass->model, &self->error));
    return sl_pipeline_plan(&pass->pipeline, self, &pipeline, &pass->model, parameters);
}

struct pass *sl_generator_largest_pass(struct sl_generator *g, int tokens) {
    struct pass *largest = NULL;
    for (int i = 0; i < g->passes; i++)
        if (g->pass[i].tokens <= tokens && (!largest || g->pass[i].tokens > largest->tokens)) largest = &g->pass[i];
    return largest;
}

struct pass *sl_generator_pass(struct sl_generator *g, int width, int tokens) {
    for (int i = 0; i < g->passes; i++)
        if (g->pass[i].width == width && g->pass[i].tokens == tokens) return &g->pass[i];
    return NULL;
}

static int add_pass(struct sl_generator *g, int width, int tokens, struct sl_parameters *parameters) {
    if (sl_generator_pass(g, width, tokens)) return SL_OK;
    struct pass *pass = &g->pass[g->passes++];
    *pass = (struct pass){.width = width, .tokens = tokens};
    return plan_pass(g, pass, parameters);
}

/* Plans passes for additions to a conversation, which have any number of tokens: few passes, each eight times as long
 * as the next, cover them in few turns. */
static int plan_additions(struct sl_generator *g, struct sl_parameters *parameters) {
    for (int tokens = 512; tokens > 1; tokens /= 8)
        if (tokens < g->options.length) SL_TRY(add_pass(g, 1, tokens, parameters));
    return add_pass(g, 1, 1, parameters);
}

/* Plans the passes of the groups' turns (generate.c). */
static int plan_passes(struct sl_generator *g, struct sl_parameters *parameters) {
    int parts = 0;
    if (g->options.converses) return plan_additions(g, parameters);
    for (int s = 0; s < g->options.sequences; s++)
        if (whole_parts(g, g->fewest[s]) > parts) parts = whole_parts(g, g->fewest[s]);
    if (parts && !g->uniform) SL_TRY(add_pass(g, 1, g->part, parameters));
    for (int i = 0; i < g->options.groups; i++) {
        const int width = g->group[i].width;
        if (parts && g->uniform) SL_TRY(add_pass(g, width, g->part, parameters));
        if (g->uniform) SL_TRY(add_pass(g, width, g->fewest[0] - parts, parameters));
        SL_TRY(add_pass(g, width, 1, parameters));
    }
    return SL_OK;
}

/* ---- memory ---- */

/* Width of the widest group, which is the first. */
static size_t width_of(const struct sl_generator *g) { return (size_t)g->group[0].width; }

/* Tokens of the largest pass, on coordinates reading them. */
static size_t batch_tokens(const struct sl_generator *g) {
    int most = 0;
    for (int i = 0; g->is_first && i < g->passes; i++) {
        const int tokens = g->pass[i].width * g->pass[i].tokens;
        most = tokens > most ? tokens : most;
    }
    return (size_t)most;
}

static size_t logits_of(const struct sl_generator *g) {
    return g->is_last ? width_of(g) * (size_t)g->options.transformer->vocabulary : 0;
}

static size_t numbers_of_ends(const struct sl_generator *g) {
    return (size_t)g->options.in_flight + g->options.converses;
}

/* Bytes of the host's arrays in open_rooms. */
static size_t room_bytes(const struct sl_generator *g) {
    return batch_tokens(g) * sizeof *g->batch + width_of(g) * (sizeof *g->chosen + sizeof *g->position) +
           numbers_of_ends(g) * sizeof *g->ended + logits_of(g) * sizeof *g->logits;
}

static int open_rooms(struct sl_generator *g) {
    struct sl_spmd *self = g->self;
    g->chosen = calloc(width_of(g), sizeof *g->chosen);
    g->position = calloc(width_of(g), sizeof *g->position);
    g->ended = calloc(numbers_of_ends(g), sizeof *g->ended);
    g->batch = calloc(batch_tokens(g) + 1, sizeof *g->batch);
    g->logits = calloc(logits_of(g) + 1, sizeof *g->logits);
    if (!g->chosen || !g->position || !g->ended || !g->batch || !g->logits ||
        (g->is_last && !sl_sampling_room_open(&g->room, g->options.transformer->vocabulary)))
        return sl_fail(self, SL_FAILED, "no memory to generate");
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, room_bytes(g));
    return SL_OK;
}

/* The coordinate at RANK of this pipeline. */
static int coordinate_of(const struct sl_generator *g, int rank) {
    const struct sl_mesh *mesh = g->self->mesh;
    const int axis = sl_mesh_find_axis(mesh, sl_pipe_axis), me = g->self->coordinate;
    return axis < 0 ? me : sl_mesh_neighbour(mesh, me, axis, rank);
}

/* Whether this coordinate has an end of the channel for tokens. */
static bool has_channel(const struct sl_generator *g) { return g->is_first != g->is_last; }

static size_t message_bytes(const struct sl_generator *g) { return width_of(g) * sizeof *g->chosen; }

/* Opens the channel. A slot for each group ensures that the last stage never waits for the first, which may wait for
 * it. */
static int open_channel(struct sl_generator *g) {
    if (!has_channel(g)) return SL_OK;
    return sl_channel_open(g->self, &g->returns, coordinate_of(g, g->last_rank), coordinate_of(g, g->first_rank),
                           message_bytes(g), g->options.groups);
}

static size_t channel_bytes(const struct sl_generator *g) {
    if (!has_channel(g)) return 0;
    return sl_channel_bytes(g->self, coordinate_of(g, g->last_rank), coordinate_of(g, g->first_rank), message_bytes(g),
                            g->options.groups);
}

/* ---- opening and closing ---- */

/* Finds this coordinate's part of the pipeline. */
static int find_stages(struct sl_generator *g) {
    struct sl_spmd *self = g->self;
    const struct sl_schedule *schedule = g->options.schedule;
    const int rank = sl_axis_index(self, sl_pipe_axis);
    if (schedule->copies > 1)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s holds the model twice: it does not generate", schedule->name);
    g->first_rank = sl_schedule_rank_of(schedule, 0);
    g->last_rank = sl_schedule_rank_of(schedule, sl_schedule_stages(schedule) - 1);
    g->is_first = rank == g->first_rank;
    g->is_last = rank == g->last_rank;
    g->replica = sl_axis_index(self, sl_data_axis);
    SL_TRY(sl_schedule_forward(&g->schedule, schedule, 1, &self->error));
    if (g->options.ends) SL_TRY(sl_group_axes(self, "*", &g->world));
    return sl_axis_size(self, sl_pipe_axis) > 1 ? sl_group_axes(self, sl_pipe_axis, &g->stages) : SL_OK;
}

int sl_generator_open(struct sl_generator **generator, struct sl_spmd *self, const struct sl_generation *options,
                      struct sl_parameters *parameters) {
    struct sl_generator *g = *generator = calloc(1, sizeof *g);
    if (!g) return sl_fail(self, SL_FAILED, "no memory to generate");
    g->self = self;
    g->options = *options;
    if (!options->in_flight) g->options.in_flight = options->sequences;
    if (!options->groups) g->options.groups = sl_generation_groups(options->schedule, g->options.in_flight);
    g->caches = (struct sl_caches){.form = options->cache,
                                   .storage = options->storage,
                                   .sequences = g->options.in_flight,
                                   .axis = sl_context_axis,
                                   .parts = sl_axis_size(self, sl_context_axis),
                                   .part = sl_axis_index(self, sl_context_axis),
                                   .held = &self->held};
    sl_caches_divide(&g->caches, options->length);
    SL_TRY(find_stages(g));
    SL_TRY(read_prompts(g, sl_axis_size(self, sl_data_axis)));
    SL_TRY(open_groups(g));
    g->caches.packs = !options->unpacked && parameters->values_only ? g->group[0].width : 0;
    if (!options->sizes_only && !options->gemm->on_device) g->crew = sl_crew_open(options->threads);
    SL_TRY(plan_passes(g, parameters));
    g->options.prompts = NULL; /* the caller's memory */
    if (options->sizes_only) return SL_OK;
    SL_TRY(sl_caches_take(&g->caches, &self->error));
    SL_TRY(open_rooms(g));
    for (int i = 0; i < g->passes; i++) SL_TRY(sl_pipeline_open(g->pass[i].pipeline));
    return open_channel(g);
}

void sl_generator_close(struct sl_generator *g) {
    if (!g) return;
    for (int i = 0; i < g->passes; i++) {
        sl_pipeline_close(g->pass[i].pipeline);
        sl_model_free(&g->pass[i].model);
    }
    sl_crew_close(g->crew);
    sl_group_close(g->self, &g->stages);
    if (g->world.size) sl_group_close(g->self, &g->world);
    sl_caches_close(&g->caches);
    sl_schedule_free(&g->schedule);
    sl_sampling_room_close(&g->room);
    free(g->prompt);
    free(g->fewest);
    free(g->place);
    free(g->group);
    free(g->logits);
    free(g->chosen);
    free(g->batch);
    free(g->position);
    free(g->ended);
    free(g);
}

void sl_generator_plan_bytes(const struct sl_generator *g, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_CACHES, sl_caches_bytes(&g->caches, false));
    sl_budget_add(budget, SL_MEMORY_PARAMETERS, sl_caches_bytes(&g->caches, true));
    for (int i = 0; i < g->passes; i++) sl_pipeline_plan_bytes(g->pass[i].pipeline, budget);
    sl_budget_add(budget, SL_MEMORY_HANDOVER, channel_bytes(g));
    sl_budget_add(budget, SL_MEMORY_RUNTIME, room_bytes(g));
}

size_t sl_generator_bytes(const struct sl_generator *g) {
    struct sl_budget budget = {0};
    sl_generator_plan_bytes(g, &budget);
    return (size_t)sl_budget_total(&budget);
}
