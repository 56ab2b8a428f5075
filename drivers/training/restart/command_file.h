/* command_file.h - a file with the hash of a watcher's command line, beside the run's steps in memory
 * (layers/records/snapshot/protection_folder.h). If the watcher dies, a later watcher with the same command line
 * continues its run. */
#ifndef SL_DRIVERS_TRAINING_RESTART_COMMAND_FILE_H
#define SL_DRIVERS_TRAINING_RESTART_COMMAND_FILE_H

#include "drivers/common/options.h"

/* Whether a watcher of the run in SAVE had the command line of OPTIONS, preceded by COMMAND (NULL: no command), in this
 * working directory, and died. */
bool sl_command_file_matches(const char *save, const struct sl_options *options, const char *command);
/* Writes the file; if that fails, no later watcher matches. */
void sl_command_file_write(const char *save, const struct sl_options *options, const char *command);
/* Removes the file beside FOLDER, a folder of steps in memory. */
void sl_command_file_remove(const char *folder);

#endif
