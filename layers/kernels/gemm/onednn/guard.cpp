/* guard.cpp - catches oneDNN's exceptions. It needs no more of C++'s library than oneDNN does. */
#include <exception>

#include "layers/kernels/gemm/onednn/onednn_internal.h"

bool sl_onednn_guard(bool (*call)(void *arg), void *arg) {
    try {
        return call(arg);
    } catch (...) {
        return false;
    }
}

sl_terminate_handler *sl_onednn_set_terminate(sl_terminate_handler *handler) { return std::set_terminate(handler); }
