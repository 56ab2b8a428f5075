/* norms.h - layer norms, and RMS norms (Zhang & Sennrich 2019). On devices a kernel for whole rows reads each array
 * from memory once: the caches hold rows from one loop to the next. Other kernels take one step at a time, also for
 * rows that are sharded over columns.
 *
 * All arrays are dense, [rows, cols]. */
#ifndef SL_LAYERS_KERNELS_NORMS_NORMS_H
#define SL_LAYERS_KERNELS_NORMS_NORMS_H

#include "spmd/base/base.h"
#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

struct sl_norm_kernels {
    /* sums [rows] = sums over columns of x^2. The caller adds up the sums of a row's shards. */
    void (*square_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* rstd [rows] = 1 / sqrt(sums / whole + epsilon), y = x rstd gamma + beta. WHOLE: columns of all shards together.
     * If SUMS [rows] is NULL, rows are whole, and y has any form. Otherwise x is floats, and y floats, rounded floats
     * with or without a bf16 copy, or bf16. */
    void (*rms_norm_forward)(size_t rows, size_t cols, size_t whole, struct sl_rows x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, struct sl_out y);
    /* dots [rows, parts] = sums of dy gamma x over each of PARTS groups of columns. A group has COLS columns, and a row
     * PARTS groups one after another. If x is bf16, here and below, unrounded dy is rounded to bf16 while it is read.
     * The caller adds up the dots of a row's shards. */
    void (*rms_norm_dots)(size_t rows, size_t parts, size_t cols, const float *dy, struct sl_rows x, const float *gamma,
                          float *dots);
    /* Returns the size of rms_norm_backward's ROOM in floats. */
    size_t (*rms_norm_room)(size_t parts, size_t rows, size_t cols);
    /* dx = rstd (dy gamma - x rstd^2 dots / whole) plus SUMMAND, if there is one, for PARTS parts of ROWS rows; dx must
     * be neither dy nor x. Unless DGAMMA is NULL, writes dgamma [parts, cols] = sums of dy x rstd over a part's rows,
     * and dbeta [parts, cols] = sums of dy. Sums are always added in the same order.
     *
     * With ROOM, rows are whole: DOTS are not read, dx has any form, and x is bf16 if dy is. Without ROOM (NULL), dy
     * and the summand are floats, and rows are added in ascending order; dx, whose AT may be NULL, is floats; with a
     * summand it may be rounded floats, with or without a bf16 copy. */
    void (*rms_norm_backward)(size_t parts, size_t rows, size_t cols, size_t whole, struct sl_rows dy, struct sl_rows x,
                              const float *rstd, const float *gamma, const float *dots, struct sl_rows summand,
                              struct sl_out dx, float *dgamma, float *dbeta, float *room);

    /* normalized = (x - mean) rstd, y = normalized scale + bias; the variance is E[x^2] - E[x]^2 clamped at 0 (flax's).
     * rstd [rows]; scale, bias [cols]. If normalized is floats, x is floats, and y floats or bf16. If normalized is
     * bf16, x is floats or bf16, and y has any form; y comes from the unrounded values. */
    void (*layer_norm_forward)(size_t rows, size_t cols, struct sl_rows x, const float *scale, const float *bias,
                               float epsilon, struct sl_rows normalized, float *rstd, struct sl_out y);
    /* dx = rstd (g - mean of g - normalized mean of g normalized) plus SUMMAND, if there is one, with g = dy scale, for
     * PARTS parts of ROWS rows. dx has any form and must not be dy. Unless DSCALE is NULL, writes dscale [parts, cols]
     * = sums of dy normalized over a part's rows, and dbias [parts, cols] = sums of dy. If normalized is bf16, floats
     * of dy are rounded while they are read; if dy or the summand is bf16, normalized is, too. */
    void (*layer_norm_backward)(size_t parts, size_t rows, size_t cols, struct sl_rows dy, struct sl_rows normalized,
                                const float *rstd, const float *scale, struct sl_rows summand, struct sl_out dx,
                                float *dscale, float *dbias);
};

extern const struct sl_norm_kernels sl_norm_kernels_v2, sl_norm_kernels_v3, sl_norm_kernels_v4;
extern const struct sl_norm_kernels sl_norm_kernels_device; /* in builds for devices */

SL_END_C
#endif
