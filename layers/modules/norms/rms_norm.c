/* rms_norm.c - divides each row by its root mean square, taken over the columns of all coordinates, then scales and
 * shifts the columns. A layer norm applies it to rows after subtracting their mean: sl_sharded_norm. */
#include "layers/modules/norms/norm.h"
#include "layers/modules/kept.h"
#include "layers/modules/share.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

enum { GAMMA = SL_NORM_FACTOR, BETA = SL_NORM_SHIFT };

struct rms_norm {
    struct sl_norm norm;
    const char *axis; /* axis sharding the columns */
    int group;        /* group over the axis */
    int whole;        /* columns of a whole row */
    float epsilon;
    struct sl_place sums;      /* [rows], to be summed */
    int parts;                 /* leaves of this coordinate; 1 without leaves */
    struct sl_place part_sums; /* [rows, parts], if there are several parts */
    struct sl_place room;      /* scratch memory of the kernels for whole rows, if they are used */
    struct sl_place no_shift;  /* [microbatches of a call, columns]: zeros; memory for an unused gradient */
};

static int plan_parameters(const struct rms_norm *own, struct sl_plan *plan) {
    const size_t columns = (size_t)own->whole;
    SL_TRY(sl_plan_parameter_by_rule(plan, "gamma", SL_INIT_ONES, 0.0f, 1, &columns));
    SL_TRY(sl_plan_expect_sharded(plan, GAMMA, 0, own->axis, 1));
    if (own->norm.no_shift) return SL_OK;
    SL_TRY(sl_plan_parameter_by_rule(plan, "beta", SL_INIT_ZEROS, 0.0f, 1, &columns));
    return sl_plan_expect_sharded(plan, BETA, 0, own->axis, 1);
}

/* Returns whether whole-row kernels are used: on a device with all columns of the rows. */
static bool is_whole(const struct rms_norm *own, const struct sl_kernels *kernels) {
    return kernels->whole_norms && own->group < 0 && own->parts == 1;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct rms_norm *own = (struct rms_norm *)module;
    const size_t rows = (size_t)plan->rows;
    SL_TRY(sl_plan_columns(plan, own->axis, own->whole, 1));
    SL_TRY(sl_plan_group(plan, own->axis, &own->group));
    SL_TRY(plan_parameters(own, plan));
    sl_plan_workspace(plan, sl_plan_rows(plan) * sizeof(float), &own->sums);
    own->parts = sl_plan_slices(plan, own->axis);
    if (own->parts > 1)
        sl_plan_workspace(plan, sl_plan_rows(plan) * (size_t)own->parts * sizeof(float), &own->part_sums);
    if (own->norm.no_shift)
        sl_plan_workspace(plan, sl_plan_run(plan) * (size_t)module->in * sizeof(float), &own->no_shift);
    SL_TRY(sl_plan_array(plan, rows, SL_UNTIL_INPUT, &own->norm.rstd));
    module->x.lasts = sl_until_input_if(!plan->forward_only);
    module->y.lasts = SL_UNTIL_RETURN;
    const struct sl_kernels *kernels = sl_kernels_select();
    const bool whole = is_whole(own, kernels);
    module->x.reads = sl_copy_if(whole);
    module->y.reads = whole ? SL_READS_EITHER : SL_READS_WHOLE;
    module->x.writes = whole ? SL_WRITES_BOTH : SL_WRITES_ASKED;
    module->x.adds = whole ? SL_ADDS_BF16 : SL_ADDS_FLOATS;
    module->y.writes = SL_WRITES_ASKED;
    sl_norm_count(plan, module->in);
    sl_load_call(plan, SL_LOAD_FORWARD, SL_PSUM, own->axis, sizeof(float) * (double)rows, 1);
    if (plan->forward_only) return SL_OK;
    if (whole)
        sl_plan_workspace(plan,
                          kernels->norms->rms_norm_room(sl_plan_run(plan), rows, (size_t)module->in) * sizeof(float),
                          &own->room);
    sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM, own->axis, sizeof(float) * (double)rows, 1);
    return sl_norm_plan_sums(&own->norm, plan);
}

/* Beta, or zeros instead. */
static const float *shift_of(const struct sl_module *module, struct sl_context *context) {
    const struct rms_norm *own = (const struct rms_norm *)module;
    if (!own->norm.no_shift) return sl_value(module, context, BETA);
    float *zeros = sl_at(context, &own->no_shift);
    context->kernels->fill((size_t)module->in, 0.0f, zeros);
    return zeros;
}

/* Rows of a forward call. */
struct pass {
    const struct sl_norm_kernels *kernels;
    size_t cols, whole, parts; /* parts: parts of a row, each with a sum of its own */
    const float *x, *gamma, *beta;
    float epsilon;
    float *each, *sums, *rstd; /* each [rows, parts] */
    struct sl_out y;
};

static void add_squares(const void *arg, size_t first, size_t end) {
    const struct pass *p = arg;
    p->kernels->square_sums((end - first) * p->parts, p->cols / p->parts, p->x + first * p->cols,
                            p->each + first * p->parts);
}

static void divide(const void *arg, size_t first, size_t end) {
    const struct pass *p = arg;
    const size_t at = first * p->cols;
    p->kernels->rms_norm_forward(end - first, p->cols, p->whole, sl_rows_f32(p->x + at), p->sums + first, p->gamma,
                                 p->beta, p->epsilon, p->rstd + first, sl_out_from(p->y, at));
}

static void add_and_divide(const void *arg, size_t first, size_t end) {
    add_squares(arg, first, end);
    divide(arg, first, end);
}

/* Memory for a row's sums over each part; and their sum over all parts of all coordinates, SUMS. */
static float *sums_of_parts(const struct rms_norm *own, const struct sl_context *context, float *sums) {
    return own->parts > 1 ? sl_at(context, &own->part_sums) : sums;
}
static int add_up(const struct rms_norm *own, struct sl_context *context, float *parts, float *sums) {
    const size_t rows = (size_t)context->rows;
    if (own->parts > 1) context->kernels->row_trees(rows, (size_t)own->parts, parts, sums);
    return sl_sum_over(context, own->group, rows, sums);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct rms_norm *own = (const struct rms_norm *)module;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in;
    const bool whole = is_whole(own, context->kernels);
    float *sums = sl_at(context, &own->sums);
    const struct pass pass = {.kernels = context->kernels->norms,
                              .cols = cols,
                              .whole = (size_t)own->whole,
                              .parts = (size_t)own->parts,
                              .x = x.floats,
                              .gamma = sl_value(module, context, GAMMA),
                              .beta = shift_of(module, context),
                              .epsilon = own->epsilon,
                              .each = sums_of_parts(own, context, sums),
                              .sums = sums,
                              .rstd = sl_at(context, &own->norm.rstd),
                              .y = whole ? sl_result_exactly(y) : sl_result_out(y)};
    if (whole) {
        pass.kernels->rms_norm_forward(rows, cols, cols, sl_read_rows(&module->x, x), NULL, pass.gamma, pass.beta,
                                       own->epsilon, pass.rstd, pass.y);
    } else if (own->group < 0 && own->parts == 1) {
        sl_share(context, rows, cols, add_and_divide, &pass);
    } else {
        sl_share(context, rows, cols, add_squares, &pass);
        SL_TRY(add_up(own, context, pass.each, sums));
        sl_share(context, rows, cols, divide, &pass);
    }
    return SL_OK;
}

/* Returns whether I's sums are the gradients: for a single microbatch whose W follows at once. */
static bool leaves_gradients(const struct sl_module *module, const struct sl_context *context, bool accumulate) {
    return module->weights_follow && !accumulate && is_whole((const struct rms_norm *)module, context->kernels);
}

/* Address where I writes the sums for parameter I. */
static float *sums_for(const struct sl_module *module, const struct sl_context *context, int i) {
    const struct rms_norm *own = (const struct rms_norm *)module;
    if (i == BETA && own->norm.no_shift) return sl_at(context, &own->no_shift);
    const bool accumulate = context->accumulate || context->microbatch > context->first_microbatch;
    if (leaves_gradients(module, context, accumulate) && !sl_is_frozen(module, context, i))
        return sl_gradient(module, context, i);
    return sl_at(context, &own->norm.sum[i]);
}

/* I for whole rows. If DX is NULL, it only writes the sums; even then dy may be bf16 only. */
static void backward_whole(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy, float *dgamma, float *dbeta, struct sl_result *dx) {
    const struct rms_norm *own = (const struct rms_norm *)module;
    const size_t cols = (size_t)module->in, microbatches = sl_call_microbatches(context);
    struct sl_rows summand = sl_rows_f32(NULL);
    const struct sl_out left = dx ? sl_result_summed(dx, &summand) : sl_out_f32(NULL);
    context->kernels->norms->rms_norm_backward(
        microbatches, (size_t)context->rows / microbatches, cols, cols, sl_read_rows(&module->y, dy), sl_given_rows(x),
        sl_at(context, &own->norm.rstd), sl_value(module, context, GAMMA), NULL, summand, left,
        module->frozen ? NULL : dgamma, dbeta, sl_at(context, &own->room));
}

/* Also computes each microbatch's sums for gamma and beta from dy: W only adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct rms_norm *own = (const struct rms_norm *)module;
    const struct sl_norm_kernels *kernels = context->kernels->norms;
    const size_t rows = (size_t)context->rows, cols = (size_t)module->in, parts = (size_t)own->parts;
    const float *gamma = sl_value(module, context, GAMMA), *rstd = sl_at(context, &own->norm.rstd);
    float *dgamma = sums_for(module, context, GAMMA), *dbeta = sums_for(module, context, BETA);
    const size_t microbatches = sl_call_microbatches(context);
    const struct sl_rows in = sl_given_rows(x), slopes = sl_given_rows(dy);
    if (is_whole(own, context->kernels)) {
        if (dx || !module->frozen) backward_whole(module, context, x, dy, dgamma, dbeta, dx);
        return SL_OK;
    }
    if (!module->frozen)
        kernels->rms_norm_backward(microbatches, rows / microbatches, cols, cols, slopes, in, rstd, gamma, NULL,
                                   sl_rows_f32(NULL), sl_out_f32(NULL), dgamma, dbeta, NULL);
    if (!dx) return SL_OK;
    const struct sl_rows summand = sl_given_rows(dx->adds);
    const struct sl_out sum = summand.at ? sl_result_with_floats(dx) : sl_out_f32(dx->floats);
    if (summand.at && dx->made == SL_ASKED) dx->made = SL_ADDED;
    float *dots = sl_at(context, &own->sums), *each = sums_of_parts(own, context, dots);
    kernels->rms_norm_dots(rows, parts, cols / parts, dy.floats, in, gamma, each);
    SL_TRY(add_up(own, context, each, dots));
    kernels->rms_norm_backward(1, rows, cols, (size_t)own->whole, slopes, in, rstd, gamma, dots, summand, sum, NULL,
                               NULL, NULL);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    if (leaves_gradients(module, context, context->accumulate)) return SL_OK;
    return sl_norm_backward_weight(module, context, x, dy);
}

static const struct sl_module_type rms_norm = {.name = "rms_norm",
                                               .plan = plan,
                                               .forward = forward,
                                               .backward_input = backward_input,
                                               .backward_weight = backward_weight,
                                               .spares = true,
                                               .stores = true,
                                               .fuses = true,
                                               .bytes = sizeof(struct rms_norm)};

static struct sl_module *new_rms_norm(const char *name, int columns, const struct sl_norm_kind *kind,
                                      const struct sl_channels *channels) {
    const int own = columns / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&rms_norm, name, own, own);
    if (!module) return NULL;
    ((struct rms_norm *)module)->whole = columns;
    ((struct rms_norm *)module)->axis = channels->axis;
    ((struct rms_norm *)module)->epsilon = (float)kind->epsilon;
    ((struct rms_norm *)module)->norm.no_shift = !kind->shifts;
    return module;
}

struct sl_module *sl_rms_norm(const char *name, int columns, const struct sl_channels *channels) {
    const struct sl_norm_kind kind = {.shifts = true, .epsilon = SL_NORM_EPSILON};
    return new_rms_norm(name, columns, &kind, channels);
}

struct sl_module *sl_sharded_norm(const char *name, int columns, const struct sl_norm_kind *kind,
                                  const struct sl_channels *channels) {
    const struct sl_channels whole = {.mesh = channels->mesh, .axis = ""};
    if (sl_channels_by_rows(channels)) return sl_own_rows(sl_sharded_norm(name, columns, kind, &whole), channels);
    if (!kind->centers) return new_rms_norm(name, columns, kind, channels);
    struct sl_module *const child[] = {sl_sharded_center(columns, channels),
                                       new_rms_norm(name, columns, kind, channels)};
    return sl_sequential("", 2, child);
}
