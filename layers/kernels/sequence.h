/* sequence.h - kernels for models of token sequences, in addition to kernels.h: activations, rotations, lookups, losses
 * over sharded vocabularies. One source (sequence.c), built like kernels.c.
 *
 * A row is one token; the sequences of a microbatch follow each other. Arrays are row-major float32, in memory that the
 * device reaches. They are dense unless a stride (elements from one row to the next) is given. No kernel allocates.
 * On the CPU the work is done when a call returns; on devices it is enqueued on the thread's queue.
 *
 * A result is a struct sl_out (spmd/base/numbers/dtype.h): floats, which may be rounded to bf16 and have a bf16 copy.
 * Some kernels also write bf16 without floats. A kernel that changes an array reads the result's floats. */
#ifndef SL_LAYERS_KERNELS_SEQUENCE_H
#define SL_LAYERS_KERNELS_SEQUENCE_H

#include "spmd/base/base.h"
#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

struct sl_sequence_kernels {
    /* y [rows, cols] = x [rows, cols], each with its own stride. The two must not overlap. */
    void (*copy_block)(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride);
    /* copy_block to bf16, rounded as by kernels.h's round_bf16. */
    void (*round_block)(size_t rows, size_t cols, const float *x, size_t x_stride, uint16_t *y, size_t y_stride);
    /* copy_block to floats in any form, or to bf16 alone; a bf16 copy has y's stride. */
    void (*copy_settled)(size_t rows, size_t cols, const float *x, size_t x_stride, struct sl_out y, size_t y_stride);
    /* y [rows, cols] (stride) += bias [cols]: floats in any form; a bf16 copy has y's stride. */
    void (*add_bias)(size_t rows, size_t cols, const float *bias, struct sl_out y, size_t stride);

    /* y = gelu(x), the tanh form (Hendrycks & Gimpel 2016), N elements. Types: floats from floats, and y may be x; bf16
     * from floats or bf16. If X_STORED is not NULL, x is unrounded floats: x_stored = x as bf16, and y =
     * gelu(x_stored), as bf16 or as rounded floats with a bf16 copy. */
    void (*gelu_forward)(size_t n, struct sl_rows x, uint16_t *x_stored, struct sl_out y);
    /* dx = dy gelu'(x), N elements. Types: if x is floats, dx is floats or bf16. If x and dy are bf16, dx is bf16. If x
     * is bf16 and dy unrounded floats, dx is bf16, or rounded floats with a bf16 copy. dx may be x or dy. */
    void (*gelu_backward)(size_t n, struct sl_rows x, struct sl_rows dy, struct sl_out dx);

    /* Rotates interleaved pairs (Su et al. 2021): y[2i] = x[2i] c - x[2i+1] s, y[2i+1] = x[2i+1] c + x[2i] s. For row
     * r, c and s are row position + r % sequence of cosine and sine [positions, cols / 2]; or row position + places[r],
     * unless PLACES [rows] is NULL. BACK rotates by the opposite angle (the VJP). x and y [rows, cols]; y, floats in
     * any form, may be x. */
    void (*rope)(size_t rows, size_t cols, size_t sequence, size_t position, const int32_t *places, const float *cosine,
                 const float *sine, bool back, const float *x, struct sl_out y);

    /* y [rows, cols], in any form or bf16 alone: row r = row tokens[r] - first of TABLE, or zeros if that number is not
     * in [0, count). TABLE is floats or bf16; its rows are STRIDE apart, and its columns begin at its address. */
    void (*lookup)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, struct sl_rows table,
                   size_t stride, struct sl_out y);
    /* The VJP of lookup: adds each row of dy [rows, cols] to its token's row of dtable, in ascending order of r. */
    void (*scatter_add)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride);

    /* y [rows, cols] = x [rows, cols] with its own stride */
    void (*copy_labels)(size_t rows, size_t cols, const int32_t *x, size_t stride, int32_t *y);
    /* maxima [rows] = row maxima of logits [rows, cols], whose first column is class FIRST; argmaxima [rows] = the
     * maximum's class, as a float (the first of equals) */
    void (*row_maxima)(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima);

    /* Softmax cross entropy of rows whose classes come in chunks, in ascending order
     * (layers/modules/sequence/token_head.c). Label -1 skips a row. A label outside a chunk's classes belongs to
     * another chunk, or to another coordinate. Arrays with one number per row are [rows].
     *
     * Adds the chunk of logits [rows, cols] that begins at class FIRST. maxima: the largest logit so far; argmaxima:
     * its class, as a float (the first of equals); scales = exp(previous maxima - maxima); p [rows, cols] = exp(logits
     * - maxima), as bf16 alone or as unrounded floats, with or without a bf16 copy (the floats may overwrite logits);
     * sums = scales sums + row sums of p; targets: the label's logit, 0 until its chunk. BEGINS: the chunk is the
     * first, and no earlier values are read. */
    void (*softmax_chunk)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                          bool begins, float *maxima, float *argmaxima, float *sums, float *targets, float *scales,
                          struct sl_out p);
    /* y [rows, cols] *= scales [rows] */
    void (*scale_rows)(size_t rows, size_t cols, const float *scales, float *y);
    /* Joins shards: scales [rows] holds the previous maxima, maxima [rows] the new ones. scales = exp(scales - maxima),
     * sums *= scales. */
    void (*softmax_join)(size_t rows, const float *maxima, float *scales, float *sums);
    /* totals[0] += losses times MANY, [1] += rows whose argmaxima is the label times HITS, [2] += labelled rows times
     * MANY */
    void (*softmax_losses)(size_t rows, const int32_t *labels, const float *maxima, const float *argmaxima,
                           const float *sums, const float *targets, double many, double hits, double *totals);
    /* dx [rows, cols] = (dx scales / sums - TABLE's row of the label) weight, or zeros in rows with label -1: floats in
     * any form. TABLE [count, cols], floats or bf16, has the rows of the classes from FIRST on. */
    void (*softmax_gradient)(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count,
                             const float *sums, const float *scales, float weight, struct sl_rows table,
                             struct sl_out dx);
    /* y [rows, cols]: TABLE's row of the label, in rows with a label in [first, first + count); TABLE as above. BEGINS:
     * writes zeros into all other rows. */
    void (*label_rows)(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count,
                       struct sl_rows table, bool begins, float *y);
    /* y [rows] = the row's number, or -1 if its label is -1 */
    void (*label_places)(size_t rows, const int32_t *labels, int32_t *y);
    /* dlogits [rows, cols] = (exp(logits - maxima) / sums - onehot) weight, or zeros in rows with label -1; logits are
     * of the classes from FIRST on. dlogits: unrounded floats, which may be logits, with or without a bf16 copy, or
     * bf16 alone. */
    void (*softmax_dlogits)(size_t rows, size_t cols, int32_t first, const int32_t *labels, const float *maxima,
                            const float *sums, float weight, const float *logits, struct sl_out dlogits);
};

extern const struct sl_sequence_kernels sl_sequence_kernels_v2, sl_sequence_kernels_v3, sl_sequence_kernels_v4;
extern const struct sl_sequence_kernels sl_sequence_kernels_device; /* in builds for devices */

/* Kernels for published models only (published.c). */
struct sl_published_kernels {
    /* Rotates each of HEADS heads of x [rows, heads * width] in place by the same angles, of the row's position: row
     * position + r % sequence of cosine and sine [positions, width / 2], or position + places[r] as in rope. Pair i is
     * columns i and i + width / 2 (HALVES), or 2i and 2i + 1. BACK rotates by the opposite angle (the VJP). x: floats
     * in any form. */
    void (*rotate_heads)(size_t rows, size_t heads, size_t width, size_t sequence, size_t position,
                         const int32_t *places, bool halves, const float *cosine, const float *sine, bool back,
                         struct sl_out x);
    /* y = silu(gate) x (Shazeer, "GLU variants improve transformer", 2020): all [n]. y: floats in any form, or bf16
     * alone. gate and x are unrounded floats on input; they are written in their forms before they are read. */
    void (*gate_forward)(size_t n, struct sl_out gate, struct sl_out x, struct sl_out y);
    /* dgate = dy x silu'(gate), dx = dy silu(gate): all [n]. gate and x are both floats or both bf16. dgate and dx are
     * both floats in any form, or both bf16 alone. */
    void (*gate_backward)(size_t n, struct sl_rows gate, struct sl_rows x, const float *dy, struct sl_out dgate,
                          struct sl_out dx);
    /* y = x Phi(x), the erf form of gelu (Hendrycks & Gimpel, 2016): all [n] */
    void (*erf_gelu_forward)(size_t n, const float *x, float *y);
    /* dx = dy (Phi(x) + x phi(x)): all [n] */
    void (*erf_gelu_backward)(size_t n, const float *x, const float *dy, float *dx);
    /* sums [rows] = row sums of x [rows, cols] */
    void (*row_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* y = x - sums / whole: x and y [rows, cols], sums [rows] over the WHOLE columns of all shards. Also its own VJP.
     */
    void (*center_rows)(size_t rows, size_t cols, size_t whole, const float *sums, const float *x, float *y);
};
extern const struct sl_published_kernels sl_published_kernels_v2, sl_published_kernels_v3, sl_published_kernels_v4;
extern const struct sl_published_kernels sl_published_kernels_device; /* in builds for devices */

/* gelu_forward and gelu_backward (gelu.c). */
typedef void sl_gelu_forward(size_t n, struct sl_rows x, uint16_t *x_stored, struct sl_out y);
typedef void sl_gelu_backward(size_t n, struct sl_rows x, struct sl_rows dy, struct sl_out dx);
extern sl_gelu_forward sl_gelu_forward_v2, sl_gelu_forward_v3, sl_gelu_forward_v4;
extern sl_gelu_backward sl_gelu_backward_v2, sl_gelu_backward_v3, sl_gelu_backward_v4;
extern sl_gelu_forward sl_gelu_forward_device; /* in builds for devices */
extern sl_gelu_backward sl_gelu_backward_device;

SL_END_C
#endif
