/* start.h - a command line with a layout's options in place of those that asked for a plan: saved, or run. */
#ifndef SL_DRIVERS_SEARCH_START_H
#define SL_DRIVERS_SEARCH_START_H

#include "drivers/common/options.h"

/* Writes the words of COMMAND without those of sl_search_table, and LAYOUT's, to the file PATH, for use as @PATH. */
int sl_start_save(const struct sl_options *command, const char *layout, const char *path, struct sl_error *error);
/* This process becomes the program itself with these words. Returns only where it cannot. */
int sl_start_again(const struct sl_options *command, const char *layout, struct sl_error *error);

#endif
