/* as_left_internal.h - calls kernels with constants for the form of an array (struct sl_settled in
 * spmd/base/bf16.h). */
#ifndef SL_SPMD_BASE_AS_LEFT_INTERNAL_H
#define SL_SPMD_BASE_AS_LEFT_INTERNAL_H

/* Calls CALL(floats, rounds, stores) with constants for Y and LEFT: whether the floats Y are written, whether they are
 * rounded to bf16, whether a bf16 copy is stored. One loop for all cases would get masked stores from compilers for
 * hosts. */
#define SL_AS_LEFT(call, y, left)                                                                                      \
    do {                                                                                                               \
        if (!(y))                                                                                                      \
            call(false, true, true);                                                                                   \
        else if ((left).stored && (left).rounds)                                                                       \
            call(true, true, true);                                                                                    \
        else if ((left).stored)                                                                                        \
            call(true, false, true);                                                                                   \
        else if ((left).rounds)                                                                                        \
            call(true, true, false);                                                                                   \
        else                                                                                                           \
            call(true, false, false);                                                                                  \
    } while (0)

#endif
