/* test_vector_math.c - exp, exp2, log, log1p and sigmoid against <math.h> in double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "spmd/base/numbers/vector_math.h"

typedef float float_function(float x);
typedef double double_function(double x);

static float float_exp(float x) { return sl_exp(x); }
static float float_exp2(float x) { return sl_exp2(x); }
static float float_log(float x) { return sl_log(x); }
static float float_log1p(float x) { return sl_log1p(x); }
static float float_sigmoid(float x) { return sl_sigmoid(x); }
static double normal_exp2(double x) { return x < -126 ? 0 : exp2(x); }
static double double_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* How far X is from the exact value WANT, in units of the last place of WANT as a float. */
static double error_of(float x, double want) {
    const float rounded = (float)want;
    if (isnan(want)) return isnan(x) ? 0 : INFINITY;
    if (isnan(x)) return INFINITY;
    if (isinf(x) || isinf(rounded)) return x == rounded ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs(x - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

/* Floats of all magnitudes and signs, NaN and infinities among them, from the least to the greatest bit pattern. */
static void check_function(float_function *function, double_function *exact, float from, float to, double limit) {
    double worst = 0;
    float at = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1657) {
        const float x = sl_float_of_bits((uint32_t)bits);
        if (x < from || x > to) continue;
        const double error = error_of(function(x), exact(x));
        if (error > worst) worst = error, at = x;
    }
    if (!(worst <= limit)) fail_msg("%.3g ulp at %a; allowed are %.3g", worst, at, limit);
}

static void test_errors(void **state) {
    (void)state;
    check_function(float_exp, exp, -INFINITY, INFINITY, 1);
    check_function(float_exp2, normal_exp2, -INFINITY, 127, 1.2);
    check_function(float_log, log, -INFINITY, INFINITY, 1);
    check_function(float_log1p, log1p, -INFINITY, INFINITY, 1);
    check_function(float_sigmoid, double_sigmoid, -87, INFINITY, 2.5); /* below, e^-x is infinite and the result 0 */
}

static void test_edges(void **state) {
    (void)state;
    assert_true(sl_exp(0) == 1 && sl_exp(INFINITY) == INFINITY && sl_exp(-INFINITY) == 0 && isnan(sl_exp(NAN)));
    assert_true(sl_exp(88.72284f) == INFINITY && isfinite(sl_exp(88.72283f)));
    assert_true(sl_exp(-103.9f) > 0 && sl_exp(-104.0f) == 0);
    assert_true(sl_exp2(0) == 1 && sl_exp2(-126) == 0x1p-126f && sl_exp2(-126.01f) == 0 && sl_exp2(-INFINITY) == 0);
    assert_true(isnan(sl_exp2(NAN)) && sl_exp2(127) == 0x1p127f);
    assert_true(sl_log(1) == 0 && sl_log(0) == -INFINITY && sl_log(-0.0f) == -INFINITY);
    assert_true(sl_log(INFINITY) == INFINITY && isnan(sl_log(-1)) && isnan(sl_log(NAN)));
    assert_true(sl_log1p(-1) == -INFINITY && isnan(sl_log1p(-1.5f)) && isnan(sl_log1p(NAN)));
    assert_true(sl_log1p(INFINITY) == INFINITY && sl_log1p(0) == 0 && signbit(sl_log1p(-0.0f)));
    assert_true(sl_sigmoid(0) == 0.5f && sl_sigmoid(INFINITY) == 1 && sl_sigmoid(-INFINITY) == 0);
    assert_true(sl_sigmoid(-200) == 0 && sl_sigmoid(200) == 1 && isnan(sl_sigmoid(NAN)));
}

static void test_fma(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 100000; i++) {
        const float a = 1 + (float)(i * 7919u % 100003) * 0x1p-20f, b = 1 - (float)(i * 104729u % 99991) * 0x1p-20f;
        assert_true(sl_fma(a, b, -1.0f) == (float)((double)a * b - 1)); /* exact in double */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_fma),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
