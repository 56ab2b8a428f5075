/* cards.h - what checkpoints say of themselves: a directory of them, a line each; one of them, as a model's card. */
#ifndef SL_DRIVERS_CARDS_CARDS_H
#define SL_DRIVERS_CARDS_CARDS_H

#include <stdbool.h>

#include "drivers/common/output.h"

/* Prints the checkpoints in DIRECTORY, the latest first: steps, bytes of their values, parameters, model, and the run's
 * mesh, batch and data; as JSON, an object a line, with the file. SL_BAD_INPUT where there is none, or one is damaged.
 */
int sl_cards_list(const char *directory, bool json, const struct sl_output *output, struct sl_error *error);

/* Prints what the model in PATH, a checkpoint or a directory whose latest is taken, is, and how it was trained: its
 * settings and the run's options; as JSON, one object. SL_BAD_INPUT where it is no checkpoint. */
int sl_cards_describe(const char *path, bool json, const struct sl_output *output, struct sl_error *error);

#endif
