/* budget.h - bytes of memory by what they are for: what a coordinate plans to take, and what it has taken.
 *
 * Planning adds to one budget what will be taken (sl_parameters_plan_bytes, sl_pipeline_plan_bytes and the like).
 * Whoever takes memory adds it to another one, that of the coordinate (struct sl_spmd, held), at the moment at which it
 * is taken. Both are equal once everything has been opened. */
#ifndef SL_SPMD_BASE_BUDGET_H
#define SL_SPMD_BASE_BUDGET_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum sl_memory_kind {
    SL_MEMORY_PARAMETERS, /* values, their copies in bf16, and what decoding reads in their place */
    SL_MEMORY_GRADIENTS,
    SL_MEMORY_OPTIMIZER,  /* the optimizer's tensors */
    SL_MEMORY_KEPT,       /* what forward leaves for backward: the stash, logits and their gradients */
    SL_MEMORY_RECOMPUTED, /* the stashes of modules that backward computes again */
    SL_MEMORY_WORKSPACE,  /* what a call needs while it runs */
    SL_MEMORY_HANDOVER,   /* slots of channels between stages, and the inputs that a schedule keeps */
    SL_MEMORY_CACHES,     /* what generation remembers of a sequence */
    SL_MEMORY_BATCH,      /* the coordinate's examples */
    SL_MEMORY_OFFLOADED, /* what lies further away than where it is computed with: in a file, or in the host's memory */
    SL_MEMORY_RUNTIME,   /* tables that all layers read, rooms of the host */
    SL_MEMORY_CATEGORIES
};

/* Their names, as keys of JSON: "parameters", ... */
extern const char *const sl_memory_name[SL_MEMORY_CATEGORIES];

struct sl_budget {
    uint64_t bytes[SL_MEMORY_CATEGORIES];
};

/* BUDGET may be NULL: then nobody counts. */
static inline void sl_budget_add(struct sl_budget *budget, enum sl_memory_kind what, uint64_t bytes) {
    if (budget) budget->bytes[what] += bytes;
}
/* Adds all of OTHER to BUDGET. */
void sl_budget_join(struct sl_budget *budget, const struct sl_budget *other);
/* All but what is offloaded. */
uint64_t sl_budget_total(const struct sl_budget *budget);
/* What is neither parameters nor gradients nor the optimizer's. */
uint64_t sl_budget_activations(const struct sl_budget *budget);

SL_END_C
#endif
