/* test_stored_stream.c - the stream between residual connections with bf16 storage: modules that report to read only
 * bf16 read no floats, and their results in bf16 only equal their float results, rounded. On devices with products that
 * write bf16, no pass rounds. With float storage, a gradient's bf16 operand is written beside its floats. */
#include "tests/rigs/module_rig.h"

#include <math.h>
#include <stdio.h>

#include "layers/modules/kept.h"
#include "layers/modules/transformer_modules.h"

enum { COLUMNS = 24, INSIDE = 40, STREAM = ROWS * COLUMNS };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};

static bool gates; /* gates read floats */

static struct sl_module *norm(const char *name) { return sl_rms_norm(name, COLUMNS, &channels); }
static struct sl_module *block(const char *name) {
    struct sl_module *const part[] = {norm("norm"), sl_sharded_product("up", COLUMNS, INSIDE, &channels),
                                      sl_gelu(INSIDE), sl_sharded_product("down", INSIDE, COLUMNS, &channels)};
    return sl_residual(sl_sequential(name, 4, part));
}
static struct sl_module *gated(const char *name) {
    gates = true;
    struct sl_module *const part[] = {norm("norm"), sl_gated_mlp("mlp", COLUMNS, INSIDE, false, &channels)};
    return sl_residual(sl_sequential(name, 2, part));
}
/* The looping pipeline's. */
static struct sl_module *silu_block(const char *name) {
    struct sl_module *const part[] = {sl_layer_norm("norm", COLUMNS), sl_dense("up", COLUMNS, INSIDE),
                                      sl_silu_dropout(INSIDE, 0.25), sl_dense("down", INSIDE, COLUMNS)};
    return sl_residual(sl_sequential(name, 4, part));
}
static struct sl_module *dropping(void) { return silu_block("block"); }
static struct sl_module *droppings(void) {
    return sl_sequential(
        "", 3, (struct sl_module *[]){silu_block("first"), silu_block("second"), sl_layer_norm("last", COLUMNS)});
}
static struct sl_module *alone(void) { return norm("norm"); }
static struct sl_module *one(void) { return block("block"); }
static struct sl_module *blocks(void) {
    return sl_sequential("", 3, (struct sl_module *[]){block("first"), block("second"), block("third")});
}
static struct sl_module *between(void) {
    return sl_sequential("", 3, (struct sl_module *[]){block("first"), gated("second"), norm("last")});
}

static struct sl_module *(*const subjects[])(void) = {alone, one, blocks, between, dropping, droppings};

static const struct sl_kernels *own;
static int passes; /* over arrays as large as the stream, or as the ones between products without a gate between them */

static bool is_seen(size_t n) { return n == STREAM || (n == ROWS * INSIDE && !gates); }

static void see_settle(size_t n, float *x, uint16_t *y) {
    passes += is_seen(n);
    own->settle_bf16(n, x, y);
}
static void see_round(size_t n, const float *x, uint16_t *y) {
    passes += is_seen(n);
    own->round_bf16(n, x, y);
}
static void see_widen(size_t n, const uint16_t *x, float *y) {
    passes += is_seen(n);
    own->widen_bf16(n, x, y);
}
static void see_add_settled(size_t n, const float *x, float *y, uint16_t *stored) {
    passes += is_seen(n);
    own->add_settled(n, x, y, stored);
}

static struct sl_kernels kernels_that_count(void) {
    struct sl_kernels kernels = *sl_kernels_select();
    own = sl_kernels_select();
    passes = 0;
    kernels.settle_bf16 = see_settle;
    kernels.round_bf16 = see_round;
    kernels.widen_bf16 = see_widen;
    kernels.add_settled = see_add_settled;
    return kernels;
}

static bool leaves_bf16(void) {
    return sl_gemm_leaves_bf16(sl_gemm_find(NULL, NULL)) && sl_kernels_select()->whole_norms;
}

/* A call's x or dy, as floats and as bf16, and the targets of its result. */
struct ends {
    float *read, *written;
    uint16_t *stored, *left;
};

/* Prepares a call, and returns its input. STORED: the input is bf16, without floats if UNREAD; RESULT requests bf16
 * only. */
static struct sl_given give(const struct ends *ends, bool stored, bool unread, struct sl_result *result) {
    *result = (struct sl_result){.floats = ends->written};
    if (stored) result->halves = ends->left, result->form = SL_ALONE;
    for (size_t i = 0; i < STREAM; i++) ends->written[i] = NAN;
    for (size_t i = 0; i < STREAM; i++) ends->left[i] = 0x7fff;
    if (!stored) return sl_given_f32(ends->read);
    return unread ? sl_given_bf16(ends->stored) : (struct sl_given){ends->read, ends->stored, SL_ROUNDED};
}

/* Expects the result to be FLOATS or, if it is bf16, these rounded. */
static void expect(const char *what, const struct ends *ends, const struct sl_result *result, const float *floats) {
    for (size_t i = 0; i < STREAM; i++) {
        const uint16_t rounded = sl_bf16_of_float(floats[i]);
        if (result->made == SL_MADE ? ends->left[i] != rounded : ends->written[i] != floats[i])
            fail_msg("%s %zu: %g in place of %g", what, i,
                     (double)(result->made == SL_MADE ? sl_float_of_bf16(ends->left[i]) : ends->written[i]),
                     (double)floats[i]);
    }
}

/* Rounds biases, because products with bf16 results read them as bf16. */
static void round_parameters(struct rig *rig) {
    for (int i = 0; i < rig->parameters.count; i++)
        release_array(settle(sl_parameter_value(&rig->parameters, i), rig->parameters.list[i].count));
    sl_parameters_round(&rig->parameters, rig->context.kernels, 0);
}

/* Runs a forward and an I of MODULE, which it frees, and saves Y and DX; STORED: runs them on bf16 inputs, and compares
 * with Y and DX. */
static void run(struct sl_module *module, bool stored, float *y, float *dx) {
    struct rig rig;
    struct sl_result result;
    const struct sl_plan like = {
        .precision = SL_BF16, .storage = SL_BF16, .rows = ROWS, .wgrad_group = 1, .has_dx = true};
    const struct sl_kernels kernels = kernels_that_count();
    open_rig_like(&rig, &like, module, 1);
    round_parameters(&rig);
    const struct ends forth = {rig.x, rig.y, settle(rig.x, STREAM), device_array(STREAM, sizeof(uint16_t))};
    const struct ends back = {rig.dy, rig.dx, settle(rig.dy, STREAM), device_array(STREAM, sizeof(uint16_t))};
    rig.context.kernels = &kernels;
    rig.context.storage = SL_BF16;
    if (leaves_bf16()) assert_true(sl_reads_copy(&rig.module->x) && sl_reads_copy(&rig.module->y));
    struct sl_given x = give(&forth, stored, sl_reads_copy(&rig.module->x), &result);
    assert_int_equal(sl_module_forward(rig.module, &rig.context, x, &result), SL_OK);
    sl_device.settle(NULL);
    if (stored)
        expect("y", &forth, &result, y);
    else
        memcpy(y, rig.y, STREAM * sizeof *y);
    if (stored && leaves_bf16()) assert_true(result.made == SL_MADE);
    struct sl_given dy = give(&back, stored, sl_reads_copy(&rig.module->y), &result);
    x = sl_given_bf16(forth.stored);
    assert_int_equal(sl_module_backward_input(rig.module, &rig.context, x, dy, &result), SL_OK);
    sl_device.settle(NULL);
    if (stored)
        expect("dx", &back, &result, dx);
    else
        memcpy(dx, rig.dx, STREAM * sizeof *dx);
    if (stored && leaves_bf16()) {
        assert_true(result.made == SL_MADE);
        assert_int_equal(passes, 0);
    }
    void *const arrays[] = {forth.stored, forth.left, back.stored, back.left};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    close_rig(&rig);
}

static void the_stream_is_read_and_left_as_it_is_stored(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        float y[STREAM], dx[STREAM];
        gates = false;
        run(subjects[s](), false, y, dx);
        run(subjects[s](), true, y, dx);
    }
}

/* The last block's dy is rounded for its product; the dy of earlier blocks by the norms behind them. */
static void operands_of_gradients_are_left_beside_floats(void **state) {
    (void)state;
    struct rig rig;
    const struct sl_plan like = {.precision = SL_BF16, .rows = ROWS, .wgrad_group = 1, .has_dx = true};
    const struct sl_kernels kernels = kernels_that_count();
    if (!leaves_bf16()) {
        printf("# SKIP only products of GPUs leave bf16 beside floats\n");
        skip();
    }
    open_rig_like(&rig, &like, blocks(), 1);
    rig.context.kernels = &kernels;
    const struct sl_given x = sl_given_f32(rig.x), dy = sl_given_f32(rig.dy);
    assert_int_equal(sl_module_forward(rig.module, &rig.context, x, SL_INTO(rig.y)), SL_OK);
    passes = 0;
    assert_int_equal(sl_module_backward_input(rig.module, &rig.context, x, dy, SL_INTO(rig.dx)), SL_OK);
    sl_device.settle(NULL);
    assert_int_equal(passes, 1);
    close_rig(&rig);
}

/* Returns the gradients of MODULE, which it frees, after an I with or without dx. */
static float *gradients_of(struct sl_module *module, bool wants_dx, size_t *count) {
    struct rig rig;
    const struct sl_plan like = {
        .precision = SL_BF16, .storage = SL_BF16, .rows = ROWS, .wgrad_group = 1, .has_dx = true};
    open_rig_like(&rig, &like, module, 1);
    round_parameters(&rig);
    rig.context.storage = SL_BF16;
    void *const x = settle(rig.x, STREAM), *const dy = settle(rig.dy, STREAM);
    float *gradients, *at;
    *count = 0;
    for (int i = 0; i < rig.parameters.count; i++) *count += rig.parameters.list[i].count;
    assert_non_null(gradients = at = malloc(*count * sizeof *gradients));
    const struct sl_given saved = sl_given_bf16(x), given = sl_given_f32(rig.dy);
    assert_int_equal(sl_module_forward(rig.module, &rig.context, sl_given_f32(rig.x), SL_INTO(rig.y)), SL_OK);
    assert_int_equal(
        sl_module_backward_input(rig.module, &rig.context, saved, given, wants_dx ? SL_INTO(rig.dx) : NULL), SL_OK);
    assert_int_equal(sl_module_backward_weight(rig.module, &rig.context, saved, sl_given_bf16(dy)), SL_OK);
    sl_device.settle(NULL);
    for (int i = 0; i < rig.parameters.count; at += rig.parameters.list[i++].count)
        memcpy(at, sl_parameter_gradient(&rig.parameters, i), rig.parameters.list[i].count * sizeof *at);
    release_array(x);
    release_array(dy);
    close_rig(&rig);
    return gradients;
}

/* If a norm's dx is not wanted, its sums are computed from a dy in bf16 only, too. */
static void gradients_need_no_dx(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        size_t count;
        float *with = gradients_of(subjects[s](), true, &count), *without = gradients_of(subjects[s](), false, &count);
        for (size_t i = 0; i < count; i++)
            if (!(fabsf(with[i] - without[i]) <= 1e-5f * (1 + fabsf(with[i]))))
                fail_msg("subject %zu, gradient %zu: %g without dx, %g with", s, i, (double)without[i],
                         (double)with[i]);
        free(with);
        free(without);
    }
}

/* Products read attention's result as attention has left it, and leave their own as it is requested, also if there is
 * no backward. */
static void attention_needs_no_pass(void **state) {
    (void)state;
    for (int latent = 0; latent < 2; latent++) {
        const struct sl_mla narrow = {.dimension = COLUMNS, .heads = 3, .latent = 10, .positions = ROWS};
        const struct sl_gqa groups = {.dimension = COLUMNS, .heads = 6, .key_heads = 2, .width = 4, .positions = ROWS};
        struct rig rig;
        struct sl_result result;
        const struct sl_plan like = {.precision = SL_BF16,
                                     .storage = SL_BF16,
                                     .rows = ROWS,
                                     .sequence = ROWS,
                                     .wgrad_group = 1,
                                     .forward_only = true};
        const struct sl_kernels kernels = kernels_that_count();
        open_rig_like(&rig, &like, latent ? sl_mla("mla", &narrow, &channels) : sl_gqa("gqa", &groups, &channels), 1);
        rig.context.kernels = &kernels;
        rig.context.storage = SL_BF16;
        const struct ends ends = {rig.x, rig.y, settle(rig.x, STREAM), device_array(STREAM, sizeof(uint16_t))};
        const struct sl_given x = give(&ends, true, sl_reads_copy(&rig.module->x), &result);
        assert_int_equal(sl_module_forward(rig.module, &rig.context, x, &result), SL_OK);
        sl_device.settle(NULL);
        assert_true(result.made == SL_MADE);
        if (sl_gemm_settles(sl_gemm_find(NULL, NULL))) assert_int_equal(passes, 0); /* others leave queries unrounded */
        release_array(ends.stored);
        release_array(ends.left);
        close_rig(&rig);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_stream_is_read_and_left_as_it_is_stored),
                                       cmocka_unit_test(operands_of_gradients_are_left_beside_floats),
                                       cmocka_unit_test(gradients_need_no_dx),
                                       cmocka_unit_test(attention_needs_no_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
