/* become.h - replaces this process by another program from the same folder. */
#ifndef SL_DRIVERS_COMMAND_LINE_BECOME_H
#define SL_DRIVERS_COMMAND_LINE_BECOME_H

/* Executes the program shardloop-NAME from this program's folder, or NAME in a build folder. argv[0] becomes CALLED,
 * which tells the new program how it was called; ARGV has room for it at 0 and ends with NULL. Returns only on
 * failure, after a line on stderr: SL_FAILED. */
int sl_become(const char *name, const char *called, char **argv);

#endif
