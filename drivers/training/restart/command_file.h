/* command_file.h - a file with the hash of a watcher's command line, in the folder of the run's steps in memory
 * (layers/records/snapshot/protection_folder.h). If the watcher dies, a later watcher with the same command line
 * continues its run. A run that removes the steps removes the file, too. */
#ifndef SL_DRIVERS_TRAINING_RESTART_COMMAND_FILE_H
#define SL_DRIVERS_TRAINING_RESTART_COMMAND_FILE_H

#include "drivers/common/options.h"

/* Whether a watcher of the run in SAVE had the command line of OPTIONS, preceded by COMMAND (NULL: no command), for the
 * program in the file PROGRAM, in this working directory. */
bool sl_command_file_matches(const char *save, const struct sl_options *options, const char *program,
                             const char *command);
/* Writes the file, unless it matches; if that fails, no later watcher matches. */
void sl_command_file_write(const char *save, const struct sl_options *options, const char *program,
                           const char *command);
/* Removes the file, and the folder if nothing else is in it. */
void sl_command_file_remove(const char *save);

#endif
