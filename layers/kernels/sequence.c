/* sequence.c - kernels for models of token sequences, built as kernels.c is.
 *
 * The build defines SL_SEQUENCE_KERNELS, the table's name, and the names of gelu.c's functions. */
#include "layers/kernels/sequence.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "layers/kernels/softmax_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/device/offload.h"
#include "spmd/base/numbers/vector_math.h"

SL_INLINE void round_few(const size_t count, size_t i, const float *x, uint16_t *y) {
    store_halves(count, round_floats(count, load_floats(count, x + i)), y + i);
}

static void round_block(size_t rows, size_t cols, const float *x, size_t x_stride, uint16_t *y, size_t y_stride) {
    SL_ROWS(is_device_ptr(x, y))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * x_stride;
        uint16_t *out = y + r * y_stride;
        SL_LANES()
        for (size_t c = 0; c < cols; c += SL_FOUR)
            SL_BY_FOUR(round_few, c, cols, FLOATS_AT(in) | HALVES_AT(out), in, out);
    }
}

SL_INLINE void copy_few(const size_t count, size_t i, const bool rounds, const bool stores, const float *x, float *y,
                        uint16_t *stored) {
    leave_few(count, i, load_floats(count, x + i), true, rounds, stores, y, stored);
}

static void copy_settled(size_t rows, size_t cols, const float *x, size_t x_stride, struct sl_out y, size_t y_stride) {
    const bool rounds = y.rounds;
    float *values = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
    if (!values) {
        round_block(rows, cols, x, x_stride, stored, y_stride);
        return;
    }
    SL_ROWS(is_device_ptr(x, values, stored))
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * x_stride;
        float *out = values + r * y_stride;
        uint16_t *to = stored ? stored + r * y_stride : NULL;
#define COPY(rounds, stores)                                                                                           \
    do {                                                                                                               \
        SL_LANES()                                                                                                     \
        for (size_t c = 0; c < cols; c += SL_FOUR)                                                                     \
            SL_BY_FOUR(copy_few, c, cols, FLOATS_AT(in) | FLOATS_AT(out) | ((stores) ? HALVES_AT(to) : 0), rounds,     \
                       stores, in, out, to);                                                                           \
    } while (0)
        if (!rounds)
            COPY(false, false);
        else if (stored)
            COPY(true, true);
        else
            COPY(true, false);
#undef COPY
    }
}

static void copy_block(size_t rows, size_t cols, const float *x, size_t x_stride, float *y, size_t y_stride) {
    copy_settled(rows, cols, x, x_stride, sl_out_f32(y), y_stride);
}

static void add_bias(size_t rows, size_t cols, const float *bias, struct sl_out y, size_t stride) {
    const bool rounds = y.rounds;
    float *values = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
    SL_ROWS(is_device_ptr(bias, values, stored))
    for (size_t r = 0; r < rows; r++) {
        const size_t first = r * stride;
        float *out = values + first;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] += bias[c];
        if (rounds) settle_elements(first, first + cols, values, stored);
    }
}

/* ---- positions and tokens ---- */

static void rope(size_t rows, size_t cols, size_t sequence, size_t position, const int32_t *places, const float *cosine,
                 const float *sine, bool back, const float *x, struct sl_out y) {
    const size_t pairs = cols / 2;
    const float sign = back ? -1.0f : 1.0f;
    const bool rounds = y.rounds;
    float *values = sl_out_floats(y);
    uint16_t *stored = sl_out_halves(y);
    SL_ROWS(is_device_ptr(places, cosine, sine, x, values, stored))
    for (size_t r = 0; r < rows; r++) {
        const size_t angles = (position + (places ? (size_t)places[r] : r % sequence)) * pairs;
        const float *c = cosine + angles, *s = sine + angles, *in = x + r * cols;
        float *out = values + r * cols;
        SL_LANES()
        for (size_t i = 0; i < pairs; i++) {
            const float even = in[2 * i], odd = in[2 * i + 1], turn = sign * s[i];
            out[2 * i] = even * c[i] - odd * turn;
            out[2 * i + 1] = odd * c[i] + even * turn;
        }
        if (rounds) settle_elements(r * cols, (r + 1) * cols, values, stored);
    }
}

/* Writes floats, rounded and copied by ROUNDS and STORED. */
static void lookup_floats(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count,
                          const void *table, bool half, size_t stride, float *y, bool rounds, uint16_t *stored) {
    SL_ROWS(is_device_ptr(tokens, table, y, stored))
    for (size_t r = 0; r < rows; r++) {
        const int64_t place = place_of(tokens[r], first, count);
        const bool here = place >= 0;
        const size_t at = (here ? (size_t)place : 0) * stride;
        const float *in = (const float *)table + at;
        const uint16_t *rounded = (const uint16_t *)table + at;
        float *out = y + r * cols;
        if (half) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = here ? sl_float_of_bf16(rounded[c]) : 0.0f;
        } else {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = here ? in[c] : 0.0f;
        }
        if (rounds) settle_elements(r * cols, (r + 1) * cols, y, stored);
    }
}

/* Writes bf16 without floats. */
static void lookup_stored(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count,
                          const void *table, bool half, size_t stride, uint16_t *y) {
    SL_ROWS(is_device_ptr(tokens, table, y))
    for (size_t r = 0; r < rows; r++) {
        const int64_t place = place_of(tokens[r], first, count);
        const bool here = place >= 0;
        const size_t at = (here ? (size_t)place : 0) * stride;
        const float *in = (const float *)table + at;
        const uint16_t *rounded = (const uint16_t *)table + at;
        uint16_t *out = y + r * cols;
        if (half) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = here ? rounded[c] : 0;
        } else {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = here ? sl_bf16_of_float(in[c]) : 0;
        }
    }
}

static void lookup(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, struct sl_rows table,
                   size_t stride, struct sl_out y) {
    const bool half = table.type == SL_BF16;
    uint16_t *stored = sl_out_halves(y);
    if (y.rows.type == SL_BF16)
        lookup_stored(rows, cols, tokens, first, count, table.at, half, stride, stored);
    else /* a bf16 table's values are already rounded */
        lookup_floats(rows, cols, tokens, first, count, table.at, half, stride, y.rows.at,
                      y.rounds && !(half && !stored), stored);
}

enum {
    WORD = 32,                           /* tokens of a word, a bit each, */
    WORDS = 128,                         /* and words of a list */
    ADJACENT = SLICE_THREADS * SL_BLOCK, /* columns of a team */
};

/* Returns the bits of COUNT tokens, WORD at most: whether they have a place of which SHARE are the bits in MASK. */
SL_INLINE uint32_t tokens_of_share(size_t count, const int32_t *tokens, int32_t first, int32_t places, uint32_t mask,
                                   uint32_t share) {
    uint32_t word = 0;
    SL_ROLLED
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = (uint32_t)tokens[i] - (uint32_t)first; /* large if the token is below FIRST */
        word |= (uint32_t)(place < (uint32_t)places && (place & mask) == share) << i;
    }
    return word;
}

/* On devices several teams share a block of columns, each with its own tokens, so that every sum keeps its order. A
 * team's threads list its tokens together; then each adds the listed rows along its columns. */
static void scatter_add(size_t rows, size_t cols, const int32_t *tokens, int32_t first, int32_t count, const float *dy,
                        float *dtable, size_t stride) {
    const size_t blocks = (cols + ADJACENT - 1) / ADJACENT;
    size_t shares = 1;
    while (SLICED && blocks && shares * blocks < SL_TEAMS) shares *= 2;
    SL_ROWS(is_device_ptr(tokens, dy, dtable))
    for (size_t b = 0; b < blocks * shares; b++) {
        const size_t begin = b % blocks * ADJACENT, end = smaller(begin + ADJACENT, cols), share = b / blocks;
        uint32_t list[WORDS];
        for (size_t from = 0; from < rows; from += WORDS * WORD) {
            const size_t listed = smaller(rows - from, WORDS * WORD), words = (listed + WORD - 1) / WORD;
            SL_THREADS()
            for (size_t w = 0; w < words; w++)
                list[w] = tokens_of_share(smaller(listed - w * WORD, WORD), tokens + from + w * WORD, first, count,
                                          (uint32_t)shares - 1, (uint32_t)share);
            SL_THREADS()
            for (size_t column = begin; column < end; column += SL_BLOCK) {
                const size_t many = SL_BLOCK == 1 ? 1 : smaller(end - column, SL_BLOCK); /* a constant on devices */
                for (size_t w = 0; w < words; w++)
                    for (uint32_t left = list[w]; left; left &= left - 1) {
                        const size_t r = from + w * WORD + (size_t)__builtin_ctz(left);
                        const float *in = dy + r * cols + column;
                        float *sum = dtable + (size_t)(tokens[r] - first) * stride + column;
                        SL_IN_BLOCK()
                        for (size_t c = 0; c < many; c++) sum[c] += in[c];
                    }
            }
        }
    }
}

/* ---- loss ---- */

static void row_maxima(size_t rows, size_t cols, int32_t first, const float *logits, float *maxima, float *argmaxima) {
    const int32_t classes = (int32_t)cols, lowest = sl_order_of_float(-INFINITY);
    SL_ROWS(is_device_ptr(logits, maxima, argmaxima))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * cols;
        const size_t lead = SL_LEAD(x);
        int32_t highest = lowest, at = classes;
        SL_LANES(reduction(max : highest))
        for (size_t c = 0; c < lead + cols; c += SL_FOUR)
            SL_ROW_BY_FOUR(highest = highest_few, c, lead, cols, true, x, highest);
        const float max = sl_float_of_order(highest);
        SL_LANES(reduction(min : at))
        for (int32_t c = 0; c < classes; c++) {
            const int32_t candidate = x[c] < max ? classes : c; /* also correct if a logit is NaN */
            at = candidate < at ? candidate : at;
        }
        maxima[r] = max;
        argmaxima[r] = (float)(first + at);
    }
}

static void copy_labels(size_t rows, size_t cols, const int32_t *x, size_t stride, int32_t *y) {
    SL_ROWS(is_device_ptr(x, y))
    for (size_t r = 0; r < rows; r++) {
        SL_LANES()
        for (size_t c = 0; c < cols; c++) y[r * cols + c] = x[r * stride + c];
    }
}

static void scale_rows(size_t rows, size_t cols, const float *scales, float *y) {
    SL_ROWS(is_device_ptr(scales, y))
    for (size_t r = 0; r < rows; r++) {
        float *out = y + r * cols;
        const float scale = scales[r];
        if (scale == 1.0f) continue;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] *= scale;
    }
}

static void softmax_join(size_t rows, const float *maxima, float *scales, float *sums) {
    SL_ELEMENTWISE(is_device_ptr(maxima, scales, sums), )
    for (size_t r = 0; r < rows; r++) {
        scales[r] = sl_exp(scales[r] - maxima[r]);
        sums[r] *= scales[r];
    }
}

static void softmax_losses(size_t rows, const int32_t *labels, const float *maxima, const float *argmaxima,
                           const float *sums, const float *targets, double many, double hits, double *totals) {
    SL_ROWS(is_device_ptr(labels, maxima, argmaxima, sums, targets, totals))
    for (size_t once = 0; once < 1; once++) {
        double loss = 0.0;
        SL_ADDS(reduction(+ : loss))
        for (size_t r = 0; r < rows; r++) {
            if (labels[r] >= 0) loss += (double)(sl_log(sums[r]) - (targets[r] - maxima[r]));
        }
        uint32_t correct = 0, counted = 0;
        SL_ADDS(reduction(+ : correct, counted))
        for (size_t r = 0; r < rows; r++) {
            counted += labels[r] >= 0;
            correct += labels[r] >= 0 && argmaxima[r] == (float)labels[r];
        }
        totals[0] += many * loss;
        totals[1] += hits * (double)correct;
        totals[2] += many * (double)counted;
    }
}

static void softmax_gradient(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count,
                             const float *sums, const float *scales, float weight, struct sl_rows table,
                             struct sl_out dx) {
    const bool rounds = dx.rounds, rounded = table.type == SL_BF16;
    const void *from = table.at;
    float *values = sl_out_floats(dx);
    uint16_t *stored = sl_out_halves(dx);
    SL_ROWS(is_device_ptr(labels, sums, scales, from, values, stored))
    for (size_t r = 0; r < rows; r++) {
        const int64_t place = place_of(labels[r], first, count);
        const size_t at = (place < 0 ? 0 : (size_t)place) * cols;
        const float *row = (const float *)from + at;
        const uint16_t *half = (const uint16_t *)from + at;
        const float factor = labels[r] < 0 ? 0.0f : weight / sums[r] * scales[r], hit = place < 0 ? 0.0f : weight;
        float *out = values + r * cols;
        if (labels[r] < 0) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = 0.0f;
        } else if (rounded) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = factor * out[c] - hit * sl_float_of_bf16(half[c]);
        } else {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = factor * out[c] - hit * row[c];
        }
        if (rounds) settle_elements(r * cols, (r + 1) * cols, values, stored);
    }
}

static void label_rows(size_t rows, size_t cols, const int32_t *labels, int32_t first, int32_t count,
                       struct sl_rows table, bool begins, float *y) {
    const bool rounded = table.type == SL_BF16;
    const void *from = table.at;
    SL_ROWS(is_device_ptr(labels, from, y))
    for (size_t r = 0; r < rows; r++) {
        const int64_t place = place_of(labels[r], first, count);
        const size_t at = (place < 0 ? 0 : (size_t)place) * cols;
        const float *row = (const float *)from + at;
        const uint16_t *half = (const uint16_t *)from + at;
        float *out = y + r * cols;
        if (place < 0 && !begins) continue;
        if (place < 0) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = 0.0f;
        } else if (rounded) {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = sl_float_of_bf16(half[c]);
        } else {
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] = row[c];
        }
    }
}

static void label_places(size_t rows, const int32_t *labels, int32_t *y) {
    SL_ELEMENTWISE(is_device_ptr(labels, y), )
    for (size_t r = 0; r < rows; r++) y[r] = labels[r] < 0 ? -1 : (int32_t)r;
}

const struct sl_sequence_kernels SL_SEQUENCE_KERNELS = {
    .copy_block = copy_block,
    .round_block = round_block,
    .copy_settled = copy_settled,
    .add_bias = add_bias,
    .gelu_forward = SL_GELU_FORWARD,
    .gelu_backward = SL_GELU_BACKWARD,
    .rope = rope,
    .lookup = lookup,
    .scatter_add = scatter_add,
    .row_maxima = row_maxima,
    .copy_labels = copy_labels,
    .softmax_chunk = softmax_chunk,
    .scale_rows = scale_rows,
    .softmax_join = softmax_join,
    .softmax_losses = softmax_losses,
    .softmax_gradient = softmax_gradient,
    .label_rows = label_rows,
    .label_places = label_places,
    .softmax_dlogits = softmax_dlogits,
};
