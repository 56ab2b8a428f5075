/* module_calls.h - calls from parents to children: forward and the two halves of backward, for every type of child.
 * They note the module for error reports. layers/modules/module.h includes this file at its end. */
#ifndef SL_LAYERS_MODULES_MODULE_CALLS_H
#define SL_LAYERS_MODULES_MODULE_CALLS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Fails with SL_BAD_INPUT: MODULE reads ROWS, which were not saved because its parent's FIELD is SL_UNTIL_RETURN. */
int sl_module_lacks(const struct sl_module *module, struct sl_context *context, const char *rows, const char *field);
/* Calls the function once for each microbatch of the context, for types that do not fuse. */
int sl_module_forward_each(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_result *y);
int sl_module_backward_input_each(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy, struct sl_result *dx);
/* Calls W for the microbatches of an I, group after group. */
int sl_module_backward_weight_each(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                                   struct sl_given dy);
/* Calls W for the microbatch whose I has just returned; does nothing if the module is frozen. */
int sl_module_weights_follow(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                             struct sl_given dy);
/* Returns DY with the bf16 copy that such a W reads, and which products in I read, too. */
struct sl_given sl_module_stored_gradient(const struct sl_module *module, const struct sl_context *context,
                                          struct sl_given dy);
/* Calls context->begin before an I or a W of MODULE, which is a part of the parameters. WRITTEN is the coming call;
 * context->begin is only called if this call writes the part's gradients. */
int sl_module_begin_part(const struct sl_module *module, const struct sl_context *context, unsigned written);
/* Call a module whose type does not store although the storage is bf16: saved X and DY are widened. */
int sl_module_backward_input_whole(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy, struct sl_result *dx);
int sl_module_backward_weight_whole(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                                    struct sl_given dy);
/* Writes Y, floats of N elements, in the form that the caller needs. Call it if the module has not. */
void sl_module_finish(const struct sl_context *context, size_t n, struct sl_result *y);
/* Calls modules instead of the functions below, which call them plainly, if context->inspector is not NULL. */
struct sl_inspector {
    int (*forward)(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y);
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx);
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy);
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
/* The result to pass to a module that uses its y, or dx, as USE says: Y, or only its FLOATS. */
static inline struct sl_result *sl_result_for(const struct sl_use *use, struct sl_result *y, struct sl_result *floats) {
    const bool obeys = sl_given_exists(y->adds) ? use->adds != SL_ADDS_NOTHING : use->writes != SL_WRITES_FLOATS;
    floats->floats = y->floats;
    return obeys ? y : floats;
}
/* Returns whether the call's end must write the form of Y. A sum's form is written by the module that adds. */
static inline bool sl_result_is_due(const struct sl_result *y) {
    return y->made == SL_ASKED && y->form != SL_WHOLE && !sl_given_exists(y->adds);
}
/* For parents: calls of a child's functions, which pass x and dy only if the child needs them saved. Use forward_last
 * for a child whose y serves only to compute the parent's y: if the parent's y is unread, so is the child's. Use
 * forward for all others. */
static inline int sl_module_forward_plain(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                          struct sl_result *y) {
    struct sl_result floats = sl_result_f32(NULL);
    struct sl_result *const to = sl_result_for(&module->y, y, &floats);
    const char *outer = sl_module_enter(module, context);
    const int status = context->microbatches > 1 && !module->type->fuses
                           ? sl_module_forward_each(module, context, x, to)
                           : module->type->forward(module, context, x, to);
    if (status == SL_OK && sl_result_is_due(y) && !context->unread)
        sl_module_finish(context, (size_t)context->rows * (size_t)module->out, y);
    return sl_module_leave(context, outer, status);
}
static inline int sl_module_forward_last(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                         struct sl_result *y) {
    return (context->inspector ? context->inspector->forward : sl_module_forward_plain)(module, context, x, y);
}
static inline int sl_module_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                    struct sl_result *y) {
    const bool unread = context->unread;
    context->unread = false;
    const int status = sl_module_forward_last(module, context, x, y);
    context->unread = unread;
    return status;
}
static inline int sl_module_backward_input_plain(const struct sl_module *module, struct sl_context *context,
                                                 struct sl_given x, struct sl_given dy, struct sl_result *dx) {
    if (sl_is_kept(&module->x) && !sl_given_exists(x)) return sl_module_lacks(module, context, "x", "x.lasts");
    if (!sl_is_kept(&module->x)) x = sl_given_f32(NULL);
    const bool whole = context->storage != SL_F32 && !module->type->stores;
    const bool each = context->microbatches > 1 && !module->type->fuses;
    if (module->part && !whole) SL_TRY(sl_module_begin_part(module, context, SL_WRITTEN_BY_INPUT));
    const char *outer = sl_module_enter(module, context);
    struct sl_result floats = sl_result_f32(NULL);
    const bool follows = module->weights_follow && !whole;
    if (follows) dy = sl_module_stored_gradient(module, context, dy);
    int status = (whole  ? sl_module_backward_input_whole
                  : each ? sl_module_backward_input_each
                         : module->type->backward_input)(module, context, x, dy,
                                                         dx ? sl_result_for(&module->x, dx, &floats) : NULL);
    if (status == SL_OK && follows) status = sl_module_weights_follow(module, context, x, dy);
    if (status == SL_OK && dx && sl_result_is_due(dx))
        sl_module_finish(context, (size_t)context->rows * (size_t)module->in, dx);
    return sl_module_leave(context, outer, status);
}
static inline int sl_module_backward_input(const struct sl_module *module, struct sl_context *context,
                                           struct sl_given x, struct sl_given dy, struct sl_result *dx) {
    return (context->inspector ? context->inspector->backward_input : sl_module_backward_input_plain)(module, context,
                                                                                                      x, dy, dx);
}
static inline int sl_module_backward_weight_plain(const struct sl_module *module, struct sl_context *context,
                                                  struct sl_given x, struct sl_given dy) {
    if (!module->type->backward_weight || module->weights_follow || module->frozen) return SL_OK;
    const bool reads_x = sl_is_kept_for_weight(&module->x), reads_dy = sl_is_kept(&module->y);
    if (reads_x && !sl_given_exists(x)) return sl_module_lacks(module, context, "x", "x.lasts");
    if (reads_dy && !sl_given_exists(dy)) return sl_module_lacks(module, context, "dy", "y.lasts");
    if (context->storage != SL_F32 && !module->type->stores)
        return sl_module_backward_weight_whole(module, context, x, dy);
    if (module->part) SL_TRY(sl_module_begin_part(module, context, SL_WRITTEN_BY_WEIGHT));
    const struct sl_given none = sl_given_f32(NULL);
    const char *outer = sl_module_enter(module, context);
    return sl_module_leave(context, outer,
                           module->type->backward_weight(module, context, reads_x ? x : none, reads_dy ? dy : none));
}
static inline int sl_module_backward_weight(const struct sl_module *module, struct sl_context *context,
                                            struct sl_given x, struct sl_given dy) {
    return (context->inspector ? context->inspector->backward_weight : sl_module_backward_weight_plain)(module, context,
                                                                                                        x, dy);
}

SL_END_C
#endif
