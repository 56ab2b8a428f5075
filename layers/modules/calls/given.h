/* given.h - the arrays that modules read (x, dy) and write (y, dx). A module that declares nothing else reads
 * x.floats and writes y->floats; then all these arrays are floats, in every storage. */
#ifndef SL_LAYERS_MODULES_CALLS_GIVEN_H
#define SL_LAYERS_MODULES_CALLS_GIVEN_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* The form of an array's values. If the storage is float32, an operand is SL_ALONE or SL_BESIDE. */
enum sl_form {
    SL_WHOLE,   /* floats, unrounded */
    SL_ROUNDED, /* floats rounded to bf16, and the same as bf16 if the array has halves */
    SL_ALONE,   /* bf16 */
    SL_BESIDE,  /* floats, unrounded, and a bf16 copy for products */
    SL_OPEN     /* floats, unrounded; forward, which reads them, writes the halves (SL_READS_WHOLE) */
};

/* An array to read. Without floats and halves there is no array. */
struct sl_given {
    const float *floats; /* NULL: bf16 alone */
    uint16_t *halves;    /* the values as bf16; NULL: floats alone */
    enum sl_form form;
};

/* How far the form of a result is written. */
enum sl_made {
    SL_ASKED, /* not yet; if the module does not write it, the end of the call does */
    SL_LEFT,  /* not yet; if the module does not write it, the caller does */
    SL_ADDED, /* the summand is added, to unrounded floats */
    SL_MADE
};

/* An array to write: memory, and the form that the caller needs. A module writes unrounded floats, or the form, and
 * then notes it in `made` (sl_result_out). */
struct sl_result {
    float *floats;     /* memory for floats, also if the form has none */
    uint16_t *halves;  /* memory for bf16; NULL: the form has none */
    enum sl_form form; /* needed by the caller; of the sum, if there is a summand */
    enum sl_made made;
    struct sl_given adds; /* summand that the module may add (enum sl_adding): x or dy of a residual connection */
    uint16_t *gelu;       /* for products planned for it, which must obey. Forward: write y here and gelu(y) to halves.
                             I: this is the gelu's x; multiply dx by the gelu's slope. NULL: no gelu */
};

/* Constructors: floats to read; bf16 to read; floats to write at AT. */
static inline struct sl_given sl_given_f32(const float *at) { return (struct sl_given){at, (uint16_t *)0, SL_WHOLE}; }
static inline struct sl_given sl_given_bf16(const void *at) {
    return (struct sl_given){(const float *)0, (uint16_t *)(uintptr_t)at, SL_ALONE};
}
static inline struct sl_given sl_given_of(struct sl_rows rows) {
    return rows.type == SL_BF16 ? sl_given_bf16(rows.at) : sl_given_f32((const float *)rows.at);
}
#define SL_INTO(at) (&(struct sl_result){.floats = (at)})

static inline bool sl_given_exists(struct sl_given x) { return x.floats || x.halves; }
/* X from element FIRST on. */
static inline struct sl_given sl_given_from(struct sl_given x, size_t first) {
    if (x.floats) x.floats += first;
    if (x.halves) x.halves += first;
    return x;
}
/* X as floats if it has floats, otherwise as bf16; and the other way round, unless the bf16 is only for products. */
static inline struct sl_rows sl_given_rows(struct sl_given x) {
    return x.halves && !x.floats ? sl_rows_bf16(x.halves) : sl_rows_f32(x.floats);
}
static inline struct sl_rows sl_given_stored(struct sl_given x) {
    return x.halves && x.form < SL_BESIDE ? sl_rows_bf16(x.halves) : sl_rows_f32(x.floats);
}
/* A result of floats, written to AT. */
static inline struct sl_result sl_result_f32(float *at) {
    const struct sl_given none = {(const float *)0, (uint16_t *)0, SL_WHOLE};
    return (struct sl_result){at, (uint16_t *)0, SL_WHOLE, SL_ASKED, none, (uint16_t *)0};
}
/* Floats of a result; NULL if the result is not wanted. */
static inline float *sl_result_floats(const struct sl_result *y) { return y ? y->floats : (float *)0; }

/* Whether the requested form has no unrounded floats. */
static inline bool sl_result_rounds(const struct sl_result *y) { return y->form == SL_ROUNDED || y->form == SL_ALONE; }
/* The requested form, for a kernel that writes all forms; notes that it is written. sl_result_out is for kernels that
 * cannot write unrounded floats with a copy: then Y is floats, and the call's end writes the copy.
 * sl_result_with_floats is for such kernels that always write floats. */
static inline struct sl_out sl_result_exactly(struct sl_result *y) {
    if (y->form == SL_WHOLE) return sl_out_f32(y->floats);
    y->made = SL_MADE;
    return sl_out_of(y->form == SL_ALONE ? (float *)0 : y->floats, y->form != SL_BESIDE, y->halves);
}
static inline struct sl_out sl_result_out(struct sl_result *y) {
    return y->form == SL_BESIDE ? sl_out_f32(y->floats) : sl_result_exactly(y);
}
static inline struct sl_out sl_result_with_floats(struct sl_result *y) {
    if (!sl_result_rounds(y)) return sl_out_f32(y->floats);
    y->made = SL_MADE;
    return sl_out_of(y->floats, true, y->halves);
}
/* As sl_result_exactly, for a pass that also adds *SUMMAND; without an address there is none. */
static inline struct sl_out sl_result_summed(struct sl_result *y, struct sl_rows *summand) {
    const struct sl_out out = sl_result_exactly(y);
    *summand = sl_given_stored(y->adds);
    if (summand->at) y->made = SL_MADE;
    return out;
}
/* Y after a call with SL_LEFT: in bf16 alone, or in unrounded floats. */
static inline struct sl_rows sl_result_rows(const struct sl_result *y) {
    return y->made == SL_MADE && y->form == SL_ALONE ? sl_rows_bf16(y->halves) : sl_rows_f32(y->floats);
}

SL_END_C

#endif
