/* as_left_internal.h - calls kernels with constants for the form of an array (struct sl_out in
 * spmd/base/numbers/dtype.h). */
#ifndef SL_SPMD_BASE_NUMBERS_AS_LEFT_INTERNAL_H
#define SL_SPMD_BASE_NUMBERS_AS_LEFT_INTERNAL_H

/* Calls CALL(floats, rounds, stores) with constants: whether the floats at FLOATS are written, whether they are rounded
 * to bf16 (ROUNDS), whether a bf16 copy is stored at STORED. FLOATS or STORED may be NULL. One loop for all cases would
 * get masked stores from compilers for hosts. */
#define SL_AS_LEFT(call, floats, rounds, stored)                                                                       \
    do {                                                                                                               \
        if (!(floats))                                                                                                 \
            call(false, true, true);                                                                                   \
        else if ((stored) && (rounds))                                                                                 \
            call(true, true, true);                                                                                    \
        else if (stored)                                                                                               \
            call(true, false, true);                                                                                   \
        else if (rounds)                                                                                               \
            call(true, true, false);                                                                                   \
        else                                                                                                           \
            call(true, false, false);                                                                                  \
    } while (0)

#endif
