/* call_cases.h - a call of each operation, for tests that count. */
#ifndef SL_TESTS_COLLECTIVES_CALL_CASES_H
#define SL_TESTS_COLLECTIVES_CALL_CASES_H

#include "tests/rigs/run_on.h"

enum { CASES = 14 };

/* Makes CALL case number I of a call over GROUP; false: there are no more. */
static bool make_call(const struct sl_group *group, int i, size_t n, char *in, char *out, struct sl_collective *call) {
    int pairs[group->size][2];
    for (int k = 0; k < group->size; k++) pairs[k][0] = k, pairs[k][1] = (k + 1) % group->size;
    const struct sl_collective cases[CASES] = {
        sl_describe_barrier(group),
        sl_describe_ppermute(group, SL_F32, in, out, n, group->size, (const int(*)[2])pairs),
        sl_describe_psum(group, SL_F32, in, out, n),
        sl_describe_pmean(group, SL_BF16, in, out, n),
        sl_describe_pmax(group, SL_F32, in, out, n),
        sl_describe_psum(group, SL_I32, in, out, n),
        sl_describe_psum_tree(group, SL_F32, in, out, n),
        sl_describe_psum_scatter(group, SL_F32, in, out, n),
        sl_describe_psum_scatter_tree(group, SL_F32, in, out, n),
        sl_describe_all_gather(group, SL_F32, in, out, n),
        sl_describe_all_to_all(group, SL_F32, in, out, 2,
                               (const size_t[]){(size_t)group->size, n * (size_t)group->size}, 0, 1),
        sl_describe_broadcast(group, SL_F32, in, out, n, group->size - 1),
        sl_describe_gather(group, SL_F32, in, out, n, 0),
        sl_describe_psum(group, SL_F32, out, out, 0),
    };
    if (i < CASES) *call = cases[i];
    return i < CASES;
}

#endif
