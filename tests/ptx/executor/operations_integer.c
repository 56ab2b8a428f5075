/* operations_integer.c - integers, bits and predicates. */
#include "operations.h"

/* Each is made for all types of its list. */
#define UNSIGNED(X) X(u16) X(u32) X(u64)
#define SIGNED(X) X(s16) X(s32) X(s64)

#define ARITHMETIC(t)                                                                                                  \
    BINARY(add, t, a + b)                                                                                              \
    BINARY(sub, t, a - b)                                                                                              \
    BINARY(mul, t, a *b)                                                                                               \
    BINARY(and, t, a &b)                                                                                               \
    BINARY(or, t, a | b)                                                                                               \
    BINARY(xor, t, a ^ b)                                                                                              \
    UNARY(not, t, ~a)                                                                                                  \
    UNARY(neg, t, -a)                                                                                                  \
    UNARY(cnot, t, (v_##t)(a == 0) & 1)                                                                                \
    OPERATION(shl_##t) { OUT(t, ptx_left_##t(IN(t, 1), IN(u32, 2))); }
UNSIGNED(ARITHMETIC)
#define ORDERED(t)                                                                                                     \
    BINARY(min, t, __builtin_elementwise_min(a, b))                                                                    \
    BINARY(max, t, __builtin_elementwise_max(a, b))                                                                    \
    BINARY(div, t, ptx_divide_##t(a, b))                                                                               \
    BINARY(rem, t, ptx_remainder_##t(a, b))                                                                            \
    OPERATION(shr_##t) { OUT(t, ptx_right_##t(IN(t, 1), IN(u32, 2))); }
UNSIGNED(ORDERED)
SIGNED(ORDERED)
#define ABS(t) UNARY(abs, t, ptx_magnitude_##t(a))
SIGNED(ABS)

/* A product's whole, and its upper half. */
#define WIDE(t, w, bits)                                                                                               \
    OPERATION(wide_##t) { OUT(w, CONVERT(IN(t, 1), v_##w) * CONVERT(IN(t, 2), v_##w)); }                               \
    OPERATION(high_##t) { OUT(t, CONVERT(CONVERT(IN(t, 1), v_##w) * CONVERT(IN(t, 2), v_##w) >> bits, v_##t)); }
WIDE(u16, u32, 16)
WIDE(s16, s32, 16)
WIDE(u32, u64, 32)
WIDE(s32, s64, 32)
BINARY(high, u64, ptx_high_u64(a, b))
BINARY(high, s64, ptx_high_s64(a, b))

#define FIELDS(t)                                                                                                      \
    OPERATION(bfe_##t) { OUT(t, ptx_extract_##t(IN(t, 1), IN(u32, 2), IN(u32, 3))); }
FIELDS(u32)
FIELDS(s32)
FIELDS(u64)
FIELDS(s64)
#define INSERTS(t)                                                                                                     \
    OPERATION(bfi_##t) { OUT(t, ptx_insert_##t(IN(t, 1), IN(t, 2), IN(u32, 3), IN(u32, 4))); }
INSERTS(u32)
INSERTS(u64)
OPERATION(prmt_u32) { OUT(u32, ptx_permute(IN(u32, 1), IN(u32, 2), IN(u32, 3))); }
OPERATION(popc_u32) { OUT(u32, ptx_population_u32(IN(u32, 1))); }
OPERATION(popc_u64) { OUT(u32, ptx_population_u64(IN(u64, 1))); }
OPERATION(clz_u32) { OUT(u32, ptx_leading_u32(IN(u32, 1))); }
OPERATION(clz_u64) { OUT(u32, ptx_leading_u64(IN(u64, 1))); }
UNARY(brev, u32, __builtin_elementwise_bitreverse(a))
UNARY(brev, u64, __builtin_elementwise_bitreverse(a))
OPERATION(shf_l_wrap_u32) { OUT(u32, ptx_funnel_left(IN(u32, 1), IN(u32, 2), ptx_wrap(IN(u32, 3)))); }
OPERATION(shf_l_clamp_u32) { OUT(u32, ptx_funnel_left(IN(u32, 1), IN(u32, 2), ptx_clamp(IN(u32, 3)))); }
OPERATION(shf_r_wrap_u32) { OUT(u32, ptx_funnel_right(IN(u32, 1), IN(u32, 2), ptx_wrap(IN(u32, 3)))); }
OPERATION(shf_r_clamp_u32) { OUT(u32, ptx_funnel_right(IN(u32, 1), IN(u32, 2), ptx_clamp(IN(u32, 3)))); }

OPERATION(mov_16) { OUT(u16, IN(u16, 1)); }
OPERATION(mov_32) { OUT(u32, IN(u32, 1)); }
OPERATION(mov_64) { OUT(u64, IN(u64, 1)); }
OPERATION(mov_p) { OUT(pred, IN_PRED(1)); }
OPERATION(selp_16) { OUT(u16, SELECT16(IN_PRED(3), IN(u16, 1), IN(u16, 2))); }
OPERATION(selp_32) { OUT(u32, SELECT32(IN_PRED(3), IN(u32, 1), IN(u32, 2))); }
OPERATION(selp_64) { OUT(u64, SELECT64(IN_PRED(3), IN(u64, 1), IN(u64, 2))); }

OPERATION(and_pred) { OUT(pred, IN_PRED(1) & IN_PRED(2)); }
OPERATION(or_pred) { OUT(pred, IN_PRED(1) | IN_PRED(2)); }
OPERATION(xor_pred) { OUT(pred, IN_PRED(1) ^ IN_PRED(2)); }
OPERATION(not_pred) { OUT(pred, ~IN_PRED(1)); }

#define TEST(name, t, sign)                                                                                            \
    OPERATION(setp_##name##_##t) { OUT(pred, LANES(IN(t, 1) sign IN(t, 2))); }
#define EQUAL(t) TEST(eq, t, ==) TEST(ne, t, !=)
#define ORDER(t) TEST(lt, t, <) TEST(le, t, <=) TEST(gt, t, >) TEST(ge, t, >=)
UNSIGNED(EQUAL)
UNSIGNED(ORDER)
SIGNED(ORDER)

/* clang-format off */
#define ARITHMETIC_ROWS(t)                                                                                             \
    ROW(add_##t)                                                                                                       \
    ROW(sub_##t) ROW(mul_##t) ROW(and_##t) ROW(or_##t) ROW(xor_##t) ROW(not_##t) ROW(neg_##t) ROW(cnot_##t) ROW(shl_##t)
#define ORDERED_ROWS(t)                                                                                                \
    ROW(min_##t)                                                                                                       \
    ROW(max_##t)                                                                                                       \
    ROW(div_##t) ROW(rem_##t) ROW(shr_##t) ROW(setp_lt_##t) ROW(setp_le_##t) ROW(setp_gt_##t) ROW(setp_ge_##t)
#define EQUAL_ROWS(t) ROW(setp_eq_##t) ROW(setp_ne_##t)
#define ABS_ROW(t) ROW(abs_##t)
const struct ptx_operation ptx_integer_operations[] = {
    UNSIGNED(ARITHMETIC_ROWS) UNSIGNED(ORDERED_ROWS) SIGNED(ORDERED_ROWS) UNSIGNED(EQUAL_ROWS) SIGNED(ABS_ROW)
        ROW(wide_u16) ROW(wide_s16) ROW(wide_u32) ROW(wide_s32) ROW(high_u16) ROW(high_s16) ROW(high_u32) ROW(high_s32)
            ROW(high_u64) ROW(high_s64) ROW(bfe_u32) ROW(bfe_s32) ROW(bfe_u64) ROW(bfe_s64) ROW(bfi_u32) ROW(bfi_u64)
                ROW(prmt_u32) ROW(popc_u32) ROW(popc_u64) ROW(clz_u32) ROW(clz_u64) ROW(brev_u32) ROW(brev_u64)
                    ROW(shf_l_wrap_u32) ROW(shf_l_clamp_u32) ROW(shf_r_wrap_u32) ROW(shf_r_clamp_u32) ROW(mov_16)
                        ROW(mov_32) ROW(mov_64) ROW(mov_p) ROW(selp_16) ROW(selp_32) ROW(selp_64) ROW(and_pred)
                            ROW(or_pred) ROW(xor_pred) ROW(not_pred){NULL, NULL}};
