/* use.h - how a module uses the arrays at its two ends. */
#ifndef SL_LAYERS_MODULES_CALLS_USE_H
#define SL_LAYERS_MODULES_CALLS_USE_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* State of a gelu that is the only reader of a module's y, or the writer of its x. APART: there is no gelu, or it is
 * called as a module. NEXT: there is one; the parent sets this before it plans the module. DONE: forward, or I, can
 * compute the gelu's part, too (struct sl_result). */
enum sl_gelu_part { SL_GELU_APART, SL_GELU_NEXT, SL_GELU_DONE };

/* Lifetime of an array written by a module's forward or I; or of x and dy, which the module's owner saves: x is
 * written before forward, dy before I. A longer one has a higher number. */
enum sl_lifetime {
    SL_UNTIL_RETURN, /* until the call returns; x: until forward returns; dy: until I returns */
    SL_UNTIL_INPUT,  /* until I, which reads it; W does not */
    SL_UNTIL_WEIGHT, /* until W, which reads it */
    SL_FROM_INPUT    /* from I, which writes it (or reads dy), until W */
};

/* Use of one end of a module: x, read by forward, and dx, written by I; or y and dy. SL_F32, the default of a type,
 * means that it reads and writes floats. SL_BF16 means: */
struct sl_use {
    enum sl_lifetime lasts; /* of x, or of dy; plan may shorten it: backward functions then receive NULL */
    enum sl_dtype reads;    /* if x, or dy, has a bf16 copy, the pass that reads it reads only this copy */
    enum sl_dtype leaves;   /* if the floats of dx are not read, the pass that writes dx writes only bf16 */
    enum sl_dtype beside;  /* that pass can write unrounded floats and a bf16 copy, so an operand is rounded once. At y:
                              if the storage is float32, I reads dy both as such an operand and as floats */
    enum sl_dtype adds;    /* a bf16 summand is added in the same pass, and the sum may be written like dx */
    enum sl_dtype operand; /* if the storage is float32, products on a device, also W's, read only bf16 */
    enum sl_dtype given;   /* set by the parent after planning, if it saves such an operand as bf16 */
    enum sl_gelu_part gelu;
};

static inline enum sl_dtype sl_bf16_if(bool holds) { return holds ? SL_BF16 : SL_F32; }
static inline enum sl_lifetime sl_until_weight_if(bool holds) { return holds ? SL_UNTIL_WEIGHT : SL_UNTIL_RETURN; }
static inline enum sl_lifetime sl_from_input_if(bool holds) { return holds ? SL_FROM_INPUT : SL_UNTIL_RETURN; }
static inline enum sl_lifetime sl_longer(enum sl_lifetime a, enum sl_lifetime b) { return a > b ? a : b; }
/* Whether x, or dy, is saved for backward, or for W. */
static inline bool sl_is_kept(const struct sl_use *use) { return use->lasts != SL_UNTIL_RETURN; }

SL_END_C

#endif
