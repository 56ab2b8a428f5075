/* activation.c - silu, gelu and dropout, the first also with dropout in one pass. Forward leaves the slope, so backward
 * is one product.
 */
#include <math.h>
#include <stdio.h>

#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

enum { SLOPE };               /* stash [rows, cols] */
enum { WORDS, UNKEPT_SLOPE }; /* workspace: random words, uint32_t [rows, cols]; [rows, cols] where there is no stash */

static size_t elements(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows * (size_t)module->in;
}

/* The share that is kept; subtracted in double, so that 1 - 0.1 is the float 0.9, as in JAX. */
static float keep(const struct sl_module *module, const struct sl_context *context) {
    return context->phase == SL_TRAIN ? (float)(1.0 - module->option) : 1.0f;
}

/* Kept is what has the upper 23 bits of its word below this: where the uniform number made of them is below KEEP. */
static uint32_t threshold(float keep) { return (uint32_t)ceilf(keep * 0x1p23f); }

static uint32_t *words_of(const struct sl_module *module, const struct sl_context *context) {
    return (uint32_t *)(void *)(context->workspace + module->workspace[WORDS]);
}

/* The number of its first column in the whole row. */
static uint32_t first_column(const struct sl_module *module, const struct sl_context *context) {
    return module->whole ? (uint32_t)(module->in * sl_axis_index(context->self, module->axis)) : 0;
}

static uint32_t *draw_words(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_dropout_source *source = &context->dropout;
    const uint32_t rows = (uint32_t)context->rows, cols = (uint32_t)module->in;
    uint32_t *words = words_of(module, context);
    if (source->layer_key && !module->whole) {
        context->kernels->random_words(source->layer_key[module->layer], rows * cols, words);
    } else {
        const struct sl_key key = sl_fold_in(source->step_key, (uint32_t)module->dropout);
        context->kernels->random_words_global(key, source->first_row, rows, first_column(module, context), cols, words);
    }
    return words;
}

static float *slope_of(const struct sl_module *module, const struct sl_context *context) {
    return module->stash[SLOPE] < 0 ? (float *)(void *)(context->workspace + module->workspace[UNKEPT_SLOPE])
                                    : sl_stash_of(context, module->stash[SLOPE]);
}

static int plan_slope(struct sl_module *module, struct sl_plan *plan) {
    if (plan->forward_only) {
        module->stash[SLOPE] = -1;
        module->workspace[UNKEPT_SLOPE] =
            sl_plan_workspace(plan, (size_t)plan->rows * (size_t)module->in * sizeof(float));
        return SL_OK;
    }
    module->stash[SLOPE] = sl_plan_stash(plan, (size_t)module->in);
    return module->stash[SLOPE] < 0 ? SL_FAILED : SL_OK;
}

static int plan_dropout(struct sl_module *module, struct sl_plan *plan) {
    if (!(module->option >= 0.0 && module->option < 1.0))
        return sl_error_set(plan->error, SL_BAD_INPUT, "dropout rate %g: it must be at least 0 and less than 1",
                            module->option);
    module->layer = plan->layer;
    module->dropout = plan->global_layer * 64 + plan->dropouts++;
    module->workspace[WORDS] = sl_plan_workspace(plan, (size_t)plan->rows * (size_t)module->in * sizeof(uint32_t));
    return plan_slope(module, plan);
}

static int plan_sharded_dropout(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(sl_plan_columns(module, plan, module->whole, 1));
    return plan_dropout(module, plan);
}

static int silu_dropout_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const float kept = keep(module, context);
    const uint32_t *words = kept < 1.0f ? draw_words(module, context) : NULL;
    context->kernels->silu_dropout_forward(elements(module, context), x, words, threshold(kept), kept, y,
                                           slope_of(module, context));
    return SL_OK;
}

static int dropout_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const float kept = keep(module, context);
    /* Where all is kept, any words will do. */
    const uint32_t *words = kept < 1.0f ? draw_words(module, context) : words_of(module, context);
    context->kernels->dropout_forward(elements(module, context), x, words, threshold(kept), kept, y,
                                      slope_of(module, context));
    return SL_OK;
}

static int gelu_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    context->kernels->sequence->gelu_forward(elements(module, context), x, y, slope_of(module, context));
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    (void)x;
    if (!dx) return SL_OK;
    context->kernels->multiply(elements(module, context), dy, slope_of(module, context), dx);
    return SL_OK;
}

static const struct sl_module_type silu = {"silu", plan_slope, silu_dropout_forward, backward_input, NULL};
static const struct sl_module_type dropout = {"dropout", plan_dropout, dropout_forward, backward_input, NULL};
static const struct sl_module_type gelu = {"gelu", plan_slope, gelu_forward, backward_input, NULL};
static const struct sl_module_type sharded_dropout = {"sharded_dropout", plan_sharded_dropout, dropout_forward,
                                                      backward_input, NULL};
static const struct sl_module_type silu_dropout = {"silu_dropout", plan_dropout, silu_dropout_forward, backward_input,
                                                   NULL};

static struct sl_module *new_activation(const struct sl_module_type *type, int cols, double rate) {
    struct sl_module *module = sl_module_new(type, "", cols, cols);
    if (module) module->option = rate;
    return module;
}

struct sl_module *sl_silu(int cols) { return new_activation(&silu, cols, 0.0); }

struct sl_module *sl_dropout(int cols, double rate) { return new_activation(&dropout, cols, rate); }

struct sl_module *sl_silu_dropout(int cols, double rate) { return new_activation(&silu_dropout, cols, rate); }

struct sl_module *sl_gelu(int columns) { return new_activation(&gelu, columns, 0.0); }

struct sl_module *sl_sharded_dropout(int columns, double rate, const struct sl_channels *channels) {
    const int shards = sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = new_activation(&sharded_dropout, columns / shards, rate);
    if (!module) return NULL;
    module->whole = columns;
    snprintf(module->axis, sizeof module->axis, "%s", channels->axis);
    return module;
}
