/* idx.h - arrays of bytes in the IDX format, plain or compressed by gzip.
 *
 * A file holds a magic number (two zero bytes, the type 8, the number of dims), then each dim as four big-endian bytes,
 * then the array's bytes. */
#ifndef SL_DRIVERS_CLASSIFIER_IDX_H
#define SL_DRIVERS_CLASSIFIER_IDX_H

#include "spmd/base/error.h"

enum { CLASSIFIER_IDX_DIMS = 3 };

struct classifier_idx {
    uint32_t shape[CLASSIFIER_IDX_DIMS]; /* 1 beyond the file's dims */
    uint8_t *data;                       /* owned by the caller */
};

/* Reads DIRECTORY/NAME, or NAME.gz if there is no such file. The file must have DIMS dims, each at least 1, and as many
 * bytes as their product; otherwise SL_BAD_INPUT. */
int classifier_idx_read(struct classifier_idx *idx, const char *directory, const char *name, int dims,
                        struct sl_error *error);

#endif
