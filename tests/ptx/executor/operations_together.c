/* operations_together.c - operations of a warp's lanes together, and of control within a basic block. */
#include "operations.h"

#define SHUFFLE(how)                                                                                                   \
    OPERATION(shfl_##how) {                                                                                            \
        v_u32 x = IN(u32, 1);                                                                                          \
        uint32_t there;                                                                                                \
        ptx_shuffle_##how(W, &x, &IN(u32, 2), &IN(u32, 3), W->m, &there, o->site);                                     \
        OUT(u32, x);                                                                                                   \
        ptx_leave_pred(W, o->n[4], there);                                                                             \
    }
SHUFFLE(up)
SHUFFLE(down)
SHUFFLE(bfly)
SHUFFLE(idx)

#define IN_VOTE const uint32_t x = IN_PRED(1) & W->m
OPERATION(vote_any) {
    IN_VOTE;
    OUT(pred, x ? ~0u : 0);
}
OPERATION(vote_all) {
    IN_VOTE;
    OUT(pred, x == W->m ? ~0u : 0);
}
OPERATION(vote_uni) {
    IN_VOTE;
    OUT(pred, !x || x == W->m ? ~0u : 0);
}
OPERATION(vote_ballot) {
    IN_VOTE;
    OUT(u32, (v_u32)(x));
}
OPERATION(activemask) { OUT(u32, (v_u32)(W->m)); }
OPERATION(clock) { OUT(u64, (v_u64)(ptx_clock())); }

OPERATION(mma) {
    v_u32 a[4], b[2];
    v_f32 c[4];
    for (int i = 0; i < 4; i++) a[i] = IN(u32, i);
    for (int i = 0; i < 2; i++) b[i] = IN(u32, 4 + i);
    for (int i = 0; i < 4; i++) c[i] = IN(f32, 6 + i);
    if (W->m != ~0u) ptx_fail(W, ~W->m, "mma has not all of its lanes", o->site);
    ptx_mma(W, a, b, c);
    for (int i = 0; i < 4; i++) ptx_leave_f32(W, o->n[10 + i], c[i]);
}
OPERATION(ldmatrix) {
    const v_u64 rows = IN(u64, 0) + (uint64_t)(int64_t)(int32_t)o->n[1];
    v_u32 x[4];
    if (W->m != ~0u) ptx_fail(W, ~W->m, "ldmatrix has not all of its lanes", o->site);
    ptx_ldmatrix(W, &rows, (int)o->n[2], x, o->site);
    for (int i = 0; i < 4; i++) ptx_leave_u32(W, o->n[3 + i], x[i]);
}

OPERATION(barrier) {
    const uint32_t id = ptx_uniform(W, &IN(u32, 0), W->m, o->site), count = ptx_uniform(W, &IN(u32, 1), W->m, o->site);
    ptx_barrier(W, id, count, o->site);
}
OPERATION(warp_sync) {
    (void)o;
    ptx_warp_sync(W, W->m);
}

/* Operations up to unguard run in the lanes for which a predicate holds. */
OPERATION(guard) {
    W->all = W->m;
    W->m &= o->n[1] ? ~IN_PRED(0) : IN_PRED(0);
    W->whole = W->m == W->live;
}
OPERATION(unguard) {
    (void)o;
    W->m = W->all;
    W->whole = W->m == W->live;
}
OPERATION(unknown) { ptx_fail(W, W->m, "an instruction that the executor does not know", o->site); }

/* clang-format off */
const struct ptx_operation ptx_together_operations[] = {
    ROW(shfl_up) ROW(shfl_down) ROW(shfl_bfly) ROW(shfl_idx) ROW(vote_any) ROW(vote_all) ROW(vote_uni) ROW(vote_ballot)
        ROW(activemask) ROW(clock) ROW(mma) ROW(ldmatrix) ROW(barrier) ROW(warp_sync) ROW(guard) ROW(unguard)
            ROW(unknown){NULL, NULL}};
