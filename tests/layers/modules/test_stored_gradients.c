/* test_stored_gradients.c - backward of modules that save bf16, or multiply bf16, against finite differences of float
 * results: gradients differ by at most the expected rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "layers/modules/gradient_check.h"
#include "layers/modules/modules.h"
#include "layers/modules/transformer_modules.h"
#include "tests/rigs/rounding.h"

enum { COLUMNS = 16, INSIDE = 32, LATENT = 8, HEADS = 2, ROPE = 2, SEQUENCE = 6 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};

/* ---- the modules ---- */

static struct sl_module *dense(void) { return sl_sharded_dense("dense", COLUMNS, INSIDE, 1, 1, &channels); }

static struct sl_module *mlp(void) {
    struct sl_module *const layer[] = {sl_sharded_dense("up", COLUMNS, INSIDE, 1, 1, &channels), sl_gelu(INSIDE),
                                       sl_sharded_dense("down", INSIDE, COLUMNS, 1, 1, &channels)};
    return sl_sequential("mlp", 3, layer);
}

static struct sl_module *norm_named(const char *name) { return sl_rms_norm(name, COLUMNS, &channels); }
static struct sl_module *norm(void) { return norm_named("norm"); }

static struct sl_module *norm_and_mlp(void) {
    return sl_residual(sl_sequential("", 2, (struct sl_module *[]){norm(), mlp()}));
}

static struct sl_module *attention(void) {
    const struct sl_mla shape = {COLUMNS, HEADS, LATENT, ROPE, SEQUENCE, 0};
    return sl_mla("mla", &shape, &channels);
}

static struct sl_module *layer(void) {
    struct sl_module *const part[] = {norm_named("first"), attention()};
    struct sl_module *const both[] = {sl_residual(sl_sequential("", 2, part)), norm_and_mlp(), norm_named("last")};
    return sl_sequential("layer", 3, both);
}

static struct sl_module *recomputed(void) { return sl_recompute(layer()); }

static struct sl_module *block(void) { return sl_mlp_block("block", COLUMNS, 2, 0.2); }

/* ROUNDINGS: arrays that are rounded between an element of x and the gradients, forward and backward; including x's and
 * dy's, and the kernels' if operands are bf16. INSIDE: some of the arrays are within the module.
 *
 * SCORES: the number of these arrays before the gradient of attention's scores, P (dP - sum of P dP), in which two
 * terms cancel in part. A query that sees n keys gives each about P = 1 / n, and its n dP are independent. Then the
 * terms' squares add up to P^2 (n + 1) dP^2, and the square of their difference is P^2 (n - 1) dP^2: in units of dP^2,
 * 1/n + 1/n^2 and 1/n - 1/n^2. An error is proportional to the terms, and is compared with the difference; see
 * `cancellation`. The arrays are: x, down's kernel, the latent; kernel and result of kv_up, q_up, k_rope, q_rope;
 * attention's output; dy, out's kernel, and its dx. For a layer also the first norm's result, and the arrays on dy's
 * way from the end: sums, results and dx of the other modules (10), and two kernels. Behind the scores come keys, the
 * gradient of queries or keys, the up-projection's kernel, the latent's gradient, x. ROPE has one pair, which turns far
 * in a sequence: with a pair that hardly turns, summands common to all keys would cancel in the scores' gradients. */
static const struct subject {
    const char *name;
    struct sl_module *(*make)(void);
    int roundings, scores;
    bool inside;
} subjects[] = {
    {"dense", dense, 3, 0, false},
    {"norm", norm, 2, 0, false},
    {"mlp", mlp, 2 + 2 * 2 + 2, 0, true},
    {"norm_and_mlp", norm_and_mlp, 2 + 2 * 3 + 2, 0, true},
    {"attention", attention, 5, 3 + 8 + 1 + 3, true},
    {"layer", layer, 5 + 2, 15 + 1 + 10 + 2, true},
    {"recomputed", recomputed, 5 + 2, 15 + 1 + 10 + 2, true},
    {"block", block, 2 + 2 * 4 + 2, 0, true},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

/* Returns the sum of squares of the two terms over that of their difference, for all queries of a sequence. */
static double cancellation(void) {
    double terms = 0, difference = 0;
    for (double n = 1; n <= SEQUENCE; n++) {
        terms += 1 / n + 1 / (n * n);
        difference += 1 / n - 1 / (n * n);
    }
    return terms / difference;
}

/* ---- the check ---- */

static double difference_of(const struct subject *subject, const struct sl_gradient_check *check, char worst[96]) {
    struct sl_module *module = subject->make();
    struct sl_error error = {0};
    double difference;
    assert_non_null(module);
    if (sl_gradient_check(module, check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
        fail_msg("%s: %s", subject->name, error.message);
    sl_module_free(module);
    return difference;
}

/* Something is rounded: differences of floats come closer. */
static void expect_what_rounding_explains(enum sl_dtype storage, enum sl_dtype precision) {
    static const int groups[][2] = {{2, 1}, {4, 2}};
    for (int s = 0; s < SUBJECTS; s++) {
        const bool rounds = subjects[s].inside || (precision == SL_BF16 && subjects[s].make != norm);
        for (int g = 0; g < 2; g++) {
            const struct sl_gradient_check check = {.rows = 2 * SEQUENCE,
                                                    .sequence = SEQUENCE,
                                                    .microbatches = groups[g][0],
                                                    .wgrad_group = groups[g][1],
                                                    .seed = 40 + (uint64_t)g,
                                                    .storage = storage,
                                                    .precision = precision};
            char worst[96];
            const double difference = difference_of(&subjects[s], &check, worst);
            const double bound = rounding_error(subjects[s].roundings + cancellation() * subjects[s].scores);
            if (!(difference <= bound)) fail_msg("%s: %s differs by %g", subjects[s].name, worst, difference);
            if (storage == SL_F32 && precision == SL_F32)
                assert_true(difference < 1e-3);
            else if (rounds && !(difference > 2e-4))
                fail_msg("%s: %s differs by %g alone", subjects[s].name, worst, difference);
        }
    }
}

static void floats_come_closer(void **state) {
    (void)state;
    expect_what_rounding_explains(SL_F32, SL_F32);
}

static void stored_gradients_are_those_of_floats(void **state) {
    (void)state;
    expect_what_rounding_explains(SL_BF16, SL_F32);
}

static void so_are_those_of_rounded_operands(void **state) {
    (void)state;
    expect_what_rounding_explains(SL_BF16, SL_BF16);
    expect_what_rounding_explains(SL_F32, SL_BF16);
}

/* ---- passes ---- */

/* Arrays between an MLP's or attention's products have a multiple of this number of elements. */
enum { GATED = 11 };

static struct {
    const struct sl_kernels *kernels;
    int settle, round, widen;
} passes;

static void see_settle(size_t n, float *x, uint16_t *y) {
    passes.settle += n % GATED == 0;
    passes.kernels->settle_bf16(n, x, y);
}

static void see_round(size_t n, const float *x, uint16_t *y) {
    passes.round += n % GATED == 0;
    passes.kernels->round_bf16(n, x, y);
}

static void see_widen(size_t n, const uint16_t *x, float *y) {
    passes.widen += n % GATED == 0;
    passes.kernels->widen_bf16(n, x, y);
}

static struct sl_kernels kernels_that_count(void) {
    struct sl_kernels kernels = *sl_kernels_select();
    passes.kernels = sl_kernels_select();
    kernels.settle_bf16 = see_settle;
    kernels.round_bf16 = see_round;
    kernels.widen_bf16 = see_widen;
    return kernels;
}

/* Expects backward of MODULE, which it frees, to call none of the kernels that only round or widen. NUMBER: of the
 * example. */
static void expect_no_passes(struct sl_module *module, const struct sl_gradient_check *check, double bound,
                             int number) {
    struct sl_error error = {0};
    double difference;
    char worst[96];
    assert_non_null(module);
    passes.settle = passes.round = passes.widen = 0;
    if (sl_gradient_check(module, check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
        fail_msg("%s", error.message);
    if (!(difference < bound)) fail_msg("%d: %s differs by %g", number, worst, difference);
    if (passes.settle || passes.round || passes.widen)
        fail_msg("%d: %d, %d and %d passes", number, passes.settle, passes.round, passes.widen);
    sl_module_free(module);
}

/* So large that float products widen their operands for W, too. */
static void nothing_inside_an_mlp_is_rounded_by_a_pass(void **state) {
    (void)state;
    enum { WIDE = 192, WITHIN = 32 * GATED, ROWS = 256 };
    const struct sl_gemm_backend *gemm = sl_gemm_find(NULL, NULL);
    if (!sl_gemm_widens(gemm, WIDE, WITHIN, ROWS, true, false, SL_EPILOGUE_NONE)) {
        printf("# SKIP products of this backend do not widen their operands\n");
        skip();
    }
    const struct sl_kernels kernels = kernels_that_count();
    const struct sl_gradient_check check = {.rows = ROWS,
                                            .microbatches = 1,
                                            .wgrad_group = 1,
                                            .seed = 90,
                                            .storage = SL_BF16,
                                            .precision = SL_F32,
                                            .kernels = &kernels};
    struct sl_module *const layer[] = {sl_sharded_product("up", WIDE, WITHIN, &channels), sl_gelu(WITHIN),
                                       sl_sharded_product("down", WITHIN, WIDE, &channels)};
    expect_no_passes(sl_sequential("mlp", 3, layer), &check, 4e-2, 0);
}

/* With dropout, or without. */
static void nothing_around_silu_is_rounded_by_a_pass(void **state) {
    (void)state;
    const struct sl_kernels kernels = kernels_that_count();
    for (int i = 0; i < 2; i++) {
        const struct sl_gradient_check check = {.rows = 3,
                                                .microbatches = 2,
                                                .wgrad_group = 1,
                                                .seed = 60 + (uint64_t)i,
                                                .storage = SL_BF16,
                                                .precision = SL_BF16,
                                                .kernels = &kernels};
        struct sl_module *const layer[] = {sl_dense("up", COLUMNS, GATED), sl_silu_dropout(GATED, i ? 0.25 : 0.0),
                                           sl_dense("down", GATED, COLUMNS)};
        expect_no_passes(sl_sequential("mlp", 3, layer), &check, 4e-2, i);
    }
}

/* Inputs of recomputed layers are not widened for the second forward, nor rounded by its product. */
static void what_is_computed_again_reads_what_is_stored(void **state) {
    (void)state;
    const struct sl_kernels kernels = kernels_that_count();
    const struct sl_gradient_check check = {.rows = 3,
                                            .microbatches = 2,
                                            .wgrad_group = 1,
                                            .seed = 50,
                                            .storage = SL_BF16,
                                            .precision = SL_BF16,
                                            .kernels = &kernels};
    struct sl_module *const again[] = {sl_dense("up", GATED, COLUMNS), sl_dense("down", COLUMNS, COLUMNS)};
    struct sl_module *const part[] = {sl_dense("first", COLUMNS, GATED),
                                      sl_recompute(sl_sequential("again", 2, again))};
    struct sl_module *module = sl_sequential("", 2, part);
    struct sl_error error = {0};
    double difference;
    char worst[96];
    assert_non_null(module);
    passes.settle = passes.round = passes.widen = 0;
    if (sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
        fail_msg("%s", error.message);
    assert_true(difference < 4e-2);
    /* Only the gradients between products are, of both microbatches: CPUs' products leave floats of them. */
    assert_int_equal(passes.round, sl_gemm_leaves_bf16(sl_gemm_find(NULL, NULL)) ? 0 : 2 * 2);
    assert_int_equal(passes.widen, 0);
    sl_module_free(module);
}

/* Keys and queries are rotated, or not, and a latent is cut. */
static void nothing_inside_attention_is_rounded_by_a_pass(void **state) {
    (void)state;
    const struct sl_gemm_backend *gemm = sl_gemm_find(NULL, NULL);
    const struct sl_kernels kernels = kernels_that_count();
    const struct sl_attention attention = {.width = GATED};
    const double bound = rounding_error(5 + cancellation() * 15); /* as above */
    if (!sl_gemm_settles(gemm) || !kernels.attention->reads_stored(&attention)) {
        printf("# SKIP products of GPUs do not round their results, or attention reads no bf16\n");
        skip();
    }
    for (int i = 0; i < 4; i++) {
        const struct sl_gradient_check check = {.rows = 2 * SEQUENCE,
                                                .sequence = SEQUENCE,
                                                .microbatches = 2,
                                                .wgrad_group = 1,
                                                .seed = 80 + (uint64_t)i,
                                                .storage = SL_BF16,
                                                .precision = SL_BF16,
                                                .kernels = &kernels};
        const struct sl_mla latent = {COLUMNS, HEADS, 2 * GATED, i % 2 ? ROPE : 0, SEQUENCE, 0};
        const struct sl_gqa grouped = {.dimension = COLUMNS,
                                       .heads = 2,
                                       .key_heads = 1,
                                       .width = 2 * GATED,
                                       .positions = SEQUENCE,
                                       .rotates = i % 2,
                                       .rotary = {.base = 10000}};
        expect_no_passes(i < 2 ? sl_mla("mla", &latent, &channels) : sl_gqa("gqa", &grouped, &channels), &check, bound,
                         i);
    }
}

/* Neither with adapters, whose sums are rounded as they are added up, nor if only a product reads a gradient, because
 * its kernel is frozen. */
static void nothing_inside_a_gated_mlp_is_rounded_by_a_pass(void **state) {
    (void)state;
    static const struct sl_lora lora = {2, 3};
    static const char *const frozen[] = {NULL, "*.up.*", "*.gate.kernel,*.up.kernel"};
    const struct sl_kernels kernels = kernels_that_count();
    for (int i = 0; i < 6; i++) {
        const struct sl_channels adapted = {.mesh = &mesh, .axis = "tensor", .lora = i % 2 ? &lora : NULL, .pieces = 1};
        const struct sl_gradient_check check = {.rows = 3,
                                                .microbatches = 2,
                                                .wgrad_group = 1,
                                                .seed = 70 + (uint64_t)i,
                                                .storage = SL_BF16,
                                                .precision = SL_BF16,
                                                .frozen = frozen[i / 2],
                                                .kernels = &kernels};
        expect_no_passes(sl_gated_mlp("mlp", COLUMNS, GATED, false, &adapted), &check, 4e-2, i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_come_closer),
        cmocka_unit_test(stored_gradients_are_those_of_floats),
        cmocka_unit_test(so_are_those_of_rounded_operands),
        cmocka_unit_test(nothing_inside_an_mlp_is_rounded_by_a_pass),
        cmocka_unit_test(nothing_around_silu_is_rounded_by_a_pass),
        cmocka_unit_test(what_is_computed_again_reads_what_is_stored),
        cmocka_unit_test(nothing_inside_a_gated_mlp_is_rounded_by_a_pass),
        cmocka_unit_test(nothing_inside_attention_is_rounded_by_a_pass),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
