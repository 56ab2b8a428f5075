/* cpu_level.c - queries the CPU feature by feature: gcc 12 does not know the levels' names. */
#include "spmd/base/cpu_level.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

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

enum { TILES = 5 }; /* the highest level that can be asked for: 4 with tiles */

/* The level in the environment; 0: none, -1: not a level. */
static int asked_level(void) {
    const char *text = getenv(variable);
    if (!text || !*text) return 0;
    return *text >= '2' && *text <= '0' + TILES && !text[1] ? *text - '0' : -1;
}

int sl_cpu_level(void) {
    const int level = find_level(), asked = asked_level();
    return asked > 0 && asked < level ? asked : level;
}

int sl_cpu_level_check(struct sl_error *error) {
    if (asked_level() >= 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: \"%.80s\" is not 2, 3, 4 or 5", variable, getenv(variable));
}

bool sl_cpu_has_bf16(void) { return sl_cpu_level() == 4 && __builtin_cpu_supports("avx512bf16"); }

bool sl_cpu_has_byte_dots(void) { return sl_cpu_level() == 4 && __builtin_cpu_supports("avx512vnni"); }

/* __builtin_cpu_supports does not know tiles in each compiler. */
static bool cpu_has_tiles(void) {
    enum { FEATURES = 7, BF16 = 1 << 22, TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILE);
}

/* Linux gives a process the tiles' registers when it asks for them. The first answer holds: plans of one run must
 * agree. */
static bool may_use_tiles(void) {
    enum { ASK_FOR_FEATURE = 0x1023, TILE_DATA = 18 };
    enum { GRANTED = 1, REFUSED };
    static _Atomic int answer; /* 0: not asked */
    int now = atomic_load(&answer);
    if (!now) {
        int none = 0;
        now = syscall(SYS_arch_prctl, ASK_FOR_FEATURE, TILE_DATA) == 0 ? GRANTED : REFUSED;
        if (!atomic_compare_exchange_strong(&answer, &none, now)) now = none;
    }
    return now == GRANTED;
}

bool sl_cpu_has_tiles(void) {
    const int asked = asked_level();
    return sl_cpu_has_bf16() && (asked <= 0 || asked == TILES) && cpu_has_tiles() && may_use_tiles();
}
