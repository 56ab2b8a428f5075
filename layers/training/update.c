/* update.c - sums a loop's gradients, runs the optimizer on the sums, and gathers the new values. */
#include "layers/training/update.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/modules/module.h"
#include "layers/training/exact/squares.h"
#include "spmd/device/device.h"

/* Opens the group over AXES. Axes missing in the mesh have size 1. */
static int open_group(struct sl_spmd *self, const char *axes, struct sl_group *group) {
    char there[SL_MAX_AXES * SL_AXIS_NAME] = "";
    for (int a = 0; a < self->mesh->axes; a++) {
        const char *name = self->mesh->axis[a].name;
        const size_t used = strlen(there);
        if (sl_axes_have(axes, name)) snprintf(there + used, sizeof there - used, "%s%s", used ? "," : "", name);
    }
    return *there ? sl_group_axes(self, there, group) : sl_group_list(self, 1, &self->coordinate, group);
}

/* The most sums of a range in a step. */
static int most_sums(const struct sl_parameters *parameters) {
    return parameters->layer_sums > 1 ? parameters->layer_sums : 1;
}

int sl_updates_open(struct sl_updates *u, const char *data_axis) {
    const size_t ranges = (size_t)u->parameters->ranges;
    u->completed = calloc(ranges * (size_t)most_sums(u->parameters), sizeof *u->completed);
    u->times = calloc(ranges, sizeof *u->times);
    if (!u->completed || !u->times) return sl_fail(u->self, SL_FAILED, "no memory to train");
    SL_TRY(open_group(u->self, data_axis, &u->sums));
    SL_TRY(open_group(u->self, data_axis, &u->gathers));
    if (u->context_axis) SL_TRY(open_group(u->self, u->context_axis, &u->sharing));
    return sl_group_axes(u->self, "*", &u->world);
}

int sl_updates_tie(struct sl_updates *u, int count, const int *coordinates) {
    const int me = u->self->coordinate;
    bool member = false;
    for (int i = 0; i < count; i++) member = member || coordinates[i] == me;
    /* A coordinate between the ends of a pipeline is no member: it opens a group of its own. */
    return sl_group_list(u->self, member ? count : 1, member ? coordinates : &me, &u->tied);
}

static bool alone(const struct sl_updates *u) { return u->sums.size == 1; }
static bool sums(const struct sl_updates *u, int range) {
    return !alone(u) && !sl_range_is_sharded(u->parameters, range);
}
static bool gathers(const struct sl_updates *u, int range) { return u->zero && sums(u, range); }
static bool ends_in_gather(const struct sl_updates *u, const struct sl_completion *of) {
    return !of->more && gathers(u, of->range);
}
/* Whether the optimizer reads the gradients of RANGE from all members' memory. */
static bool reads(const struct sl_updates *u, int range) { return u->memory && sums(u, range); }
static int room(int number) { return number % SL_UPDATES_IN_FLIGHT; }
/* Whether sums over data are in the order of a tree that differs from the order of members. */
static bool by_tree(const struct sl_updates *u) { return u->leaves && u->sums.size > 3; }

double sl_updates_parts(const struct sl_updates *u) {
    return (double)u->sums.size * (u->leaves ? u->leaves->count : 1) * sl_apart_count(u->parameters);
}

/* Members exchange their addresses as integers. Addresses are of no use with clipping, which sums all gradients first,
 * nor with sums by tree, because the optimizer adds up in the order of members. */
int sl_updates_meet(struct sl_updates *u) {
    const float *const memory = u->parameters->memory;
    for (int r = 0; r < u->parameters->ranges; r++)
        if (u->parameters->range[r].room) return SL_OK; /* rooms are reused soon, so peers could not read them later */
    if (!u->parameters->one_copy || u->parameters->values_only || u->clip > 0.0f || by_tree(u)) return SL_OK;
    u->memory = malloc((size_t)u->sums.size * sizeof *u->memory);
    if (!u->memory) return sl_fail(u->self, SL_FAILED, "no memory for %d members' addresses", u->sums.size);
    return sl_all_gather(u->self, &u->sums, SL_I32, &memory, (void *)u->memory, sizeof memory / sizeof(int32_t));
}

void sl_updates_close(struct sl_updates *u) {
    for (; u->self && u->summed < u->started; u->summed++)
        if (sums(u, u->completed[u->summed].range)) sl_wait(u->self, &u->sum[room(u->summed)]);
    for (; u->self && u->ended < u->used; u->ended++)
        if (ends_in_gather(u, &u->completed[u->ended])) sl_wait(u->self, &u->gather[room(u->ended)]);
    struct sl_group *const groups[] = {&u->sums, &u->gathers, &u->world, &u->tied, &u->sharing};
    for (int i = 0; i < 5; i++) sl_group_close(u->self, groups[i]);
    free(u->memory);
    free(u->completed);
    free(u->times);
}

/* ---- one range each ---- */

/* Place for this coordinate's part of the sum: the gradient's memory if the sum is then added to earlier parts. */
static float *sum_of(const struct sl_range *range, const struct sl_completion *of) {
    return of->adds ? range->gradient + range->shard : range->sum;
}

/* Starts the oldest pending sum. If peers' gradients are read in place, a barrier is enough. */
static int start_sum(struct sl_updates *u) {
    struct sl_completion *of = &u->completed[u->started];
    const int number = of->range;
    struct sl_range *range = &u->parameters->range[number];
    struct sl_request *request = &u->sum[room(u->started)];
    if (u->trace) of->began = sl_now();
    SL_TRY(sl_parameters_use_gradients(u->parameters, number, true, &u->self->error));
    if (reads(u, number))
        SL_TRY(sl_barrier_start(u->self, request, &u->sums));
    else if (gathers(u, number) && by_tree(u))
        SL_TRY(sl_psum_scatter_tree_start(u->self, request, &u->sums, SL_F32, range->gradient, range->sum,
                                          range->shard_count));
    else if (gathers(u, number))
        SL_TRY(sl_psum_scatter_start(u->self, request, &u->sums, SL_F32, range->gradient, sum_of(range, of),
                                     range->shard_count));
    else if (sums(u, number) && by_tree(u))
        SL_TRY(sl_psum_tree_start(u->self, request, &u->sums, SL_F32, range->gradient, range->gradient, range->count));
    else if (sums(u, number))
        SL_TRY(sl_psum_start(u->self, request, &u->sums, SL_F32, range->gradient, range->gradient, range->count));
    u->started++;
    return SL_OK;
}

/* Ends the oldest sum, which is complete. */
static void end_sum(struct sl_updates *u) {
    const struct sl_completion *of = &u->completed[u->summed++];
    const struct sl_range *range = &u->parameters->range[of->range];
    if (of->adds) u->kernels->add(range->shard_count, sum_of(range, of), range->sum);
}

/* Starts to gather the new values. If members hold the values together, a barrier is enough: each has written its own
 * part. If members hold floats only for their own part, bf16 values are gathered. */
static int start_gather(struct sl_updates *u, int number) {
    struct sl_range *range = &u->parameters->range[number];
    struct sl_request *request = &u->gather[room(u->used)];
    if (!gathers(u, number)) return SL_OK;
    if (sl_range_is_common(u->parameters, number)) return sl_barrier_start(u->self, request, &u->gathers);
    if (range->own_floats)
        return sl_all_gather_start(u->self, request, &u->gathers, SL_BF16, range->rounded + range->shard,
                                   range->rounded, range->shard_count);
    return sl_all_gather_start(u->self, request, &u->gathers, SL_F32, range->value + range->shard, range->value,
                               range->shard_count);
}

/* Factor of the gradients: turns sums over data into means, and limits their norm to clip. */
static float scale_of(const struct sl_updates *u) {
    const double mean = 1.0 / sl_updates_parts(u);
    return (float)(u->clip > 0.0f && u->norm > (double)u->clip ? mean * (double)u->clip / u->norm : mean);
}

/* Whether this coordinate rounds its own part of RANGE, before others read it. */
static bool rounds_own(const struct sl_updates *u, int range) {
    return sl_range_is_common(u->parameters, range) || u->parameters->range[range].own_floats;
}

/* Rounds the values of RANGE, unless the optimizer has done so. */
static void round_values(const struct sl_updates *u, int range) {
    if (!sl_optimizer_rounds(u->optimizer, u->parameters, range)) sl_parameters_round(u->parameters, u->kernels, range);
}

/* Checks a few of COUNT gradients before the optimizer reads them: if a loss is not a number, neither is any gradient.
 * Skipped on a device, because the host would have to wait for its queue. */
static void look(struct sl_updates *u, const float *gradient, size_t count) {
    enum { LOOKS = 16 };
    if (!u->looks || u->lost || !sl_device.shares_memory) return;
    for (size_t i = 0; i < count; i += count / LOOKS + 1) u->lost = u->lost || !isfinite(gradient[i]);
}

static int update_sum(struct sl_updates *u, int number) {
    const struct sl_range *range = &u->parameters->range[number];
    const float *gradient[u->sums.size];
    for (int i = 0; i < u->sums.size; i++) gradient[i] = u->memory[i] + (range->gradient - u->parameters->memory);
    SL_TRY(sl_peers_begin(u->self));
    for (int i = 0; i < u->sums.size; i++) look(u, gradient[i] + range->shard, range->shard_count);
    const int status = u->lost
                           ? SL_OK
                           : sl_optimizer_update_sum(u->optimizer, u->kernels, u->parameters, number, u->step,
                                                     scale_of(u), u->sums.size, gradient, u->prints, &u->self->error);
    sl_peers_end(u->self);
    u->apart = true;
    return status;
}

static int update(struct sl_updates *u, int number) {
    const struct sl_range *range = &u->parameters->range[number];
    if (reads(u, number)) return update_sum(u, number);
    look(u, range->sum, range->shard_count);
    if (u->lost) return SL_OK;
    return sl_optimizer_update_hashed(u->optimizer, u->kernels, u->parameters, number, u->step, scale_of(u), u->prints,
                                      &u->self->error);
}

/* Uses the oldest sum. If all its parts have come, updates the range, or this member's share of it, and starts to
 * gather the values. */
static int use_sum(struct sl_updates *u) {
    const int number = u->completed[u->used].range;
    if (u->completed[u->used].more) return u->used++, SL_OK;
    const struct sl_range *range = &u->parameters->range[number];
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_OPTIMIZER);
    const struct sl_trace_mark mark = sl_trace_begin(u->trace);
    const int loop = range->loop;
    SL_TRY(sl_parameters_use_gradients(u->parameters, number, false, &u->self->error));
    SL_TRY(sl_parameters_use_values(u->parameters, number, true, &u->self->error));
    SL_TRY(update(u, number));
    if (rounds_own(u, number)) round_values(u, number);
    sl_trace_end(u->trace, mark,
                 (struct sl_trace_event){.name = "optimizer", .work = SL_TRACE_OPTIMIZER, .loop = loop, .stage = -1});
    sl_profile_end(u->profile, before);
    SL_TRY(start_gather(u, number));
    u->used++;
    return SL_OK;
}

/* Ends the oldest gather. */
static void end_update(struct sl_updates *u) {
    const struct sl_completion *of = &u->completed[u->ended];
    const int number = of->range;
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_OPTIMIZER);
    if (!of->more && !rounds_own(u, number)) round_values(u, number);
    sl_profile_end(u->profile, before);
    if (u->trace && sums(u, number))
        sl_trace_add(u->trace, (struct sl_trace_event){.name = "reduce",
                                                       .begin = of->began,
                                                       .end = sl_now(),
                                                       .work = SL_TRACE_REDUCE,
                                                       .loop = u->parameters->range[number].loop,
                                                       .stage = -1});
    u->ended++;
}

/* ---- all ranges ---- */

static bool may_start(const struct sl_updates *u) {
    return u->started < u->completions && u->started - u->summed < SL_UPDATES_IN_FLIGHT;
}

static bool may_use(const struct sl_updates *u) {
    return u->used < u->summed && u->used - u->ended < (u->overlap ? SL_UPDATES_IN_FLIGHT : 1);
}

static void push(struct sl_updates *u, int range) {
    if (!u->parameters->range[range].count) return;
    const int times = ++u->times[range];
    u->completed[u->completions++] =
        (struct sl_completion){.range = range, .adds = times > 1, .more = times < sl_range_sums(u->parameters, range)};
}

static int wait_for_sums(struct sl_updates *u);

/* If a coordinate has several leaves of the batch, and shares their sequences with other coordinates, a leaf's sum over
 * these coordinates is needed now. One of them keeps the sum; the others keep -0, which changes no later sum. */
static int end_leaf(struct sl_updates *u, int range, int leaf) {
    const struct sl_range *of = &u->parameters->range[range];
    if (!u->leaves || !sl_range_trains(u->parameters, range)) return SL_OK;
    sl_apart_sum(u->parameters, u->kernels, range);
    if (u->sharing.size > 1 && u->leaves->count > 1) {
        SL_TRY(sl_psum_tree(u->self, &u->sharing, SL_F32, of->gradient, of->gradient, of->count));
        if (u->sharing.rank) u->kernels->fill(of->count, -0.0f, of->gradient);
    }
    sl_leaves_add(u->leaves, u->kernels, range, leaf);
    return SL_OK;
}

static int complete(struct sl_updates *u, int range) {
    if (u->leaves) SL_TRY(end_leaf(u, range, u->leaves->count - 1));
    if (!u->parameters->range[range].parts_count) push(u, range);
    return SL_OK;
}

/* Completes the layer whose gradients are in a room. */
static int complete_layer(struct sl_updates *u) {
    for (int range = u->layer; u->layer && range < sl_tied_range(u->parameters); range += u->parameters->loops)
        if (sl_range_is_freed_early(u->parameters, range)) SL_TRY(complete(u, range));
    u->layer = 0;
    return SL_OK;
}

/* If parameters take turns in memory and gradients are not clipped, sums at once: the gradients are in memory now. */
int sl_updates_complete(struct sl_updates *u, int loop) {
    SL_TRY(complete_layer(u));
    for (int range = 0; range < sl_tied_range(u->parameters); range++)
        if (u->parameters->range[range].loop == loop && !sl_range_is_freed_early(u->parameters, range))
            SL_TRY(complete(u, range));
    if (u->parameters->turns && u->clip == 0.0f) return wait_for_sums(u);
    return u->overlap && !alone(u) ? sl_updates_advance(u) : SL_OK;
}

static int advance_sums(struct sl_updates *u) {
    while (u->summed < u->started) {
        bool done = true;
        if (sums(u, u->completed[u->summed].range)) SL_TRY(sl_test(u->self, &u->sum[room(u->summed)], &done));
        if (!done) break;
        end_sum(u);
    }
    return SL_OK;
}

static int advance_gathers(struct sl_updates *u) {
    while (u->ended < u->used) {
        bool done = true;
        if (ends_in_gather(u, &u->completed[u->ended])) SL_TRY(sl_test(u->self, &u->gather[room(u->ended)], &done));
        if (!done) break;
        end_update(u);
    }
    return SL_OK;
}

static int advance(struct sl_updates *u) {
    while (may_start(u)) SL_TRY(start_sum(u));
    SL_TRY(advance_sums(u));
    while (u->clip == 0.0f && may_use(u)) SL_TRY(use_sum(u));
    return advance_gathers(u);
}

int sl_updates_advance(struct sl_updates *u) {
    if (u->ended == u->completions || alone(u) || !u->overlap) return SL_OK;
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_COMMUNICATION);
    SL_TRY(advance(u));
    sl_profile_end(u->profile, before);
    return SL_OK;
}

/* ---- the norm ---- */

/* This coordinate's part of parameter I's gradient in the norm: *COUNT elements from *FIRST on, in its part of the
 * range. */
static void owned_part(const struct sl_updates *u, int i, size_t *first, size_t *count) {
    const struct sl_parameter *parameter = &u->parameters->list[i];
    sl_parameter_share(u->parameters, i, first, count);
    *first += parameter->offset - u->parameters->range[parameter->range].shard;
    if (!sl_parameter_is_first(u->parameters, u->self, i, gathers(u, parameter->range))) *count = 0;
}

/* Sums the squares of this coordinate's part. The device's sum is 0 when the step begins. */
static int sum_squares(struct sl_updates *u, double *squares) {
    for (int i = 0; i < u->parameters->count; i++) {
        const int range = u->parameters->list[i].range;
        size_t first, count;
        owned_part(u, i, &first, &count);
        if (!count) continue;
        SL_TRY(sl_parameters_use_gradients(u->parameters, range, false, &u->self->error));
        u->kernels->sum_of_squares(count, u->parameters->range[range].sum + first, u->totals->room,
                                   &u->totals->squares);
    }
    sl_device.copy(squares, &u->totals->squares, sizeof *squares);
    return SL_OK;
}

/* Sums in double. A double is sent as two floats: the nearest float, and the rest. */
static int find_norm(struct sl_updates *u) {
    double squares;
    SL_TRY(sum_squares(u, &squares));
    float parts[2] = {(float)squares, 0.0f}, total[2 * u->world.size];
    if (isfinite(parts[0])) parts[1] = (float)(squares - (double)parts[0]);
    SL_TRY(sl_all_gather(u->self, &u->world, SL_F32, parts, total, 2));
    squares = 0;
    for (int i = 0; i < u->world.size; i++) squares += (double)total[2 * i] + (double)total[2 * i + 1];
    u->norm = sqrt(squares) / sl_updates_parts(u);
    return SL_OK;
}

/* Finds the norm. Its bits do not depend on the layout. */
static int find_exact_norm(struct sl_updates *u) {
    struct sl_sums *sums = u->totals;
    int32_t largest;
    size_t first, count;
    for (int i = 0; i < u->parameters->count; i++) {
        const struct sl_range *range = &u->parameters->range[u->parameters->list[i].range];
        owned_part(u, i, &first, &count);
        if (count) u->kernels->largest_bits(count, range->sum + first, sums->room, &sums->largest);
    }
    sl_device.copy(&largest, &sums->largest, sizeof largest);
    SL_TRY(sl_pmax(u->self, &u->world, SL_I32, &largest, &largest, 1));
    struct sl_squares squares = sl_squares_of(largest);
    float value;
    memcpy(&value, &largest, sizeof value);
    u->norm = (double)value;
    if (!isfinite(value)) return SL_OK;
    for (int i = 0; i < u->parameters->count; i++) {
        const struct sl_range *range = &u->parameters->range[u->parameters->list[i].range];
        owned_part(u, i, &first, &count);
        sl_squares_add(&squares, u->kernels, range->sum + first, count, sums);
    }
    sl_squares_read(&squares, sums);
    SL_TRY(sl_squares_root(u->self, &u->world, &squares, &u->norm));
    u->norm /= sl_updates_parts(u);
    return SL_OK;
}

/* ---- rooms ---- */

/* Waits for the oldest sum. Without overlap, sums start one after another. */
static int wait_for_sum(struct sl_updates *u) {
    const int ahead = u->overlap ? SL_UPDATES_IN_FLIGHT : 1;
    while (may_start(u) && u->started - u->summed < ahead) SL_TRY(start_sum(u));
    if (sums(u, u->completed[u->summed].range)) SL_TRY(sl_wait(u->self, &u->sum[room(u->summed)]));
    end_sum(u);
    return SL_OK;
}

static int wait_for_room(struct sl_updates *u, int room) {
    int last = u->completions - 1;
    while (last >= 0 && u->parameters->range[u->completed[last].range].room != room) last--;
    if (u->summed > last) return SL_OK;
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_COMMUNICATION);
    while (u->summed <= last) SL_TRY(wait_for_sum(u));
    sl_profile_end(u->profile, before);
    return SL_OK;
}

/* If a layer has a further sum in this step, its gradient starts from 0, because the room holds another layer's
 * gradient. */
int sl_updates_make_room(struct sl_updates *u, int part) {
    const struct sl_range *range = u->parameters->range;
    const int number = range[part].room ? part : 2 * u->parameters->loops + part; /* one of the two ranges has a room */
    const bool layer = range[part].loop != part;
    if (layer && part == u->layer) return SL_OK;
    SL_TRY(complete_layer(u));
    if (layer) u->layer = part;
    if (!range[number].room) return SL_OK;
    SL_TRY(wait_for_room(u, range[number].room));
    if (u->times[number]) sl_device.zero(range[number].gradient, range[number].count * sizeof(float));
    return SL_OK;
}

/* ---- the end of a step ---- */

static int wait_for_gather(struct sl_updates *u) {
    if (ends_in_gather(u, &u->completed[u->ended])) SL_TRY(sl_wait(u->self, &u->gather[room(u->ended)]));
    end_update(u);
    return SL_OK;
}

static int wait_for_sums(struct sl_updates *u) {
    while (u->summed < u->completions) {
        SL_TRY(wait_for_sum(u));
        if (u->clip > 0.0f || !may_use(u)) continue;
        SL_TRY(use_sum(u));
        if (!u->overlap) SL_TRY(wait_for_gather(u));
    }
    return SL_OK;
}

/* Adds up the gradients of tied parameters in the order of their stages, independent of the coordinates. */
static int add_tied(struct sl_updates *u, int leaf) {
    const int number = sl_tied_range(u->parameters);
    struct sl_range *range = &u->parameters->range[number];
    if (range->count == 0) return SL_OK;
    for (int of = 0; of < sl_apart_count(u->parameters); of++) {
        float *const gradient = sl_range_gradient_of(u->parameters, number, false, of);
        const float *second = range->second ? sl_range_gradient_of(u->parameters, number, true, of) : NULL;
        if (second) u->kernels->add(range->count, second, gradient);
        if (u->tied.size > 1) SL_TRY(sl_psum(u->self, &u->tied, SL_F32, gradient, gradient, range->count));
    }
    return end_leaf(u, number, leaf);
}

int sl_updates_end_leaf(struct sl_updates *u, int leaf) {
    const enum sl_work before = sl_profile_begin(u->profile, SL_WORK_OPTIMIZER);
    for (int range = 0; range < sl_tied_range(u->parameters); range++) SL_TRY(end_leaf(u, range, leaf));
    SL_TRY(add_tied(u, leaf));
    sl_profile_end(u->profile, before);
    return SL_OK;
}

/* Sums parts last: no peer waits for this coordinate, and no other sum is under way. */
static int sum_parts(struct sl_updates *u) {
    for (int range = u->parameters->loops; range < 2 * u->parameters->loops; range++) {
        if (!u->parameters->range[range].parts_count) continue;
        SL_TRY(sl_parts_sum(u->self, &u->sums, u->parameters, u->kernels, range));
        push(u, range);
    }
    return SL_OK;
}

int sl_updates_finish(struct sl_updates *u) {
    SL_TRY(wait_for_sums(u));
    SL_TRY(sum_parts(u));
    SL_TRY(add_tied(u, u->leaves ? u->leaves->count - 1 : 0));
    push(u, sl_tied_range(u->parameters));
    SL_TRY(wait_for_sums(u));
    if (u->clip > 0.0f) SL_TRY(u->leaves ? find_exact_norm(u) : find_norm(u));
    if (u->clip > 0.0f && u->looks && !isfinite(u->norm)) u->lost = true;
    while (u->ended < u->completions) {
        while (may_use(u)) SL_TRY(use_sum(u));
        SL_TRY(wait_for_gather(u));
    }
    u->completions = u->started = u->summed = u->used = u->ended = 0;
    memset(u->times, 0, (size_t)u->parameters->ranges * sizeof *u->times);
    return SL_OK;
}

int sl_updates_sum(struct sl_updates *u) {
    for (int r = 0; r < u->parameters->ranges && u->apart; r++) {
        struct sl_range *range = &u->parameters->range[r];
        if (range->count == 0 || sl_range_is_frozen(u->parameters, r) || !reads(u, r)) continue;
        SL_TRY(sl_psum_scatter(u->self, &u->sums, SL_F32, range->gradient, range->sum, range->shard_count));
    }
    u->apart = false;
    return SL_OK;
}
