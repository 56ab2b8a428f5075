/* become.h - this process goes on as another program that was built, or installed, beside it. */
#ifndef SL_DRIVERS_COMMAND_LINE_BECOME_H
#define SL_DRIVERS_COMMAND_LINE_BECOME_H

/* Becomes the program shardloop-NAME that lies beside this one, or, in a build folder, NAME. It finds in its first
 * argument, which becomes CALLED, how it was called; ARGV has room for that at 0, and ends with NULL. Returns only
 * where there is no such program, after a line on stderr: SL_FAILED. */
int sl_become(const char *name, const char *called, char **argv);

#endif
