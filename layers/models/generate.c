/* generate.c - prefill and decode: groups of sequences take turns in the pipeline.
 *
 * Each coordinate takes the same turns, in the same order. A turn depends only on positions, which all coordinates
 * count; tokens are known only at the first stage, and at the last, which chooses them. */
#include <math.h>
#include <string.h>

#include "layers/models/generate_internal.h"
#include "spmd/device/device.h"

/* ---- tokens ---- */

/* Tokens of the sequence at PLACE. */
static int32_t *tokens_of(const struct sl_generator *g, const struct place *place) {
    return g->generated->tokens + (size_t)place->sequence * (size_t)g->options.length;
}

/* Whether the next token after the cached ones is chosen, not given. */
static bool chooses(const struct sl_generator *g, const struct place *place) {
    return place->sequence != NOBODY && place->position >= g->prompt[place->sequence];
}

/* Stores GROUP's chosen tokens. */
static void keep(const struct sl_generator *g, const struct group *group) {
    for (int i = 0; i < group->width; i++) {
        const struct place *place = &g->place[group->first + i];
        if (!chooses(g, place)) continue;
        int32_t *tokens = tokens_of(g, place);
        tokens[place->position] = g->chosen[i];
        if (g->is_first && g->options.told) g->options.told(g->options.arg, place->sequence, tokens, place->position);
    }
}

/* Whether this coordinate knows that the sequence at PLACE has ended before its full length. */
static bool has_ended(const struct sl_generator *g, const struct place *place) {
    return g->options.ends && place->sequence != NOBODY && g->generated->lengths[place->sequence] < g->most;
}

/* Records which sequences of GROUP end with the chosen tokens; called at the last stage. */
static void note_ends(const struct sl_generator *g, const struct group *group) {
    for (int i = 0; g->options.ends && i < group->width; i++) {
        const struct place *place = &g->place[group->first + i];
        if (!chooses(g, place) || has_ended(g, place)) continue;
        const int count = place->position + 1;
        if (g->options.ends(g->options.arg, tokens_of(g, place), g->prompt[place->sequence], count))
            g->generated->lengths[place->sequence] = count;
    }
}

static int choose_one(struct sl_generator *g, const struct place *place, float *logits, int32_t *token) {
    for (int i = 0; i < g->options.nevers; i++) logits[g->options.never[i]] = -INFINITY;
    const struct sl_key key = sl_fold_in(sl_key_of_seed(g->options.seed), (uint32_t)place->position);
    const uint32_t replica = g->options.converses ? 0 : (uint32_t)g->replica;
    const uint32_t number = replica * (uint32_t)g->options.sequences + (uint32_t)place->sequence;
    *token = sl_sample_token(&g->options.sampling, g->options.transformer->vocabulary, logits, sl_fold_in(key, number),
                             &g->room);
    if (*token >= 0) return SL_OK;
    return sl_fail(g->self, SL_FAILED, "the logits at position %d of sequence %d are not finite", place->position,
                   place->sequence);
}

/* Chooses GROUP's tokens; called at the last stage. */
static int choose(struct sl_generator *g, const struct pass *pass, struct group *group) {
    const size_t vocabulary = (size_t)g->options.transformer->vocabulary;
    int made = 0, again = 0;
    sl_device.copy(g->logits, sl_pipeline_outputs(pass->pipeline),
                   (size_t)group->width * vocabulary * sizeof *g->logits);
    SL_TRY(sl_device.settle(&g->self->error));
    for (int i = 0; i < group->width; i++) {
        struct place *place = &g->place[group->first + i];
        g->chosen[i] = 0;
        if (g->options.logits && place->sequence == 0)
            memcpy(g->generated->logits + (size_t)(place->position - 1) * vocabulary,
                   g->logits + (size_t)i * vocabulary, vocabulary * sizeof *g->logits);
        if (!chooses(g, place)) continue;
        SL_TRY(choose_one(g, place, g->logits + (size_t)i * vocabulary, &g->chosen[i]));
        made += !has_ended(g, place);
        again += place->told;
        place->told = true;
    }
    const double now = sl_now();
    if (again) sl_latency_add(&g->latency, 1e3 * (now - group->chosen_at), again);
    group->chosen_at = now;
    if (g->rounds) g->generated->decode_tokens += made;
    keep(g, group);
    note_ends(g, group);
    return SL_OK;
}

static int send_tokens(struct sl_generator *g, const struct group *group) {
    void *slot;
    SL_TRY(sl_channel_acquire(g->self, &g->returns, &slot));
    sl_device.copy(slot, g->chosen, (size_t)group->width * sizeof *g->chosen);
    return sl_channel_post(g->self, &g->returns);
}

/* Receives the tokens of the group's last pass; called at the first stage. */
static int take_tokens(struct sl_generator *g, struct group *group) {
    const void *slot;
    if (!group->due) return SL_OK;
    SL_TRY(sl_channel_take(g->self, &g->returns, &slot));
    sl_device.copy(g->chosen, slot, (size_t)group->width * sizeof *g->chosen);
    SL_TRY(sl_channel_release(g->self, &g->returns));
    keep(g, group);
    group->due = false;
    return SL_OK;
}

/* ---- passes ---- */

/* Runs PASS over pass->width places from number FIRST on, with pass->tokens tokens of each place. */
static int run_pass(struct sl_generator *g, struct pass *pass, int first) {
    const int width = pass->width, tokens = pass->tokens;
    struct sl_pipeline_step step = {.batch = {.rows = sl_pipeline_rows(pass->pipeline),
                                              .tokens = g->is_first ? g->batch : NULL}, /* other stages read none */
                                    .position = g->place[first].position,
                                    .positions = g->uniform || width == 1 ? NULL : g->position,
                                    .first_sequence = first,
                                    .begins = !g->begun};
    for (int i = 0; i < width; i++) {
        const struct place *place = &g->place[first + i];
        const bool here = place->sequence != NOBODY;
        g->position[i] = here ? place->position : 0; /* unused: the place is empty */
        if (here && g->rounds == 0) g->generated->prefill_tokens += tokens;
        if (!g->is_first) continue;
        int32_t *to = g->batch + (size_t)i * (size_t)tokens;
        if (here)
            memcpy(to, tokens_of(g, place) + place->position, (size_t)tokens * sizeof *to);
        else
            memset(to, 0, (size_t)tokens * sizeof *to);
    }
    g->begun = true;
    SL_TRY(sl_pipeline_generate(pass->pipeline, &step, tokens > 1 ? SL_PREFILL : SL_DECODE));
    for (int i = 0; i < width; i++) g->place[first + i].position += tokens;
    return SL_OK;
}

/* Runs passes over all new tokens of a conversation but the last, which is left for the choosing pass. */
static int run_addition(struct sl_generator *g, const struct place *place) {
    for (int left; (left = g->prompt[0] - 1 - place->position) > 0;)
        SL_TRY(run_pass(g, sl_generator_largest_pass(g, left), 0));
    return SL_OK;
}

/* Runs the whole parts of the prompts at WIDTH places from FIRST on. These passes choose no tokens. */
static int run_parts(struct sl_generator *g, int first, int width) {
    if (g->options.converses) return run_addition(g, &g->place[first]);
    const int prompt = g->fewest[g->place[first].sequence], parts = (prompt - 1) / g->part * g->part;
    for (int at = 0; at < parts; at += g->part) SL_TRY(run_pass(g, sl_generator_pass(g, width, g->part), first));
    return SL_OK;
}

/* Runs a pass for logits: over the rest of the prompts if they all have one length, or over one token of each
 * sequence. */
static int run_and_choose(struct sl_generator *g, struct group *group) {
    const struct place *place = &g->place[group->first];
    const int given = g->uniform ? g->fewest[0] - place->position : 1;
    struct pass *pass = sl_generator_pass(g, group->width, given > 1 ? given : 1);
    SL_TRY(run_pass(g, pass, group->first));
    if (g->is_last) SL_TRY(choose(g, pass, group));
    if (g->is_first == g->is_last) return SL_OK;
    group->due = g->is_first;
    return g->is_last ? send_tokens(g, group) : SL_OK;
}

/* ---- turns ---- */

/* Frees the places of complete sequences. Returns how many sequences stay. */
static int retire(struct sl_generator *g, const struct group *group) {
    int stay = 0;
    for (int i = 0; i < group->width; i++) {
        struct place *place = &g->place[group->first + i];
        if (place->position + 1 >= g->most) place->sequence = NOBODY;
        stay += place->sequence != NOBODY;
    }
    return stay;
}

/* Puts the next incomplete sequence into PLACE; false if none waits. */
static bool admit(struct sl_generator *g, struct place *place) {
    while (g->waiting < g->options.sequences && g->fewest[g->waiting] >= g->most) g->waiting++;
    if (g->waiting == g->options.sequences) return false;
    *place = (struct place){.sequence = g->waiting++, .position = g->generated->kept};
    return true;
}

/* Puts waiting sequences into free places. If prompts have one length, all places of a group are filled at once, since
 * they all end at once. *LIVE: number of the group's sequences afterwards. */
static int refill(struct sl_generator *g, const struct group *group, int *live) {
    const int stay = *live;
    if (g->uniform && stay) return SL_OK;
    for (int i = 0; i < group->width; i++) {
        struct place *place = &g->place[group->first + i];
        if (place->sequence != NOBODY || !admit(g, place)) continue;
        ++*live;
        if (!g->uniform) SL_TRY(run_parts(g, group->first + i, 1));
    }
    return g->uniform && *live ? run_parts(g, group->first, group->width) : SL_OK;
}

/* Takes GROUP's turn. *LIVE: number of its sequences under way. */
static int take_turn(struct sl_generator *g, struct group *group, int *live) {
    SL_TRY(take_tokens(g, group));
    *live = retire(g, group);
    SL_TRY(refill(g, group, live));
    return *live ? run_and_choose(g, group) : SL_OK;
}

/* Ends the sequence at PLACE after its current tokens. */
static void end_here(struct sl_generator *g, const struct place *place) {
    int *length = place->sequence != NOBODY ? &g->generated->lengths[place->sequence] : NULL;
    if (length && *length > place->position + 1) *length = place->position + 1;
}

/* Frees the places of ended sequences once all coordinates choosing tokens, in all replicas, know of the end; or of all
 * sequences if a coordinate stops the run. The first stage receives tokens under way first. */
static int agree_on_ends(struct sl_generator *g) {
    const int places = g->options.in_flight, numbers = places + g->options.converses,
              choosers = g->self->mesh->size / sl_axis_size(g->self, sl_pipe_axis);
    for (int i = 0; i < g->options.groups; i++) SL_TRY(take_tokens(g, &g->group[i]));
    for (int i = 0; i < places; i++) g->ended[i] = g->is_last && has_ended(g, &g->place[i]);
    if (g->options.converses) g->ended[places] = g->options.stops && g->options.stops(g->options.arg);
    if (g->world.size > 1) SL_TRY(sl_psum(g->self, &g->world, SL_F32, g->ended, g->ended, (size_t)numbers));
    const bool stops = g->options.converses && g->ended[places] > 0;
    for (int i = 0; i < places; i++) {
        if (stops) end_here(g, &g->place[i]);
        if (stops || g->ended[i] >= (float)choosers) g->place[i].sequence = NOBODY;
    }
    return SL_OK;
}

/* Broadcasts the results of the last stage to all stages. */
static int share(struct sl_generator *g) {
    struct sl_generated *all = g->generated;
    const size_t tokens = (size_t)g->options.sequences * (size_t)g->options.length;
    double figures[] = {all->prefill_ms,    all->prefill_tokens, all->decode_ms,
                        all->decode_tokens, all->p50_ms,         all->p99_ms};
    if (g->stages.size < 2) return SL_OK;
    if (g->options.ends)
        SL_TRY(sl_broadcast(g->self, &g->stages, SL_I32, all->lengths, all->lengths, (size_t)g->options.sequences,
                            g->last_rank));
    SL_TRY(sl_broadcast(g->self, &g->stages, SL_I32, all->tokens, all->tokens, tokens, g->last_rank));
    for (int i = 0; g->options.logits && i < g->options.length - 1; i++) {
        float *row = all->logits + (size_t)i * (size_t)g->options.transformer->vocabulary;
        SL_TRY(sl_broadcast(g->self, &g->stages, SL_F32, row, row, (size_t)g->options.transformer->vocabulary,
                            g->last_rank));
    }
    SL_TRY(
        sl_broadcast(g->self, &g->stages, SL_I32, figures, figures, sizeof figures / (sizeof(int32_t)), g->last_rank));
    all->prefill_ms = figures[0], all->prefill_tokens = figures[1], all->decode_ms = figures[2];
    all->decode_tokens = figures[3], all->p50_ms = figures[4], all->p99_ms = figures[5];
    return SL_OK;
}

static void begin_run(struct sl_generator *g, struct sl_generated *generated) {
    const bool converses = g->options.converses;
    *generated = (struct sl_generated){.tokens = generated->tokens,
                                       .lengths = generated->lengths,
                                       .logits = generated->logits,
                                       .prompt = generated->prompt,
                                       .kept = converses ? generated->kept : 0,
                                       .most = generated->most};
    g->most = converses ? generated->most : g->options.length;
    if (converses) g->prompt[0] = g->fewest[0] = generated->prompt;
    for (int s = 0; generated->lengths && s < g->options.sequences; s++) generated->lengths[s] = g->most;
    g->generated = generated;
    g->latency = (struct sl_latency){.all = 0};
    g->begun = generated->kept > 0;
    g->waiting = g->rounds = 0;
    for (int i = 0; i < g->options.in_flight; i++) g->place[i] = (struct place){.sequence = NOBODY};
    for (int i = 0; i < g->options.groups; i++) g->group[i].due = false;
}

/* Synchronizes stages first, so that opening on other coordinates does not count as time of the first tokens. */
static int meet(struct sl_generator *g) { return g->stages.size > 1 ? sl_barrier(g->self, &g->stages) : SL_OK; }

/* Rounds between two calls of agree_on_ends. A single coordinate waits for no others; a conversation should stop
 * soon. */
static int rounds_between(const struct sl_generator *g) {
    return g->world.size <= 1 ? 1 : g->options.converses ? 4 : 16;
}

/* Checks the given state of a conversation. */
static int check_given(const struct sl_generator *g, const struct sl_generated *given) {
    if (!g->options.converses || (given->kept >= 0 && given->kept < given->prompt && given->prompt <= given->most &&
                                  given->most <= g->options.length))
        return SL_OK;
    return sl_fail(g->self, SL_BAD_INPUT,
                   "a conversation of %d tokens, %d of them kept, %d in the end: fewer are kept than there are, and at "
                   "most %d in the end",
                   given->prompt, given->kept, given->most, g->options.length);
}

int sl_generator_run(struct sl_generator *g, struct sl_generated *generated) {
    SL_TRY(check_given(g, generated));
    SL_TRY(meet(g));
    const double began = sl_now();
    double filled = began;
    begin_run(g, generated);
    for (int live = 1; live; g->rounds++) {
        live = 0;
        for (int i = 0, own; i < g->options.groups; i++, live += own) SL_TRY(take_turn(g, &g->group[i], &own));
        if (g->rounds == 0) filled = sl_now();
        if (g->options.ends && live && (g->rounds + 1) % rounds_between(g) == 0) SL_TRY(agree_on_ends(g));
    }
    generated->prefill_ms = 1e3 * (filled - began);
    generated->decode_ms = 1e3 * (sl_now() - filled);
    generated->p50_ms = sl_latency_percentile(&g->latency, 0.5);
    generated->p99_ms = sl_latency_percentile(&g->latency, 0.99);
    return share(g);
}
