/* kept.h - arrays that a module which stores writes in one call and reads in a later one.
 *
 * Where the plan's storage is float, such an array is one: in the stash, or in the workspace if nobody reads it later.
 * Where it is bf16, a call writes and reads floats in the workspace, and the stash has them as bf16. What is kept is
 * rounded where it is written, also for the rest of the call: so forward, the forward that runs again, and evaluation
 * all go on with the same bits. */
#ifndef SL_LAYERS_MODULES_KEPT_H
#define SL_LAYERS_MODULES_KEPT_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_kept {
    struct sl_place values; /* floats, those of the call's microbatches */
    size_t count;           /* elements of one microbatch */
    bool rounds;            /* the floats are left rounded: the storage is bf16, or nobody reads them (operand), */
    bool outlasts;          /* and calls that come later read the array, */
    bool stores;            /* or products of this one do: */
    bool operand;           /* products read what is stored alone (a use's operand) */
    bool unread;            /* nobody reads the floats: who writes the array may leave what is stored alone */
    struct sl_place stored; /* here, as bf16, */
    size_t column;          /* or so many elements behind: it is columns of another array's rows, which are wider */
};

/* KEPT has COUNT elements for each microbatch, as in sl_plan_array. */
int sl_plan_kept(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept);
/* The same, whose bf16 has a place in forward alone, too: for kernels that write nothing else. */
int sl_plan_kept_halves(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept);
/* The first again, with floats at VALUES, which the caller has planned, where the storage is bf16. */
int sl_plan_kept_at(struct sl_plan *plan, const struct sl_place *values, size_t count, enum sl_lifetime lifetime,
                    struct sl_kept *kept);

/* Whether products of the plan's modules read operands that their parents may keep as bf16, whatever the storage is. */
bool sl_keeps_operands(const struct sl_plan *plan);
/* KEPT has COUNT elements for each microbatch, which are operands. They are stored in the stash if they must OUTLAST
 * the call, otherwise where the caller says (sl_plan_kept_beside), who plans the room for floats, too. */
int sl_plan_operand(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime, struct sl_kept *kept);
/* The same with rooms for both: kernels may leave the floats rounded. */
int sl_plan_written(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime, struct sl_kept *kept);

/* MODULE's parent keeps its x, or its dy, as an operand: it is told, and its children whose x or dy that is. */
void sl_give_operand(struct sl_module *module);
void sl_give_operand_gradient(struct sl_module *module);
/* KEPT has COUNT elements for each microbatch: CHILD's x until W, or the gradient of its y. It is an operand where
 * CHILD, which has been planned, reads one: then kernels may leave the floats rounded. */
int sl_plan_kept_input(struct sl_plan *plan, struct sl_module *child, size_t count, enum sl_lifetime lifetime,
                       struct sl_kept *kept);
int sl_plan_kept_gradient(struct sl_plan *plan, struct sl_module *child, size_t count, struct sl_kept *kept);
/* The same for an x whose floats I reads, too, as they were written. */
int sl_plan_kept_both(struct sl_plan *plan, struct sl_module *child, size_t count, struct sl_kept *kept);

/* FIRST reads MODULE's x and writes its dx, LAST writes its y and reads its dy: their uses are MODULE's, but for
 * operands. */
void sl_plan_ends(struct sl_module *module, const struct sl_module *first, const struct sl_module *last);
/* Whether the gradient of CHILD's y, which does not outlast I, should be stored all the same: W follows at once and
 * reads bf16, or I does. */
bool sl_reads_stored_gradient(const struct sl_plan *plan, const struct sl_module *child);
/* Whether CHILD's x should be stored where forward is all, and nothing outlasts it: its products read bf16 alone. */
bool sl_reads_stored(const struct sl_plan *plan, const struct sl_module *child);
/* Then it is stored at ROOM, 2 bytes an element. */
void sl_plan_kept_beside(struct sl_kept *kept, const struct sl_place *room);
/* The same with a room of its own in the workspace. */
void sl_plan_kept_room(struct sl_plan *plan, struct sl_kept *kept);

/* Where the array lies as bf16. */
static inline uint16_t *sl_kept_halves(const struct sl_context *context, const struct sl_kept *kept) {
    return (uint16_t *)sl_at(context, &kept->stored) + kept->column;
}
/* Where a call writes and reads floats. */
static inline float *sl_kept_values(const struct sl_context *context, const struct sl_kept *kept) {
    return (float *)sl_at(context, &kept->values);
}
/* The array as kernels write it, and read it in I, which know of the storage. */
static inline struct sl_rows sl_kept_rows(const struct sl_context *context, const struct sl_kept *kept) {
    return kept->rounds ? sl_rows_bf16(sl_kept_halves(context, kept)) : sl_rows_f32(sl_kept_values(context, kept));
}
/* The array as it is kept: a child's x in backward, or its dy in W. */
static inline const void *sl_kept_stored(const struct sl_context *context, const struct sl_kept *kept) {
    return kept->outlasts ? (const void *)sl_kept_halves(context, kept) : sl_at(context, &kept->values);
}

/* The array in I, as DTYPE: as it is kept, or as sl_recall. */
const void *sl_kept_operand(const struct sl_context *context, const struct sl_kept *kept, enum sl_dtype dtype);
/* How a child's call should leave the values. UNREAD: those who read what is stored read nothing else. */
struct sl_result sl_kept_result(const struct sl_context *context, const struct sl_kept *kept, bool unread);
/* Where a call whose result is an operand writes it as bf16 alone; NULL: it writes floats. */
static inline uint16_t *sl_operand_result(const struct sl_context *context) {
    const struct sl_result *result = context->storage == SL_F32 ? context->result : NULL;
    return result && result->unread ? result->stored : NULL;
}
/* Y, or dx, as the call's result asks, which is then done: in any form by callers that keep theirs as bf16 (HALVES), by
 * others as an operand alone, or else as floats of any digits. */
static inline struct sl_out sl_left_out(struct sl_context *context, bool halves, float *y) {
    if (!halves && !sl_operand_result(context)) return sl_out_f32(y);
    if (context->result) context->result->done = true;
    return sl_result_out(context->result, y);
}
/* How a kernel that writes the values should leave them, which then need not be kept. */
static inline struct sl_settled sl_kept_settled(const struct sl_context *context, const struct sl_kept *kept) {
    return (struct sl_settled){kept->rounds, kept->stores ? sl_kept_halves(context, kept) : NULL};
}
/* Where such a kernel writes the floats; NULL: nobody reads them, or kernels that know of that may leave them out. */
static inline float *sl_kept_floats(const struct sl_context *context, const struct sl_kept *kept) {
    return kept->unread ? NULL : sl_kept_values(context, kept);
}
/* CHILD's forward of X, and with KEPT_X of what has been kept, leaves Y as it is to be kept: in the pass that computes
 * it, if the child can. */
int sl_forward_kept(const struct sl_module *child, struct sl_context *context, const float *x, const struct sl_kept *y);
int sl_kept_forward_kept(const struct sl_module *child, struct sl_context *context, const struct sl_kept *x,
                         const struct sl_kept *y);
/* The same, but where the child cannot, *LEFT is how a kernel that reads Y should leave it first; else zeros. */
int sl_forward_left(const struct sl_module *child, struct sl_context *context, const float *x, const struct sl_kept *y,
                    struct sl_settled *left);
/* Call it in forward or I, when the values have been written, unless a child has left them so. */
void sl_keep(const struct sl_context *context, const struct sl_kept *kept);
/* The values in I, which an earlier call has kept. */
float *sl_recall(const struct sl_context *context, const struct sl_kept *kept);
/* CHILD's forward of X, and its backward_input of DY, which have been kept: its products read bf16 where they are
 * stored, and round nothing again. LAST: as sl_module_forward_last. */
int sl_kept_forward(const struct sl_module *child, struct sl_context *context, const struct sl_kept *x, bool last,
                    float *y);
int sl_kept_backward_input(const struct sl_module *child, struct sl_context *context, const float *x,
                           const struct sl_kept *dy, float *dx);
/* Y [n] += X, which is the result of the call that had RESULT, NULL or how Y is to be left. */
void sl_add_result(struct sl_context *context, struct sl_result *result, size_t n, const float *x, float *y);
/* CHILD's backward_input of DY, which leaves DX: *DTYPE says how, as floats of all digits, or as SL_BF16 where DX is
 * unread and CHILD can leave it so. */
int sl_backward_input_left(const struct sl_module *child, struct sl_context *context, const float *x, const float *dy,
                           const struct sl_kept *dx, enum sl_dtype *dtype);
/* X [n] as bf16 where the caller's parent has stored it; else NULL. */
const uint16_t *sl_rounded_rows(const struct sl_context *context, size_t n, const float *x);
/* X [n] as a call reads it: as READS says, where the parent has stored it so; else as floats. */
struct sl_rows sl_given_rows(const struct sl_context *context, enum sl_dtype reads, size_t n, const float *x);
/* Whether the caller's parent has stored X [n], bf16, beside floats. */
bool sl_is_stored(const struct sl_context *context, size_t n, const void *x);
/* Whether W of MODULE is given dy as bf16. */
static inline bool sl_gives_stored(const struct sl_module *module, const struct sl_context *context) {
    return context->storage != SL_F32 && !(module->weights_follow && module->takes_floats);
}
/* X [n], kept in the context's storage, as floats: X itself, or widened at ROOM. */
const float *sl_widen(const struct sl_context *context, const struct sl_place *room, size_t n, const float *x);

SL_END_C
#endif
