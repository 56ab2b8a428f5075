/* token_chunks.c - plans and computes the chunks of a vocabulary. */
#include "layers/modules/sequence/token_chunks.h"

#include <math.h>

#include "layers/modules/leaves.h"
#include "layers/modules/sequence/token_leaves.h"

/* A chunk of the coordinate's classes. */
struct chunk {
    const struct sl_products *products;
    size_t begin, classes; /* first class in the slice; number of classes */
    size_t padding;        /* number of padding classes at the end */
    const void *kernel;    /* [classes, columns], in their stored type; NULL: use BLOCKS */
    struct sl_blocks blocks;
};

/* ---- planning ---- */

/* Counts CHUNKS chunks: their softmax, and the logits of the AGAIN chunks recomputed by W. */
static void count(const struct sl_plan *plan, const struct sl_products_shape *shape, size_t chunks, size_t again) {
    const double logits = (double)shape->rows * shape->out * (double)chunks;
    const struct sl_load_product product = {shape->precision,
                                            shape->wgrad_rows,
                                            shape->out,
                                            shape->in,
                                            false,
                                            true,
                                            (double)shape->rows / shape->wgrad_rows};
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_SOFTMAX, logits);
    if (!sl_plan_trains(plan, 0)) return;
    sl_load_repeat(plan, (double)again);
    sl_load_product(plan, SL_LOAD_WEIGHT, &product);
    sl_load_repeat(plan, 1);
    sl_load_floats(plan, SL_LOAD_WEIGHT, SL_LOAD_SOFTMAX, logits);
}

/* Both chunks' rounded operands share memory: only one chunk is computed at a time. */
static int plan_products(struct sl_token_chunks *chunks, struct sl_plan *plan, size_t rows) {
    const size_t begin = plan->workspace, whole = chunks->chunks - 1, slices = chunks->slices;
    const size_t kept = chunks->kept < whole ? chunks->kept : whole;
    struct sl_products_shape shape = {.precision = plan->precision,
                                      .in = (int)chunks->columns,
                                      .out = (int)(chunks->classes - chunks->chunk * (chunks->chunks - 1)),
                                      .transposed = true,
                                      .rows = (int)rows,
                                      .wgrad_rows = (int)rows * plan->wgrad_group,
                                      .leaves = chunks->leaves};
    sl_load_repeat(plan, (double)slices);
    const int last = sl_products_plan(&chunks->products[1], plan, &shape);
    sl_load_repeat(plan, 1);
    SL_TRY(last);
    count(plan, &shape, slices, chunks->kept <= whole ? slices : 0);
    plan->workspace = begin;
    shape.out = (int)chunks->chunk;
    sl_load_repeat(plan, (double)(slices * whole));
    const int status = sl_products_plan(&chunks->products[0], plan, &shape);
    sl_load_repeat(plan, 1);
    count(plan, &shape, slices * whole, slices * (whole - kept));
    return status;
}

/* Plans memory for sums of leaves, and for a group's tokens leaf by leaf. */
static void plan_leaves(struct sl_token_chunks *chunks, struct sl_plan *plan, size_t group) {
    const size_t size = sizeof(float), columns = chunks->columns;
    if (chunks->leaves == 1 || !sl_plan_trains(plan, 0)) return;
    sl_plan_workspace(plan, sl_tree_levels(chunks->leaves) * chunks->chunk * columns * size, &chunks->waiting);
    if (plan->wgrad_group == 1) return;
    sl_plan_workspace(plan, group * (columns + 2) * size, &chunks->grouped);
    if (chunks->kept) sl_plan_workspace(plan, group * chunks->chunk * size, &chunks->grouped_logits);
}

/* If one chunk has all classes, its logits are always saved. */
static size_t kept_of(const struct sl_token_chunks *chunks, const struct sl_vocabulary *vocabulary) {
    if (sl_token_chunk(vocabulary) == (size_t)vocabulary->size) return 1;
    if (!vocabulary->keeps_logits) return 0;
    return chunks->chunks < SL_KEPT_CHUNKS ? chunks->chunks : SL_KEPT_CHUNKS;
}

/* Plans LOGITS: ROWS rows of each saved chunk, or MOST rows for the others. */
static int plan_logits(struct sl_token_chunks *chunks, struct sl_plan *plan, size_t rows, size_t most) {
    for (size_t i = 0; i < chunks->kept; i++) {
        const size_t left = chunks->classes - i * chunks->chunk;
        SL_TRY(sl_plan_stash(plan, rows * (left < chunks->chunk ? left : chunks->chunk), &chunks->kept_logits[i]));
    }
    if (chunks->kept < chunks->chunks) sl_plan_workspace(plan, most * chunks->chunk * sizeof(float), &chunks->logits);
    return SL_OK;
}

int sl_token_chunks_plan(struct sl_token_chunks *chunks, struct sl_plan *plan, const struct sl_token_table *table,
                         size_t rows) {
    const size_t whole = sl_token_chunk(&table->vocabulary), run = rows * sl_plan_run(plan);
    const bool trains = sl_plan_trains(plan, 0);
    const size_t group = trains ? rows * (size_t)plan->wgrad_group : 0, most = run > group ? run : group;
    chunks->slices = sl_token_slices(table);
    chunks->classes = sl_token_classes(table) / chunks->slices;
    chunks->columns = (size_t)table->vocabulary.dimension;
    chunks->chunk = whole < chunks->classes ? whole : chunks->classes;
    chunks->chunks = (chunks->classes + chunks->chunk - 1) / chunks->chunk;
    chunks->kept = trains && chunks->slices == 1 ? kept_of(chunks, &table->vocabulary) : 0;
    chunks->leaves = table->leaves > 1 ? table->leaves : 1;
    chunks->stores_alone = plan->gemm->on_device;
    SL_TRY(plan_products(chunks, plan, rows));
    plan_leaves(chunks, plan, group);
    sl_plan_workspace(plan, run * sizeof(float), &chunks->scales);
    sl_plan_workspace(plan, sl_token_padding(table) * sizeof(float), &chunks->no_logits);
    if (!plan->forward_only) sl_plan_workspace(plan, run * chunks->chunk * sizeof(float), &chunks->p);
    return plan_logits(chunks, plan, rows, most);
}

void sl_token_chunks_release(struct sl_token_chunks *chunks) {
    for (int i = 0; i < 2; i++) sl_products_release(&chunks->products[i]);
}

/* ---- walking ---- */

struct sl_rows sl_token_chunks_rows(const struct sl_module *module, const struct sl_token_chunks *chunks,
                                    const struct sl_context *context) {
    return sl_rows_of(chunks->products[0].kernel, sl_products_kernel(&chunks->products[0], module, context));
}

/* Number of padding classes among COUNT classes from number FIRST on. */
static size_t padding_of(const struct sl_token_table *table, size_t first, size_t count) {
    const size_t size = (size_t)table->vocabulary.size, end = first + count;
    if (end <= size) return 0;
    return first < size ? end - size : count;
}

/* Chunk NUMBER of the slice with the first class FIRST. */
static struct chunk chunk_of(const struct sl_module *module, const struct sl_token_chunks *chunks,
                             const struct sl_context *context, int32_t first, size_t number) {
    const size_t begin = number * chunks->chunk, left = chunks->classes - begin;
    const size_t slice = (size_t)(first - sl_token_first(module, context));
    const size_t classes = left < chunks->chunk ? left : chunks->chunk;
    const struct sl_blocks *blocks = sl_blocks_value(module, context, 0);
    if (blocks)
        return (struct chunk){.products = &chunks->products[number + 1 == chunks->chunks],
                              .begin = begin,
                              .classes = classes,
                              .blocks = sl_blocks_rows(blocks, slice + begin, classes)};
    return (struct chunk){
        .products = &chunks->products[number + 1 == chunks->chunks],
        .begin = begin,
        .classes = classes,
        .padding = padding_of(sl_token_table_of(module), (size_t)first + begin, classes),
        .kernel = sl_rows_from(sl_token_chunks_rows(module, chunks, context), (slice + begin) * chunks->columns).at};
}

/* Address of the logits of chunk NUMBER: from forward to W, or during its computation. */
static float *logits_of(const struct sl_token_chunks *chunks, const struct sl_context *context, size_t number) {
    return sl_at(context, number < chunks->kept ? &chunks->kept_logits[number] : &chunks->logits);
}

/* Returns whether both products of forward read the table's rows directly; if not, they are widened once for both. */
static bool reads_rows(const struct sl_products *products) {
    return products->widens_forward && products->widens_input;
}

/* Computes LOGITS [COUNT microbatches' rows, the chunk's classes] of X, an operand. AGAIN: afterwards the chunk's
 * kernel has the type read by the other product. */
static int multiply(struct sl_context *context, struct chunk *chunk, size_t columns, int count, const void *x,
                    bool again, float *logits) {
    const void *kernel = chunk->kernel ? chunk->kernel : &chunk->blocks;
    if (!again || reads_rows(chunk->products))
        return sl_products_forward(context, chunk->products, count, x, kernel, NULL, SL_INTO(logits));
    chunk->kernel = sl_products_weights(chunk->products, context, chunk->classes * columns, kernel);
    const struct sl_gemm *gemm = &chunk->products->forward;
    count *= chunk->products->leaves;
    return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, count, x, chunk->kernel, NULL, false, logits));
}

/* Sets the logits of padding to -inf: they do not affect maxima, sums and gradients. */
static void leave_padding_out(const struct sl_token_chunks *chunks, struct sl_context *context,
                              const struct chunk *chunk, size_t rows, float *logits) {
    float *none = sl_at(context, &chunks->no_logits);
    if (!chunk->padding) return;
    context->kernels->fill(chunk->padding, -INFINITY, none);
    context->kernels->sequence->copy_block(rows, chunk->padding, none, 0, logits + chunk->classes - chunk->padding,
                                           chunk->classes);
}

/* DX (+)= A times the chunk's kernel. */
static int add_gradient(struct sl_context *context, const struct chunk *chunk, int count, const void *a,
                        bool accumulate, float *dx) {
    const struct sl_products *products = chunk->products;
    if (reads_rows(products))
        return sl_products_input_gradient(context, products, count, a, chunk->kernel, accumulate, SL_INTO(dx));
    const struct sl_gemm *gemm = &products->input_gradient;
    count *= products->leaves;
    return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, count, a, chunk->kernel, NULL, accumulate, dx));
}

int sl_token_chunks_forward(const struct sl_module *module, const struct sl_token_chunks *chunks,
                            struct sl_context *context, const struct sl_softmax *s, const void *x, bool half,
                            float *dx) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const struct sl_products *whole = &chunks->products[0];
    const int count = (int)sl_call_microbatches(context);
    float *scales = sl_at(context, &chunks->scales);
    const void *operand =
        half ? x : sl_products_operand(whole, context, &whole->x, s->rows * chunks->columns, sl_given_f32(x));
    for (size_t i = 0; i < chunks->chunks; i++) {
        struct chunk c = chunk_of(module, chunks, context, s->first, i);
        const bool begins = s->begins && i == 0;
        float *logits = logits_of(chunks, context, i), *p = dx ? sl_at(context, &chunks->p) : logits;
        uint16_t *rounded = dx ? sl_products_room(c.products, context, &c.products->dy) : NULL;
        if (rounded && chunks->stores_alone) p = NULL;
        SL_TRY(multiply(context, &c, chunks->columns, count, operand, dx != NULL, logits));
        leave_padding_out(chunks, context, &c, s->rows, logits);
        kernels->softmax_chunk(s->rows, c.classes, s->first + (int32_t)c.begin, logits, s->labels, begins, s->maxima,
                               s->argmaxima, s->sums, s->targets, scales, sl_out_of(p, false, rounded));
        if (!dx) continue;
        if (!begins) kernels->scale_rows(s->rows, chunks->columns, scales, dx);
        SL_TRY(add_gradient(context, &c, count, rounded ? (const void *)rounded : p, !begins, dx));
    }
    return SL_OK;
}

/* The chunk's rows of DTABLE (+)= A^T B, operands of ROWS rows. */
static int multiply_gradient(struct sl_context *context, const struct sl_token_chunks *chunks, const struct chunk *c,
                             size_t rows, const void *a, const void *b, bool accumulate, float *dtable) {
    const struct sl_gemm *gemm = &c->products->weight_gradient;
    const size_t columns = chunks->columns, of_leaf = rows / (size_t)chunks->leaves * sl_dtype_size(gemm->dtype);
    float *to = dtable + c->begin * columns;
    if (chunks->leaves == 1)
        return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, a, b, NULL, accumulate, to));
    const struct sl_tree tree = {context->kernels, c->classes * columns, to, sl_at(context, &chunks->waiting)};
    for (int leaf = 0; leaf < chunks->leaves; leaf++) {
        const size_t before = (size_t)leaf * of_leaf;
        const void *own_a = (const char *)a + before * c->classes, *own_b = (const char *)b + before * columns;
        float *summand = sl_tree_summand(&tree, leaf);
        SL_TRY(sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, own_a, own_b, NULL, false, summand)));
        sl_tree_add(&tree, leaf);
    }
    return SL_OK;
}

/* Sets *LOGITS to the logits of chunk NUMBER, in the order of W's rows: saved by forward, or computed from X. */
static int take_logits(const struct sl_module *module, const struct sl_token_chunks *chunks, struct sl_context *context,
                       struct chunk *c, size_t number, const void *x, float **logits) {
    *logits = logits_of(chunks, context, number);
    if (number >= chunks->kept) return multiply(context, c, chunks->columns, context->wgrad_group, x, false, *logits);
    if (chunks->leaves == 1 || context->wgrad_group == 1) return SL_OK;
    float *grouped = sl_at(context, &chunks->grouped_logits);
    sl_tokens_group_by_leaf(sl_token_table_of(module), context, c->classes, *logits, grouped);
    *logits = grouped;
    return SL_OK;
}

/* DTABLE [classes, columns] (+)= dlogits^T X, for one slice. */
static int gradient(const struct sl_module *module, const struct sl_token_chunks *chunks, struct sl_context *context,
                    const struct sl_softmax *s, const void *x, bool half, bool accumulate, float *dtable) {
    const struct sl_products *whole = &chunks->products[0];
    const void *b =
        half ? x : sl_products_operand(whole, context, &whole->x, s->rows * chunks->columns, sl_given_f32(x));
    for (size_t i = 0; i < chunks->chunks; i++) {
        struct chunk c = chunk_of(module, chunks, context, s->first, i);
        float *logits;
        SL_TRY(take_logits(module, chunks, context, &c, i, b, &logits));
        leave_padding_out(chunks, context, &c, s->rows, logits);
        uint16_t *rounded = sl_products_room(c.products, context, &c.products->dy);
        context->kernels->sequence->softmax_dlogits(
            s->rows, c.classes, s->first + (int32_t)c.begin, s->labels, s->maxima, s->sums, context->weight, logits,
            sl_out_of(rounded && chunks->stores_alone ? NULL : logits, false, rounded));
        const void *a = rounded ? (const void *)rounded : logits;
        SL_TRY(multiply_gradient(context, chunks, &c, s->rows, a, b, accumulate, dtable));
    }
    return SL_OK;
}

/* Computes the table's gradient slice by slice. */
static int gradients(const struct sl_module *module, const struct sl_token_chunks *chunks, struct sl_context *context,
                     struct sl_softmax s, const void *x, bool half) {
    float *dtable = sl_gradient(module, context, 0);
    for (size_t i = 0; i < chunks->slices; i++, s.first += (int32_t)chunks->classes)
        SL_TRY(gradient(module, chunks, context, &s, x, half, context->accumulate,
                        dtable + i * chunks->classes * chunks->columns));
    return SL_OK;
}

/* Reorders X, S->maxima and S->sums of a group, and its labels, leaf by leaf. */
static const void *group_by_leaf(const struct sl_module *module, const struct sl_token_chunks *chunks,
                                 const struct sl_context *context, const struct sl_place *labels, const float *x,
                                 struct sl_softmax *s) {
    const struct sl_token_table *table = sl_token_table_of(module);
    s->labels = sl_leaf_labels(module, context, labels, true);
    if (context->wgrad_group == 1) return x;
    float *grouped = sl_at(context, &chunks->grouped), *maxima = grouped + s->rows * chunks->columns;
    sl_tokens_group_by_leaf(table, context, chunks->columns, x, grouped);
    sl_tokens_group_by_leaf(table, context, 1, s->maxima, maxima);
    sl_tokens_group_by_leaf(table, context, 1, s->sums, maxima + s->rows);
    s->maxima = maxima;
    s->sums = maxima + s->rows;
    return grouped;
}

int sl_token_chunks_weight(const struct sl_module *module, const struct sl_token_chunks *chunks,
                           struct sl_context *context, const struct sl_place *labels, float *maxima, float *sums,
                           const void *x, bool half) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    struct sl_softmax s = {
        .rows = sl_token_rows(table, rows), .first = sl_token_first(module, context), .maxima = maxima, .sums = sums};
    if (chunks->leaves > 1)
        x = group_by_leaf(module, chunks, context, labels, x, &s);
    else
        s.labels = sl_token_labels(module, context, labels, rows);
    if (table->division != SL_BY_TOKENS) return gradients(module, chunks, context, s, x, half);
    float *part = sl_token_part(module, context);
    SL_TRY(gradient(module, chunks, context, &s, x, half, false, part));
    return sl_token_sum_parts(module, context, part);
}
