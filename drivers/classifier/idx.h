/* idx.h - arrays of bytes in the IDX format, plain or compressed by gzip.
 *
 * A magic number (two zero bytes, the type 8, the number of dims), each dim as four bytes big-endian, the bytes. */
#ifndef SL_DRIVERS_CLASSIFIER_IDX_H
#define SL_DRIVERS_CLASSIFIER_IDX_H

#include "spmd/base/error.h"

enum { CLASSIFIER_IDX_DIMS = 3 };

struct classifier_idx {
    uint32_t shape[CLASSIFIER_IDX_DIMS]; /* 1 beyond the file's dims */
    uint8_t *data;                       /* to be freed by the caller */
};

/* Reads DIRECTORY/NAME, or NAME.gz where there is no such file. A file that has not DIMS dims of at least 1, or not
 * exactly the bytes that they ask for, is SL_BAD_INPUT. */
int classifier_idx_read(struct classifier_idx *idx, const char *directory, const char *name, int dims,
                        struct sl_error *error);

#endif
