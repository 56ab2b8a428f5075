/* sequence.h - kernels for models of token sequences, beside those of kernels.h: norms over sharded rows, activations,
 * rotations, lookups, losses over sharded vocabularies. One source (sequence.c), built like kernels.c.
 *
 * A row is one token; a microbatch has its sequences one after another. Arrays are row-major float32, in memory that
 * the device reaches. They are dense unless a stride (elements from one row to the next) is given. No kernel allocates;
 * each has finished when it returns. */
#ifndef SL_LAYERS_KERNELS_SEQUENCE_H
#define SL_LAYERS_KERNELS_SEQUENCE_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_sequence_kernels {
    /* y [rows, cols] = x [rows, cols], each with its own stride. The two must not overlap. */
    void (*copy_block)(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride);
    /* y [rows, cols] (stride) += bias [cols] */
    void (*add_bias)(size_t rows, size_t cols, const float *bias, float *y, size_t stride);

    /* RMS norm (Zhang & Sennrich 2019) of rows whose columns may be sharded. The caller adds up the sums of all shards
     * between the kernels. sums [rows] = sums over columns of x^2 */
    void (*square_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* rstd [rows] = 1 / sqrt(sums / whole + epsilon), y = x rstd gamma + beta. WHOLE: columns of all shards together.
     */
    void (*rms_norm_forward)(size_t rows, size_t cols, size_t whole, const float *x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, float *y);
    /* dots [rows] = sums over columns of dy gamma x */
    void (*rms_norm_dots)(size_t rows, size_t cols, const float *dy, const float *x, const float *gamma, float *dots);
    /* dx = rstd (dy gamma - x rstd^2 dots / whole); dx must be neither dy nor x */
    void (*rms_norm_backward_input)(size_t rows, size_t cols, size_t whole, const float *dy, const float *x,
                                    const float *rstd, const float *gamma, const float *dots, float *dx);
    /* dgamma [cols] = sums over rows of dy x rstd, dbeta [cols] = sums over rows of dy. Both are overwritten; rows are
     * added in ascending order. */
    void (*rms_norm_backward_weight)(size_t rows, size_t cols, const float *dy, const float *x, const float *rstd,
                                     float *dgamma, float *dbeta);

    /* y = gelu(x), the tanh form (Hendrycks & Gimpel 2016): both [n], y may be x. */
    void (*gelu_forward)(size_t n, const float *x, float *y);
    /* dx = dy gelu'(x): all [n], dx may be x or dy. */
    void (*gelu_backward)(size_t n, const float *x, const float *dy, float *dx);

    /* Rotates interleaved pairs (Su et al. 2021): y[2i] = x[2i] c - x[2i+1] s, y[2i+1] = x[2i+1] c + x[2i] s. For row
     * r, c and s are row position + r % sequence of cosine and sine [positions, cols / 2]. BACK rotates by the opposite
     * angle (the VJP). x and y [rows, cols]; y may be x. */
    void (*rope)(size_t rows, size_t cols, size_t sequence, size_t position, const float *cosine, const float *sine,
                 bool back, const float *x, float *y);

    /* y [rows, cols]: row r is row tokens[r] - first of TABLE (with STRIDE, from the column where TABLE points), or
     * zeros if that row is not in [0, count). */
    void (*lookup)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *table,
                   size_t stride, float *y);
    /* The VJP of lookup: adds dy [rows, cols] to the same rows of dtable, in ascending order of r. */
    void (*scatter_add)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride);

    /* Cross entropy over sharded classes: this coordinate has logits [rows, cols] of the classes [first, first + cols).
     * A row with label -1 is left out. A label outside the range belongs to another coordinate.
     * maxima [rows]: the largest logit; argmaxima [rows]: its class, as a float (the first of equals) */
    void (*row_maxima)(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima);
    /* sums [rows] = sums over columns of exp(logits - maxima); targets [rows] = the label's logit, 0 if the label
     * belongs to another coordinate */
    void (*row_sums)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                     const float *maxima, float *sums, float *targets);
    /* dlogits = (exp(logits - maxima) / sums - onehot) weight, zeros in rows with label -1; dlogits may be logits.
     * result[0] += losses, [1] += rows whose argmaxima is the label, [2] += rows counted */
    void (*row_losses)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                       const float *maxima, const float *argmaxima, const float *sums, const float *targets,
                       float weight, float *dlogits, double result[3]);
};

extern const struct sl_sequence_kernels sl_sequence_kernels_v2, sl_sequence_kernels_v3, sl_sequence_kernels_v4;
extern const struct sl_sequence_kernels sl_sequence_kernels_device; /* in builds for devices */

/* The two of gelu (gelu.c). */
typedef void sl_gelu_forward(size_t n, const float *x, float *y);
typedef void sl_gelu_backward(size_t n, const float *x, const float *dy, float *dx);
extern sl_gelu_forward sl_gelu_forward_v2, sl_gelu_forward_v3, sl_gelu_forward_v4;
extern sl_gelu_backward sl_gelu_backward_v2, sl_gelu_backward_v3, sl_gelu_backward_v4;
extern sl_gelu_forward sl_gelu_forward_device; /* in builds for devices */
extern sl_gelu_backward sl_gelu_backward_device;

SL_END_C
#endif
