/* use.h - how a module uses the arrays at its two ends. */
#ifndef SL_LAYERS_MODULES_USE_H
#define SL_LAYERS_MODULES_USE_H

#include "spmd/base/dtype.h"

SL_BEGIN_C

/* A gelu that alone reads a module's y, or leaves its x. APART: none, or one that is called as others are. NEXT: one,
 * as the parent says before it plans the module. DONE: forward, or I, can do its part, too (struct sl_result). */
enum sl_gelu_part { SL_GELU_APART, SL_GELU_NEXT, SL_GELU_DONE };

/* How a module uses one of its ends: x, which forward reads, and dx, which I writes; or y and dy. A type that says
 * nothing, SL_F32, reads and writes floats. SL_BF16: */
struct sl_use {
    enum sl_dtype reads;   /* where x, or dy, is stored as bf16, the pass that takes it reads only that */
    enum sl_dtype leaves;  /* dx is left as bf16 alone where nobody reads its floats, in the pass that writes it, */
    enum sl_dtype beside;  /* or as floats of all digits, and as bf16 beside: so an operand is rounded once. At y: where
                              the storage is float, I reads dy as such an operand, and as floats, too */
    enum sl_dtype adds;    /* a summand that is bf16 is added in the same pass, and the sum may be left as dx is */
    enum sl_dtype operand; /* where the storage is float, a device's products read bf16 alone, W's, too. Its parent */
    enum sl_dtype given;   /* may keep it so, and says so when the module has been planned */
    enum sl_gelu_part gelu;
};

static inline enum sl_dtype sl_bf16_if(bool holds) { return holds ? SL_BF16 : SL_F32; }

SL_END_C

#endif
