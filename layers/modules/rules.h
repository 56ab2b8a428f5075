/* rules.h - partition specs and weight decay by rules on parameters' names. */
#ifndef SL_LAYERS_MODULES_RULES_H
#define SL_LAYERS_MODULES_RULES_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_rule {
    const char *pattern; /* of the whole name, as the shell's: "*.kernel" */
    const char *spec;    /* spmd/spec.h: "tensor,data" */
};

/* The spec of the first of RULES (up to a pattern of NULL) that NAME matches; "" where none does, or RULES is NULL. */
const char *sl_rule_find(const struct sl_rule *rules, const char *name);

/* Lists of them end with a pattern of NULL. */
struct sl_decay_rule {
    const char *pattern; /* as above: "*.bias" */
    bool decays;
};

/* What the first of RULES that NAME matches says; true where none does, or RULES is NULL. */
bool sl_rule_decays(const struct sl_decay_rule *rules, const char *name);

SL_END_C
#endif
