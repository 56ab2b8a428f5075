/* norms.h - norms of whole rows: layer norms; and RMS norms that read each array from memory once, for devices, whose
 * caches hold a row, or some of them, from one loop to the next. sequence.h has RMS norms step by step, for rows of
 * which others have a part.
 *
 * All arrays are dense, [rows, cols]. */
#ifndef SL_LAYERS_KERNELS_ROWS_NORMS_H
#define SL_LAYERS_KERNELS_ROWS_NORMS_H

#include "spmd/base/base.h"
#include "spmd/base/dtype.h"

SL_BEGIN_C

struct sl_norm_kernels {
    /* rstd [rows] = 1 / sqrt(mean of x^2 over a row + epsilon), y = x rstd gamma + beta, in any form. */
    void (*rms_norm_forward)(size_t rows, size_t cols, struct sl_rows x, const float *gamma, const float *beta,
                             float epsilon, float *rstd, struct sl_out y);
    /* Floats of backward's room. */
    size_t (*rms_norm_room)(size_t parts, size_t rows, size_t cols);
    /* Of PARTS of ROWS rows: dx = rstd (dy gamma - x rstd^2 mean of dy gamma x), in any form, which must be neither dy
     * nor x, plus SUMMAND, if there is one. Unless DGAMMA is NULL, dgamma [parts, cols] = sums over a part's rows of dy
     * x rstd and dbeta [parts, cols] = sums over them of dy, overwritten. Sums have an order of their own, always the
     * same. Where x is bf16, floats of dy are rounded as they are read; where dy is bf16, x is, too. */
    void (*rms_norm_backward)(size_t parts, size_t rows, size_t cols, struct sl_rows dy, struct sl_rows x,
                              const float *rstd, const float *gamma, struct sl_rows summand, struct sl_out dx,
                              float *dgamma, float *dbeta, float *room);

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
