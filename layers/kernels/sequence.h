/* sequence.h - what models of token sequences need beside kernels.h: norms over sharded rows, activations,
 * rotations, lookups, losses over sharded vocabularies. One source (sequence.c), built as kernels.c is.
 *
 * A row is one token: the rows of a microbatch are its sequences one after another. Arrays are dense, row-major float32
 * in memory that the device reaches, but where a stride (elements from one row to the next) is given. No kernel
 * allocates, and each has ended when it returns. */
#ifndef SL_LAYERS_KERNELS_SEQUENCE_H
#define SL_LAYERS_KERNELS_SEQUENCE_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_sequence_kernels {
    /* y [rows, cols] = x [rows, cols], each with a stride of its own; they do not overlap. */
    void (*copy_block)(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride);
    /* y [rows, cols] (stride) += bias [cols] */
    void (*add_bias)(size_t rows, size_t cols, const float *bias, float *y, size_t stride);

    /* RMS norm (Zhang & Sennrich 2019) of rows whose columns are sharded: whoever has the others adds up the sums.
     * sums [rows] = sums over x [rows, cols] of x^2 */
    void (*square_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* rstd [rows] = 1 / sqrt(sums / whole + epsilon), y = x rstd gamma + beta; WHOLE: columns of the whole row. */
    void (*rms_norm_forward)(size_t rows, size_t cols, size_t whole, const float *x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, float *y);
    /* dots [rows] = sums over columns of dy gamma x */
    void (*rms_norm_dots)(size_t rows, size_t cols, const float *dy, const float *x, const float *gamma, float *dots);
    /* dx = rstd (dy gamma - x rstd^2 dots / whole); dx may be neither dy nor x */
    void (*rms_norm_backward_input)(size_t rows, size_t cols, size_t whole, const float *dy, const float *x,
                                    const float *rstd, const float *gamma, const float *dots, float *dx);
    /* dgamma [cols] = sums over rows of dy x rstd, dbeta [cols] = of dy (both overwritten, rows in ascending order) */
    void (*rms_norm_backward_weight)(size_t rows, size_t cols, const float *dy, const float *x, const float *rstd,
                                     float *dgamma, float *dbeta);

    /* y = gelu(x), slope = gelu'(x), the tanh form (Hendrycks & Gimpel 2016): all [n], y may be x. */
    void (*gelu_forward)(size_t n, const float *x, float *y, float *slope);

    /* Rotates interleaved pairs: y[2i] = x[2i] c - x[2i+1] s, y[2i+1] = x[2i+1] c + x[2i] s, where c, s are
     * cosine, sine [positions, cols / 2] at row position + r % sequence. BACK: by the opposite angle (the VJP). x and y
     * [rows, cols]; y may be x. (Su et al. 2021) */
    void (*rope)(size_t rows, size_t cols, size_t sequence, size_t position, const float *cosine, const float *sine,
                 bool back, const float *x, float *y);

    /* y [rows, cols] = rows tokens[r] - first of TABLE (stride; its columns begin where TABLE points), zeros where that
     * is not in [0, count). */
    void (*lookup)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *table,
                   size_t stride, float *y);
    /* The VJP: adds dy [rows, cols] to those rows of dtable, rows in ascending order. */
    void (*scatter_add)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride);

    /* Cross entropy over classes of which COLS, from number FIRST on, are here: logits [rows, cols]. Labels of -1 leave
     * a row out; a label outside [first, first + cols) is somebody else's.
     * maxima [rows]; and the class (over all, counted from 0) of the first of the largest, as a float */
    void (*row_maxima)(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima);
    /* sums [rows] of exp(logits - maxima); targets [rows] = the label's logit where it is here, else 0 */
    void (*row_sums)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                     const float *maxima, float *sums, float *targets);
    /* dlogits = (exp(logits - maxima) / sums - onehot) weight, zeros where the label is -1; dlogits may be logits.
     * result[0] += losses, [1] += rows whose argmaxima is the label, [2] += rows counted */
    void (*row_losses)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                       const float *maxima, const float *argmaxima, const float *sums, const float *targets,
                       float weight, float *dlogits, double result[3]);
};

extern const struct sl_sequence_kernels sl_sequence_kernels_v2, sl_sequence_kernels_v3, sl_sequence_kernels_v4;
extern const struct sl_sequence_kernels sl_sequence_kernels_device; /* where the CPU does not compute */

SL_END_C
#endif
