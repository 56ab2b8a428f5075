/* gradient_check.c - compares a module's backward functions with differences of its forward.
 *
 * Arrays are filled with NaNs before a module must write them, and the workspace before each call. An element that is
 * not written, or is read too early, thus fails like a wrong one. The module's arrays are on the device; values that
 * are compared or changed here are copied. */
#include "layers/modules/gradient_check.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"

enum { SAMPLE = 200 }; /* elements compared of a larger tensor */

struct checker {
    const struct sl_module *module;
    int microbatches, group;
    float step;
    struct sl_mesh mesh;
    struct sl_spmd self;
    struct sl_parameters parameters;
    struct sl_stash stash, again, once; /* the last two: stashes of recomputed modules */
    struct sl_context context;
    size_t inputs, outputs, workspace; /* elements of x and y a microbatch; bytes */
    float *x, *dx;                     /* [microbatches][rows, in] */
    float *dy;                         /* [microbatches][rows, out] */
    uint16_t *kept_x, *kept_dy;        /* bf16 copies of x and dy */
    float *y;                          /* [rows, out] */
    float *nans, *seen, *weights;      /* on the host: NaNs for the largest array; the last copied array; dy */
    size_t parameters_count;           /* elements of all parameters */
    float *with, *without;             /* on the host: their gradients, one after another, with and without dx */
    float *input_gradient;             /* on the host: dx */
    double difference;
    char worst[96];
};

static void poison(const struct checker *c, void *data, size_t bytes) { sl_device.copy(data, c->nans, bytes); }

/* ---- setting up ---- */

static int take(float **data, size_t elements, struct sl_error *error) {
    *data = sl_device.take(elements * sizeof(float));
    return *data ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for a gradient check");
}

static int take_halves(uint16_t **data, size_t elements, struct sl_error *error) {
    *data = sl_device.take(elements * sizeof **data);
    return *data ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for a gradient check");
}

static int take_host(float **data, size_t elements, struct sl_error *error) {
    *data = calloc(elements ? elements : 1, sizeof **data);
    return *data ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for a gradient check");
}

static void draw(const struct checker *c, struct sl_key key, size_t n, float mean, float deviation, float *values) {
    for (size_t i = 0; i < n; i++)
        c->seen[i] = mean + deviation * sl_normal_of_word(sl_random_word(key, (uint32_t)n, (uint32_t)i));
    sl_device.copy(values, c->seen, n * sizeof *values);
}

static size_t largest(const size_t *sizes, int count) {
    size_t most = 0;
    for (int i = 0; i < count; i++) most = sizes[i] > most ? sizes[i] : most;
    return most;
}

/* Draws values away from the initial ones: zeros and ones would hide errors. */
static void draw_parameters(struct checker *c, struct sl_key key) {
    for (int i = 0; i < c->parameters.count; i++) {
        const struct sl_parameter *parameter = &c->parameters.list[i];
        const float mean = parameter->initializer == SL_INIT_ONES ? 1.0f : 0.0f;
        const float deviation = parameter->initializer == SL_INIT_TRUNCATED_NORMAL ? parameter->scale : 0.5f;
        draw(c, sl_fold_in(key, (uint32_t)i), parameter->count, mean, deviation, sl_parameter_value(&c->parameters, i));
    }
}

static int take_stash(struct sl_stash *stash, int slots, struct sl_error *error) {
    stash->slots = slots;
    return take(&stash->data, stash->elements * (size_t)slots, error);
}

static int refuse(const struct sl_gradient_check *check, struct sl_error *error) {
    if (check->rows < 1 || check->wgrad_group < 1 || check->microbatches < 1 ||
        check->microbatches % check->wgrad_group)
        return sl_error_set(error, SL_BAD_INPUT,
                            "gradient check of %d rows, %d microbatches in groups of %d: all must be at least 1, and "
                            "microbatches divide into groups",
                            check->rows, check->microbatches, check->wgrad_group);
    if (check->sequence < 0 || (check->sequence && check->rows % check->sequence))
        return sl_error_set(error, SL_BAD_INPUT,
                            "gradient check of %d rows in sequences of %d: rows must divide into sequences, or "
                            "sequences be 0",
                            check->rows, check->sequence);
    return SL_OK;
}

/* Plans MODULE anew; only the largest sizes of earlier plans remain. */
static int plan_as(struct checker *c, struct sl_module *module, const struct sl_gradient_check *check,
                   const struct sl_gemm_backend *gemm, enum sl_dtype storage, enum sl_dtype precision,
                   struct sl_error *error) {
    struct sl_stash *const stashes[] = {&c->stash, &c->again, &c->once};
    for (int i = 0; i < 3; i++) stashes[i]->count = 0, stashes[i]->used = 0;
    struct sl_plan plan = {.mesh = &c->mesh,
                           .gemm = gemm,
                           .storage = storage,
                           .precision = precision,
                           .rows = check->rows,
                           .sequence = check->sequence,
                           .wgrad_group = check->wgrad_group,
                           .parameters = &c->parameters,
                           .stash = &c->stash,
                           .again = &c->again,
                           .error = error};
    c->again.once = &c->once;
    c->context.storage = storage;
    SL_TRY(sl_module_plan(module, &plan));
    if (plan.workspace_peak > c->workspace) c->workspace = plan.workspace_peak;
    return SL_OK;
}

static bool rounds(const struct sl_gradient_check *check) {
    return check->storage != SL_F32 || check->precision != SL_F32;
}

/* Plans MODULE for the gradients, with memory for the differences, too. */
static int plan_module(struct checker *c, struct sl_module *module, const struct sl_gradient_check *check,
                       const struct sl_gemm_backend *gemm, struct sl_error *error) {
    c->mesh = (struct sl_mesh){.axes = 1, .axis = {{.name = "data", .size = 1}}, .size = 1};
    c->self.mesh = &c->mesh;
    if (sl_parameters_open(&c->parameters, 1)) return sl_error_set(error, SL_FAILED, "no memory for a gradient check");
    c->parameters.frozen = check->frozen;
    SL_TRY(plan_as(c, module, check, gemm, check->storage, check->precision, error));
    c->module = module;
    c->inputs = (size_t)check->rows * (size_t)module->in;
    c->outputs = (size_t)check->rows * (size_t)module->out;
    for (int i = 0; i < c->parameters.count; i++) c->parameters_count += c->parameters.list[i].count;
    sl_parameters_layout(&c->parameters, 1, 0, false);
    if (rounds(check)) {
        SL_TRY(plan_as(c, module, check, gemm, SL_F32, SL_F32, error));
        SL_TRY(plan_as(c, module, check, gemm, check->storage, check->precision, error));
    }
    return sl_parameters_take(&c->parameters, error);
}

static int take_arrays(struct checker *c, struct sl_error *error) {
    const size_t microbatches = (size_t)c->microbatches;
    SL_TRY(take(&c->x, microbatches * c->inputs, error));
    SL_TRY(take(&c->dx, microbatches * c->inputs, error));
    SL_TRY(take(&c->dy, microbatches * c->outputs, error));
    SL_TRY(take(&c->y, c->outputs, error));
    SL_TRY(take_halves(&c->kept_x, microbatches * c->inputs, error));
    SL_TRY(take_halves(&c->kept_dy, microbatches * c->outputs, error));
    SL_TRY(take_stash(&c->stash, c->microbatches, error));
    SL_TRY(take_stash(&c->again, c->microbatches, error));
    SL_TRY(take_stash(&c->once, 1, error));
    const size_t most = largest((size_t[]){microbatches * c->inputs, microbatches * c->outputs, c->parameters_count,
                                           c->stash.elements * microbatches, c->again.elements * microbatches,
                                           c->once.elements, (c->workspace + sizeof(float) - 1) / sizeof(float)},
                                7);
    SL_TRY(take_host(&c->nans, most, error));
    SL_TRY(take_host(&c->seen, most, error));
    SL_TRY(take_host(&c->weights, microbatches * c->outputs, error));
    SL_TRY(take_host(&c->input_gradient, microbatches * c->inputs, error));
    SL_TRY(take_host(&c->with, c->parameters_count, error));
    SL_TRY(take_host(&c->without, c->parameters_count, error));
    memset(c->nans, 0xff, most * sizeof *c->nans);
    return SL_OK;
}

static int open_checker(struct checker *c, struct sl_module *module, const struct sl_gradient_check *check,
                        const struct sl_gemm_backend *gemm, struct sl_error *error) {
    const struct sl_key key = sl_key_of_seed(check->seed);
    const size_t microbatches = (size_t)check->microbatches;
    SL_TRY(refuse(check, error));
    SL_TRY(sl_module_check(module, false, error));
    c->microbatches = check->microbatches;
    c->group = check->wgrad_group;
    c->step = check->step > 0.0f ? check->step : 1e-2f;
    SL_TRY(plan_module(c, module, check, gemm, error));
    SL_TRY(take_arrays(c, error));
    c->context = (struct sl_context){.self = &c->self,
                                     .storage = check->storage,
                                     .kernels = check->kernels ? check->kernels : sl_kernels_select(),
                                     .phase = SL_TRAIN,
                                     .rows = check->rows,
                                     .sequence = check->sequence,
                                     .wgrad_group = check->wgrad_group,
                                     .dropout.step_key = sl_fold_in(key, 0),
                                     .parameters = &c->parameters,
                                     .stash = &c->stash,
                                     .again = &c->again,
                                     .once = &c->once,
                                     .workspace = sl_device.take(c->workspace)};
    if (!c->context.workspace) return sl_error_set(error, SL_FAILED, "no memory for a gradient check");
    draw(c, sl_fold_in(key, 1), microbatches * c->inputs, 0.0f, 1.0f, c->x);
    draw(c, sl_fold_in(key, 2), microbatches * c->outputs, 0.0f, 1.0f, c->dy);
    if (check->storage != SL_F32) {
        c->context.kernels->settle_bf16(microbatches * c->inputs, c->x, c->kept_x);
        c->context.kernels->settle_bf16(microbatches * c->outputs, c->dy, c->kept_dy);
    }
    sl_device.copy(c->weights, c->dy, microbatches * c->outputs * sizeof *c->weights);
    draw_parameters(c, sl_fold_in(key, 3));
    return sl_parameters_round_all(&c->parameters, error);
}

static void close_checker(struct checker *c) {
    sl_device.give(c->x);
    sl_device.give(c->dx);
    sl_device.give(c->dy);
    sl_device.give(c->y);
    sl_device.give(c->kept_x);
    sl_device.give(c->kept_dy);
    sl_device.give(c->stash.data);
    sl_device.give(c->again.data);
    sl_device.give(c->once.data);
    sl_device.give(c->context.workspace);
    free(c->stash.tensor);
    free(c->again.tensor);
    free(c->once.tensor);
    free(c->nans);
    free(c->seen);
    free(c->weights);
    free(c->input_gradient);
    free(c->with);
    free(c->without);
    if (c->parameters.range) sl_parameters_close(&c->parameters);
}

/* ---- gradients ---- */

static void set_microbatch(struct checker *c, int microbatch) {
    c->context.microbatch = microbatch;
    c->context.dropout.first_row = (uint32_t)(microbatch * c->context.rows);
    poison(c, c->context.workspace, c->workspace);
}

static int forward(struct checker *c, int microbatch) {
    set_microbatch(c, microbatch);
    poison(c, c->y, c->outputs * sizeof(float));
    return c->module->type->forward(c->module, &c->context, sl_given_f32(c->x + (size_t)microbatch * c->inputs),
                                    SL_INTO(c->y));
}

/* x and dy from element FIRST on, in their saved types. */
static struct sl_given kept(const struct checker *c, const float *floats, const uint16_t *halves, size_t first) {
    return c->context.storage == SL_F32 ? sl_given_f32(floats + first) : sl_given_bf16(halves + first);
}
static struct sl_given kept_x(const struct checker *c, size_t first) { return kept(c, c->x, c->kept_x, first); }
static struct sl_given kept_dy(const struct checker *c, size_t first) { return kept(c, c->dy, c->kept_dy, first); }

static void poison_stash(const struct checker *c, const struct sl_stash *stash) {
    poison(c, stash->data, stash->elements * (size_t)stash->slots * sizeof(float));
}

/* Copies the parameters' gradients, one after another; zeros for frozen parameters. */
static void copy_gradients(const struct checker *c, float *to) {
    for (int i = 0; i < c->parameters.count; to += c->parameters.list[i++].count) {
        const float *gradient = sl_parameter_gradient(&c->parameters, i);
        if (gradient)
            sl_device.copy(to, gradient, c->parameters.list[i].count * sizeof *to);
        else
            memset(to, 0, c->parameters.list[i].count * sizeof *to);
    }
}

/* ---- modules that do not check whether dx is NULL ---- */

static _Thread_local sigjmp_buf before_call;
static _Thread_local volatile sig_atomic_t is_in_call;

/* Signal handler. A fault in another thread than the caller's ends the process, as without this handler. */
static void leave_call(int number) {
    if (is_in_call) siglongjmp(before_call, 1);
    signal(number, SIG_DFL);
}

/* If the module faults, it has accessed dx. Its resources are not restored, because the check is over. */
static int backward_without_dx(struct checker *c, struct sl_given x, struct sl_given dy) {
    const struct sigaction leave = {.sa_handler = leave_call};
    struct sigaction before;
    int status;
    sigaction(SIGSEGV, &leave, &before);
    if (!sigsetjmp(before_call, 1)) {
        is_in_call = 1;
        status = sl_module_backward_input(c->module, &c->context, x, dy, NULL);
    } else {
        status =
            sl_fail(&c->self, SL_BAD_INPUT,
                    "backward_input of %s writes to dx although dx is NULL: then no gradient is wanted, and it must "
                    "leave dx alone",
                    c->self.doing.module);
    }
    is_in_call = 0;
    sigaction(SIGSEGV, &before, NULL);
    return status;
}

/* A training step: forward, input gradients in the opposite order, weight gradients group by group. */
static int gradients(struct checker *c, float *dx) {
    const struct sl_module *module = c->module;
    poison_stash(c, &c->stash);
    poison_stash(c, &c->again);
    poison_stash(c, &c->once);
    for (int i = 0; i < c->parameters.count; i++)
        if (!c->parameters.list[i].frozen)
            poison(c, sl_parameter_gradient(&c->parameters, i), c->parameters.list[i].count * sizeof(float));
    for (int m = 0; m < c->microbatches; m++) SL_TRY(forward(c, m));
    for (int m = c->microbatches - 1; m >= 0; m--) {
        const size_t in = (size_t)m * c->inputs, out = (size_t)m * c->outputs;
        set_microbatch(c, m);
        if (dx) poison(c, dx + in, c->inputs * sizeof(float));
        const struct sl_given dy = sl_given_f32(c->dy + out);
        SL_TRY(dx ? sl_module_backward_input(module, &c->context, kept_x(c, in), dy, SL_INTO(dx + in))
                  : backward_without_dx(c, kept_x(c, in), dy));
    }
    for (int m = 0; m < c->microbatches && module->type->backward_weight; m += c->group) {
        const size_t in = (size_t)m * c->inputs, out = (size_t)m * c->outputs;
        set_microbatch(c, m);
        c->context.accumulate = m > 0;
        SL_TRY(sl_module_backward_weight(module, &c->context, kept_x(c, in), kept_dy(c, out)));
    }
    return SL_OK;
}

/* Adds the loss of microbatches FIRST to LAST to *SUM. */
static int add_loss(struct checker *c, int first, int last, double sign, double *sum) {
    for (int m = first; m <= last; m++) {
        const float *dy = c->weights + (size_t)m * c->outputs;
        SL_TRY(forward(c, m));
        sl_device.copy(c->seen, c->y, c->outputs * sizeof *c->seen);
        for (size_t i = 0; i < c->outputs; i++) *sum += sign * ((double)c->seen[i] * dy[i]);
    }
    return SL_OK;
}

/* The central difference, with respect to *VALUE, of the loss of microbatches FIRST to LAST. */
static int difference_by(struct checker *c, float *value, float step, int first, int last, double *derivative) {
    float center;
    sl_device.copy(&center, value, sizeof center);
    const float above = center + step, below = center - step;
    double difference = 0.0;
    sl_device.copy(value, &above, sizeof above);
    SL_TRY(add_loss(c, first, last, 1.0, &difference));
    sl_device.copy(value, &below, sizeof below);
    SL_TRY(add_loss(c, first, last, -1.0, &difference));
    sl_device.copy(value, &center, sizeof center);
    *derivative = difference / ((double)above - (double)below);
    return SL_OK;
}

/* Richardson's extrapolation: the errors of two steps cancel, up to the fourth power of the step. */
static int differentiate(struct checker *c, float *value, int first, int last, double *derivative) {
    double near, far;
    SL_TRY(difference_by(c, value, c->step, first, last, &near));
    SL_TRY(difference_by(c, value, 2.0f * c->step, first, last, &far));
    *derivative = (4.0 * near - far) / 3.0;
    return SL_OK;
}

/* ---- comparing ---- */

struct comparison {
    double error, norm; /* sums of squares */
    int count;
};

static void compare(struct comparison *comparison, double expected, double given) {
    comparison->error += (given - expected) * (given - expected);
    comparison->norm += expected * expected;
    comparison->count++;
}

/* Keeps a tensor's difference if it is the largest so far. The norm is at least that of elements of one hundredth each,
 * so that a gradient of zero can be compared, too. */
static void conclude(struct checker *c, const struct comparison *comparison, const char *name, const char *remark) {
    const double norm = fmax(sqrt(comparison->norm), 1e-2 * sqrt(comparison->count));
    const double difference = comparison->count ? sqrt(comparison->error) / norm : 0.0;
    if (difference <= c->difference) return;
    c->difference = isnan(difference) ? INFINITY : difference;
    snprintf(c->worst, sizeof c->worst, "%.70s%s", name, remark);
}

/* Index of sample I out of N elements. */
static size_t sampled(const struct checker *c, size_t n, size_t i) {
    return n <= SAMPLE ? i : sl_random_word(c->context.dropout.step_key, SAMPLE, (uint32_t)i) % n;
}

/* Compares GIVEN, on the host, with the differences by the N elements of VALUE. These belong to microbatches of N /
 * MICROBATCHES elements each or, if MICROBATCHES is 0, to all microbatches alike. */
static int check_tensor(struct checker *c, const char *name, size_t n, float *value, const float *given,
                        int microbatches) {
    struct comparison comparison = {0};
    for (size_t i = 0; i < n && i < SAMPLE; i++) {
        const size_t element = sampled(c, n, i);
        const int only = microbatches ? (int)(element / (n / (size_t)microbatches)) : 0;
        double expected;
        SL_TRY(differentiate(c, &value[element], only, microbatches ? only : c->microbatches - 1, &expected));
        compare(&comparison, expected, given[element]);
    }
    conclude(c, &comparison, name, "");
    return SL_OK;
}

/* Compares the results of W after an I with dx and an I without: they must be equal. */
static void check_without_dx(struct checker *c) {
    const float *with = c->with, *without = c->without;
    for (int i = 0; i < c->parameters.count; i++) {
        const struct sl_parameter *parameter = &c->parameters.list[i];
        struct comparison comparison = {0};
        for (size_t j = 0; j < parameter->count; j++) compare(&comparison, *with++, *without++);
        conclude(c, &comparison, parameter->name, " (without dx)");
    }
}

static int run(struct checker *c, struct sl_module *module, const struct sl_gradient_check *check,
               const struct sl_gemm_backend *gemm, struct sl_error *error) {
    const size_t inputs = (size_t)c->microbatches * c->inputs;
    const float *given = c->with;
    SL_TRY(gradients(c, NULL));
    copy_gradients(c, c->without);
    SL_TRY(gradients(c, c->dx));
    copy_gradients(c, c->with);
    check_without_dx(c);
    sl_device.copy(c->input_gradient, c->dx, inputs * sizeof(float));
    if (rounds(check)) SL_TRY(plan_as(c, module, check, gemm, SL_F32, SL_F32, error));
    SL_TRY(check_tensor(c, "dx", inputs, c->x, c->input_gradient, c->microbatches));
    for (int i = 0; i < c->parameters.count; i++) {
        const struct sl_parameter *parameter = &c->parameters.list[i];
        if (!parameter->frozen)
            SL_TRY(check_tensor(c, parameter->name, parameter->count, sl_parameter_value(&c->parameters, i), given, 0));
        given += parameter->count;
    }
    return SL_OK;
}

int sl_gradient_check(struct sl_module *module, const struct sl_gradient_check *check,
                      const struct sl_gemm_backend *gemm, double *difference, char *worst, struct sl_error *error) {
    struct checker *c = calloc(1, sizeof *c);
    if (!c) return sl_error_set(error, SL_FAILED, "no memory for a gradient check");
    c->difference = -1.0; /* so that the first tensor is named even if there is no difference */
    int status = open_checker(c, module, check, gemm, error);
    if (status == SL_OK && (status = run(c, module, check, gemm, error)) != SL_OK) {
        sl_fail(&c->self, status, "a function of module %s failed",
                module->type->name); /* unless it has set an error itself */
        sl_error_set(error, status, "gradient check: %s", c->self.error.message);
    }
    *difference = c->difference;
    if (worst) memcpy(worst, c->worst, sizeof c->worst);
    close_checker(c);
    free(c);
    return status;
}
