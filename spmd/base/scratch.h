/* scratch.h - a file without a name, for data too large for memory. Its disk space is reserved when it is opened, so
 * that a full disk is found before the work begins. The file disappears with the process. */
#ifndef SL_SPMD_BASE_SCRATCH_H
#define SL_SPMD_BASE_SCRATCH_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_scratch {
    int file; /* 0: not open */
    size_t bytes;
};

/* Opens a file of BYTES zeros in DIRECTORY. SL_BAD_INPUT if DIRECTORY does not exist or cannot be written to; SL_FAILED
 * if the disk has no room for the file. */
int sl_scratch_open(struct sl_scratch *scratch, const char *directory, size_t bytes, struct sl_error *error);
/* Does nothing if SCRATCH is not open. */
void sl_scratch_close(struct sl_scratch *scratch);

/* Copy BYTES at OFFSET of the file. SL_FAILED if fewer bytes can be read or written; a write also fails if the file has
 * become shorter since it was opened. */
int sl_scratch_read(const struct sl_scratch *scratch, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_scratch_write(const struct sl_scratch *scratch, size_t offset, const void *from, size_t bytes,
                     struct sl_error *error);
/* Announces that these bytes will be read soon. */
void sl_scratch_expect(const struct sl_scratch *scratch, size_t offset, size_t bytes);

SL_END_C
#endif
