/* sharded_dense.c - y = x kernel + bias; each coordinate along an axis has a share of the columns of x and of y.
 *
 * A coordinate has the rows of the kernel that belong to its columns of x. Their product is its summand of y: the
 * summands are summed and scattered over the columns (a psum_scatter), so no coordinate ever stores all of y. Backward
 * is the inverse: all columns of dy are gathered, and yield this coordinate's columns of dx and its rows of the
 * kernel's gradient. In summed_dense every coordinate needs all of y, and both steps are sums. For the bias's
 * gradient, I sums each microbatch's dy over its rows, and W adds up these sums, unless W's product sums dy itself. If
 * sums add leaves, a coordinate first sums its own leaves' products (leaf_products.h).
 *
 * The kernel's columns may also be sharded over an axis with different rows of x (FSDP; ZeRO 3, Rajbhandari et al.
 * 2020): kernels are gathered before each product or ahead of all, and sums of gradients are scattered, or their parts
 * are written for later sums. */
#include "layers/modules/feedforward/lora_internal.h"
#include "layers/modules/feedforward/sharded_dense_internal.h"
#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

/* ---- forward and backward ---- */

/* Adds this coordinate's columns of the bias to Y [rows, out], segment by segment, and writes Y in the form that the
 * caller needs. If rows are scattered, Y has all columns of fewer rows. */
static void add_bias(const struct sl_module *module, struct sl_context *context, struct sl_result *y) {
    const struct sharded *dense = own(module);
    const struct sl_group *peers = sl_group_of(context, dense->group);
    const size_t segments = (size_t)dense->segments_out, parts = dense->by_rows ? (size_t)peers->size : 1;
    const size_t out = (size_t)module->out * parts, columns = out / segments;
    const size_t first = dense->scatters && !dense->by_rows ? columns * (size_t)peers->rank : 0;
    const float *bias = sl_value(module, context, SL_AFFINE_BIAS) + first;
    const struct sl_out to = sl_result_with_floats(y);
    for (size_t s = 0; s < segments; s++)
        context->kernels->sequence->add_bias((size_t)context->rows / parts, columns,
                                             bias + s * ((size_t)dense->whole / segments), sl_out_from(to, s * columns),
                                             out);
}

/* SHARE [rows, whole]: the product of this coordinate's columns of X. */
static int multiply(const struct sl_module *module, struct sl_context *context, struct sl_given x, const void *kernel,
                    struct sl_result *share) {
    const struct sharded *dense = own(module);
    const struct sl_products *products = &dense->products;
    if (dense->leaves.count > 1)
        return sl_leaf_products_forward(context, &dense->leaves, products, x, kernel, share->floats);
    return sl_products_forward(
        context, products, (int)sl_call_microbatches(context),
        sl_products_operand(products, context, &products->x, sl_module_elements(module, context), x), kernel,
        dense->biased ? sl_value(module, context, SL_AFFINE_BIAS) : NULL, share);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct sharded *dense = own(module);
    const void *kernel;
    if (context->unread) return SL_OK;
    SL_TRY(sl_sharded_kernel(module, context, &kernel));
    if (!dense->adds_up) return multiply(module, context, x, kernel, y);
    float *share = dense->scatters ? sl_at(context, &dense->columns) : y->floats;
    if (dense->pieces > 1) {
        const void *a =
            sl_products_operand(&dense->products, context, &dense->products.x, sl_module_elements(module, context), x);
        SL_TRY(sl_sharded_forward_in_pieces(module, context, a, kernel, share, y->floats));
    } else {
        SL_TRY(multiply(module, context, x, kernel, SL_INTO(share)));
        SL_TRY(sl_sharded_add_up(module, context, share, y->floats));
    }
    if (dense->biased) add_bias(module, context, y);
    return SL_OK;
}

/* Returns whether I computes the sums for the bias's gradient. */
static bool adds_rows(const struct sl_module *module, const struct sl_context *context) {
    const struct sharded *dense = own(module);
    return dense->biased && !dense->products.sums && !sl_is_frozen(module, context, SL_AFFINE_BIAS);
}

/* Sums the rows of ALL [rows, whole] in each microbatch. */
static void add_rows(const struct sl_module *module, struct sl_context *context, struct sl_rows all) {
    const struct sharded *dense = own(module);
    const size_t microbatches = sl_call_microbatches(context), rows = (size_t)context->rows / microbatches;
    context->kernels->part_sums(microbatches, rows, (size_t)dense->whole, all.at, all.type != SL_F32, false,
                                sl_at(context, &dense->sums));
}

/* I's DY for peers, which gather bf16 if the product reads it; alone, all of it. */
static struct sl_given moved(const struct sl_module *module, struct sl_given dy) {
    if (own(module)->group < 0) return dy;
    return sl_reads_copy(&module->y) && dy.halves ? sl_given_bf16(dy.halves) : sl_given_f32(dy.floats);
}

static int backward_in_pieces(const struct sl_module *module, struct sl_context *context, struct sl_rows dy,
                              struct sl_result *dx) {
    const void *kernel;
    struct sl_rows all;
    SL_TRY(sl_sharded_kernel(module, context, &kernel));
    SL_TRY(sl_sharded_gradient_in_pieces(module, context, dy, kernel, &all, dx));
    if (adds_rows(module, context)) add_rows(module, context, all);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct sharded *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t rows = (size_t)context->rows;
    const void *kernel;
    (void)x;
    if (dense->by_columns) return SL_OK;
    dy = moved(module, dy);
    struct sl_rows all = sl_given_rows(dy);
    if (dense->pieces > 1 && dx && all.type == products->input_gradient.dtype)
        return backward_in_pieces(module, context, all, dx);
    SL_TRY(sl_sharded_gather(module, context, rows, all, &all));
    if (dense->group >= 0) dy = sl_given_of(all);
    if (adds_rows(module, context)) add_rows(module, context, sl_given_stored(dy));
    if (!dx) return SL_OK; /* peers do not need it either: they are in the same stage */
    SL_TRY(sl_sharded_kernel(module, context, &kernel));
    const void *a = sl_products_operand(products, context, &products->dy, rows * (size_t)dense->whole, dy);
    if (dense->leaves.count > 1)
        return sl_leaf_products_input_gradient(context, &dense->leaves, products, a, kernel, dx->floats);
    const int pieces = (int)sl_call_microbatches(context) * dense->pieces;
    return sl_products_input_gradient(context, products, pieces, a, kernel, false, dx);
}

/* GRADIENT [in, whole] (+)= X^T B. */
static int multiply_gradient(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                             const void *b, bool accumulate, float *gradient) {
    const struct sharded *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    if (dense->by_columns) return sl_sharded_add_given(module, context, accumulate, gradient);
    if (dense->leaves.count > 1)
        return sl_leaf_products_weight_gradient(context, &dense->leaves, products, x, b, accumulate, gradient);
    const void *a = sl_products_operand(products, context, &products->x, rows * (size_t)module->in, x);
    float *bias = products->sums ? sl_gradient(module, context, SL_AFFINE_BIAS) : NULL;
    return sl_products_weight_gradient(context, products, a, b, accumulate, gradient, bias);
}

/* Computes X^T B, this coordinate's summand of the kernel's gradient, and starts to scatter the sum over the
 * columns. */
static int start_to_scatter(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            const void *b) {
    const struct sharded *dense = own(module);
    struct sl_scatters *scatters = context->scatters;
    float *share;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    SL_TRY(
        sl_scatters_room(scatters, context->self, context->kernels, (size_t)module->in * (size_t)dense->whole, &share));
    sl_profile_end(context->profile, before);
    SL_TRY(multiply_gradient(module, context, x, b, false, share));
    sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_scatters_start(scatters, context->self, context->kernels, sl_sharded_runs(dense), sl_sharded_run(dense),
                             context->accumulate, sl_gradient(module, context, SL_AFFINE_KERNEL)));
    sl_profile_end(context->profile, before);
    return SL_OK;
}

/* The same, waiting for the sum. */
static int scatter_kernel_gradient(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   const void *b) {
    const struct sharded *dense = own(module);
    const struct sl_group *data = sl_group_of(context, dense->data_group);
    const size_t shape[] = {sl_sharded_runs(dense), sl_sharded_run(dense)};
    float *gradient = sl_gradient(module, context, SL_AFFINE_KERNEL), *share = sl_at(context, &dense->kernel);
    float *sum = context->accumulate ? sl_at(context, &dense->shard) : gradient;
    SL_TRY(multiply_gradient(module, context, x, b, false, share));
    const bool by_tree = context->parameters->sums_by_tree;
    SL_TRY(sl_communicate(context, sl_describe_shares_of_sum(by_tree, data, share, sum, 2, shape, 1)));
    if (context->accumulate) context->kernels->add(shape[0] * shape[1] / (size_t)data->size, sum, gradient);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const struct sharded *dense = own(module);
    const struct sl_products *products = &dense->products;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group, whole = (size_t)dense->whole;
    const bool peers = dense->group >= 0, sums = peers && !dense->scatters;
    if (adds_rows(module, context))
        context->kernels->column_sums((size_t)context->wgrad_group, whole, sl_at(context, &dense->sums),
                                      context->accumulate, sl_gradient(module, context, SL_AFFINE_BIAS));
    if (sl_is_frozen(module, context, SL_AFFINE_KERNEL)) return SL_OK; /* on all peers */
    /* A W that follows finds all columns where I has gathered them, if I has gathered them in the type that W reads. */
    const bool gathered = module->weights_follow && (dy.floats || sl_reads_copy(&module->y));
    if (peers && sums && !gathered && !dense->by_columns)
        dy = sl_given_f32(sl_widen(context, &dense->own_dy, rows * (size_t)module->out, dy));
    if (peers && !dense->by_columns) {
        struct sl_rows all = sl_rows_of(sums ? SL_F32 : sl_given_rows(dy).type, sl_at(context, &dense->columns));
        if (!gathered) SL_TRY(sl_sharded_gather(module, context, rows, sl_given_rows(dy), &all));
        dy = sl_given_of(all);
    }
    const void *b = dense->by_columns ? NULL : sl_products_operand(products, context, &products->dy, rows * whole, dy);
    if (dense->data_group >= 0 && !context->parameters->scatters_late)
        return (dense->gathered >= 0 ? start_to_scatter : scatter_kernel_gradient)(module, context, x, b);
    return multiply_gradient(module, context, x, b, context->accumulate,
                             sl_gradient_parts(module, context, SL_AFFINE_KERNEL));
}

static void release(struct sl_module *module) { sl_products_release(&((struct sharded *)module)->products); }

struct sl_products *sl_sharded_dense_products(struct sl_module *module) {
    return module->type->release == release && !own(module)->adds_up ? &((struct sharded *)module)->products : NULL;
}

/* ---- construction ---- */

#define DENSE(NAME)                                                                                                    \
    {.name = NAME,                                                                                                     \
     .plan = sl_sharded_plan,                                                                                          \
     .forward = forward,                                                                                               \
     .backward_input = backward_input,                                                                                 \
     .backward_weight = backward_weight,                                                                               \
     .stores = true,                                                                                                   \
     .spares = true,                                                                                                   \
     .fuses = true,                                                                                                    \
     .bytes = sizeof(struct sharded),                                                                                  \
     .release = release}
static const struct sl_module_type sharded_dense = DENSE("sharded_dense"), summed_dense = DENSE("summed_dense");
static const struct sl_module_type first_dense = DENSE("first_dense"), last_dense = DENSE("last_dense");

static struct sl_module *new_dense(const struct sl_module_type *type, const char *name, int in, int out, bool biased,
                                   int shards, int segments_in, int segments_out, const struct sl_channels *channels) {
    const bool adapted = channels->lora && channels->lora->rank > 0;
    struct sl_module *module =
        sl_module_new(type, adapted ? "" : name, in / sl_mesh_axis_size(channels->mesh, channels->axis), out / shards);
    struct sharded *dense = (struct sharded *)module;
    if (!module) return NULL;
    dense->axis = channels->axis;
    dense->whole_in = in;
    dense->whole_out = dense->whole = out;
    dense->segments_in = segments_in;
    dense->segments_out = segments_out;
    dense->biased = biased;
    dense->scatters = module->out < out;
    dense->asked = channels->pieces;
    const struct sl_lora_shape lora = {in, out, segments_in, segments_out, type == &summed_dense};
    return adapted ? sl_lora_beside(name, module, &lora, channels) : module;
}

struct sl_module *sl_sharded_dense(const char *name, int in, int out, int segments_in, int segments_out,
                                   const struct sl_channels *channels) {
    const int shards = sl_mesh_axis_size(channels->mesh, channels->axis);
    return new_dense(&sharded_dense, name, in, out, true, shards, segments_in, segments_out, channels);
}

struct sl_module *sl_sharded_product(const char *name, int in, int out, const struct sl_channels *channels) {
    return new_dense(&sharded_dense, name, in, out, false, sl_mesh_axis_size(channels->mesh, channels->axis), 1, 1,
                     channels);
}

struct sl_module *sl_summed_dense(const char *name, int in, int out, int segments_in,
                                  const struct sl_channels *channels) {
    return new_dense(&summed_dense, name, in, out, true, 1, segments_in, 1, channels);
}

struct sl_module *sl_summed_product(const char *name, int in, int out, const struct sl_channels *channels) {
    return new_dense(&summed_dense, name, in, out, false, 1, 1, 1, channels);
}

struct sl_module *sl_first_dense(const char *name, int in, int out, int segments_out, bool biased,
                                 const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    if (!sl_channels_by_rows(channels))
        return new_dense(&sharded_dense, name, in, out, biased, size, 1, segments_out, channels);
    const struct sl_channels alone = {.mesh = channels->mesh, .axis = ""};
    struct sl_module *module = new_dense(&first_dense, name, in, out / size, biased, 1, 1, 1, &alone);
    if (!module) return NULL;
    ((struct sharded *)module)->whole_out = out;
    ((struct sharded *)module)->out_axis = channels->axis;
    ((struct sharded *)module)->kernel_segments = segments_out;
    return module;
}

struct sl_module *sl_last_dense(const char *name, int in, int out, bool biased, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    const bool by_rows = sl_channels_by_rows(channels);
    struct sl_module *module =
        new_dense(by_rows ? &last_dense : &sharded_dense, name, in, out, biased, size, 1, 1, channels);
    if (module && by_rows) ((struct sharded *)module)->by_rows = true;
    return module;
}
