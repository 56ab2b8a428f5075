/* kernels.c - everything that is not a matrix product, built once per CPU level, or for devices.
 *
 * The build defines SL_KERNELS, the table's name; SL_SEQUENCE_KERNELS, SL_PUBLISHED_KERNELS, SL_DRAWS,
 * SL_ATTENTION_KERNELS, SL_LATENT_KERNELS, SL_EXPERT_KERNELS and SL_OPERAND_KERNELS, the names of the tables that it
 * contains; and SL_LEVEL, the level's name. */
#include "layers/kernels/kernels.h"
#include "layers/kernels/elements_internal.h"
#include "layers/kernels/hashes_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/device/offload.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/vector_math.h"

#include <string.h>

/* A region's launch carries scalars, but a struct needs a copy of its own: so kernels unpack structs first. */

/* ---- sums and products ---- */

/* part_of returns the number of elements in each of the SL_PARTS parts of N elements, at most. */
enum { PAIRS = (SL_PARTS + 1) / 2 }; /* parts that write two numbers each into the room */

static size_t part_of(size_t n) { return (n + SL_PARTS - 1) / SL_PARTS; }

/* *SUM += the sum of the SL_PARTS numbers in ROOM, divided by DIVISOR. */
static void add_parts(const double *room, double divisor, double *sum) {
    SL_ROWS(is_device_ptr(room, sum))
    for (size_t once = 0; once < 1; once++) {
        double total = 0.0;
        SL_ADDS(reduction(+ : total))
        for (size_t p = 0; p < SL_PARTS; p++) total += room[p];
        *sum += total / divisor;
    }
}

static void sum_of_squares(size_t n, const float *x, double *room, double *sum) {
    const size_t part = part_of(n);
    SL_ROWS(is_device_ptr(x, room))
    for (size_t p = 0; p < SL_PARTS; p++) {
        const size_t first = smaller(p * part, n), end = smaller(first + part, n);
        double squares = 0.0;
        SL_LANES(reduction(+ : squares))
        for (size_t i = first; i < end; i++) squares += (double)x[i] * x[i];
        room[p] = squares;
    }
    add_parts(room, 1.0, sum);
}

static void largest_bits(size_t n, const float *x, double *room, int32_t *bits) {
    const size_t part = part_of(n);
    int32_t *parts = (int32_t *)(void *)room;
    SL_ROWS(is_device_ptr(x, parts))
    for (size_t p = 0; p < SL_PARTS; p++) {
        const size_t first = smaller(p * part, n), end = smaller(first + part, n);
        int32_t most = 0;
        SL_LANES(reduction(max : most))
        for (size_t i = first; i < end; i++) {
            const int32_t own = (int32_t)(sl_bits_of_float(x[i]) & INT32_MAX);
            most = own > most ? own : most;
        }
        parts[p] = most;
    }
    SL_ROWS(is_device_ptr(parts, bits))
    for (size_t once = 0; once < 1; once++) {
        int32_t most = *bits;
        SL_LANES(reduction(max : most))
        for (size_t p = 0; p < SL_PARTS; p++) most = parts[p] > most ? parts[p] : most;
        *bits = most;
    }
}

/* A square is exact as a double. */
static void add_squares(size_t n, const float *x, double scale, double *room, uint64_t *sums) {
    const size_t part = (n + PAIRS - 1) / PAIRS;
    uint64_t *parts = (uint64_t *)(void *)room;
    SL_ROWS(is_device_ptr(x, parts))
    for (size_t p = 0; p < PAIRS; p++) {
        const size_t first = smaller(p * part, n), end = smaller(first + part, n);
        uint64_t high = 0, low = 0;
        SL_LANES(reduction(+ : high, low))
        for (size_t i = first; i < end; i++) {
            const double scaled = (double)x[i] * scale;
            const uint64_t multiple = (uint64_t)(int64_t)(scaled * scaled * 0x1p63);
            high += multiple >> 32;
            low += multiple & UINT32_MAX;
        }
        parts[2 * p] = high;
        parts[2 * p + 1] = low;
    }
    SL_ROWS(is_device_ptr(parts, sums))
    for (size_t once = 0; once < 1; once++) {
        uint64_t high = sums[0], low = sums[1];
        SL_LANES(reduction(+ : high, low))
        for (size_t p = 0; p < PAIRS; p++) {
            high += parts[2 * p];
            low += parts[2 * p + 1];
        }
        sums[0] = high + (low >> 32);
        sums[1] = low & UINT32_MAX;
    }
}

SL_INLINE void column_sums_of(size_t parts, size_t rows, size_t cols, const void *x, const bool half, bool accumulate,
                              float *sums) {
    const size_t groups = column_groups(cols), stripes = stripes_of(rows, cols);
    const bool leads = accumulate && stripes == 1;
    float *const all = stripes > 1 ? sl_device.room() : sums;
    SL_ROWS(is_device_ptr(x, all))
    for (size_t g = 0; g < parts * stripes * groups; g++) {
        const struct stripe stripe = stripe_of(rows, stripes, g / groups);
        const size_t group = g % groups * SL_COLUMNS;
        float slices[SLICE_SUMS], *to = all + g / groups * cols;
        SL_THREADS()
        for (size_t t = 0; t < SLICE_THREADS; t++) {
            const struct slice s = slice_of(stripe.count, cols, group, t);
            if (s.first >= cols) continue;
            float sum[SL_BLOCK], *left = slice_sums(slices, to, t, s.first);
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) sum[c] = leads && s.leads ? to[s.first + c] : 0.0f;
            size_t row = (stripe.first + s.begin) * cols + s.first;
            const size_t end = row + (s.end - s.begin) * cols;
            for (; row + 3 * cols < end; row += 4 * cols) { /* sums are loaded and stored once per four rows */
                const size_t row1 = row + cols, row2 = row1 + cols, row3 = row2 + cols;
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++)
                    sum[c] = (((sum[c] + element(x, half, row + c)) + element(x, half, row1 + c)) +
                              element(x, half, row2 + c)) +
                             element(x, half, row3 + c);
            }
            for (; row < end; row += cols) {
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) sum[c] += element(x, half, row + c);
            }
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) left[c] = sum[c];
        }
        add_slices(slices, cols, group, to);
    }
    if (stripes > 1) add_stripes(parts, stripes, cols, all, accumulate, sums);
}

static void part_sums(size_t parts, size_t rows, size_t cols, const void *x, bool half, bool accumulate, float *sums) {
    const size_t most = parts_at_once(parts, rows, cols, 1), n = rows * cols;
    for (size_t part = 0, count; part < parts; part += count) {
        count = smaller(most, parts - part);
        if (half)
            column_sums_of(count, rows, cols, (const uint16_t *)x + part * n, true, accumulate, sums + part * cols);
        else
            column_sums_of(count, rows, cols, (const float *)x + part * n, false, accumulate, sums + part * cols);
    }
}

static void column_sums(size_t rows, size_t cols, const float *x, bool accumulate, float *sums) {
    part_sums(1, rows, cols, x, false, accumulate, sums);
}

/* Sums of columns replace the first of these columns, until the next level adds them. */
static void row_trees(size_t rows, size_t cols, float *x, float *sums) {
    SL_ROWS(is_device_ptr(x, sums))
    for (size_t r = 0; r < rows; r++) {
        float *row = x + r * cols;
        for (size_t apart = 1; apart < cols; apart *= 2)
            for (size_t c = 0; c + apart < cols; c += 2 * apart) row[c] += row[c + apart];
        sums[r] = row[0];
    }
}

/* ---- loss ---- */

/* XLA's order of a row's sum on a CPU: first the elements behind the last quad, then quad by quad, then the quad's
 * halves. If one class has nearly all the probability, 1 - p is a few units in the last place of this sum, so the order
 * decides the gradient's third digit. */
SL_INLINE float sum_by_quads(const float *x, size_t n) {
    const size_t quads = n - n % 4;
    float sum0 = n % 4 > 0 ? x[quads] : 0.0f, sum1 = n % 4 > 1 ? x[quads + 1] : 0.0f;
    float sum2 = n % 4 > 2 ? x[quads + 2] : 0.0f, sum3 = 0.0f;
    for (size_t i = 0; i < quads; i += 4) {
        sum0 += x[i];
        sum1 += x[i + 1];
        sum2 += x[i + 2];
        sum3 += x[i + 3];
    }
    return (sum0 + sum2) + (sum1 + sum3);
}

static void softmax_cross_entropy(size_t rows, size_t classes, const float *logits, const int32_t *labels, float weight,
                                  float *dlogits, float *losses) {
    SL_ROWS(is_device_ptr(logits, labels, dlogits, losses))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * classes;
        float *dx = dlogits + r * classes;
        const bool counts = labels[r] >= 0;
        const size_t label = counts ? (size_t)labels[r] : 0;
        int32_t highest = INT32_MIN;
        SL_LANES(reduction(max : highest))
        for (size_t c = 0; c < classes; c++) {
            const int32_t value = sl_order_of_float(x[c]);
            highest = value > highest ? value : highest;
        }
        const float max = sl_float_of_order(highest);
        SL_LANES()
        for (size_t c = 0; c < classes; c++) dx[c] = sl_exp(x[c] - max);
        const float sum = sum_by_quads(dx, classes);
        int equals = 0; /* equal maxima before the label: the first one is the argmax */
        SL_LANES(reduction(+ : equals))
        for (size_t c = 0; c < label; c++) equals += x[c] == max;
        const float factor = weight / sum;
        SL_LANES()
        for (size_t c = 0; c < classes; c++) dx[c] = counts ? factor * dx[c] : 0.0f;
        if (counts) dx[label] -= weight;
        losses[2 * r] = sl_log(sum) - (x[label] - max);
        losses[2 * r + 1] = x[label] == max && !equals;
    }
}

static void add_losses(size_t rows, const int32_t *labels, const float *losses, double *sums) {
    SL_ROWS(is_device_ptr(labels, losses, sums))
    for (size_t once = 0; once < 1; once++) {
        double loss = 0.0, correct = 0.0;
        SL_ADDS(reduction(+ : loss, correct)) /* a GPU's threads would spill three sums to memory */
        for (size_t r = 0; r < rows; r++) {
            if (labels[r] < 0) continue;
            loss += (double)losses[2 * r];
            correct += (double)losses[2 * r + 1];
        }
        uint32_t counted = 0;
        SL_ADDS(reduction(+ : counted))
        for (size_t r = 0; r < rows; r++) counted += labels[r] >= 0;
        sums[0] += loss;
        sums[1] += correct;
        sums[2] += (double)counted;
    }
}

static void mean_squared_error(size_t rows, size_t columns, const float *outputs, const float *targets, float weight,
                               float *gradient, double *room, double *sums) {
    const float factor = 2.0f * weight / (float)columns;
    const size_t n = rows * columns, part = part_of(n);
    SL_ROWS(is_device_ptr(outputs, targets, gradient, room))
    for (size_t p = 0; p < SL_PARTS; p++) {
        const size_t first = smaller(p * part, n), end = smaller(first + part, n);
        double squares = 0.0;
        SL_LANES(reduction(+ : squares))
        for (size_t i = first; i < end; i++) {
            const float error = outputs[i] - targets[i];
            squares += (double)error * error;
            gradient[i] = factor * error;
        }
        room[p] = squares;
    }
    add_parts(room, (double)columns, sums);
    double *counted = sums + 2;
    SL_ROWS(is_device_ptr(counted))
    for (size_t once = 0; once < 1; once++) *counted += (double)rows;
}

/* ---- optimizer ---- */

/* Included here, not above: compilers for GPUs need 88 registers and a stack frame for a file's first region, but 69
 * and no frame for this one. */
#include "layers/kernels/adamw_internal.h"

const struct sl_kernels SL_KERNELS = {
    .name = SL_LEVEL,
    .hashes = SL_STREAMS,
    .slices = SL_SLICES,
    .whole_norms = SL_TOGETHER,
    .draws_dropout = SL_TOGETHER,
    .sequence = &SL_SEQUENCE_KERNELS,
    .published = &SL_PUBLISHED_KERNELS,
    .draws = &SL_DRAWS,
    .attention = &SL_ATTENTION_KERNELS,
    .latent = &SL_LATENT_KERNELS,
    .experts = &SL_EXPERT_KERNELS,
    .operands = &SL_OPERAND_KERNELS,
    .norms = &SL_NORM_KERNELS,
    .fill = fill,
    .add = add,
    .add_settled = add_settled,
    .round_bf16 = round_bf16,
    .share_bf16 = share_bf16,
    .widen_bf16 = widen_bf16,
    .settle_bf16 = settle_bf16,
    .sum_of_squares = sum_of_squares,
    .largest_bits = largest_bits,
    .add_squares = add_squares,
    .add_hash = add_hash,
    .add_up_hashes = add_up_hashes,
    .column_sums = column_sums,
    .row_trees = row_trees,
    .part_sums = part_sums,
    .softmax_cross_entropy = softmax_cross_entropy,
    .add_losses = add_losses,
    .mean_squared_error = mean_squared_error,
    .adamw = adamw,
};
