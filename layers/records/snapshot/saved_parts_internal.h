/* saved_parts_internal.h - steps of saving in parts, for saves that wait for the parts, and for saves in the
 * background. */
#ifndef SL_LAYERS_RECORDS_SNAPSHOT_SAVED_PARTS_INTERNAL_H
#define SL_LAYERS_RECORDS_SNAPSHOT_SAVED_PARTS_INTERNAL_H

#include "layers/training/checkpoint.h"
#include "layers/training/exchange.h"

/* Declares this coordinate's tensors in OWN, and, on coordinate 0, the whole tensors of all coordinates in WHOLE.
 * Collective. */
int sl_saved_parts_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own,
                           struct sl_store *whole);
/* Declares coordinate OF's tensors in COPY, and adds to HELD those that this coordinate has, too; OF is -1 at
 * coordinates without a copy. Collective. */
int sl_saved_parts_declare_copy(struct sl_spmd *self, struct sl_trainer *trainer, int of, struct sl_store *copy,
                                struct sl_held_list *held);
/* Adds a part's notes to OWN, and requests checksums. SL_FAILED if memory is short. */
int sl_saved_parts_note(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own);
/* Copies this coordinate's state to OWN; CHECKING is as in sl_export_own. */
int sl_saved_parts_export(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own,
                          struct sl_checking *checking);

/* Returns, on all coordinates, the error of the first coordinate with one; MINE is this coordinate's. *FIRST is the
 * error; it is empty if there is none, or if the run has ended meanwhile. ROOT is the root of this coordinate's part;
 * coordinate 0 receives all ROOTS (may be NULL) [coordinates]. Collective. */
int sl_saved_parts_agree(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_error *mine,
                         struct sl_error *first, uint64_t root, uint64_t *roots);

/* Writes the index of WHOLE, with its notes, and of the PARTS of STEP in DIRECTORY, whose roots are ROOT [parts]. */
void sl_saved_parts_index(struct sl_store *whole, const char *directory, int64_t step, int parts, const uint64_t *root,
                          struct sl_error *error);

#endif
