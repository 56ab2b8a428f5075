/* option_reads.h - options that a run does not read are refused, by what their rows say of it (struct sl_option). */
#ifndef SL_DRIVERS_COMMON_OPTION_READS_H
#define SL_DRIVERS_COMMON_OPTION_READS_H

#include "drivers/common/options.h"

/* SL_BAD_INPUT where an option was given that the choices of this command line leave unread: the line says by which it
 * would be read. What a checkpoint has brought may lie unread; so may the options of a replay, which are those of a
 * run.
 */
int sl_options_check_read(const struct sl_options *options, struct sl_error *error);

#endif
