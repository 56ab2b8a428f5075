/* as_left_internal.h - calls of kernels that know as constants how an array is left (spmd/base/bf16.h). */
#ifndef SL_SPMD_BASE_AS_LEFT_INTERNAL_H
#define SL_SPMD_BASE_AS_LEFT_INTERNAL_H

/* CALL(floats, rounds, stores) for a Y that is left as LEFT says, with constants: of one loop for all of them a
 * compiler for hosts makes stores under a mask. */
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
