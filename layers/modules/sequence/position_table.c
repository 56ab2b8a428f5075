/* position_table.c - y = x + a table's rows of the tokens' positions; the table is learned, as in GPT-2 (Radford et
 * al., "Language models are unsupervised multitask learners", 2019).
 *
 * A coordinate has its channels' columns of the table, as of x, and needs no communication. Positions of a sequence are
 * consecutive, so their rows are one block; each document of a sequence begins with row 0. */
#include "layers/modules/sequence/cached.h"
#include "layers/modules/feedforward/products.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/device/device.h"

struct positions {
    struct sl_module module;
    int rows, whole; /* rows of the table; its columns on all coordinates together */
    const char *axis;
};

static const struct positions *own(const struct sl_module *module) { return (const struct positions *)module; }

/* Elements of a sequence. */
static size_t elements(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->sequence * (size_t)module->out;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const struct positions *positions = own(module);
    const size_t shape[] = {(size_t)positions->rows, (size_t)positions->whole};
    const double floats = (double)plan->rows * module->out;
    SL_TRY(sl_plan_columns(plan, positions->axis, positions->whole, 1));
    SL_TRY(sl_plan_positions(plan, positions->rows));
    SL_TRY(sl_plan_parameter_by_rule(plan, "positions", SL_INIT_TRUNCATED_NORMAL, sl_lecun_normal(shape[1]), 2, shape));
    SL_TRY(sl_plan_expect_sharded(plan, 0, 1, positions->axis, 1));
    module->x.lasts = SL_UNTIL_RETURN;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 3 * floats);
    if (sl_plan_trains(plan, 0)) sl_load_floats(plan, SL_LOAD_WEIGHT, SL_LOAD_MOVES, 3 * floats);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                   struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const size_t count = elements(module, context);
    const float *table = sl_value(module, context, 0);
    SL_TRY(sl_check_positions(module, context, own(module)->rows));
    if (context->batch.places) {
        context->kernels->sequence->lookup((size_t)context->rows, (size_t)module->out, context->batch.places, 0,
                                           own(module)->rows, sl_rows_f32(table), (size_t)module->out, sl_out_f32(y));
        context->kernels->add((size_t)context->rows * (size_t)module->out, x, y);
        return SL_OK;
    }
    sl_device.copy(y, x, (size_t)context->rows * (size_t)module->out * sizeof *y);
    for (int s = 0; s < context->rows / context->sequence; s++)
        context->kernels->add(count, table + (size_t)sl_first_position(context, s) * (size_t)module->out,
                              y + (size_t)s * count);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                          struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    (void)saved;
    if (dx) sl_device.copy(dx, dy, (size_t)context->rows * (size_t)module->in * sizeof *dx);
    return SL_OK;
}

/* Adds sequences in their order. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                           struct sl_given given) {
    const float *dy = given.floats;
    const size_t count = elements(module, context);
    float *gradient = sl_gradient(module, context, 0);
    (void)saved;
    if (!context->accumulate)
        context->kernels->fill(context->parameters->list[module->parameter[0]].count, 0.0f, gradient);
    if (context->batch.places)
        context->kernels->sequence->scatter_add((size_t)context->rows * (size_t)context->wgrad_group,
                                                (size_t)module->out, context->batch.places, 0, own(module)->rows, dy,
                                                gradient, (size_t)module->out);
    for (int s = 0; !context->batch.places && s < context->rows / context->sequence * context->wgrad_group; s++)
        context->kernels->add(count, dy + (size_t)s * count,
                              gradient + (size_t)sl_first_position(context, 0) * (size_t)module->out);
    return SL_OK;
}

static const struct sl_module_type type = {.name = "positions",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .bytes = sizeof(struct positions)};

struct sl_module *sl_learned_positions(int rows, int dimension, const struct sl_channels *channels) {
    const int columns = dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&type, "", columns, columns);
    if (!module) return NULL;
    ((struct positions *)module)->rows = rows;
    ((struct positions *)module)->whole = dimension;
    ((struct positions *)module)->axis = channels->axis;
    return module;
}
