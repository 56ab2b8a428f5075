/* missing.c - stands in for engine.c in builds without NCCL, so that asking for it says what to do. */
#include "collectives/engines.h"

const struct sl_engine_table sl_engine_nccl = {.name = "nccl", .missing = "SL_DEVICE=cuda -DSL_NCCL"};
