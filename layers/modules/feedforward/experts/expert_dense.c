/* expert_dense.c - y = x kernel + bias with a kernel for each expert. The rows belong to this coordinate's experts:
 * first all rows of one expert, then as many of the next.
 *
 * Experts are sharded over an axis. A coordinate has all rows of its experts, and so writes their complete gradients.
 * If sums over this axis are in tree order, each coordinate's rows have products and gradients of their own, which do
 * not depend on the number of coordinates. Columns are sharded over another axis as in sharded_dense.c: the products of
 * a coordinate's columns are summed over the coordinates and scattered over y, for all experts at once. If sums over
 * that axis add leaves, a coordinate first sums its own leaves' products (leaf_products.h). */
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/feedforward/leaf_products.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

struct expert_dense {
    struct sl_module module;
    const char *axis, *expert_axis;
    int whole_in, whole; /* columns of x and of y on all coordinates along the axis together */
    int experts;         /* experts on all coordinates along their axis */
    size_t here;         /* experts on this coordinate */
    size_t apart;        /* parts of an expert's rows with separate products */
    int group;           /* over the axis of columns */
    bool adds_up;        /* sums of products of peers or of leaves; the bias is added afterwards */
    struct sl_leaf_products leaves;
    struct sl_products products; /* each for one expert's rows in one microbatch */
    struct sl_place columns;     /* [rows, whole]: y before its sum; all of dy */
};

static const struct expert_dense *own(const struct sl_module *module) { return (const struct expert_dense *)module; }

/* ---- planning ---- */

static int plan_parameters(const struct expert_dense *dense, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)dense->experts, (size_t)dense->whole_in, (size_t)dense->whole};
    const size_t bias[] = {kernel[0], kernel[2]};
    const float scale = sl_lecun_normal(kernel[1]);
    SL_TRY(sl_plan_parameter_by_rule(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 3, kernel));
    SL_TRY(sl_plan_parameter_by_rule(plan, "bias", SL_INIT_ZEROS, 0.0f, 2, bias));
    const char *const axes[] = {dense->expert_axis, dense->axis, NULL};
    for (int dim = 0; dim < 3; dim++) SL_TRY(sl_plan_expect_sharded(plan, SL_AFFINE_KERNEL, dim, axes[dim], 1));
    SL_TRY(sl_plan_expect_sharded(plan, SL_AFFINE_BIAS, 0, dense->expert_axis, 1));
    return sl_plan_expect_sharded(plan, SL_AFFINE_BIAS, 1, NULL, 1);
}

static void plan_parts(struct expert_dense *dense, struct sl_plan *plan) {
    dense->apart = (size_t)sl_plan_members_apart(plan, dense->expert_axis);
    if (dense->apart == 1) return;
    sl_plan_gradient_parts(plan, SL_AFFINE_KERNEL, SL_EACH_MEMBERS);
    sl_plan_gradient_parts(plan, SL_AFFINE_BIAS, SL_EACH_MEMBERS);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct expert_dense *dense = (struct expert_dense *)module;
    dense->here = (size_t)(dense->experts / sl_mesh_axis_size(plan->mesh, dense->expert_axis));
    SL_TRY(sl_plan_columns(plan, dense->axis, dense->whole_in, 1));
    SL_TRY(sl_plan_columns(plan, dense->axis, dense->whole, 1));
    SL_TRY(sl_plan_group(plan, dense->axis, &dense->group));
    SL_TRY(plan_parameters(dense, plan));
    plan_parts(dense, plan);
    const int leaves = sl_plan_leaves(plan, dense->axis);
    dense->adds_up = dense->group >= 0 || leaves;
    SL_TRY(sl_leaf_products_plan(&dense->leaves, plan, leaves, module->in, 1, dense->whole));
    if (dense->group >= 0)
        sl_plan_workspace(plan, (size_t)plan->rows * (size_t)dense->whole * sizeof(float), &dense->columns);
    const bool trains = sl_plan_trains(plan, SL_AFFINE_KERNEL), trains_bias = sl_plan_trains(plan, SL_AFFINE_BIAS);
    module->x.lasts = sl_until_weight_if(trains);
    module->y.lasts = sl_from_input_if(trains || trains_bias);
    const int rows = plan->rows / (int)dense->here;
    const struct sl_products_shape shape = {.precision = plan->precision,
                                            .in = (int)dense->leaves.width,
                                            .out = dense->whole,
                                            .rows = rows,
                                            .wgrad_rows = rows,
                                            .leaves = (int)dense->apart,
                                            .epilogue = dense->adds_up ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS};
    const enum sl_operation back = SL_ALL_GATHER;
    const double all = sizeof(float) * (double)plan->rows * dense->whole;
    sl_load_call(plan, SL_LOAD_FORWARD, SL_PSUM_SCATTER, dense->axis, all, 1);
    if (!plan->forward_only) sl_load_call(plan, SL_LOAD_INPUT, back, dense->axis, all, 1);
    if (sl_is_kept(&module->y)) sl_load_call(plan, SL_LOAD_WEIGHT, back, dense->axis, all, 1);
    sl_load_repeat(plan, (double)dense->here * dense->leaves.count);
    const int status = sl_products_plan(&dense->products, plan, &shape);
    sl_load_repeat(plan, 1);
    return status;
}

/* ---- one expert's product ---- */

/* Rows of one expert in the call; the call's arrays hold the rows of all experts here. */
static size_t rows_of_one(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows / own(module)->here;
}

static size_t kernel_size(const struct sl_module *module) { return (size_t)module->in * (size_t)own(module)->whole; }

/* EXPERT's kernel in its stored type. */
static const void *kernel_of(const struct sl_module *module, const struct sl_context *context, size_t expert) {
    const struct sl_products *products = &own(module)->products;
    const size_t bytes = kernel_size(module) * sl_dtype_size(products->kernel);
    return (const char *)sl_products_kernel(products, module, context) + expert * bytes;
}

static const float *bias_of(const struct sl_module *module, const struct sl_context *context, size_t expert) {
    return sl_value(module, context, SL_AFFINE_BIAS) + expert * (size_t)own(module)->whole;
}

/* CONTEXT for ROWS of one expert in one microbatch, saved as floats. */
static struct sl_context rows_alone(const struct sl_context *context, size_t rows) {
    struct sl_context alone = *context;
    alone.rows = (int)rows;
    alone.wgrad_group = 1;
    alone.storage = SL_F32;
    return alone;
}

/* EXPERT's rows of X [rows, columns], in the type of products' operands. */
static const void *operand_of(const struct sl_module *module, const struct sl_context *context,
                              const struct sl_place *room, size_t expert, size_t columns, struct sl_given x) {
    const size_t count = rows_of_one(module, context) * columns;
    return sl_products_operand(&own(module)->products, context, room, count, sl_given_from(x, expert * count));
}

/* ---- communication ---- */

/* Sets *ALL [rows, whole] to all columns of DY [rows, out]. */
static int gather_gradient(const struct sl_module *module, struct sl_context *context, struct sl_given dy,
                           struct sl_given *all) {
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    const size_t shape[] = {(size_t)context->rows, (size_t)module->out};
    *all = dy;
    if (!peers) return SL_OK;
    float *columns = sl_at(context, &own(module)->columns);
    *all = sl_given_f32(columns);
    return sl_communicate(context, sl_describe_all_gather_dim(peers, SL_F32, dy.floats, columns, 2, shape, 1));
}

/* ---- forward and backward ---- */

static int add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y) {
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    const size_t out = (size_t)module->out, rows = rows_of_one(module, context);
    const size_t shape[] = {(size_t)context->rows, (size_t)own(module)->whole}, rank = peers ? (size_t)peers->rank : 0;
    const bool by_tree = peers && context->groups->by_tree[own(module)->group];
    if (peers) SL_TRY(sl_communicate(context, sl_describe_shares_of_sum(by_tree, peers, share, y, 2, shape, 1)));
    for (size_t e = 0; e < own(module)->here; e++)
        context->kernels->sequence->add_bias(rows, out, bias_of(module, context, e) + out * rank,
                                             sl_out_f32(y + e * rows * out), out);
    return SL_OK;
}

/* EXPERT's SHARE [rows, whole]: the product of this coordinate's columns of X. */
static int multiply(const struct sl_module *module, struct sl_context *context, size_t expert, struct sl_given x,
                    float *share) {
    const struct expert_dense *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t rows = rows_of_one(module, context), in = (size_t)module->in;
    const void *kernel = kernel_of(module, context, expert);
    struct sl_context alone = rows_alone(context, rows);
    if (dense->leaves.count > 1)
        return sl_leaf_products_forward(&alone, &dense->leaves, products, sl_given_from(x, expert * rows * in), kernel,
                                        share);
    return sl_products_forward(context, products, 1, operand_of(module, context, &products->x, expert, in, x), kernel,
                               bias_of(module, context, expert), SL_INTO(share));
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct expert_dense *dense = own(module);
    const size_t count = rows_of_one(module, context) * (size_t)dense->whole;
    float *share = dense->group < 0 ? y->floats : sl_at(context, &dense->columns);
    for (size_t e = 0; e < dense->here; e++) SL_TRY(multiply(module, context, e, x, share + e * count));
    return dense->adds_up ? add_up(module, context, share, y->floats) : SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct expert_dense *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t count = rows_of_one(module, context) * (size_t)module->in;
    struct sl_context alone = rows_alone(context, rows_of_one(module, context));
    struct sl_given all;
    (void)x;
    if (!dx) return SL_OK; /* peers do not need it either: they are in the same stage */
    SL_TRY(gather_gradient(module, context, dy, &all));
    for (size_t e = 0; e < dense->here; e++) {
        const void *a = operand_of(module, context, &products->dy, e, (size_t)dense->whole, all);
        const void *kernel = kernel_of(module, context, e);
        float *to = dx->floats + e * count;
        if (dense->leaves.count > 1)
            SL_TRY(sl_leaf_products_input_gradient(&alone, &dense->leaves, products, a, kernel, to));
        else
            SL_TRY(sl_products_input_gradient(context, products, 1, a, kernel, false, SL_INTO(to)));
    }
    return SL_OK;
}

/* Address of part number PART of parameter I's gradients, for all experts here; NULL if it is frozen. */
static float *gradients(const struct sl_module *module, const struct sl_context *context, int i, size_t part) {
    float *first = sl_gradient_parts(module, context, i);
    return first ? first + part * context->parameters->list[module->parameter[i]].count : NULL;
}

/* KERNEL (+)= X^T B over ROWS rows; X is float32, A is X as an operand. */
static int add_kernel_gradient(const struct sl_module *module, struct sl_context *context, size_t rows,
                               struct sl_given x, const void *a, const void *b, bool accumulate, float *kernel) {
    const struct expert_dense *dense = own(module);
    struct sl_context alone = rows_alone(context, rows);
    if (dense->leaves.count > 1)
        return sl_leaf_products_weight_gradient(&alone, &dense->leaves, &dense->products, x, b, accumulate, kernel);
    const struct sl_gemm *gemm = &dense->products.weight_gradient;
    return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, a, b, NULL, accumulate, kernel));
}

/* Adds the gradients of one microbatch. */
static int add_weight_gradients(const struct sl_module *module, struct sl_context *context, bool accumulate,
                                struct sl_given x, struct sl_given dy) {
    const struct expert_dense *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t rows = rows_of_one(module, context) / dense->apart, whole = (size_t)dense->whole;
    const size_t in = (size_t)module->in, bytes = sl_dtype_size(products->weight_gradient.dtype);
    struct sl_given all;
    SL_TRY(gather_gradient(module, context, dy, &all));
    for (size_t e = 0; e < dense->here; e++) {
        const bool trains = !sl_is_frozen(module, context, SL_AFFINE_KERNEL);
        const char *a = trains && dense->leaves.count == 1 ? operand_of(module, context, &products->x, e, in, x) : NULL;
        const char *b = trains ? operand_of(module, context, &products->dy, e, whole, all) : NULL;
        for (size_t part = 0; part < dense->apart; part++) {
            const size_t first = (e * dense->apart + part) * rows, begin = part * rows * bytes;
            float *kernel = gradients(module, context, SL_AFFINE_KERNEL, part);
            float *bias = gradients(module, context, SL_AFFINE_BIAS, part);
            if (kernel)
                SL_TRY(add_kernel_gradient(module, context, rows, sl_given_from(x, first * in),
                                           a ? a + begin * in : NULL, b + begin * whole, accumulate,
                                           kernel + e * kernel_size(module)));
            if (bias)
                context->kernels->column_sums(rows, whole, all.floats + first * whole, accumulate, bias + e * whole);
        }
    }
    return SL_OK;
}

/* An expert's rows in different microbatches are not contiguous: each microbatch has its own product. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const size_t rows = (size_t)context->rows, in = (size_t)module->in, out = (size_t)module->out;
    for (size_t m = 0; m < (size_t)context->wgrad_group; m++)
        SL_TRY(add_weight_gradients(module, context, context->accumulate || m > 0, sl_given_from(x, m * rows * in),
                                    sl_given_from(dy, m * rows * out)));
    return SL_OK;
}

static void release(struct sl_module *module) { sl_products_release(&((struct expert_dense *)module)->products); }

static const struct sl_module_type expert_dense = {.name = "expert_dense",
                                                   .plan = plan,
                                                   .forward = forward,
                                                   .backward_input = backward_input,
                                                   .backward_weight = backward_weight,
                                                   .spares = true,
                                                   .bytes = sizeof(struct expert_dense),
                                                   .release = release};

struct sl_module *sl_expert_dense(const char *name, int experts, const char *axis, int in, int out,
                                  const struct sl_channels *channels) {
    const int shards = sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&expert_dense, name, in / shards, out / shards);
    struct expert_dense *dense = (struct expert_dense *)module;
    if (!module) return NULL;
    dense->axis = channels->axis;
    dense->expert_axis = axis;
    dense->whole_in = in;
    dense->whole = out;
    dense->experts = experts;
    return module;
}
