/* norms.c - norms, built as kernels.c is: RMS norms of whole rows, and the table. Layer norms are in
 * layer_norm_internal.h, RMS norms step by step in rms_norm_internal.h.
 *
 * A team has some rows. First its threads, ALONG per row, read them for sums along columns. Then forward computes y;
 * backward computes, one thread per column, dx and these rows' part of the parameters' gradients. A second region adds
 * up the parts of all teams.
 *
 * The build defines SL_NORM_KERNELS, the table's name. */
#include "layers/kernels/norms/norms.h"
#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/norms/layer_norm_internal.h"
#include "layers/kernels/norms/rms_norm_internal.h"
#include "layers/kernels/loops/settle_internal.h"
#include "layers/kernels/loops/slices_internal.h"
#include "layers/kernels/loops/smaller_internal.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

enum {
    TOGETHER = 8, /* rows of a team: its threads request all first reads at once */
    ALONG = 16,   /* threads of a row: with TOGETHER rows the 128 threads of a team */
};

static size_t blocks_of(size_t rows) { return (rows + TOGETHER - 1) / TOGETHER; }

/* ---- forward of RMS norms ---- */

/* Returns SUM plus the squares of elements of X from I on. HALF is a constant, here and below. */
SL_INLINE float square_few(const size_t count, size_t i, const bool half, const void *x, float sum) {
    const few_floats all = load_elements(count, half, x, i);
    for (size_t k = 0; k < count; k++) sum += OF(all, k) * OF(all, k);
    return sum;
}

/* Returns the row of X at element AT. */
SL_INLINE const void *row_of(const void *x, const bool half, size_t at) {
    return half ? (const void *)((const uint16_t *)x + at) : (const float *)x + at;
}

/* Normalizes elements from column C on of the row IN, and writes them to y, whose row begins at AT. */
SL_INLINE void norm_few(const size_t count, size_t c, size_t at, const bool half, const void *in, float reciprocal,
                        const float *gamma, const float *beta, float *y, bool rounds, uint16_t *stored) {
    const few_floats scale = load_floats(count, gamma + c), shift = load_floats(count, beta + c);
    few_floats values = load_elements(count, half, in, c);
    for (size_t k = 0; k < count; k++) OF(values, k) = OF(values, k) * reciprocal * OF(scale, k) + OF(shift, k);
    leave_few(count, at + c, values, y, rounds, stored, y, stored);
}

/* Computes block B of ROWS, inside SL_ROWS: ALONG threads per row; SUMS are their sums of squares. */
SL_INLINE void forward_block(size_t b, size_t rows, size_t cols, const void *x, const bool half, const float *gamma,
                             const float *beta, float epsilon, float *rstd, float *y, bool rounds, uint16_t *stored,
                             float *sums) {
    SL_THREADS()
    for (size_t t = 0; t < TOGETHER * ALONG; t++) {
        const size_t r = b * TOGETHER + t / ALONG, at = r * cols, end = r < rows ? cols : 0;
        const void *in = row_of(x, half, at);
        float sum = 0.0f;
        for (size_t c = t % ALONG * SL_FOUR; c < end; c += ALONG * SL_FOUR)
            SL_BY_FOUR(sum = square_few, c, end, ELEMENTS_AT(half, in), half, in, sum);
        sums[t] = sum;
    }
    SL_THREADS()
    for (size_t t = 0; t < TOGETHER * ALONG; t++) {
        const size_t r = b * TOGETHER + t / ALONG, at = r * cols, end = r < rows ? cols : 0;
        const void *in = row_of(x, half, at);
        float sum = 0.0f;
        for (size_t k = 0; k < ALONG; k++) sum += sums[t / ALONG * ALONG + k];
        const float reciprocal = 1.0f / sl_sqrt(sum / (float)cols + epsilon);
        for (size_t c = t % ALONG * SL_FOUR; c < end; c += ALONG * SL_FOUR)
            SL_BY_FOUR(norm_few, c, end,
                       ELEMENTS_AT(half, in) | FLOATS_AT(gamma) | FLOATS_AT(beta) | FLOATS_AT(y ? y + at : y) |
                           HALVES_AT(stored ? stored + at : stored),
                       at, half, in, reciprocal, gamma, beta, y, rounds, stored);
        if (end && t % ALONG == 0) rstd[r] = reciprocal;
    }
}

/* One region per type of x, so that device loops do not test it. */
#define FORWARD(NAME, HALF)                                                                                            \
    static void NAME(size_t rows, size_t cols, const void *x, const float *gamma, const float *beta, float epsilon,    \
                     float *rstd, float *y, bool rounds, uint16_t *stored) {                                           \
        SL_ROWS(is_device_ptr(x, gamma, beta, rstd, y, stored))                                                        \
        for (size_t b = 0; b < blocks_of(rows); b++) {                                                                 \
            float sums[TOGETHER * ALONG];                                                                              \
            forward_block(b, rows, cols, x, HALF, gamma, beta, epsilon, rstd, y, rounds, stored, sums);                \
        }                                                                                                              \
    }
FORWARD(whole_norm_forward, false)
FORWARD(whole_norm_forward_half, true)
#undef FORWARD

/* If SUMS is NULL, rows are whole. */
static void forward_rms_norm(size_t rows, size_t cols, size_t whole, struct sl_rows x, const float *sums,
                             const float *gamma, const float *beta, float epsilon, float *rstd, struct sl_out y) {
    float *floats = sl_out_floats(y);
    uint16_t *halves = sl_out_halves(y);
    if (!sums)
        (x.type == SL_BF16 ? whole_norm_forward_half : whole_norm_forward)(rows, cols, x.at, gamma, beta, epsilon, rstd,
                                                                           floats, y.rounds, halves);
    else if (halves || y.rounds)
        rms_norm_forward_bf16(rows, cols, whole, x.at, sums, gamma, beta, epsilon, rstd, floats, halves);
    else
        rms_norm_forward(rows, cols, whole, x.at, sums, gamma, beta, epsilon, rstd, floats);
}

/* ---- backward of RMS norms ---- */

static size_t rms_norm_room(size_t parts, size_t rows, size_t cols) { return parts * blocks_of(rows) * 2 * cols; }

/* Computes FEW columns from C on of COUNT rows from FIRST on. ALONG: of each row, the part of dx along x. SUMS [2,
 * cols] get the rows' parts of dgamma and dbeta, if WEIGHS. The other arguments are those of backward_block. */
SL_INLINE void backward_few(const size_t few, size_t c, size_t first, size_t count, size_t cols, const void *dy,
                            const bool half_dy, const void *x, const bool half, const float *rstd, const float *gamma,
                            const float *summand, const uint16_t *half_summand, bool rounds, float *dx,
                            uint16_t *stored, bool weighs, float *sums, const float *along) {
    const few_floats scale = load_floats(few, gamma + c);
    few_floats to_gamma = {0}, to_beta = {0};
    SL_ROLLED
    for (size_t r = 0; r < count; r++) {
        const size_t at = (first + r) * cols + c;
        const float factor = rstd[first + r], part = along[r];
        const few_floats in = load_elements(few, half, x, at);
        few_floats slope = load_elements(few, half_dy, dy, at), value = in;
        if (half && !half_dy) slope = widen_halves(few, round_floats(few, slope));
        for (size_t k = 0; k < few; k++) {
            OF(value, k) = factor * (OF(slope, k) * OF(scale, k) - OF(in, k) * part);
            OF(to_gamma, k) += OF(slope, k) * (OF(in, k) * factor);
            OF(to_beta, k) += OF(slope, k);
        }
        if (summand) value += load_floats(few, summand + at);
        if (half_summand) value += load_elements(few, true, half_summand, at);
        leave_few(few, at, value, dx, rounds, stored, dx, stored);
    }
    if (weighs) {
        store_floats(few, to_gamma, sums + c);
        store_floats(few, to_beta, sums + cols + c);
    }
}

/* Computes block B, COUNT rows from FIRST on, inside SL_ROWS. The addend is SUMMAND or HALF_SUMMAND, if not NULL. If
 * only STORED is used, DX is NULL. SUMS [blocks, 2, cols]: the rows' parts of dgamma and dbeta, if WEIGHS. */
SL_INLINE void backward_block(size_t b, size_t first, size_t count, size_t cols, const void *dy, const bool half_dy,
                              const void *x, const bool half, const float *rstd, const float *gamma,
                              const float *summand, const uint16_t *half_summand, bool rounds, float *dx,
                              uint16_t *stored, bool weighs, float *sums, float *dots, float *along) {
    SL_THREADS()
    for (size_t t = 0; t < TOGETHER * ALONG; t++) {
        const size_t at = (first + t / ALONG) * cols, end = t / ALONG < count ? cols : 0;
        float dot = 0.0f;
        for (size_t c = t % ALONG; c < end; c += ALONG)
            dot += any_gradient(dy, half_dy, half, at + c) * gamma[c] * element(x, half, at + c);
        dots[t] = dot;
    }
    SL_THREADS()
    for (size_t r = 0; r < count; r++) {
        float dot = 0.0f;
        for (size_t t = 0; t < ALONG; t++) dot += dots[r * ALONG + t];
        along[r] = rstd[first + r] * rstd[first + r] * (dot / (float)cols);
    }
    /* By four, kernels of bf16 would have 158 registers. */
#define OPERANDS                                                                                                       \
    first, count, cols, dy, half_dy, x, half, rstd, gamma, summand, half_summand, rounds, dx, stored, weighs,          \
        sums + b * 2 * cols, along
    SL_THREADS()
    for (size_t c = 0; c < cols; c += half ? 1 : SL_FOUR)
        if (half)
            backward_few(1, c, OPERANDS);
        else
            SL_BY_FOUR(backward_few, c, cols,
                       cols * sizeof(float) | FLOATS_AT(dy) | FLOATS_AT(x) | FLOATS_AT(gamma) | FLOATS_AT(summand) |
                           FLOATS_AT(dx) | HALVES_AT(stored) | FLOATS_AT(sums),
                       OPERANDS);
#undef OPERANDS
}

/* Computes all parts, whose blocks follow each other. */
#define BACKWARD(NAME, HALF_DY, HALF)                                                                                  \
    static void NAME(size_t parts, size_t rows, size_t cols, const void *dy, const void *x, const float *rstd,         \
                     const float *gamma, const float *summand, const uint16_t *half_summand, bool rounds, float *dx,   \
                     uint16_t *stored, bool weighs, float *sums) {                                                     \
        const size_t blocks = blocks_of(rows);                                                                         \
        SL_ROWS(is_device_ptr(dy, x, rstd, gamma, summand, half_summand, stored, dx, sums))                            \
        for (size_t b = 0; b < parts * blocks; b++) {                                                                  \
            const size_t above = b % blocks * TOGETHER;                                                                \
            float dots[TOGETHER * ALONG], along[TOGETHER];                                                             \
            backward_block(b, b / blocks * rows + above, smaller(TOGETHER, rows - above), cols, dy, HALF_DY, x, HALF,  \
                           rstd, gamma, summand, HALF ? half_summand : NULL, rounds, dx, stored, weighs, sums, dots,   \
                           along);                                                                                     \
        }                                                                                                              \
    }
/* One region per combination of types, so that device loops do not test them. */
BACKWARD(whole_norm_backward, false, false)
BACKWARD(whole_norm_backward_kept, false, true)
BACKWARD(whole_norm_backward_half, true, true)
#undef BACKWARD

/* Adds up SUMS into dgamma and dbeta [parts, cols], in the order of slices. */
static void add_blocks(size_t parts, size_t blocks, size_t cols, const float *sums, float *dgamma, float *dbeta) {
    const size_t groups = column_groups(cols);
    SL_ROWS(is_device_ptr(sums, dgamma, dbeta))
    for (size_t g = 0; g < parts * 2 * groups; g++) {
        const size_t part = g / (2 * groups), which = g / groups % 2, group = g % groups * SL_COLUMNS;
        float slices[SLICE_SUMS], *to = (which ? dbeta : dgamma) + part * cols;
        SL_THREADS()
        for (size_t t = 0; t < SLICE_THREADS; t++) {
            const struct slice s = slice_of(blocks, cols, group, t);
            if (s.first >= cols) continue;
            float sum[SL_BLOCK], *place = slice_sums(slices, to, t, s.first);
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) sum[c] = 0.0f;
            for (size_t b = part * blocks + s.begin; b < part * blocks + s.end; b++) {
                const float *in = sums + (b * 2 + which) * cols + s.first;
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) sum[c] += in[c];
            }
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) place[c] = sum[c];
        }
        add_slices(slices, cols, group, to);
    }
}

/* Without ROOM, step by step. */
static void backward_rms_norm(size_t parts, size_t rows, size_t cols, size_t whole, struct sl_rows dy, struct sl_rows x,
                              const float *rstd, const float *gamma, const float *dots, struct sl_rows summand,
                              struct sl_out dx, float *dgamma, float *dbeta, float *room) {
    if (!room) {
        if (dgamma) rms_norm_backward_weight(parts, rows, cols, dy.at, x, rstd, dgamma, dbeta);
        if (dx.rows.at) rms_norm_backward_input(parts * rows, cols, whole, dy.at, x, rstd, gamma, dots, summand.at, dx);
        return;
    }
    (dy.type == SL_BF16  ? whole_norm_backward_half
     : x.type == SL_BF16 ? whole_norm_backward_kept
                         : whole_norm_backward)(parts, rows, cols, dy.at, x.at, rstd, gamma,
                                                summand.type == SL_F32 ? summand.at : NULL,
                                                summand.type == SL_BF16 ? summand.at : NULL, dx.rounds,
                                                sl_out_floats(dx), sl_out_halves(dx), dgamma != NULL, room);
    if (dgamma) add_blocks(parts, blocks_of(rows), cols, room, dgamma, dbeta);
}

const struct sl_norm_kernels SL_NORM_KERNELS = {.square_sums = square_sums,
                                                .rms_norm_forward = forward_rms_norm,
                                                .rms_norm_dots = rms_norm_dots,
                                                .rms_norm_room = rms_norm_room,
                                                .rms_norm_backward = backward_rms_norm,
                                                .layer_norm_forward = forward_layer_norm,
                                                .layer_norm_backward = backward_layer_norm};
