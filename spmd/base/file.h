/* file.h - opens files named by users. A path may lead to anything: a directory, a device, a FIFO without a process at
 * its other end. Opening waits at most two seconds for that other end. */
#ifndef SL_SPMD_BASE_FILE_H
#define SL_SPMD_BASE_FILE_H

#include <stdio.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Kinds of files, joined by |. Pipes are unnamed pipes and FIFOs; devices are character devices. */
enum sl_file_kinds { SL_FILE_REGULAR = 1, SL_FILE_PIPE = 2, SL_FILE_DEVICE = 4, SL_FILE_DIRECTORY = 8 };

/* Names the kind of the file mode MODE, with its article: "a directory". */
const char *sl_file_kind_name(unsigned mode);
/* Whether a file of mode MODE is one of KINDS. */
bool sl_file_allows(int kinds, unsigned mode);

/* Opens PATH, a file of one of KINDS, for reading. A directory can be opened; reading it then fails. NULL: *REASON is
 * the reason, as words that end a message. */
FILE *sl_file_read(const char *path, int kinds, const char **reason);
/* Opens PATH for writing; it is a file of one of KINDS, or does not exist yet. APPENDS: writes after its end; otherwise
 * the file is emptied first. Errors are those of sl_file_read. */
FILE *sl_file_write(const char *path, bool appends, int kinds, const char **reason);

SL_END_C
#endif
