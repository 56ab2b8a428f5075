/* rules.h - rules by parameter names: partition specs, weight decay, frozen parameters. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_RULES_H
#define SL_LAYERS_MODULES_PARAMETERS_RULES_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_rule {
    const char *pattern; /* matches the whole name as in the shell: "*.kernel" */
    const char *spec;    /* spmd/spec.h: "tensor,data" */
};

/* Returns the spec of the first of RULES whose pattern matches NAME; "" if none does or RULES is NULL. The list ends
 * with a pattern of NULL. */
const char *sl_rule_find(const struct sl_rule *rules, const char *name);

/* A rule; a list of rules ends with a pattern of NULL. */
struct sl_decay_rule {
    const char *pattern; /* as above: "*.bias" */
    bool decays;
};

/* Returns whether NAME has weight decay by the first of RULES whose pattern matches; true if none does or RULES is
 * NULL. */
bool sl_rule_decays(const struct sl_decay_rule *rules, const char *name);

enum { SL_MAX_PATTERN = 256 };

/* Copies pattern number I, from 0, of LIST, patterns separated by commas, to PATTERN [SL_MAX_PATTERN], truncated if
 * longer. Returns false if LIST has fewer patterns. */
bool sl_pattern_at(const char *list, int i, char *pattern);
/* Returns whether a pattern of LIST matches NAME; false if LIST is NULL. */
bool sl_patterns_match(const char *list, const char *name);

SL_END_C
#endif
