/* budget.c - sums of bytes by category. */
#include "spmd/base/budget.h"

const char *const sl_memory_name[SL_MEMORY_CATEGORIES] = {
    [SL_MEMORY_PARAMETERS] = "parameters", [SL_MEMORY_GRADIENTS] = "gradients",
    [SL_MEMORY_OPTIMIZER] = "optimizer",   [SL_MEMORY_KEPT] = "kept",
    [SL_MEMORY_RECOMPUTED] = "recomputed", [SL_MEMORY_WORKSPACE] = "workspace",
    [SL_MEMORY_HANDOVER] = "handover",     [SL_MEMORY_CACHES] = "caches",
    [SL_MEMORY_BATCH] = "batch",           [SL_MEMORY_OFFLOADED] = "offloaded",
    [SL_MEMORY_RUNTIME] = "runtime",
};

void sl_budget_join(struct sl_budget *budget, const struct sl_budget *other) {
    for (int i = 0; i < SL_MEMORY_CATEGORIES; i++) budget->bytes[i] += other->bytes[i];
}

static uint64_t sum_from(const struct sl_budget *budget, int first) {
    uint64_t sum = 0;
    for (int i = first; i < SL_MEMORY_CATEGORIES; i++) sum += i == SL_MEMORY_OFFLOADED ? 0 : budget->bytes[i];
    return sum;
}

uint64_t sl_budget_total(const struct sl_budget *budget) { return sum_from(budget, 0); }

uint64_t sl_budget_activations(const struct sl_budget *budget) { return sum_from(budget, SL_MEMORY_OPTIMIZER + 1); }
