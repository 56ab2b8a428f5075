/* gemm_missing.c - stands in for the backends that were left out of the build, so that asking for one says what to do.
 */
#include "layers/kernels/gemm.h"

#ifdef SL_NO_ONEDNN
const struct sl_gemm_backend sl_gemm_onednn = {.name = "onednn", .missing = "SL_ONEDNN=ON"};
#endif

#ifdef SL_NO_CUBLAS
const struct sl_gemm_backend sl_gemm_cublas = {.name = "cublas", .missing = "SL_DEVICE=cuda"};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {.name = "cublas-tf32", .missing = "SL_DEVICE=cuda"};
#endif
