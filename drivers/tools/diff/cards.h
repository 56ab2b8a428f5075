/* cards.h - prints checkpoints' notes: a directory of them, a line each; or one of them, as a model card. */
#ifndef SL_DRIVERS_TOOLS_DIFF_CARDS_H
#define SL_DRIVERS_TOOLS_DIFF_CARDS_H

#include <stdbool.h>

#include "drivers/common/output.h"

/* Prints the checkpoints in DIRECTORY, the latest first: steps, bytes of their values, parameters, model, and the
 * run's mesh, batch and data; as JSON, an object per line, with the file. SL_BAD_INPUT if there is none, or one is
 * damaged. */
int sl_cards_list(const char *directory, bool json, const struct sl_output *output, struct sl_error *error);

/* Prints a description of the model in PATH, a checkpoint or a directory of them (the latest is used), and of its
 * training: its settings and the run's options; as JSON, one object. SL_BAD_INPUT if PATH is not a checkpoint. */
int sl_cards_describe(const char *path, bool json, const struct sl_output *output, struct sl_error *error);

#endif
