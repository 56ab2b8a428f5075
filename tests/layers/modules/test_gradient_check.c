/* test_gradient_check.c - the gradient checker finds faults: a module y = x * scale, plus the row before in sequences,
 * with backward functions that can be made faulty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "layers/modules/gradient_check.h"
#include "layers/modules/transformer_modules.h"

enum fault {
    NONE,
    DX_TOO_LARGE,    /* by one per cent */
    DX_INCOMPLETE,   /* a column is never written */
    W_FORGETS_ROW,   /* the last of the group */
    W_ADDS_ALWAYS,   /* even if it should overwrite */
    W_NEVER_ADDS,    /* even if it should add */
    W_NEEDS_DX,      /* does not write the stash if dx is not wanted */
    KEEPS_WORKSPACE, /* expects forward's x in the workspace again */
    DX_CROSSES,      /* a sequence's gradient goes to the one before */
    FAILS,           /* forward returns a status */
    TOUCHES_NULL,    /* does not check whether dx is wanted */
    FAULTS
};

struct scaled {
    struct sl_module module;
    enum fault fault;
    int sequence;
    struct sl_place product; /* x dy */
    struct sl_place seen;    /* forward's x, in the workspace */
};

static const struct scaled *own(const struct sl_module *module) { return (const struct scaled *)module; }

/* In sequences its parameter is a tied one. */
static int plan_scaled(struct sl_module *module, struct sl_plan *plan) {
    struct scaled *self = (struct scaled *)module;
    const size_t cols = (size_t)module->in, count = (size_t)plan->rows * cols;
    self->sequence = plan->sequence;
    module->y.lasts = SL_UNTIL_RETURN; /* I saves W's inputs */
    SL_TRY(sl_plan_array(plan, count, SL_UNTIL_WEIGHT, &self->product));
    SL_TRY(sl_plan_array(plan, count, SL_UNTIL_RETURN, &self->seen));
    return (plan->sequence ? sl_plan_parameter_tied : sl_plan_parameter)(plan, "scale", SL_INIT_ONES, 0.0f, 1, &cols);
}

static bool has_row_before(const struct sl_context *context, int row) {
    return context->sequence && row % context->sequence;
}

static int scaled_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                          struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const int cols = module->in, n = context->rows * cols;
    const float *scale = sl_value(module, context, 0);
    assert_int_equal(context->sequence, own(module)->sequence);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale[i % cols] + (has_row_before(context, i / cols) ? x[i - cols] : 0);
    memcpy(sl_at(context, &own(module)->seen), x, (size_t)n * sizeof *x);
    return own(module)->fault == FAILS ? SL_FAILED : SL_OK;
}

/* Undefined behaviour is the check's to find. */
__attribute__((no_sanitize("undefined"))) static int scaled_backward_input(const struct sl_module *module,
                                                                           struct sl_context *context,
                                                                           struct sl_given saved, struct sl_given given,
                                                                           struct sl_result *result) {
    const float *x = saved.floats, *dy = given.floats;
    float *dx = sl_result_floats(result);
    const int cols = module->in, n = context->rows * cols;
    const float *scale = sl_value(module, context, 0);
    float *product = sl_at(context, &own(module)->product);
    if (own(module)->fault == KEEPS_WORKSPACE) x = sl_at(context, &own(module)->seen);
    for (int i = 0; i < n; i++) {
        if (dx || own(module)->fault != W_NEEDS_DX) product[i] = x[i] * dy[i];
        if ((!dx && own(module)->fault != TOUCHES_NULL) ||
            (own(module)->fault == DX_INCOMPLETE && i % cols == cols - 1))
            continue;
        dx[i] = dy[i] * scale[i % cols] * (own(module)->fault == DX_TOO_LARGE ? 1.01f : 1.0f);
        const int next = i + cols;
        if (next >= n || !context->sequence) continue;
        if (has_row_before(context, next / cols) || own(module)->fault == DX_CROSSES) dx[i] += dy[next];
    }
    return SL_OK;
}

static int scaled_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy) {
    assert_non_null(x.floats);
    assert_null(dy.floats); /* not asked for */
    const int cols = module->in, rows = context->rows * context->wgrad_group - (own(module)->fault == W_FORGETS_ROW);
    const bool accumulate =
        own(module)->fault == W_ADDS_ALWAYS || (context->accumulate && own(module)->fault != W_NEVER_ADDS);
    const float *product = sl_at(context, &own(module)->product);
    float *gradient = sl_gradient(module, context, 0);
    for (int c = 0; c < cols; c++) {
        float sum = accumulate ? gradient[c] : 0.0f;
        for (int r = 0; r < rows; r++) sum += product[r * cols + c];
        gradient[c] = sum;
    }
    return SL_OK;
}

static const struct sl_module_type scaled = {.name = "scaled",
                                             .plan = plan_scaled,
                                             .forward = scaled_forward,
                                             .backward_input = scaled_backward_input,
                                             .backward_weight = scaled_backward_weight,
                                             .bytes = sizeof(struct scaled)};

static struct sl_module *make_scaled(enum fault fault) {
    struct sl_module *module = sl_module_new(&scaled, "scaled", 6, 6);
    assert_non_null(module);
    ((struct scaled *)module)->fault = fault;
    return module;
}

static void test_checker_catches_faults(void **state) {
    (void)state;
    static const char *const worst_of[FAULTS] = {
        [DX_TOO_LARGE] = "dx",
        [DX_INCOMPLETE] = "dx",
        [W_FORGETS_ROW] = "scaled.scale",
        [W_ADDS_ALWAYS] = "scaled.scale",
        [W_NEVER_ADDS] = "scaled.scale",
        [W_NEEDS_DX] = "scaled.scale (without dx)",
        [KEEPS_WORKSPACE] = "scaled.scale",
    };
    const struct sl_gradient_check check = {.rows = 3, .microbatches = 4, .wgrad_group = 2, .seed = 1};
    for (enum fault fault = NONE; fault < FAULTS; fault++) {
        if (fault == DX_CROSSES) continue; /* only in sequences */
        struct sl_module *module = make_scaled(fault);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        const int status = sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error);
        if (fault == FAILS) {
            assert_int_equal(status, SL_FAILED);
            assert_string_equal(error.message, "gradient check: a function of module scaled failed");
        } else if (fault == TOUCHES_NULL) {
            assert_int_equal(status, SL_BAD_INPUT);
            assert_string_equal(error.message,
                                "gradient check: backward_input of scaled (scaled) writes to dx although dx is "
                                "NULL: then no gradient is wanted, and it must leave dx alone");
        } else if (fault == NONE) {
            assert_int_equal(status, SL_OK);
            assert_true(difference < 1e-4);
        } else {
            assert_int_equal(status, SL_OK);
            assert_string_equal(worst, worst_of[fault]);
            assert_true(difference > 5e-3);
        }
        sl_module_free(module);
    }
}

static void expect_worst(struct sl_module *module, int sequence, enum fault fault, const char *name) {
    const struct sl_gradient_check check = {
        .rows = 6, .sequence = sequence, .microbatches = 4, .wgrad_group = 2, .seed = 2};
    struct sl_error error = {0};
    double difference;
    char worst[96];
    assert_non_null(module);
    assert_int_equal(sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error), SL_OK);
    if (fault != NONE) assert_string_equal(worst, name);
    assert_true(fault == NONE ? difference < 1e-4 : difference > 5e-3);
    sl_module_free(module);
}

static void test_checker_knows_sequences_and_tied_parameters(void **state) {
    (void)state;
    expect_worst(make_scaled(NONE), 3, NONE, NULL);
    expect_worst(make_scaled(DX_CROSSES), 3, DX_CROSSES, "dx");
    expect_worst(make_scaled(DX_CROSSES), 6, NONE, NULL); /* there is no other sequence in a microbatch */
    expect_worst(make_scaled(W_NEVER_ADDS), 2, W_NEVER_ADDS, "scale");
    expect_worst(make_scaled(W_NEEDS_DX), 2, W_NEEDS_DX, "scale (without dx)");
}

static void test_checker_gives_room_to_recompute(void **state) {
    (void)state;
    expect_worst(sl_recompute(make_scaled(NONE)), 3, NONE, NULL);
    expect_worst(sl_recompute(make_scaled(W_FORGETS_ROW)), 0, W_FORGETS_ROW, "scaled.scale");
    expect_worst(sl_recompute(make_scaled(DX_TOO_LARGE)), 3, DX_TOO_LARGE, "dx");
}

/* A module around another, which does not request its child's saved arrays. */
static int plan_around(struct sl_module *module, struct sl_plan *plan) {
    module->x.lasts = SL_UNTIL_RETURN;
    return sl_module_plan(module->child[0], plan);
}
static int around(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    return sl_module_forward(module->child[0], context, x, y);
}
static int around_back(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_given dy, struct sl_result *dx) {
    return sl_module_backward_input(module->child[0], context, x, dy, dx);
}
static const struct sl_module_type wraps = {
    .name = "wraps", .plan = plan_around, .forward = around, .backward_input = around_back};

static void test_checker_says_why(void **state) {
    (void)state;
    const struct sl_gradient_check check = {.rows = 3, .microbatches = 2, .wgrad_group = 2};
    struct sl_module *child = sl_dense("dense", 3, 3);
    struct sl_module *module = sl_module_new_parent(&wraps, "", 3, 3, 1, &child);
    struct sl_error error = {0};
    double difference;
    assert_non_null(module);
    assert_int_equal(sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                     SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "module type dense was given no x in backward"));
    sl_module_free(module);
}

/* A module within a type without bf16 support saves floats, for any storage. */
static int plan_behind(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(sl_module_plan(module->child[0], plan));
    module->x.lasts = module->child[0]->x.lasts;
    module->y.lasts = module->child[0]->y.lasts;
    return SL_OK;
}
static int behind_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                         struct sl_given dy) {
    return sl_module_backward_weight(module->child[0], context, x, dy);
}
static const struct sl_module_type stands_before = {.name = "stands_before",
                                                    .plan = plan_behind,
                                                    .forward = around,
                                                    .backward_input = around_back,
                                                    .backward_weight = behind_weight};

static void test_children_of_a_type_without_storage_keep_floats(void **state) {
    (void)state;
    enum { COLS = 16 };
    struct sl_module *const children[] = {sl_layer_norm("norm", COLS), sl_silu(COLS), sl_dropout(COLS, 0.1),
                                          sl_silu_dropout(COLS, 0.1),  sl_gelu(COLS), sl_dense("dense", COLS, COLS)};
    const struct sl_gradient_check check = {.rows = 5, .microbatches = 2, .wgrad_group = 2, .storage = SL_BF16};
    for (size_t i = 0; i < sizeof children / sizeof children[0]; i++) {
        struct sl_module *child = children[i];
        struct sl_module *module = sl_module_new_parent(&stands_before, "", COLS, COLS, 1, &child);
        struct sl_error error = {0};
        double difference;
        assert_non_null(module);
        assert_int_equal(sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, NULL, &error), SL_OK);
        assert_true(difference < 1e-4); /* rounding of saved arrays would give a hundred times that */
        sl_module_free(module);
    }
}

/* y = scale x^2. Declares no lifetime: both backward functions receive x, W also dy, in any storage. */
static int plan_plain(struct sl_module *module, struct sl_plan *plan) {
    const size_t cols = (size_t)module->in;
    return sl_plan_parameter(plan, "scale", SL_INIT_ONES, 0, 1, &cols);
}

static int plain_forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                         struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const float *scale = sl_value(module, context, 0);
    for (int i = 0; i < context->rows * module->in; i++) y[i] = scale[i % module->in] * x[i] * x[i];
    return SL_OK;
}

static int plain_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                                struct sl_given given, struct sl_result *result) {
    const float *x = saved.floats, *dy = given.floats;
    float *dx = sl_result_floats(result);
    const float *scale = sl_value(module, context, 0);
    for (int i = 0; dx && i < context->rows * module->in; i++) dx[i] = 2 * scale[i % module->in] * x[i] * dy[i];
    return SL_OK;
}

static int plain_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                                 struct sl_given given) {
    const float *x = saved.floats, *dy = given.floats;
    float *gradient = sl_gradient(module, context, 0);
    for (int c = 0; !context->accumulate && c < module->in; c++) gradient[c] = 0;
    for (int i = 0; i < context->rows * context->wgrad_group * module->in; i++)
        gradient[i % module->in] += x[i] * x[i] * dy[i];
    return SL_OK;
}

static const struct sl_module_type plain = {.name = "plain",
                                            .plan = plan_plain,
                                            .forward = plain_forward,
                                            .backward_input = plain_backward_input,
                                            .backward_weight = plain_backward_weight};

static void test_a_type_that_declares_nothing_receives_x_and_dy(void **state) {
    (void)state;
    for (int storage = SL_F32; storage <= SL_BF16; storage++) {
        const struct sl_gradient_check check = {
            .rows = 3, .microbatches = 4, .wgrad_group = 2, .seed = 3, .storage = (enum sl_dtype)storage};
        struct sl_module *const child[] = {sl_module_new(&plain, "first", 5, 5), sl_module_new(&plain, "second", 5, 5)};
        struct sl_module *module = sl_sequential("", 2, child);
        struct sl_error error = {0};
        double difference;
        assert_non_null(module);
        assert_int_equal(sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, NULL, &error), SL_OK);
        assert_true(difference < (storage == SL_F32 ? 1e-4 : 2e-2)); /* x and dy have 8 bits as bf16 */
        sl_module_free(module);
    }
}

/* A gelu rounds what it reads in the pass that rounds what it writes, if both are saved: not at an end of a list, or
 * beside another gelu. */
static void test_gelus_round_in_any_place(void **state) {
    (void)state;
    enum { COLS = 6 };
    struct sl_module *const lists[] = {
        sl_gelu(COLS),
        sl_recompute(sl_gelu(COLS)),
        sl_sequential("", 2, (struct sl_module *[]){sl_gelu(COLS), sl_dense("dense", COLS, COLS)}),
        sl_sequential("", 2, (struct sl_module *[]){sl_dense("dense", COLS, COLS), sl_gelu(COLS)}),
        sl_sequential("", 3, (struct sl_module *[]){sl_gelu(COLS), sl_gelu(COLS), sl_gelu(COLS)}),
        sl_sequential("", 4,
                      (struct sl_module *[]){sl_dense("dense", COLS, COLS), sl_gelu(COLS),
                                             sl_sequential("", 1, (struct sl_module *[]){sl_gelu(COLS)}),
                                             sl_dense("last", COLS, COLS)}),
        sl_residual(sl_gelu(COLS)),
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (int storage = SL_F32; storage <= SL_BF16; storage++) {
            const struct sl_gradient_check check = {
                .rows = 4, .microbatches = 2, .wgrad_group = 1, .seed = 7, .storage = (enum sl_dtype)storage};
            struct sl_error error = {0};
            double difference;
            assert_non_null(lists[i]);
            assert_int_equal(sl_gradient_check(lists[i], &check, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                             SL_OK);
            if (!(difference < (storage == SL_F32 ? 1e-3 : 2e-2))) fail_msg("list %zu differs by %g", i, difference);
        }
        sl_module_free(lists[i]);
    }
}

static void test_checker_refuses(void **state) {
    (void)state;
    struct sl_module *module = sl_silu(3);
    struct sl_error error = {0};
    double difference;
    const struct sl_gradient_check uneven = {.rows = 3, .microbatches = 3, .wgrad_group = 2};
    assert_int_equal(sl_gradient_check(module, &uneven, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                     SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "3 microbatches in groups of 2"));
    const struct sl_gradient_check torn = {.rows = 3, .sequence = 2, .microbatches = 2, .wgrad_group = 2};
    assert_int_equal(sl_gradient_check(module, &torn, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                     SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "3 rows in sequences of 2"));
    const struct sl_gradient_check empty = {.rows = 0, .microbatches = 2, .wgrad_group = 2};
    assert_int_equal(sl_gradient_check(module, &empty, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                     SL_BAD_INPUT);
    sl_module_free(module);
    const struct sl_gradient_check fits = {.rows = 3, .microbatches = 2, .wgrad_group = 2};
    module = sl_mean_squared_error(3);
    assert_int_equal(sl_gradient_check(module, &fits, sl_gemm_find(NULL, NULL), &difference, NULL, &error),
                     SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "mean_squared_error has no backward_input, which only a loss may lack"));
    sl_module_free(module);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checker_catches_faults),
        cmocka_unit_test(test_checker_knows_sequences_and_tied_parameters),
        cmocka_unit_test(test_checker_gives_room_to_recompute),
        cmocka_unit_test(test_checker_says_why),
        cmocka_unit_test(test_children_of_a_type_without_storage_keep_floats),
        cmocka_unit_test(test_gelus_round_in_any_place),
        cmocka_unit_test(test_a_type_that_declares_nothing_receives_x_and_dy),
        cmocka_unit_test(test_checker_refuses),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
