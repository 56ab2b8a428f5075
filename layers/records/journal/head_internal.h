/* head_internal.h - the head of a journal's file. */
#ifndef SL_LAYERS_RECORDS_JOURNAL_HEAD_INTERNAL_H
#define SL_LAYERS_RECORDS_JOURNAL_HEAD_INTERNAL_H

#include <jansson.h>

#include "layers/records/journal/journal.h"

/* Makes *HEAD, this coordinate's head, which the caller frees. NOTES may be NULL. Collective over the mesh. */
int sl_journal_head(json_t **head, struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_prints *prints, const struct sl_store *notes);

/* Whether two heads have the same coordinate, layout and list of tensors. */
bool sl_journal_same_layout(const json_t *one, const json_t *other);

#endif
