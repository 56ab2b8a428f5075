/* far.h - memory that lies further away than where it is computed with: a file where the host computes, the host's
 * pinned memory where devices do. Its bytes are copied to a room of the caller's before they are used, and back. */
#ifndef SL_SPMD_DEVICE_FAR_H
#define SL_SPMD_DEVICE_FAR_H

#include "spmd/base/scratch.h"

SL_BEGIN_C

struct sl_far {
    struct sl_scratch scratch;
    char *host;
};

/* Takes BYTES zeros: of a file in DIRECTORY, or, where devices compute and DIRECTORY is not read, of the host's memory.
 * Errors are those of sl_scratch_open; SL_FAILED if the host has not enough memory. */
int sl_far_open(struct sl_far *far, const char *directory, size_t bytes, struct sl_error *error);
/* Does nothing where FAR is not open. */
void sl_far_close(struct sl_far *far);

/* Copy BYTES between OFFSET of FAR and memory where it is computed. Where devices compute, they do so in the queue's
 * order, and the host goes on. SL_FAILED if a file gives or takes less. */
int sl_far_read(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_far_write(const struct sl_far *far, size_t offset, const void *from, size_t bytes, struct sl_error *error);
/* These bytes will be read soon. */
void sl_far_expect(const struct sl_far *far, size_t offset, size_t bytes);

/* The same copies beside what is computed: where devices compute, they run on a queue of their own, after everything in
 * the thread's queue. Until they have ended, nobody may touch either memory: sl_far_read_end says so for the same bytes
 * as sl_far_read_start, sl_far_await for all. The disk brings ahead what will be read, and takes later what has been
 * written. */
void sl_far_read_start(const struct sl_far *far, size_t offset, void *to, size_t bytes);
int sl_far_read_end(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error);
int sl_far_write_start(const struct sl_far *far, size_t offset, const void *from, size_t bytes, struct sl_error *error);
void sl_far_await(const struct sl_far *far);

SL_END_C
#endif
