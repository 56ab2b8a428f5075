/* kept_calls.c - calls of modules with saved arrays: a child reads its saved input, and writes a result to be saved. */
#include "layers/modules/kept.h"

static struct sl_rounded rounded(const struct sl_context *context, const struct sl_kept *kept) {
    if (!kept->stores) return (struct sl_rounded){0};
    return (struct sl_rounded){.values = sl_at(context, &kept->values),
                               .stored = sl_kept_halves(context, kept),
                               .count = sl_kept_elements(context, kept),
                               .open = !kept->rounds && !kept->operand};
}

int sl_kept_forward(const struct sl_module *child, struct sl_context *context, const struct sl_kept *x, bool last,
                    float *y) {
    const struct sl_rounded before = context->rounded;
    const float *values = sl_kept_values(context, x);
    context->rounded = rounded(context, x);
    const int status =
        last ? sl_module_forward_last(child, context, values, y) : sl_module_forward(child, context, values, y);
    context->rounded = before;
    return status;
}

int sl_forward_kept(const struct sl_module *child, struct sl_context *context, const struct sl_kept *saved,
                    const float *x, const struct sl_kept *y, struct sl_out *left) {
    struct sl_result result = sl_kept_result(context, y);
    result.left = left != NULL;
    struct sl_result *const before = context->result;
    float *to = sl_kept_values(context, y);
    context->result = y->rounds || y->operand ? &result : NULL;
    const int status =
        saved ? sl_kept_forward(child, context, saved, false, to) : sl_module_forward(child, context, x, to);
    context->result = before;
    if (left) *left = result.done ? sl_out_f32(to) : sl_kept_out(context, y);
    return status;
}

int sl_saved_backward_input(const struct sl_module *child, struct sl_context *context, struct sl_rows x,
                            const float *dy, float *dx) {
    const enum sl_dtype before = context->saved.x;
    context->saved.x = x.type;
    const int status = sl_module_backward_input(child, context, x.at, dy, dx);
    context->saved.x = before;
    return status;
}

int sl_saved_backward_weight(const struct sl_module *child, struct sl_context *context, struct sl_rows x,
                             struct sl_rows dy) {
    const struct sl_saved before = context->saved;
    context->saved = (struct sl_saved){x.type, dy.type};
    const int status = context->microbatches > 1 ? sl_module_backward_weight_each(child, context, x.at, dy.at)
                                                 : sl_module_backward_weight(child, context, x.at, dy.at);
    context->saved = before;
    return status;
}

int sl_kept_backward_input(const struct sl_module *child, struct sl_context *context, struct sl_rows x,
                           const struct sl_kept *dy, float *dx) {
    const struct sl_rounded before = context->rounded;
    context->rounded = rounded(context, dy);
    const int status = sl_saved_backward_input(child, context, x, sl_kept_values(context, dy), dx);
    context->rounded = before;
    return status;
}

int sl_backward_input_left(const struct sl_module *child, struct sl_context *context, struct sl_rows x, const float *dy,
                           const struct sl_kept *dx, struct sl_rows *left) {
    struct sl_result result = sl_kept_result(context, dx);
    result.left = true; /* as floats */
    struct sl_result *const before = context->result;
    context->result = dx->unread ? &result : NULL;
    const int status = sl_saved_backward_input(child, context, x, dy, sl_kept_values(context, dx));
    context->result = before;
    *left = result.done ? sl_rows_bf16(result.stored) : sl_rows_f32(sl_kept_values(context, dx));
    return status;
}
