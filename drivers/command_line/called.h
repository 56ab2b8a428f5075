/* called.h - prints commands in shell syntax. */
#ifndef SL_DRIVERS_COMMAND_LINE_CALLED_H
#define SL_DRIVERS_COMMAND_LINE_CALLED_H

#include <stddef.h>

/* Writes WORD in shell syntax, quoted if necessary; returns TEXT. */
const char *sl_shell_word(const char *word, char *text, size_t size);

/* Writes argv[0] for DRIVER, a program in this one's folder, started in the same way as this one; returns TEXT. */
const char *sl_program_beside(const char *driver, char *text, size_t size);

/* Writes the command for PROGRAM, a driver with its command if it has one ("transformer train"), started from the
 * same folder and in the same way as this process: "build/host/drivers/transformer train", "shardloop transformer
 * train". If PROGRAM already has a prefix (sl_program_prefix), it is not part of the name. Returns TEXT. */
const char *sl_program_called(const char *program, char *text, size_t size);

#endif
