/* help_format.h - other forms of --help: a page of the manual, and what shells complete.
 *
 * The environment variable SHARDLOOP_HELP says which: man, bash, zsh, fish, or commands, which lists the names of a
 * driver's commands. drivers/manual/make.sh sets it when the programs are installed. */
#ifndef SL_DRIVERS_COMMAND_LINE_HELP_FORMAT_H
#define SL_DRIVERS_COMMAND_LINE_HELP_FORMAT_H

enum sl_help_format { SL_HELP_TEXT, SL_HELP_MAN, SL_HELP_BASH, SL_HELP_ZSH, SL_HELP_FISH, SL_HELP_COMMANDS };

/* What is asked for; any other text is SL_HELP_TEXT. */
enum sl_help_format sl_help_format(void);

/* Prints the beginning of the page NAME(1) up to its NAME section; SUMMARY's first sentence stands there. */
void sl_roff_begin(const char *name, const char *summary, const char *version);
/* Prints TEXT, without a line's end, as roff takes it. */
void sl_print_roff(const char *text);
/* Prints TEXT in single quotes, as bash, zsh and fish take it. */
void sl_print_quoted(const char *text);

#endif
