/* copies.h - strided copies of rows. */
#ifndef SL_COLLECTIVES_SUMS_COPIES_H
#define SL_COLLECTIVES_SUMS_COPIES_H

#include <stddef.h>

#include "collectives/operations.h"

SL_BEGIN_C

/* Copies ROWS rows of BYTES from IN to OUT; rows begin IN_STRIDE and OUT_STRIDE bytes apart. The rows of IN and OUT do
 * not overlap. All are in the host's memory. */
void sl_copy_rows(size_t rows, size_t bytes, char *out, size_t out_stride, const char *in, size_t in_stride);

/* Copies a block with the layout MATRICES and elements of SIZE bytes, between any memories, like sl_device.copy. */
void sl_copy_matrices(const struct sl_matrices *matrices, size_t size, char *out, const char *in);

enum { SL_COLLECTED = 4 };

/* Copies BLOCKS blocks of this layout, at most SL_COLLECTED, from IN[i] to OUT[i] in memory reached by the calling
 * thread's device: one target region. SIZE is even. */
void sl_collect_on_device(const struct sl_matrices *matrices, size_t size, int blocks, char *const *out,
                          const char *const *in);

SL_END_C
#endif
