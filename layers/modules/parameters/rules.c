/* rules.c - finds the first rule that matches a name. */
#include "layers/modules/parameters/rules.h"

#include <fnmatch.h>

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
