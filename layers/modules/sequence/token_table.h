/* token_table.h - the token table, used by the two ends of a language model, and the division of its work.
 *
 * Between modules a coordinate along the channels' axis has some channels of all tokens. The two ends need all channels
 * of a token together, and the coordinates divide this work in one of three ways. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_TABLE_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_TABLE_H

#include "layers/modules/transformer_modules.h"

SL_BEGIN_C

enum sl_division {
    SL_UNDIVIDED,  /* each coordinate computes all tokens with the whole table: it is alone, or sequences do not divide
                    */
    SL_BY_TOKENS,  /* each coordinate computes its share of every sequence with the whole table */
    SL_BY_CLASSES, /* each coordinate computes all tokens with its rows of the table */
};

/* The own structs of these modules begin with this one. */
struct sl_token_table {
    struct sl_module module;
    struct sl_vocabulary vocabulary;
    const char *axis; /* axis of the channels */
    int parts;        /* coordinates along the axis */
    bool by_rows;     /* between modules a coordinate has all channels of its share of each sequence */
    int leaves; /* leaves of this coordinate, each with its share of every sequence (layers/modules/leaves.h); 0: none
                 */
    int slices; /* leaves of this coordinate, each with its share of the classes; 0: none */
    /* Set by planning: */
    int group; /* number of the group over the axis; -1: alone */
    enum sl_division division;
    size_t rows;              /* rows of the table on this coordinate, with padding */
    int sequence;             /* tokens of a sequence */
    struct sl_place gradient; /* this coordinate's part of the table's gradient, if it cannot be computed in place */
};

static inline const struct sl_token_table *sl_token_table_of(const struct sl_module *module) {
    return (const struct sl_token_table *)module;
}
/* Rank of this coordinate along the axis. */
static inline size_t sl_token_rank(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_group *peers = sl_group_of(context, sl_token_table_of(module)->group);
    return peers ? (size_t)peers->rank : 0;
}
/* Number of parts of the table's rows, if stages share them. */
static inline int sl_token_shards(const struct sl_token_table *table) {
    return table->vocabulary.shards > 1 ? table->vocabulary.shards : 1;
}
/* Number of tokens that this coordinate computes, out of ROWS. */
static inline size_t sl_token_rows(const struct sl_token_table *table, size_t rows) {
    return table->division == SL_BY_TOKENS ? rows / (size_t)table->parts : rows;
}
/* Number of table rows that this coordinate uses. By classes it includes padding: rows of zeros that are not
 * classes. */
static inline size_t sl_token_classes(const struct sl_token_table *table) {
    if (table->division == SL_BY_CLASSES) return table->rows;
    return (size_t)table->vocabulary.size / (size_t)sl_token_shards(table);
}
/* Padding in all coordinates' rows together, after the last class. */
static inline size_t sl_token_padding(const struct sl_token_table *table) {
    return table->division == SL_BY_CLASSES ? table->rows * (size_t)table->parts - (size_t)table->vocabulary.size : 0;
}
/* Number of slices of this coordinate's rows, each with sums of its own. */
static inline size_t sl_token_slices(const struct sl_token_table *table) {
    return table->slices > 1 ? (size_t)table->slices : 1;
}
/* The token of this coordinate's first row. */
static inline int32_t sl_token_first(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rank = table->division == SL_BY_CLASSES ? sl_token_rank(module, context) : 0;
    return (int32_t)(sl_token_classes(table) * ((size_t)table->vocabulary.shard + rank));
}

/* Classes per chunk of a vocabulary of SIZE tokens. */
size_t sl_token_chunk(const struct sl_vocabulary *vocabulary);

/* Allocates a module of TYPE, whose own struct begins with a struct sl_token_table. Returns NULL if there is no
 * memory. */
struct sl_module *sl_token_module(const struct sl_module_type *type, int in, int out,
                                  const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* For plan functions: finds the group and the division. Returns SL_BAD_INPUT if channels or sequences do not divide, or
 * if a share of the vocabulary would be empty. */
int sl_token_plan(struct sl_token_table *table, struct sl_plan *plan);
/* Declares the table of this END as the module's parameter 0. SUMMED: its gradient is the sum of parts from all
 * coordinates. */
enum sl_table_end { SL_TABLE_LOOKUP, SL_TABLE_HEAD };
int sl_token_plan_table(struct sl_token_table *table, struct sl_plan *plan, enum sl_table_end end, bool summed);

/* Plans memory for the labels of this coordinate's tokens, in a call or in a group of weight gradients. */
void sl_token_plan_labels(const struct sl_token_table *table, struct sl_plan *plan, struct sl_place *place);
/* Labels of this coordinate's tokens among ROWS of the batch; by tokens, copied to PLACE. */
const int32_t *sl_token_labels(const struct sl_module *module, const struct sl_context *context,
                               const struct sl_place *place, size_t rows);
struct sl_softmax;
/* Adds the losses, hits and rows of S, complete over all classes, to the metrics; with HITS_ALONE, only hits. */
void sl_token_count(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s,
                    bool hits_alone);

/* Address of this coordinate's part of the table's gradient: [size, dimension]. */
float *sl_token_part(const struct sl_module *module, const struct sl_context *context);
/* Sums the parts of all coordinates; if the context accumulates, adds the sum to the gradient. */
int sl_token_sum_parts(const struct sl_module *module, struct sl_context *context, float *part);

/* For SL_BY_TOKENS: y [rows / parts, dimension] from x, this coordinate's channels or rows between modules. */
int sl_channels_to_tokens(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y);
/* For SL_BY_TOKENS, the inverse: y, as between modules, from x [rows / parts, dimension]. */
int sl_tokens_to_channels(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y);
/* y [rows, parts * columns] = all coordinates' x [rows, columns] side by side. */
int sl_token_gather(const struct sl_module *module, struct sl_context *context, size_t rows, size_t columns,
                    const float *x, float *y);
/* y [rows, dimension] = all coordinates' x, as between modules. */
int sl_token_gather_channels(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                             float *y);
/* y, as between modules, = this coordinate's part of the sum of all coordinates' x [rows, dimension]. */
int sl_token_scatter(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x, float *y);
/* DX [rows, in] from WHOLE [own rows, dimension], this coordinate's result for its tokens or classes. */
int sl_token_own_channels(const struct sl_module *module, struct sl_context *context, const float *whole, float *dx);
/* Sums x [n] over all coordinates, in place. */
int sl_token_sum(const struct sl_module *module, struct sl_context *context, size_t n, float *x);

SL_END_C
#endif
