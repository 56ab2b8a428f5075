/* context.h - attention of sequences divided over an axis (spmd/cut.h), by gathered keys, in a ring, or by heads.
 *
 * By heads (context_heads.c), each coordinate computes attention of all rows for some of the heads. In a ring
 * (context_ring.c), it attends to the keys of one coordinate after another. By gathered keys,
 * forward gathers all coordinates' keys and values, in the order of their positions. It computes attention of this
 * coordinate's queries by a call for each block, with the keys up to the block's end. Gathered arrays are not saved.
 * Backward gathers again, adds each block's gradients of keys and values to those of the whole sequence, and sums these
 * over the coordinates; each coordinate receives its own rows. With leaves, these gradients are added up in tree order
 * of the leaves, even if a single coordinate has all leaves. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_CONTEXT_H
#define SL_LAYERS_MODULES_SEQUENCE_CONTEXT_H

#include "layers/kernels/attention/attention.h"
#include "layers/modules/leaves.h"
#include "layers/modules/module.h"

SL_BEGIN_C

enum { SL_CONTEXT_ARRAYS = 2 };
/* Arrays that are turned from a coordinate's rows to its heads (context_heads.c). */
enum sl_turned {
    SL_TURNED_Q,
    SL_TURNED_Q_ROPE,
    SL_TURNED_O,
    SL_TURNED_D_O,
    SL_TURNED_DQ,
    SL_TURNED_DQ_ROPE,
    SL_TURNED
};

/* Arrays of a module's keys, [rows, columns] on each coordinate: [k | v] and, with rope, k_rope (BESIDE), or k and v.
 */
struct sl_context_keys {
    bool divided; /* sequences are divided, or have leaves */
    int group;    /* over the axis; -1: this coordinate is alone */
    bool beside;
    bool computed; /* the caller writes array 0 of all rows to `whole` before each call, and reads its gradient in
                      `gradient` afterwards: it is not moved */
    size_t columns[SL_CONTEXT_ARRAYS];                                     /* 0: there is no such array */
    struct sl_place whole[SL_CONTEXT_ARRAYS], gradient[SL_CONTEXT_ARRAYS]; /* of all rows of the sequences */
    struct sl_place waiting[SL_CONTEXT_ARRAYS];                            /* gradients of leaves waiting for others */
    struct sl_place moved;   /* one array's rows, coordinate by coordinate */
    struct sl_place scratch; /* of attention's backward */
    /* by heads: */
    bool by_heads;
    struct sl_place turned[SL_TURNED], places;
    /* by ring: */
    bool by_ring;
    struct sl_place sent, came[2];      /* own keys, and in turns those of other coordinates, by blocks */
    struct sl_place given[2], returned; /* gradients of others' keys, in turns, and of own keys by another's queries */
    struct sl_place others, others_logsum, others_rope; /* results of one block of queries and one of keys */
    struct sl_place earliest, pairs;
};

/* Inputs and outputs of attention, of this coordinate's rows. */
struct sl_context_call {
    const void *q, *q_rope, *own[SL_CONTEXT_ARRAYS]; /* own: keys */
    float *logsum;                                   /* its layout is known only to the functions below */
    struct sl_out to;                                /* forward's o */
    /* backward: */
    const void *o; /* of the dtype shape->stored_o */
    const float *d_o;
    struct sl_out dq;
    float *dq_rope, *d_own[SL_CONTEXT_ARRAYS];
};

/* Plans KEYS, whose columns and `beside` are set, for attention of SHAPE to this coordinate's own keys. */
int sl_plan_context(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys);
/* Plans the arrays of KEYS, whose columns, `computed` and `group` are set, for the functions of context_moves.c. */
void sl_plan_context_moves(struct sl_plan *plan, struct sl_context_keys *keys);
/* Number of the whole sequence's rows. */
static inline int sl_plan_whole_sequence(const struct sl_plan *plan) {
    return plan->sequence * sl_cut_own_blocks(plan->cut) * sl_cut_parts(plan->cut);
}
/* Pairs of queries and keys of a microbatch on this coordinate. A token attends to itself and to earlier tokens, in all
 * to at most WINDOW tokens unless WINDOW is 0. If sequences are divided, all coordinates have equally many pairs. */
double sl_plan_pairs(const struct sl_plan *plan, int window);

/* Writes CALL's o and logsum. SHAPE is as for attention to this coordinate's own keys; all inputs are floats. */
int sl_context_forward(struct sl_context *context, const struct sl_context_keys *keys, const struct sl_attention *shape,
                       const struct sl_context_call *call);
/* Whether backward reads q, q_rope and own only as floats. */
static inline bool sl_context_reads_floats(const struct sl_context_keys *keys) {
    return keys->by_heads || keys->computed;
}
/* Writes the gradients; the gradients of keys are unrounded. q, q_rope and own are of the dtype shape->stored. */
int sl_context_backward(struct sl_context *context, const struct sl_context_keys *keys,
                        const struct sl_attention *shape, const struct sl_context_call *call);

SL_END_C
#endif
