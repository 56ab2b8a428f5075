/* missing.c - replaces engine.c in builds without NCCL: opening the engine reports the build option. */
#include "collectives/engines.h"

const struct sl_engine_table sl_engine_nccl = {.name = "nccl", .missing = "SL_DEVICE=cuda -DSL_NCCL"};
