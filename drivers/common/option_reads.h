/* option_reads.h - refuses options that a run does not read, by the conditions in their table rows (struct
 * sl_option). */
#ifndef SL_DRIVERS_COMMON_OPTION_READS_H
#define SL_DRIVERS_COMMON_OPTION_READS_H

#include "drivers/common/options.h"

/* Returns SL_BAD_INPUT if a given option is not read under the other choices of the command line; the message tells
 * the choices under which it is read. Options taken over from a checkpoint are not checked, nor are options of a
 * replay: they are the recorded run's. */
int sl_options_check_read(const struct sl_options *options, struct sl_error *error);

#endif
