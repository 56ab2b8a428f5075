/* onednn_internal.h - protects gemm_onednn.c from a library that reacts to lack of memory with an exception, or by
 * writing through a null pointer. */
#ifndef SL_LAYERS_KERNELS_GEMM_ONEDNN_ONEDNN_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_ONEDNN_ONEDNN_INTERNAL_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* Returns CALL(ARG), or false if it throws. Memory and locks that CALL had acquired by then are not released. */
bool sl_onednn_guard(bool (*call)(void *arg), void *arg);

/* Makes std::terminate call HANDLER, which must not return; returns the previous handler. */
typedef void sl_terminate_handler(void);
sl_terminate_handler *sl_onednn_set_terminate(sl_terminate_handler *handler);

/* sl_onednn_guard for a CALL that may generate code: one thread at a time, and false also if CALL writes through a null
 * pointer. The first call in a process generates the code of dnnl_sgemm, so later calls of dnnl_sgemm generate none. */
bool sl_onednn_generate(bool (*call)(void *arg), void *arg);

SL_END_C
#endif
