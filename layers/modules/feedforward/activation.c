/* activation.c - silu, gelu and dropout; silu also with dropout in one pass. Forward saves the slope, so backward is
 * one multiplication. Only gelu computes its slope again, because more passes over memory would cost more. */
#include <math.h>

#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

struct activation {
    struct sl_module module;
    struct sl_kept slope; /* [rows, cols] */
    /* Of a dropout: */
    double rate;
    int layer, number;     /* its layer in the stage; its number in the model */
    struct sl_place words; /* random, uint32_t [rows, cols]; unused if kernels draw them */
    const char *axis;      /* axis sharding the columns */
    int whole;             /* columns of a whole row; 0: not sharded */
};

static const struct activation *own(const struct sl_module *module) { return (const struct activation *)module; }
static const struct sl_kept *slope_of(const struct sl_module *module) { return &own(module)->slope; }

/* Returns whether products write only bf16. */
static bool reads_copies(const struct sl_plan *plan) {
    return plan->precision == SL_BF16 && sl_gemm_leaves_bf16(plan->gemm);
}

/* Backward then reads bf16 dy. The types' own plans decide whether forward reads bf16 x. */
static int plan_slope(struct sl_module *module, struct sl_plan *plan) {
    const size_t count = (size_t)plan->rows * (size_t)module->in;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_GELU, (double)count);
    if (!plan->forward_only && plan->has_dx) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, 3.0 * (double)count);
    module->x.lasts = SL_UNTIL_RETURN;
    module->y.reads = reads_copies(plan) ? SL_READS_EITHER : SL_READS_WHOLE;
    module->x.writes = module->y.writes = SL_WRITES_ASKED;
    return sl_plan_kept_halves(plan, count, SL_UNTIL_INPUT, &((struct activation *)module)->slope);
}

static int plan_silu(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_slope(module, plan));
    module->x.reads = sl_copy_if(reads_copies(plan));
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    (void)x;
    const size_t n = sl_module_elements(module, context);
    if (dx)
        context->kernels->operands->multiply(n, sl_read_rows(&module->y, dy), sl_kept_rows(context, slope_of(module)),
                                             sl_result_out(dx));
    return SL_OK;
}

/* ---- dropout's random words ---- */

/* Share of kept elements; subtracted in double, so that 1 - 0.1 is the float 0.9, as in JAX. */
static float keep(const struct activation *dropout, const struct sl_context *context) {
    return context->phase == SL_TRAIN ? (float)(1.0 - dropout->rate) : 1.0f;
}

/* Words of the call: from each microbatch's own keys, or from rows and columns. */
static struct sl_dropout_words words_of(const struct sl_module *module, const struct sl_context *context) {
    const struct activation *dropout = own(module);
    const struct sl_dropout_source *source = &context->dropout;
    const uint32_t rows = (uint32_t)context->rows, cols = (uint32_t)module->in;
    if (source->layer_key && !dropout->whole) {
        const size_t microbatches = sl_call_microbatches(context), count = (size_t)rows * cols / microbatches;
        return (struct sl_dropout_words){.keys = source->layer_key + dropout->layer,
                                         .next = source->next_keys,
                                         .parts = microbatches,
                                         .part = (uint32_t)count};
    }
    return (struct sl_dropout_words){
        .key = sl_fold_in(source->step_key, (uint32_t)dropout->number),
        .first_row = source->first_row,
        .rows = rows,
        .first_col = dropout->whole ? cols * (uint32_t)sl_axis_index(context->self, dropout->axis) : 0,
        .cols = cols};
}

/* Draws the WORDS of a call: of all rows at once, or block by block if sequences are divided, or if the coordinate has
 * one of several PARTS of each sequence. */
static void draw_words(const struct sl_context *context, const struct sl_dropout_words *words, uint32_t *room) {
    const struct sl_draws *draws = context->kernels->draws;
    const struct sl_cut cut = context->cut;
    const uint32_t block = (uint32_t)context->sequence, sequence = block * (uint32_t)sl_cut_own_blocks(cut);
    const uint32_t parts = (uint32_t)context->dropout.parts, first = words->first_row, cols = words->cols;
    const uint32_t rows = parts > 1 || cut.leaves ? block : cut.parts > 1 ? sequence / 2 : words->rows;
    if (words->keys) draws->words_each(words->parts, words->keys, words->next, words->part, room);
    for (uint32_t row = 0; row < words->rows; row += rows)
        draws->words_global(words->key, parts > 1 ? first + row * parts : sl_cut_row(cut, sequence, first + row), rows,
                            words->first_col, cols, cols, room + (size_t)row * cols);
}

static int plan_dropout(struct sl_module *module, struct sl_plan *plan) {
    struct activation *dropout = (struct activation *)module;
    if (dropout->whole) SL_TRY(sl_plan_columns(plan, dropout->axis, dropout->whole, 1));
    if (!(dropout->rate >= 0.0 && dropout->rate < 1.0))
        return sl_error_set(plan->error, SL_BAD_INPUT, "dropout rate %g: it must be at least 0 and less than 1",
                            dropout->rate);
    if (plan->dropouts == SL_LAYER_DROPOUTS)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: the layer has more than %d dropouts; modules that repeat must be layers (is_layer)",
                            plan->name, module->type->name, SL_LAYER_DROPOUTS);
    if (dropout->rate > 0 && !plan->forward_only && plan->context_axis && sl_kernels_select()->draws_dropout)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: this device draws words for whole sequences, and these are divided over \"%s\"",
                            plan->name, plan->module->type->name, plan->context_axis);
    dropout->layer = plan->layer;
    dropout->number = plan->global_layer * SL_LAYER_DROPOUTS + plan->dropouts++;
    if (!sl_kernels_select()->draws_dropout)
        sl_plan_workspace(plan, sl_plan_rows(plan) * (size_t)module->in * sizeof(uint32_t), &dropout->words);
    if (dropout->rate > 0 && !plan->forward_only)
        sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_DROPOUT, (double)plan->rows * module->in);
    SL_TRY(plan_slope(module, plan));
    if (sl_kernels_select()->draws_dropout) module->x.reads = sl_copy_if(reads_copies(plan));
    return SL_OK;
}

/* ---- forward ---- */

static int silu_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_result *y) {
    context->kernels->operands->silu(sl_module_elements(module, context), sl_read_rows(&module->x, x), sl_result_out(y),
                                     sl_kept_rows(context, slope_of(module)));
    return SL_OK;
}

/* On hosts, draws the words for the kernel, which then writes only floats if the storage is float32. If all elements
 * are kept, any words will do. */
static int drop(const struct sl_module *module, struct sl_context *context, bool silu, struct sl_given x,
                struct sl_result *y) {
    const bool draws = context->kernels->draws_dropout, rounds = draws || context->storage != SL_F32;
    const float kept = keep(own(module), context);
    struct sl_dropout_words words = words_of(module, context);
    if (!draws) words.at = sl_at(context, &own(module)->words);
    if (!draws && kept < 1.0f) draw_words(context, &words, sl_at(context, &own(module)->words));
    const struct sl_dropout_arrays arrays = {
        .count = sl_module_elements(module, context),
        .silu = silu,
        .x = sl_read_rows(&module->x, x),
        .threshold = (uint32_t)ceilf(kept * 0x1p23f), /* an element is kept if its word's upper 23 bits are below */
        .keep = kept,
        .y = rounds ? sl_result_out(y) : sl_out_f32(y->floats),
        .slope = sl_kept_rows(context, slope_of(module))};
    context->kernels->operands->dropout(&words, &arrays);
    return SL_OK;
}

static int silu_dropout_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                struct sl_result *y) {
    if (keep(own(module), context) == 1.0f) return silu_forward(module, context, x, y);
    return drop(module, context, true, x, y);
}

static int dropout_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_result *y) {
    return drop(module, context, false, x, y);
}

/* ---- gelu ---- */

struct gelu {
    struct sl_module module;
    struct sl_place whole_x; /* if the storage is bf16: x as floats */
};

static int plan_erf_gelu(struct sl_module *module, struct sl_plan *plan) {
    if (!plan->forward_only) module->x.lasts = SL_UNTIL_DX;
    module->x.writes = module->y.writes = SL_WRITES_ASKED;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_GELU, (double)plan->rows * module->in);
    if (!plan->forward_only && plan->has_dx)
        sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_GELU, (double)plan->rows * module->in);
    return SL_OK;
}

static int plan_gelu(struct sl_module *module, struct sl_plan *plan) {
    module->x.reads = SL_READS_WHOLE;
    if (plan->storage != SL_F32 && !plan->forward_only)
        sl_plan_workspace(plan, sl_plan_rows(plan) * (size_t)module->in * sizeof(float),
                          &((struct gelu *)module)->whole_x);
    return plan_erf_gelu(module, plan);
}

/* Y, or dx. If the storage is bf16, kernels round it only in the pass that rounds x or dy, too. */
static struct sl_out gelu_out(const struct sl_context *context, bool rounds, struct sl_result *y) {
    return rounds || context->storage == SL_F32 ? sl_result_out(y) : sl_out_f32(y->floats);
}

static int gelu_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_result *y) {
    const bool open = x.form == SL_OPEN;
    context->kernels->sequence->gelu_forward(sl_module_elements(module, context), sl_given_rows(x),
                                             open ? x.halves : NULL, gelu_out(context, open, y));
    return SL_OK;
}

static int gelu_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                               struct sl_given dy, struct sl_result *dx) {
    const size_t n = sl_module_elements(module, context);
    if (!dx) return SL_OK;
    const bool rounds = !x.floats && dx->halves;
    if (!rounds) x = sl_given_f32(sl_widen(context, &((const struct gelu *)module)->whole_x, n, x));
    context->kernels->sequence->gelu_backward(n, sl_given_rows(x), sl_given_rows(dy), gelu_out(context, rounds, dx));
    return SL_OK;
}

static int erf_gelu_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_result *y) {
    context->kernels->published->erf_gelu_forward(sl_module_elements(module, context), x.floats, y->floats);
    return SL_OK;
}

static int erf_gelu_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy, struct sl_result *dx) {
    if (dx)
        context->kernels->published->erf_gelu_backward(sl_module_elements(module, context), x.floats, dy.floats,
                                                       dx->floats);
    return SL_OK;
}

/* ---- types and construction ---- */

#define ACTIVATION(NAME, PLAN, FORWARD)                                                                                \
    {.name = NAME,                                                                                                     \
     .plan = PLAN,                                                                                                     \
     .forward = FORWARD,                                                                                               \
     .backward_input = backward_input,                                                                                 \
     .stores = true,                                                                                                   \
     .fuses = true,                                                                                                    \
     .bytes = sizeof(struct activation)}
static const struct sl_module_type silu_type = ACTIVATION("silu", plan_silu, silu_forward);
static const struct sl_module_type dropout_type = ACTIVATION("dropout", plan_dropout, dropout_forward);
static const struct sl_module_type silu_dropout_type = ACTIVATION("silu_dropout", plan_dropout, silu_dropout_forward);
static const struct sl_module_type gelu_type = {.name = "gelu",
                                                .plan = plan_gelu,
                                                .forward = gelu_forward,
                                                .backward_input = gelu_backward_input,
                                                .stores = true,
                                                .fuses = true,
                                                .bytes = sizeof(struct gelu)};
static const struct sl_module_type erf_gelu_type = {.name = "erf_gelu",
                                                    .plan = plan_erf_gelu,
                                                    .forward = erf_gelu_forward,
                                                    .backward_input = erf_gelu_backward_input,
                                                    .fuses = true};

bool sl_is_gelu(const struct sl_module *module) { return module->type == &gelu_type; }

struct sl_module *sl_silu(int cols) { return sl_module_new(&silu_type, "", cols, cols); }

struct sl_module *sl_gelu(int columns) { return sl_module_new(&gelu_type, "", columns, columns); }

struct sl_module *sl_erf_gelu(int columns) { return sl_module_new(&erf_gelu_type, "", columns, columns); }

static struct sl_module *new_dropout(const struct sl_module_type *type, int cols, double rate) {
    struct sl_module *module = sl_module_new(type, "", cols, cols);
    if (module) ((struct activation *)module)->rate = rate;
    return module;
}

struct sl_module *sl_dropout(int cols, double rate) { return new_dropout(&dropout_type, cols, rate); }

struct sl_module *sl_silu_dropout(int cols, double rate) { return new_dropout(&silu_dropout_type, cols, rate); }

struct sl_module *sl_sharded_dropout(int columns, double rate, const struct sl_channels *channels) {
    const struct sl_channels whole = {.mesh = channels->mesh, .axis = ""};
    if (sl_channels_by_rows(channels)) return sl_own_rows(sl_sharded_dropout(columns, rate, &whole), channels);
    const int own = columns / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = new_dropout(&dropout_type, own, rate);
    if (!module) return NULL;
    ((struct activation *)module)->whole = columns;
    ((struct activation *)module)->axis = channels->axis;
    return module;
}
