/* optimizer.c - the table of optimizers, and updates of a range in runs of elements with the same settings. */
#include "layers/training/optimizers/optimizer.h"

#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "collectives/sums/reduce.h"
#include "spmd/device/device.h"

/* The table; its rows are defined in the files optimizer_NAME.c. */
extern const struct sl_optimizer sl_adamw, sl_sgd;
static const struct sl_optimizer *const optimizers[] = {&sl_adamw, &sl_sgd};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

const struct sl_optimizer *sl_optimizer_at(int i) { return i >= 0 && i < OPTIMIZERS ? optimizers[i] : NULL; }

const struct sl_optimizer *sl_optimizer_find(const char *name, struct sl_error *error) {
    char names[200] = "";
    for (int i = 0; i < OPTIMIZERS; i++) {
        const size_t used = strlen(names);
        if (!strcmp(optimizers[i]->name, name)) return optimizers[i];
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", optimizers[i]->name);
    }
    sl_error_set(error, SL_BAD_INPUT, "there is no optimizer \"%.60s\": choose one of %s", name, names);
    return NULL;
}

bool sl_optimizer_uses(const struct sl_optimizer *method, const char *name) {
    for (int i = 0; method->settings[i]; i++)
        if (!strcmp(method->settings[i], name)) return true;
    return false;
}

struct sl_optimizer_options sl_optimizer_defaults(const struct sl_optimizer *method, float learning_rate) {
    struct sl_optimizer_options options = method->defaults;
    options.method = method;
    options.learning_rate = learning_rate;
    return options;
}

struct sl_optimizer_options sl_adamw_defaults(float learning_rate) {
    return sl_optimizer_defaults(&sl_adamw, learning_rate);
}

struct sl_optimizer_options sl_sgd_defaults(float learning_rate) {
    return sl_optimizer_defaults(&sl_sgd, learning_rate);
}

/* Checks a method, because a user's row may be incomplete. */
static int check_method(const struct sl_optimizer *method, struct sl_error *error) {
    enum { LONGEST = 20 };
    if (!method->name || !method->name[0])
        return sl_error_set(error, SL_BAD_INPUT, "the optimizer's method has no name, which checkpoints need");
    if (!method->update)
        return sl_error_set(error, SL_BAD_INPUT, "optimizer %.60s: its method has no function update", method->name);
    for (int s = 0; method->state[s]; s++) {
        if (s == SL_OPTIMIZER_STATES)
            return sl_error_set(error, SL_BAD_INPUT,
                                "optimizer %.60s: the names of its state must end with NULL after %d "
                                "at most",
                                method->name, SL_OPTIMIZER_STATES);
        if (strlen(method->state[s]) > LONGEST)
            return sl_error_set(error, SL_BAD_INPUT,
                                "optimizer %.60s: its state's name %.40s has more than %d characters", method->name,
                                method->state[s], LONGEST);
        for (int other = 0; other < s; other++)
            if (!strcmp(method->state[s], method->state[other]))
                return sl_error_set(error, SL_BAD_INPUT,
                                    "optimizer %.60s: two of its states have the name %s: names tell them apart in "
                                    "checkpoints",
                                    method->name, method->state[s]);
    }
    return SL_OK;
}

int sl_optimizer_check(const struct sl_optimizer_options *o, struct sl_error *error) {
    const struct {
        const char *name;
        double value;
        bool below_one;
    } settings[] = {{"learning_rate", (double)o->learning_rate, false},
                    {"decay", (double)o->decay, false},
                    {"beta1", o->beta1, true},
                    {"beta2", o->beta2, true},
                    {"epsilon", (double)o->epsilon, false},
                    {"momentum", (double)o->momentum, false}};
    if (!o->method) return sl_error_set(error, SL_BAD_INPUT, "no optimizer was chosen (its method is NULL)");
    SL_TRY(check_method(o->method, error));
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const bool fits =
            settings[i].value >= 0 && isfinite(settings[i].value) && (!settings[i].below_one || settings[i].value < 1);
        if (!fits)
            return sl_error_set(error, SL_BAD_INPUT, "optimizer %s: %s is %g, must be %s", o->method->name,
                                settings[i].name, settings[i].value,
                                settings[i].below_one ? "from 0 to below 1" : "at least 0, and finite");
    }
    return o->method->check ? o->method->check(o, error) : SL_OK;
}

int sl_optimizer_states(const struct sl_optimizer_options *options) {
    int states = 0;
    if (options->method->states) return options->method->states(options);
    while (options->method->state[states]) states++;
    return states;
}

/* ---- a range ---- */

/* Elements summed at a time: the sum stays in the cache, beside values and state. Also the elements hashed at a time
 * after an update without hash. */
enum { PIECE = 2048 };

struct update {
    const struct sl_optimizer_options *options;
    const struct sl_kernels *kernels;
    const struct sl_parameters *parameters;
    int number; /* number of the range */
    const struct sl_range *range;
    float *state[SL_OPTIMIZER_STATES]; /* from element state_first of the flat range on */
    size_t state_first;
    int members;
    const float *const *gradient; /* [members], from element gradient_first on */
    size_t gradient_first;
    struct sl_prints *prints; /* NULL: no hashes */
    bool rounds;              /* whether the update rounds new values */
};

/* An update's hash, which adds to the prints. */
struct pass {
    struct sl_pass_hash hash;
    const struct update *update;
    size_t first; /* element of the flat range */
};

static size_t keys(const struct sl_pass_hash *hash, size_t first, const uint32_t **keys) {
    const struct pass *pass = (const struct pass *)hash;
    return sl_prints_keys(pass->update->prints, pass->update->number, pass->first + first, keys);
}

static void add(const struct sl_pass_hash *hash, size_t first, size_t count, uint64_t gradients, uint64_t values) {
    const struct pass *pass = (const struct pass *)hash;
    sl_prints_add_sums(pass->update->prints, pass->first + first, count, gradients, values);
}

static bool hashes_itself(const struct update *u) { return u->options->method->hashes && u->kernels->hashes; }

/* Updates COUNT elements from FIRST on. GRADIENT and ADDEND (or NULL) begin at FIRST. */
static void update_some(const struct update *u, struct sl_optimizer_run run, size_t first, size_t count,
                        const float *gradient, const float *addend) {
    const struct pass pass = {.hash = {keys, add}, .update = u, .first = first};
    const bool apart = sl_range_is_whole(u->parameters, u->number);
    alignas(SL_CACHE_LINE) float values[PIECE]; /* copy of scattered values */
    if (apart) sl_parameters_copy_values(u->parameters, u->number, first, count, values, false);
    run.count = count;
    run.gradient = gradient;
    run.addend = addend;
    run.value = apart ? values : sl_range_values(u->range, first);
    run.rounded = u->rounds ? u->range->rounded + first : NULL;
    for (int s = 0; s < SL_OPTIMIZER_STATES; s++)
        run.state[s] = u->state[s] ? u->state[s] + (first - u->state_first) : NULL;
    run.hash = u->prints && hashes_itself(u) ? &pass.hash : NULL;
    u->options->method->update(u->options, u->kernels, &run);
    if (u->prints && !run.hash) sl_prints_add(u->prints, u->number, first, count, gradient, addend, run.value);
    if (apart) sl_parameters_copy_values(u->parameters, u->number, first, count, values, true);
}

/* Updates COUNT elements from FIRST on. Values that are not contiguous (sl_range_is_whole) are copied piece by piece.
 * Elements hashed after the update also go piece by piece, and are not written past the caches, so that the hash need
 * not read them from memory again; if the host must copy them from a device, they are one piece. */
static void update_run(const struct update *u, struct sl_optimizer_run run, size_t first, size_t count,
                       const float *gradient, const float *addend) {
    const bool behind = u->prints && !hashes_itself(u), apart = sl_range_is_whole(u->parameters, u->number);
    const size_t most = apart || (behind && sl_device.shares_memory) ? PIECE : count;
    run.shared = run.shared && !behind;
    for (size_t done = 0, part; done < count; done += part) {
        part = count - done < most ? count - done : most;
        update_some(u, run, first + done, part, gradient + done, addend ? addend + done : NULL);
    }
}

/* Updates elements [FIRST, END) piece by piece with the sum of the members' gradients. If it can, the update itself
 * adds the last member's gradient. */
static void update_pieces(const struct update *u, struct sl_optimizer_run run, size_t first, size_t end) {
    alignas(SL_CACHE_LINE) float sum[PIECE];
    void *const output = sum;
    const bool adds = u->options->method->adds && u->members <= SL_SUM_BLOCK; /* else it is not the last addition */
    for (size_t count; first < end; first += count) {
        const void *input[u->members];
        count = end - first < PIECE ? end - first : PIECE;
        for (int i = 0; i < u->members; i++) input[i] = u->gradient[i] + (first - u->gradient_first);
        sl_reduce(SL_SUM, SL_F32, 1.0f, count, adds ? u->members - 1 : u->members, input, 1, &output);
        update_run(u, run, first, count, sum, adds ? input[u->members - 1] : NULL);
    }
}

/* Updates elements [FIRST, END), whose state is in memory. */
static void update_near(const struct update *u, struct sl_optimizer_run run, size_t first, size_t end) {
    const size_t at = first - u->gradient_first;
    const float *const one = u->gradient[0] + at;
    if (u->members == 1)
        update_run(u, run, first, end - first, one, NULL);
    else if (u->members == 2 && u->options->method->adds)
        update_run(u, run, first, end - first, one, u->gradient[1] + at);
    else
        update_pieces(u, run, first, end);
}

/* Updates elements [FIRST, END) with offloaded state: reads a piece while the next one is on its way to the host's
 * memory, and writes it back. */
static int update_far(const struct update *near, struct sl_optimizer_run run, size_t first, size_t end,
                      struct sl_error *error) {
    const struct sl_parameters *parameters = near->parameters;
    const size_t piece = sl_far_piece(parameters);
    struct update u = *near;
    for (int s = 0; s < parameters->states; s++) u.state[s] = parameters->far_room + (size_t)s * piece;
    for (size_t count; first < end; first += count) {
        const size_t at = first - u.range->shard, left = end - first;
        count = left < piece ? left : piece;
        for (int s = 0; s < parameters->states; s++)
            SL_TRY(sl_parameters_read_state(parameters, u.number, s, at, count, u.state[s], error));
        if (count < left)
            sl_parameters_expect_states(parameters, u.number, at + count, left - count < piece ? left - count : piece);
        u.state_first = first;
        update_near(&u, run, first, first + count);
        for (int s = 0; s < parameters->states; s++)
            SL_TRY(sl_parameters_write_state(parameters, u.number, s, at, count, u.state[s], error));
    }
    return SL_OK;
}

/* Updates the part of elements [FIRST, END) of the flat range inside the shard. */
static int update_shard(const struct update *u, struct sl_optimizer_run run, size_t first, size_t end,
                        struct sl_error *error) {
    const size_t shard_end = u->range->shard + u->range->shard_count;
    if (first < u->range->shard) first = u->range->shard;
    if (end > shard_end) end = shard_end;
    if (first >= end) return SL_OK;
    if (u->parameters->far_states && u->parameters->states > 0) return update_far(u, run, first, end, error);
    update_near(u, run, first, end);
    return SL_OK;
}

bool sl_optimizer_rounds(const struct sl_optimizer_options *options, const struct sl_parameters *parameters,
                         int range) {
    return options->method->rounds && sl_range_is_rounded_here(parameters, range);
}

static int update_range(struct update *update, int64_t step, float gradient_scale, struct sl_error *error) {
    const struct sl_parameters *parameters = update->parameters;
    const int states = sl_optimizer_states(update->options);
    if (parameters->states < states)
        return sl_error_set(error, SL_BAD_INPUT,
                            "sl_parameters.states is %d: optimizer %s keeps %d: set states and state_name before "
                            "sl_pipeline_plan",
                            parameters->states, update->options->method->name, states);
    struct sl_optimizer_run run = {.gradient_scale = gradient_scale, .step = step};
    run.shared =
        sl_range_is_common(parameters, update->number) && !parameters->rounds; /* else readers use the rounded values */
    update->range = &parameters->range[update->number];
    update->rounds = sl_optimizer_rounds(update->options, parameters, update->number);
    update->state_first = update->range->shard;
    for (int s = 0; s < SL_OPTIMIZER_STATES; s++) update->state[s] = update->range->state[s];
    /* A run ends before the next parameter with another decay; the last run includes the padding. */
    size_t first = 0;
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const float decay = parameter->decay ? update->options->decay : 0.0f;
        if (parameter->range != update->number || parameter->second) continue;
        if (decay != run.decay) {
            SL_TRY(update_shard(update, run, first, parameter->offset, error));
            first = parameter->offset;
            run.decay = decay;
        }
    }
    return update_shard(update, run, first, update->range->count, error);
}

int sl_optimizer_update_sum(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                            struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                            int members, const float *const *gradient, struct sl_prints *prints,
                            struct sl_error *error) {
    struct update update = {.options = options,
                            .kernels = kernels,
                            .parameters = parameters,
                            .number = range,
                            .members = members,
                            .gradient = gradient,
                            .prints = prints};
    return update_range(&update, step, gradient_scale, error);
}

int sl_optimizer_update_hashed(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                               struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                               struct sl_prints *prints, struct sl_error *error) {
    const float *const own = parameters->range[range].sum;
    struct update update = {.options = options,
                            .kernels = kernels,
                            .parameters = parameters,
                            .number = range,
                            .members = 1,
                            .gradient = &own,
                            .gradient_first = parameters->range[range].shard,
                            .prints = prints};
    return update_range(&update, step, gradient_scale, error);
}

int sl_optimizer_update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                        struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                        struct sl_error *error) {
    return sl_optimizer_update_hashed(options, kernels, parameters, range, step, gradient_scale, NULL, error);
}
