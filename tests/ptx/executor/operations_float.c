/* operations_float.c - floating point. */
#include "operations.h"

#define ARITHMETIC(t)                                                                                                  \
    BINARY(add, t, a + b)                                                                                              \
    BINARY(sub, t, a - b)                                                                                              \
    BINARY(mul, t, a *b)                                                                                               \
    BINARY(div, t, a / b)                                                                                              \
    BINARY(min, t, ptx_min_##t(a, b))                                                                                  \
    BINARY(max, t, ptx_max_##t(a, b))                                                                                  \
    BINARY(copysign, t, __builtin_elementwise_copysign(b, a))                                                          \
    OPERATION(fma_##t) { OUT(t, __builtin_elementwise_fma(IN(t, 1), IN(t, 2), IN(t, 3))); }                            \
    UNARY(neg, t, -a)                                                                                                  \
    UNARY(abs, t, __builtin_elementwise_abs(a))                                                                        \
    UNARY(sqrt, t, __builtin_elementwise_sqrt(a))                                                                      \
    UNARY(rcp, t, 1 / a)                                                                                               \
    UNARY(rsqrt, t, ptx_rsqrt_##t(a))                                                                                  \
    UNARY(saturate, t, ptx_saturate_##t(a))                                                                            \
    UNARY(rzi, t, __builtin_elementwise_trunc(a))                                                                      \
    UNARY(rni, t, __builtin_elementwise_roundeven(a))                                                                  \
    UNARY(rmi, t, __builtin_elementwise_floor(a))                                                                      \
    UNARY(rpi, t, __builtin_elementwise_ceil(a))
ARITHMETIC(f32)
ARITHMETIC(f64)
UNARY(flush, f32, ptx_flush(a))
UNARY(ex2, f32, ptx_ex2_f32(a))
UNARY(lg2, f32, ptx_lg2_f32(a))
UNARY(sin, f32, ptx_sin_f32(a))
UNARY(cos, f32, ptx_cos_f32(a))
UNARY(tanh, f32, ptx_tanh_f32(a))

/* A test is false with a NaN, one whose name ends with u true. */
#define TEST(name, t, condition)                                                                                       \
    OPERATION(setp_##name##_##t) {                                                                                     \
        const v_##t a = IN(t, 1), b = IN(t, 2);                                                                        \
        OUT(pred, condition);                                                                                          \
    }
#define TESTS(t)                                                                                                       \
    TEST(eq, t, LANES(a == b))                                                                                         \
    TEST(ne, t, LANES((a < b) | (a > b)))                                                                              \
    TEST(lt, t, LANES(a < b))                                                                                          \
    TEST(le, t, LANES(a <= b))                                                                                         \
    TEST(gt, t, LANES(a > b))                                                                                          \
    TEST(ge, t, LANES(a >= b))                                                                                         \
    TEST(equ, t, ~LANES((a < b) | (a > b)))                                                                            \
    TEST(neu, t, ~LANES(a == b))                                                                                       \
    TEST(ltu, t, ~LANES(a >= b))                                                                                       \
    TEST(leu, t, ~LANES(a > b))                                                                                        \
    TEST(gtu, t, ~LANES(a <= b))                                                                                       \
    TEST(geu, t, ~LANES(a < b))                                                                                        \
    TEST(num, t, LANES((a == a) & (b == b)))                                                                           \
    TEST(nan, t, ~LANES((a == a) & (b == b)))
TESTS(f32)
TESTS(f64)

/* clang-format off */
#define ROWS(t)                                                                                                        \
    ROW(add_##t) ROW(sub_##t) ROW(mul_##t) ROW(div_##t) ROW(min_##t) ROW(max_##t) ROW(copysign_##t) ROW(fma_##t)       \
    ROW(neg_##t) ROW(abs_##t) ROW(sqrt_##t) ROW(rcp_##t) ROW(rsqrt_##t) ROW(saturate_##t)                              \
    ROW(rzi_##t) ROW(rni_##t) ROW(rmi_##t) ROW(rpi_##t)                                                                \
    ROW(setp_eq_##t) ROW(setp_ne_##t) ROW(setp_lt_##t) ROW(setp_le_##t) ROW(setp_gt_##t) ROW(setp_ge_##t)              \
    ROW(setp_equ_##t) ROW(setp_neu_##t) ROW(setp_ltu_##t) ROW(setp_leu_##t) ROW(setp_gtu_##t) ROW(setp_geu_##t)        \
    ROW(setp_num_##t) ROW(setp_nan_##t)
const struct ptx_operation ptx_float_operations[] = {
    ROWS(f32) ROWS(f64) ROW(flush_f32) ROW(ex2_f32) ROW(lg2_f32) ROW(sin_f32) ROW(cos_f32) ROW(tanh_f32) {NULL, NULL}};
