/* experts_internal.h - a mixture of experts, and the moves of its rows. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_EXPERTS_EXPERTS_INTERNAL_H
#define SL_LAYERS_MODULES_FEEDFORWARD_EXPERTS_EXPERTS_INTERNAL_H

#include "layers/modules/feedforward/leaf_products.h"
#include "layers/modules/transformer_modules.h"

/* Arrays between the steps: of tokens [rows, ..], of pairs [rows, choices] and of slots. Integers lie in arrays of
 * floats. */
enum tensor {
    PROBABILITIES, /* [rows, experts] */
    CHOSEN,
    GATES,
    SLOT_OF,
    PAIR_OF,
    SHARES,   /* [sequences, experts] */
    SUMS,     /* [sequences, experts] */
    TAKEN,    /* [slots, columns]: input of this coordinate's experts, from all coordinates' tokens */
    RETURNED, /* results of all experts for this coordinate's tokens; if sequences are divided, of a share of the
                 experts for all tokens of the same sequences */
    D_LOGITS,
    D_GATES,
    D_MADE,     /* gradients of the results of its experts */
    D_SENT,     /* gradients of the rows sent */
    WAY,        /* rows to be sent to other coordinates, in both directions */
    PART,       /* result of the shared MLP */
    SLICE,      /* [slots, columns of a leaf] */
    ROWS,       /* [rows, columns of a leaf] */
    GATE_SUMS,  /* [levels, rows, choices]: gates' gradients of leaves waiting for others */
    WHOLE,      /* if sequences are divided: [all slots, columns] */
    COUNTS,     /* [sequences, blocks, experts]: choices in this coordinate's blocks */
    ALL_COUNTS, /* of all coordinates */
    FIRST,      /* choices in earlier blocks */
    TENSORS
};

struct experts {
    struct sl_module module;
    struct sl_experts shape;
    const char *axis;      /* axis of the channels */
    int group, data_group; /* over this axis; over the axis, or the axes, along which rows travel */
    int context_group;     /* over the axis of divided sequences; -1: they are whole */
    struct sl_products router;
    struct sl_leaf_products leaves; /* for the router */
    struct sl_routing routing;
    size_t slots, here; /* slots of a microbatch, sent and received; experts of this coordinate */
    struct sl_place place[TENSORS];
};

static inline const struct experts *sl_experts_of(const struct sl_module *module) {
    return (const struct experts *)module;
}
static inline void *sl_experts_at(const struct sl_module *module, const struct sl_context *context,
                                  enum tensor tensor) {
    return sl_at(context, &sl_experts_of(module)->place[tensor]);
}

/* Finds the groups, and plans the arrays of moves; the routing and `slots` are set afterwards by PLAN's rows. */
int sl_experts_plan_groups(struct experts *experts, const struct sl_plan *plan);
int sl_experts_plan_moves(struct experts *experts, struct sl_plan *plan);

/* If sequences are divided, counts the choices of all their coordinates: writes FIRST, and SHARES of whole sequences.
 * *FIRST becomes the address of FIRST, or NULL if sequences are whole. */
int sl_experts_count(const struct sl_module *module, struct sl_context *context, const int32_t **first);

/* Memory for the rows of all slots before they are sent to TENSOR. */
float *sl_experts_sent(const struct sl_module *module, const struct sl_context *context, enum tensor tensor);
/* Sends them to the experts. */
int sl_experts_send(const struct sl_module *module, struct sl_context *context, enum tensor tensor);
/* Memory for rows of this coordinate's experts before they are sent back to TENSOR. */
float *sl_experts_made(const struct sl_module *module, const struct sl_context *context, enum tensor tensor);
/* Sends them back. */
int sl_experts_return(const struct sl_module *module, struct sl_context *context, enum tensor tensor);
/* Sets *SLOTS to the rows of all slots, of which TENSOR has been sent back. */
int sl_experts_gather(const struct sl_module *module, struct sl_context *context, enum tensor tensor,
                      const float **slots);

#endif
