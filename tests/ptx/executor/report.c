/* report.c - what is told of launches: faults, counts, and which basic blocks have run. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "team.h"

void ptx_report(const struct ptx_team *team, const struct ptx_warp *warp, uint32_t lane, uint32_t site,
                const char *format, ...) {
    char why[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    const struct ptx_site *at = &team->kernel->sites[site];
    fprintf(stderr, "ptx: thread %u of block %u %s\n", warp->number * 32 + lane, team->view.block, why);
    fprintf(stderr, "ptx:   %s, %u blocks of %u threads\n", team->kernel->name, team->view.blocks, team->view.threads);
    if (site) fprintf(stderr, "ptx:   %s:%d: %s\n", at->file, at->line, at->text);
    fprintf(stderr, "ptx:   SL_PTX_SEED=%llu\n", (unsigned long long)ptx_options()->seed);
    fflush(NULL);
    _exit(86);
}

void ptx_fail(struct ptx_warp *warp, uint32_t lanes, const char *why, uint32_t site) {
    ptx_report(ptx_team_of(warp), warp, (uint32_t)__builtin_ctz(lanes | 1u << 31), site,
               "comes to the end of the run: %s", why);
}

void ptx_count_launch(struct ptx_team *team) { (void)team; }
void ptx_count_access(struct ptx_team *team, const v_u64 *a, uint32_t lanes, uint32_t bytes, bool shared, bool stores) {
    (void)team, (void)a, (void)lanes, (void)bytes, (void)shared, (void)stores;
}
