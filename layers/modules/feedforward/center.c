/* center.c - subtracts from each row its mean over the columns of all coordinates. Its VJP does the same to dy. */
#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

struct center {
    struct sl_module module;
    const char *axis;          /* axis sharding the columns */
    int group;                 /* group over the axis */
    int whole;                 /* columns of a whole row */
    struct sl_place sums;      /* [rows], to be summed */
    int parts;                 /* leaves of this coordinate; 1 without leaves */
    struct sl_place part_sums; /* [rows, parts], if there are several parts */
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct center *own = (struct center *)module;
    const double rows = plan->rows;
    module->x.lasts = SL_UNTIL_RETURN;
    SL_TRY(sl_plan_columns(plan, own->axis, own->whole, 1));
    SL_TRY(sl_plan_group(plan, own->axis, &own->group));
    sl_plan_workspace(plan, sl_plan_rows(plan) * sizeof(float), &own->sums);
    own->parts = sl_plan_slices(plan, own->axis);
    if (own->parts > 1)
        sl_plan_workspace(plan, sl_plan_rows(plan) * (size_t)own->parts * sizeof(float), &own->part_sums);
    for (enum sl_load_part phase = SL_LOAD_FORWARD; phase <= (plan->forward_only ? SL_LOAD_FORWARD : SL_LOAD_INPUT);
         phase++) {
        sl_load_floats(plan, phase, SL_LOAD_MOVES, 3 * rows * module->in);
        sl_load_call(plan, phase, SL_PSUM, own->axis, sizeof(float) * rows, 1);
    }
    return SL_OK;
}

static int center_rows(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct center *own = (const struct center *)module;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in, parts = (size_t)own->parts;
    float *sums = sl_at(context, &own->sums), *each = parts > 1 ? sl_at(context, &own->part_sums) : sums;
    context->kernels->published->row_sums(rows * parts, cols / parts, x, each);
    if (parts > 1) context->kernels->row_trees(rows, parts, each, sums);
    SL_TRY(sl_sum_over(context, own->group, rows, sums));
    context->kernels->published->center_rows(rows, cols, (size_t)own->whole, sums, x, y);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    return center_rows(module, context, x.floats, y->floats);
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    (void)x;
    return dx ? center_rows(module, context, dy.floats, dx->floats) : SL_OK;
}

static const struct sl_module_type center = {.name = "center",
                                             .plan = plan,
                                             .forward = forward,
                                             .backward_input = backward_input,
                                             .stores = true,
                                             .fuses = true,
                                             .bytes = sizeof(struct center)};

struct sl_module *sl_sharded_center(int columns, const struct sl_channels *channels) {
    const int own = columns / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&center, "", own, own);
    if (!module) return NULL;
    ((struct center *)module)->whole = columns;
    ((struct center *)module)->axis = channels->axis;
    return module;
}
