/* attend.c - attention, divided between the threads of a crew.
 *
 * Each part is a call of its own: some of attention.c's blocks of queries, or for attention_decode.c heads of one
 * query. Parts thus get the same bits as in one call. */
#include "layers/modules/sequence/cached.h"
#include "spmd/base/crew.h"

/* SHARED: with fewer multiplications, one thread is as fast. MOST: limit of parts for a crew. */
enum { SHARED = 1 << 15, MOST = 1 << 15 };

struct call {
    const struct sl_attention_kernels *kernels;
    const struct sl_attention *shape;
    const void *q, *q_rope, *k, *v, *k_rope;
    struct sl_out o;
    float *logsum;
    bool few;            /* few queries: attention_decode.c computes them */
    size_t parts, heads; /* parts of a sequence; if few: parts of a query, and heads of a part */
};

/* Address of element I of keys or values, or of queries. */
static const void *element(const struct call *call, const void *x, size_t i) {
    return (const char *)x + i * sl_dtype_size(call->shape->keys);
}
static const void *of_query(const struct call *call, const void *x, size_t i) {
    return (const char *)x + i * sl_dtype_size(call->shape->stored_q);
}

/* Computes QUERIES of a sequence from FIRST on, for all heads; or one query, for HEADS from HEAD on. */
static void attend(const struct call *call, size_t sequence, size_t first, size_t queries, size_t head, size_t heads) {
    const struct sl_attention *all = call->shape;
    const size_t row = sequence * all->queries + first, key = sequence * all->key_rows;
    const size_t column = key * all->key_stride + sl_attention_key_head(all, head) * all->width;
    struct sl_attention shape = *all;
    shape.sequences = 1;
    shape.queries = queries;
    shape.position += first;
    shape.heads = heads;
    if (shape.group > 1) shape.lead = (shape.lead + head) % shape.group;
    if (shape.places) shape.places += row;
    call->kernels->forward(&shape, of_query(call, call->q, (row * all->heads + head) * all->width),
                           all->rope ? of_query(call, call->q_rope, (row * all->heads + head) * all->rope) : NULL,
                           element(call, call->k, column), element(call, call->v, column),
                           all->rope ? element(call, call->k_rope, key * all->rope) : call->k_rope,
                           sl_out_from(call->o, (row * all->heads + head) * all->width),
                           call->logsum + row * all->heads + head);
}

/* The last queries see the most keys, so they come first. A small rest that fills no block goes with the block before
 * it, because alone it would get the bits of attention_decode.c. */
static void attend_part(void *arg, int number) {
    const struct call *call = arg;
    const struct sl_attention *shape = call->shape;
    const size_t unit = (size_t)number / call->parts, part = (size_t)number % call->parts;
    if (call->few) {
        const size_t head = part * call->heads, left = shape->heads - head;
        attend(call, unit / shape->queries, unit % shape->queries, 1, head, left < call->heads ? left : call->heads);
        return;
    }
    const size_t block = call->parts - 1 - part, first = block * SL_ATTENTION_BLOCK;
    attend(call, unit, first, part ? SL_ATTENTION_BLOCK : shape->queries - first, 0, shape->heads);
}

/* Returns the number of units with call->parts parts each: sequences or, if few, queries. A sequence of several
 * documents is one part. */
static size_t divide(struct call *call, size_t threads) {
    const struct sl_attention *shape = call->shape;
    const size_t queries = shape->queries, rows = shape->sequences * queries;
    call->few = queries <= SL_ATTENTION_FEW && !shape->places;
    if (!call->few) {
        const size_t blocks = queries / SL_ATTENTION_BLOCK + (queries % SL_ATTENTION_BLOCK > SL_ATTENTION_FEW);
        call->parts = blocks && !shape->places ? blocks : 1;
        return shape->sequences;
    }
    const size_t parts = (threads + rows - 1) / rows;
    call->heads = (shape->heads + parts - 1) / parts;
    call->parts = (shape->heads + call->heads - 1) / call->heads;
    return rows;
}

void sl_attend(const struct sl_context *context, const struct sl_attention *shape, const void *q, const void *q_rope,
               const void *k, const void *v, const void *k_rope, struct sl_out o, float *logsum) {
    struct call call = {
        .kernels = context->kernels->attention, shape, q, q_rope, k, v, k_rope, o, logsum, .few = false};
    const size_t threads = (size_t)sl_crew_threads(context->crew), rows = shape->sequences * shape->queries;
    const size_t work = rows * (shape->position + shape->queries) * shape->heads * shape->width;
    const size_t units = threads > 1 && work >= SHARED && rows <= MOST ? divide(&call, threads) : 0;
    if (units * call.parts > 1)
        sl_crew_run(context->crew, (int)(units * call.parts), attend_part, &call);
    else
        call.kernels->forward(shape, q, q_rope, k, v, k_rope, o, logsum);
}

bool sl_attention_alone(const struct sl_plan *plan, const struct sl_attention *shape) {
    return !plan->caches && !plan->context_axis && sl_kernels_select()->attention->stores_alone(shape);
}

int sl_plan_attended(struct sl_plan *plan, const struct sl_attention *shape, size_t count, struct sl_kept *kept) {
    if (sl_keeps_operands(plan) && sl_attention_alone(plan, shape))
        return sl_plan_written(plan, count, true, SL_UNTIL_INPUT, SL_ROUNDED, kept);
    return sl_plan_kept(plan, count, SL_UNTIL_INPUT, kept);
}

void sl_plan_output_gradient(struct sl_plan *plan, size_t count, const struct sl_place *values, bool reads,
                             struct sl_kept *kept) {
    *kept = (struct sl_kept){.values = *values, .count = count};
    if (!reads || plan->storage == SL_F32 || !sl_gemm_leaves_bf16(plan->gemm)) return;
    sl_plan_kept_room(plan, kept);
    kept->form = SL_ALONE;
}

enum sl_dtype sl_attention_stored(const struct sl_context *context, const struct sl_attention *shape,
                                  const struct sl_kept *kept) {
    return sl_kept_outlasts(kept) && context->kernels->attention->reads_stored(shape) ? SL_BF16 : SL_F32;
}
