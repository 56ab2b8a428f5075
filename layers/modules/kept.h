/* kept.h - saved arrays of modules that store: written in one call, and read in a later one.
 *
 * If the plan's storage is float32, a saved array is a single array, in the stash, or in the workspace if no later call
 * reads it. If the storage is bf16, calls write and read floats in the workspace, and the stash holds them as bf16. A
 * call that writes saved values rounds them at once and goes on with the rounded ones, so forward, recomputed forward
 * and evaluation all yield the same bits. */
#ifndef SL_LAYERS_MODULES_KEPT_H
#define SL_LAYERS_MODULES_KEPT_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_kept {
    struct sl_place values; /* floats of the call's microbatches */
    size_t count;           /* elements of one microbatch */
    enum sl_form form;      /* in which a call writes the array */
    bool stores;            /* the form has bf16 */
    struct sl_place stored; /* place of the bf16; if it is stashed, later calls read it in place of the floats */
    size_t column;          /* elements from STORED to the copy, if the copy is some columns of another array's wider
                               rows */
};

/* Returns whether later calls read the array as bf16. */
static inline bool sl_kept_outlasts(const struct sl_kept *kept) { return kept->stored.stashed; }

/* Plans COUNT elements for each microbatch, as in sl_plan_array. */
int sl_plan_kept(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept);
/* The same, with a place for the bf16 copy even in forward-only plans: for kernels that write nothing else. */
int sl_plan_kept_halves(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_kept *kept);
/* As sl_plan_kept; if the storage is bf16, the floats lie at VALUES, which the caller has planned. */
int sl_plan_kept_at(struct sl_plan *plan, const struct sl_place *values, size_t count, enum sl_lifetime lifetime,
                    struct sl_kept *kept);

/* Returns whether parents may save operands of the plan's products as bf16 although the storage is float32. */
bool sl_keeps_operands(const struct sl_plan *plan);
/* Plans COUNT elements of an operand for each microbatch, as SL_BESIDE. If a later call reads them (OUTLASTS), the bf16
 * copy lies in the stash, otherwise at a place that the caller sets (sl_plan_kept_beside). The caller also plans memory
 * for the floats. */
int sl_plan_operand(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime, struct sl_kept *kept);
/* As sl_plan_operand, with memory for the floats, too, and for a bf16 copy that does not outlast the call. The floats
 * are not read: kernels write FORM, which is not SL_WHOLE. */
int sl_plan_written(struct sl_plan *plan, size_t count, bool outlasts, enum sl_lifetime lifetime, enum sl_form form,
                    struct sl_kept *kept);

/* Plan COUNT elements for each microbatch: CHILD's x, for LIFETIME, or CHILD's dy. CHILD must be planned before. If
 * CHILD reads an operand there, the array is an operand, which is written in FORM, and an x lasts until W. If the FORM
 * of a dy is SL_ALONE, its writer can leave bf16 alone, and does so if CHILD reads copies, too. */
int sl_plan_kept_input(struct sl_plan *plan, struct sl_module *child, size_t count, enum sl_lifetime lifetime,
                       enum sl_form form, struct sl_kept *kept);
int sl_plan_kept_gradient(struct sl_plan *plan, struct sl_module *child, size_t count, enum sl_form form,
                          struct sl_kept *kept);
/* As sl_plan_kept_input, if I reads the floats of x, too: they are unrounded if x is an operand. */
int sl_plan_kept_both(struct sl_plan *plan, struct sl_module *child, size_t count, struct sl_kept *kept);

/* Copies the uses of FIRST's x and of LAST's y to MODULE, which does not save operands: FIRST reads MODULE's x and
 * writes its dx, LAST writes MODULE's y and reads its dy. */
void sl_plan_ends(struct sl_module *module, const struct sl_module *first, const struct sl_module *last);
/* Returns whether the gradient of CHILD's y should be stored as bf16 although it does not outlast I: W follows at once
 * and reads bf16, or I reads bf16. */
bool sl_reads_stored_gradient(const struct sl_plan *plan, const struct sl_module *child);
/* Returns whether CHILD's x should be stored as bf16 in a forward-only plan: its products read only bf16. */
bool sl_reads_stored(const struct sl_plan *plan, const struct sl_module *child);
/* Sets the place of the bf16 copy: ROOM, 2 bytes per element. */
void sl_plan_kept_beside(struct sl_kept *kept, const struct sl_place *room);
/* As sl_plan_kept_beside, with new memory in the workspace. */
void sl_plan_kept_room(struct sl_plan *plan, struct sl_kept *kept);

/* Notes that the array's only reader has this USE. If it reads copies, the writer, which can, leaves bf16 alone. */
static inline void sl_plan_reader(struct sl_kept *kept, const struct sl_use *use) {
    if (kept->stores && (kept->form == SL_BESIDE || sl_reads_copy(use))) kept->form = SL_ALONE;
}

/* Elements of all microbatches of the call. */
static inline size_t sl_kept_elements(const struct sl_context *context, const struct sl_kept *kept) {
    return kept->count * sl_call_microbatches(context);
}
/* Address of the bf16 copy. */
static inline uint16_t *sl_kept_halves(const struct sl_context *context, const struct sl_kept *kept) {
    return (uint16_t *)sl_at(context, &kept->stored) + kept->column;
}
/* Address of a call's floats. */
static inline float *sl_kept_values(const struct sl_context *context, const struct sl_kept *kept) {
    return (float *)sl_at(context, &kept->values);
}
/* The array for kernels that can read and write bf16, in forward and I. */
static inline struct sl_rows sl_kept_rows(const struct sl_context *context, const struct sl_kept *kept) {
    return kept->form == SL_WHOLE ? sl_rows_f32(sl_kept_values(context, kept))
                                  : sl_rows_bf16(sl_kept_halves(context, kept));
}
/* The array in the saved type, for later calls: a child's x in backward, or its dy in W. */
static inline struct sl_given sl_kept_saved(const struct sl_context *context, const struct sl_kept *kept) {
    return sl_kept_outlasts(kept) ? sl_given_bf16(sl_kept_halves(context, kept))
                                  : sl_given_f32(sl_kept_values(context, kept));
}
/* Address of the array in the saved type if STORED, otherwise of a call's floats. */
static inline const void *sl_kept_if(const struct sl_context *context, const struct sl_kept *kept, bool stored) {
    return stored ? sl_given_rows(sl_kept_saved(context, kept)).at : sl_kept_values(context, kept);
}
/* Address of the array in I: if DTYPE is SL_F32, the floats of sl_recall, otherwise the array in its saved type. */
const void *sl_kept_operand(const struct sl_context *context, const struct sl_kept *kept, enum sl_dtype dtype);
/* The array as a child's x in forward, or its dy in I; and as a result to request from a child. */
struct sl_given sl_kept_given(const struct sl_context *context, const struct sl_kept *kept);
struct sl_result sl_kept_result(const struct sl_context *context, const struct sl_kept *kept);
/* The array as a kernel must write it if sl_keep is not called afterwards: bf16 alone if the floats are not read. */
static inline struct sl_out sl_kept_out(const struct sl_context *context, const struct sl_kept *kept) {
    return sl_out_of(kept->form == SL_ALONE ? NULL : sl_kept_values(context, kept), kept->form == SL_ROUNDED,
                     kept->stores ? sl_kept_halves(context, kept) : NULL);
}
/* Calls CHILD's forward of X, with the saved array Y as its result. CHILD rounds Y in the same pass if it can.
 * Otherwise Y is rounded afterwards or, if LEFT is not NULL, it stays unrounded: the next kernel that reads Y must
 * first write it in the form *LEFT. If nothing is left to do, *LEFT is Y as unrounded floats. */
int sl_forward_kept(const struct sl_module *child, struct sl_context *context, struct sl_given x,
                    const struct sl_kept *y, struct sl_out *left);
/* Rounds and stores the values. Call it in forward or I after a kernel or a collective call has written them. */
void sl_keep(const struct sl_context *context, const struct sl_kept *kept);
/* Returns the values in I, which an earlier call has saved. */
float *sl_recall(const struct sl_context *context, const struct sl_kept *kept);
/* Calls CHILD's W. If the call has several microbatches, W is called for one group after another. */
int sl_backward_weight_groups(const struct sl_module *child, struct sl_context *context, struct sl_given x,
                              struct sl_given dy);
/* Adds floats X [n] to those of Y, in the form that the caller needs. */
void sl_add_result(const struct sl_context *context, size_t n, const float *x, struct sl_result *y);
/* Writes X [n] to Y as bf16, and returns Y. */
const uint16_t *sl_round_rows(const struct sl_context *context, size_t n, const float *x, uint16_t *y);
/* X, the x or dy of a module with this USE: as bf16 if the module reads copies, otherwise as floats. */
static inline struct sl_rows sl_read_rows(const struct sl_use *use, struct sl_given x) {
    return sl_reads_copy(use) ? sl_given_stored(x) : sl_given_rows(x);
}
/* X [n] as floats: X itself, or widened at ROOM. */
const float *sl_widen(const struct sl_context *context, const struct sl_place *room, size_t n, struct sl_given x);

SL_END_C
#endif
