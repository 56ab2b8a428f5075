/* token_leaves.c - reorders tokens, and their labels. */
#include "layers/modules/sequence/token_leaves.h"

/* Rows of a leaf's part of a sequence. */
static size_t run_of(const struct sl_token_table *table) {
    return (size_t)(table->sequence / table->parts / table->leaves);
}

void sl_tokens_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns, bool back,
                       const float *from, float *to) {
    const size_t leaves = (size_t)table->leaves, run = run_of(table) * columns;
    const size_t microbatches = sl_call_microbatches(context);
    const size_t sequences = (size_t)context->rows / (size_t)table->sequence / microbatches;
    const size_t of_leaf = sequences * run;
    for (size_t i = 0; i < microbatches * leaves; i++) {
        const size_t apart = i / leaves * leaves * of_leaf + i % leaves * run, together = i * of_leaf;
        if (back)
            context->kernels->sequence->copy_block(sequences, run, from + together, run, to + apart, leaves * run);
        else
            context->kernels->sequence->copy_block(sequences, run, from + apart, leaves * run, to + together, run);
    }
}

void sl_tokens_group_by_leaf(const struct sl_token_table *table, const struct sl_context *context, size_t columns,
                             const float *from, float *to) {
    const size_t leaves = (size_t)table->leaves, group = (size_t)context->wgrad_group;
    const size_t of_leaf = sl_token_rows(table, (size_t)context->rows) / leaves * columns;
    for (size_t leaf = 0; leaf < leaves; leaf++)
        context->kernels->sequence->copy_block(group, of_leaf, from + leaf * of_leaf, leaves * of_leaf,
                                               to + leaf * group * of_leaf, of_leaf);
}

const int32_t *sl_leaf_labels(const struct sl_module *module, const struct sl_context *context,
                              const struct sl_place *place, bool grouped) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t leaves = (size_t)table->leaves, run = run_of(table), sequence = (size_t)table->sequence;
    const size_t calls = grouped ? 1 : sl_call_microbatches(context);
    const size_t rows = (size_t)context->rows * (grouped ? (size_t)context->wgrad_group : 1) / calls;
    const int32_t *first = context->batch.labels + sl_token_rank(module, context) * leaves * run;
    int32_t *labels = sl_at(context, place), *to = labels;
    for (size_t i = 0; i < calls * leaves; i++, to += rows / sequence * run)
        context->kernels->sequence->copy_labels(rows / sequence, run, first + i / leaves * rows + i % leaves * run,
                                                sequence, to);
    return labels;
}
