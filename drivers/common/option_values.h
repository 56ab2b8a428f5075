/* option_values.h - values of options: parsing, allowed ranges, printing. */
#ifndef SL_DRIVERS_COMMON_OPTION_VALUES_H
#define SL_DRIVERS_COMMON_OPTION_VALUES_H

#include <string.h>

#include "drivers/common/options.h"

/* Writes the range of a number, "1 to 512", and nothing for other kinds; returns TEXT. */
char *sl_option_range(const struct sl_option *option, char *text, size_t size);
/* Writes a description of allowed values, "an integer from 1 to 512", for messages; returns TEXT. */
char *sl_option_allowed(const struct sl_option *option, char *text, size_t size);
/* Writes the words of a LIST option whose bits are set in BITS, or "none"; returns TEXT. */
char *sl_option_print_list(const struct sl_option *option, int bits, char *text, size_t size);
/* Adds to ERROR the choice most similar to TEXT. Returns the error's status. */
int sl_option_suggest(const struct sl_option *option, const char *text, struct sl_error *error);

/* Writes the value of OPTION's TARGET, "default 8", or nothing if there is no meaningful default; returns TEXT. */
char *sl_option_default(const struct sl_option *option, const void *target, char *text, size_t size);
/* Writes the text in parentheses of --help: range, default, other name; returns TEXT. */
char *sl_option_note(const struct sl_option *option, const void *target, char *text, size_t size);
/* Returns the name of the value in --help: "FILE", "N" or the choices. */
const char *sl_option_value_name(const struct sl_option *option);

static inline bool sl_option_takes_value(const struct sl_option *option) {
    return option->kind != SL_OPTION_FLAG && option->kind != SL_OPTION_SWITCH;
}
/* Whether --no-NAME exists. */
static inline bool sl_option_has_negation(const struct sl_option *option) {
    return option->kind == SL_OPTION_SWITCH || option->plain;
}

/* Reads a number of up to nine digits at *TEXT, a part of an option's value, and moves *TEXT behind it; returns false
 * if there are none, or more. */
bool sl_option_read_digits(const char **text, int *number);
/* Returns the length of the first choice in LIST, which ends at the next '|' or at the end. */
static inline size_t sl_option_choice_length(const char *list) { return strcspn(list, "|"); }

/* ---- a driver's options by name ---- */

/* An option of a driver, and the address of its value. */
struct sl_option_entry {
    const struct sl_option *option; /* NULL: no more options */
    void *target;
};

/* Position of an option in the sections. Zeros: before the first. */
struct sl_option_place {
    int section, option;
};

/* The next option of all sections, from *AT on, which moves behind it. */
struct sl_option_entry sl_option_next(const struct sl_options *options, struct sl_option_place *at);
/* The option NAME, or none. */
struct sl_option_entry sl_option_find(const struct sl_options *options, const char *name);

#endif
