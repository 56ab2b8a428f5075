/* start.h - replaces the options that asked for a plan by a layout's options, and saves or runs the command line. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_START_H
#define SL_DRIVERS_TOOLS_SEARCH_START_H

#include "drivers/common/options.h"

/* Writes the words of COMMAND, without the options of sl_search_table, and LAYOUT's to the file PATH, for use as
 * @PATH. */
int sl_start_save(const struct sl_options *command, const char *layout, const char *path, struct sl_error *error);
/* Executes the program again with these words, in this process. Returns only on failure. */
int sl_start_again(const struct sl_options *command, const char *layout, struct sl_error *error);

#endif
