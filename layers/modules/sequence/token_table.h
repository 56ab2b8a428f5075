/* token_table.h - what the two ends of a language model share: the table of tokens, and who does which part.
 *
 * Between modules a coordinate along the channels' axis has some channels of all tokens. At the ends all channels of a
 * token are needed together, and the coordinates divide the work in one of these ways. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_TABLE_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_TABLE_H

#include "layers/modules/transformer_modules.h"

SL_BEGIN_C

enum sl_division {
    SL_UNDIVIDED,  /* each does all tokens with all of the table: where it is alone, or the others do not fit */
    SL_BY_TOKENS,  /* each has a share of every sequence, and all of the table */
    SL_BY_CLASSES, /* each has its rows of the table, for all tokens */
};

/* What these modules' own structs begin with. */
struct sl_token_table {
    struct sl_module module;
    struct sl_vocabulary vocabulary;
    const char *axis; /* of channels */
    int parts;        /* coordinates along it */
    /* Planned: */
    int group; /* over the axis */
    enum sl_division division;
    int sequence;             /* tokens of one */
    struct sl_place gradient; /* a part of the table's gradient, where that cannot be made in place */
};

static inline const struct sl_token_table *sl_token_table_of(const struct sl_module *module) {
    return (const struct sl_token_table *)module;
}
/* This coordinate's position among those along the axis. */
static inline size_t sl_token_rank(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_group *peers = sl_group_of(context, sl_token_table_of(module)->group);
    return peers ? (size_t)peers->rank : 0;
}
/* Tokens of ROWS, and rows of the table, that are a coordinate's own. */
static inline size_t sl_token_rows(const struct sl_token_table *table, size_t rows) {
    return table->division == SL_BY_TOKENS ? rows / (size_t)table->parts : rows;
}
static inline size_t sl_token_classes(const struct sl_token_table *table) {
    const size_t size = (size_t)table->vocabulary.size;
    return table->division == SL_BY_CLASSES ? size / (size_t)table->parts : size;
}

/* Allocates a module of TYPE, whose own struct begins with a struct sl_token_table. */
struct sl_module *sl_token_module(const struct sl_module_type *type, int in, int out,
                                  const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
/* Floats a row of logits: see sl_tied_logits. */
int sl_token_logits(const struct sl_vocabulary *vocabulary, int sequence, const struct sl_channels *channels);

/* For types' plan functions: finds the peers and the division. */
int sl_token_plan(struct sl_token_table *table, struct sl_plan *plan);
/* The same, of a module one of whose ends are logits of COLUMNS. */
int sl_token_plan_logits(struct sl_token_table *table, struct sl_plan *plan, int columns);
/* Declares the table as the module's parameter 0. SUMMED: its gradient is the sum of what the coordinates make. */
int sl_token_plan_table(struct sl_token_table *table, struct sl_plan *plan, bool summed);

/* Where a part of the gradient is made, [size, dimension], and the sum of all parts, added to the gradient where the
 * context accumulates. */
float *sl_token_part(const struct sl_module *module, const struct sl_context *context);
int sl_token_sum_parts(const struct sl_module *module, struct sl_context *context, float *part);

/* By tokens: y [rows / parts, dimension] of x [rows, dimension / parts], and the way back. */
int sl_channels_to_tokens(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y);
int sl_tokens_to_channels(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y);
/* y [rows, parts * columns] of all peers' x [rows, columns] */
int sl_token_gather(const struct sl_module *module, struct sl_context *context, size_t rows, size_t columns,
                    const float *x, float *y);
/* y [rows, columns], this coordinate's columns of the sum of all peers' x [rows, parts * columns] */
int sl_token_scatter(const struct sl_module *module, struct sl_context *context, size_t rows, size_t columns,
                     const float *x, float *y);
/* x [n] becomes the sum of all peers' x. */
int sl_token_sum(const struct sl_module *module, struct sl_context *context, size_t n, float *x);

SL_END_C
#endif
