/* context_ring.c - attention to the keys of one coordinate at a time, while the next ones are on their way (Liu et al.,
 * "Ring Attention with Blockwise Transformers", 2023).
 *
 * In step S a coordinate attends to keys of the coordinate S places after it, which come by ppermute. A block of keys
 * goes only to coordinates that see some of it: all of them know which these are. Partial results are merged. In
 * backward the keys come again; the gradients that a coordinate computes for them go back the other way, and their
 * owner adds them to its own. */
#include <stdint.h>
#include <stdlib.h>

#include "layers/modules/sequence/context_internal.h"
#include "spmd/device/device.h"

/* ---- blocks ---- */

/* A call. HALF: which of a coordinate's two blocks, 0 or 1. */
struct ring {
    struct sl_context *context;
    const struct sl_context_keys *keys;
    const struct sl_attention *shape;
    const struct sl_context_call *call;
    const struct sl_group *peers;
    enum sl_dtype dtype;            /* of keys */
    size_t rows, sequences, window; /* rows of a block */
    int32_t *earliest;              /* [members, halves]: position of the first key that a block sees */
    int (*pair)[2];                 /* [members] */
    /* Moves under way, in their order: */
    struct sl_request request[SL_MAX_IN_FLIGHT];
    double began[SL_MAX_IN_FLIGHT];
    int started, ended;
};

static int number_of(const struct ring *r, int member, int half) {
    return sl_cut_block((struct sl_cut){.parts = r->peers->size, .part = member}, half);
}

/* Returns the position of the first key seen by block NUMBER of a sequence, whose first row has BEFORE earlier tokens
 * in its document. */
static int64_t first_seen(const struct ring *r, int number, int64_t before) {
    const int64_t first = number * (int64_t)r->rows, window = (int64_t)r->window;
    const int64_t seen = window && before >= window ? window - 1 : before;
    return seen < first ? first - seen : 0;
}

/* The same for a block of this coordinate's sequence SEQUENCE. */
static int64_t first_of(const struct ring *r, size_t sequence, int half) {
    const int32_t *places = r->shape->places;
    return first_seen(r, number_of(r, r->peers->rank, half),
                      places ? places[(2 * sequence + (size_t)half) * r->rows] : INT32_MAX);
}

/* Whether any sequence's block HALF of MEMBER sees keys of block KEY_HALF of OWNER. */
static bool sees(const struct ring *r, int member, int half, int owner, int key_half) {
    return sl_context_sees((int)r->rows, r->earliest[2 * member + half], number_of(r, member, half),
                           number_of(r, owner, key_half));
}

/* Fills in `earliest`. Documents are known only to the members that have them. */
static int find_earliest(struct ring *r) {
    for (int i = 0; i < 2 * r->peers->size; i++)
        r->earliest[i] = (int32_t)first_seen(r, number_of(r, i / 2, i % 2), INT32_MAX);
    if (!r->shape->places) return SL_OK;
    int32_t *const own = r->earliest + 2 * r->peers->rank;
    for (int half = 0; half < 2; half++) {
        own[half] = INT32_MAX;
        for (size_t s = 0; s < r->sequences; s++) {
            const int32_t first = (int32_t)first_of(r, s, half);
            own[half] = first < own[half] ? first : own[half];
        }
    }
    return sl_communicate(r->context, sl_describe_all_gather(r->peers, SL_I32, own, r->earliest, 2));
}

/* ---- places in arrays ---- */

/* Elements of all sequences' blocks HALF, of both arrays. */
static size_t half_count(const struct ring *r) {
    return r->sequences * r->rows * (r->keys->columns[0] + r->keys->columns[1]);
}

/* Element of array I of a block in memory that is moved: [halves, arrays, sequences, rows, columns]. */
static size_t moved_at(const struct ring *r, int i, size_t sequence, int half) {
    const size_t before = i ? r->sequences * r->rows * r->keys->columns[0] : 0;
    return (size_t)half * half_count(r) + before + sequence * r->rows * r->keys->columns[i];
}

/* The same in this coordinate's own arrays. */
static size_t own_at(const struct ring *r, int i, size_t sequence, int half) {
    return (2 * sequence + (size_t)half) * r->rows * r->keys->columns[i];
}

static void *element(enum sl_dtype dtype, const void *x, size_t i) {
    return x ? (char *)(uintptr_t)x + i * sl_dtype_size(dtype) : NULL;
}

/* Copies own keys to the memory from which they are sent. */
static void pack(const struct ring *r) {
    char *const sent = sl_at(r->context, &r->keys->sent);
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++)
        for (size_t block = 0; r->keys->columns[i] && block < 2 * r->sequences; block++)
            sl_device.copy(element(r->dtype, sent, moved_at(r, i, block / 2, block % 2)),
                           element(r->dtype, r->call->own[i], own_at(r, i, block / 2, block % 2)),
                           r->rows * r->keys->columns[i] * sl_dtype_size(r->dtype));
}

/* Adds the gradients at FROM, of block HALF of each sequence, to those of own keys. */
static void add_gradients(const struct ring *r, const float *from, int half) {
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++)
        for (size_t s = 0; r->keys->columns[i] && s < r->sequences; s++)
            r->context->kernels->add(r->rows * r->keys->columns[i], from + moved_at(r, i, s, half),
                                     r->call->d_own[i] + own_at(r, i, s, half));
}

/* ---- moves ---- */

/* Pairs of a move of block HALF in STEP: from owners to members that see it, or if BACK, from these to the owners. */
static int pairs_of(const struct ring *r, int step, int half, bool back) {
    int pairs = 0;
    for (int member = 0; member < r->peers->size; member++) {
        const int owner = (member + step) % r->peers->size;
        if (!sees(r, member, 0, owner, half) && !sees(r, member, 1, owner, half)) continue;
        r->pair[pairs][0] = back ? member : owner;
        r->pair[pairs++][1] = back ? owner : member;
    }
    return pairs;
}

/* Starts to move both blocks from IN to OUT, unless no member sees them. Returns the number of moves that must have
 * ended before they have arrived. A failure is left in *STATUS. */
static int start(struct ring *r, int step, bool back, const void *in, void *out, int *status) {
    const enum sl_dtype dtype = back ? SL_F32 : r->dtype;
    const enum sl_work before = sl_profile_begin(r->context->profile, SL_WORK_COMMUNICATION);
    for (int half = 0; half < 2 && *status == SL_OK; half++) {
        const int slot = r->started % SL_MAX_IN_FLIGHT, pairs = pairs_of(r, step, half, back);
        const size_t first = (size_t)half * half_count(r);
        if (!pairs) continue;
        r->began[slot] = sl_trace_now(r->context->trace);
        *status = sl_start(r->context->self, &r->request[slot], SL_HERE,
                           sl_describe_ppermute(r->peers, dtype, element(dtype, in, first), element(dtype, out, first),
                                                half_count(r), pairs, (const int(*)[2])r->pair));
        r->started += *status == SL_OK;
    }
    sl_profile_end(r->context->profile, before);
    return r->started;
}

/* Waits until END moves have ended. */
static int wait_until(struct ring *r, int end, const char *name, int step) {
    int status = SL_OK;
    for (; r->ended < end; r->ended++) {
        const int slot = r->ended % SL_MAX_IN_FLIGHT;
        const enum sl_work before = sl_profile_begin(r->context->profile, SL_WORK_COMMUNICATION);
        const int ended = sl_wait(r->context->self, &r->request[slot]);
        sl_profile_end(r->context->profile, before);
        sl_trace_piece(r->context->trace, SL_TRACE_MOVE, name, step, r->began[slot]);
        if (status == SL_OK) status = ended;
    }
    return status;
}

/* ---- attention ---- */

/* A call of attention's kernels: one block of queries, and one of keys. */
struct meeting {
    struct sl_attention shape;
    size_t row; /* the first query */
    bool first; /* the first keys that these queries meet: their own */
    const void *k, *v, *k_rope;
    float *dk, *dv, *dk_rope;
};

/* Limits PLACES to the keys of this block and later ones. */
static const int32_t *places_in(const struct ring *r, const int32_t *places, size_t position) {
    int32_t *const within = sl_at(r->context, &r->keys->places);
    for (size_t t = 0; t < r->rows; t++) {
        const int32_t most = (int32_t)(position + t);
        within[t] = places && places[t] < most ? places[t] : most;
    }
    return within;
}

/* Sets *M to the meeting of a sequence's block HALF with the keys at KEYS, of block KEY_HALF of OWNER; D_KEYS has their
 * gradients. Without KEYS, they are this coordinate's own. Returns false if these queries see none of them. */
static bool meet(const struct ring *r, size_t sequence, int half, int owner, int key_half, const void *keys,
                 float *d_keys, struct meeting *m) {
    const int own = number_of(r, r->peers->rank, half), theirs = number_of(r, owner, key_half);
    const struct sl_context_call *call = r->call;
    const bool beside = r->keys->beside;
    const void *x[SL_CONTEXT_ARRAYS];
    float *d[SL_CONTEXT_ARRAYS];
    if (!sl_context_sees((int)r->rows, first_of(r, sequence, half), own, theirs)) return false;
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) {
        const size_t at = keys ? moved_at(r, i, sequence, key_half) : own_at(r, i, sequence, key_half);
        x[i] = element(r->dtype, keys ? keys : call->own[i], at);
        d[i] = element(SL_F32, keys ? d_keys : call->d_own[i], at);
    }
    *m = (struct meeting){.shape = *r->shape,
                          .row = (2 * sequence + (size_t)half) * r->rows,
                          .first = own == theirs,
                          .k = x[0],
                          .v = beside ? element(r->dtype, x[0], r->shape->key_stride / 2) : x[1],
                          .k_rope = beside && r->shape->rope ? x[1] : NULL,
                          .dk = d[0],
                          .dv = beside ? element(SL_F32, d[0], r->shape->key_stride / 2) : d[1],
                          .dk_rope = beside && r->shape->rope ? d[1] : NULL};
    m->shape.sequences = 1;
    m->shape.queries = m->shape.key_rows = r->rows;
    m->shape.position = (size_t)(own - theirs) * r->rows;
    m->shape.adds = true;
    if (!r->window && sl_context_sees_all(r->shape->places, m->row, r->rows, m->shape.position))
        m->shape.places = NULL;
    else
        m->shape.places = places_in(r, r->shape->places ? r->shape->places + m->row : NULL, m->shape.position);
    return true;
}

static void forward_meeting(const struct ring *r, const struct meeting *m) {
    const struct sl_attention_kernels *attention = r->context->kernels->attention;
    const size_t heads = m->shape.heads, query = m->row * heads * m->shape.width;
    const size_t rotated = m->row * heads * m->shape.rope;
    float *const o = sl_out_floats(r->call->to) + query, *const logsum = r->call->logsum + m->row * heads;
    float *const others = m->first ? o : sl_at(r->context, &r->keys->others);
    float *const others_logsum = m->first ? logsum : sl_at(r->context, &r->keys->others_logsum);
    attention->forward(&m->shape, element(SL_F32, r->call->q, query), element(SL_F32, r->call->q_rope, rotated), m->k,
                       m->v, m->k_rope, sl_out_f32(others), others_logsum);
    if (!m->first) attention->merge(&m->shape, others, others_logsum, o, logsum);
}

static void backward_meeting(const struct ring *r, const struct meeting *m) {
    const struct sl_kernels *kernels = r->context->kernels;
    const struct sl_context_call *call = r->call;
    const enum sl_dtype stored = m->shape.stored;
    const size_t heads = m->shape.heads, count = r->rows * heads * m->shape.width,
                 query = m->row * heads * m->shape.width;
    const size_t turned = r->rows * heads * m->shape.rope, rotated = m->row * heads * m->shape.rope;
    float *const dq = sl_out_floats(call->dq) + query, *const dq_rope = turned ? call->dq_rope + rotated : NULL;
    float *const part = m->first ? dq : sl_at(r->context, &r->keys->others);
    float *const part_rope = m->first || !turned ? dq_rope : sl_at(r->context, &r->keys->others_rope);
    if (!m->first) kernels->fill(count, 0.0f, part);
    if (!m->first && turned) kernels->fill(turned, 0.0f, part_rope);
    kernels->attention->backward(
        &m->shape, element(stored, call->q, query), element(stored, call->q_rope, rotated), m->k, m->v, m->k_rope,
        element(m->shape.stored_o, call->o, query), call->logsum + m->row * heads, call->d_o + query, sl_out_f32(part),
        part_rope, sl_out_f32(m->dk), sl_out_f32(m->dv), m->dk_rope, sl_at(r->context, &r->keys->scratch));
    if (m->first) return;
    kernels->add(count, part, dq);
    if (turned) kernels->add(turned, part_rope, dq_rope);
}

/* Attends to the keys of STEP, at KEYS; with D_KEYS, computes gradients. Queries meet their own keys first. */
static void attend(const struct ring *r, int step, const void *keys, float *d_keys, bool backward) {
    const int owner = (r->peers->rank + step) % r->peers->size;
    const double began = sl_trace_now(r->context->trace);
    struct meeting m;
    for (size_t number = 0; number < 4 * r->sequences; number++) {
        const int half = (int)(number / 2 % 2), key_half = 1 - (int)(number % 2);
        if (!meet(r, number / 4, half, owner, key_half, keys, d_keys, &m)) continue;
        if (backward)
            backward_meeting(r, &m);
        else
            forward_meeting(r, &m);
    }
    sl_trace_piece(r->context->trace, SL_TRACE_PRODUCT, "attend", step, began);
}

/* ---- planning ---- */

/* The same calls as those below, as if no sequence had several documents. Keys are packed; all meetings but the first
 * of each block of queries are merged or, in backward, added. */
static void count(const struct sl_plan *plan, struct ring *r, size_t columns) {
    const double half = (double)plan->rows / 2, block = half * (double)columns, bytes = block * sizeof(float);
    const double merged = half * (2.0 * r->peers->size - 1) * (double)(r->shape->heads * r->shape->width);
    const double turned = half * (2.0 * r->peers->size - 1) * (double)(r->shape->heads * r->shape->rope);
    double calls = 0;
    for (int step = 1; step < r->peers->size; step++)
        for (int i = 0; i < 2; i++) calls += pairs_of(r, step, i, false) > 0;
    sl_load_call(plan, SL_LOAD_FORWARD, SL_PPERMUTE, plan->context_axis, calls * bytes, calls);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 4 * block + 3 * merged);
    if (plan->forward_only) return;
    sl_load_call(plan, SL_LOAD_INPUT, SL_PPERMUTE, plan->context_axis, 2 * calls * bytes, 2 * calls);
    sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, (6 + 4 * calls) * block + 4 * (merged + turned));
}

/* Counts with memory of its own: planning has no workspace yet. */
static int count_calls(const struct sl_plan *plan, const struct sl_attention *shape, size_t columns) {
    const struct sl_group group = {.size = plan->cut.parts};
    const size_t members = (size_t)plan->cut.parts;
    struct ring r = {.peers = &group, .shape = shape, .rows = (size_t)plan->sequence / 2, .window = shape->window};
    if (!plan->load) return SL_OK;
    r.earliest = malloc(2 * members * sizeof *r.earliest);
    r.pair = malloc(members * sizeof *r.pair);
    const bool fits = r.earliest && r.pair;
    if (fits && find_earliest(&r) == SL_OK) count(plan, &r, columns);
    free(r.earliest);
    free(r.pair);
    return fits ? SL_OK : sl_error_set(plan->error, SL_FAILED, "no memory to count the moves of keys");
}

int sl_plan_context_ring(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys) {
    const size_t size = sizeof(float), members = (size_t)plan->cut.parts, rows = (size_t)plan->sequence / 2;
    const size_t bytes = sl_plan_rows(plan) * (keys->columns[0] + keys->columns[1]) * size;
    sl_plan_workspace(plan, bytes, &keys->sent);
    for (int i = 0; i < 2; i++) sl_plan_workspace(plan, bytes, &keys->came[i]);
    sl_plan_workspace(plan, rows * shape->heads * shape->width * size, &keys->others);
    sl_plan_workspace(plan, rows * shape->heads * size, &keys->others_logsum);
    sl_plan_workspace(plan, rows * sizeof(int32_t), &keys->places);
    sl_plan_workspace(plan, 2 * members * sizeof(int32_t), &keys->earliest);
    sl_plan_workspace(plan, members * sizeof(int[2]), &keys->pairs);
    SL_TRY(count_calls(plan, shape, keys->columns[0] + keys->columns[1]));
    if (plan->forward_only) return SL_OK;
    for (int i = 0; i < 2; i++) sl_plan_workspace(plan, bytes, &keys->given[i]);
    sl_plan_workspace(plan, bytes, &keys->returned);
    sl_plan_workspace(plan, rows * shape->heads * shape->rope * size, &keys->others_rope);
    struct sl_attention largest = *shape;
    largest.sequences = 1;
    largest.queries = largest.key_rows = rows;
    sl_plan_workspace(plan, sl_kernels_select()->attention->scratch(&largest), &keys->scratch);
    return SL_OK;
}

/* ---- calls ---- */

static int begin(struct ring *r, struct sl_context *context, const struct sl_context_keys *keys,
                 const struct sl_attention *shape, const struct sl_context_call *call, enum sl_dtype dtype) {
    *r = (struct ring){.context = context,
                       .keys = keys,
                       .shape = shape,
                       .call = call,
                       .peers = sl_group_of(context, keys->group),
                       .dtype = dtype,
                       .rows = shape->queries / 2,
                       .sequences = shape->sequences,
                       .window = shape->window,
                       .earliest = sl_at(context, &keys->earliest),
                       .pair = sl_at(context, &keys->pairs)};
    SL_TRY(find_earliest(r));
    pack(r);
    return SL_OK;
}

/* Starts to fetch the keys of STEP into their turn's memory. */
static void fetch(struct ring *r, int step, int arrives[2], int *status) {
    if (step >= r->peers->size) return;
    arrives[step % 2] =
        start(r, step, false, sl_at(r->context, &r->keys->sent), sl_at(r->context, &r->keys->came[step % 2]), status);
}

int sl_context_ring_forward(struct sl_context *context, const struct sl_context_keys *keys,
                            const struct sl_attention *shape, const struct sl_context_call *call) {
    struct ring r;
    int arrives[2], status = SL_OK;
    SL_TRY(begin(&r, context, keys, shape, call, SL_F32));
    fetch(&r, 1, arrives, &status);
    attend(&r, 0, NULL, NULL, false);
    for (int step = 1; step < r.peers->size && status == SL_OK; step++) {
        fetch(&r, step + 1, arrives, &status);
        if (status == SL_OK) status = wait_until(&r, arrives[step % 2], "keys", step);
        if (status == SL_OK) attend(&r, step, sl_at(context, &keys->came[step % 2]), NULL, false);
    }
    const int ended = wait_until(&r, r.started, "keys", r.peers->size - 1);
    sl_context_settle(context, shape->heads * shape->width, call->to);
    return status == SL_OK ? ended : status;
}

/* Waits for the gradients that have been given back in STEP, and adds those for own keys. */
static int take_back(struct ring *r, int step, int arrives) {
    const int member = (r->peers->rank + r->peers->size - step) % r->peers->size, rank = r->peers->rank;
    const float *const returned = sl_at(r->context, &r->keys->returned);
    SL_TRY(wait_until(r, arrives, "gradients", step));
    for (int half = 0; half < 2; half++)
        if (sees(r, member, 0, rank, half) || sees(r, member, 1, rank, half)) add_gradients(r, returned, half);
    return SL_OK;
}

/* Computes the gradients of STEP, and starts to give them back, once those of the step before have arrived. */
static int backward_step(struct ring *r, int step, int *returns) {
    struct sl_context *const context = r->context;
    float *const given = sl_at(context, &r->keys->given[step % 2]);
    int status = SL_OK;
    context->kernels->fill(2 * half_count(r), 0.0f, given);
    attend(r, step, sl_at(context, &r->keys->came[step % 2]), given, true);
    if (step > 1) SL_TRY(take_back(r, step - 1, *returns));
    *returns = start(r, step, true, given, sl_at(context, &r->keys->returned), &status);
    return status;
}

int sl_context_ring_backward(struct sl_context *context, const struct sl_context_keys *keys,
                             const struct sl_attention *shape, const struct sl_context_call *call) {
    struct ring r;
    int arrives[2], returns = 0, status = SL_OK;
    SL_TRY(begin(&r, context, keys, shape, call, shape->stored));
    fetch(&r, 1, arrives, &status);
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++)
        if (call->d_own[i]) context->kernels->fill((size_t)context->rows * keys->columns[i], 0.0f, call->d_own[i]);
    attend(&r, 0, NULL, NULL, true);
    for (int step = 1; step < r.peers->size && status == SL_OK; step++) {
        fetch(&r, step + 1, arrives, &status);
        if (status == SL_OK) status = wait_until(&r, arrives[step % 2], "keys", step);
        if (status == SL_OK) status = backward_step(&r, step, &returns);
    }
    if (status == SL_OK) status = take_back(&r, r.peers->size - 1, returns);
    const int ended = wait_until(&r, r.started, "gradients", r.peers->size - 1);
    sl_context_settle(context, shape->heads * shape->width, call->dq);
    return status == SL_OK ? ended : status;
}
