/* test_stored_gradients.c - backward of modules that keep bf16, or multiply it, beside differences of what they compute
 * with floats: gradients differ by what rounding explains, and no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layers/modules/gradient_check.h"
#include "layers/modules/modules.h"
#include "layers/modules/transformer_modules.h"
#include "tests/rigs/rounding.h"

enum { COLUMNS = 16, INSIDE = 32, LATENT = 8, HEADS = 2, ROPE = 4, SEQUENCE = 6 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {&mesh, "tensor"};

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

/* ROUNDINGS: arrays that are rounded between an element of x and the gradients, on the way there and back; also x's own
 * and dy's, and the kernels' where operands are bf16. Gradients of attention's scores are differences of numbers as
 * large as they are, and what is added to all keys cancels but for their rotation: each of the two doubles an error's
 * square. INSIDE: some of the arrays lie inside of the module. */
static const struct subject {
    const char *name;
    struct sl_module *(*make)(void);
    int roundings;
    bool inside;
} subjects[] = {
    {"dense", dense, 3, false},
    {"norm", norm, 2, false},
    {"mlp", mlp, 2 + 2 * 2 + 2, true},
    {"norm_and_mlp", norm_and_mlp, 2 + 2 * 3 + 2, true},
    {"attention", attention, 4 * (2 + 2 * 8 + 5), true},
    {"layer", layer, 4 * (2 + 2 * (6 + 8) + 7), true},
    {"recomputed", recomputed, 4 * (2 + 2 * (6 + 8) + 7), true},
    {"block", block, 2 + 2 * 4 + 2, true},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

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

/* Something is rounded, too: differences of floats come closer. */
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
            struct sl_gradient_check floats = check;
            char worst[96];
            floats.storage = floats.precision = SL_F32;
            const double difference = difference_of(&subjects[s], &check, worst);
            const double bound = rounding_error(subjects[s].roundings);
            if (!(difference <= bound)) fail_msg("%s: %s differs by %g", subjects[s].name, worst, difference);
            assert_true(difference_of(&subjects[s], &floats, worst) < 1e-3);
            if (rounds) assert_true(difference > 2e-4);
        }
    }
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_gradients_are_those_of_floats),
        cmocka_unit_test(so_are_those_of_rounded_operands),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
