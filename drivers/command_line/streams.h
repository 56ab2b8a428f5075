/* streams.h - sets up stdin, stdout and stderr at the beginning of every driver, and flushes stdout at its end. */
#ifndef SL_DRIVERS_COMMAND_LINE_STREAMS_H
#define SL_DRIVERS_COMMAND_LINE_STREAMS_H

#include "spmd/base/error.h"

/* Call it first in main. Opens each of the descriptors 0 to 2 that the parent process has closed, so no other file
 * gets its number and receives printed output; reading from such a descriptor or writing to it still fails. Makes
 * the file size limit an error of the write instead of a signal. */
void sl_streams_begin(void);

/* Flushes stdout; SL_FAILED if not all of it could be written. Call it last in main. */
int sl_stdout_finish(struct sl_error *error);

#endif
