/* norms.h - norms of whole rows: RMS norms, which read each array from memory once, for devices, whose caches hold a
 * row, or some of them, from one loop to the next; and layer norms where bf16 is kept. sequence.h has RMS norms step by
 * step, for rows of which others have a part, and kernels.h layer norms of floats alone.
 *
 * All arrays are dense, [rows, cols]. */
#ifndef SL_LAYERS_KERNELS_ROWS_NORMS_H
#define SL_LAYERS_KERNELS_ROWS_NORMS_H

#include "spmd/base/base.h"
#include "spmd/base/bf16.h"

SL_BEGIN_C

/* Rows that a norm reads: bf16 if HALF, else floats. */
struct sl_norm_rows {
    const void *at; /* NULL: there are none */
    bool half;
};

struct sl_norm_kernels {
    /* rstd [rows] = 1 / sqrt(mean of x^2 over a row + epsilon), y = x rstd gamma + beta, left as LEFT says. Y is NULL
     * where only what is stored will be read. */
    void (*rms_norm_forward)(size_t rows, size_t cols, struct sl_norm_rows x, const float *gamma, const float *beta,
                             float epsilon, float *rstd, float *y, struct sl_settled left);
    /* Floats of backward's room. */
    size_t (*rms_norm_room)(size_t parts, size_t rows, size_t cols);
    /* Of PARTS of ROWS rows: dx = rstd (dy gamma - x rstd^2 mean of dy gamma x), which must be neither dy nor x, plus
     * SUMMAND, if there is one, and left as LEFT says; NULL where only what is stored will be read. Unless DGAMMA is
     * NULL, dgamma [parts, cols] = sums over a part's rows of dy x rstd and dbeta [parts, cols] = sums over them of dy,
     * overwritten. Sums have an order of their own, always the same. Where x is bf16, floats of dy are rounded as they
     * are read; where dy is bf16, x is, too. */
    void (*rms_norm_backward)(size_t parts, size_t rows, size_t cols, struct sl_norm_rows dy, struct sl_norm_rows x,
                              const float *rstd, const float *gamma, struct sl_norm_rows summand,
                              struct sl_settled left, float *dx, float *dgamma, float *dbeta, float *room);

    /* y = normalized scale + bias, left as LEFT says, NULL where only what is stored will be read. It is made before
     * normalized is rounded; that and rstd [rows] are those of sl_kernels' layer_norm_forward. */
    void (*layer_norm_forward)(size_t rows, size_t cols, struct sl_norm_rows x, const float *scale, const float *bias,
                               float epsilon, uint16_t *normalized, float *rstd, float *y, struct sl_settled left);
    /* sl_kernels' layer_norm_backward, but dx is NULL where only what is stored will be read, and left as LEFT says;
     * unless DSCALE is NULL, the sums are made. Where normalized is bf16, floats of dy are rounded as they are read;
     * where dy, or the summand, is bf16, normalized is, too. */
    void (*layer_norm_backward)(size_t parts, size_t rows, size_t cols, struct sl_norm_rows dy,
                                struct sl_norm_rows normalized, const float *rstd, const float *scale,
                                struct sl_norm_rows summand, struct sl_settled left, float *dx, float *dscale,
                                float *dbias);
};

extern const struct sl_norm_kernels sl_norm_kernels_v2, sl_norm_kernels_v3, sl_norm_kernels_v4;
extern const struct sl_norm_kernels sl_norm_kernels_device; /* in builds for devices */

SL_END_C
#endif
