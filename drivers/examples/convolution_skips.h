/* convolution_skips.h - layers of networks with connections that skip other layers, also of other stages: for
 * convolution.c.
 *
 * A stage sends rows only to the next stage. A skip's data therefore travels with the rows, as further columns behind
 * the columns of the layers between, [own | carried]: `beside` is a layer with such columns. Every stage boundary
 * between the skip's ends sends it once more, and its gradient back; and each layer between copies it, even within a
 * stage. In exchange, schedules and channels are unchanged. */
#ifndef CONVOLUTION_SKIPS_H
#define CONVOLUTION_SKIPS_H

#include <shardloop/shardloop.h>

/* ---- a layer with carried columns ---- */

struct beside {
    struct sl_module module;
    int at, carried;
    struct sl_place x, y, dx, dy; /* of the layer itself, without the carried columns */
};

static size_t beside_count(int rows, int columns) { return (size_t)rows * (size_t)columns; }

static int beside_plan(struct sl_module *module, struct sl_plan *plan) {
    struct beside *beside = (struct beside *)module;
    struct sl_module *layer = module->child[0];
    SL_TRY(sl_module_plan(layer, plan));
    module->x.lasts = module->y.lasts = SL_UNTIL_RETURN;
    const size_t in = beside_count(plan->rows, layer->in), out = beside_count(plan->rows, layer->out);
    SL_TRY(sl_plan_array(plan, in, layer->x.lasts, &beside->x));
    SL_TRY(sl_plan_array(plan, out, layer->y.lasts, &beside->dy));
    SL_TRY(sl_plan_array(plan, out, SL_UNTIL_RETURN, &beside->y));
    return sl_plan_array(plan, in, SL_UNTIL_RETURN, &beside->dx);
}

static int beside_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                          struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const struct beside *beside = (const struct beside *)module;
    const struct sl_module *layer = module->child[0];
    const int rows = context->rows, columns = module->out, own = layer->out, in = module->in, at = beside->at;
    float *own_x = sl_at(context, &beside->x), *own_y = sl_at(context, &beside->y);
    context->kernels->sequence->copy_block((size_t)rows, (size_t)layer->in, x, (size_t)in, own_x, (size_t)layer->in);
    SL_TRY(sl_module_forward(layer, context, sl_given_f32(own_x), SL_INTO(own_y)));
    SL_ROWS(is_device_ptr(x, own_y, y))
    for (int r = 0; r < rows; r++) {
        SL_LANES()
        for (int c = 0; c < columns; c++)
            y[(size_t)r * columns + c] = c < own ? own_y[(size_t)r * own + c] : x[(size_t)r * in + at + c - own];
    }
    return SL_OK;
}

static int beside_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                                 struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const struct beside *beside = (const struct beside *)module;
    const struct sl_module *layer = module->child[0];
    const int rows = context->rows, in = module->in, columns = module->out, own = layer->out, own_in = layer->in;
    const int at = beside->at, carried = dx ? beside->carried : 0;
    float *own_dy = sl_at(context, &beside->dy), *own_dx = sl_at(context, &beside->dx);
    (void)saved;
    context->kernels->sequence->copy_block((size_t)rows, (size_t)own, dy, (size_t)columns, own_dy, (size_t)own);
    SL_TRY(sl_module_backward_input(layer, context, sl_given_f32(sl_at(context, &beside->x)), sl_given_f32(own_dy),
                                    dx ? SL_INTO(own_dx) : NULL));
    SL_ROWS(is_device_ptr(own_dx, dy, dx))
    for (int r = 0; r < (dx ? rows : 0); r++) {
        SL_LANES()
        for (int c = 0; c < in; c++) {
            const float given = c >= at && c < at + carried ? dy[(size_t)r * columns + own + c - at] : 0;
            dx[(size_t)r * in + c] = c < own_in ? own_dx[(size_t)r * own_in + c] + given : given;
        }
    }
    return SL_OK;
}

static int beside_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy) {
    const struct beside *beside = (const struct beside *)module;
    (void)x;
    (void)dy;
    return sl_module_backward_weight(module->child[0], context, sl_given_f32(sl_at(context, &beside->x)),
                                     sl_given_f32(sl_at(context, &beside->dy)));
}

static const struct sl_module_type beside_type = {.name = "beside",
                                                  .plan = beside_plan,
                                                  .forward = beside_forward,
                                                  .backward_input = beside_backward_input,
                                                  .backward_weight = beside_backward_weight,
                                                  .bytes = sizeof(struct beside)};

/* y = [LAYER of x's first columns | CARRIED columns of x, from column AT on]. Takes ownership of LAYER. */
static struct sl_module *beside(struct sl_module *layer, int at, int carried) {
    const int own = layer ? layer->in : 0, all = at + carried > own ? at + carried : own;
    struct sl_module *module =
        sl_module_new_parent(&beside_type, NULL, all, layer ? layer->out + carried : 0, 1, &layer);
    if (!module) return NULL;
    ((struct beside *)module)->at = at;
    ((struct beside *)module)->carried = carried;
    return module;
}

/* begin_skip: y = [LAYER of x's own columns | these columns | CARRIED columns that x carries already]. pass_by: y =
 * [LAYER of x's own columns | CARRIED columns]. */
static inline struct sl_module *begin_skip(struct sl_module *layer, int carried) {
    return beside(layer, 0, layer ? layer->in + carried : 0);
}
static inline struct sl_module *pass_by(struct sl_module *layer, int carried) {
    return beside(layer, layer ? layer->in : 0, carried);
}

/* ---- end of a skip: a sum ---- */

static int sum_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                       struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const int rows = context->rows, columns = module->out;
    SL_ROWS(is_device_ptr(x, y))
    for (int r = 0; r < rows; r++) {
        SL_LANES()
        for (int c = 0; c < columns; c++)
            y[(size_t)r * columns + c] = x[(size_t)2 * r * columns + c] + x[((size_t)2 * r + 1) * columns + c];
    }
    return SL_OK;
}

static int sum_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                              struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const int rows = dx ? context->rows : 0, columns = module->out;
    (void)saved;
    SL_ROWS(is_device_ptr(dy, dx))
    for (int r = 0; r < 2 * rows; r++) {
        SL_LANES()
        for (int c = 0; c < columns; c++) dx[(size_t)r * columns + c] = dy[(size_t)(r / 2) * columns + c];
    }
    return SL_OK;
}

static const struct sl_module_type sum_type = {.name = "sum",
                                               .plan = sl_plan_keeps_nothing,
                                               .forward = sum_forward,
                                               .backward_input = sum_backward_input,
                                               .fuses = true,
                                               .bytes = sizeof(struct sl_module)};

/* y [COLUMNS] of x = [a | b]: a + b. */
static inline struct sl_module *sum_skip(int columns) { return sl_module_new(&sum_type, NULL, 2 * columns, columns); }

/* ---- end of a skip: more channels; twice the lines and the width ---- */

struct merge {
    struct sl_module module;
    int points, width;     /* of a, which is enlarged; its width */
    int channels, skipped; /* of a and of b */
};

static int merge_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                         struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const struct merge *merge = (const struct merge *)module;
    const int a = merge->channels, b = merge->skipped, width = merge->width, points = 4 * merge->points;
    const int grown = 2 * width, rows = context->rows, in = module->in, behind = merge->points * a;
    SL_ROWS(is_device_ptr(x, y))
    for (int i = 0; i < rows * points; i++) {
        const int point = i % points, from = point / grown / 2 * width + point % grown / 2;
        const float *row = x + (size_t)(i / points) * in;
        SL_LANES()
        for (int c = 0; c < a + b; c++)
            y[(size_t)i * (a + b) + c] = c < a ? row[from * a + c] : row[behind + point * b + c - a];
    }
    return SL_OK;
}

/* A point's gradient is the sum of the gradients of its four copies. */
static int merge_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                                struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const struct merge *merge = (const struct merge *)module;
    const int a = merge->channels, b = merge->skipped, width = merge->width, points = merge->points;
    const int rows = dx ? context->rows : 0, in = module->in, all = a + b, line = 2 * width * all, behind = points * a;
    (void)saved;
    SL_ROWS(is_device_ptr(dy, dx))
    for (int i = 0; i < rows * points; i++) {
        const int point = i % points, row = i / points;
        const float *first = dy + (size_t)row * 4 * points * all + (size_t)(point / width) * 2 * line +
                             (size_t)(point % width) * 2 * all;
        float *to = dx + (size_t)row * in;
        SL_LANES()
        for (int c = 0; c < a; c++)
            to[point * a + c] = first[c] + first[all + c] + (first[line + c] + first[line + all + c]);
        SL_LANES()
        for (int c = 0; c < 4 * b; c++) {
            const int skipped = c / b / 2 * line + c / b % 2 * all + a + c % b;
            const int at = (point / width * 2 + c / b / 2) * 2 * width + point % width * 2 + c / b % 2;
            to[behind + at * b + c % b] = first[skipped];
        }
    }
    return SL_OK;
}

static const struct sl_module_type merge_type = {.name = "merge",
                                                 .plan = sl_plan_keeps_nothing,
                                                 .forward = merge_forward,
                                                 .backward_input = merge_backward_input,
                                                 .fuses = true,
                                                 .bytes = sizeof(struct merge)};

/* y [2 lines, 2 width, CHANNELS + SKIPPED] of x = [a | b]: a [LINES, WIDTH, CHANNELS], with each point copied to four,
 * and b [2 lines, 2 width, SKIPPED], with its channels behind those of a. */
static inline struct sl_module *merge_skip(int lines, int width, int channels, int skipped) {
    const int points = lines * width;
    struct sl_module *module =
        sl_module_new(&merge_type, NULL, points * (channels + 4 * skipped), 4 * points * (channels + skipped));
    if (!module) return NULL;
    struct merge *merge = (struct merge *)module;
    merge->points = points;
    merge->width = width;
    merge->channels = channels;
    merge->skipped = skipped;
    return module;
}

#endif
