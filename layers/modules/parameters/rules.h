/* rules.h - rules on parameters' names: partition specs and weight decay. */
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

/* A list of these ends with a pattern of NULL. */
struct sl_decay_rule {
    const char *pattern; /* as above: "*.bias" */
    bool decays;
};

/* Returns whether NAME has weight decay by the first of RULES whose pattern matches; true if none does or RULES is
 * NULL. */
bool sl_rule_decays(const struct sl_decay_rule *rules, const char *name);

SL_END_C
#endif
