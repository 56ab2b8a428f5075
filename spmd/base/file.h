/* file.h - opens files that users name. A path may lead to anything: a directory, a device, a FIFO at whose other end
 * nobody is. Opening never waits longer than two seconds for that other end. */
#ifndef SL_SPMD_BASE_FILE_H
#define SL_SPMD_BASE_FILE_H

#include <stdio.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Kinds of files, to be joined by |. Pipes are those without a name and those with one (FIFOs); devices are character
 * devices. */
enum sl_file_kinds { SL_FILE_REGULAR = 1, SL_FILE_PIPE = 2, SL_FILE_DEVICE = 4, SL_FILE_DIRECTORY = 8 };

/* What the file mode MODE is, with its article: "a directory". */
const char *sl_file_kind_name(unsigned mode);
/* Whether a file of mode MODE is one of KINDS. */
bool sl_file_allows(int kinds, unsigned mode);

/* Opens PATH, which is one of KINDS, to read it; of a directory, reading says that it is one. NULL: *REASON says why
 * not, as words that end a message. */
FILE *sl_file_read(const char *path, int kinds, const char **reason);
/* Opens PATH, which is one of KINDS or not there yet, to write it: after its end where APPENDS, otherwise it is emptied
 * first. */
FILE *sl_file_write(const char *path, bool appends, int kinds, const char **reason);

SL_END_C
#endif
