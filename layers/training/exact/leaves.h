/* leaves.h - sums of gradients with bits that do not depend on the number of coordinates that share the rows of a
 * batch.
 *
 * The rows are divided into leaves, with equally many rows each. A coordinate computes its leaves one after another, in
 * products of a leaf's rows, and adds up their gradients in the order of a tree: the sum of N leaves is the sum of the
 * first P, the largest power of two below N, plus the sum of the others. The sum over data (sl_psum_tree) continues the
 * same tree. This holds if each coordinate has 1, 2, 4, ... leaves, or if one coordinate has them all.
 *
 * Sequences may have leaves, too (spmd/cut.h). A coordinate computes all its leaves of sequences together. Each of them
 * has its own gradients (struct sl_apart), which are the first terms of the tree. */
#ifndef SL_LAYERS_TRAINING_EXACT_LEAVES_H
#define SL_LAYERS_TRAINING_EXACT_LEAVES_H

#include "layers/modules/parameters/parameters.h"

SL_BEGIN_C

/* Whether COORDINATES, 1 at least, can share LEAVES, 1 at least. */
bool sl_leaves_divide(int leaves, int coordinates);

/* A coordinate's sums, waiting for later leaves. */
struct sl_leaves {
    const struct sl_parameters *parameters;
    int count;     /* leaves of this coordinate */
    size_t floats; /* of all gradients */
    float *memory; /* [levels, floats], in device memory; NULL with one leaf */
};

/* Number of this coordinate's leaves of sequences; 1 if sequences have none. */
static inline int sl_apart_count(const struct sl_parameters *parameters) {
    return parameters->apart.count > 1 ? parameters->apart.count : 1;
}
/* SL_BAD_INPUT if the trainer's other options do not go with COUNT leaves of sequences (0: none). Each leaf has whole
 * gradients, so no gradient may be SHARDED before the leaves are added up. */
int sl_apart_check(struct sl_spmd *self, int count, int exact, int zero, bool sharded);
/* Allocates memory for the gradients of all leaves of sequences but the first, counted in HELD. SL_FAILED if memory is
 * short. Free with sl_apart_close. */
int sl_apart_open(struct sl_parameters *parameters, struct sl_budget *held, struct sl_error *error);
void sl_apart_close(struct sl_parameters *parameters);
/* Bytes of the memory of sl_apart_open; PARAMETERS must be laid out. */
size_t sl_apart_bytes(const struct sl_parameters *parameters);
/* Sets all leaves' gradients to 0. */
void sl_apart_clear(const struct sl_parameters *parameters);
/* Adds up the gradients of RANGE over all leaves of sequences, and leaves the sum in the range. */
void sl_apart_sum(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range);

/* Sets the order in which gradients of PARAMETERS are summed over MEMBERS of the data axis: by tree over LEAVES, or,
 * with LEAVES 0, by coordinates. GRADIENTS: weight gradients of a kernel per leaf. If there are several leaves per
 * member or several weight gradients, the gradients of a kernel sharded over data are added up before they are summed
 * over data. Call it before planning. */
void sl_leaves_plan(struct sl_parameters *parameters, int leaves, int members, int gradients);
/* SL_BAD_INPUT, with an error on the trainer's option exact, in three cases: MEMBERS, the replicas along the data axis
 * of PARAMETERS, cannot share LEAVES; gradients take turns in memory; or a parameter sharded over data has a gradient
 * without parts, while a coordinate has several leaves or a leaf has several weight GRADIENTS of a kernel. In the last
 * case modules would sum each of these gradients over data at once. */
int sl_leaves_check(struct sl_spmd *self, int leaves, int members, int gradients,
                    const struct sl_parameters *parameters);
/* Bytes of the partial sums of COUNT leaves; 0 for one leaf. PARAMETERS must be laid out. */
size_t sl_leaves_bytes(const struct sl_parameters *parameters, int count);
/* Allocates the memory for these sums, counted in HELD. SL_FAILED if memory is short. Free with sl_leaves_close. */
int sl_leaves_open(struct sl_leaves *leaves, const struct sl_parameters *parameters, int count, struct sl_budget *held,
                   struct sl_error *error);
void sl_leaves_close(struct sl_leaves *leaves);

/* Adds the partial sums that can be completed by leaf LEAF (from 0) of this coordinate. Call it when RANGE has the
 * gradients of this leaf. After the last leaf, RANGE has the sum of all leaves. */
void sl_leaves_add(const struct sl_leaves *leaves, const struct sl_kernels *kernels, int range, int leaf);

/* Makes the gradients of RANGE from their parts, if it has parts. Call it at the end of a step, after sl_leaves_add.
 * Collective over DATA. */
int sl_parts_sum(struct sl_spmd *self, const struct sl_group *data, const struct sl_parameters *parameters,
                 const struct sl_kernels *kernels, int range);

SL_END_C
#endif
