/* dtype.c - the table of element types. */
#include "spmd/base/numbers/dtype.h"

const struct sl_dtype_row sl_dtypes[] = {
    [SL_F32] = {.name = "f32", .label = "F32", .size = 4},
    [SL_BF16] = {.name = "bf16", .label = "BF16", .size = 2},
    [SL_F16] = {.name = "f16", .label = "F16", .size = 2},
    [SL_I32] = {.name = "i32", .label = "I32", .size = 4, .integer = true},
    [SL_QUANTIZED] = {.name = "blocks"},
};
const int sl_dtype_count = SL_QUANTIZED;
