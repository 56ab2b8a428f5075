/* rules.h - partition specs by rules on parameters' names. */
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

SL_END_C
#endif
