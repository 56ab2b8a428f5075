/* schedule_choice.h - the schedule that a user asks for by name: one of the library's, or an alias of one. */
#ifndef SL_DRIVERS_COMMON_SCHEDULE_CHOICE_H
#define SL_DRIVERS_COMMON_SCHEDULE_CHOICE_H

#include "drivers/common/options.h"
#include "spmd/schedule/registry.h"

/* The notebook's names of schedules, which also say in which order random numbers are drawn. */
struct sl_schedule_alias {
    const char *name, *schedule, *help;
    bool single;  /* there is no pipeline */
    bool looping; /* random numbers in the order of the notebook's looping pipeline; otherwise of its plain modules */
};

struct sl_schedule_choice {
    const char *asked; /* what the user wrote */
    const struct sl_schedule_kind *kind;
    const struct sl_schedule_alias *alias; /* NULL: the schedule's own name was asked for */
};

/* Finds what ASKED names, a schedule or an alias. SL_BAD_INPUT lists all names. */
int sl_schedule_choose(struct sl_schedule_choice *choice, const char *asked, struct sl_error *error);

/* The alias called NAME; NULL: there is none. */
const struct sl_schedule_alias *sl_schedule_find_alias(const char *name);

/* Writes the names to choose from, with commas: those of OWN, which ends with NULL, then all schedules'. */
void sl_schedule_list_names(const char *(*own)(int i), char *text, size_t size);

/* Adds to ERROR, which says that there is no schedule ASKED, the name among OWN (NULL: none) and the schedules' that is
 * nearest. Returns ERROR's status. */
int sl_schedule_suggest(const char *asked, const char *(*own)(int i), struct sl_error *error);

/* For --help: the schedules; and the aliases, then the schedules. */
struct sl_option_word sl_schedule_word(int i);
struct sl_option_word sl_schedule_or_alias_word(int i);

#endif
