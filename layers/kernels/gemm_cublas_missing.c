/* gemm_cublas_missing.c - stands in for gemm_cublas.c in builds that compute elsewhere, so that asking for it says what
 * to do. */
#include "layers/kernels/gemm.h"

const struct sl_gemm_backend sl_gemm_cublas = {.name = "cublas", .missing = "SL_DEVICE=cuda"};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {.name = "cublas-tf32", .missing = "SL_DEVICE=cuda"};
