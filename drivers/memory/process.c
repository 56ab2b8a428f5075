/* process.c - sorts a process's mappings by purpose. */
#include "drivers/memory/process.h"

#include <malloc.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "spmd/base/memory.h"

const char *const sl_process_part_name[SL_PROCESS_PARTS] = {
    [SL_PROCESS_LIBRARIES] = "libraries", [SL_PROCESS_FILES] = "files", [SL_PROCESS_SHARED] = "shared",
    [SL_PROCESS_STACKS] = "stacks",       [SL_PROCESS_CODE] = "code",   [SL_PROCESS_HEAP] = "heap",
    [SL_PROCESS_FREED] = "freed",
};

enum { OTHERS = SL_PROCESS_PARTS, NAME = 512, MOST_GUARD = 64 << 10 };

/* A mapping, and facts from mappings before it. */
struct mapping {
    unsigned long long begin, end;
    char access[8], name[NAME];
    char program[NAME];          /* the first file */
    unsigned long long guard_at; /* end of the preceding mapping, if it is small and inaccessible */
};

static bool is_program(const struct mapping *mapping) {
    return !strcmp(mapping->name, mapping->program) || strstr(mapping->name, ".so");
}

/* Finds the part of a mapping. Threads' stacks have no name, but begin at a guard. */
static int part_of(const struct mapping *mapping) {
    const char *name = mapping->name;
    if (!strncmp(name, "[stack", 6)) return SL_PROCESS_STACKS;
    if (!strcmp(name, "[heap]")) return OTHERS;
    if (mapping->access[3] == 's' && (!strncmp(name, "/dev/", 5) || *name != '/')) return SL_PROCESS_SHARED;
    if (*name == '/') return is_program(mapping) ? SL_PROCESS_LIBRARIES : SL_PROCESS_FILES;
    if (*name == '[' && strncmp(name, "[anon", 5) != 0) return SL_PROCESS_LIBRARIES; /* the kernel's: [vdso] */
    if (mapping->access[2] == 'x') return SL_PROCESS_CODE;
    return mapping->guard_at && mapping->guard_at == mapping->begin ? SL_PROCESS_STACKS : OTHERS;
}

/* Reads the first line of a mapping: "55d8c0-55d8f0 r-xp 00000000 08:01 1234 /usr/bin/name". */
static bool read_head(const char *line, struct mapping *mapping) {
    struct mapping next = {0};
    int name = 0;
    if (sscanf(line, "%llx-%llx %7s %*x %*s %*u %n", &next.begin, &next.end, next.access, &name) < 3 || !name)
        return false;
    if (strlen(next.access) != 4) return false;
    snprintf(next.name, sizeof next.name, "%.*s", (int)strcspn(line + name, "\n"), line + name);
    memcpy(next.program, *mapping->program || *next.name != '/' ? mapping->program : next.name, NAME);
    const bool guards = !strncmp(mapping->access, "---", 3) && mapping->end - mapping->begin <= MOST_GUARD;
    next.guard_at = guards ? mapping->end : 0;
    *mapping = next;
    return true;
}

bool sl_process_memory_parse(FILE *file, struct sl_process_memory *memory, double *others) {
    struct mapping mapping = {0};
    char line[NAME + 128];
    bool known = false;
    *memory = (struct sl_process_memory){0};
    *others = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long long kilobytes;
        if (read_head(line, &mapping) || !mapping.end || sscanf(line, "Rss: %llu kB", &kilobytes) != 1) continue;
        const int part = part_of(&mapping);
        *(part == OTHERS ? others : &memory->part[part]) += 1024.0 * (double)kilobytes;
        memory->resident += 1024.0 * (double)kilobytes;
        known = true;
    }
    return known;
}

/* Whether mallinfo2 describes this process's malloc: a sanitizer has its own. */
static bool heap_tells(const struct mallinfo2 *heap) { return heap->uordblks + heap->hblkhd > 0; }

struct sl_process_memory sl_process_memory_now(double held) {
    struct sl_process_memory memory = {0};
    double others = 0, *part = memory.part;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file) return memory;
    const bool known = sl_process_memory_parse(file, &memory, &others);
    fclose(file);
    if (!known) return memory;
    const struct mallinfo2 heap = mallinfo2();
    if (!heap_tells(&heap)) {
        part[SL_PROCESS_HEAP] = fmax(others - held, 0);
    } else {
        part[SL_PROCESS_HEAP] =
            fmax((double)heap.uordblks + (double)heap.hblkhd + (double)sl_memory_mapped() - held, 0);
        part[SL_PROCESS_FREED] = (double)heap.fordblks;
    }
    memory.unexplained = others - held - part[SL_PROCESS_HEAP] - part[SL_PROCESS_FREED];
    return memory;
}

/* The library copies blocks of its operands; a small model has small ones. */
double sl_process_besides(int coordinates, double planned) {
    const double process = 24e6, coordinate = 10e6, share = 0.12;
    return process + fmin(coordinate * coordinates, share * planned);
}

double sl_peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}
