/* saved_parts_internal.h - the steps of saving in parts, for those that wait until the parts are written and for those
 * that do not. */
#ifndef SL_LAYERS_SNAPSHOT_SAVED_PARTS_INTERNAL_H
#define SL_LAYERS_SNAPSHOT_SAVED_PARTS_INTERNAL_H

#include "layers/training/checkpoint.h"

/* Collective: declares what this coordinate writes in OWN; and in WHOLE, at coordinate 0, the tensors of all. */
int sl_saved_parts_declare(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own,
                           struct sl_store *whole);
/* Gives OWN a part's notes, and the checksums that it will have. SL_FAILED without memory. */
int sl_saved_parts_note(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own);
/* Copies this coordinate's state to OWN. */
int sl_saved_parts_export(struct sl_spmd *self, struct sl_trainer *trainer, struct sl_store *own);

/* Collective: all return the error of the first coordinate that has one, whose own is MINE; FIRST says which error that
 * is, and nothing where all is well or the run has ended meanwhile. ROOT is this coordinate's part's; coordinate 0 gets
 * all ROOTS (may be NULL) [coordinates]. */
int sl_saved_parts_agree(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_error *mine,
                         struct sl_error *first, uint64_t root, uint64_t *roots);

/* Writes the index of WHOLE, with its notes, and of the PARTS of STEP in DIRECTORY, whose roots are ROOT [parts]. */
void sl_saved_parts_index(struct sl_store *whole, const char *directory, int64_t step, int parts, const uint64_t *root,
                          struct sl_error *error);

#endif
