/* lanes.h - arithmetic of PTX on vectors of a warp's 32 lanes, as the PTX ISA defines it. A predicate is a mask with a
 * bit a lane. Lanes that do not run an instruction compute, too; their results are dropped. */
#ifndef PTX_LANES_H
#define PTX_LANES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PTX_VECTOR(name, type) typedef type name __attribute__((ext_vector_type(32)))
PTX_VECTOR(v_u8, uint8_t);
PTX_VECTOR(v_s8, int8_t);
PTX_VECTOR(v_u16, uint16_t);
PTX_VECTOR(v_s16, int16_t);
PTX_VECTOR(v_u32, uint32_t);
PTX_VECTOR(v_s32, int32_t);
PTX_VECTOR(v_u64, uint64_t);
PTX_VECTOR(v_s64, int64_t);
PTX_VECTOR(v_f16, _Float16);
PTX_VECTOR(v_f32, float);
PTX_VECTOR(v_f64, double);
PTX_VECTOR(v_bool, _Bool);

#define CONVERT(x, type) __builtin_convertvector(x, type)

static inline uint32_t ptx_mask_of(v_bool lanes) {
    uint32_t mask;
    memcpy(&mask, &lanes, sizeof mask);
    return mask;
}
static inline v_bool ptx_lanes_of(uint32_t mask) {
    v_bool lanes;
    memcpy(&lanes, &mask, sizeof mask);
    return lanes;
}
/* The mask of lanes for which a comparison holds; the lanes of MASK from A, the others from B. */
#define LANES(comparison) ptx_mask_of(CONVERT(comparison, v_bool))
#define SELECT8(mask, a, b) ((CONVERT(ptx_lanes_of(mask), v_s8) != 0) ? (a) : (b))
#define SELECT16(mask, a, b) ((CONVERT(ptx_lanes_of(mask), v_s16) != 0) ? (a) : (b))
#define SELECT32(mask, a, b) ((CONVERT(ptx_lanes_of(mask), v_s32) != 0) ? (a) : (b))
#define SELECT64(mask, a, b) ((CONVERT(ptx_lanes_of(mask), v_s64) != 0) ? (a) : (b))

static const v_u32 ptx_lanes = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static inline float ptx_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline double ptx_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- elements of 2 or 4, which lie side by side for each lane ---- */

#define PTX_EVERY2(i)                                                                                                  \
    (i), (i) + 2, (i) + 4, (i) + 6, (i) + 8, (i) + 10, (i) + 12, (i) + 14, (i) + 16, (i) + 18, (i) + 20, (i) + 22,     \
        (i) + 24, (i) + 26, (i) + 28, (i) + 30, (i) + 32, (i) + 34, (i) + 36, (i) + 38, (i) + 40, (i) + 42, (i) + 44,  \
        (i) + 46, (i) + 48, (i) + 50, (i) + 52, (i) + 54, (i) + 56, (i) + 58, (i) + 60, (i) + 62
#define PTX_EVERY4(i)                                                                                                  \
    (i), (i) + 4, (i) + 8, (i) + 12, (i) + 16, (i) + 20, (i) + 24, (i) + 28, (i) + 32, (i) + 36, (i) + 40, (i) + 44,   \
        (i) + 48, (i) + 52, (i) + 56, (i) + 60, (i) + 64, (i) + 68, (i) + 72, (i) + 76, (i) + 80, (i) + 84, (i) + 88,  \
        (i) + 92, (i) + 96, (i) + 100, (i) + 104, (i) + 108, (i) + 112, (i) + 116, (i) + 120, (i) + 124
#define PTX_TURNS(i)                                                                                                   \
    (i), (i) + 32, (i) + 1, (i) + 33, (i) + 2, (i) + 34, (i) + 3, (i) + 35, (i) + 4, (i) + 36, (i) + 5, (i) + 37,      \
        (i) + 6, (i) + 38, (i) + 7, (i) + 39, (i) + 8, (i) + 40, (i) + 9, (i) + 41, (i) + 10, (i) + 42, (i) + 11,      \
        (i) + 43, (i) + 12, (i) + 44, (i) + 13, (i) + 45, (i) + 14, (i) + 46, (i) + 15, (i) + 47
#define PTX_WIDER(bits)                                                                                                \
    typedef uint##bits##_t v2_u##bits __attribute__((ext_vector_type(64), aligned(8)));                                \
    typedef uint##bits##_t v4_u##bits __attribute__((ext_vector_type(128), aligned(8)));
PTX_WIDER(8)
PTX_WIDER(16)
PTX_WIDER(32)
PTX_WIDER(64)
#define PTX_PART(elements, bits, x, i, type, every)                                                                    \
    ((type)__builtin_shufflevector(*(const v##elements##_u##bits *)(x), *(const v##elements##_u##bits *)(x), every(i)))
#define PART2_8(x, i, type) PTX_PART(2, 8, x, i, type, PTX_EVERY2)
#define PART2_16(x, i, type) PTX_PART(2, 16, x, i, type, PTX_EVERY2)
#define PART2_32(x, i, type) PTX_PART(2, 32, x, i, type, PTX_EVERY2)
#define PART2_64(x, i, type) PTX_PART(2, 64, x, i, type, PTX_EVERY2)
#define PART4_8(x, i, type) PTX_PART(4, 8, x, i, type, PTX_EVERY4)
#define PART4_16(x, i, type) PTX_PART(4, 16, x, i, type, PTX_EVERY4)
#define PART4_32(x, i, type) PTX_PART(4, 32, x, i, type, PTX_EVERY4)
#define PTX_JOIN(bits)                                                                                                 \
    static inline void ptx_join_##bits(void *x, v_u##bits a, v_u##bits b) {                                            \
        v_u##bits *to = x;                                                                                             \
        to[0] = __builtin_shufflevector(a, b, PTX_TURNS(0));                                                           \
        to[1] = __builtin_shufflevector(a, b, PTX_TURNS(16));                                                          \
    }
PTX_JOIN(8)
PTX_JOIN(16)
PTX_JOIN(32)
PTX_JOIN(64)
#define JOIN2_8(x, a, b) ptx_join_8(x, (v_u8)(a), (v_u8)(b))
#define JOIN2_16(x, a, b) ptx_join_16(x, (v_u16)(a), (v_u16)(b))
#define JOIN2_32(x, a, b) ptx_join_32(x, (v_u32)(a), (v_u32)(b))
#define JOIN2_64(x, a, b) ptx_join_64(x, (v_u64)(a), (v_u64)(b))
#define PTX_JOIN4(x, bits, wide, a, b, c, d)                                                                           \
    do {                                                                                                               \
        v_u##wide ab_, cd_;                                                                                            \
        ptx_join_##bits(&ab_, (v_u##bits)(a), (v_u##bits)(b));                                                         \
        ptx_join_##bits(&cd_, (v_u##bits)(c), (v_u##bits)(d));                                                         \
        ptx_join_##wide(x, ab_, cd_);                                                                                  \
    } while (0)
#define JOIN4_8(x, a, b, c, d) PTX_JOIN4(x, 8, 16, a, b, c, d)
#define JOIN4_16(x, a, b, c, d) PTX_JOIN4(x, 16, 32, a, b, c, d)
#define JOIN4_32(x, a, b, c, d) PTX_JOIN4(x, 32, 64, a, b, c, d)

/* ---- floating point ---- */

/* .ftz: subnormal numbers become zero and keep their sign. */
static inline v_f32 ptx_flush(v_f32 x) {
    const v_u32 bits = (v_u32)x;
    return (v_f32)((bits & 0x7f800000u) != 0 ? bits : bits & 0x80000000u);
}
/* .sat: to [0, 1]; NaN becomes 0. */
static inline v_f32 ptx_saturate_f32(v_f32 x) { return x > 1 ? (v_f32)(1.0f) : x > 0 ? x : (v_f32)(0.0f); }
static inline v_f64 ptx_saturate_f64(v_f64 x) { return x > 1 ? (v_f64)(1.0) : x > 0 ? x : (v_f64)(0.0); }
/* If one is NaN, the other one; if both are, canonical NaN; -0 is less than +0. */
#define PTX_EXTREMES(f, u, s, nan)                                                                                     \
    static inline v_##f ptx_min_##f(v_##f a, v_##f b) {                                                                \
        const v_##f x = a < b ? a : a > b ? b : (v_##f)((v_##u)a | (v_##u)b);                                          \
        const v_##f y = a != a ? b : b != b ? a : x;                                                                   \
        return y != y ? (v_##f)((v_##u)(nan)) : y;                                                                     \
    }                                                                                                                  \
    static inline v_##f ptx_max_##f(v_##f a, v_##f b) {                                                                \
        const v_##f x = a > b ? a : a < b ? b : (v_##f)((v_##u)a & (v_##u)b);                                          \
        const v_##f y = a != a ? b : b != b ? a : x;                                                                   \
        return y != y ? (v_##f)((v_##u)(nan)) : y;                                                                     \
    }
PTX_EXTREMES(f32, u32, s32, 0x7fffffffu)
PTX_EXTREMES(f64, u64, s64, 0x7fffffffffffffffull)

/* Approximate instructions, whose last bits PTX leaves open, are rounded here. */
#define PTX_EACH(name, vector, type, expression)                                                                       \
    static inline vector ptx_##name(vector x) {                                                                        \
        vector y;                                                                                                      \
        for (int i = 0; i < 32; i++) {                                                                                 \
            const type z = x[i];                                                                                       \
            y[i] = (type)(expression);                                                                                 \
        }                                                                                                              \
        return y;                                                                                                      \
    }
PTX_EACH(ex2_f32, v_f32, float, exp2f(z))
PTX_EACH(lg2_f32, v_f32, float, log2f(z))
PTX_EACH(sin_f32, v_f32, float, sinf(z))
PTX_EACH(cos_f32, v_f32, float, cosf(z))
PTX_EACH(tanh_f32, v_f32, float, tanhf(z))
static inline v_f32 ptx_rsqrt_f32(v_f32 x) { return CONVERT(1 / __builtin_elementwise_sqrt(CONVERT(x, v_f64)), v_f32); }
static inline v_f64 ptx_rsqrt_f64(v_f64 x) { return 1 / __builtin_elementwise_sqrt(x); }

/* The 16 bits of each, in 32: to nearest, ties to even; NaN is 0x7fff. */
static inline v_u32 ptx_bf16(v_f32 x) {
    const v_u32 bits = (v_u32)x;
    return x != x ? (v_u32)(0x7fffu) : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

/* To integers, of values that are whole already: beyond the range its end. NaN becomes 0; if one of the two has 64
 * bits, the integer whose top bit alone is set. */
#define PTX_WHOLE(to, type, of, float_type, low, beyond, least, most)                                                  \
    static inline v_##to ptx_##to##_of_##of(v_##of x) {                                                                \
        const int wide = sizeof(type) == 8 || sizeof(float_type) == 8;                                                 \
        const type none = (type)(wide ? 1ull << (8 * sizeof(type) - 1) : 0);                                           \
        v_##to y;                                                                                                      \
        for (int i = 0; i < 32; i++) {                                                                                 \
            const float_type z = x[i];                                                                                 \
            y[i] = z != z ? none : z < low ? (type)(least) : z >= beyond ? (type)(most) : (type)z;                     \
        }                                                                                                              \
        return y;                                                                                                      \
    }
#define PTX_WHOLE_OF(of, type)                                                                                         \
    PTX_WHOLE(s8, int8_t, of, type, -0x1p7, 0x1p7, INT8_MIN, INT8_MAX)                                                 \
    PTX_WHOLE(u8, uint8_t, of, type, 0, 0x1p8, 0, UINT8_MAX)                                                           \
    PTX_WHOLE(s16, int16_t, of, type, -0x1p15, 0x1p15, INT16_MIN, INT16_MAX)                                           \
    PTX_WHOLE(u16, uint16_t, of, type, 0, 0x1p16, 0, UINT16_MAX)                                                       \
    PTX_WHOLE(s32, int32_t, of, type, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX)                                           \
    PTX_WHOLE(u32, uint32_t, of, type, 0, 0x1p32, 0, UINT32_MAX)                                                       \
    PTX_WHOLE(s64, int64_t, of, type, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)                                           \
    PTX_WHOLE(u64, uint64_t, of, type, 0, 0x1p64, 0, UINT64_MAX)
PTX_WHOLE_OF(f32, float)
PTX_WHOLE_OF(f64, double)

/* ---- integers ---- */

/* By zero a GPU's quotient is all ones, and the remainder the dividend: the ISA leaves both open. */
#define PTX_DIVISION(t, type, minus_one)                                                                               \
    static inline v_##t ptx_divide_##t(v_##t a, v_##t b) {                                                             \
        v_##t y;                                                                                                       \
        for (int i = 0; i < 32; i++)                                                                                   \
            y[i] = !b[i] ? (type) - 1 : minus_one(b[i]) ? (type)(0 - (uint64_t)a[i]) : (type)(a[i] / b[i]);            \
        return y;                                                                                                      \
    }                                                                                                                  \
    static inline v_##t ptx_remainder_##t(v_##t a, v_##t b) {                                                          \
        v_##t y;                                                                                                       \
        for (int i = 0; i < 32; i++) y[i] = !b[i] ? a[i] : minus_one(b[i]) ? 0 : (type)(a[i] % b[i]);                  \
        return y;                                                                                                      \
    }
#define PTX_NEVER(b) 0
#define PTX_MINUS_ONE(b) ((b) == -1)
PTX_DIVISION(u16, uint16_t, PTX_NEVER)
PTX_DIVISION(u32, uint32_t, PTX_NEVER)
PTX_DIVISION(u64, uint64_t, PTX_NEVER)
PTX_DIVISION(s16, int16_t, PTX_MINUS_ONE)
PTX_DIVISION(s32, int32_t, PTX_MINUS_ONE)
PTX_DIVISION(s64, int64_t, PTX_MINUS_ONE)

static inline v_u64 ptx_high_u64(v_u64 a, v_u64 b) {
    v_u64 y;
    for (int i = 0; i < 32; i++) y[i] = (uint64_t)((unsigned __int128)a[i] * b[i] >> 64);
    return y;
}
static inline v_s64 ptx_high_s64(v_s64 a, v_s64 b) {
    v_s64 y;
    for (int i = 0; i < 32; i++) y[i] = (int64_t)((__int128)a[i] * b[i] >> 64);
    return y;
}
/* The least integer's magnitude is itself. */
#define PTX_MAGNITUDE(s, u)                                                                                            \
    static inline v_##s ptx_magnitude_##s(v_##s x) { return x < 0 ? (v_##s)(-(v_##u)x) : x; }
PTX_MAGNITUDE(s16, u16)
PTX_MAGNITUDE(s32, u32)
PTX_MAGNITUDE(s64, u64)

/* Shifts by more than the width shift all bits out. */
#define PTX_SHIFT_LEFT(t, bits)                                                                                        \
    static inline v_##t ptx_left_##t(v_##t x, v_u32 by) {                                                              \
        const v_##t y = x << CONVERT(by & (bits - 1u), v_##t);                                                         \
        return SELECT##bits(LANES(by < (uint32_t)bits), y, (v_##t)(0));                                                \
    }
#define PTX_SHIFT_RIGHT(t, bits)                                                                                       \
    static inline v_##t ptx_right_##t(v_##t x, v_u32 by) {                                                             \
        const v_##t y = x >> CONVERT(by & (bits - 1u), v_##t);                                                         \
        return SELECT##bits(LANES(by < (uint32_t)bits), y, (v_##t)(0));                                                \
    }
#define PTX_SHIFT_SIGNED(t, bits)                                                                                      \
    static inline v_##t ptx_right_##t(v_##t x, v_u32 by) {                                                             \
        return x >> CONVERT(__builtin_elementwise_min(by, (v_u32)(bits - 1u)), v_##t);                                 \
    }
PTX_SHIFT_LEFT(u16, 16)
PTX_SHIFT_LEFT(u32, 32)
PTX_SHIFT_LEFT(u64, 64)
PTX_SHIFT_RIGHT(u16, 16)
PTX_SHIFT_RIGHT(u32, 32)
PTX_SHIFT_RIGHT(u64, 64)
PTX_SHIFT_SIGNED(s16, 16)
PTX_SHIFT_SIGNED(s32, 32)
PTX_SHIFT_SIGNED(s64, 64)

/* shf: of the 64 bits b:a; its amount wraps at 32 or ends there. */
static inline v_u32 ptx_wrap(v_u32 by) { return by & 31u; }
static inline v_u32 ptx_clamp(v_u32 by) { return __builtin_elementwise_min(by, (v_u32)(32u)); }
static inline v_u64 ptx_both(v_u32 low, v_u32 high) { return CONVERT(high, v_u64) << 32 | CONVERT(low, v_u64); }
static inline v_u32 ptx_funnel_left(v_u32 a, v_u32 b, v_u32 by) {
    return CONVERT(ptx_both(a, b) << CONVERT(by, v_u64) >> 32, v_u32);
}
static inline v_u32 ptx_funnel_right(v_u32 a, v_u32 b, v_u32 by) {
    return CONVERT(ptx_both(a, b) >> CONVERT(by, v_u64), v_u32);
}

/* bfe, bfi: position and length are their low 8 bits. Bits beyond the top are the sign, or zeros. */
#define PTX_EXTRACT(t, bits)                                                                                           \
    static inline v_##t ptx_extract_##t(v_##t a, v_u32 from, v_u32 length) {                                           \
        const v_##t y = ptx_right_##t(a, from & 255u);                                                                 \
        return y & (ptx_left_##t((v_##t)(1), length & 255u) - 1);                                                      \
    }
#define PTX_EXTRACT_SIGNED(t, bits)                                                                                    \
    static inline v_##t ptx_extract_##t(v_##t a, v_u32 from, v_u32 length) {                                           \
        v_##t y;                                                                                                       \
        for (int i = 0; i < 32; i++)                                                                                   \
            y[i] = (int##bits##_t)ptx_bits((uint64_t)(int64_t)a[i], from[i] & 255, length[i] & 255, bits, 1);          \
        return y;                                                                                                      \
    }
static inline uint64_t ptx_bits(uint64_t a, uint32_t from, uint32_t length, uint32_t width, int is_signed) {
    const uint32_t top = from + length - 1 < width - 1 ? from + length - 1 : width - 1;
    const uint64_t sign = is_signed && length && a >> top & 1 ? ~0ull : 0;
    uint64_t y = 0;
    for (uint32_t i = 0; i < width; i++) {
        const uint64_t bit = i < length && from + i < width ? a >> (from + i) & 1 : sign & 1;
        y |= bit << i;
    }
    return y;
}
PTX_EXTRACT(u32, 32)
PTX_EXTRACT(u64, 64)
PTX_EXTRACT_SIGNED(s32, 32)
PTX_EXTRACT_SIGNED(s64, 64)
static inline uint64_t ptx_put_bits(uint64_t a, uint64_t b, uint32_t at, uint32_t length, uint32_t width) {
    if (at >= width) return b;
    const uint64_t mask = (length > 63 ? ~0ull : (1ull << length) - 1) << at;
    return (b & ~mask) | (a << at & mask);
}
#define PTX_INSERT(t, bits)                                                                                            \
    static inline v_##t ptx_insert_##t(v_##t a, v_##t b, v_u32 at, v_u32 length) {                                     \
        v_##t y;                                                                                                       \
        for (int i = 0; i < 32; i++)                                                                                   \
            y[i] = (uint##bits##_t)ptx_put_bits(a[i], b[i], at[i] & 255, length[i] & 255, bits);                       \
        return y;                                                                                                      \
    }
PTX_INSERT(u32, 32)
PTX_INSERT(u64, 64)

/* prmt: each nibble of C picks one of the eight bytes of B:A; its top bit, that byte's sign instead. */
static inline v_u32 ptx_permute(v_u32 a, v_u32 b, v_u32 c) {
    const v_u64 both = ptx_both(a, b);
    v_u32 y = 0;
    for (int i = 0; i < 4; i++) {
        const v_u32 picked = c >> (4 * i);
        const v_u32 byte = CONVERT(both >> CONVERT(8 * (picked & 7u), v_u64), v_u32) & 255u;
        const v_u32 sign = (v_u32)((byte & 128u) != 0) & 255u;
        y |= ((picked & 8u) != 0 ? sign : byte) << (8 * i);
    }
    return y;
}

#define PTX_COUNTS(t, leading, bits)                                                                                   \
    static inline v_u32 ptx_leading_##t(v_##t x) {                                                                     \
        v_u32 y;                                                                                                       \
        for (int i = 0; i < 32; i++) y[i] = x[i] ? (uint32_t)leading(x[i]) : bits;                                     \
        return y;                                                                                                      \
    }                                                                                                                  \
    static inline v_u32 ptx_population_##t(v_##t x) {                                                                  \
        v_u32 y;                                                                                                       \
        for (int i = 0; i < 32; i++) y[i] = (uint32_t)__builtin_popcountll(x[i]);                                      \
        return y;                                                                                                      \
    }
PTX_COUNTS(u32, __builtin_clz, 32)
PTX_COUNTS(u64, __builtin_clzll, 64)

#endif
