/* onednn_internal.h - what stands between gemm_onednn.c and a library that answers a lack of memory with an exception,
 * or by writing where there is none. */
#ifndef SL_LAYERS_KERNELS_ONEDNN_ONEDNN_INTERNAL_H
#define SL_LAYERS_KERNELS_ONEDNN_ONEDNN_INTERNAL_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* What CALL(ARG) returns; false where it throws. What CALL had taken by then stays taken. */
bool sl_onednn_guard(bool (*call)(void *arg), void *arg);

/* Makes std::terminate call HANDLER, which must not return; returns what it has called so far. */
typedef void sl_terminate_handler(void);
sl_terminate_handler *sl_onednn_set_terminate(sl_terminate_handler *handler);

/* The same as sl_onednn_guard for a CALL that may generate code: by one thread at a time, and false also where it
 * writes through a null pointer. The first time in a process, the code is generated that all calls of dnnl_sgemm share:
 * afterwards they generate none. */
bool sl_onednn_generate(bool (*call)(void *arg), void *arg);

SL_END_C
#endif
