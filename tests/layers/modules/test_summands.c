/* test_summands.c - summands of residual connections, which inner modules may add in a pass of their own: the last
 * product in forward on devices, the first norm in backward. The sums equal those of a separate pass. Results have the
 * form that the caller needs, with and without summands. */
#include "tests/rigs/module_rig.h"

#include "layers/modules/kept.h"
#include "layers/modules/transformer_modules.h"

enum { COLUMNS = 24, INSIDE = 40 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};

static struct sl_module *norm(void) { return sl_rms_norm("norm", COLUMNS, &channels); }
static struct sl_module *layer_norm(void) { return sl_layer_norm("norm", COLUMNS); }
static struct sl_module *dense(void) { return sl_dense("dense", COLUMNS, COLUMNS); }
static struct sl_module *sharded(void) { return sl_sharded_dense("dense", COLUMNS, COLUMNS, 1, 1, &channels); }
static struct sl_module *gated(void) { return sl_gated_mlp("mlp", COLUMNS, INSIDE, true, &channels); }
static struct sl_module *dropout(void) { return sl_dropout(COLUMNS, 0.25); }

static struct sl_module *block(void) {
    struct sl_module *const part[] = {sl_layer_norm("norm", COLUMNS), sl_dense("up", COLUMNS, INSIDE), sl_silu(INSIDE),
                                      sl_dense("down", INSIDE, COLUMNS)};
    return sl_sequential("block", 4, part);
}
/* The ends do not add; products and norms within must not. */
static struct sl_module *closed(void) {
    struct sl_module *const part[] = {sl_dropout(COLUMNS, 0.25), sl_dense("up", COLUMNS, COLUMNS), norm(),
                                      sl_dropout(COLUMNS, 0.25)};
    return sl_sequential("closed", 4, part);
}

static const struct subject {
    struct sl_module *(*make)(void);
    bool in_forward, in_backward; /* whether the module adds; products do if the build's do */
} subjects[] = {{norm, false, true},  {layer_norm, false, true}, {dense, true, false},    {sharded, true, false},
                {gated, true, false}, {block, true, true},       {dropout, false, false}, {closed, false, false}};

/* Forward and backward of one microbatch, each with a summand; BEHIND: without, and it is added in a pass behind them.
 */
static void run(struct rig *rig, const struct subject *subject, enum sl_dtype precision, bool behind) {
    open_rig_in(rig, precision, subject->make(), ROWS, 1, 1);
    const bool in_forward = subject->in_forward && sl_gemm_adds(sl_gemm_find(NULL, NULL));
    const struct sl_given x = sl_given_f32(rig->x), dy = sl_given_f32(rig->dy), none = sl_given_f32(NULL);
    struct sl_result y = {.floats = rig->y, .adds = behind ? none : x};
    assert_int_equal(sl_module_forward(rig->module, &rig->context, x, &y), SL_OK);
    assert_true((y.made != SL_ASKED) == (in_forward && !behind));
    if (y.made == SL_ASKED) rig->context.kernels->add(rig->outputs, rig->x, rig->y);
    struct sl_result dx = {.floats = rig->dx, .adds = behind ? none : dy};
    assert_int_equal(sl_module_backward_input(rig->module, &rig->context, x, dy, &dx), SL_OK);
    assert_true((dx.made != SL_ASKED) == (subject->in_backward && !behind));
    if (dx.made == SL_ASKED) rig->context.kernels->add(rig->inputs, rig->dy, rig->dx);
    sl_device.settle(NULL);
}

static void sums_are_those_of_a_pass_behind(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        for (int d = 0; d < 2; d++) {
            struct rig rig, plain;
            run(&rig, &subjects[s], d ? SL_BF16 : SL_F32, false);
            run(&plain, &subjects[s], d ? SL_BF16 : SL_F32, true);
            for (size_t i = 0; i < rig.outputs; i++) expect_close("y", i, rig.y[i], plain.y[i], 2e-6, 2e-6);
            for (size_t i = 0; i < rig.inputs; i++) expect_close("dx", i, rig.dx[i], plain.dx[i], 2e-6, 2e-6);
            close_rig(&rig);
            close_rig(&plain);
        }
    }
}

/* On devices a residual connection passes its summands to the inner module; the sums equal those of the module and a
 * separate pass. */
static void residuals_add_once(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        struct rig rig, plain;
        open_rig(&rig, sl_residual(subjects[s].make()), ROWS, 1, 1);
        forward(&rig);
        backward(&rig);
        run(&plain, &subjects[s], SL_F32, true);
        for (size_t i = 0; i < rig.outputs; i++) expect_close("y", i, rig.y[i], plain.y[i], 2e-6, 2e-6);
        for (size_t i = 0; i < rig.inputs; i++) expect_close("dx", i, rig.dx[i], plain.dx[i], 2e-6, 2e-6);
        if (!sl_gemm_find(NULL, NULL)->on_device) {
            assert_memory_equal(rig.y, plain.y, rig.outputs * sizeof *rig.y);
            assert_memory_equal(rig.dx, plain.dx, rig.inputs * sizeof *rig.dx);
        }
        close_rig(&rig);
        close_rig(&plain);
    }
}

/* Y [n] as its caller receives it: this adds the summand and writes the form, unless the module has. */
static void complete(const struct rig *rig, size_t n, struct sl_result *y) {
    if (sl_given_exists(y->adds) && y->made == SL_ASKED) sl_add_result(&rig->context, n, y->adds.floats, y);
    if (y->made != SL_MADE && y->form != SL_WHOLE) sl_module_finish(&rig->context, n, y);
    sl_device.settle(NULL);
}

/* Y [n] has its form of the values PLAIN; on devices a product may have summed in another order, and one that leaves
 * bf16 alone reads a rounded bias. */
static void expect_form(const char *what, size_t n, const struct sl_result *y, const float *plain) {
    const double off = sl_gemm_find(NULL, NULL)->on_device ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const float rounded = sl_float_of_bf16(sl_bf16_of_float(plain[i]));
        if (y->form == SL_WHOLE || y->form == SL_BESIDE)
            expect_close(what, i, y->floats[i], plain[i], off * 2e-6, off * 2e-6);
        if (y->halves) expect_close(what, i, sl_float_of_bf16(y->halves[i]), rounded, off * 0x1p-7, off * 0x1p-7);
    }
}

/* Y and dx of SUBJECT's two calls, with or without summands, in FORM. */
static void check_form(const struct subject *subject, enum sl_dtype precision, bool adds, enum sl_form form) {
    static const char *const names[] = {"whole", "rounded", "alone", "beside"};
    struct rig rig, plain;
    char what[64];
    open_rig_in(&plain, precision, subject->make(), ROWS, 1, 1);
    forward(&plain);
    backward(&plain);
    if (adds) plain.context.kernels->add(plain.outputs, plain.x, plain.y);
    if (adds) plain.context.kernels->add(plain.inputs, plain.dy, plain.dx);
    open_rig_in(&rig, precision, subject->make(), ROWS, 1, 1);
    const struct sl_given x = sl_given_f32(rig.x), dy = sl_given_f32(rig.dy), none = sl_given_f32(NULL);
    const size_t most = rig.inputs > rig.outputs ? rig.inputs : rig.outputs;
    uint16_t *const halves = form == SL_WHOLE ? NULL : device_array(most, sizeof *halves);
    struct sl_result y = {.floats = rig.y, .halves = halves, .form = form, .adds = adds ? x : none};
    assert_int_equal(sl_module_forward(rig.module, &rig.context, x, &y), SL_OK);
    complete(&rig, rig.outputs, &y);
    snprintf(what, sizeof what, "y of subject %d, %s", (int)(subject - subjects), names[form]);
    expect_form(what, rig.outputs, &y, plain.y);
    if (halves) memset(halves, 0, most * sizeof *halves);
    struct sl_result dx = {.floats = rig.dx, .halves = halves, .form = form, .adds = adds ? dy : none};
    assert_int_equal(sl_module_backward_input(rig.module, &rig.context, x, dy, &dx), SL_OK);
    complete(&rig, rig.inputs, &dx);
    snprintf(what, sizeof what, "dx of subject %d, %s", (int)(subject - subjects), names[form]);
    expect_form(what, rig.inputs, &dx, plain.dx);
    if (halves) release_array(halves);
    close_rig(&rig);
    close_rig(&plain);
}

/* If the storage is float32, no caller asks for rounded floats. */
static void results_have_the_form_asked_for(void **state) {
    static const enum sl_form forms[] = {SL_WHOLE, SL_ALONE, SL_BESIDE};
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (int precision = SL_F32; precision <= SL_BF16; precision++)
            for (int adds = 0; adds < 2; adds++)
                for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
                    check_form(&subjects[s], (enum sl_dtype)precision, adds, forms[f]);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_a_pass_behind),
                                       cmocka_unit_test(residuals_add_once),
                                       cmocka_unit_test(results_have_the_form_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
