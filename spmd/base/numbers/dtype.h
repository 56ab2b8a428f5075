/* dtype.h - element types; arrays with a type: rows for kernels and products to read, and results to write. To add a
 * type, add a constant, a row of the table (dtype.c), and a case of sl_load_float and sl_store_float. If further code
 * needs a case, the compiler warns (-Wswitch). */
#ifndef SL_SPMD_BASE_NUMBERS_DTYPE_H
#define SL_SPMD_BASE_NUMBERS_DTYPE_H

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/f16.h"

SL_BEGIN_C

/* SL_QUANTIZED: elements lie in quantized blocks (layers/formats/quantized/blocks.h), and have no addresses. It is a
 * type of arrays only; files and communication have the types before it. */
enum sl_dtype { SL_F32, SL_BF16, SL_I32, SL_F16, SL_QUANTIZED };

struct sl_dtype_row {
    const char *name;  /* in messages: "f32" */
    const char *label; /* in safetensors files: "F32" */
    size_t size;       /* bytes of one element */
    bool integer;      /* integer type: sums wrap around; there are no means */
};

extern const struct sl_dtype_row sl_dtypes[]; /* by enum sl_dtype */
extern const int sl_dtype_count;              /* types with elements: all before SL_QUANTIZED */

/* Bytes of one element. */
static inline size_t sl_dtype_size(enum sl_dtype dtype) { return sl_dtypes[dtype].size; }

/* Whether NUMBER is a dtype. */
static inline bool sl_dtype_exists(int number) { return number >= 0 && number < sl_dtype_count; }

/* Returns SL_BF16 or SL_F32, the two dtypes of kernels' operands. If DTYPE is not a constant, or the compiler merges
 * the calls for both types, a loop that loads by the result has no code for other types. */
SL_INLINE enum sl_dtype sl_f32_or_bf16(enum sl_dtype dtype) { return dtype == SL_BF16 ? SL_BF16 : SL_F32; }

/* Element I of ARRAY as a float; integers are rounded. Loops pass a constant DTYPE, and so become code for one type. */
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

/* Writes VALUE to element I of ARRAY: rounded to nearest; for integers toward zero. */
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

/* Rows to read or write; the caller owns the memory. */
struct sl_rows {
    void *at; /* NULL: no array */
    enum sl_dtype type;
};

/* A result and an optional copy in bf16. Five forms occur: float32; float32 rounded to bf16; bf16; rounded float32 with
 * a bf16 copy; unrounded float32 with a bf16 copy. */
struct sl_out {
    struct sl_rows rows;
    struct sl_rows copy; /* bf16; at is NULL: no copy */
    bool rounds;         /* the floats are rounded to bf16 */
};

static inline struct sl_rows sl_rows_of(enum sl_dtype type, const void *at) {
    return (struct sl_rows){(void *)(uintptr_t)at, type};
}
static inline struct sl_rows sl_rows_f32(const float *at) { return sl_rows_of(SL_F32, at); }
static inline struct sl_rows sl_rows_bf16(const uint16_t *at) { return sl_rows_of(SL_BF16, at); }

/* ROWS from element FIRST on. */
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
/* Floats Y, rounded to bf16 if ROUNDS, with a COPY in bf16 unless it is NULL; if Y is NULL, only the copy. */
static inline struct sl_out sl_out_of(float *y, bool rounds, uint16_t *copy) {
    if (!y) return sl_out_bf16(copy);
    return (struct sl_out){sl_rows_f32(y), sl_rows_bf16(copy), rounds};
}

/* The floats of OUT, or NULL; and its bf16 elements, which are its values or a copy, or NULL. */
static inline float *sl_out_floats(struct sl_out out) { return out.rows.type == SL_F32 ? (float *)out.rows.at : NULL; }
static inline uint16_t *sl_out_halves(struct sl_out out) {
    return (uint16_t *)(out.rows.type == SL_BF16 ? out.rows.at : out.copy.at);
}

SL_END_C
#endif
