/* partial.h - sums of many arrays of floats that are interrupted, and continued by another process: with the bits of
 * sl_reduce over all arrays. */
#ifndef SL_COLLECTIVES_SUMS_PARTIAL_H
#define SL_COLLECTIVES_SUMS_PARTIAL_H

#include "collectives/operations.h"

SL_BEGIN_C

/* REDUCTION is SL_SUM or SL_TREE. After some arrays, several sums may wait: with SL_TREE those of 1, 2, 4, ... arrays,
 * with SL_SUM that of the unfinished block of SL_SUM_BLOCK arrays, that of such blocks, and so on. */
int sl_waiting_sums(enum sl_reduction reduction, int arrays);

/* The part of a sum of SIZE arrays that begins after the first BEFORE. */
struct sl_partial {
    enum sl_reduction reduction;
    enum sl_dtype dtype; /* of floats */
    float scale;
    int before, size;
};

/* Continues the sums WAITING [sl_waiting_sums, count] by the INPUTS arrays INPUT[i] [count]. Writes the sums that wait
 * then to WAITING; after the last array, the whole sum times scale to OUTPUT [count] instead. */
void sl_continue_sum(const struct sl_partial *partial, size_t count, int inputs, const void *const *input,
                     float *waiting, void *output);

SL_END_C
#endif
