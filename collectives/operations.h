/* operations.h - the table of collective operations. Checks, verdicts and engines read from it the effects of a call.
 *
 * If the table can express the effect of a new operation, the operation needs an entry in enum sl_operation
 * (spmd/engine.h), a row in the table (operations.c) and functions in the public header (collectives.h). Engines need
 * no code for it. */
#ifndef SL_COLLECTIVES_OPERATIONS_H
#define SL_COLLECTIVES_OPERATIONS_H

#include "spmd/engine.h"

SL_BEGIN_C

/* The members with which a member exchanges data. */
enum sl_partners {
    SL_WITH_ALL,
    SL_WITH_ROOT,
    SL_AT_ROOT_WITH_ALL, /* the root exchanges with all members, the others with none */
    SL_WITH_PAIRED,      /* the call's source and destination, if there are any */
};

struct sl_operation_row {
    const char *name;
    enum sl_partners from, to; /* sources of a member's output; destinations of its input */
    bool cuts;                 /* the input has a block for each member */
    bool joins;                /* the output has a block from each member */
    bool zeros;                /* an output to which no member sends is set to zeros; otherwise it stays unchanged */
    bool in_place;             /* a member's own block may use the same memory in input and output */
    enum sl_reduction reduction;
};

extern const struct sl_operation_row sl_operations[SL_OPERATIONS];

static inline const struct sl_operation_row *sl_operation_of(const struct sl_collective *call) {
    return &sl_operations[call->operation];
}

/* ---- members concerned by a call ---- */

/* Positions [begin, end) of a group. */
struct sl_positions {
    int begin, end;
};

/* Members that send data to this member's output. */
struct sl_positions sl_call_sources(const struct sl_collective *call);
/* Members that receive data from this member's input. */
struct sl_positions sl_call_destinations(const struct sl_collective *call);

/* Whether every member needs data from all, or in a barrier their arrival. */
static inline bool sl_call_meets(const struct sl_collective *call) {
    const struct sl_operation_row *operation = sl_operation_of(call);
    return operation->from == SL_WITH_ALL && operation->to == SL_WITH_ALL;
}

static inline bool sl_has_position(struct sl_positions positions, int position) {
    return position >= positions.begin && position < positions.end;
}

/* Whether this member's input is read. */
bool sl_call_reads(const struct sl_collective *call);
/* Whether this member's output is written. */
bool sl_call_writes(const struct sl_collective *call);

/* ---- layout of a call's blocks ---- */

/* Elements and bytes of a block. */
static inline size_t sl_block_elements(const struct sl_collective *call) {
    return call->count[0] * call->count[1] * call->count[2];
}
static inline size_t sl_block_bytes(const struct sl_collective *call) {
    return sl_block_elements(call) * sl_dtype_size(call->dtype);
}

/* Whether a block is contiguous. */
bool sl_block_is_solid(const struct sl_collective *call, const struct sl_view *view);

/* The contiguous runs of a block, merged if they are adjacent, as COUNT matrices [rows, columns]: the fewest possible.
 * In the input, matrices are in[0] elements apart and their rows in[1]; in the output, out[0] and out[1]. */
struct sl_matrices {
    size_t count, rows, columns;
    size_t in[2], out[2];
};
struct sl_matrices sl_block_matrices(const struct sl_collective *call, const struct sl_view *in,
                                     const struct sl_view *out);

/* View of contiguous blocks one after another, the layout in buffers. */
struct sl_view sl_packed_blocks(const struct sl_collective *call);

SL_END_C
#endif
