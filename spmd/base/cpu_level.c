/* cpu_level.c - queries the CPU feature by feature: gcc 12 does not know the levels' names. */
#include "spmd/base/cpu_level.h"

#include <stdlib.h>

static bool has_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static int find_level(void) { return has_v4() ? 4 : has_v3() ? 3 : 2; }

static const char variable[] = "SHARDLOOP_CPU_LEVEL";

/* The level in the environment; 0: none, -1: not a level. */
static int asked_level(void) {
    const char *text = getenv(variable);
    if (!text || !*text) return 0;
    return *text >= '2' && *text <= '4' && !text[1] ? *text - '0' : -1;
}

int sl_cpu_level(void) {
    const int level = find_level(), asked = asked_level();
    return asked > 0 && asked < level ? asked : level;
}

int sl_cpu_level_check(struct sl_error *error) {
    if (asked_level() >= 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: \"%.80s\" is not 2, 3 or 4", variable, getenv(variable));
}

bool sl_cpu_has_bf16(void) { return sl_cpu_level() == 4 && __builtin_cpu_supports("avx512bf16"); }
