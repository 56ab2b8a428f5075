/* dtype.h - element types of arrays, and arrays that know theirs: rows that kernels and products read, and results that
 * they write. A new type is added here alone: a constant, a row of the table (dtype.c), and a case of sl_load_float and
 * sl_store_float. Where code needs more than that, the compiler warns (-Wswitch). */
#ifndef SL_SPMD_BASE_DTYPE_H
#define SL_SPMD_BASE_DTYPE_H

#include "spmd/base/bf16.h"
#include "spmd/base/f16.h"

SL_BEGIN_C

/* SL_QUANTIZED: elements lie in quantized blocks (layers/storage/quantized/blocks.h), and have no addresses. So it is a
 * type of arrays alone, behind those that exist for files and communication. */
enum sl_dtype { SL_F32, SL_BF16, SL_I32, SL_F16, SL_QUANTIZED };

struct sl_dtype_row {
    const char *name;  /* in messages: "f32" */
    const char *label; /* in safetensors files: "F32" */
    size_t size;       /* bytes of one element */
    bool integer;      /* sums wrap around; there are no means */
};

extern const struct sl_dtype_row sl_dtypes[]; /* by enum sl_dtype */
extern const int sl_dtype_count;              /* of those with elements */

/* Bytes of one element. */
static inline size_t sl_dtype_size(enum sl_dtype dtype) { return sl_dtypes[dtype].size; }

/* Whether NUMBER is a dtype. */
static inline bool sl_dtype_exists(int number) { return number >= 0 && number < sl_dtype_count; }

/* A dtype of kernels' operands, of which there are two. Where it is no constant, or a compiler makes one call of those
 * for both, a loop that loads by this has no code for others. */
SL_INLINE enum sl_dtype sl_f32_or_bf16(enum sl_dtype dtype) { return dtype == SL_BF16 ? SL_BF16 : SL_F32; }

/* Element I of ARRAY as a float; integers are rounded. Loops pass a constant DTYPE and become code for it alone. */
SL_INLINE float sl_load_float(enum sl_dtype dtype, const void *array, size_t i) {
    switch (dtype) {
    case SL_F32:
        return ((const float *)array)[i];
    case SL_BF16:
        return sl_float_of_bf16(((const uint16_t *)array)[i]);
    case SL_I32:
        return (float)((const int32_t *)array)[i];
    case SL_F16:
        return sl_float_of_f16(((const uint16_t *)array)[i]);
    case SL_QUANTIZED:
        break;
    }
    return 0;
}

/* Makes VALUE element I of ARRAY: rounded to the nearest, for integers toward zero. */
SL_INLINE void sl_store_float(enum sl_dtype dtype, void *array, size_t i, float value) {
    switch (dtype) {
    case SL_F32:
        ((float *)array)[i] = value;
        return;
    case SL_BF16:
        ((uint16_t *)array)[i] = sl_bf16_of_float(value);
        return;
    case SL_I32:
        ((int32_t *)array)[i] = (int32_t)value;
        return;
    case SL_F16:
        ((uint16_t *)array)[i] = sl_f16_of_float(value);
        return;
    case SL_QUANTIZED:
        return;
    }
}

/* Rows that are read or written. The owner of the memory is the caller. */
struct sl_rows {
    void *at; /* NULL: there is no such array */
    enum sl_dtype type;
};

/* A result: its values, and perhaps a second form of them. Five forms occur: floats; floats that are rounded to bf16;
 * bf16; rounded floats with a copy in bf16; floats of all digits with a copy in bf16. */
struct sl_out {
    struct sl_rows rows;
    struct sl_rows copy; /* in bf16; at is NULL: there is none */
    bool rounds;         /* floats have the values that bf16 has */
};

static inline struct sl_rows sl_rows_of(enum sl_dtype type, const void *at) {
    return (struct sl_rows){(void *)(uintptr_t)at, type};
}
static inline struct sl_rows sl_rows_f32(const float *at) { return sl_rows_of(SL_F32, at); }
static inline struct sl_rows sl_rows_bf16(const uint16_t *at) { return sl_rows_of(SL_BF16, at); }

/* The same from element FIRST on. */
static inline struct sl_rows sl_rows_from(struct sl_rows rows, size_t first) {
    return sl_rows_of(rows.type, rows.at ? (const char *)rows.at + first * sl_dtype_size(rows.type) : NULL);
}

static inline struct sl_out sl_out_f32(float *at) {
    return (struct sl_out){sl_rows_f32(at), sl_rows_bf16(NULL), false};
}
static inline struct sl_out sl_out_bf16(uint16_t *at) {
    return (struct sl_out){sl_rows_bf16(at), sl_rows_bf16(NULL), false};
}
static inline struct sl_out sl_out_from(struct sl_out out, size_t first) {
    return (struct sl_out){sl_rows_from(out.rows, first), sl_rows_from(out.copy, first), out.rounds};
}
/* Floats Y that are left as LEFT says; if Y is NULL, what LEFT stores alone. */
static inline struct sl_out sl_out_settled(float *y, struct sl_settled left) {
    if (!y) return sl_out_bf16(left.stored);
    return (struct sl_out){sl_rows_f32(y), sl_rows_bf16(left.stored), left.rounds};
}

SL_END_C
#endif
