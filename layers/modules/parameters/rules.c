/* rules.c - finds the first rule matching a name. */
#include "layers/modules/parameters/rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

const char *sl_rule_find(const struct sl_rule *rules, const char *name) {
    for (; rules && rules->pattern; rules++)
        if (fnmatch(rules->pattern, name, 0) == 0) return rules->spec;
    return "";
}

bool sl_rule_decays(const struct sl_decay_rule *rules, const char *name) {
    for (; rules && rules->pattern; rules++)
        if (fnmatch(rules->pattern, name, 0) == 0) return rules->decays;
    return true;
}

bool sl_pattern_at(const char *list, int i, char *pattern) {
    for (; list && i > 0; i--) {
        list = strchr(list, ',');
        if (list) list++;
    }
    if (list) snprintf(pattern, SL_MAX_PATTERN, "%.*s", (int)strcspn(list, ","), list);
    return list;
}

bool sl_patterns_match(const char *list, const char *name) {
    char pattern[SL_MAX_PATTERN];
    for (int i = 0; sl_pattern_at(list, i, pattern); i++)
        if (fnmatch(pattern, name, 0) == 0) return true;
    return false;
}
