/* limits.c - reads the limits from the kernel. */
#include "drivers/memory/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "spmd/device/device.h"

enum { PATH_ROOM = 512 };

/* ---- files of the kernel ---- */

double sl_limits_find(FILE *file, const char *key) {
    char line[256], name[128], unit[8];
    double number;
    while (fgets(line, sizeof line, file)) {
        const int found = sscanf(line, "%127s %lf %7s", name, &number, unit);
        if (found < 2) continue;
        if (name[strlen(name) - 1] == ':') name[strlen(name) - 1] = '\0';
        if (strcmp(name, key) != 0 || !(number >= 0)) continue;
        return found == 3 && !strcmp(unit, "kB") ? 1024 * number : number;
    }
    return NAN;
}

static double find_in(const char *path, const char *key) {
    FILE *file = fopen(path, "r");
    if (!file) return NAN;
    const double number = sl_limits_find(file, key);
    fclose(file);
    return number;
}

/* Returns the file's only number; infinite for "max". */
static double number_in(const char *path) {
    char text[64] = "";
    double number = NAN;
    FILE *file = fopen(path, "r");
    if (!file) return NAN;
    if (fgets(text, sizeof text, file)) number = !strncmp(text, "max", 3) ? INFINITY : strtod(text, NULL);
    fclose(file);
    return number >= 0 ? number : NAN;
}

/* ---- RAM ---- */

static double or_none(double number) { return isnan(number) ? 0 : number; }

static void find_machine(struct sl_limits *limits) {
    static const char path[] = "/proc/meminfo";
    const double swap = or_none(find_in(path, "SwapFree"));
    const double ram = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double total = find_in(path, "MemTotal"), available = find_in(path, "MemAvailable");
    limits->whole[SL_LIMIT_MACHINE] = isnan(total) ? ram : total;
    limits->room[SL_LIMIT_MACHINE] = (isnan(available) ? limits->whole[SL_LIMIT_MACHINE] : available) + swap;
}

/* ---- control groups ---- */

/* Lines are "NUMBER:CONTROLLERS:PATH"; version 2 is number 0 and has no controllers. */
bool sl_limits_find_group(FILE *file, char *path, size_t size, bool *unified) {
    char line[PATH_ROOM + 64];
    bool found = false;
    *unified = false;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *place = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!place || place[1] != '/' || strlen(place + 1) >= size) continue;
        *place++ = '\0';
        const bool is_unified = !strcmp(controllers, ":") && !strncmp(line, "0:", 1);
        bool limits_memory = is_unified && !found;
        char *rest = NULL;
        for (char *name = strtok_r(controllers + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
            limits_memory = limits_memory || !strcmp(name, "memory");
        if (!limits_memory) continue;
        memcpy(path, place, strlen(place) + 1);
        *unified = is_unified;
        found = true;
        if (!is_unified) return true; /* version 1's place of the memory controller is final */
    }
    return found;
}

/* Files of a control group, in versions 1 and 2. */
static const struct {
    const char *root, *limit, *used, *inactive, *active;
} files[2] = {
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file"},
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
};

/* Reads the group at PLACE, if it exists; notes its limit if it has less room than known before. Cached pages of
 * files count as free. */
static void look_at_group(int version, const char *place, struct sl_limits *limits) {
    char path[2 * PATH_ROOM];
    snprintf(path, sizeof path, "%s%s/%s", files[version].root, place, files[version].limit);
    const double whole = number_in(path);
    if (isnan(whole) || whole >= 0x1p60) return; /* version 1's number for "no limit" */
    snprintf(path, sizeof path, "%s%s/%s", files[version].root, place, files[version].used);
    const double used = or_none(number_in(path));
    snprintf(path, sizeof path, "%s%s/memory.stat", files[version].root, place);
    const double cached =
        or_none(find_in(path, files[version].inactive)) + or_none(find_in(path, files[version].active));
    const double room = fmax(whole - fmax(used - cached, 0), 0);
    if (room >= limits->room[SL_LIMIT_CONTAINER]) return;
    limits->room[SL_LIMIT_CONTAINER] = room;
    limits->whole[SL_LIMIT_CONTAINER] = whole;
}

/* Reads the control group and the groups around it, each with a limit; in a container the path may exist only on the
 * host. */
static void find_container(struct sl_limits *limits) {
    char place[PATH_ROOM];
    bool unified = false;
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file) return;
    const bool found = sl_limits_find_group(file, place, sizeof place, &unified);
    fclose(file);
    if (!found) return;
    for (char *slash = place + strlen(place); slash; slash = strrchr(place, '/')) {
        *slash = '\0';
        look_at_group(unified, place, limits);
    }
}

/* ---- limits of the process ---- */

static void find_limit(int resource, const char *used, enum sl_limit which, struct sl_limits *limits) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY) return;
    limits->whole[which] = (double)limit.rlim_cur;
    limits->room[which] = fmax((double)limit.rlim_cur - or_none(find_in("/proc/self/status", used)), 0);
}

struct sl_limits sl_limits_now(void) {
    struct sl_limits limits;
    for (int i = 0; i < SL_LIMITS; i++) limits.room[i] = limits.whole[i] = INFINITY;
    find_machine(&limits);
    find_container(&limits);
    find_limit(RLIMIT_AS, "VmSize", SL_LIMIT_ADDRESSES, &limits);
    find_limit(RLIMIT_DATA, "VmData", SL_LIMIT_DATA, &limits);
    size_t room, whole;
    if (sl_device.memory && sl_device.memory(&room, &whole)) {
        limits.room[SL_LIMIT_DEVICE] = (double)room;
        limits.whole[SL_LIMIT_DEVICE] = (double)whole;
    }
    return limits;
}
