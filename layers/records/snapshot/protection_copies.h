/* protection_copies.h - copies of coordinates' parts of a step (layers/records/snapshot/protection.h) in the memory of
 * the next host.
 *
 * The copy of a part is a file with the part's name and bytes, made by its keeper. The keeper, which may be a replica,
 * copies the tensors that it has itself; values are the same on all replicas. The header, which says whose part of
 * which step it is, and the other tensors are sent while the next step is computed, directly from the owner's file to
 * the keeper's, so they take no other memory. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_COPIES_H
#define SL_LAYERS_RECORDS_SNAPSHOT_PROTECTION_COPIES_H

#include "layers/records/snapshot/protection_folder.h"
#include "layers/records/snapshot/protection_hosts.h"
#include "layers/training/trainer.h"

SL_BEGIN_C

/* The copies of which one coordinate is the owner or the keeper. Zero-initialize; free with sl_protection_copies_free,
 * which removes no files. */
struct sl_protection_copies {
    int count;
    struct sl_protection_copy *list;
    size_t sent; /* bytes that this coordinate has sent */
};

/* *KEPT becomes the bytes of the parts of which this coordinate keeps copies; OWN are the bytes of its own part.
 * Collective over WORLD, the whole mesh. */
int sl_protection_copies_size(struct sl_spmd *self, const struct sl_group *world,
                              const struct sl_protection_hosts *hosts, size_t own, size_t *kept);

/* Makes the files for PLACES steps in START, for a part whose file has BYTES. Errors of this coordinate alone go to
 * MINE; *NUMBER is then the errno of a file that cannot be made. Collective over the mesh. */
int sl_protection_copies_open(struct sl_protection_copies *copies, struct sl_spmd *self, struct sl_trainer *trainer,
                              const struct sl_protection_hosts *hosts, const char *start, int places, size_t bytes,
                              int *number, struct sl_error *mine);
/* Starts to send OWN, this coordinate's file in PLACE, and to receive the parts that it keeps, after it has copied what
 * it has itself. OWN must not change before sl_protection_copies_end. */
int sl_protection_copies_start(struct sl_protection_copies *copies, struct sl_spmd *self, struct sl_trainer *trainer,
                               int place, struct sl_store *own);
/* Waits until the copies that were started are complete; the kept ones are then valid. Does nothing if none were. */
int sl_protection_copies_end(struct sl_protection_copies *copies, struct sl_spmd *self);
void sl_protection_copies_free(struct sl_protection_copies *copies);

SL_END_C
#endif
