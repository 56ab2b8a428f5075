/* machine_file.h - a machine as a JSON file, written by a measurement or by hand. docs/planning.md describes every
 * key. */
#ifndef SL_DRIVERS_TOOLS_MACHINE_MACHINE_FILE_H
#define SL_DRIVERS_TOOLS_MACHINE_MACHINE_FILE_H

#include "drivers/tools/machine/machine.h"

/* Reads PATH. SL_BAD_INPUT with a line that names the file, the key and the allowed values. */
int sl_machine_read(struct sl_machine *machine, const char *path, struct sl_error *error);
/* Writes PATH, completely or not at all. */
int sl_machine_write(const struct sl_machine *machine, const char *path, struct sl_error *error);

#endif
