/* layer_norm_internal.h - what layer norms' parameters get: kernels.c and norms.c include it. */
#ifndef SL_LAYERS_KERNELS_ROWS_LAYER_NORM_INTERNAL_H
#define SL_LAYERS_KERNELS_ROWS_LAYER_NORM_INTERNAL_H

#include "layers/kernels/rows/settle_internal.h"
#include "layers/kernels/rows/slices_internal.h"
#include "spmd/device/offload.h"

/* Of PARTS of ROWS rows: dscale [parts, cols] = sums over a part's rows of dy normalized, dbias [parts, cols] = sums
 * over them of dy. HALF, HALF_DY: as any_gradient; constants on hosts. */
SL_INLINE void layer_norm_backward_weight(size_t parts, size_t rows, size_t cols, const void *dy, const bool half_dy,
                                          const void *normalized, const bool half, float *dscale, float *dbias) {
    const size_t groups = column_groups(cols), stripes = stripes_of(rows, cols);
    float *const all_scale = stripes > 1 ? sl_device.room() : dscale;
    float *const all_bias = stripes > 1 ? all_scale + parts * stripes * cols : dbias;
    SL_ROWS(is_device_ptr(dy, normalized, all_scale, all_bias))
    for (size_t g = 0; g < parts * stripes * groups; g++) {
        const struct stripe stripe = stripe_of(rows, stripes, g / groups);
        const size_t group = g % groups * SL_COLUMNS, at = g / groups * cols;
        float scales[SLICE_SUMS], biases[SLICE_SUMS], *to_scale = all_scale + at, *to_bias = all_bias + at;
        SL_THREADS()
        for (size_t t = 0; t < SLICE_THREADS; t++) {
            const struct slice s = slice_of(stripe.count, cols, group, t);
            if (s.first >= cols) continue;
            float scale[SL_BLOCK], bias[SL_BLOCK], *left_scale = slice_sums(scales, to_scale, t, s.first);
            float *left_bias = slice_sums(biases, to_bias, t, s.first);
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) scale[c] = bias[c] = 0.0f;
            for (size_t r = s.begin; r < s.end; r++) {
                const size_t first = (stripe.first + r) * cols + s.first;
                SL_IN_BLOCK()
                for (size_t c = 0; c < s.count; c++) {
                    const float slope = any_gradient(dy, half_dy, half, first + c);
                    scale[c] += slope * element(normalized, half, first + c);
                    bias[c] += slope;
                }
            }
            SL_IN_BLOCK()
            for (size_t c = 0; c < s.count; c++) {
                left_scale[c] = scale[c];
                left_bias[c] = bias[c];
            }
        }
        add_slices(scales, cols, group, to_scale);
        add_slices(biases, cols, group, to_bias);
    }
    if (stripes == 1) return;
    add_stripes(parts, stripes, cols, all_scale, false, dscale);
    add_stripes(parts, stripes, cols, all_bias, false, dbias);
}

#endif
