/* token_head.c - logits = x table^T and their softmax cross entropy, chunk of classes by chunk, so that no array of all
 * logits exists. The table is the one that token_embedding.c looks tokens up in.
 *
 * Forward makes each chunk's logits once, and of them the sums of the softmax and dx together (cf. Milakov &
 * Gimelshein, "Online normalizer calculation for softmax", 2018). With m the largest logit so far,
 *
 *     p = exp(logits - m),  sums = e sums + sum of p,  dx = e dx + p chunk,  e = exp(m before - m)
 *     and in the end dx = weight (dx / sums - the label's row of the table).
 *
 * W makes the logits again, unless there is one chunk only: then they are stashed. Chunks follow from the number of
 * classes alone, and are added up in their order.
 *
 * A product needs all channels of a coordinate's tokens. If the work is divided by tokens, an all_to_all brings them;
 * otherwise all channels of all tokens are gathered. Trainers divide the sums of metrics by the number of coordinates
 * along the axis, as if each of them had counted the same rows. So a token that only one coordinate counts is counted
 * once for each of them. */
#include "layers/modules/feedforward/products.h"
#include "layers/modules/sequence/token_table.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { CHUNK = 4096 /* classes, at most */, ALIGNED = 64 /* classes that the borders of chunks are multiples of */ };

struct token_head {
    struct sl_token_table table;
    size_t chunk, chunks;           /* classes of each chunk but the last, which may have fewer */
    struct sl_products products[2]; /* with a whole chunk, with the last one */
    struct sl_place kept_x;         /* all channels of a coordinate's tokens, where others have some of them: of x, */
    struct sl_place whole;          /* and of dx */
    struct sl_place labels;         /* by tokens: those of a coordinate's tokens */
    struct sl_place logits, p;      /* [own rows, chunk] */
    struct sl_place maxima, sums;   /* [own rows], which W reads again */
    struct sl_place argmaxima, scales;    /* [own rows]; scales: e above */
    struct sl_place sums_targets;         /* [2, own rows] */
    struct sl_place all_maxima, places;   /* by classes: all coordinates' [rows, parts]; which is the first largest */
    struct sl_gemm last_product;          /* where tokens are generated: of sequences' last tokens, */
    struct sl_place own_last, whole_last; /* [sequences, in], [sequences, dimension] */
    struct sl_place logits_last;          /* [sequences, classes] */
};

/* A chunk of a coordinate's classes. */
struct chunk {
    const struct sl_products *products;
    size_t begin, classes; /* of the coordinate's own */
    int32_t first;         /* the number of the first in the vocabulary */
    const void *kernel;    /* [classes, dimension], as the products read it */
    bool begins;           /* it is the first */
};

static const struct token_head *own(const struct sl_module *module) { return (const struct token_head *)module; }

static bool alone(const struct sl_module *module) { return sl_token_table_of(module)->parts == 1; }

static size_t columns_of(const struct sl_module *module) {
    return (size_t)sl_token_table_of(module)->vocabulary.dimension;
}

/* A coordinate's tokens of the call. */
static size_t own_rows(const struct sl_module *module, const struct sl_context *context) {
    return sl_token_rows(sl_token_table_of(module), (size_t)context->rows);
}

/* ---- planning ---- */

static void plan_chunks(struct token_head *head) {
    const size_t classes = sl_token_classes(&head->table), most = (size_t)head->table.vocabulary.chunk;
    const size_t limit = most ? most : CHUNK, chunks = (classes + limit - 1) / limit;
    head->chunk = chunks == 1 ? classes : (classes + chunks - 1) / chunks;
    if (chunks > 1 && !most) head->chunk = sl_round_up(head->chunk, ALIGNED);
    head->chunks = (classes + head->chunk - 1) / head->chunk;
}

/* Both chunks' rounded operands lie in the same places: only one chunk is computed at a time. */
static int plan_products(struct token_head *head, struct sl_plan *plan) {
    const size_t begin = plan->workspace, last = sl_token_classes(&head->table) - head->chunk * (head->chunks - 1);
    const int rows = (int)sl_token_rows(&head->table, (size_t)plan->rows);
    struct sl_products_shape shape = {.precision = plan->precision,
                                      .in = head->table.vocabulary.dimension,
                                      .out = (int)last,
                                      .transposed = true,
                                      .rows = rows,
                                      .wgrad_rows = rows * plan->wgrad_group};
    SL_TRY(sl_products_plan(&head->products[1], plan, &shape));
    plan->workspace = begin;
    shape.out = (int)head->chunk;
    return sl_products_plan(&head->products[0], plan, &shape);
}

/* All channels of a coordinate's tokens, and their labels. */
static int plan_whole(struct token_head *head, struct sl_plan *plan, size_t rows, size_t most) {
    const size_t columns = (size_t)head->table.vocabulary.dimension;
    if (head->table.division == SL_BY_TOKENS) sl_plan_workspace(plan, most * sizeof(int32_t), &head->labels);
    if (alone(&head->table.module)) return SL_OK;
    sl_plan_workspace(plan, rows * sl_plan_run(plan) * columns * sizeof(float), &head->whole);
    return sl_plan_array(plan, rows * columns, true, &head->kept_x);
}

static int plan_softmax(struct token_head *head, struct sl_plan *plan, size_t rows, size_t most) {
    const size_t run = rows * sl_plan_run(plan), size = sizeof(float);
    SL_TRY(sl_plan_array(plan, rows, true, &head->maxima));
    SL_TRY(sl_plan_array(plan, rows, true, &head->sums));
    sl_plan_workspace(plan, run * size, &head->argmaxima);
    sl_plan_workspace(plan, run * size, &head->scales);
    sl_plan_workspace(plan, 2 * run * size, &head->sums_targets);
    if (head->table.division == SL_BY_CLASSES) {
        sl_plan_workspace(plan, run * (size_t)head->table.parts * size, &head->all_maxima);
        sl_plan_workspace(plan, run * size, &head->places);
    }
    if (!plan->forward_only) sl_plan_workspace(plan, run * head->chunk * size, &head->p);
    if (head->chunks == 1) return sl_plan_array(plan, rows * head->chunk, true, &head->logits);
    sl_plan_workspace(plan, most * head->chunk * size, &head->logits);
    return SL_OK;
}

/* What generates makes the whole logits of one token a sequence: y [sequences, size]. */
static int plan_last(struct token_head *head, struct sl_plan *plan) {
    const struct sl_token_table *table = &head->table;
    const size_t sequences = (size_t)(plan->rows / plan->sequence), classes = sl_token_classes(table);
    const size_t columns = (size_t)table->vocabulary.dimension;
    head->table.module.out = (table->vocabulary.size + plan->sequence - 1) / plan->sequence;
    sl_plan_workspace(plan, sequences * (size_t)table->module.in * sizeof(float), &head->own_last);
    sl_plan_workspace(plan, sequences * columns * sizeof(float), &head->whole_last);
    sl_plan_workspace(plan, sequences * classes * sizeof(float), &head->logits_last);
    if (plan->precision == SL_BF16) {
        sl_plan_rounded_values(plan);
        sl_plan_workspace(plan, sequences * columns * sizeof(uint16_t), &head->products[0].x);
    }
    sl_gemm_release(&head->last_product);
    if (plan->sizes_only) return SL_OK;
    return sl_gemm_plan(&head->last_product, plan->gemm, plan->precision, (int)sequences, (int)classes, (int)columns,
                        false, true, SL_EPILOGUE_NONE, plan->error);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct token_head *head = (struct token_head *)module;
    if (plan->caches && !plan->forward_only)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%stoken_head: what generates has no backward", plan->name);
    SL_TRY(sl_token_plan(&head->table, plan));
    SL_TRY(sl_token_plan_table(&head->table, plan, head->table.division == SL_BY_TOKENS));
    module->keeps_input = !plan->forward_only && alone(module);
    module->out = module->in;
    if (plan->caches) return plan_last(head, plan);
    plan_chunks(head);
    SL_TRY(plan_products(head, plan));
    const size_t rows = sl_token_rows(&head->table, (size_t)plan->rows), run = rows * sl_plan_run(plan);
    const size_t group = plan->forward_only ? 0 : rows * (size_t)plan->wgrad_group, most = run > group ? run : group;
    SL_TRY(plan_whole(head, plan, rows, most));
    return plan_softmax(head, plan, rows, most);
}

/* ---- what both directions use ---- */

static struct chunk chunk_of(const struct sl_module *module, const struct sl_context *context, size_t number) {
    const struct token_head *head = own(module);
    const size_t all = sl_token_classes(&head->table), begin = number * head->chunk, left = all - begin;
    const struct sl_products *products = &head->products[number + 1 == head->chunks];
    const size_t rank = head->table.division == SL_BY_CLASSES ? sl_token_rank(module, context) : 0;
    const size_t before = begin * columns_of(module) * sl_dtype_size(products->forward.dtype);
    return (struct chunk){.products = products,
                          .begin = begin,
                          .classes = left < head->chunk ? left : head->chunk,
                          .first = (int32_t)(rank * all + begin),
                          .kernel = (const char *)sl_products_kernel(products, module, context) + before,
                          .begins = number == 0};
}

/* Of ROWS tokens of the batch, those of this coordinate's tokens. */
static const int32_t *own_labels(const struct sl_module *module, const struct sl_context *context, size_t rows) {
    const struct sl_token_table *table = sl_token_table_of(module);
    if (table->division != SL_BY_TOKENS) return context->batch.labels;
    const size_t sequence = (size_t)table->sequence, run = sl_token_rows(table, sequence);
    int32_t *labels = sl_at(context, &own(module)->labels);
    context->kernels->sequence->copy_labels(
        rows / sequence, run, context->batch.labels + run * sl_token_rank(module, context), sequence, labels);
    return labels;
}

/* LOGITS [COUNT microbatches' own rows, the chunk's classes] of X, an operand. */
static int multiply(struct sl_context *context, const struct chunk *chunk, int count, const void *x, float *logits) {
    return sl_products_multiply_many(context, &chunk->products->forward, count, x, chunk->kernel, NULL, false, logits);
}

/* ---- forward ---- */

/* *WHOLE [own rows, dimension]: all channels of X [rows, in]. */
static int gather_channels(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float **whole) {
    const size_t rows = (size_t)context->rows;
    *whole = x;
    if (alone(module)) return SL_OK;
    float *to = sl_at(context, &own(module)->kept_x);
    *whole = to;
    if (sl_token_table_of(module)->division == SL_BY_TOKENS) return sl_channels_to_tokens(module, context, rows, x, to);
    return sl_token_gather(module, context, rows, (size_t)module->in, x, to);
}

/* What forward knows of its rows: all [own rows]. */
struct softmax {
    size_t rows;
    const int32_t *labels;
    float *maxima, *argmaxima, *scales, *sums, *targets;
};

static struct softmax softmax_of(const struct sl_module *module, const struct sl_context *context) {
    const struct token_head *head = own(module);
    const size_t rows = own_rows(module, context);
    float *sums = sl_at(context, &head->sums_targets);
    return (struct softmax){.rows = rows,
                            .labels = own_labels(module, context, (size_t)context->rows),
                            .maxima = sl_at(context, &head->maxima),
                            .argmaxima = sl_at(context, &head->argmaxima),
                            .scales = sl_at(context, &head->scales),
                            .sums = sums,
                            .targets = sums + rows};
}

/* The classes of this coordinate: S of them, and DX [own rows, dimension] without the labels; DX NULL: S alone. */
static int own_classes(const struct sl_module *module, struct sl_context *context, const struct softmax *s,
                       const float *whole, float *dx) {
    const struct token_head *head = own(module);
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t columns = columns_of(module);
    const int count = (int)sl_call_microbatches(context);
    float *logits = sl_at(context, &head->logits), *p = dx ? sl_at(context, &head->p) : logits;
    const void *x = sl_products_operand(&head->products[0], context, &head->products[0].x, s->rows * columns, whole);
    for (size_t i = 0; i < head->chunks; i++) {
        const struct chunk c = chunk_of(module, context, i);
        SL_TRY(multiply(context, &c, count, x, logits));
        kernels->softmax_chunk(s->rows, c.classes, c.first, logits, s->labels, c.begins, s->maxima, s->argmaxima,
                               s->sums, s->targets, s->scales, p);
        if (!dx) continue;
        if (!c.begins) kernels->scale_rows(s->rows, columns, s->scales, dx);
        const void *a = sl_products_operand(c.products, context, &c.products->dy, s->rows * c.classes, p);
        SL_TRY(
            sl_products_multiply_many(context, &c.products->input_gradient, count, a, c.kernel, NULL, !c.begins, dx));
    }
    context->kernels->fill(s->rows, 1.0f, s->scales);
    return SL_OK;
}

/* Makes S that of the whole rows; its scales become those of this coordinate's dx. argmaxima stay those of the
 * coordinate's own classes where it is the first along the axis that reaches the maximum; elsewhere they leave the
 * range of all classes, so that no label is hit. */
static int whole_softmax(const struct sl_module *module, struct sl_context *context, const struct softmax *s) {
    const struct sl_kernels *kernels = context->kernels;
    const struct token_head *head = own(module);
    const struct sl_token_table *table = &head->table;
    float *all = sl_at(context, &head->all_maxima), *places = sl_at(context, &head->places);
    SL_TRY(sl_token_gather(module, context, s->rows, 1, s->maxima, all));
    sl_device.copy(s->scales, s->maxima, s->rows * sizeof(float));
    /* counted from this coordinate on: 0 is itself */
    kernels->sequence->row_maxima(s->rows, (size_t)table->parts, -(int32_t)sl_token_rank(module, context), all,
                                  s->maxima, places);
    kernels->fill(s->rows, (float)table->vocabulary.size, all);
    kernels->multiply(s->rows, places, all, places);
    kernels->add(s->rows, places, s->argmaxima);
    kernels->sequence->softmax_join(s->rows, s->maxima, s->scales, s->sums);
    return sl_token_sum(module, context, 2 * s->rows, s->sums);
}

/* By tokens, a coordinate alone counts its tokens; by classes, one alone hits a label. */
static void count(const struct sl_module *module, struct sl_context *context, const struct softmax *s) {
    const struct sl_token_table *table = sl_token_table_of(module);
    double result[3] = {0};
    context->kernels->sequence->softmax_losses(s->rows, s->labels, s->maxima, s->argmaxima, s->sums, s->targets,
                                               result);
    for (int i = 0; table->division == SL_BY_TOKENS && i < 3; i++) result[i] *= table->parts;
    if (table->division == SL_BY_CLASSES) result[1] *= table->parts;
    sl_metrics_add(context->metrics, result);
}

/* DX [rows, in] of what this coordinate makes of its classes, WHOLE [own rows, dimension]. */
static int own_channels(const struct sl_module *module, struct sl_context *context, const float *whole, float *dx) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows, in = (size_t)module->in;
    if (table->division == SL_BY_TOKENS) return sl_tokens_to_channels(module, context, rows, whole, dx);
    if (table->division == SL_BY_CLASSES) return sl_token_scatter(module, context, rows, in, whole, dx);
    context->kernels->sequence->copy_block(rows, in, whole + in * sl_token_rank(module, context), columns_of(module),
                                           dx, in);
    return SL_OK;
}

/* Ends WHOLE [own rows, dimension], and spreads it: DX [rows, in]. */
static int finish(const struct sl_module *module, struct sl_context *context, const struct softmax *s, float *whole,
                  float *dx) {
    const struct chunk first = chunk_of(module, context, 0);
    context->kernels->sequence->softmax_gradient(
        s->rows, columns_of(module), s->labels, first.first, (int32_t)sl_token_classes(sl_token_table_of(module)),
        s->sums, s->scales, context->weight, first.kernel, first.products->forward.dtype == SL_BF16, whole);
    sl_device.copy(sl_at(context, &own(module)->sums), s->sums, s->rows * sizeof(float));
    return alone(module) ? SL_OK : own_channels(module, context, whole, dx);
}

/* Y [sequences, size] of each sequence's last token, the same on all coordinates. */
static int last_logits(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct token_head *head = own(module);
    const struct sl_token_table *table = &head->table;
    const size_t in = (size_t)module->in, sequence = (size_t)table->sequence, classes = sl_token_classes(table);
    const size_t sequences = (size_t)context->rows / sequence, columns = columns_of(module);
    float *last = sl_at(context, &head->own_last), *whole = last;
    context->kernels->sequence->copy_block(sequences, in, x + (sequence - 1) * in, sequence * in, last, in);
    if (!alone(module)) {
        whole = sl_at(context, &head->whole_last);
        SL_TRY(sl_token_gather(module, context, sequences, in, last, whole));
    }
    const bool rounds = head->last_product.dtype == SL_BF16, divided = table->division == SL_BY_CLASSES;
    const void *a = whole;
    if (rounds) context->kernels->round_bf16(sequences * columns, whole, sl_at(context, &head->products[0].x));
    if (rounds) a = sl_at(context, &head->products[0].x);
    float *logits = divided ? sl_at(context, &head->logits_last) : y;
    const void *kernel = rounds ? (const void *)sl_rounded_value(module, context, 0) : sl_value(module, context, 0);
    SL_TRY(sl_products_multiply(context, &head->last_product, a, kernel, NULL, false, logits));
    return divided ? sl_token_gather(module, context, sequences, classes, logits, y) : SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const float *whole;
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE) return last_logits(module, context, x, y);
    const bool trains = context->phase == SL_TRAIN;
    SL_TRY(gather_channels(module, context, x, &whole));
    const struct softmax s = softmax_of(module, context);
    float *dx = !trains ? NULL : alone(module) ? y : sl_at(context, &own(module)->whole);
    SL_TRY(own_classes(module, context, &s, whole, dx));
    if (sl_token_table_of(module)->division == SL_BY_CLASSES) SL_TRY(whole_softmax(module, context, &s));
    count(module, context, &s);
    return trains ? finish(module, context, &s, dx, y) : SL_OK;
}

/* ---- W ---- */

/* DTABLE (+)= dlogits^T X, over the group's tokens that are this coordinate's. */
static int table_gradient(const struct sl_module *module, struct sl_context *context, const float *x, bool accumulate,
                          float *dtable) {
    const struct token_head *head = own(module);
    const size_t columns = columns_of(module), group = (size_t)context->wgrad_group;
    const size_t rows = own_rows(module, context) * group;
    const int32_t *labels = own_labels(module, context, (size_t)context->rows * group);
    const void *b = sl_products_operand(&head->products[0], context, &head->products[0].x, rows * columns, x);
    float *logits = sl_at(context, &head->logits);
    for (size_t i = 0; i < head->chunks; i++) {
        const struct chunk c = chunk_of(module, context, i);
        if (head->chunks > 1) SL_TRY(multiply(context, &c, context->wgrad_group, b, logits));
        context->kernels->sequence->softmax_dlogits(rows, c.classes, c.first, labels, sl_at(context, &head->maxima),
                                                    sl_at(context, &head->sums), context->weight, logits);
        const void *a = sl_products_operand(c.products, context, &c.products->dy, rows * c.classes, logits);
        SL_TRY(sl_products_multiply(context, &c.products->weight_gradient, a, b, NULL, accumulate,
                                    dtable + c.begin * columns));
    }
    return SL_OK;
}

/* Undivided, all coordinates make the same; by classes, each all of its rows. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const float *whole = alone(module) ? x : sl_at(context, &own(module)->kept_x);
    (void)dy;
    if (sl_token_table_of(module)->division != SL_BY_TOKENS)
        return table_gradient(module, context, whole, context->accumulate, sl_gradient(module, context, 0));
    float *part = sl_token_part(module, context);
    SL_TRY(table_gradient(module, context, whole, false, part));
    return sl_token_sum_parts(module, context, part);
}

static void release(struct sl_module *module) {
    struct token_head *head = (struct token_head *)module;
    for (int i = 0; i < 2; i++) sl_products_release(&head->products[i]);
    sl_gemm_release(&head->last_product);
}

static const struct sl_module_type type = {.name = "token_head",
                                           .plan = plan,
                                           .forward = forward,
                                           .needs_no_gradient = true,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .reads = SL_READS_LABELS,
                                           .bytes = sizeof(struct token_head),
                                           .release = release};

struct sl_module *sl_token_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int own = vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&type, own, own, vocabulary, channels);
}
