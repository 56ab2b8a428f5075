/* guard_missing.c - replaces guard.cpp if the compiler cannot compile C++: exceptions abort. */
#include "layers/kernels/gemm/onednn/onednn_internal.h"

bool sl_onednn_guard(bool (*call)(void *arg), void *arg) { return call(arg); }

sl_terminate_handler *sl_onednn_set_terminate(sl_terminate_handler *handler) { return handler; }
