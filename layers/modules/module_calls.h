/* module_calls.h - calls from parents to children: forward and the two halves of backward, for every type of child.
 * They note the module for error reports. layers/modules/module.h includes this file at its end. */
#ifndef SL_LAYERS_MODULES_MODULE_CALLS_H
#define SL_LAYERS_MODULES_MODULE_CALLS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Fails with SL_BAD_INPUT: MODULE reads ROWS, which were not saved because its parent's FIELD is SL_UNTIL_RETURN. */
int sl_module_lacks(const struct sl_module *module, struct sl_context *context, const char *rows, const char *field);
/* Calls the function once for each microbatch of the context, for types that do not fuse. */
int sl_module_forward_each(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
int sl_module_backward_input_each(const struct sl_module *module, struct sl_context *context, const float *x,
                                  const float *dy, float *dx);
/* Calls W for the microbatches of an I, group after group. */
int sl_module_backward_weight_each(const struct sl_module *module, const struct sl_context *context, const float *x,
                                   const float *dy);
/* Calls W for the microbatch whose I has just returned; does nothing if the module is frozen. */
int sl_module_weights_follow(const struct sl_module *module, const struct sl_context *context, const float *x,
                             const float *dy);
/* Calls context->begin before an I or a W of MODULE, which is a part of the parameters. WRITTEN is the coming call;
 * context->begin is only called if this call writes the part's gradients. */
int sl_module_begin_part(const struct sl_module *module, const struct sl_context *context, unsigned written);
/* Call a module whose type does not store although the storage is bf16. X and DY are bf16, except dy in I, which is
 * float32. */
int sl_module_backward_input_whole(const struct sl_module *module, struct sl_context *context, const float *x,
                                   const float *dy, float *dx);
int sl_module_backward_weight_whole(const struct sl_module *module, const struct sl_context *context, const float *x,
                                    const float *dy);
/* Writes floats Y [n], the result of a call, in the form that the context requests. Call it if the module has not. */
void sl_module_finish(const struct sl_context *context, size_t n, float *y);
/* Calls modules instead of the functions below, which call them plainly, if context->inspector is not NULL. */
struct sl_inspector {
    int (*forward)(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx);
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy);
};
/* Notes for error reports that MODULE is being called; returns the module around it. */
static inline const char *sl_module_enter(const struct sl_module *module, const struct sl_context *context) {
    struct sl_doing *doing = &context->self->doing;
    const char *outer = doing->module;
    doing->module = module->called;
    return outer;
}
static inline int sl_module_leave(const struct sl_context *context, const char *outer, int status) {
    context->self->doing.module = outer;
    return status;
}
/* Y, or dx, in the form requested by RESULT; NULL: unrounded floats. sl_result_floats also writes floats that are not
 * read, for kernels that cannot write bf16 alone. */
static inline struct sl_out sl_result_floats(const struct sl_result *result, float *y) {
    return result ? sl_out_of(y, !result->whole, result->stored) : sl_out_f32(y);
}
static inline struct sl_out sl_result_out(const struct sl_result *result, float *y) {
    return sl_result_floats(result, result && result->unread ? NULL : y);
}
/* Takes the call's result from the context, so children do not see it until the caller puts it back. */
static inline struct sl_result *sl_take_result(struct sl_context *context) {
    struct sl_result *result = context->result;
    context->result = NULL;
    return result;
}
/* Takes the call's summand from the context, so children do not see it until the caller puts it back. */
static inline struct sl_summand *sl_take_summand(struct sl_context *context) {
    struct sl_summand *summand = context->summand;
    context->summand = NULL;
    return summand;
}
/* Returns the x that the caller's pass must add, and marks it as added; NULL: nothing to add. *SUM becomes the form in
 * which the pass must write the sum to DX, always with floats. If SUM is NULL, the pass writes unrounded floats. */
static inline const float *sl_added(const struct sl_context *context, float *dx, struct sl_out *sum) {
    struct sl_summand *const summand = context->summand;
    struct sl_result *const result = summand && sum ? summand->result : NULL;
    if (sum) *sum = sl_result_floats(result, dx);
    if (result) result->done = true;
    if (summand) summand->done = true;
    return summand ? summand->x : NULL;
}
/* DX in the form that the caller's pass must write; *SUMMAND is the summand that the pass must add (with a NULL
 * address: none). Marks both as done. */
static inline struct sl_out sl_summed_out(const struct sl_context *context, float *dx, struct sl_rows *summand) {
    struct sl_summand *const adds = context->summand;
    struct sl_result *const result = adds ? adds->result : context->result;
    *summand = adds && adds->stored ? sl_rows_bf16(adds->stored) : sl_rows_f32(adds ? adds->x : NULL);
    if (adds) adds->done = true;
    if (result) result->done = true;
    return sl_result_out(result, dx);
}
/* For parents: calls of a child's functions, which pass x and dy only if the child needs them saved. Use forward_last
 * for a child whose y serves only to compute the parent's y: if the parent's y is unread, so is the child's; and the
 * child may add the call's summand. Use forward for all others. */
static inline int sl_module_forward_plain(const struct sl_module *module, struct sl_context *context, const float *x,
                                          float *y) {
    struct sl_result *const result = context->result;
    struct sl_summand *const summand = context->summand;
    const char *outer = sl_module_enter(module, context);
    if (module->y.writes == SL_WRITES_FLOATS) context->result = NULL;
    if (module->y.adds == SL_ADDS_NOTHING) context->summand = NULL;
    const int status = context->microbatches > 1 && !module->type->fuses ? sl_module_forward_each(module, context, x, y)
                                                                         : module->type->forward(module, context, x, y);
    context->result = result;
    context->summand = summand;
    if (status == SL_OK && result && !result->done && !context->unread)
        sl_module_finish(context, (size_t)context->rows * (size_t)module->out, y);
    return sl_module_leave(context, outer, status);
}
static inline int sl_module_forward_last(const struct sl_module *module, struct sl_context *context, const float *x,
                                         float *y) {
    return (context->inspector ? context->inspector->forward : sl_module_forward_plain)(module, context, x, y);
}
static inline int sl_module_forward(const struct sl_module *module, struct sl_context *context, const float *x,
                                    float *y) {
    const bool unread = context->unread;
    struct sl_summand *const summand = context->summand;
    context->unread = false;
    context->summand = NULL;
    const int status = sl_module_forward_last(module, context, x, y);
    context->unread = unread;
    context->summand = summand;
    return status;
}
static inline int sl_module_backward_input_plain(const struct sl_module *module, struct sl_context *context,
                                                 const float *x, const float *dy, float *dx) {
    if (sl_is_kept(&module->x) && !x) return sl_module_lacks(module, context, "x", "x.lasts");
    if (!sl_is_kept(&module->x)) x = NULL;
    const bool whole = context->storage != SL_F32 && !module->type->stores;
    const bool each = context->microbatches > 1 && !module->type->fuses;
    if (module->part && !whole) SL_TRY(sl_module_begin_part(module, context, SL_WRITTEN_BY_INPUT));
    const char *outer = sl_module_enter(module, context);
    struct sl_result *const result = context->result;
    struct sl_summand *const summand = context->summand;
    const struct sl_rounded rounded = context->rounded;
    if (module->x.writes == SL_WRITES_FLOATS) context->result = NULL;
    if (module->x.adds == SL_ADDS_NOTHING) context->summand = NULL;
    int status = (whole  ? sl_module_backward_input_whole
                  : each ? sl_module_backward_input_each
                         : module->type->backward_input)(module, context, x, dy, dx);
    context->result = result;
    context->summand = summand;
    if (status == SL_OK && module->weights_follow && !whole) status = sl_module_weights_follow(module, context, x, dy);
    context->rounded = rounded; /* I may have noted its bf16 copy of dy for W */
    if (status == SL_OK && result && !result->done && dx)
        sl_module_finish(context, (size_t)context->rows * (size_t)module->in, dx);
    return sl_module_leave(context, outer, status);
}
static inline int sl_module_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                           const float *dy, float *dx) {
    return (context->inspector ? context->inspector->backward_input : sl_module_backward_input_plain)(module, context,
                                                                                                      x, dy, dx);
}
static inline int sl_module_backward_weight_plain(const struct sl_module *module, struct sl_context *context,
                                                  const float *x, const float *dy) {
    if (!module->type->backward_weight || module->weights_follow || module->frozen) return SL_OK;
    const bool reads_x = sl_is_kept_for_weight(&module->x);
    if (reads_x && !x) return sl_module_lacks(module, context, "x", "x.lasts");
    if (sl_is_kept(&module->y) && !dy) return sl_module_lacks(module, context, "dy", "y.lasts");
    if (context->storage != SL_F32 && !module->type->stores)
        return sl_module_backward_weight_whole(module, context, x, dy);
    if (module->part) SL_TRY(sl_module_begin_part(module, context, SL_WRITTEN_BY_WEIGHT));
    const char *outer = sl_module_enter(module, context);
    return sl_module_leave(
        context, outer,
        module->type->backward_weight(module, context, reads_x ? x : NULL, sl_is_kept(&module->y) ? dy : NULL));
}
static inline int sl_module_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                            const float *dy) {
    return (context->inspector ? context->inspector->backward_weight : sl_module_backward_weight_plain)(module, context,
                                                                                                        x, dy);
}

SL_END_C
#endif
