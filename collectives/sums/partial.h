/* partial.h - sums of many arrays of floats that one process begins and another continues. The bits are those of
 * sl_reduce over all arrays. */
#ifndef SL_COLLECTIVES_SUMS_PARTIAL_H
#define SL_COLLECTIVES_SUMS_PARTIAL_H

#include "collectives/operations.h"

SL_BEGIN_C

/* Returns the number of partial sums after ARRAYS arrays. REDUCTION is SL_SUM or SL_TREE. With SL_TREE there are sums
 * of 1, 2, 4, ... arrays. With SL_SUM there is one sum of the arrays in the unfinished block (of SL_SUM_BLOCK arrays),
 * one of the finished blocks, and so on. */
int sl_waiting_sums(enum sl_reduction reduction, int arrays);

/* The part of a sum of SIZE arrays that begins after the first BEFORE. */
struct sl_partial {
    enum sl_reduction reduction;
    enum sl_dtype dtype; /* of floats */
    float scale;
    int before, size;
};

/* Adds INPUTS arrays INPUT[i] [count] to the partial sums WAITING [sl_waiting_sums, count], and writes the new partial
 * sums to WAITING. After the last array, writes the whole sum times scale to OUTPUT [count] instead. */
void sl_continue_sum(const struct sl_partial *partial, size_t count, int inputs, const void *const *input,
                     float *waiting, void *output);

SL_END_C
#endif
