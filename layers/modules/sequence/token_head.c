/* token_head.c - the loss of a language model: softmax cross entropy of logits = x table^T, with the table of
 * token_embedding.c (see token_chunks.h).
 *
 * A product needs all channels of a coordinate's tokens. If the work is divided by tokens, an all_to_all brings them;
 * otherwise all channels of all tokens are gathered. Trainers divide the sums of metrics by the number of coordinates
 * along the axis, as if each had counted the same rows. A token counted by only one coordinate is therefore counted
 * once for each coordinate.
 *
 * If leaves have shares of the classes (layers/modules/leaves.h), each of a coordinate's slices has a softmax and a dx
 * of its own, like a coordinate with one leaf. Then the largest logits of all leaves are compared, and sums and dx are
 * added in tree order. */
#include "layers/modules/leaves.h"
#include "layers/modules/sequence/token_chunks.h"
#include "layers/modules/sequence/token_leaves.h"
#include "spmd/device/device.h"

struct token_head {
    struct sl_token_table table;
    struct sl_token_chunks chunks;
    struct sl_place kept_x; /* if coordinates have different channels: all channels of x of this coordinate's tokens */
    struct sl_place whole;  /* the same for dx, slice by slice */
    struct sl_place in_order;     /* x or dx in sequence order, if they lie leaf by leaf (token_leaves.h) */
    struct sl_place labels;       /* by tokens: labels of this coordinate's tokens */
    struct sl_place maxima, sums; /* [own rows], saved for W */
    /* [slices, own rows]; scales: factors of dx; before that, by classes, the slice's largest logits */
    struct sl_place argmaxima, scales;
    struct sl_place sums_targets;       /* [slices, 2, own rows] */
    struct sl_place own_maxima;         /* by classes: [rows, slices] */
    struct sl_place all_maxima, places; /* all coordinates' [rows, parts * slices]; [2, rows]: index of the first
                                           largest, and as many constants */
    struct sl_place rows, own_labels;   /* for a table in blocks: the row of each token's label, [own rows, dimension]
                                           floats, and its number among these, [own rows] */
    /* For generation, of sequences' last tokens: */
    struct sl_gemm last_product;
    struct sl_place own_last, whole_last, rounded_last; /* [sequences, in], [sequences, dimension] twice */
    struct sl_place logits_last;                        /* [sequences, classes] */
    struct sl_place padded_last;                        /* [sequences, all coordinates' classes], if some are padding */
    struct sl_place table_last; /* [classes, dimension] floats, if the table is bf16 and operands are floats */
    bool widens_last;           /* the product reads bf16 directly: no table_last */
};

static const struct token_head *own(const struct sl_module *module) { return (const struct token_head *)module; }

static bool alone(const struct sl_module *module) { return sl_token_table_of(module)->parts == 1; }

/* Returns whether the module's x and dx are all channels of a coordinate's tokens, in order. */
static bool has_whole(const struct sl_module *module) {
    return alone(module) && sl_token_table_of(module)->leaves <= 1;
}

static size_t slices_of(const struct sl_module *module) { return sl_token_slices(sl_token_table_of(module)); }

static size_t columns_of(const struct sl_module *module) {
    return (size_t)sl_token_table_of(module)->vocabulary.dimension;
}

/* ---- planning ---- */

/* Lifetime of arrays read by W; shorter if the table is frozen. */
static enum sl_lifetime until_weight(const struct sl_plan *plan) { return sl_until_weight_if(sl_plan_trains(plan, 0)); }

/* Plans all channels of a coordinate's tokens, and their labels. */
static int plan_whole(struct token_head *head, struct sl_plan *plan, size_t rows) {
    const size_t columns = (size_t)head->table.vocabulary.dimension;
    sl_token_plan_labels(&head->table, plan, &head->labels);
    const size_t bytes = rows * sl_plan_run(plan) * columns * sizeof(float), slices = slices_of(&head->table.module);
    if (has_whole(&head->table.module) && slices == 1) return SL_OK;
    sl_plan_workspace(plan, bytes * slices, &head->whole);
    if (has_whole(&head->table.module)) return SL_OK;
    if (head->table.leaves > 1 && !alone(&head->table.module)) sl_plan_workspace(plan, bytes, &head->in_order);
    return sl_plan_array(plan, rows * columns, until_weight(plan), &head->kept_x);
}

/* Kernels cannot read single rows of blocks: plans memory for them. */
static void plan_label_rows(struct token_head *head, struct sl_plan *plan, size_t rows) {
    const size_t run = rows * sl_plan_run(plan), columns = (size_t)head->table.vocabulary.dimension;
    if (plan->forward_only || !sl_plan_blocks(plan, 0)) return;
    sl_plan_workspace(plan, run * columns * sizeof(float), &head->rows);
    sl_plan_workspace(plan, run * sizeof(int32_t), &head->own_labels);
}

static int plan_softmax(struct token_head *head, struct sl_plan *plan, size_t rows) {
    const size_t run = rows * sl_plan_run(plan), slices = slices_of(&head->table.module), size = sizeof(float);
    SL_TRY(sl_plan_array(plan, rows, until_weight(plan), &head->maxima));
    SL_TRY(sl_plan_array(plan, rows, until_weight(plan), &head->sums));
    sl_plan_workspace(plan, slices * run * size, &head->argmaxima);
    sl_plan_workspace(plan, slices * run * size, &head->scales);
    sl_plan_workspace(plan, slices * 2 * run * size, &head->sums_targets);
    if (head->table.division != SL_BY_CLASSES) return SL_OK;
    sl_plan_workspace(plan, slices * run * size, &head->own_maxima);
    sl_plan_workspace(plan, slices * run * (size_t)head->table.parts * size, &head->all_maxima);
    sl_plan_workspace(plan, 2 * run * size, &head->places);
    return SL_OK;
}

/* For generation: computes the whole logits of one token per sequence, y [sequences, size]. */
static int plan_last(struct token_head *head, struct sl_plan *plan) {
    const struct sl_token_table *table = &head->table;
    const size_t sequences = (size_t)(plan->rows / plan->sequence), classes = sl_token_classes(table);
    const size_t columns = (size_t)table->vocabulary.dimension;
    head->table.module.out = (table->vocabulary.size + plan->sequence - 1) / plan->sequence;
    sl_plan_workspace(plan, sequences * (size_t)table->module.in * sizeof(float), &head->own_last);
    sl_plan_workspace(plan, sequences * columns * sizeof(float), &head->whole_last);
    sl_plan_workspace(plan, sequences * classes * sizeof(float), &head->logits_last);
    if (sl_token_padding(table))
        sl_plan_workspace(plan, sequences * classes * (size_t)table->parts * sizeof(float), &head->padded_last);
    if (sl_plan_kernel_type(plan) == SL_BF16) sl_plan_rounded_values(plan);
    const bool blocks = sl_plan_blocks(plan, 0);
    head->widens_last =
        plan->precision == SL_F32 && plan->parameters->working_bf16 &&
        sl_gemm_widens(plan->gemm, (int)sequences, (int)classes, (int)columns, false, true, SL_EPILOGUE_NONE);
    if (blocks)
        sl_products_plan_blocks(plan, sequences, columns, &head->rounded_last);
    else if (plan->precision == SL_BF16)
        sl_plan_workspace(plan, sequences * columns * sizeof(uint16_t), &head->rounded_last);
    else if (plan->parameters->working_bf16 && !head->widens_last)
        sl_plan_workspace(plan, classes * columns * sizeof(float), &head->table_last);
    sl_gemm_release(&head->last_product);
    if (plan->sizes_only || blocks) return SL_OK;
    return sl_gemm_plan(&head->last_product, plan->gemm, plan->precision, (int)sequences, (int)classes, (int)columns,
                        false, true, SL_EPILOGUE_NONE, plan->error);
}

/* By tokens, channels move to a coordinate's tokens; by classes, all of them move to its classes. Gradients move
 * back. */
static void count(const struct token_head *head, const struct sl_plan *plan) {
    const struct sl_token_table *table = &head->table;
    const double classes = (double)sl_token_classes(table), group = plan->wgrad_group, size = sizeof(float);
    const double channels = (double)plan->rows * table->vocabulary.dimension;
    const bool by_tokens = table->division == SL_BY_TOKENS;
    const double bytes = size * channels / (by_tokens ? table->parts : 1);
    const bool stays = by_tokens && table->by_rows;
    if (!stays) sl_load_call(plan, SL_LOAD_FORWARD, by_tokens ? SL_ALL_TO_ALL : SL_ALL_GATHER, table->axis, bytes, 1);
    if (plan->forward_only) return;
    if (!stays && table->division != SL_UNDIVIDED)
        sl_load_call(plan, SL_LOAD_FORWARD, by_tokens ? SL_ALL_TO_ALL : SL_PSUM_SCATTER, table->axis, bytes, 1);
    if (by_tokens && sl_plan_trains(plan, 0))
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, table->axis, size * classes * table->vocabulary.dimension / group,
                     1 / group);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct token_head *head = (struct token_head *)module;
    if (plan->caches && !plan->forward_only)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%stoken_head: what generates has no backward", plan->name);
    SL_TRY(sl_token_plan(&head->table, plan));
    SL_TRY(sl_token_plan_table(&head->table, plan, SL_TABLE_HEAD, head->table.division == SL_BY_TOKENS));
    module->x.lasts = sl_until_weight_if(sl_plan_trains(plan, 0) && has_whole(module));
    module->y.lasts = SL_UNTIL_RETURN;
    module->y.writes = SL_WRITES_ASKED;
    module->out = module->in;
    if (plan->caches) return plan_last(head, plan);
    const size_t rows = sl_token_rows(&head->table, (size_t)plan->rows);
    if (plan->load) count(head, plan);
    SL_TRY(sl_token_chunks_plan(&head->chunks, plan, &head->table, rows));
    SL_TRY(plan_whole(head, plan, rows));
    plan_label_rows(head, plan, rows);
    return plan_softmax(head, plan, rows);
}

/* ---- forward ---- */

/* Sets *WHOLE [own rows, dimension] to all channels of X [rows, in]. */
static int gather_channels(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float **whole) {
    const size_t rows = (size_t)context->rows;
    const bool by_leaf = sl_token_table_of(module)->leaves > 1;
    *whole = x;
    if (has_whole(module)) return SL_OK;
    float *to = sl_at(context, &own(module)->kept_x);
    *whole = to;
    if (by_leaf && !alone(module)) {
        float *in_order = sl_at(context, &own(module)->in_order);
        SL_TRY(sl_channels_to_tokens(module, context, rows, x, in_order));
        x = in_order;
    }
    if (by_leaf) {
        sl_tokens_by_leaf(sl_token_table_of(module), context, columns_of(module), false, x, to);
        return SL_OK;
    }
    if (sl_token_table_of(module)->division == SL_BY_TOKENS) return sl_channels_to_tokens(module, context, rows, x, to);
    return sl_token_gather_channels(module, context, rows, x, to);
}

/* The softmax of slice I. */
static struct sl_softmax softmax_of(const struct sl_module *module, const struct sl_context *context, size_t i) {
    const struct token_head *head = own(module);
    const size_t rows = sl_token_rows(&head->table, (size_t)context->rows);
    const bool by_classes = head->table.division == SL_BY_CLASSES;
    float *sums = (float *)sl_at(context, &head->sums_targets) + i * 2 * rows;
    return (struct sl_softmax){
        .rows = rows,
        .first = sl_token_first(module, context) + (int32_t)(i * head->chunks.classes),
        .labels = head->table.leaves > 1 ? sl_leaf_labels(module, context, &head->labels, false)
                                         : sl_token_labels(module, context, &head->labels, (size_t)context->rows),
        .maxima = by_classes ? (float *)sl_at(context, &head->scales) + i * rows : sl_at(context, &head->maxima),
        .argmaxima = (float *)sl_at(context, &head->argmaxima) + i * rows,
        .sums = sums,
        .targets = sums + rows,
        .begins = true};
}

/* Gathers all leaves' largest logits [rows, parts * slices], in the order of their classes. */
static int gather_maxima(const struct sl_module *module, struct sl_context *context, size_t rows) {
    const struct token_head *head = own(module);
    const size_t slices = slices_of(module);
    const float *largest = sl_at(context, &head->scales);
    float *packed = sl_at(context, alone(module) ? &head->all_maxima : &head->own_maxima);
    for (size_t i = 0; i < slices; i++)
        context->kernels->sequence->copy_block(rows, 1, largest + i * rows, 1, packed + i, slices);
    return alone(module) ? SL_OK
                         : sl_token_gather(module, context, rows, slices, packed, sl_at(context, &head->all_maxima));
}

/* Turns S into the softmax of the whole rows, and the scales into factors of each slice's dx. If a slice is the first
 * of all leaves that reaches the maximum, its argmaxima do not change; otherwise they leave the range of all classes,
 * so that they hit no label. */
static int whole_softmax(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s) {
    const struct sl_kernels *kernels = context->kernels;
    const struct token_head *head = own(module);
    const size_t slices = slices_of(module), leaves = slices * (size_t)head->table.parts;
    float *places = sl_at(context, &head->places), *classes = places + s->rows;
    SL_TRY(gather_maxima(module, context, s->rows));
    kernels->fill(s->rows, (float)head->table.vocabulary.size, classes);
    for (size_t i = 0; i < slices; i++) {
        const struct sl_softmax slice = softmax_of(module, context, i);
        /* counted from this leaf on: 0 is this leaf */
        kernels->sequence->row_maxima(s->rows, leaves, -(int32_t)(sl_token_rank(module, context) * slices + i),
                                      sl_at(context, &head->all_maxima), s->maxima, places);
        kernels->operands->multiply(s->rows, sl_rows_f32(places), sl_rows_f32(classes), sl_out_f32(places));
        kernels->add(s->rows, places, slice.argmaxima);
        kernels->sequence->softmax_join(s->rows, s->maxima, slice.maxima, slice.sums);
    }
    sl_tree_blocks(kernels, (int)slices, 2 * s->rows, s->sums);
    return sl_token_sum(module, context, 2 * s->rows, s->sums);
}

static void count_all(const struct sl_module *module, struct sl_context *context, struct sl_softmax s) {
    for (size_t i = 0; i < slices_of(module); i++, s.argmaxima += s.rows) sl_token_count(module, context, &s, i > 0);
}

/* As kernels' softmax_gradient, for WHOLE [own rows, dimension] and a table in BLOCKS: reads only the labels' rows. */
static void end_by_blocks(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s,
                          const struct sl_blocks *blocks, struct sl_out whole) {
    const struct token_head *head = own(module);
    const size_t columns = columns_of(module);
    float *rows = sl_at(context, &head->rows);
    int32_t *labels = sl_at(context, &head->own_labels);
    for (size_t r = 0; r < s->rows; r++) {
        const size_t row = (size_t)(s->labels[r] - s->first);
        const bool here = s->labels[r] >= s->first && row < blocks->rows;
        labels[r] = here ? (int32_t)r : s->labels[r] < 0 ? -1 : (int32_t)s->rows;
        if (here) sl_quantized_read(blocks->type, sl_blocks_row(blocks, row), 0, columns, rows + r * columns);
    }
    context->kernels->sequence->softmax_gradient(s->rows, columns, labels, 0, (int32_t)s->rows, s->sums,
                                                 sl_at(context, &head->scales), context->weight, sl_rows_f32(rows),
                                                 whole);
}

/* Finishes WHOLE [slices, own rows, dimension], and sums slices. With one slice and one coordinate it is all of dx, and
 * is written in the form that the caller needs of DX. */
static void end_slices(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s,
                       float *whole, struct sl_result *dx) {
    struct sl_result floats = {.floats = whole}, *const to = has_whole(module) && slices_of(module) == 1 ? dx : &floats;
    const struct token_head *head = own(module);
    const size_t columns = columns_of(module), size = s->rows * columns, classes = head->chunks.classes;
    const struct sl_rows table = sl_token_chunks_rows(module, &head->chunks, context);
    const float *scales = sl_at(context, &head->scales);
    const struct sl_blocks *blocks = sl_blocks_value(module, context, 0); /* there is one slice */
    if (blocks) end_by_blocks(module, context, s, blocks, sl_result_with_floats(to));
    for (size_t i = 0; i < slices_of(module) && !blocks; i++)
        context->kernels->sequence->softmax_gradient(s->rows, columns, s->labels, s->first + (int32_t)(i * classes),
                                                     (int32_t)classes, s->sums, scales + i * s->rows, context->weight,
                                                     sl_rows_from(table, i * classes * columns),
                                                     sl_out_from(sl_result_with_floats(to), i * size));
    sl_tree_blocks(context->kernels, (int)slices_of(module), size, whole);
}

/* Finishes WHOLE [slices, own rows, dimension], and writes DX [rows, in] from it; WHOLE may be DX. */
static int finish(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s, float *whole,
                  struct sl_result *to) {
    const struct token_head *head = own(module);
    float *dx = to->floats;
    end_slices(module, context, s, whole, to);
    sl_device.copy(sl_at(context, &head->sums), s->sums, s->rows * sizeof(float));
    if (head->table.leaves > 1) {
        float *in_order = alone(module) ? dx : sl_at(context, &head->in_order);
        sl_tokens_by_leaf(&head->table, context, columns_of(module), true, whole, in_order);
        whole = in_order;
    }
    if (!alone(module)) return sl_token_own_channels(module, context, whole, dx);
    if (whole != dx) sl_device.copy(dx, whole, s->rows * columns_of(module) * sizeof(float));
    return SL_OK;
}

/* LOGITS [sequences, classes] of X [sequences, dimension]. */
static int multiply_last(const struct sl_module *module, struct sl_context *context, const float *x, size_t sequences,
                         float *logits) {
    const struct token_head *head = own(module);
    const struct sl_gemm *gemm = &head->last_product;
    const struct sl_blocks *blocks = sl_blocks_value(module, context, 0);
    if (blocks) {
        sl_products_by_blocks(context, blocks, &head->rounded_last, sequences, x, NULL, logits);
        return SL_OK;
    }
    struct sl_gemm_arrays arrays = sl_gemm_floats(gemm, 1, x, NULL, NULL, false, logits);
    if (gemm->dtype == SL_F32 && !context->parameters->working_bf16) {
        arrays.b = sl_rows_f32(sl_value(module, context, 0));
        return sl_products_multiply(context, gemm, arrays);
    }
    const uint16_t *rows = sl_rounded_value(module, context, 0);
    arrays.b = sl_rows_bf16(rows);
    if (gemm->dtype == SL_BF16) {
        arrays.a = sl_rows_bf16(sl_at(context, &head->rounded_last));
        context->kernels->round_bf16(sequences * columns_of(module), x, arrays.a.at);
    } else if (!head->widens_last) {
        arrays.b = sl_rows_f32(sl_at(context, &head->table_last));
        context->kernels->widen_bf16(sl_token_classes(&head->table) * columns_of(module), rows, arrays.b.at);
    }
    return sl_products_multiply(context, gemm, arrays);
}

/* Y [sequences, size] for each sequence's last token, the same on all coordinates. */
static int last_logits(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct token_head *head = own(module);
    const struct sl_token_table *table = &head->table;
    const size_t in = (size_t)module->in, sequence = (size_t)table->sequence, classes = sl_token_classes(table);
    const size_t sequences = (size_t)context->rows / sequence;
    float *last = sl_at(context, &head->own_last), *whole = last;
    context->kernels->sequence->copy_block(sequences, in, x + (sequence - 1) * in, sequence * in, last, in);
    if (!alone(module)) {
        whole = sl_at(context, &head->whole_last);
        SL_TRY(sl_token_gather(module, context, sequences, in, last, whole));
    }
    const bool divided = table->division == SL_BY_CLASSES, padded = sl_token_padding(table);
    float *logits = divided ? sl_at(context, &head->logits_last) : y;
    float *all = padded ? sl_at(context, &head->padded_last) : y;
    SL_TRY(multiply_last(module, context, whole, sequences, logits));
    if (divided) SL_TRY(sl_token_gather(module, context, sequences, classes, logits, all));
    const size_t size = (size_t)table->vocabulary.size;
    if (padded) context->kernels->sequence->copy_block(sequences, size, all, size + sl_token_padding(table), y, size);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const float *whole;
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE)
        return last_logits(module, context, x.floats, y->floats);
    const struct token_head *head = own(module);
    const bool trains = context->phase == SL_TRAIN, in_place = has_whole(module) && slices_of(module) == 1;
    SL_TRY(gather_channels(module, context, x.floats, &whole));
    float *dx = !trains ? NULL : in_place ? y->floats : sl_at(context, &head->whole);
    struct sl_softmax s = softmax_of(module, context, 0);
    const size_t size = s.rows * columns_of(module);
    for (size_t i = 0; i < slices_of(module); i++) {
        const struct sl_softmax slice = i ? softmax_of(module, context, i) : s;
        SL_TRY(
            sl_token_chunks_forward(module, &head->chunks, context, &slice, whole, false, dx ? dx + i * size : NULL));
    }
    s.maxima = sl_at(context, &head->maxima);
    if (head->table.division == SL_BY_CLASSES)
        SL_TRY(whole_softmax(module, context, &s));
    else
        context->kernels->fill(s.rows, 1.0f, sl_at(context, &head->scales));
    count_all(module, context, s);
    return trains ? finish(module, context, &s, dx, y) : SL_OK;
}

/* ---- W ---- */

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const struct token_head *head = own(module);
    const float *whole = has_whole(module) ? x.floats : sl_at(context, &head->kept_x);
    (void)dy;
    return sl_token_chunks_weight(module, &head->chunks, context, &head->labels, sl_at(context, &head->maxima),
                                  sl_at(context, &head->sums), whole, false);
}

static void release(struct sl_module *module) {
    struct token_head *head = (struct token_head *)module;
    sl_token_chunks_release(&head->chunks);
    sl_gemm_release(&head->last_product);
}

static const struct sl_module_type type = {.name = "token_head",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .reads = SL_READS_LABELS,
                                           .bytes = sizeof(struct token_head),
                                           .release = release};

struct sl_module *sl_token_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int own = vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&type, own, own, vocabulary, channels);
}
