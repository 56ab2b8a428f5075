/* called.h - commands that are printed, as a shell takes them. */
#ifndef SL_DRIVERS_COMMAND_LINE_CALLED_H
#define SL_DRIVERS_COMMAND_LINE_CALLED_H

#include <stddef.h>

/* Writes WORD as a shell takes it, in quotes where it needs some; returns TEXT. */
const char *sl_shell_word(const char *word, char *text, size_t size);

/* Writes argv[0] for DRIVER, which lies beside this one and is started as this one was; returns TEXT. */
const char *sl_program_beside(const char *driver, char *text, size_t size);

/* Writes how PROGRAM, a driver with its command if it has one ("transformer train"), is started from the folder and in
 * the way in which this process was: "build/host/drivers/transformer train", "shardloop transformer train". A prefix
 * that PROGRAM has already (sl_program_prefix) is no part of its name. Returns TEXT. */
const char *sl_program_called(const char *program, char *text, size_t size);

#endif
