/* test_modules.c - every module: gradients against finite differences, forward against plain loops in double. */
#include "tests/rigs/module_rig.h"
#include "tests/rigs/run_on.h"

#include <stdio.h>

#include "layers/modules/gradient_check.h"
#include "layers/modules/not_finite.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/memory.h"

/* ---- gradients ---- */

static struct sl_module *make_sequence(void) {
    /* Edges of all four kinds, different widths, a sequence in a sequence, a first child without parameters. */
    struct sl_module *const inner[] = {sl_silu(5), sl_dense("a", 5, 9), sl_layer_norm("b", 9)};
    struct sl_module *const outer[] = {sl_dropout(5, 0.2),
                                       sl_sequential("inner", 3, inner),
                                       sl_silu(9),
                                       sl_dropout(9, 0.4),
                                       sl_layer_norm("c", 9),
                                       sl_dense("d", 9, 4),
                                       sl_dense("e", 4, 6),
                                       sl_silu_dropout(6, 0.3)};
    return sl_sequential("outer", 8, outer);
}

static struct sl_module *make(const char *kind, int size) {
    if (!strcmp(kind, "dense")) return sl_dense("dense", size, 7);
    if (!strcmp(kind, "layer_norm")) return sl_layer_norm("norm", size);
    if (!strcmp(kind, "silu")) return sl_silu(size);
    if (!strcmp(kind, "dropout")) return sl_dropout(size, 0.25);
    if (!strcmp(kind, "silu_dropout")) return sl_silu_dropout(size, 0.25);
    if (!strcmp(kind, "sequential")) return make_sequence();
    if (!strcmp(kind, "chain")) /* nothing between these is stashed */
        return sl_sequential("", 3, (struct sl_module *[]){sl_silu(size), sl_dropout(size, 0.3), sl_silu(size)});
    if (!strcmp(kind, "pair")) /* only a gradient lies in the workspace */
        return sl_sequential("", 2, (struct sl_module *[]){sl_silu(size), sl_dense("dense", size, 3)});
    if (!strcmp(kind, "residual")) return sl_residual(sl_residual(sl_dense("dense", size, size)));
    if (!strcmp(kind, "residual_norm")) return sl_residual(sl_layer_norm("norm", size));
    if (!strcmp(kind, "mlp_block")) return sl_mlp_block("block", size, 2, 0.1);
    fail_msg("no module %s", kind);
    return NULL;
}

/* The argument "few": two checks of most sizes; another preset runs all of them in less time. ThreadSanitizer runs two
 * sizes, because the sizes change loops of one thread alone. */
static void test_gradients(void **state) {
    (void)state;
    static const char *const kinds[] = {"dense",        "layer_norm",    "silu",     "dropout",
                                        "silu_dropout", "sequential",    "chain",    "pair",
                                        "residual",     "residual_norm", "mlp_block"};
    static const struct sl_gradient_check checks[] = {
        {.rows = 3, .microbatches = 4, .wgrad_group = 1, .seed = 1},
        {.rows = 3, .microbatches = 4, .wgrad_group = 2, .seed = 2},
        {.rows = 3, .microbatches = 4, .wgrad_group = 4, .seed = 3},
        {.rows = 1, .microbatches = 1, .wgrad_group = 1, .seed = 4},
        {.rows = 8, .microbatches = 2, .wgrad_group = 2, .seed = 5},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int size = 3; size <= (TEST_WATCHES_THREADS && test_runs_few ? 8 : 18); size += 5) {
            struct sl_module *module = make(kinds[k], size);
            assert_non_null(module);
            for (size_t i = 0; i < (test_runs_few && size > 3 ? 2 : sizeof checks / sizeof *checks); i++) {
                struct sl_error error = {0};
                double difference;
                char worst[96];
                if (sl_gradient_check(module, &checks[i], sl_gemm_find(NULL, NULL), &difference, worst, &error))
                    fail_msg("%s of %d: %s", kinds[k], size, error.message);
                if (!(difference < 1e-3))
                    fail_msg("%s of %d, check %zu: %s differs by %g", kinds[k], size, i, worst, difference);
            }
            sl_module_free(module);
        }
    }
}

/* ---- forward against plain loops in double ---- */

static void oracle_dense(size_t rows, size_t in, size_t out, const double *x, const float *kernel, const float *bias,
                         double *y) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < out; o++) {
            double sum = bias[o];
            for (size_t i = 0; i < in; i++) sum += x[r * in + i] * kernel[i * out + o];
            y[r * out + o] = sum;
        }
    }
}

static void oracle_layer_norm(size_t rows, size_t cols, const double *x, const float *scale, const float *bias,
                              double *y) {
    for (size_t r = 0; r < rows; r++, x += cols, y += cols) {
        double mean = 0.0, variance = 0.0;
        for (size_t c = 0; c < cols; c++) mean += x[c] / (double)cols;
        for (size_t c = 0; c < cols; c++) variance += (x[c] - mean) * (x[c] - mean) / (double)cols;
        for (size_t c = 0; c < cols; c++) y[c] = (x[c] - mean) / sqrt(variance + 1e-6) * scale[c] + bias[c];
    }
}

static void oracle_silu(size_t n, const double *x, double *y) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] / (1.0 + exp(-x[i]));
}

static void test_forward(void **state) {
    (void)state;
    for (int in = 1; in <= 70; in += 23) {
        struct rig rig;
        double expected[ROWS * MICROBATCHES * 70];
        const size_t rows = ROWS * MICROBATCHES, cols = (size_t)in;

        open_rig(&rig, sl_dense("d", in, 31), ROWS, MICROBATCHES, 1);
        assert_int_equal(rig.parameters.list[0].initializer, SL_INIT_TRUNCATED_NORMAL);
        expect_close("scale", 0, rig.parameters.list[0].scale, sqrt(1.0 / in) / 0.87962566103423978, 1e-7, 0.0);
        assert_int_equal(rig.parameters.list[1].initializer, SL_INIT_ZEROS);
        double *x = widen(rows * cols, rig.x);
        forward(&rig);
        oracle_dense(rows, cols, 31, x, value_of(&rig, "d.kernel"), value_of(&rig, "d.bias"), expected);
        assert_close(rows * 31, rig.y, expected, 1e-5);
        close_rig(&rig);

        open_rig(&rig, sl_layer_norm("n", in), ROWS, MICROBATCHES, 1);
        forward(&rig);
        oracle_layer_norm(rows, cols, x, value_of(&rig, "n.scale"), value_of(&rig, "n.bias"), expected);
        assert_close(rows * cols, rig.y, expected, 1e-5);
        close_rig(&rig);

        open_rig(&rig, sl_silu(in), ROWS, MICROBATCHES, 1);
        forward(&rig);
        oracle_silu(rows * cols, x, expected);
        assert_close(rows * cols, rig.y, expected, 1e-6);
        close_rig(&rig);
        free(x);
    }
}

static void test_mlp_block_forward(void **state) {
    (void)state;
    enum { HIDDEN = 6, INSIDE = 12, N = ROWS * MICROBATCHES };
    struct rig rig;
    open_rig(&rig, sl_mlp_block("b", HIDDEN, 2, 0.3), ROWS, MICROBATCHES, 1);
    assert_int_equal(rig.parameters.count, 6);
    static const char *const names[] = {"b.pre_norm.scale",   "b.pre_norm.bias",       "b.input_dense.kernel",
                                        "b.input_dense.bias", "b.output_dense.kernel", "b.output_dense.bias"};
    for (int i = 0; i < 6; i++) {
        assert_string_equal(rig.parameters.list[i].name, names[i]);
        assert_true(rig.parameters.list[i].decay);
    }
    assert_int_equal(rig.parameters.list[0].initializer, SL_INIT_ONES);
    assert_int_equal(rig.parameters.list[1].initializer, SL_INIT_ZEROS);
    forward(&rig);

    double *x = widen(N * HIDDEN, rig.x), unit[N * HIDDEN], inside[N * INSIDE], expected[N * HIDDEN];
    oracle_layer_norm(N, HIDDEN, x, value_of(&rig, names[0]), value_of(&rig, names[1]), unit);
    oracle_dense(N, HIDDEN, INSIDE, unit, value_of(&rig, names[2]), value_of(&rig, names[3]), inside);
    oracle_silu(N * INSIDE, inside, inside);
    const struct sl_key key = sl_fold_in(rig.context.dropout.step_key, 0);
    for (uint32_t i = 0; i < N * INSIDE; i++) {
        const double uniform = (global_word(key, i / INSIDE, i % INSIDE) >> 9) * 0x1p-23;
        inside[i] = uniform < 0.7f ? inside[i] / 0.7 : 0.0;
    }
    oracle_dense(N, INSIDE, HIDDEN, inside, value_of(&rig, names[4]), value_of(&rig, names[5]), expected);
    for (size_t i = 0; i < N * HIDDEN; i++) expected[i] += x[i];
    assert_close(N * HIDDEN, rig.y, expected, 1e-5);
    free(x);
    close_rig(&rig);
}

/* ---- weight gradients ---- */

static float *copy_gradients(const struct rig *rig) {
    const size_t count = rig->parameters.range[0].count;
    float *copy = floats(count);
    memcpy(copy, rig->parameters.range[0].gradient, count * sizeof *copy);
    return copy;
}

static struct sl_module *make_model(int kind) {
    struct sl_module *const part[] = {sl_dense("first", 11, 8), sl_mlp_block("block", 8, 2, 0.1),
                                      sl_layer_norm("last", 8)};
    if (kind == 0) return sl_sequential("", 3, part);
    for (int i = 0; i < 3; i++) sl_module_free(part[i]);
    return sl_layer_norm("norm", 8);
}

static void test_groups(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        float *whole = NULL;
        for (int group = MICROBATCHES; group >= 1; group /= 2) {
            struct rig rig;
            open_rig(&rig, make_model(kind), ROWS, MICROBATCHES, group);
            const size_t count = rig.parameters.range[0].count;
            forward(&rig);
            backward(&rig);
            weigh(&rig, false);
            float *gradient = copy_gradients(&rig);
            weigh(&rig, false);
            assert_memory_equal(gradient, rig.parameters.range[0].gradient, count * sizeof *gradient);
            if (!whole) whole = copy_gradients(&rig);
            double *expected = widen(count, whole);
            assert_close(count, gradient, expected, 1e-5);
            free(expected);
            /* Norms add whole microbatches in order, so groups change no bit, except on GPUs, which add slices. */
            if (kind == 1 && rig.context.kernels->slices == 1)
                assert_memory_equal(gradient, whole, count * sizeof *gradient);

            for (size_t i = 0; i < count; i++) rig.parameters.range[0].gradient[i] = 5.0f;
            weigh(&rig, true);
            for (int p = 0; p < rig.parameters.count; p++) {
                const struct sl_parameter *parameter = &rig.parameters.list[p];
                for (size_t i = 0; i < parameter->count; i++) {
                    const double sum = 5.0 + gradient[parameter->offset + i];
                    assert_close(1, sl_parameter_gradient(&rig.parameters, p) + i, &sum, 1e-5);
                }
            }
            free(gradient);
            close_rig(&rig);
        }
        free(whole);
    }
}

/* ---- bf16 ---- */

/* Sums of SUMMANDS random normal products are right to so much; unrounded operands would give errors of some 1e-2. */
static double bf16_tolerance(size_t summands) { return 1e-6 * (double)summands; }

static double *round_all(size_t n, const float *x) {
    double *rounded = array_of(n, sizeof *rounded);
    for (size_t i = 0; i < n; i++) rounded[i] = sl_float_of_bf16(sl_bf16_of_float(x[i]));
    return rounded;
}

/* Returns whether products write dbias, as sums of their operands. */
static bool sums_are_of_operands(void) { return sl_gemm_sums(sl_gemm_find(NULL, NULL), SL_BF16); }

/* Checks DBIAS for DY [n, out], rounded. Unless products add up, it must equal PLAIN, the sum of unrounded dy. */
static void check_bf16_bias(size_t n, size_t out, const double *dy, const float *plain, const float *dbias) {
    double *sum = array_of(out, sizeof *sum);
    for (size_t i = 0; i < n * out; i++) sum[i % out] += dy[i];
    if (sums_are_of_operands())
        assert_close(out, dbias, sum, bf16_tolerance(n));
    else
        assert_memory_equal(dbias, plain, out * sizeof(float));
    free(sum);
}

/* Products have rounded operands; other summands are not rounded. */
static void check_bf16_dense(int in, int out, int rows, int group) {
    const size_t i = (size_t)in, o = (size_t)out, n = (size_t)rows * MICROBATCHES;
    struct rig rig, plain;
    open_rig_in(&rig, SL_BF16, sl_dense("d", in, out), rows, MICROBATCHES, group);
    forward(&rig);
    backward(&rig);
    weigh(&rig, false);
    const float *bias = value_of(&rig, "d.bias");
    double *x = round_all(n * i, rig.x), *dy = round_all(n * o, rig.dy);
    double *kernel = round_all(i * o, value_of(&rig, "d.kernel")), *expected = array_of(n * (i + o) + i * o, sizeof *x);
    double *y = expected, *dx = y + n * o, *dkernel = dx + n * i;
    for (size_t r = 0; r < n; r++) {
        for (size_t c = 0; c < o; c++) {
            y[r * o + c] = bias[c];
            for (size_t k = 0; k < i; k++) {
                y[r * o + c] += x[r * i + k] * kernel[k * o + c];
                dx[r * i + k] += dy[r * o + c] * kernel[k * o + c];
                dkernel[k * o + c] += x[r * i + k] * dy[r * o + c];
            }
        }
    }
    assert_close(n * o, rig.y, y, bf16_tolerance(i + 1));
    assert_close(n * i, rig.dx, dx, bf16_tolerance(o));
    assert_close(i * o, sl_parameter_gradient(&rig.parameters, 0), dkernel, bf16_tolerance(n));
    open_rig(&plain, sl_dense("d", in, out), rows, MICROBATCHES, group);
    weigh(&plain, false);
    check_bf16_bias(n, o, dy, sl_parameter_gradient(&plain.parameters, 1), sl_parameter_gradient(&rig.parameters, 1));
    free(x);
    free(dy);
    free(kernel);
    free(expected);
    close_rig(&rig);
    close_rig(&plain);
}

static void test_bf16_dense(void **state) {
    (void)state;
    static const int columns[][2] = {{1, 1}, {7, 31}, {64, 32}, {96, 10}, {33, 64}};
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
        check_bf16_dense(columns[c][0], columns[c][1], ROWS, 1);
        check_bf16_dense(columns[c][0], columns[c][1], 8, 2);
        check_bf16_dense(columns[c][0], columns[c][1], 40, MICROBATCHES);
    }
}

/* Values are read as they were when they were last rounded. */
static void test_bf16_values_are_rounded_once(void **state) {
    (void)state;
    struct rig rig;
    open_rig_in(&rig, SL_BF16, sl_dense("d", 8, 8), ROWS, 1, 1);
    forward(&rig);
    float *before = floats(rig.outputs), *value = sl_parameter_value(&rig.parameters, 0);
    memcpy(before, rig.y, rig.outputs * sizeof *before);
    for (int i = 0; i < 64; i++) value[i] = 1.0f;
    forward(&rig);
    assert_memory_equal(before, rig.y, rig.outputs * sizeof *before);
    sl_parameters_round(&rig.parameters, rig.context.kernels, 0);
    forward(&rig);
    for (size_t i = 1; i < 8; i++) /* of the same sum, but for the bias */
        expect_close("y", i, rig.y[i] - value_of(&rig, "d.bias")[i], rig.y[0] - value_of(&rig, "d.bias")[0], 0, 1e-5);
    free(before);
    close_rig(&rig);
}

/* bf16 takes two bytes per parameter for values, and for a group's rows on both sides of a dense layer, and memory for
 * a bias's gradient if products write it. */
static void test_bf16_memory(void **state) {
    (void)state;
    size_t bytes[2], peak[2];
    for (int precision = SL_F32; precision <= SL_BF16; precision++) {
        struct rig rig;
        struct sl_plan plan;
        struct sl_error error = {0};
        struct sl_module *const part[] = {sl_dense("a", 96, 32), sl_layer_norm("b", 32), sl_dense("c", 32, 64)};
        assert_int_equal(
            plan_rig_in(&rig, (enum sl_dtype)precision, sl_sequential("", 3, part), 8, 4, 2, &plan, &error), SL_OK);
        rig.parameters.states = 2; /* beside values and gradients */
        sl_parameters_layout(&rig.parameters, 1, 0, false);
        bytes[precision] = sl_parameters_bytes(&rig.parameters);
        peak[precision] = plan.workspace_peak;
        assert_int_equal(sl_parameters_take(&rig.parameters, &error), SL_OK);
        assert_int_equal(rig.parameters.range[0].rounded != NULL, precision == SL_BF16);
        close_rig(&rig);
    }
    const size_t parameters = 97 * 32 + 2 * 32 + 33 * 64;
    assert_int_equal(bytes[0], 4 * parameters * sizeof(float));
    assert_int_equal(bytes[1], bytes[0] + parameters * sizeof(uint16_t));
    const size_t room = sums_are_of_operands() ? 32 * sizeof(float) : 0;
    assert_int_equal(peak[1], peak[0] - 8 * 32 * sizeof(float) + 2 * 8 * (96 + 32) * sizeof(uint16_t) + room);
}

/* ---- planning ---- */

static void test_stash(void **state) {
    (void)state;
    struct sl_stash stash = {.slots = 3};
    struct sl_plan plan = {.stash = &stash};
    static const size_t strides[] = {35, 3, 5};
    struct sl_place place[3];
    for (int number = 0; number < 3; number++) {
        assert_int_equal(sl_plan_array(&plan, strides[number], SL_UNTIL_WEIGHT, &place[number]), SL_OK);
        assert_true(place[number].stashed);
        assert_int_equal(place[number].number, number);
    }
    stash.data = sl_memory_take(3 * stash.elements * sizeof(float));
    assert_non_null(stash.data);
    struct sl_context context = {.stash = &stash};
    for (int number = 0; number < 3; number++) {
        for (context.microbatch = 0; context.microbatch < 9; context.microbatch++) {
            float *data = sl_at(&context, &place[number]);
            if (context.microbatch % 3 == 0) assert_int_equal((uintptr_t)data % SL_CACHE_LINE, 0);
            /* Every element belongs to one tensor and one slot alone. */
            for (size_t i = 0; i < strides[number]; i++) {
                assert_true(context.microbatch >= 3 || data[i] == 0.0f);
                data[i] = 1.0f;
            }
        }
    }
    float total = 0.0f;
    for (size_t i = 0; i < 3 * stash.elements; i++) total += stash.data[i];
    assert_true(total == 3 * (35 + 3 + 5));
    for (int number = 0; number < 3; number++) { /* microbatches follow one another */
        context.microbatch = 0;
        const float *first = sl_at(&context, &place[number]);
        context.microbatch = 1;
        assert_ptr_equal(sl_at(&context, &place[number]), first + strides[number]);
    }
    sl_memory_give(stash.data);
    free(stash.tensor);
}

static void test_workspace(void **state) {
    (void)state;
    struct sl_plan plan = {0};
    struct sl_place place;
    char workspace[256];
    const struct sl_context context = {.workspace = workspace};
    sl_plan_workspace(&plan, 100, &place);
    assert_ptr_equal(sl_at(&context, &place), workspace);
    sl_plan_workspace(&plan, 10, &place);
    assert_ptr_equal(sl_at(&context, &place), workspace + 128); /* on a cache line */
    plan.workspace = 0;
    sl_plan_workspace(&plan, 5, &place);
    assert_ptr_equal(sl_at(&context, &place), workspace);
    assert_int_equal(plan.workspace, 5);
    assert_int_equal(plan.workspace_peak, 138);
}

/* Children use the same workspace one after another. */
static void test_workspace_is_shared(void **state) {
    (void)state;
    size_t peak[2];
    for (int i = 0; i < 2; i++) {
        struct sl_module *block[9];
        const int blocks = i ? 9 : 3;
        for (int b = 0; b < blocks; b++) block[b] = sl_mlp_block((char[]){(char)('a' + b), '\0'}, 16, 3, 0.1);
        struct rig rig;
        struct sl_plan plan;
        struct sl_error error = {0};
        assert_int_equal(plan_rig(&rig, sl_sequential("", blocks, block), 4, 1, 1, &plan, &error), SL_OK);
        peak[i] = plan.workspace_peak;
        close_rig(&rig);
    }
    assert_int_equal(peak[0], peak[1]);
}

static void refuse(struct sl_module *module, const char *message) {
    struct rig rig;
    struct sl_plan plan;
    struct sl_error error = {0};
    assert_non_null(module);
    assert_int_equal(plan_rig(&rig, module, 2, 1, 1, &plan, &error), SL_BAD_INPUT);
    assert_int_equal(error.status, SL_BAD_INPUT);
    assert_string_equal(error.message, message);
    assert_string_equal(plan.name, "");
    close_rig(&rig);
}

static void test_refusals(void **state) {
    (void)state;
    refuse(sl_sequential("s", 2, (struct sl_module *[]){sl_dense("a", 3, 4), sl_silu(5)}),
           "s.child 1 (silu) takes 5 columns, but child 0 (dense) gives 4");
    refuse(sl_residual(sl_dense("a", 3, 4)),
           "residual: the inner module (dense) takes 3 columns and gives 4, which cannot be added");
    refuse(sl_dropout(3, 1.0), "dropout rate 1: it must be at least 0 and less than 1");
    refuse(sl_silu_dropout(3, -0.5), "dropout rate -0.5: it must be at least 0 and less than 1");
    refuse(sl_dropout(3, (double)NAN), "dropout rate nan: it must be at least 0 and less than 1");
    const char *const name = "a23456789b123456789c123456789d1"; /* two of them, and all is too long */
    struct sl_module *inner = sl_sequential(name, 1, (struct sl_module *[]){sl_silu(3)});
    struct sl_module *middle = sl_sequential(name, 1, &inner);
    refuse(sl_sequential("x", 1, &middle),
           "the name of module x.a23456789b123456789c123456789d1.a23456789b123456789c123456789d1 is longer than 62 "
           "characters");
    refuse(sl_dense("a23456789b123456789c123456789d123456789e123456789f123456789g1234", 3, 3),
           "the name of module a23456789b123456789c123456789d123456789e123456789f123456789g1234 is longer than 62 "
           "characters");
}

static int plan_many(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[SL_MAX_DIMS + 1] = {3};
    (void)module;
    for (int i = 0; i < SL_MODULE_PARAMETERS; i++) {
        char name[] = {(char)('a' + i), '\0'};
        SL_TRY(sl_plan_parameter(plan, name, SL_INIT_ZEROS, 0, 1, shape));
    }
    return sl_plan_parameter(plan, "more", SL_INIT_ZEROS, 0, 1, shape);
}

static int plan_wide(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[SL_MAX_DIMS + 1] = {3};
    (void)module;
    return sl_plan_parameter(plan, "wide", SL_INIT_ZEROS, 0, SL_MAX_DIMS + 1, shape);
}

/* Limits are reported before anything is written beyond them. */
static void test_limits(void **state) {
    static const struct sl_module_type many = {.name = "many", .plan = plan_many},
                                       wide = {.name = "wide", .plan = plan_wide};
    struct sl_module *dropout[SL_LAYER_DROPOUTS + 1];
    char message[80];
    (void)state;
    snprintf(message, sizeof message, "m.many: more than %d parameters", SL_MODULE_PARAMETERS);
    refuse(sl_module_new(&many, "m", 3, 3), message);
    snprintf(message, sizeof message, "m.wide: parameter wide of %d dims: there are 1 to %d", SL_MAX_DIMS + 1,
             SL_MAX_DIMS);
    refuse(sl_module_new(&wide, "m", 3, 3), message);
    for (int i = 0; i <= SL_LAYER_DROPOUTS; i++) dropout[i] = sl_dropout(3, 0.1);
    refuse(sl_sequential("d", SL_LAYER_DROPOUTS + 1, dropout),
           "d.dropout: the layer has more than 64 dropouts; modules that repeat must be layers (is_layer)");
}

static void test_missing_children(void **state) {
    (void)state;
    assert_null(sl_sequential("s", 2, (struct sl_module *[]){sl_silu(3), NULL}));
    assert_null(sl_sequential("s", 0, NULL));
    assert_null(sl_residual(NULL));
    sl_module_free(NULL);
}

/* ---- inputs of children ---- */

/* y = x; saves nothing. */
struct modest {
    struct sl_module module;
    bool fails;
};

static int modest_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_result *y) {
    memcpy(y->floats, x.floats, (size_t)(context->rows * module->in) * sizeof *x.floats);
    return ((const struct modest *)module)->fails ? SL_FAILED : SL_OK;
}

static int modest_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                 struct sl_given dy, struct sl_result *dx) {
    assert_null(x.floats);
    return modest_forward(module, context, dy, dx);
}

static int modest_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy) {
    (void)module, (void)context;
    assert_false(sl_given_exists(x));
    assert_false(sl_given_exists(dy));
    return SL_OK;
}

static const struct sl_module_type modest = {.name = "modest",
                                             .plan = sl_plan_keeps_nothing,
                                             .forward = modest_forward,
                                             .backward_input = modest_backward_input,
                                             .backward_weight = modest_backward_weight,
                                             .bytes = sizeof(struct modest)};

static void test_nothing_is_kept_unasked(void **state) {
    (void)state;
    struct rig rig;
    struct sl_module *child[3];
    for (int i = 0; i < 3; i++) child[i] = sl_residual(sl_module_new(&modest, "", 6, 6));
    open_rig(&rig, sl_sequential("", 3, child), ROWS, 1, 1);
    assert_false(sl_is_kept(&rig.module->x));
    assert_false(sl_is_kept(&rig.module->y));
    assert_int_equal(rig.stash.elements, 0);
    forward(&rig);
    backward(&rig);
    weigh(&rig, false);
    for (size_t i = 0; i < rig.outputs; i++) {
        assert_true(rig.y[i] == 8.0f * rig.x[i]);
        assert_true(rig.dx[i] == 8.0f * rig.dy[i]);
    }
    close_rig(&rig);
}

/* The same, but I reads x; W receives none. */
static int plan_until_input(struct sl_module *module, struct sl_plan *plan) {
    (void)plan;
    module->x.lasts = SL_UNTIL_INPUT;
    module->y.lasts = SL_UNTIL_RETURN;
    return SL_OK;
}

static int reading_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy, struct sl_result *dx) {
    assert_non_null(x.floats);
    return modest_forward(module, context, dy, dx);
}

static int reading_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy) {
    (void)module, (void)context, (void)dy;
    assert_false(sl_given_exists(x));
    return SL_OK;
}

static const struct sl_module_type reading = {.name = "reading",
                                              .plan = plan_until_input,
                                              .forward = modest_forward,
                                              .backward_input = reading_backward_input,
                                              .backward_weight = reading_backward_weight,
                                              .bytes = sizeof(struct modest)};

static void test_weights_receive_no_x_that_lasts_until_input(void **state) {
    (void)state;
    for (int storage = SL_F32; storage <= SL_BF16; storage++)
        for (int follow = 0; follow < 2; follow++) {
            const struct sl_plan like = {.storage = (enum sl_dtype)storage,
                                         .rows = ROWS,
                                         .wgrad_group = 1,
                                         .weights_follow = follow,
                                         .nobody_waits = follow};
            struct sl_module *child[3];
            struct rig rig;
            for (int i = 0; i < 3; i++) child[i] = sl_module_new(&reading, "", 6, 6);
            open_rig_like(&rig, &like, sl_sequential("", 3, child), 1);
            rig.context.storage = (enum sl_dtype)storage;
            assert_int_equal(rig.module->x.lasts, SL_UNTIL_INPUT);
            forward(&rig);
            backward(&rig);
            weigh(&rig, false);
            close_rig(&rig);
        }
}

/* An x that only I reads needs no memory until W, also if dx may be written over it. */
static void test_recomputed_x_lasts_until_input(void **state) {
    (void)state;
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    struct sl_error error = {0};
    struct sl_parameters parameters;
    struct sl_stash once = {0}, again = {.once = &once};
    struct sl_plan plan = {.mesh = &mesh,
                           .gemm = sl_gemm_find(NULL, NULL),
                           .rows = ROWS,
                           .wgrad_group = 2,
                           .has_dx = true,
                           .parameters = &parameters,
                           .stash = &again,
                           .again = &again,
                           .error = &error};
    struct sl_module *module = sl_sequential("", 3, (struct sl_module *[]){sl_gelu(16), sl_gelu(16), sl_gelu(16)});
    assert_int_equal(sl_parameters_open(&parameters, 1), SL_OK);
    assert_int_equal(sl_module_plan(module, &plan), SL_OK);
    assert_int_equal(again.elements, 0);
    assert_int_equal(once.elements, 2 * ROWS * 16);
    free(again.tensor);
    free(once.tensor);
    sl_parameters_close(&parameters);
    sl_module_free(module);
}

/* A child's failure ends the whole call. */
static void test_status_is_passed_on(void **state) {
    (void)state;
    struct rig rig;
    struct sl_module *bad = sl_module_new(&modest, "", 6, 6);
    struct sl_module *const child[] = {sl_silu(6), sl_residual(bad), sl_silu(6)};
    open_rig(&rig, sl_sequential("", 3, child), ROWS, 1, 1);
    ((struct modest *)bad)->fails = true; /* from now on */
    set_microbatch(&rig, 0);
    assert_int_equal(rig.module->type->forward(rig.module, &rig.context, sl_given_f32(rig.x), SL_INTO(rig.y)),
                     SL_FAILED);
    for (size_t i = 0; i < rig.outputs; i++) assert_true(rig.y[i] == 0.0f);
    assert_int_equal(rig.module->type->backward_input(rig.module, &rig.context, sl_given_f32(NULL),
                                                      sl_given_f32(rig.dy), SL_INTO(rig.dx)),
                     SL_FAILED);
    for (size_t i = 0; i < rig.inputs; i++) assert_true(rig.dx[i] == 0.0f);
    close_rig(&rig);
}

/* The end of a call obeys the request if the module does not: all forms of a result are those of a rounding pass. */
static void test_requests_are_obeyed(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        struct rig rig;
        open_rig(&rig, sl_erf_gelu(6), ROWS, 1, 1);
        set_microbatch(&rig, 0);
        assert_int_equal(sl_module_forward(rig.module, &rig.context, sl_given_f32(rig.x), SL_INTO(rig.y)), SL_OK);
        sl_device.settle(NULL);
        float *want = device_copy(rig.y, rig.outputs * sizeof *want);
        uint16_t *stored = memset(device_array(rig.outputs, sizeof *stored), 0, rig.outputs * sizeof *stored);
        struct sl_result result = {
            .floats = rig.y, .halves = form > 0 ? stored : NULL, .form = form == 2 ? SL_ALONE : SL_ROUNDED};
        rig.context.storage = SL_BF16;
        assert_int_equal(sl_module_forward(rig.module, &rig.context, sl_given_f32(rig.x), &result), SL_OK);
        sl_device.settle(NULL);
        for (size_t i = 0; i < rig.outputs; i++) {
            if (form < 2) assert_true(rig.y[i] == sl_bf16_part(want[i]));
            assert_int_equal(stored[i], form > 0 ? sl_bf16_of_float(want[i]) : 0);
        }
        release_array(stored);
        release_array(want);
        close_rig(&rig);
    }
}

/* If the caller is to write the requested form, the result is in floats: checks of results do not read the copy, which
 * nobody has written yet. */
static void test_results_left_in_floats_are_checked(void **state) {
    (void)state;
    struct rig rig;
    struct sl_not_finite found;
    open_rig(&rig, sl_erf_gelu(6), ROWS, 1, 1);
    set_microbatch(&rig, 0);
    sl_not_finite_begin(&found, &rig.self);
    uint16_t *stored = memset(device_array(rig.outputs, sizeof *stored), 0xff, rig.outputs * sizeof *stored); /* NaN */
    struct sl_result result = {.floats = rig.y, .halves = stored, .form = SL_ALONE, .made = SL_LEFT};
    rig.context.storage = SL_BF16;
    rig.context.inspector = &found.inspector;
    assert_int_equal(sl_module_forward(rig.module, &rig.context, sl_given_f32(rig.x), &result), SL_OK);
    assert_int_equal(result.made, SL_LEFT);
    assert_string_equal(found.text, "");
    rig.x[3] = INFINITY;
    assert_int_equal(sl_module_forward(rig.module, &rig.context, sl_given_f32(rig.x), &result), SL_OK);
    assert_non_null(strstr(found.text, "row 0, column 3 is inf"));
    release_array(stored);
    close_rig(&rig);
}

int main(int argc, char **argv) {
    test_runs_few = argc > 1 && !strcmp(argv[1], "few") && !getenv("SL_TEST_LONG");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_mlp_block_forward),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_bf16_dense),
        cmocka_unit_test(test_bf16_values_are_rounded_once),
        cmocka_unit_test(test_bf16_memory),
        cmocka_unit_test(test_stash),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_workspace_is_shared),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_missing_children),
        cmocka_unit_test(test_nothing_is_kept_unasked),
        cmocka_unit_test(test_weights_receive_no_x_that_lasts_until_input),
        cmocka_unit_test(test_recomputed_x_lasts_until_input),
        cmocka_unit_test(test_status_is_passed_on),
        cmocka_unit_test(test_requests_are_obeyed),
        cmocka_unit_test(test_results_left_in_floats_are_checked),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
