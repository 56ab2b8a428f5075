/* far.h - memory for offloaded data: a file if the host computes, pinned memory of the host if devices compute. Its
 * bytes are copied to a buffer of the caller before they are used, and back. */
#ifndef SL_SPMD_DEVICE_FAR_H
#define SL_SPMD_DEVICE_FAR_H

#include "spmd/base/scratch.h"

SL_BEGIN_C

struct sl_far {
    struct sl_scratch scratch;
    char *host;
};

/* Allocates BYTES zeros: in a file in DIRECTORY, or, if devices compute, in the host's memory (DIRECTORY is not read).
 * Errors are those of sl_scratch_open; SL_FAILED if the host has not enough memory. */
int sl_far_open(struct sl_far *far, const char *directory, size_t bytes, struct sl_error *error);
/* Does nothing if FAR is not open. */
void sl_far_close(struct sl_far *far);

/* Copy BYTES between OFFSET of FAR and memory for computation. If devices compute, the copies run in the queue's order,
 * and the host goes on. SL_FAILED if fewer bytes of a file can be read or written. */
int sl_far_read(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_far_write(const struct sl_far *far, size_t offset, const void *from, size_t bytes, struct sl_error *error);
/* Announces that these bytes will be read soon. */
void sl_far_expect(const struct sl_far *far, size_t offset, size_t bytes);

/* The same copies in parallel with computation: if devices compute, on a queue of their own, after everything in the
 * thread's queue. Both memories must not be touched until a copy has ended: sl_far_read_end ends the sl_far_read_start
 * of the same bytes, sl_far_await all copies. With a file, sl_far_read_start only announces the read, and
 * sl_far_write_start writes at once. */
void sl_far_read_start(const struct sl_far *far, size_t offset, void *to, size_t bytes);
int sl_far_read_end(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_far_write_start(const struct sl_far *far, size_t offset, const void *from, size_t bytes, struct sl_error *error);
void sl_far_await(const struct sl_far *far);

SL_END_C
#endif
