/* team.c - a launch: its blocks one after another, the warps of each as fibers, in orders that are drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "team.h"

static _Thread_local struct ptx_team *the_team;
static uint64_t launches;

static struct ptx_team *make_team(void) {
    struct ptx_team *team = NULL;
    if (posix_memalign((void **)&team, 256, sizeof *team)) abort();
    memset(team, 0, sizeof *team);
    if (posix_memalign((void **)&team->fiber, 256, PTX_MOST_WARPS * sizeof *team->fiber)) abort();
    memset(team->fiber, 0, PTX_MOST_WARPS * sizeof *team->fiber);
    /* Nothing lies near it. */
    char *memory = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + (1 << 20), 1 << 20, PROT_READ | PROT_WRITE)) abort();
    team->view.shared_at = (uintptr_t)memory + (1 << 20);
    return team;
}

/* ---- warps ---- */

static struct ptx_fiber *next_fiber(struct ptx_team *team) {
    uint32_t able[PTX_MOST_WARPS], count = 0;
    for (uint32_t i = 0; i < team->warps; i++)
        if (team->fiber[i].runs) able[count++] = i;
    return count ? &team->fiber[able[count > 1 ? ptx_random(team, count) : 0]] : NULL;
}

static _Noreturn void nobody_runs(struct ptx_team *team) {
    for (uint32_t i = 0; i < team->warps; i++) {
        struct ptx_fiber *fiber = &team->fiber[i];
        if (!fiber->ended)
            ptx_report(team, &fiber->warp, 0, fiber->site, "waits at barrier %d for warps that do not come",
                       fiber->barrier);
    }
    abort();
}

static void new_phase(struct ptx_team *team) {
    if (++team->stamps.phase >= PTX_MOST_PHASES - 2) {
        team->stamps.phase = team->stamps.block_first = 1;
        team->stamps.launch = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) % PTX_MOST_LAUNCHES << PTX_LAUNCH_AT;
    }
    for (uint32_t i = 0; i < team->warps; i++) team->fiber[i].syncs = 0;
}

/* Lets the warps at a barrier go on if all have come. */
static void complete(struct ptx_team *team, uint32_t id) {
    struct ptx_gate *gate = &team->gate[id];
    const uint32_t all = gate->expected ? gate->expected : team->living;
    if (!gate->arrived || gate->arrived < all) return;
    gate->arrived = 0;
    for (uint32_t i = 0; i < team->warps; i++) {
        struct ptx_fiber *fiber = &team->fiber[i];
        if (fiber->barrier != (int)id) continue;
        fiber->barrier = -1;
        fiber->runs = true;
    }
    new_phase(
        team); /* of all: if a barrier of some warps lies between accesses of other warps, their race goes unseen */
}

void ptx_barrier(struct ptx_warp *warp, uint32_t id, uint32_t count, uint32_t site) {
    struct ptx_team *team = ptx_team_of(warp);
    struct ptx_fiber *fiber = ptx_fiber_of(warp);
    if (id >= PTX_BARRIERS || count % 32) ptx_report(team, warp, 0, site, "barrier %u of %u threads", id, count);
    struct ptx_gate *gate = &team->gate[id];
    if (gate->arrived && gate->expected != count / 32)
        ptx_report(team, warp, 0, site, "barrier %u of %u threads, which others wait at for %u", id, count,
                   32 * gate->expected);
    gate->expected = count / 32;
    gate->arrived++;
    fiber->barrier = (int)id;
    fiber->site = site;
    fiber->runs = false;
    complete(team, id);
    struct ptx_fiber *next = next_fiber(team);
    if (!next) nobody_runs(team);
    if (next == fiber) return;
    team->now = next;
    ptx_switch(&fiber->sp, next->sp);
}

static void begin(void) {
    struct ptx_team *team = the_team;
    struct ptx_fiber *fiber = team->now;
    ptx_run_warp(&fiber->warp, team->kernel);
    if (fiber->copies) ptx_report(team, &fiber->warp, fiber->copy->lane, 0, "ends with copies under way");
    fiber->ended = true;
    fiber->runs = false;
    team->living--;
    for (uint32_t i = 0; i < PTX_BARRIERS; i++)
        if (!team->gate[i].expected) complete(team, i);
    struct ptx_fiber *next = next_fiber(team);
    if (!next && team->living) nobody_runs(team);
    team->now = next;
    ptx_switch(&fiber->sp, next ? next->sp : team->main_sp);
    abort();
}

/* ---- blocks ---- */

static void prepare_memory(struct ptx_team *team) {
    const uint32_t bytes = team->view.shared_bytes;
    struct ptx_area *shared = team->shared;
    if (!shared || shared->end - shared->begin != bytes) {
        ptx_area_drop(shared);
        team->shared = shared = ptx_area_make(team->view.shared_at, bytes, PTX_OF_BLOCK, true);
    }
    memset(shared->inside, 0, bytes / 8 + 1);
    for (uint32_t i = 0; i < team->kernel->arrays; i++)
        ptx_bits_set(shared->inside, team->kernel->array[i][0], team->kernel->array[i][1], true);
    ptx_bits_set(shared->inside, team->view.dynamic_at, team->view.dynamic_bytes, true);
}

static void prepare_fiber(struct ptx_team *team, uint32_t i) {
    struct ptx_fiber *fiber = &team->fiber[i];
    const uint32_t threads = team->view.threads - 32 * i;
    const uint32_t live = threads < 32 ? (1u << threads) - 1 : ~0u;
    char *const frame = ptx_frame(fiber, team->kernel->frame_bytes, team->kernel->blocks);
    fiber->warp = (struct ptx_warp){
        {frame, team->kernel->constants, team->parameters, NULL}, live, live, live, true, i, &team->view, 0, 0};
    ((v_u32 *)frame)[0] = ptx_lanes + 32 * i;
    ((v_u32 *)frame)[1] = (v_u32)(team->view.block);
    ((v_u32 *)frame)[2] = (v_u32)(i);
    const uint64_t local = team->kernel->local_bytes;
    if (local) {
        const uint64_t stride = (local + 31) & ~15ull;
        if (!fiber->local || fiber->local->end - fiber->local->begin < 32 * stride) {
            if (fiber->local) free((void *)(uintptr_t)fiber->local->begin), ptx_area_drop(fiber->local);
            fiber->local = ptx_area_make((uintptr_t)aligned_alloc(16, 32 * stride), 32 * stride, PTX_OF_LANES, true);
        }
        fiber->warp.local_at = fiber->local->begin;
        fiber->warp.local_stride = stride;
        memset(fiber->local->valid, 0, 4 * stride);
        memset(fiber->local->inside, 0, 4 * stride);
        for (uint32_t l = 0; l < 32; l++) ptx_bits_set(fiber->local->inside, l * stride, local, true);
    }
    if (!fiber->copy) fiber->copy = malloc(PTX_COPIES * 32 * sizeof *fiber->copy);
    fiber->runs = true;
    fiber->ended = false;
    fiber->barrier = -1;
    fiber->copies = 0;
    memset(fiber->groups, 0, sizeof fiber->groups);
    fiber->syncs = 0;
    ptx_fiber_make(fiber, begin);
}

static void run_block(struct ptx_team *team, uint32_t number) {
    team->view.block = number;
    team->living = team->warps;
    memset(team->gate, 0, sizeof team->gate);
    memset(team->shared->valid, 0, team->view.shared_bytes / 8 + 1);
    memset((void *)(uintptr_t)team->view.shared_at, PTX_PATTERN, team->view.shared_bytes);
    new_phase(team);
    team->stamps.block_first = team->stamps.phase;
    team->wild = !ptx_random(team, 16);
    for (uint32_t i = 0; i < team->warps; i++) prepare_fiber(team, i);
    team->now = next_fiber(team);
    ptx_switch(&team->main_sp, team->now->sp);
}

/* Parameters as operations read them: the same in all lanes. */
static void place_parameters(struct ptx_team *team, const void *parameters) {
    const struct ptx_kernel *kernel = team->kernel;
    if (team->parameter_room < kernel->place_bytes) {
        free(team->parameters);
        team->parameter_room = kernel->place_bytes;
        if (posix_memalign((void **)&team->parameters, 256, team->parameter_room)) abort();
    }
    v_u32 *const head = (v_u32 *)team->parameters;
    head[0] = (v_u32)(team->view.threads);
    head[1] = (v_u32)(team->view.blocks);
    head[2] = (v_u32)(team->view.dynamic_bytes);
    head[3] = (v_u32)(team->view.shared_bytes);
    for (uint32_t i = 0; i < kernel->givens; i++) {
        const struct ptx_given *given = &kernel->given[i];
        uint64_t value = 0;
        memcpy(&value, (const char *)parameters + given->offset, given->bytes);
        if (given->is_signed && given->bytes < 8 && value >> (8 * given->bytes - 1)) value |= ~0ull << 8 * given->bytes;
        void *const place = team->parameters + given->place;
        if (given->bits == 64) *(v_u64 *)place = (v_u64)(value);
        if (given->bits == 32) *(v_u32 *)place = (v_u32)((uint32_t)value);
        if (given->bits == 16) *(v_u16 *)place = (v_u16)((uint16_t)value);
    }
}

static uint32_t divisor(uint32_t a, uint32_t b) { return b ? divisor(b, a % b) : a; }

/* 0 to COUNT - 1 in an order that is drawn: FIRST + i * STEP, which have no common divisor. */
static void draw_order(struct ptx_team *team, uint32_t count, uint32_t *first, uint32_t *step) {
    *first = ptx_random(team, count);
    *step = ptx_random(team, count) | 1;
    while (divisor(*step, count) != 1) ++*step;
}

static void refuse(const struct ptx_kernel *kernel, const char *what, unsigned given, unsigned most) {
    fprintf(stderr, "ptx: %s: %u %s, at most %u\n", kernel->name, given, what, most);
    _Exit(86);
}

/* Of a block of so many threads: a GPU hands them to warps, by 256. */
static uint32_t registers_of(const struct ptx_kernel *kernel, uint32_t threads) {
    const uint32_t of_warp = (32 * kernel->registers + 255) / 256 * 256;
    return (threads + 31) / 32 * of_warp;
}

void ptx_launch(struct ptx_module *module, const struct ptx_kernel *kernel, unsigned blocks, unsigned threads,
                unsigned dynamic, const void *parameters, size_t bytes) {
    if (!the_team) the_team = make_team();
    struct ptx_team *team = the_team;
    ptx_kernel_make(module, (struct ptx_kernel *)(uintptr_t)kernel);
    const uint32_t start = (kernel->shared_bytes + 15) & ~15u;
    if (bytes != kernel->parameter_bytes)
        refuse(kernel, "bytes of parameters, not what it has", (unsigned)bytes, kernel->parameter_bytes);
    if (!threads || threads > kernel->most_threads) refuse(kernel, "threads a block", threads, kernel->most_threads);
    if (!blocks || blocks > 0x7fffffffu) refuse(kernel, "blocks", blocks, 0x7fffffff);
    const uint32_t all = ((kernel->static_bytes + 15) & ~15u) + dynamic;
    if (all > PTX_SHARED_MOST || dynamic > PTX_SHARED_MOST)
        refuse(kernel, "bytes of shared memory", all, PTX_SHARED_MOST);
    if (kernel->static_bytes > 48 << 10)
        refuse(kernel, "bytes of static shared memory", kernel->static_bytes, 48 << 10);
    const uint32_t registers = registers_of(kernel, threads);
    if (registers > PTX_REGISTERS_MOST) refuse(kernel, "registers of a block", registers, PTX_REGISTERS_MOST);
    const uint64_t number = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED), shared_at = team->view.shared_at;
    team->view = (struct ptx_team_view){module, 0, blocks, threads, dynamic, start + dynamic, start, shared_at};
    team->kernel = kernel;
    team->checks = ptx_options()->checks;
    team->counts = ptx_counts_begin();
    place_parameters(team, parameters);
    team->warps = (threads + 31) / 32;
    team->random = ptx_options()->seed * 7919 + number;
    ptx_random(team, 2);
    team->stamps = (struct ptx_stamps){number % PTX_MOST_LAUNCHES << PTX_LAUNCH_AT, 0, 0};
    if (team->ran_room < kernel->blocks) {
        team->ran_room = kernel->blocks;
        team->ran = realloc(team->ran, team->ran_room * sizeof *team->ran);
        if (!team->ran) abort();
    }
    memset(team->ran, 0, kernel->blocks * sizeof *team->ran);
    prepare_memory(team);
    uint32_t first, step, at;
    draw_order(team, blocks, &first, &step);
    at = first;
    for (uint32_t i = 0; i < blocks; i++, at = (uint32_t)(((uint64_t)at + step) % blocks)) run_block(team, at);
    ptx_launch_ends(team, parameters);
}
