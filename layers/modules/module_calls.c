/* module_calls.c - calls of modules for one microbatch at a time, or with rows in another type. */
#include "layers/modules/kept.h"

static const float *rows_of(const float *x, int first, int columns) {
    return x ? x + (size_t)first * (size_t)columns : NULL;
}

/* CONTEXT restricted to its microbatch I. */
static struct sl_context alone(const struct sl_context *context, int i) {
    struct sl_context one = *context;
    one.microbatches = 1;
    one.result = NULL;
    one.rows = context->rows / (int)sl_call_microbatches(context);
    one.microbatch += i;
    one.batch = sl_batch_rows(&context->batch, i * one.rows, one.rows, context->inputs, context->targets);
    one.dropout.first_row += (uint32_t)(i * one.rows);
    if (one.dropout.layer_key) one.dropout.layer_key += (size_t)i * one.dropout.next_keys;
    return one;
}

int sl_module_forward_each(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    for (int i = 0; i < context->microbatches; i++) {
        struct sl_context one = alone(context, i);
        const int first = i * one.rows;
        SL_TRY(module->type->forward(module, &one, rows_of(x, first, module->in),
                                     y + (size_t)first * (size_t)module->out));
    }
    return SL_OK;
}

int sl_module_backward_input_each(const struct sl_module *module, struct sl_context *context, const float *x,
                                  const float *dy, float *dx) {
    for (int i = 0; i < context->microbatches; i++) {
        struct sl_context one = alone(context, i);
        const int first = i * one.rows;
        SL_TRY(module->type->backward_input(module, &one, rows_of(x, first, module->in),
                                            rows_of(dy, first, module->out),
                                            dx ? dx + (size_t)first * (size_t)module->in : NULL));
    }
    return SL_OK;
}

/* As rows_of, for saved rows of TYPE. */
static const float *kept_rows_of(enum sl_dtype type, const float *x, int first, int columns) {
    const size_t bytes = (size_t)first * (size_t)columns * sl_dtype_size(type);
    return x ? (const void *)((const char *)x + bytes) : NULL;
}

int sl_module_backward_weight_each(const struct sl_module *module, const struct sl_context *context, const float *x,
                                   const float *dy) {
    for (int i = 0; i < (int)sl_call_microbatches(context); i += context->wgrad_group) {
        struct sl_context one = alone(context, i);
        const int first = i * one.rows;
        one.accumulate = context->accumulate || one.microbatch > one.first_microbatch;
        SL_TRY(sl_module_backward_weight(module, &one, kept_rows_of(one.saved.x, x, first, module->in),
                                         kept_rows_of(one.saved.dy, dy, first, module->out)));
    }
    return SL_OK;
}

int sl_module_backward_input_whole(const struct sl_module *module, struct sl_context *context, const float *x,
                                   const float *dy, float *dx) {
    struct sl_context whole = *context;
    whole.storage = whole.saved.x = SL_F32;
    whole.result = NULL;
    if (x) x = sl_widen(context, &module->room_x, (size_t)context->rows * (size_t)module->in, sl_saved_x(context, x));
    return sl_module_backward_input(module, &whole, x, dy, dx);
}

int sl_module_backward_weight_whole(const struct sl_module *module, const struct sl_context *context, const float *x,
                                    const float *dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    struct sl_context whole = *context;
    whole.storage = whole.saved.x = whole.saved.dy = SL_F32;
    const struct sl_rows in = sl_saved_x(context, x), out = sl_saved_dy(context, dy);
    x = sl_is_kept_for_weight(&module->x) ? sl_widen(context, &module->room_x, rows * (size_t)module->in, in) : NULL;
    dy = sl_is_kept(&module->y) ? sl_widen(context, &module->room_dy, rows * (size_t)module->out, out) : NULL;
    return sl_module_backward_weight(module, &whole, x, dy);
}

int sl_module_weights_follow(const struct sl_module *module, const struct sl_context *context, const float *x,
                             const float *dy) {
    struct sl_context one = *context;
    if (module->frozen) return SL_OK;
    one.accumulate = context->accumulate || context->microbatch > context->first_microbatch;
    one.saved.dy = module->follower_dy;
    if (module->follower_dy != SL_F32) {
        const size_t n = (size_t)context->rows * (size_t)module->out;
        const uint16_t *stored = sl_rounded_rows(context, n, dy);
        if (!stored) {
            uint16_t *room = sl_at(context, &module->room_dy);
            context->kernels->round_bf16(n, dy, room);
            stored = room;
        }
        dy = (const void *)stored;
    }
    return module->type->backward_weight(module, &one, sl_is_kept_for_weight(&module->x) ? x : NULL, dy);
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
