/* sequence.c - what models of token sequences need, built as kernels.c is.
 *
 * The build defines SL_SEQUENCE_KERNELS, the table's name, and the names of gelu.c's functions. */
#include "layers/kernels/sequence.h"
#include "spmd/device/offload.h"
#include "spmd/base/vector_math.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static void copy_block(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride) {
    SL_ROWS(is_device_ptr(x, y))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * x_stride;
        float *out = y + r * y_stride;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = in[c];
    }
}

static void add_bias(size_t rows, size_t cols, const float *bias, float *y, size_t stride) {
    SL_ROWS(is_device_ptr(bias, y))
    for (size_t r = 0; r < rows; r++) {
        float *out = y + r * stride;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] += bias[c];
    }
}

/* ---- RMS norm ---- */

static void square_sums(size_t rows, size_t cols, const float *x, float *sums) {
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (size_t c = 0; c < cols; c++) sum += in[c] * in[c];
        sums[r] = sum;
    }
}

static void rms_norm_forward(size_t rows, size_t cols, size_t whole, const float *x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, float *y) {
    SL_ROWS(is_device_ptr(x, sums, gamma, beta, rstd, y))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float *out = y + r * cols;
        const float reciprocal = 1.0f / sqrtf(sums[r] / (float)whole + epsilon);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = in[c] * reciprocal * gamma[c] + beta[c];
        rstd[r] = reciprocal;
    }
}

static void rms_norm_dots(size_t rows, size_t cols, const float *dy, const float *x, const float *gamma, float *dots) {
    SL_ROWS(is_device_ptr(dy, x, gamma, dots))
    for (size_t r = 0; r < rows; r++) {
        const float *gradient = dy + r * cols, *in = x + r * cols;
        float dot = 0.0f;
        SL_LANES(reduction(+ : dot))
        for (size_t c = 0; c < cols; c++) dot += gradient[c] * gamma[c] * in[c];
        dots[r] = dot;
    }
}

static void rms_norm_backward_input(size_t rows, size_t cols, size_t whole, const float *dy, const float *x,
                                    const float *rstd, const float *gamma, const float *dots, float *dx) {
    SL_ROWS(is_device_ptr(dy, x, rstd, gamma, dots, dx))
    for (size_t r = 0; r < rows; r++) {
        const float *gradient = dy + r * cols, *in = x + r * cols;
        float *out = dx + r * cols;
        const float factor = rstd[r], along = factor * factor * (dots[r] / (float)whole);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = factor * (gradient[c] * gamma[c] - in[c] * along);
    }
}

static void rms_norm_backward_weight(size_t rows, size_t cols, const float *dy, const float *x, const float *rstd,
                                     float *dgamma, float *dbeta) {
    SL_BLOCKS(is_device_ptr(dy, x, rstd, dgamma, dbeta))
    for (size_t first = 0; first < cols; first += SL_BLOCK) {
        const size_t end = smaller(first + SL_BLOCK, cols);
        SL_IN_BLOCK()
        for (size_t c = first; c < end; c++) dgamma[c] = dbeta[c] = 0.0f;
        size_t r = 0;
        for (; r + 2 <= rows; r += 2) { /* sums are loaded and stored once for two rows */
            const float *gradient = dy + r * cols, *in = x + r * cols, factor = rstd[r], factor1 = rstd[r + 1];
            const float *gradient1 = gradient + cols, *in1 = in + cols;
            SL_IN_BLOCK()
            for (size_t c = first; c < end; c++) {
                dgamma[c] = (dgamma[c] + gradient[c] * (in[c] * factor)) + gradient1[c] * (in1[c] * factor1);
                dbeta[c] = (dbeta[c] + gradient[c]) + gradient1[c];
            }
        }
        for (; r < rows; r++) {
            const float *gradient = dy + r * cols, *in = x + r * cols, factor = rstd[r];
            SL_IN_BLOCK()
            for (size_t c = first; c < end; c++) {
                dgamma[c] += gradient[c] * (in[c] * factor);
                dbeta[c] += gradient[c];
            }
        }
    }
}

/* ---- positions and tokens ---- */

static void rope(size_t rows, size_t cols, size_t sequence, size_t position, const float *cosine, const float *sine,
                 bool back, const float *x, float *y) {
    const size_t pairs = cols / 2;
    const float sign = back ? -1.0f : 1.0f;
    SL_ROWS(is_device_ptr(cosine, sine, x, y))
    for (size_t r = 0; r < rows; r++) {
        const size_t angles = (position + r % sequence) * pairs;
        const float *c = cosine + angles, *s = sine + angles, *in = x + r * cols;
        float *out = y + r * cols;
        SL_LANES()
        for (size_t i = 0; i < pairs; i++) {
            const float even = in[2 * i], odd = in[2 * i + 1], turn = sign * s[i];
            out[2 * i] = even * c[i] - odd * turn;
            out[2 * i + 1] = odd * c[i] + even * turn;
        }
    }
}

/* Where NUMBER is in [first, first + count), or -1. */
static inline int64_t place_of(int32_t number, int32_t first, int64_t count) {
    const int64_t place = (int64_t)number - first;
    return place >= 0 && place < count ? place : -1;
}

static void lookup(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *table,
                   size_t stride, float *y) {
    SL_ROWS(is_device_ptr(tokens, table, y))
    for (size_t r = 0; r < rows; r++) {
        const int64_t place = place_of(tokens[r], first, count);
        const bool here = place >= 0;
        const float *in = table + (here ? (size_t)place : 0) * stride;
        float *out = y + r * cols;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = here ? in[c] : 0.0f;
    }
}

static void scatter_add(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride) {
    SL_BLOCKS(is_device_ptr(tokens, dy, dtable))
    for (size_t begin = 0; begin < cols; begin += SL_BLOCK) {
        const size_t end = smaller(begin + SL_BLOCK, cols);
        for (size_t r = 0; r < rows; r++) {
            const int64_t place = place_of(tokens[r], first, count);
            if (place < 0) continue;
            const float *in = dy + r * cols;
            float *sum = dtable + (size_t)place * stride;
            SL_IN_BLOCK()
            for (size_t c = begin; c < end; c++) sum[c] += in[c];
        }
    }
}

/* ---- loss ---- */

static void row_maxima(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima) {
    const int32_t classes = (int32_t)cols, lowest = sl_order_of_float(-INFINITY);
    SL_ROWS(is_device_ptr(logits, maxima, argmaxima))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * cols;
        int32_t highest = lowest, at = classes;
        SL_LANES(reduction(max : highest))
        for (int32_t c = 0; c < classes; c++) {
            const int32_t value = sl_order_of_float(x[c]);
            highest = value > highest ? value : highest;
        }
        const float max = sl_float_of_order(highest);
        SL_LANES(reduction(min : at))
        for (int32_t c = 0; c < classes; c++) {
            const int32_t candidate = x[c] < max ? classes : c; /* also where one of them is NaN */
            at = candidate < at ? candidate : at;
        }
        maxima[r] = max;
        argmaxima[r] = (float)(first + at);
    }
}

static void row_sums(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                     const float *maxima, float *sums, float *targets) {
    SL_ROWS(is_device_ptr(logits, labels, maxima, sums, targets))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * cols, max = maxima[r];
        const int64_t label = place_of(labels[r], first, (int64_t)cols);
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (size_t c = 0; c < cols; c++) sum += sl_exp(x[c] - max);
        sums[r] = sum;
        targets[r] = label < 0 ? 0.0f : x[label];
    }
}

static void row_losses(size_t rows, size_t cols, int32_t first, const float *logits, const int32_t *labels,
                       const float *maxima, const float *argmaxima, const float *sums, const float *targets,
                       float weight, float *dlogits, double result[3]) {
    double loss = 0.0, correct = 0.0, counted = 0.0;
    SL_ROWS(is_device_ptr(logits, labels, maxima, argmaxima, sums, targets, dlogits)
                reduction(+ : loss, correct, counted))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * cols, max = maxima[r], factor = weight / sums[r];
        float *dx = dlogits + r * cols;
        const bool counts = labels[r] >= 0;
        const int64_t label = place_of(labels[r], first, (int64_t)cols);
        SL_LANES()
        for (size_t c = 0; c < cols; c++) dx[c] = counts ? factor * sl_exp(x[c] - max) : 0.0f;
        if (label >= 0) dx[label] -= weight;
        if (counts) {
            loss += (double)(sl_log(sums[r]) - (targets[r] - max));
            correct += argmaxima[r] == (float)labels[r];
            counted += 1.0;
        }
    }
    result[0] += loss;
    result[1] += correct;
    result[2] += counted;
}

const struct sl_sequence_kernels SL_SEQUENCE_KERNELS = {
    .copy_block = copy_block,
    .add_bias = add_bias,
    .square_sums = square_sums,
    .rms_norm_forward = rms_norm_forward,
    .rms_norm_dots = rms_norm_dots,
    .rms_norm_backward_input = rms_norm_backward_input,
    .rms_norm_backward_weight = rms_norm_backward_weight,
    .gelu_forward = SL_GELU_FORWARD,
    .gelu_backward = SL_GELU_BACKWARD,
    .rope = rope,
    .lookup = lookup,
    .scatter_add = scatter_add,
    .row_maxima = row_maxima,
    .row_sums = row_sums,
    .row_losses = row_losses,
};
