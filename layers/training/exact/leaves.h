/* leaves.h - sums of gradients whose bits do not depend on how many coordinates share the rows of a batch.
 *
 * The rows are those of leaves, equally many each. A coordinate computes its leaves one after another, in products that
 * have a leaf's rows, and adds up their gradients in the order of a tree: that of N leaves is the sum of the first P,
 * the largest power of two below N, plus that of the others. The sum over data (sl_psum_tree) goes on with the same
 * tree. That is so where the coordinates have 1, 2, 4, ... leaves each, or where one has them all. */
#ifndef SL_LAYERS_TRAINING_EXACT_LEAVES_H
#define SL_LAYERS_TRAINING_EXACT_LEAVES_H

#include "layers/modules/parameters/parameters.h"

SL_BEGIN_C

/* Whether LEAVES, 1 at least, can be shared by COORDINATES, 1 at least. */
bool sl_leaves_divide(int leaves, int coordinates);

/* The sums that wait for later leaves of a coordinate. */
struct sl_leaves {
    const struct sl_parameters *parameters;
    int count;     /* leaves of this coordinate */
    size_t floats; /* of all gradients */
    float *memory; /* [levels, floats], in device memory; NULL where there is one leaf */
};

/* Before planning: says in what order gradients of PARAMETERS are summed over MEMBERS of the data axis, of LEAVES, 0
 * for that of coordinates, with so many weight GRADIENTS of a kernel in each. Those of a kernel that is sharded over it
 * are added up before they are summed, where there are several. */
void sl_leaves_plan(struct sl_parameters *parameters, int leaves, int members, int gradients);
/* SL_BAD_INPUT, with a line on the trainer's option exact, if LEAVES cannot be shared by the coordinates along the data
 * axis of PARAMETERS, or if gradients take turns in memory; also if a parameter is sharded over it, and its gradient
 * has no parts, while a coordinate has several leaves, or a leaf several weight GRADIENTS of a kernel: modules sum each
 * over data at once. */
int sl_leaves_check(struct sl_spmd *self, int leaves, int gradients, const struct sl_parameters *parameters);
/* Bytes that COUNT leaves take, of PARAMETERS that are laid out; 0 of one leaf. */
size_t sl_leaves_bytes(const struct sl_parameters *parameters, int count);
/* Takes them, and counts them in HELD. SL_FAILED without memory. Free with sl_leaves_close. */
int sl_leaves_open(struct sl_leaves *leaves, const struct sl_parameters *parameters, int count, struct sl_budget *held,
                   struct sl_error *error);
void sl_leaves_close(struct sl_leaves *leaves);

/* The gradients of RANGE are those of this coordinate's leaf number LEAF, from 0 on: adds what waits for it. After the
 * last leaf they are the sum of all. */
void sl_leaves_add(const struct sl_leaves *leaves, const struct sl_kernels *kernels, int range, int leaf);

/* At the end of a step, after sl_leaves_add: makes the gradients of RANGE from their parts, if it has some. Collective
 * over DATA. */
int sl_parts_sum(struct sl_spmd *self, const struct sl_group *data, const struct sl_parameters *parameters,
                 const struct sl_kernels *kernels, int range);

SL_END_C
#endif
