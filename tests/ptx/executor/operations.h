/* operations.h - how an operation reads its operands and leaves its result: only in lanes that run. */
#ifndef PTX_OPERATIONS_H
#define PTX_OPERATIONS_H

#include "warp.h"

#define OPERATION(name) static void op_##name(struct ptx_warp *W, const struct ptx_op *o)
#define ROW(name) {#name, op_##name},
#define IN(type, i) (*(const v_##type *)ptx_place(W, o->n[i]))
#define IN_PRED(i) (*(const uint32_t *)ptx_place(W, o->n[i]))
#define LEAVES(type, bits)                                                                                             \
    static inline void ptx_leave_##type(const struct ptx_warp *W, uint32_t place, v_##type x) {                        \
        v_##type *const to = ptx_place(W, place);                                                                      \
        if (W->whole)                                                                                                  \
            *to = x;                                                                                                   \
        else                                                                                                           \
            *to = SELECT##bits(W->m, x, *to);                                                                          \
    }
LEAVES(u8, 8)
LEAVES(s8, 8)
LEAVES(u16, 16)
LEAVES(s16, 16)
LEAVES(u32, 32)
LEAVES(s32, 32)
LEAVES(u64, 64)
LEAVES(s64, 64)
LEAVES(f32, 32)
LEAVES(f64, 64)
static inline void ptx_leave_pred(const struct ptx_warp *W, uint32_t place, uint32_t x) {
    uint32_t *const to = ptx_place(W, place);
    *to = (*to & ~W->m) | (x & W->m);
}
#define OUT(type, x) ptx_leave_##type(W, o->n[0], x)

/* ---- one operand, two, three, of one type ---- */
#define UNARY(name, type, expression)                                                                                  \
    OPERATION(name##_##type) {                                                                                         \
        const v_##type a = IN(type, 1);                                                                                \
        OUT(type, expression);                                                                                         \
    }
#define BINARY(name, type, expression)                                                                                 \
    OPERATION(name##_##type) {                                                                                         \
        const v_##type a = IN(type, 1), b = IN(type, 2);                                                               \
        OUT(type, expression);                                                                                         \
    }

#endif
