/* warp.c - a warp runs a kernel: basic blocks, and lanes that part and meet. */
#include <stdio.h>

#include "team.h"

/* Returns the first block with waiting lanes or, in a wild order, a random one. Sets warp->m to its lanes. */
static uint32_t next_block(struct ptx_warp *warp, struct ptx_parted *d) {
    struct ptx_team *team = ptx_team_of(warp);
    uint32_t found = UINT32_MAX, count = 0;
    for (uint32_t w = 0; w < d->words && (team->wild || found == UINT32_MAX); w++) {
        for (uint64_t able = d->some[w] & ~d->stuck[w]; able; able &= able - 1) {
            const uint32_t block = 64 * w + (uint32_t)__builtin_ctzll(able);
            if (!ptx_random(team, ++count)) found = block;
            if (!team->wild) break;
        }
    }
    if (found == UINT32_MAX) {
        uint32_t lanes = 0, block = 0;
        for (uint32_t w = 0; w < d->words && !lanes; w++)
            if (d->some[w]) block = 64 * w + (uint32_t)__builtin_ctzll(d->some[w]), lanes = d->waiting[block];
        ptx_fail(warp, lanes, "lanes wait for others of their warp, which wait elsewhere or have ended",
                 ((const struct ptx_op *)team->kernel->block[block].begin)->site);
    }
    warp->m = d->waiting[found];
    warp->whole = warp->m == warp->live;
    d->some[found / 64] &= ~(1ull << found % 64);
    return found;
}

/* Whether the lanes that a block's first instruction is for are all here; if not, they wait there. Lanes with other
 * masks wait for their turn. */
static bool meet(struct ptx_warp *warp, struct ptx_parted *d, const struct ptx_basic *block, uint32_t number) {
    uint32_t need = warp->live;
    if (block->meets >= 0) {
        const uint32_t alike = ptx_alike(ptx_place(warp, (uint32_t)block->meets), warp->m, &need);
        if (alike != warp->m) ptx_send(d, number, warp->m & ~alike);
        warp->m = alike;
        warp->whole = warp->m == warp->live;
        if (warp->m & ~need)
            ptx_fail(warp, warp->m & ~need, "a lane is not in its own mask",
                     ((const struct ptx_op *)block->begin)->site);
    }
    if (!(need & warp->live & ~warp->m)) return true;
    ptx_park(d, number, warp->m);
    return false;
}

/* LANES go to one block, the others to another: if all go together, they just go on. */
static uint32_t part(struct ptx_warp *warp, struct ptx_parted *d, uint32_t lanes, uint32_t there, uint32_t behind) {
    lanes &= warp->m;
    if (warp->whole) {
        if (lanes == warp->m) return there;
        if (!lanes) return behind;
    }
    if (lanes) ptx_send(d, there, lanes);
    if (warp->m & ~lanes) ptx_send(d, behind, warp->m & ~lanes);
    return next_block(warp, d);
}

static uint32_t by_table(struct ptx_warp *warp, struct ptx_parted *d, const struct ptx_basic *block) {
    const v_u32 index = *(const v_u32 *)ptx_place(warp, block->guard);
    for (uint32_t left = warp->m; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (index[lane] >= block->targets) ptx_fail(warp, 1u << lane, "brx.idx goes beyond its table", block->site);
        ptx_send(d, block->target[index[lane]], 1u << lane);
    }
    return next_block(warp, d);
}

void ptx_run_warp(struct ptx_warp *warp, const struct ptx_kernel *kernel) {
    struct ptx_team *team = ptx_team_of(warp);
    struct ptx_parted *d = &ptx_fiber_of(warp)->parted;
    uint32_t number = 0;
    for (;;) {
        const struct ptx_basic *block = &kernel->block[number];
        if (block->meets != PTX_MEETS_NOT && !meet(warp, d, block, number)) {
            number = next_block(warp, d);
            continue;
        }
        team->ran[number]++;
        for (const char *at = block->begin; at < block->end;) {
            const struct ptx_op *op = (const void *)at;
            op->run(warp, op);
            at += op->bytes;
        }
        uint32_t taken = warp->m;
        if (block->guarded) taken &= *(const uint32_t *)ptx_place(warp, block->guard) ^ (block->negated ? ~0u : 0);
        const uint32_t behind = block->targets ? block->target[block->targets - 1] : 0;
        if (block->how == PTX_GO) {
            number = part(warp, d, taken, block->target[0], behind);
        } else if (block->how == PTX_TABLE) {
            number = by_table(warp, d, block);
        } else if (block->how == PTX_TRAP && taken) {
            ptx_fail(warp, taken, "trap", block->site);
        } else {
            warp->live &= ~taken;
            warp->m &= ~taken;
            if (!warp->live) return;
            if (taken) ptx_unstick(d);
            warp->whole = warp->m == warp->live;
            number = warp->m ? part(warp, d, warp->m, behind, behind) : next_block(warp, d);
        }
    }
}
