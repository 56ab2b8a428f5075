/* use.h - how a module uses the arrays at its two ends. */
#ifndef SL_LAYERS_MODULES_CALLS_USE_H
#define SL_LAYERS_MODULES_CALLS_USE_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* Lifetime of an array written by a module's forward or I; or of x and dy, which the module's owner saves: x is
 * written before forward, dy before I. A longer one has a higher number. W receives no x that lasts no longer than
 * until I. */
enum sl_lifetime {
    SL_UNTIL_RETURN, /* until the call returns; x: until forward returns; dy: until I returns */
    SL_UNTIL_DX,     /* x: until I, which reads it and accepts the same array for x and dx */
    SL_UNTIL_INPUT,  /* until I, which reads it; W does not */
    SL_UNTIL_WEIGHT, /* until W, which reads it */
    SL_FROM_INPUT    /* from I, which writes it (or reads dy), until W */
};

/* How forward reads x, or I reads dy. Values from SL_READS_COPY on read a bf16 copy if there is one. An operand is an
 * array that products on a device, also W's, read only as bf16 although the storage is float32. */
enum sl_reading {
    SL_READS_FLOATS, /* floats, rounded if the storage is bf16; the default */
    SL_READS_WHOLE,  /* dy: unrounded floats, which I rounds in the same pass if the storage is bf16. x, of modules
                        without children: if x and y are saved as bf16, forward reads unrounded floats, and also writes
                        their bf16 copy; if x and dx are saved, I reads unrounded dy */
    SL_READS_COPY,   /* the bf16 copy alone */
    SL_READS_EITHER, /* dy: the copy alone, or else as SL_READS_WHOLE */
    SL_READS_BOTH,   /* dy: an operand, and unrounded floats */
    SL_READS_OPERAND /* an operand */
};

/* Forms in which forward can write y, or I dx. A higher value includes the lower ones. */
enum sl_writing {
    SL_WRITES_FLOATS, /* unrounded floats; the default */
    SL_WRITES_ASKED,  /* may write the form that the caller needs (enum sl_form); otherwise the call's end does. Types
                         that fuse; for I, types that also store */
    SL_WRITES_BF16,   /* always writes bf16 alone if the floats are not read */
    SL_WRITES_BOTH    /* also unrounded floats and their bf16 copy, so an operand is rounded once */
};

/* Summand (struct sl_result) that forward can add to y, or I to dx, in the pass that writes it. A parent passes its
 * summand to its last child (forward) or its first (I). Types that store and fuse. */
enum sl_adding {
    SL_ADDS_NOTHING, /* the default */
    SL_ADDS_FLOATS,  /* may add it (SL_ADDED); otherwise the parent adds */
    SL_ADDS_BF16     /* always adds it if it is bf16, and writes the sum in the form that the caller needs */
};

/* Use of one end of a module: x, read by forward, and dx, written by I; or y, written by forward, and dy. */
struct sl_use {
    enum sl_lifetime lasts; /* of x, or of dy; plan may shorten it: backward functions then receive none */
    enum sl_reading reads;
    enum sl_writing writes;
    enum sl_adding adds;
};

/* Whether a bf16 copy is read if there is one. */
static inline bool sl_reads_copy(const struct sl_use *use) { return use->reads >= SL_READS_COPY; }
static inline bool sl_reads_operand(const struct sl_use *use) { return use->reads == SL_READS_OPERAND; }
static inline enum sl_reading sl_copy_if(bool holds) { return holds ? SL_READS_COPY : SL_READS_FLOATS; }
/* The reading of a parent's array that a child reads as READS, if the child is not the only reader. */
static inline enum sl_reading sl_reads_beside(enum sl_reading reads) { return sl_copy_if(reads >= SL_READS_COPY); }
static inline enum sl_lifetime sl_until_input_if(bool holds) { return holds ? SL_UNTIL_INPUT : SL_UNTIL_RETURN; }
static inline enum sl_lifetime sl_until_weight_if(bool holds) { return holds ? SL_UNTIL_WEIGHT : SL_UNTIL_RETURN; }
static inline enum sl_lifetime sl_from_input_if(bool holds) { return holds ? SL_FROM_INPUT : SL_UNTIL_RETURN; }
static inline enum sl_lifetime sl_longer(enum sl_lifetime a, enum sl_lifetime b) { return a > b ? a : b; }
/* Whether x, or dy, is saved for backward. */
static inline bool sl_is_kept(const struct sl_use *use) { return use->lasts != SL_UNTIL_RETURN; }
/* Whether it is saved for W. */
static inline bool sl_is_kept_for_weight(const struct sl_use *use) { return use->lasts > SL_UNTIL_INPUT; }

SL_END_C

#endif
