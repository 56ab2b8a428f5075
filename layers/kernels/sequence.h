/* sequence.h - kernels for models of token sequences, beside those of kernels.h: activations, rotations, lookups,
 * losses over sharded vocabularies. One source (sequence.c), built like kernels.c.
 *
 * A row is one token; a microbatch has its sequences one after another. Arrays are row-major float32, in memory that
 * the device reaches. They are dense unless a stride (elements from one row to the next) is given. No kernel allocates;
 * each has finished when it returns. */
#ifndef SL_LAYERS_KERNELS_SEQUENCE_H
#define SL_LAYERS_KERNELS_SEQUENCE_H

#include "spmd/base/base.h"
#include "spmd/base/dtype.h"

SL_BEGIN_C

struct sl_sequence_kernels {
    /* y [rows, cols] = x [rows, cols], each with its own stride. The two must not overlap. */
    void (*copy_block)(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride);
    /* The same, rounded to bf16 as kernels.h's round_bf16. */
    void (*round_block)(size_t rows, size_t cols, const float *x, size_t x_stride, uint16_t *y, size_t y_stride);
    /* copy_block that leaves y as LEFT says; what is stored has its stride. */
    void (*copy_settled)(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride,
                         struct sl_settled left);
    /* y [rows, cols] (stride) += bias [cols]. LEFT: how y is left; what is stored has its stride. */
    void (*add_bias)(size_t rows, size_t cols, const float *bias, float *y, size_t stride, struct sl_settled left);

    /* y = gelu(x), the tanh form (Hendrycks & Gimpel 2016), of N elements: floats of floats, where y may be x; bf16 of
     * floats or of bf16. Unless X_STORED is NULL, x is floats that are not rounded yet: x_stored becomes what bf16 has
     * of them, and y gelu of that, as bf16 or as rounded floats with a copy. */
    void (*gelu_forward)(size_t n, struct sl_rows x, uint16_t *x_stored, struct sl_out y);
    /* dx = dy gelu'(x), of N elements: floats or bf16, of floats; bf16, of bf16; bf16, or rounded floats with a copy,
     * of an x in bf16 and a dy of floats that are not rounded yet. dx may be x or dy. */
    void (*gelu_backward)(size_t n, struct sl_rows x, struct sl_rows dy, struct sl_out dx);

    /* Rotates interleaved pairs (Su et al. 2021): y[2i] = x[2i] c - x[2i+1] s, y[2i+1] = x[2i+1] c + x[2i] s. For row
     * r, c and s are row position + r % sequence of cosine and sine [positions, cols / 2], or, unless PLACES [rows] is
     * NULL, row position + places[r]. BACK rotates by the opposite angle (the VJP). x and y [rows, cols]; y may be x.
     * LEFT: how y is left. */
    void (*rope)(size_t rows, size_t cols, size_t sequence, size_t position, const int32_t *places, const float *cosine,
                 const float *sine, bool back, const float *x, float *y, struct sl_settled left);

    /* y [rows, cols]: row r is row tokens[r] - first of TABLE (with STRIDE, from the column where TABLE points), or
     * zeros if that row is not in [0, count). HALF: the table is bf16. LEFT: how y is left; NULL where only what is
     * stored will be read. */
    void (*lookup)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const void *table,
                   bool half, size_t stride, float *y, struct sl_settled left);
    /* The VJP of lookup: adds dy [rows, cols] to the same rows of dtable, in ascending order of r. */
    void (*scatter_add)(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride);

    /* y [rows, cols] = x [rows, cols] with its own stride */
    void (*copy_labels)(size_t rows, size_t cols, const int32_t *x, size_t stride, int32_t *y);
    /* maxima [rows]: the largest of logits [rows, cols], which are of the classes from FIRST on; argmaxima [rows]: its
     * class, as a float (the first of equals) */
    void (*row_maxima)(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima);

    /* Softmax cross entropy of rows whose classes come chunk by chunk, in ascending order (layers/modules/sequence/
     * token_head.c). A row with label -1 is left out. A label that is not among the classes belongs to another chunk,
     * or to another coordinate. All arrays of one number a row are [rows].
     *
     * Takes the logits [rows, cols] of the classes from FIRST on. maxima: the largest logit so far; argmaxima: its
     * class, as a float (the first of equals); scales = exp(the maximum before - maxima); p [rows, cols] =
     * exp(logits - maxima), which may be logits, or is NULL where only STORED will be read; sums = scales sums + the
     * sum over p's columns; targets: the label's logit, 0 before it has come; stored [rows, cols] = p as bf16, unless
     * STORED is NULL. BEGINS: the chunk is the first, and nothing is read of what was before. */
    void (*softmax_chunk)(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                          bool begins, float *maxima, float *argmaxima, float *sums, float *targets, float *scales,
                          float *p, uint16_t *stored);
    /* y [rows, cols] *= scales [rows] */
    void (*scale_rows)(size_t rows, size_t cols, const float *scales, float *y);
    /* The largest logits were SCALES and are MAXIMA: scales = exp(scales - maxima), sums *= scales. */
    void (*softmax_join)(size_t rows, const float *maxima, float *scales, float *sums);
    /* totals[0] += losses times MANY, [1] += rows whose argmaxima is the label times HITS, [2] += rows counted times
     * MANY */
    void (*softmax_losses)(size_t rows, const int32_t *labels, const float *maxima, const float *argmaxima,
                           const float *sums, const float *targets, double many, double hits, double *totals);
    /* dx [rows, cols] = (dx scales / sums - TABLE's row of the label) weight, zeros in rows with label -1. TABLE
     * [count, cols] has the rows of the classes from FIRST on: bf16 if ROUNDED, else float. LEFT: how dx is left. */
    void (*softmax_gradient)(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count,
                             const float *sums, const float *scales, float weight, const void *table, bool rounded,
                             float *dx, struct sl_settled left);
    /* y [rows, cols]: in rows whose label is one of the classes [first, first + count), TABLE's row of it, as above.
     * BEGINS: zeros in all others. */
    void (*label_rows)(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count, const void *table,
                       bool rounded, bool begins, float *y);
    /* y [rows] = the row's number, or -1 where the label is */
    void (*label_places)(size_t rows, const int32_t *labels, int32_t *y);
    /* dlogits [rows, cols], of logits of the classes from FIRST on: (exp(logits - maxima) / sums - onehot) weight,
     * zeros in rows with label -1; it may be logits, or is NULL where only STORED will be read. stored [rows, cols] =
     * the same as bf16, unless STORED is NULL. */
    void (*softmax_dlogits)(size_t rows, size_t cols, int32_t first, const int32_t *labels, const float *maxima,
                            const float *sums, float weight, const float *logits, float *dlogits, uint16_t *stored);
};

extern const struct sl_sequence_kernels sl_sequence_kernels_v2, sl_sequence_kernels_v3, sl_sequence_kernels_v4;
extern const struct sl_sequence_kernels sl_sequence_kernels_device; /* in builds for devices */

/* What only published models need (published.c). */
struct sl_published_kernels {
    /* Rotates each of HEADS heads of x [rows, heads * width] in place by the same angles, those of the row's position:
     * row position + r % sequence of cosine and sine [positions, width / 2], or position + places[r] as above. Pair i
     * is columns i and i + width / 2 (HALVES), or 2i and 2i + 1. BACK rotates by the opposite angle (the VJP). LEFT:
     * how x is left. */
    void (*rotate_heads)(size_t rows, size_t heads, size_t width, size_t sequence, size_t position,
                         const int32_t *places, bool halves, const float *cosine, const float *sine, bool back,
                         float *x, struct sl_settled left);
    /* y = silu(gate) x (Shazeer, "GLU variants improve transformer", 2020): all [n]. LEFT: how y is left, which is NULL
     * where only what is stored will be read. GATE_LEFT and X_LEFT: how gate and x are left before they are read, as
     * nobody has done so yet. */
    void (*gate_forward)(size_t n, float *gate, float *x, float *y, struct sl_settled gate_left,
                         struct sl_settled x_left, struct sl_settled left);
    /* dgate = dy x silu'(gate), dx = dy silu(gate): all [n]. HALF: gate and x are bf16. DGATE_LEFT and DX_LEFT: how
     * the two are left, both of which are NULL where only what is stored will be read. */
    void (*gate_backward)(size_t n, const void *gate, const void *x, bool half, const float *dy, float *dgate,
                          float *dx, struct sl_settled dgate_left, struct sl_settled dx_left);
    /* y = x Phi(x), gelu as its erf has it (Hendrycks & Gimpel, 2016): all [n] */
    void (*erf_gelu_forward)(size_t n, const float *x, float *y);
    /* dx = dy (Phi(x) + x phi(x)): all [n] */
    void (*erf_gelu_backward)(size_t n, const float *x, const float *dy, float *dx);
    /* sums [rows] of x [rows, cols] */
    void (*row_sums)(size_t rows, size_t cols, const float *x, float *sums);
    /* y = x - sums / whole: x and y [rows, cols], sums [rows] over all shards' WHOLE columns. Also its own VJP. */
    void (*center_rows)(size_t rows, size_t cols, size_t whole, const float *sums, const float *x, float *y);
};
extern const struct sl_published_kernels sl_published_kernels_v2, sl_published_kernels_v3, sl_published_kernels_v4;
extern const struct sl_published_kernels sl_published_kernels_device; /* in builds for devices */

/* The two of gelu (gelu.c). */
typedef void sl_gelu_forward(size_t n, struct sl_rows x, uint16_t *x_stored, struct sl_out y);
typedef void sl_gelu_backward(size_t n, struct sl_rows x, struct sl_rows dy, struct sl_out dx);
extern sl_gelu_forward sl_gelu_forward_v2, sl_gelu_forward_v3, sl_gelu_forward_v4;
extern sl_gelu_backward sl_gelu_backward_v2, sl_gelu_backward_v3, sl_gelu_backward_v4;
extern sl_gelu_forward sl_gelu_forward_device; /* in builds for devices */
extern sl_gelu_backward sl_gelu_backward_device;

SL_END_C
#endif
