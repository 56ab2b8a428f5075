/* module_calls.c - calls of modules for one microbatch at a time, with rows in another type, or with a saved result. */
#include "layers/modules/kept.h"

/* CONTEXT restricted to its microbatch I. */
static struct sl_context alone(const struct sl_context *context, int i) {
    struct sl_context one = *context;
    one.microbatches = 1;
    one.rows = context->rows / (int)sl_call_microbatches(context);
    one.microbatch += i;
    one.batch = sl_batch_rows(&context->batch, i * one.rows, one.rows, context->inputs, context->targets);
    one.dropout.first_row += (uint32_t)(i * one.rows);
    if (one.dropout.layer_key) one.dropout.layer_key += (size_t)i * one.dropout.next_keys;
    return one;
}

/* X from microbatch I of CONTEXT on, a restricted context. */
static struct sl_given rows_of(const struct sl_context *one, int i, struct sl_given x, int columns) {
    return sl_given_from(x, (size_t)i * (size_t)one->rows * (size_t)columns);
}
static float *floats_of(const struct sl_context *one, int i, const struct sl_result *y, int columns) {
    return y->floats + (size_t)i * (size_t)one->rows * (size_t)columns;
}

int sl_module_forward_each(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_result *y) {
    for (int i = 0; i < context->microbatches; i++) {
        struct sl_context one = alone(context, i);
        SL_TRY(module->type->forward(module, &one, rows_of(&one, i, x, module->in),
                                     SL_INTO(floats_of(&one, i, y, module->out))));
    }
    return SL_OK;
}

int sl_module_backward_input_each(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy, struct sl_result *dx) {
    for (int i = 0; i < context->microbatches; i++) {
        struct sl_context one = alone(context, i);
        SL_TRY(module->type->backward_input(module, &one, rows_of(&one, i, x, module->in),
                                            rows_of(&one, i, dy, module->out),
                                            dx ? SL_INTO(floats_of(&one, i, dx, module->in)) : NULL));
    }
    return SL_OK;
}

int sl_module_backward_weight_each(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                                   struct sl_given dy) {
    for (int i = 0; i < (int)sl_call_microbatches(context); i += context->wgrad_group) {
        struct sl_context one = alone(context, i);
        one.accumulate = context->accumulate || one.microbatch > one.first_microbatch;
        SL_TRY(sl_module_backward_weight(module, &one, rows_of(&one, i, x, module->in),
                                         rows_of(&one, i, dy, module->out)));
    }
    return SL_OK;
}

/* X [n] as floats, at ROOM unless it has floats. */
static struct sl_given wide(const struct sl_context *context, const struct sl_place *room, size_t n,
                            struct sl_given x) {
    return sl_given_f32(sl_given_exists(x) ? sl_widen(context, room, n, x) : NULL);
}

int sl_module_backward_input_whole(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy, struct sl_result *dx) {
    struct sl_context whole = *context;
    whole.storage = SL_F32;
    x = wide(context, &module->room_x, (size_t)context->rows * (size_t)module->in, x);
    if (dy.halves) dy.form = SL_BESIDE;
    return sl_module_backward_input(module, &whole, x, dy, dx);
}

int sl_module_backward_weight_whole(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                                    struct sl_given dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    struct sl_context whole = *context;
    whole.storage = SL_F32;
    if (sl_is_kept_for_weight(&module->x)) x = wide(context, &module->room_x, rows * (size_t)module->in, x);
    if (sl_is_kept(&module->y)) dy = wide(context, &module->room_dy, rows * (size_t)module->out, dy);
    return sl_module_backward_weight(module, &whole, x, dy);
}

struct sl_given sl_module_stored_gradient(const struct sl_module *module, const struct sl_context *context,
                                          struct sl_given dy) {
    if (module->follower_dy == SL_F32 || dy.halves) return dy;
    dy.halves = sl_at(context, &module->room_dy);
    dy.form = SL_BESIDE;
    context->kernels->round_bf16((size_t)context->rows * (size_t)module->out, dy.floats, dy.halves);
    return dy;
}

int sl_module_weights_follow(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                             struct sl_given dy) {
    struct sl_context one = *context;
    if (module->frozen) return SL_OK;
    one.accumulate = context->accumulate || context->microbatch > context->first_microbatch;
    if (module->follower_dy != SL_F32) dy = sl_given_bf16(dy.halves);
    return module->type->backward_weight(module, &one, sl_is_kept_for_weight(&module->x) ? x : sl_given_f32(NULL), dy);
}

int sl_forward_kept(const struct sl_module *child, struct sl_context *context, struct sl_given x,
                    const struct sl_kept *y, struct sl_out *left) {
    struct sl_result to = sl_kept_result(context, y);
    if (left) to.made = SL_LEFT;
    SL_TRY(sl_module_forward(child, context, x, &to));
    if (left) *left = to.made == SL_MADE ? sl_out_f32(to.floats) : sl_kept_out(context, y);
    return SL_OK;
}

int sl_backward_weight_groups(const struct sl_module *child, struct sl_context *context, struct sl_given x,
                              struct sl_given dy) {
    return context->microbatches > 1 ? sl_module_backward_weight_each(child, context, x, dy)
                                     : sl_module_backward_weight(child, context, x, dy);
}

int sl_module_begin_part(const struct sl_module *module, const struct sl_context *context, unsigned written) {
    if (!context->begin || context->parameters->range[module->part].written != written) return SL_OK;
    return context->begin(context->self, module->part, context->begin_arg);
}

int sl_module_lacks(const struct sl_module *module, struct sl_context *context, const char *rows, const char *field) {
    return sl_fail(context->self, SL_BAD_INPUT,
                   "module type %s was given no %s in backward: the module around it must set %s as its child does",
                   module->type->name, rows, field);
}
