/* not_finite.c - calls modules and checks their results. */
#include "layers/modules/not_finite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "layers/modules/kept.h"
#include "spmd/device/device.h"

enum { VALUES, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, NOTHING };

/* ---- arrays ---- */

/* Statistics of an array. */
struct seen {
    size_t count, lost; /* elements, and how many of them are not finite */
    size_t at;          /* index of the first of these */
    double value;       /* its value */
    double largest;     /* largest magnitude of the finite elements */
};

/* Adds COUNT elements at FROM; the array's earlier elements have been added before. NULL: no elements. */
static void look(struct seen *seen, enum sl_dtype dtype, const void *from, size_t count) {
    enum { PART = 1024 };
    float part[PART]; /* on the host */
    const size_t size = sl_dtype_size(dtype);
    for (size_t first = 0; from && first < count; first += PART) {
        const size_t here = count - first < PART ? count - first : PART;
        sl_device.copy(part, (const char *)from + first * size, here * size);
        for (size_t i = 0; i < here; i++) {
            const double value = sl_load_float(dtype, part, i);
            if (isfinite(value))
                seen->largest = fmax(seen->largest, fabs(value));
            else if (seen->lost++ == 0)
                seen->at = first + i, seen->value = value;
        }
    }
    if (from) seen->count += count;
}

static struct seen look_at(enum sl_dtype dtype, const void *from, size_t count) {
    struct seen seen = {0};
    look(&seen, dtype, from, count);
    return seen;
}

/* Number of values at the address of parameter I. */
static size_t held(const struct sl_parameters *parameters, int i) {
    const size_t members = sl_parameter_is_whole(parameters, i) ? (size_t)parameters->members : 1;
    return parameters->list[i].count * members;
}

/* Statistics of all values of MODULE's parameters; AT is meaningless. */
static struct seen look_at_values(const struct sl_module *module, const struct sl_context *context) {
    struct seen seen = {0};
    for (int i = 0; i < module->parameters; i++)
        look(&seen, SL_F32, sl_value(module, context, i), held(context->parameters, module->parameter[i]));
    return seen;
}

/* ---- notes ---- */

static bool comes_before(const struct sl_not_finite_order *a, const struct sl_not_finite_order *b) {
    if (a->phase != b->phase) return a->phase < b->phase;
    if (a->pass != b->pass) return a->pass < b->pass;
    if (a->microbatch != b->microbatch) return a->microbatch < b->microbatch;
    return a->stage < b->stage;
}

static struct sl_not_finite *found_of(const struct sl_context *context) {
    return (struct sl_not_finite *)context->inspector;
}

/* Name of a microbatch of modules. With leaves of sequences, it is a block (spmd/cut.h). */
static const char *name_of(const struct sl_context *context) { return context->cut.leaves ? "block" : "microbatch"; }

/* "blocks.0.input_dense (dense), stage 0, microbatch 3"; returns TEXT. */
static const char *describe(const struct sl_context *context, const struct sl_module *module, int microbatch,
                            char text[SL_NOT_FINITE_TEXT]) {
    const struct sl_not_finite *found = found_of(context);
    const bool named = *found->path;
    int used = snprintf(text, SL_NOT_FINITE_TEXT, "%s%s%s%s, stage %d, %s %d", found->path, named ? " (" : "",
                        module->type->name, named ? ")" : "", found->self->doing.stage, name_of(context), microbatch);
    if (found->pass > 0) snprintf(text + used, SL_NOT_FINITE_TEXT - (size_t)used, " of pass %d", found->pass);
    return text;
}

/* Appends to the text, as far as there is room. */
SL_PRINTF(2, 3) static void add(struct sl_not_finite *found, const char *format, ...) {
    const size_t used = strlen(found->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found->text + used, sizeof found->text - used, format, arguments);
    va_end(arguments);
}

/* Appends the number of elements that are not finite, and the size of the others, for arrays. */
static void add_count(struct sl_not_finite *found, const struct seen *seen) {
    if (seen->count < 2) return;
    add(found, " (%zu of %zu are not finite", seen->lost, seen->count);
    if (seen->lost < seen->count) add(found, ", the others %.3g at most", seen->largest);
    add(found, ")");
}

/* Notes that WHAT is not finite. SEEN are its statistics, GIVEN the statistics of its input, and VALUES of the
 * parameters. */
static void note(struct sl_not_finite *found, const struct sl_not_finite_order *order, const char *what,
                 const struct seen *seen, int columns, const struct seen *given, const struct seen *values) {
    const struct sl_spmd *self = found->self;
    char who[200];
    if (!comes_before(order, &found->order)) return;
    found->order = *order;
    sl_mesh_describe(self->mesh, self->coordinate, who, sizeof who);
    snprintf(found->text, sizeof found->text, "%.300s, at coordinate %.150s: ", what, who);
    if (columns > 0)
        add(found, "row %zu, column %zu is %g", seen->at / (size_t)columns, seen->at % (size_t)columns, seen->value);
    else
        add(found, "element %zu is %g", seen->at, seen->value);
    add_count(found, seen);
    if (given && given->lost) {
        add(found, "; it was given %g, element %zu", given->value, given->at);
        add_count(found, given);
    } else if (given) {
        add(found, "; it was given %.3g at most", given->largest);
    }
    if (values) add(found, ", and its parameters are %.3g at most", values->largest);
}

/* ---- modules ---- */

/* Appends MODULE's name to the path; returns the previous length of the path. */
static size_t enter(struct sl_not_finite *found, const struct sl_module *module) {
    const size_t length = strlen(found->path);
    if (*module->name)
        snprintf(found->path + length, sizeof found->path - length, "%s%s", length ? "." : "", module->name);
    return length;
}

/* Checks WRITTEN [rows, columns], the y or dx of a module with this USE: its bf16 copy if only this is written. GIVEN
 * is the module's input. */
static void look_at_rows(const struct sl_module *module, const struct sl_context *context, int phase, int columns,
                         const struct sl_use *use, const struct sl_result *written, struct sl_given given,
                         int given_columns) {
    struct sl_not_finite *found = found_of(context);
    const size_t count = (size_t)context->rows * (size_t)columns;
    const struct sl_rows rows =
        use->writes == SL_WRITES_FLOATS ? sl_rows_f32(written->floats) : sl_result_rows(written);
    const struct seen seen = look_at(rows.type, rows.at, count);
    if (!seen.lost) return;
    const int microbatch_rows = context->rows / (int)sl_call_microbatches(context), stage = found->self->doing.stage;
    const int microbatch = context->microbatch + (int)(seen.at / (size_t)columns) / microbatch_rows;
    const struct sl_not_finite_order order = {phase, found->pass, microbatch, phase == FORWARD ? stage : -stage};
    const struct sl_rows taken = given.halves ? sl_rows_bf16(given.halves) : sl_rows_f32(given.floats);
    const struct seen from = look_at(taken.type, taken.at, (size_t)context->rows * (size_t)given_columns);
    const struct seen values = look_at_values(module, context);
    char name[SL_NOT_FINITE_TEXT], what[SL_NOT_FINITE_TEXT + 40];
    snprintf(what, sizeof what, "%s of %s", phase == FORWARD ? "the result" : "the input's gradient",
             describe(context, module, microbatch, name));
    note(found, &order, what, &seen, columns, taken.at ? &from : NULL, module->parameters ? &values : NULL);
}

/* Checks the sum of the losses so far, after a loss has added to it. */
static void look_at_loss(const struct sl_module *module, const struct sl_context *context) {
    struct sl_not_finite *found = found_of(context);
    struct sl_metrics metrics = *context->metrics;
    if (context->sums) sl_sums_read(context->sums, &metrics);
    if (isfinite(metrics.loss)) return;
    const struct sl_not_finite_order order = {FORWARD, found->pass, context->microbatch, found->self->doing.stage};
    const struct seen seen = {.count = 1, .lost = 1, .value = metrics.loss};
    char name[SL_NOT_FINITE_TEXT], what[SL_NOT_FINITE_TEXT + 40];
    snprintf(what, sizeof what, "the loss of %s", describe(context, module, context->microbatch, name));
    note(found, &order, what, &seen, 0, NULL, NULL);
}

/* Checks the parameters' gradients so far, except sharded ones, whose sums may be unfinished. */
static void look_at_gradients(const struct sl_module *module, const struct sl_context *context) {
    struct sl_not_finite *found = found_of(context);
    for (int i = 0; i < module->parameters; i++) {
        const struct sl_parameter *parameter = &context->parameters->list[module->parameter[i]];
        if (parameter->frozen || sl_range_is_sharded(context->parameters, parameter->range)) continue;
        const struct seen seen = look_at(SL_F32, sl_gradient(module, context, i), parameter->count);
        if (!seen.lost) continue;
        const struct sl_not_finite_order order = {WEIGHT_GRADIENT, found->pass, context->microbatch, 0};
        char what[SL_NOT_FINITE_TEXT];
        snprintf(what, sizeof what, "the gradient of %s, stage %d, %ss up to %d", parameter->name,
                 found->self->doing.stage, name_of(context), context->microbatch + context->wgrad_group - 1);
        note(found, &order, what, &seen, 0, NULL, NULL);
    }
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    struct sl_not_finite *found = found_of(context);
    const size_t length = enter(found, module);
    const int status = sl_module_forward_plain(module, context, x, y);
    if (status == SL_OK && !context->unread)
        look_at_rows(module, context, FORWARD, module->out, &module->y, y, x, module->in);
    if (status == SL_OK && !module->type->backward_input) look_at_loss(module, context);
    found->path[length] = 0;
    return status;
}

/* Whether the functions below will be called again with floats: for a type that does not store. */
static bool comes_again(const struct sl_module *module, const struct sl_context *context) {
    return context->storage != SL_F32 && !module->type->stores;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    struct sl_not_finite *found = found_of(context);
    if (comes_again(module, context)) return sl_module_backward_input_plain(module, context, x, dy, dx);
    const size_t length = enter(found, module);
    const int status = sl_module_backward_input_plain(module, context, x, dy, dx);
    if (status == SL_OK && dx && !module->x_stride) /* else dx is some columns of the parent's rows, and the parent
                                                       checks all of them */
        look_at_rows(module, context, INPUT_GRADIENT, module->in, &module->x, dx,
                     dx->floats == dy.floats ? sl_given_f32(NULL) : dy, module->out);
    if (status == SL_OK && module->weights_follow) look_at_gradients(module, context);
    found->path[length] = 0;
    return status;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    struct sl_not_finite *found = found_of(context);
    if (comes_again(module, context)) return sl_module_backward_weight_plain(module, context, x, dy);
    const size_t length = enter(found, module);
    const int status = sl_module_backward_weight_plain(module, context, x, dy);
    if (status == SL_OK && !module->weights_follow) look_at_gradients(module, context);
    found->path[length] = 0;
    return status;
}

/* ---- the step ---- */

void sl_not_finite_begin(struct sl_not_finite *found, struct sl_spmd *self) {
    *found = (struct sl_not_finite){
        .inspector = {forward, backward_input, backward_weight}, .self = self, .order = {.phase = NOTHING}};
}

void sl_not_finite_values(struct sl_not_finite *found, const struct sl_parameters *parameters) {
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const struct seen seen = look_at(SL_F32, sl_parameter_value(parameters, i), held(parameters, i));
        const struct sl_not_finite_order order = {.phase = VALUES};
        char what[SL_NOT_FINITE_TEXT];
        if (!seen.lost) continue;
        snprintf(what, sizeof what, "the values of %s before the step", parameter->name);
        note(found, &order, what, &seen, 0, NULL, NULL);
    }
}

/* The text is sent as integers in a sum, to which all other coordinates add zeros. */
int sl_not_finite_agree(struct sl_not_finite *found, const struct sl_group *world, char text[SL_NOT_FINITE_TEXT]) {
    enum { WORDS = SL_NOT_FINITE_TEXT / sizeof(int32_t), ORDER = sizeof found->order / sizeof(int32_t) };
    struct sl_not_finite_order all[world->size];
    int32_t words[WORDS] = {0};
    int first = 0;
    SL_TRY(sl_all_gather(found->self, world, SL_I32, &found->order, all, ORDER));
    for (int i = 1; i < world->size; i++)
        if (comes_before(&all[i], &all[first])) first = i;
    if (first == world->rank) memcpy(words, found->text, sizeof words);
    SL_TRY(sl_psum(found->self, world, SL_I32, words, words, WORDS));
    memcpy(text, words, sizeof words);
    if (all[first].phase == NOTHING) strcpy(text, "none, when the step was taken again");
    return SL_OK;
}
