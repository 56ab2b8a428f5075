/* operations_convert.c - conversions, and registers as parts of wider ones. */
#include "operations.h"

#define CVT(to, of)                                                                                                    \
    OPERATION(cvt_##to##_##of) { OUT(to, CONVERT(IN(of, 1), v_##to)); }
#define CVT_ROW(to, of) ROW(cvt_##to##_##of)
/* clang-format off */
#define WIDTHS(X)                                                                                                      \
    X(u8, u16) X(u8, u32) X(u8, u64) X(s8, u16) X(s8, u32) X(s8, u64) X(s8, s16) X(s8, s32) X(s8, s64)                 \
    X(u8, s16) X(u8, s32) X(u8, s64)                                                                                   \
    X(u16, u8) X(u32, u8) X(u64, u8) X(u16, s8) X(u32, s8) X(u64, s8) X(s16, s8) X(s32, s8) X(s64, s8)                 \
    X(s16, u8) X(s32, u8) X(s64, u8)                                                                                   \
    X(u16, u32) X(u16, u64) X(u32, u16) X(u32, u64) X(u64, u16) X(u64, u32)                                            \
    X(s16, s32) X(s16, s64) X(s32, s16) X(s32, s64) X(s64, s16) X(s64, s32)                                            \
    X(u16, s32) X(u16, s64) X(u32, s16) X(u32, s64) X(u64, s16) X(u64, s32)                                            \
    X(s16, u32) X(s16, u64) X(s32, u16) X(s32, u64) X(s64, u16) X(s64, u32)
#define TO_FLOAT(X)                                                                                                    \
    X(f32, u8) X(f32, s8) X(f32, u16) X(f32, s16) X(f32, u32) X(f32, s32) X(f32, u64) X(f32, s64) X(f32, f64)          \
    X(f64, u8) X(f64, s8) X(f64, u16) X(f64, s16) X(f64, u32) X(f64, s32) X(f64, u64) X(f64, s64) X(f64, f32)
#define OF_FLOAT(X)                                                                                                    \
    X(u8, f32) X(s8, f32) X(u16, f32) X(s16, f32) X(u32, f32) X(s32, f32) X(u64, f32) X(s64, f32)                      \
    X(u8, f64) X(s8, f64) X(u16, f64) X(s16, f64) X(u32, f64) X(s32, f64) X(u64, f64) X(s64, f64)
/* clang-format on */
WIDTHS(CVT)
TO_FLOAT(CVT)
#define WHOLE(to, of)                                                                                                  \
    OPERATION(cvt_##to##_##of) { OUT(to, ptx_##to##_of_##of(IN(of, 1))); }
OF_FLOAT(WHOLE)

OPERATION(cvt_bf16x2_f32) { OUT(u32, ptx_bf16(IN(f32, 1)) << 16 | ptx_bf16(IN(f32, 2))); }
OPERATION(cvt_bf16_f32) { OUT(u16, CONVERT(ptx_bf16(IN(f32, 1)), v_u16)); }
OPERATION(cvt_f32_bf16) { OUT(f32, (v_f32)(CONVERT(IN(u16, 1), v_u32) << 16)); }
OPERATION(cvt_f32_f16) { OUT(f32, CONVERT((v_f16)IN(u16, 1), v_f32)); }
OPERATION(cvt_f16_f32) { OUT(u16, (v_u16)CONVERT(IN(f32, 1), v_f16)); }

#define PART(part, whole)                                                                                              \
    OPERATION(part_##part##_##whole) { OUT(part, CONVERT(IN(whole, 1) >> (v_##whole)(o->n[2]), v_##part)); }
PART(u8, u16)
PART(u8, u32)
PART(u16, u32)
PART(u16, u64)
PART(u32, u64)
#define JOIN2(part, whole, bits) CONVERT(IN(part, 1), v_##whole) | CONVERT(IN(part, 2), v_##whole) << bits
#define JOIN4(part, whole, bits)                                                                                       \
    CONVERT(IN(part, 3), v_##whole) << 2 * bits | CONVERT(IN(part, 4), v_##whole) << 3 * bits
OPERATION(join2_u16) { OUT(u16, JOIN2(u8, u16, 8)); }
OPERATION(join2_u32) { OUT(u32, JOIN2(u16, u32, 16)); }
OPERATION(join2_u64) { OUT(u64, JOIN2(u32, u64, 32)); }
OPERATION(join4_u32) { OUT(u32, JOIN2(u8, u32, 8) | JOIN4(u8, u32, 8)); }
OPERATION(join4_u64) { OUT(u64, JOIN2(u16, u64, 16) | JOIN4(u16, u64, 16)); }

/* clang-format off */
const struct ptx_operation ptx_convert_operations[] = {
    WIDTHS(CVT_ROW) TO_FLOAT(CVT_ROW) OF_FLOAT(CVT_ROW) ROW(cvt_bf16x2_f32) ROW(cvt_bf16_f32) ROW(cvt_f32_bf16)
        ROW(cvt_f32_f16) ROW(cvt_f16_f32) ROW(part_u8_u16) ROW(part_u8_u32) ROW(part_u16_u32) ROW(part_u16_u64)
            ROW(part_u32_u64) ROW(join2_u16) ROW(join2_u32) ROW(join2_u64) ROW(join4_u32) ROW(join4_u64){NULL, NULL}};
