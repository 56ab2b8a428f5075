/* schedule_choice.h - finds a schedule by name: one of the library's, or an alias. */
#ifndef SL_DRIVERS_TRAINING_CHOICES_SCHEDULE_CHOICE_H
#define SL_DRIVERS_TRAINING_CHOICES_SCHEDULE_CHOICE_H

#include "drivers/common/options.h"
#include "spmd/schedule/registry.h"

/* The notebook's names of schedules, which also select the order of random numbers. */
struct sl_schedule_alias {
    const char *name, *schedule, *help;
    bool single;  /* no pipeline */
    bool looping; /* random numbers in the order of the notebook's looping pipeline; otherwise in that of its plain
                   * modules */
};

struct sl_schedule_choice {
    const char *asked; /* as the user wrote it */
    const struct sl_schedule_kind *kind;
    const struct sl_schedule_alias *alias; /* NULL: the user gave the schedule's own name */
};

/* Finds the schedule or alias ASKED. SL_BAD_INPUT lists all names. */
int sl_schedule_choose(struct sl_schedule_choice *choice, const char *asked, struct sl_error *error);

/* Returns the alias called NAME; NULL: none. */
const struct sl_schedule_alias *sl_schedule_find_alias(const char *name);

/* Writes all choices, separated by commas: the names of OWN (ends with NULL), then the names of all schedules. */
void sl_schedule_list_names(const char *(*own)(int i), char *text, size_t size);

/* Adds to ERROR, which says that ASKED is unknown, the nearest name among OWN (NULL: none) and the schedules.
 * Returns ERROR's status. */
int sl_schedule_suggest(const char *asked, const char *(*own)(int i), struct sl_error *error);

/* Words for --help: schedules; and aliases followed by schedules. */
struct sl_option_word sl_schedule_word(int i);
struct sl_option_word sl_schedule_or_alias_word(int i);

#endif
