/* guard_missing.c - stands in for guard.cpp where the compiler compiles no C++: what is thrown aborts. */
#include "layers/kernels/onednn/onednn_internal.h"

bool sl_onednn_guard(bool (*call)(void *arg), void *arg) { return call(arg); }

sl_terminate_handler *sl_onednn_set_terminate(sl_terminate_handler *handler) { return handler; }
