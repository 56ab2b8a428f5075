/* schedule_choice.c - schedules by name or alias. */
#include "drivers/training/choices/schedule_choice.h"

#include <stdio.h>
#include <string.h>

#include "drivers/command_line/suggest.h"

static const struct sl_schedule_alias aliases[] = {
    {.name = "single",
     .schedule = "gpipe",
     .help = "no pipeline: the model axis must have size 1; without --mesh, data=8, which is 8 replicas of the "
             "whole model",
     .single = true},
    {.name = "plain", .schedule = "gpipe", .help = "gpipe, with the notebook's random numbers"},
    {.name = "looping",
     .schedule = "looped-bfs",
     .help = "looped-bfs, with the notebook's random numbers",
     .looping = true},
};
enum { ALIASES = sizeof aliases / sizeof *aliases };

const struct sl_schedule_alias *sl_schedule_find_alias(const char *name) {
    for (int i = 0; i < ALIASES; i++)
        if (!strcmp(aliases[i].name, name)) return &aliases[i];
    return NULL;
}

static const char *alias_name(int i) { return i < ALIASES ? aliases[i].name : NULL; }

void sl_schedule_list_names(const char *(*own)(int i), char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; own(i) && used < size; i++) used += (size_t)snprintf(text + used, size - used, "%s, ", own(i));
    if (used < size) sl_schedule_names(text + used, size - used);
}

int sl_schedule_suggest(const char *asked, const char *(*own)(int i), struct sl_error *error) {
    const struct sl_schedule_kind *kind;
    struct sl_nearest nearest = sl_nearest_to(asked, strlen(asked));
    for (int i = 0; own && own(i); i++) sl_nearest_try(&nearest, own(i), strlen(own(i)));
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) sl_nearest_try(&nearest, kind->name, strlen(kind->name));
    return sl_suggest(&nearest, "", error);
}

int sl_schedule_choose(struct sl_schedule_choice *choice, const char *asked, struct sl_error *error) {
    const struct sl_schedule_alias *alias = sl_schedule_find_alias(asked);
    const struct sl_schedule_kind *kind = sl_schedule_find(alias ? alias->schedule : asked, NULL);
    *choice = (struct sl_schedule_choice){.asked = asked, .kind = kind, .alias = alias};
    if (kind) return SL_OK;
    char names[sizeof error->message];
    sl_schedule_list_names(alias_name, names, sizeof names);
    sl_error_set(error, SL_BAD_INPUT, "--schedule: there is no \"%.60s\": choose one of %s", asked, names);
    return sl_schedule_suggest(asked, alias_name, error);
}

struct sl_option_word sl_schedule_word(int i) {
    const struct sl_schedule_kind *kind = sl_schedule_kind_at(i);
    if (!kind) return (struct sl_option_word){0};
    return (struct sl_option_word){kind->name, kind->help, kind->source};
}

struct sl_option_word sl_schedule_or_alias_word(int i) {
    if (i >= ALIASES) return sl_schedule_word(i - ALIASES);
    return (struct sl_option_word){.name = aliases[i].name, .help = aliases[i].help};
}
