/* gemm_onednn_missing.c - stands in for gemm_onednn.c in builds without oneDNN, so that asking for it says what to do.
 */
#include "layers/kernels/gemm.h"

const struct sl_gemm_backend sl_gemm_onednn = {.name = "onednn", .missing = "SL_ONEDNN=ON"};
