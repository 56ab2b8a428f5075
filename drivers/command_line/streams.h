/* streams.h - what every driver does about stdin, stdout and stderr, at its beginning and at its end. */
#ifndef SL_DRIVERS_COMMAND_LINE_STREAMS_H
#define SL_DRIVERS_COMMAND_LINE_STREAMS_H

#include "spmd/base/error.h"

/* The first thing that main does. A descriptor from 0 to 2 that whoever has started the driver has closed is taken up,
 * so that no file gets its number, and with it what is printed; reading from it or writing to it still fails. A file
 * that may not grow any more is an error of the write, and no signal. */
void sl_streams_begin(void);

/* Flushes stdout; SL_FAILED where not all of it could be written. The last thing that main does. */
int sl_stdout_finish(struct sl_error *error);

#endif
