/* budget.h - bytes of memory by purpose: as planned, and as taken.
 *
 * Planning adds the bytes that will be taken to one budget (sl_parameters_plan_bytes, sl_pipeline_plan_bytes and the
 * like). Code that takes memory adds its bytes at that moment to another budget, the coordinate's (struct sl_spmd,
 * held). Both are equal once everything has been opened. */
#ifndef SL_SPMD_BASE_BUDGET_H
#define SL_SPMD_BASE_BUDGET_H

#include "spmd/base/base.h"

SL_BEGIN_C

enum sl_memory_kind {
    SL_MEMORY_PARAMETERS, /* values, their bf16 copies, and weights that decoding reads instead */
    SL_MEMORY_GRADIENTS,
    SL_MEMORY_OPTIMIZER,  /* the optimizer's tensors */
    SL_MEMORY_KEPT,       /* activations saved for backward (the stash), logits and their gradients */
    SL_MEMORY_RECOMPUTED, /* stashes of recomputed modules */
    SL_MEMORY_WORKSPACE,  /* scratch memory of a call */
    SL_MEMORY_HANDOVER,   /* slots of channels between stages, and saved stage inputs */
    SL_MEMORY_CACHES,     /* caches of generated sequences */
    SL_MEMORY_BATCH,      /* the coordinate's examples */
    SL_MEMORY_OFFLOADED,  /* offloaded data, in a file or in the host's memory */
    SL_MEMORY_RUNTIME,    /* tables shared by all layers, host buffers */
    SL_MEMORY_CATEGORIES
};

/* Names of the kinds, as keys of JSON: "parameters", ... */
extern const char *const sl_memory_name[SL_MEMORY_CATEGORIES];

struct sl_budget {
    uint64_t bytes[SL_MEMORY_CATEGORIES];
};

/* Adds BYTES to BUDGET; a NULL budget counts nothing. */
static inline void sl_budget_add(struct sl_budget *budget, enum sl_memory_kind what, uint64_t bytes) {
    if (budget) budget->bytes[what] += bytes;
}
/* Adds all of OTHER to BUDGET. */
void sl_budget_join(struct sl_budget *budget, const struct sl_budget *other);
/* All bytes but offloaded ones. */
uint64_t sl_budget_total(const struct sl_budget *budget);
/* All bytes but parameters, gradients, optimizer and offloaded ones. */
uint64_t sl_budget_activations(const struct sl_budget *budget);

SL_END_C
#endif
