/* norms.h - layer norms, and RMS norms (Zhang & Sennrich 2019): of whole rows, each array of which is read from memory
 * once, for devices, whose caches hold a row, or some of them, from one loop to the next; or step by step, also of rows
 * of which others have columns.
 *
 * All arrays are dense, [rows, cols]. */
#ifndef SL_LAYERS_KERNELS_ROWS_NORMS_H
#define SL_LAYERS_KERNELS_ROWS_NORMS_H

#include "spmd/base/base.h"
#include "spmd/base/dtype.h"

SL_BEGIN_C

struct sl_norm_kernels {
    /* sums [rows] = sums over columns of x^2. The caller adds up those of all shards of a row. */
    void (*square_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* rstd [rows] = 1 / sqrt(sums / whole + epsilon), y = x rstd gamma + beta. WHOLE: columns of all shards together.
     * SUMS [rows] is NULL: the rows are whole, and y is left in any form. Otherwise x is floats, and y floats, rounded
     * floats with a copy or without, or bf16. */
    void (*rms_norm_forward)(size_t rows, size_t cols, size_t whole, struct sl_rows x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, struct sl_out y);
    /* dots [rows, parts] = sums over the columns of each of PARTS, which lie one after another in a row, of dy gamma x:
     * these have PARTS COLS columns. Where x is bf16, here and below, dy is rounded to bf16 as it is read, as nobody
     * has done so yet. The caller adds up the dots of all shards of a row. */
    void (*rms_norm_dots)(size_t rows, size_t parts, size_t cols, const float *dy, struct sl_rows x, const float *gamma,
                          float *dots);
    /* Floats of backward's room. */
    size_t (*rms_norm_room)(size_t parts, size_t rows, size_t cols);
    /* Of PARTS of ROWS rows: dx = rstd (dy gamma - x rstd^2 dots / whole), which must be neither dy nor x, plus
     * SUMMAND, if there is one. Unless DGAMMA is NULL, dgamma [parts, cols] = sums over a part's rows of dy x rstd and
     * dbeta [parts, cols] = sums over them of dy, overwritten. Sums have an order of their own, always the same.
     *
     * With ROOM the rows are whole: DOTS are not read, dx is left in any form, and where dy is bf16, x is, too. If ROOM
     * is NULL, dy and the summand are floats, and rows are added in ascending order; dx, whose AT may be NULL, is
     * floats, with a summand rounded ones, too, with a copy or without. */
    void (*rms_norm_backward)(size_t parts, size_t rows, size_t cols, size_t whole, struct sl_rows dy, struct sl_rows x,
                              const float *rstd, const float *gamma, const float *dots, struct sl_rows summand,
                              struct sl_out dx, float *dgamma, float *dbeta, float *room);

    /* normalized = (x - mean) rstd, y = normalized scale + bias; the variance is E[x^2] - E[x]^2 clamped at 0 (flax's).
     * rstd [rows]; scale, bias [cols]. Floats of normalized: of floats of x, with y as floats or as bf16. Bf16 of
     * normalized, which is rounded when y has been made of it: of floats or bf16 of x, with y in any form. */
    void (*layer_norm_forward)(size_t rows, size_t cols, struct sl_rows x, const float *scale, const float *bias,
                               float epsilon, struct sl_rows normalized, float *rstd, struct sl_out y);
    /* Of PARTS of ROWS rows: dx = rstd (g - mean of g - normalized mean of g normalized), g = dy scale, in any form,
     * which must not be dy, plus SUMMAND, if there is one. Unless DSCALE is NULL, dscale [parts, cols] = sums over a
     * part's rows of dy normalized and dbias [parts, cols] = sums over them of dy, overwritten. Where normalized is
     * bf16, floats of dy are rounded as they are read; where dy, or the summand, is bf16, normalized is, too. */
    void (*layer_norm_backward)(size_t parts, size_t rows, size_t cols, struct sl_rows dy, struct sl_rows normalized,
                                const float *rstd, const float *scale, struct sl_rows summand, struct sl_out dx,
                                float *dscale, float *dbias);
};

extern const struct sl_norm_kernels sl_norm_kernels_v2, sl_norm_kernels_v3, sl_norm_kernels_v4;
extern const struct sl_norm_kernels sl_norm_kernels_device; /* in builds for devices */

SL_END_C
#endif
