/* operations_memory.c - loads, stores, atomics and copies: addresses and elements for access.c. */
#include "operations.h"

/* The addresses at the place of number I, and the offset behind it. */
#define ADDRESS(i) (IN(u64, i) + (uint64_t)(int64_t)(int32_t)o->n[(i) + 1])

#define LOAD1(space, call, bits, bytes)                                                                                \
    OPERATION(ld1_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        if (W->whole) {                                                                                                \
            ptx_##call##_##bytes(W, &a, W->m, ptx_place(W, o->n[2]), o->site);                                         \
            return;                                                                                                    \
        }                                                                                                              \
        v_u##bits x = IN(u##bits, 2);                                                                                  \
        ptx_##call##_##bytes(W, &a, W->m, &x, o->site);                                                                \
        ptx_leave_u##bits(W, o->n[2], x);                                                                              \
    }
#define LOAD2(space, call, bits, bytes)                                                                                \
    OPERATION(ld2_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        v_u##bits x[2];                                                                                                \
        ptx_##call##_##bytes(W, &a, W->m, x, o->site);                                                                 \
        ptx_leave_u##bits(W, o->n[2], PART2_##bits(x, 0, v_u##bits));                                                  \
        ptx_leave_u##bits(W, o->n[3], PART2_##bits(x, 1, v_u##bits));                                                  \
    }
#define LOAD4(space, call, bits, bytes)                                                                                \
    OPERATION(ld4_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        v_u##bits x[4];                                                                                                \
        ptx_##call##_##bytes(W, &a, W->m, x, o->site);                                                                 \
        ptx_leave_u##bits(W, o->n[2], PART4_##bits(x, 0, v_u##bits));                                                  \
        ptx_leave_u##bits(W, o->n[3], PART4_##bits(x, 1, v_u##bits));                                                  \
        ptx_leave_u##bits(W, o->n[4], PART4_##bits(x, 2, v_u##bits));                                                  \
        ptx_leave_u##bits(W, o->n[5], PART4_##bits(x, 3, v_u##bits));                                                  \
    }
#define STORE1(space, call, bits, bytes)                                                                               \
    OPERATION(st1_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        ptx_##call##_##bytes(W, &a, W->m, ptx_place(W, o->n[2]), o->site);                                             \
    }
#define STORE2(space, call, bits, bytes)                                                                               \
    OPERATION(st2_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        v_u##bits x[2];                                                                                                \
        JOIN2_##bits(x, IN(u##bits, 2), IN(u##bits, 3));                                                               \
        ptx_##call##_##bytes(W, &a, W->m, x, o->site);                                                                 \
    }
#define STORE4(space, call, bits, bytes)                                                                               \
    OPERATION(st4_##space##_##bits) {                                                                                  \
        const v_u64 a = ADDRESS(0);                                                                                    \
        v_u##bits x[4];                                                                                                \
        JOIN4_##bits(x, IN(u##bits, 2), IN(u##bits, 3), IN(u##bits, 4), IN(u##bits, 5));                               \
        ptx_##call##_##bytes(W, &a, W->m, x, o->site);                                                                 \
    }
/* clang-format off */
#define OF_SPACE(space, load, store)                                                                                   \
    LOAD1(space, load, 8, 1) LOAD1(space, load, 16, 2) LOAD1(space, load, 32, 4) LOAD1(space, load, 64, 8)             \
    LOAD2(space, load, 8, 2) LOAD2(space, load, 16, 4) LOAD2(space, load, 32, 8) LOAD2(space, load, 64, 16)            \
    LOAD4(space, load, 8, 4) LOAD4(space, load, 16, 8) LOAD4(space, load, 32, 16)                                      \
    STORE1(space, store, 8, 1) STORE1(space, store, 16, 2) STORE1(space, store, 32, 4) STORE1(space, store, 64, 8)     \
    STORE2(space, store, 8, 2) STORE2(space, store, 16, 4) STORE2(space, store, 32, 8) STORE2(space, store, 64, 16)    \
    STORE4(space, store, 8, 4) STORE4(space, store, 16, 8) STORE4(space, store, 32, 16)
/* clang-format on */
OF_SPACE(generic, load, store)
OF_SPACE(shared, load_shared, store_shared)

OPERATION(local) { OUT(u64, CONVERT(ptx_lanes, v_u64) * W->local_stride + (W->local_at + o->n[1])); }
OPERATION(to_generic) { OUT(u64, IN(u64, 1) + W->team->shared_at); }
OPERATION(from_generic) { OUT(u64, IN(u64, 1) - W->team->shared_at); }
OPERATION(is_shared) { OUT(pred, ptx_is_shared(W, &IN(u64, 1))); }
OPERATION(is_local) { OUT(pred, ptx_is_local(W, &IN(u64, 1))); }
OPERATION(is_global) { OUT(pred, ptx_is_global(W, &IN(u64, 1))); }

#define ATOMIC(what, t, type, value)                                                                                   \
    OPERATION(atom_##what##_##t) {                                                                                     \
        const v_u64 a = ADDRESS(1);                                                                                    \
        const v_##t xs = IN(t, 3), ys = IN(t, 4);                                                                      \
        v_##t olds = xs;                                                                                               \
        for (uint32_t left = W->m; left; left &= left - 1) {                                                           \
            const uint32_t lane = (uint32_t)__builtin_ctz(left);                                                       \
            type *const at = ptx_atomic(W, a[lane], sizeof(type), lane, o->site);                                      \
            const type x = xs[lane], y = ys[lane];                                                                     \
            type old, now;                                                                                             \
            __atomic_load(at, &old, __ATOMIC_SEQ_CST);                                                                 \
            do {                                                                                                       \
                now = (type)(value);                                                                                   \
            } while (!__atomic_compare_exchange(at, &old, &now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));               \
            (void)y, olds[lane] = old;                                                                                 \
        }                                                                                                              \
        OUT(t, olds);                                                                                                  \
    }
#define ORDERED_ATOMICS(t, type)                                                                                       \
    ATOMIC(add, t, type, old + x) ATOMIC(min, t, type, old < x ? old : x) ATOMIC(max, t, type, old > x ? old : x)
#define BIT_ATOMICS(t, type)                                                                                           \
    ATOMIC(exch, t, type, x)                                                                                           \
    ATOMIC(cas, t, type, old == x ? y : old)                                                                           \
    ATOMIC(and, t, type, old &x)                                                                                       \
    ATOMIC(or, t, type, old | x)                                                                                       \
    ATOMIC(xor, t, type, old ^ x) ATOMIC(inc, t, type, old >= x ? 0 : old + 1)                                         \
        ATOMIC(dec, t, type, old == 0 || old > x ? x : old - 1)
ORDERED_ATOMICS(u32, uint32_t)
ORDERED_ATOMICS(s32, int32_t)
ORDERED_ATOMICS(u64, uint64_t)
ORDERED_ATOMICS(s64, int64_t)
BIT_ATOMICS(u32, uint32_t)
BIT_ATOMICS(u64, uint64_t)
ATOMIC(add, f32, float, old + x)
ATOMIC(add, f64, double, old + x)

OPERATION(copy) {
    const v_u64 to = ADDRESS(0), from = ADDRESS(2);
    ptx_copy(W, &to, &from, &IN(u32, 4), o->n[5], W->m, o->site);
}
OPERATION(commit) {
    (void)o;
    ptx_copies_commit(W, W->m);
}
OPERATION(wait) { ptx_copies_wait(W, o->n[0], W->m, o->site); }
OPERATION(fence) {
    (void)o;
    ptx_fence(W);
}

/* clang-format off */
#define SPACE_ROWS(s)                                                                                                  \
    ROW(ld1_##s##_8)                                                                                                   \
    ROW(ld1_##s##_16)                                                                                                  \
    ROW(ld1_##s##_32)                                                                                                  \
    ROW(ld1_##s##_64)                                                                                                  \
    ROW(ld2_##s##_8)                                                                                                   \
    ROW(ld2_##s##_16)                                                                                                  \
    ROW(ld2_##s##_32)                                                                                                  \
    ROW(ld2_##s##_64) ROW(ld4_##s##_8) ROW(ld4_##s##_16) ROW(ld4_##s##_32) ROW(st1_##s##_8) ROW(st1_##s##_16)          \
        ROW(st1_##s##_32) ROW(st1_##s##_64) ROW(st2_##s##_8) ROW(st2_##s##_16) ROW(st2_##s##_32) ROW(st2_##s##_64)     \
            ROW(st4_##s##_8) ROW(st4_##s##_16) ROW(st4_##s##_32)
#define ORDERED_ROWS(t) ROW(atom_add_##t) ROW(atom_min_##t) ROW(atom_max_##t)
#define BIT_ROWS(t)                                                                                                    \
    ROW(atom_exch_##t)                                                                                                 \
    ROW(atom_cas_##t) ROW(atom_and_##t) ROW(atom_or_##t) ROW(atom_xor_##t) ROW(atom_inc_##t) ROW(atom_dec_##t)
const struct ptx_operation ptx_memory_operations[] = {
    SPACE_ROWS(generic) SPACE_ROWS(shared) ROW(local) ROW(to_generic) ROW(from_generic) ROW(is_shared) ROW(is_local)
        ROW(is_global) ORDERED_ROWS(u32) ORDERED_ROWS(s32) ORDERED_ROWS(u64) ORDERED_ROWS(s64) BIT_ROWS(u32)
            BIT_ROWS(u64) ROW(atom_add_f32) ROW(atom_add_f64) ROW(copy) ROW(commit) ROW(wait) ROW(fence){NULL, NULL}};
