/* scratch.h - a file without a name, for what memory is too small for. It takes its room on the disk when it is opened,
 * so that a full disk is known of before the work begins, and it is gone when the process is. */
#ifndef SL_SPMD_BASE_SCRATCH_H
#define SL_SPMD_BASE_SCRATCH_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_scratch {
    int file; /* 0: it is not open */
    size_t bytes;
};

/* Opens a file of BYTES zeros in DIRECTORY. SL_BAD_INPUT if there is no such directory, or none that can be written to;
 * SL_FAILED if the disk has no room for it. */
int sl_scratch_open(struct sl_scratch *scratch, const char *directory, size_t bytes, struct sl_error *error);
/* Does nothing where SCRATCH is not open. */
void sl_scratch_close(struct sl_scratch *scratch);

/* Copies BYTES from OFFSET on; SL_FAILED if the file gives or takes less, or, before it is written to, is shorter than
 * it was made. */
int sl_scratch_read(const struct sl_scratch *scratch, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_scratch_write(const struct sl_scratch *scratch, size_t offset, const void *from, size_t bytes,
                     struct sl_error *error);
/* These bytes will be read soon. */
void sl_scratch_expect(const struct sl_scratch *scratch, size_t offset, size_t bytes);

SL_END_C
#endif
