/* report.c - reports of launches: faults, counts, and which basic blocks have run. */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "team.h"

uint64_t ptx_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct ptx_options options;
static void read_options(void) {
    const char *seed = getenv("SL_PTX_SEED"), *checks = getenv("SL_PTX_CHECK");
    options = (struct ptx_options){.seed = seed ? strtoull(seed, NULL, 10)
                                                : (ptx_clock() ^ (uint64_t)getpid() << 20) % 1000000,
                                   .checks = !checks || strcmp(checks, "0"),
                                   .goes_on = checks && !strcmp(checks, "tell"),
                                   .counts = getenv("SL_PTX_COUNTS"),
                                   .coverage = getenv("SL_PTX_COVERAGE")};
}
const struct ptx_options *ptx_options(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_options);
    return &options;
}

static void print(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
                  const char *format, va_list arguments) {
    char why[400];
    vsnprintf(why, sizeof why, format, arguments);
    const struct ptx_site *at = &team->kernel->site[site];
    fprintf(stderr, "ptx: thread %u of block %u %s\n", warp->number * 32 + lane, team->view.block, why);
    fprintf(stderr, "ptx:   %s, %u blocks of %u threads\n", team->kernel->name, team->view.blocks, team->view.threads);
    if (site) fprintf(stderr, "ptx:   %s:%d: %s\n", at->file, at->line, at->text);
    fprintf(stderr, "ptx:   SL_PTX_SEED=%llu\n", (unsigned long long)ptx_options()->seed);
}

static _Noreturn void end(void) {
    fflush(NULL);
    _exit(86);
}

void ptx_report(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
                const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print(team, warp, lane, site, format, arguments);
    va_end(arguments);
    end();
}

/* Reports each source line once. */
void ptx_tell(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
              const char *format, ...) {
    static const struct ptx_site *told[64];
    static int count;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct ptx_site *at = &team->kernel->site[site];
    pthread_mutex_lock(&lock);
    bool again = count == 64;
    for (int i = 0; i < count; i++) again = again || told[i] == at;
    if (!again) {
        told[count++] = at;
        va_list arguments;
        va_start(arguments, format);
        print(team, warp, lane, site, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&lock);
    if (!ptx_options()->goes_on) end();
}

void ptx_fail(struct ptx_warp *warp, uint32_t lanes, const char *why, uint32_t site) {
    ptx_report(ptx_team_of(warp), warp, (uint32_t)__builtin_ctz(lanes | 1u << 31), site,
               "comes to the end of the run: %s", why);
}

/* ---- counts ---- */

struct ptx_counts {
    uint64_t requests[2][2], sectors[2]; /* of shared memory or other, stored or loaded; of other memory, in 32 bytes */
    uint64_t conflicts;                  /* passes over shared memory beyond the first one */
};

struct ptx_counts *ptx_counts_begin(void) {
    static _Thread_local struct ptx_counts counts;
    if (!ptx_options()->counts) return NULL;
    counts = (struct ptx_counts){0};
    return &counts;
}

/* Values that differ among COUNT; they are changed. */
static uint32_t distinct(uint64_t *value, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = 0;
        while (k < kept && value[k] != value[i]) k++;
        if (k == kept) value[kept++] = value[i];
    }
    return kept;
}

/* The passes that COUNT lanes need: each of 32 banks gives one word of four bytes in a pass. */
static uint32_t passes(uint64_t *word, uint32_t count) {
    uint32_t most = 1, of_bank[32] = {0};
    count = distinct(word, count);
    for (uint32_t i = 0; i < count; i++)
        if (++of_bank[word[i] % 32] > most) most = of_bank[word[i] % 32];
    return most;
}

/* Elements of 8 bytes are moved for 16 lanes at a time, of 16 bytes for 8. */
void ptx_count_access(struct ptx_team *team, const v_u64 *a, uint32_t lanes, uint32_t bytes, bool shared, bool stores) {
    struct ptx_counts *counts = team->counts;
    const uint64_t offset = (*a)[__builtin_ctz(lanes)] - team->view.shared_at;
    shared = shared || offset < team->view.shared_bytes;
    counts->requests[shared][stores]++;
    const uint32_t at_once = !shared || bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    for (uint32_t first = 0; first < 32; first += at_once) {
        uint64_t value[128];
        uint32_t count = 0;
        for (uint32_t lane = first; lane < first + at_once; lane++)
            for (uint32_t k = 0; lanes >> lane & 1 && k < bytes; k += shared ? 4 : 32)
                value[count++] = ((*a)[lane] + k) / (shared ? 4 : 32);
        if (!count) continue;
        if (shared)
            counts->conflicts += passes(value, count) - 1;
        else
            counts->sectors[stores] += distinct(value, count);
    }
}

static void append(const char *path, const char *text, size_t bytes) {
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || write(file, text, bytes) != (ssize_t)bytes) {
        perror(path);
        _exit(86);
    }
    close(file);
}

/* A line of JSON. */
static void tell_counts(const struct ptx_team *team, const void *parameters) {
    static const char *const kinds[PTX_KINDS] = {"float", "integer", "memory", "control", "together", "mma", "other"};
    const struct ptx_counts *c = team->counts;
    char *line = NULL;
    size_t bytes;
    FILE *text = open_memstream(&line, &bytes);
    if (!text) return;
    fprintf(text, "{\"kernel\":\"%s\",\"blocks\":%u,\"threads\":%u,\"dynamic\":%u,\"instructions\":{",
            team->kernel->name, team->view.blocks, team->view.threads, team->view.dynamic_bytes);
    for (int k = 0; k < PTX_KINDS; k++) {
        uint64_t count = 0;
        for (uint32_t b = 0; b < team->kernel->blocks; b++) count += team->ran[b] * team->kernel->kinds[b][k];
        fprintf(text, "%s\"%s\":%llu", k ? "," : "", kinds[k], (unsigned long long)count);
    }
    fprintf(text,
            "},\"load_requests\":%llu,\"load_sectors\":%llu,\"store_requests\":%llu,\"store_sectors\":%llu,"
            "\"shared_loads\":%llu,\"shared_stores\":%llu,\"bank_conflicts\":%llu,\"warps\":%llu,\"parameters\":[",
            (unsigned long long)c->requests[0][0], (unsigned long long)c->sectors[0],
            (unsigned long long)c->requests[0][1], (unsigned long long)c->sectors[1],
            (unsigned long long)c->requests[1][0], (unsigned long long)c->requests[1][1],
            (unsigned long long)c->conflicts, (unsigned long long)team->view.blocks * team->warps);
    for (uint32_t at = 0; at + 8 <= team->kernel->parameter_bytes; at += 8) {
        uint64_t value;
        memcpy(&value, (const char *)parameters + at, 8);
        fprintf(text, "%s%llu", at ? "," : "", (unsigned long long)value);
    }
    fprintf(text, "]}\n");
    fclose(text);
    append(ptx_options()->counts, line, bytes);
    free(line);
}

/* A line: a mark, which tells it from text that is written to the same place, the kernel, which of its basic blocks
 * have run, a bit each, the first four in the first hexadecimal digit, and how many have, each time a warp runs one. */
static void tell_coverage(const struct ptx_team *team) {
    char *line = NULL;
    size_t bytes;
    FILE *text = open_memstream(&line, &bytes);
    if (!text) return;
    fprintf(text, "\036%s ", team->kernel->name);
    uint64_t work = 0;
    for (uint32_t b = 0; b < team->kernel->blocks; b += 4) {
        uint32_t digit = 0;
        for (uint32_t k = b; k < b + 4 && k < team->kernel->blocks; k++) {
            digit |= (team->ran[k] > 0) << (k - b);
            work += team->ran[k];
        }
        fputc("0123456789abcdef"[digit], text);
    }
    fprintf(text, " %llu\n", (unsigned long long)work);
    fclose(text);
    append(ptx_options()->coverage, line, bytes);
    free(line);
}

void ptx_launch_ends(struct ptx_team *team, const void *parameters) {
    if (team->counts) tell_counts(team, parameters);
    if (ptx_options()->coverage) tell_coverage(team);
}
