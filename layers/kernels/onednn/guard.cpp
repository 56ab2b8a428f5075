/* guard.cpp - catches what oneDNN throws. It needs no header of C++ and, of its library, only what oneDNN itself needs.
 */
#include "layers/kernels/onednn/onednn_internal.h"

bool sl_onednn_guard(bool (*call)(void *arg), void *arg) {
    try {
        return call(arg);
    } catch (...) {
        return false;
    }
}
