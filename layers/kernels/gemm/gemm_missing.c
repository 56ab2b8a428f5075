/* gemm_missing.c - placeholders for backends outside this build; errors name the CMake setting that adds them. */
#include "layers/kernels/gemm/gemm.h"

#ifdef SL_NO_ONEDNN
const struct sl_gemm_backend sl_gemm_onednn = {.name = "onednn", .missing = "SL_ONEDNN=ON"};
#endif

#ifdef SL_NO_CUBLAS
const struct sl_gemm_backend sl_gemm_cublas = {.name = "cublas", .missing = "SL_DEVICE=cuda"};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {.name = "cublas-tf32", .missing = "SL_DEVICE=cuda"};
#endif
