/* access.c - loads and stores of a warp, under the checker: bounds, alignment, bytes that were never written, and
 * threads that touch the same word with no barrier between, one of them changing it. */
#include <stdio.h>

#include "team.h"

static uint64_t stamp_of(const struct ptx_team *team, const struct ptx_fiber *fiber, uint32_t lane) {
    return team->stamps.launch | team->stamps.phase << PTX_PHASE_AT | PTX_SYNCS(fiber->syncs) |
           (fiber->warp.number * 32 + lane);
}

static unsigned phase_of(uint64_t stamp) { return (unsigned)(stamp >> PTX_PHASE_AT & (PTX_MOST_PHASES - 1)); }
static unsigned thread_of(uint64_t stamp) { return stamp & 1023; }
static unsigned bytes_of(uint64_t stamp) { return stamp >> 12 & 15; }
static bool same_launch(uint64_t a, uint64_t b) { return a >> PTX_LAUNCH_AT == b >> PTX_LAUNCH_AT; }
/* A word that threads of several blocks have read. */
static uint64_t everyone(const struct ptx_team *team) {
    return team->stamps.launch | (uint64_t)(PTX_MOST_PHASES - 1) << PTX_PHASE_AT | PTX_MANY | PTX_BYTES(15);
}
/* Whether stamp OLD of the bytes of NOW is by the thread of NOW alone. */
static bool of_thread(uint64_t old, uint64_t now) {
    const bool pair = old & PTX_PAIR, high = bytes_of(now) & 12;
    return !(pair && high && bytes_of(now) & 3) && thread_of(old) + (pair && high) == thread_of(now);
}
/* OLD and NOW, of threads of the block with other bytes each. A stamp names one thread, or the halves of two
 * neighbours; of others the last one is recorded: a race with the former one about its own bytes goes unseen
 * (three threads that share a word's halves or bytes). */
static uint64_t joined(uint64_t old, uint64_t now) {
    if (bytes_of(old) == 3 && bytes_of(now) == 12 && thread_of(now) == thread_of(old) + 1)
        return old | PTX_PAIR | PTX_BYTES(15);
    if (bytes_of(old) == 12 && bytes_of(now) == 3 && thread_of(old) == thread_of(now) + 1)
        return now | PTX_PAIR | PTX_BYTES(15);
    return now;
}

/* Whether accesses OLD and NOW of a word have no order: other blocks, or the same phase of the block. */
static bool unordered(const struct ptx_team *team, uint64_t old, uint64_t now, bool of_block) {
    if (!same_launch(old, now) || !(bytes_of(old) & bytes_of(now))) return false;
    if ((old & PTX_ATOMIC_BIT) && (now & PTX_ATOMIC_BIT)) return false;
    if (phase_of(old) == PTX_MOST_PHASES - 1) return true;
    if (phase_of(old) < team->stamps.block_first) return !of_block;
    if (phase_of(old) != team->stamps.phase) return false;
    if (thread_of(old) / 32 == thread_of(now) / 32 && (old ^ now) & PTX_SYNCS(31)) return false;
    return (old | now) & PTX_MANY || !of_thread(old, now);
}

static void race(struct ptx_team *team, struct ptx_fiber *fiber, struct ptx_area *area, size_t word, uint64_t old,
                 uint64_t now, bool stores, bool stored, uint32_t site) {
    const bool other = phase_of(old) < team->stamps.block_first || phase_of(old) == PTX_MOST_PHASES - 1;
    ptx_tell(team, &fiber->warp, thread_of(now) % 32, site,
             "%s what %s%u of %s %s, with nothing between: byte %zu of %s", stores ? "changes" : "reads",
             old & PTX_MANY ? "others beside thread " : "thread ", thread_of(old),
             other ? "another block" : "its block", stored ? "has stored" : "reads", 4 * word,
             area->kind == PTX_OF_BLOCK ? "the block's shared memory" : "its memory");
}

enum {
    READERS = 1023 | 31 << 17 | 1 << 16
}; /* bits of a stamp that do not matter once there are many: thread, syncs, pair */

static uint64_t with_bytes(uint64_t stamp, unsigned bytes) { return (stamp & ~PTX_BYTES(15)) | PTX_BYTES(bytes); }

/* The stamp of a word's readers after one more. Of many readers it has the bytes that all of them have read:
 * other bytes, read by some, go unseen. */
static uint64_t one_more(const struct ptx_team *team, uint64_t old, uint64_t now, bool of_block) {
    const unsigned both = bytes_of(old) & bytes_of(now);
    if (!same_launch(old, now)) return now;
    if (phase_of(old) == PTX_MOST_PHASES - 1) return old;
    if (phase_of(old) < team->stamps.block_first) return of_block || !both ? now : with_bytes(everyone(team), both);
    if (phase_of(old) != team->stamps.phase) return now;
    if (old & PTX_MANY) return old;
    if (now & PTX_MANY) return now;
    if (of_thread(old, now)) return old & PTX_PAIR ? old : now | PTX_BYTES(bytes_of(old));
    return both ? with_bytes(now | PTX_MANY, both) : joined(old, now);
}

/* One lane's word: BYTES of it are a mask. */
static void read_word(struct ptx_team *team, struct ptx_fiber *fiber, struct ptx_area *area, size_t word, uint64_t now,
                      uint32_t site) {
    const bool of_block = area->kind == PTX_OF_BLOCK;
    const uint64_t wrote = area->wrote[word];
    /* Plain cases first. */
    const uint64_t before = area->read[word], phase = team->stamps.launch | team->stamps.phase << PTX_PHASE_AT;
    if (wrote < (of_block ? phase : team->stamps.launch)) {
        if (before == now || (before & ~(uint64_t)READERS) == (phase | PTX_MANY | PTX_BYTES(15)) ||
            (!of_block && before == everyone(team)))
            return;
        if (before < team->stamps.launch || (of_block && before < phase)) {
            area->read[word] = now;
            return;
        }
    }
    if (!(wrote & PTX_MANY) && unordered(team, wrote, now, of_block))
        race(team, fiber, area, word, wrote, now, false, true, site);
    area->read[word] = one_more(team, before, now, of_block);
}

static void write_word(struct ptx_team *team, struct ptx_fiber *fiber, struct ptx_area *area, size_t word, uint64_t now,
                       uint32_t site) {
    const bool of_block = area->kind == PTX_OF_BLOCK;
    const uint64_t wrote = area->wrote[word], read = area->read[word];
    if (unordered(team, wrote, now, of_block)) race(team, fiber, area, word, wrote, now, true, true, site);
    if (unordered(team, read, now, of_block)) race(team, fiber, area, word, read, now, true, false, site);
    const bool here = same_launch(wrote, now) && phase_of(wrote) == team->stamps.phase;
    if (here && wrote & PTX_PAIR && of_thread(wrote, now)) return;
    area->wrote[word] = here && !(bytes_of(wrote) & bytes_of(now)) ? joined(wrote, now) : now;
}

/* Bytes stored again with the same value: any thread that stores them may read them, too, so no read is reported from
 * here on. If they are the first ones of a phase, nothing is noted: a change by another thread afterwards goes unseen,
 * and is reported by a seed under which that thread comes first. */
static void write_same(struct ptx_team *team, struct ptx_area *area, size_t word, uint64_t now) {
    if (unordered(team, area->wrote[word], now, area->kind == PTX_OF_BLOCK)) area->wrote[word] |= PTX_MANY;
}

/* ---- areas of an access ---- */

static _Noreturn void bad(struct ptx_team *team, struct ptx_fiber *fiber, uint32_t lane, uint64_t a, uint32_t bytes,
                          bool stores, const struct ptx_area *area, const char *why, uint32_t site) {
    static const char *const kinds[] = {"the device's memory", "managed memory", "the host's memory",
                                        "the block's shared memory", "local memory"};
    if (area)
        ptx_report(team, &fiber->warp, lane, site, "%s %u bytes %s: byte %zd of %zu of %s", stores ? "stores" : "loads",
                   bytes, why, (ssize_t)(a - area->begin), (size_t)(area->end - area->begin), kinds[area->kind]);
    ptx_report(team, &fiber->warp, lane, site, "%s %u bytes %s: address 0x%llx", stores ? "stores" : "loads", bytes,
               why, (unsigned long long)a);
}

/* The area in which LANE's access lies as a whole; it may be of use for the next lanes. An instruction for shared
 * memory whose address is so far off that it meets other memory is not told apart. */
static struct ptx_area *area_of(struct ptx_team *team, struct ptx_fiber *fiber, uint32_t lane, uint64_t a,
                                uint32_t bytes, bool stores, uint32_t site) {
    struct ptx_area *area;
    if (a - team->shared->begin < team->shared->end - team->shared->begin)
        area = team->shared;
    else if (fiber->local && a - fiber->local->begin < fiber->local->end - fiber->local->begin)
        area = fiber->local;
    else
        area = ptx_area_find(&team->near[site % PTX_NEAR], a);
    if (a & (bytes - 1)) bad(team, fiber, lane, a, bytes, stores, area, "that are not aligned", site);
    if (!area) bad(team, fiber, lane, a, bytes, stores, NULL, "outside of all memory", site);
    if (area->freed) bad(team, fiber, lane, a, bytes, stores, area, "of memory that has been freed", site);
    if (a + bytes > area->end) bad(team, fiber, lane, a, bytes, stores, area, "beyond its end", site);
    if (area->kind == PTX_OF_LANES && (a - area->begin) / fiber->warp.local_stride != lane)
        bad(team, fiber, lane, a, bytes, stores, area, "of another lane", site);
    if (area->inside && !ptx_bits_all(area->inside, a - area->begin, bytes))
        bad(team, fiber, lane, a, bytes, stores, area, "outside of its array", site);
    return area;
}

/* Whether all of BYTES (1, 2, 4, 8 or 16, which are aligned) from FROM have their bits in BITS. */
static inline bool aligned_bits(const uint8_t *bits, size_t from, uint32_t bytes) {
    uint16_t all = bits[from / 8];
    if (bytes == 16) memcpy(&all, bits + from / 8, 2);
    const uint32_t mask = (1u << bytes) - 1;
    return (all >> from % 8 & mask) == mask;
}

static void check_lane(struct ptx_team *team, struct ptx_fiber *fiber, struct ptx_area *area, uint32_t lane, uint64_t a,
                       uint32_t bytes, const uint8_t *stored, uint64_t flags, uint32_t site) {
    const size_t from = a - area->begin;
    const bool written = !area->valid || aligned_bits(area->valid, from, bytes);
    if (!stored && !written && !ptx_area_written(area, from, bytes))
        bad(team, fiber, lane, a, bytes, false, area, "that nobody has written", site);
    if (stored && !written) ptx_bits_set(area->valid, from, bytes, true);
    if (area->kind == PTX_OF_LANES) return;
    const uint64_t now = stamp_of(team, fiber, lane) | flags;
    const uint8_t *const memory = (const uint8_t *)(uintptr_t)a;
    for (uint32_t k = 0; k < bytes; k += 4) {
        const uint32_t here = bytes < 4 ? bytes : 4;
        const uint64_t mask = PTX_BYTES(((1u << here) - 1) << from % 4);
        if (!stored)
            read_word(team, fiber, area, (from + k) / 4, now | mask, site);
        else if (!written || memcmp(stored + k, memory + k, here))
            write_word(team, fiber, area, (from + k) / 4, now | mask, site);
        else
            write_same(team, area, (from + k) / 4, now | mask);
    }
}

/* ---- lanes side by side: the usual case, for which all words are looked at at once ---- */

struct row {
    struct ptx_area *area;
    size_t from;             /* byte of the area */
    uint32_t words;          /* whole ones */
    uint64_t first;          /* stamp of the first word; */
    uint32_t words_a_thread; /* 0: two threads have one */
    uint64_t floor;          /* stamps below have an order */
    uint64_t many;           /* of a word that many threads of the block have read since the last barrier */
    uint64_t everyone;
};
static uint64_t stamp_in(const struct row *row, uint32_t i) {
    return row->first + (row->words_a_thread ? i / row->words_a_thread : 2 * i);
}

static struct row row_of(struct ptx_team *team, struct ptx_fiber *fiber, struct ptx_area *area, size_t from,
                         uint32_t lane, uint32_t count, uint32_t bytes) {
    const uint64_t phase = team->stamps.launch | team->stamps.phase << PTX_PHASE_AT;
    return (struct row){.area = area,
                        .from = from,
                        .words = count * bytes / 4,
                        .first = stamp_of(team, fiber, lane) | PTX_BYTES(15) | (bytes == 2 ? PTX_PAIR : 0),
                        .words_a_thread = bytes / 4,
                        .floor = area->kind == PTX_OF_BLOCK ? phase : team->stamps.launch,
                        .many = phase | PTX_MANY | PTX_BYTES(15),
                        .everyone = everyone(team)};
}

/* Whether a row's reading is in order; if not, or if that is not plain, its lanes are looked at one by one. */
static bool check_row_read(const struct row *row) {
    const size_t word = row->from / 4;
    uint64_t *const read = row->area->read + word;
    const uint64_t *const wrote = row->area->wrote + word;
    uint64_t bad = 0;
    for (uint32_t i = 0; i < row->words; i++) {
        const uint64_t now = stamp_in(row, i), old = read[i];
        const bool older = (int64_t)old < (int64_t)row->floor;
        bad |= (int64_t)wrote[i] >= (int64_t)row->floor && wrote[i] != now;
        bad |= !older && old != now && old != row->everyone && (old & ~(uint64_t)READERS) != row->many;
        read[i] = older ? now : old;
    }
    return !bad;
}

static bool check_row_write(const struct row *row, const uint8_t *stored) {
    const size_t word = row->from / 4;
    struct ptx_area *area = row->area;
    const uint8_t *const memory = (const uint8_t *)(uintptr_t)(area->begin + row->from);
    const bool written = !area->valid || ptx_bits_all(area->valid, row->from, 4 * row->words);
    if (written && !memcmp(memory, stored, 4 * row->words)) {
        uint64_t newer = 0; /* stored by others, too: see write_same */
        for (uint32_t i = 0; i < row->words; i++)
            newer |= (int64_t)area->wrote[word + i] >= (int64_t)row->floor && area->wrote[word + i] != stamp_in(row, i);
        return !newer;
    }
    uint64_t bad = 0;
    for (uint32_t i = 0; i < row->words; i++) {
        const uint64_t now = stamp_in(row, i), read = area->read[word + i], wrote = area->wrote[word + i];
        bad |= ((int64_t)read >= (int64_t)row->floor && read != now) ||
               ((int64_t)wrote >= (int64_t)row->floor && wrote != now);
    }
    if (bad) return false;
    for (uint32_t i = 0; i < row->words; i++) {
        uint32_t old, new;
        memcpy(&old, memory + 4 * i, 4);
        memcpy(&new, stored + 4 * i, 4);
        area->wrote[word + i] = old != new || !written ? stamp_in(row, i) : area->wrote[word + i];
    }
    if (!written) ptx_bits_set(area->valid, row->from, 4 * row->words, true);
    return true;
}

/* Whether the lanes are side by side and so are their elements. */
static bool is_row(const v_u64 *a, uint32_t lanes, uint32_t bytes, uint32_t first, uint32_t count) {
    if (lanes >> first != (count == 32 ? ~0u : (1u << count) - 1)) return false;
    const v_u64 want = CONVERT(ptx_lanes, v_u64) * bytes + ((*a)[first] - (uint64_t)first * bytes);
    return (LANES(*a == want) & lanes) == lanes;
}

static bool access_row(struct ptx_team *team, struct ptx_fiber *fiber, uint64_t at, uint32_t first, uint32_t count,
                       uint8_t *x, bool stores, uint32_t bytes, uint32_t site) {
    const uint32_t all = count * bytes;
    struct ptx_area *area = area_of(team, fiber, first, at, bytes, stores, site);
    if (at + all > area->end || area->kind == PTX_OF_LANES ||
        (area->inside && !ptx_bits_all(area->inside, at - area->begin, all)))
        return false;
    if (team->checks) {
        const size_t from = at - area->begin;
        if (bytes < 2 || from % 4 || all % 4 || (!stores && !ptx_area_written(area, from, all))) return false;
        const struct row row = row_of(team, fiber, area, from, first, count, bytes);
        if (!(stores ? check_row_write(&row, x + first * bytes) : check_row_read(&row))) return false;
    }
    if (stores)
        memcpy((void *)(uintptr_t)at, x + first * bytes, all);
    else
        memcpy(x + first * bytes, (const void *)(uintptr_t)at, all);
    return true;
}

/* All lanes load, or store the same, at one address. */
static bool access_one(struct ptx_team *team, struct ptx_fiber *fiber, uint64_t at, uint32_t lanes, uint8_t *x,
                       bool stores, uint32_t bytes, uint32_t site) {
    const uint32_t first = (uint32_t)__builtin_ctz(lanes);
    for (uint32_t left = stores ? lanes & (lanes - 1) : 0; left; left &= left - 1)
        if (memcmp(x + first * bytes, x + (uint32_t)__builtin_ctz(left) * bytes, bytes)) return false;
    struct ptx_area *area = area_of(team, fiber, first, at, bytes, stores, site);
    if (area->kind == PTX_OF_LANES) return false;
    if (team->checks) {
        check_lane(team, fiber, area, first, at, bytes, stores ? x + first * bytes : NULL, stores ? 0 : PTX_MANY, site);
        for (uint32_t k = 0; stores && k < bytes; k += 4)
            write_same(team, area, (at - area->begin + k) / 4, (stamp_of(team, fiber, first) ^ 1) | PTX_BYTES(15));
    }
    if (stores)
        memcpy((void *)(uintptr_t)at, x + first * bytes, bytes);
    else
        for (uint32_t lane = 0; lane < 32; lane++) memcpy(x + lane * bytes, (const void *)(uintptr_t)at, bytes);
    return true;
}

static inline __attribute__((always_inline)) void access(struct ptx_warp *warp, const v_u64 *a, uint32_t lanes,
                                                         uint8_t *x, bool stores, bool shared, uint32_t bytes,
                                                         uint32_t site) {
    if (!lanes) return;
    struct ptx_team *const team = ptx_team_of(warp);
    struct ptx_fiber *const fiber = ptx_fiber_of(warp);
    v_u64 moved;
    if (shared) {
        moved = *a + team->view.shared_at;
        a = &moved;
    }
    if (team->counts) ptx_count_access(team, a, lanes, bytes, shared, stores);
    const uint32_t first = (uint32_t)__builtin_ctz(lanes), count = (uint32_t)__builtin_popcount(lanes);
    if (count > 1 && (LANES(*a == (*a)[first]) & lanes) == lanes) {
        if (access_one(team, fiber, (*a)[first], lanes, x, stores, bytes, site)) return;
    } else if (is_row(a, lanes, bytes, first, count)) {
        if (access_row(team, fiber, (*a)[first], first, count, x, stores, bytes, site)) return;
    }
    struct ptx_area *area = NULL;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        const uint64_t at = (*a)[lane];
        if (!area || area->kind == PTX_OF_LANES || at & (bytes - 1) ||
            at - area->begin > area->end - area->begin - bytes ||
            (area->inside && !aligned_bits(area->inside, at - area->begin, bytes)))
            area = area_of(team, fiber, lane, at, bytes, stores, site);
        if (team->checks) check_lane(team, fiber, area, lane, at, bytes, stores ? x + lane * bytes : NULL, 0, site);
        if (stores)
            memcpy((void *)(uintptr_t)at, x + lane * bytes, bytes);
        else
            memcpy(x + lane * bytes, (const void *)(uintptr_t)at, bytes);
    }
}

#define ACCESS(bytes)                                                                                                  \
    void ptx_load_##bytes(struct ptx_warp *warp, const v_u64 *a, uint32_t lanes, void *x, uint32_t site) {             \
        access(warp, a, lanes, x, false, false, bytes, site);                                                          \
    }                                                                                                                  \
    void ptx_load_shared_##bytes(struct ptx_warp *warp, const v_u64 *a, uint32_t lanes, void *x, uint32_t site) {      \
        access(warp, a, lanes, x, false, true, bytes, site);                                                           \
    }                                                                                                                  \
    void ptx_store_##bytes(struct ptx_warp *warp, const v_u64 *a, uint32_t lanes, const void *x, uint32_t site) {      \
        access(warp, a, lanes, (void *)(uintptr_t)x, true, false, bytes, site);                                        \
    }                                                                                                                  \
    void ptx_store_shared_##bytes(struct ptx_warp *warp, const v_u64 *a, uint32_t lanes, const void *x,                \
                                  uint32_t site) {                                                                     \
        access(warp, a, lanes, (void *)(uintptr_t)x, true, true, bytes, site);                                         \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void *ptx_atomic(struct ptx_warp *warp, uint64_t a, uint32_t bytes, uint32_t lane, uint32_t site) {
    struct ptx_team *const team = ptx_team_of(warp);
    struct ptx_fiber *const fiber = ptx_fiber_of(warp);
    struct ptx_area *area = area_of(team, fiber, lane, a, bytes, true, site);
    if (team->checks) {
        if (!ptx_area_written(area, a - area->begin, bytes))
            bad(team, fiber, lane, a, bytes, false, area, "that nobody has written", site);
        if (area->valid) ptx_bits_set(area->valid, a - area->begin, bytes, true);
        for (uint32_t k = 0; k < bytes; k += 4) /* which tells of its reading, too */
            write_word(team, fiber, area, (a - area->begin + k) / 4,
                       stamp_of(team, fiber, lane) | PTX_ATOMIC_BIT | PTX_BYTES(15), site);
    }
    return (void *)(uintptr_t)a;
}

uint32_t ptx_is_shared(const struct ptx_warp *warp, const v_u64 *a) {
    const struct ptx_team *team = ptx_team_of(warp);
    return LANES(*a - team->shared->begin < team->shared->end - team->shared->begin);
}

uint32_t ptx_is_local(const struct ptx_warp *warp, const v_u64 *a) {
    const struct ptx_area *local = ((const struct ptx_fiber *)warp)->local;
    return local ? LANES(*a - local->begin < local->end - local->begin) : 0;
}

uint32_t ptx_is_global(const struct ptx_warp *warp, const v_u64 *a) {
    return ~(ptx_is_shared(warp, a) | ptx_is_local(warp, a));
}

/* ---- asynchronous copies: they happen at their issue or at the wait, as drawn; until the wait the bytes are
 * unknown ---- */

static void copy_now(const struct ptx_pending *copy) {
    uint8_t *const to = (uint8_t *)(uintptr_t)copy->to;
    memcpy(to, (const void *)(uintptr_t)copy->from, copy->given);
    memset(to + copy->given, 0, copy->bytes - copy->given);
}

void ptx_copy(struct ptx_warp *warp, const v_u64 *to, const v_u64 *from, const v_u32 *given, uint32_t bytes,
              uint32_t lanes, uint32_t site) {
    struct ptx_team *const team = ptx_team_of(warp);
    struct ptx_fiber *const fiber = ptx_fiber_of(warp);
    if (team->counts) ptx_count_access(team, from, lanes, bytes, false, false);
    const bool at_once = ptx_random(team, 2);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left), some = (*given)[lane];
        struct ptx_pending copy = {
            (*to)[lane] + team->view.shared_at, (*from)[lane], bytes, some, lane, fiber->groups[lane], false};
        struct ptx_area *target = area_of(team, fiber, lane, copy.to, bytes, true, site);
        if (some > bytes) ptx_report(team, warp, lane, site, "copies %u of %u bytes", some, bytes);
        if (some) { /* bytes that are copied: all or the first ones */
            struct ptx_area *source = area_of(team, fiber, lane, copy.from, 1, false, site);
            if (copy.from % bytes)
                bad(team, fiber, lane, copy.from, bytes, false, source, "that are not aligned", site);
            if (copy.from + some > source->end)
                bad(team, fiber, lane, copy.from, some, false, source, "beyond its end", site);
            if (team->checks)
                for (uint32_t k = 0; k < some; k += 4)
                    check_lane(team, fiber, source, lane, copy.from + k, some - k < 4 ? some - k : 4, NULL, 0, site);
        }
        if (fiber->copies == PTX_COPIES * 32)
            ptx_report(team, warp, lane, site, "has more than %d copies under way", PTX_COPIES);
        if (team->checks) {
            for (uint32_t k = 0; k < bytes; k += 4)
                write_word(team, fiber, target, (copy.to - target->begin + k) / 4,
                           stamp_of(team, fiber, lane) | PTX_BYTES(15), site);
            ptx_bits_set(target->valid, copy.to - target->begin, bytes, false);
        }
        if (at_once)
            copy_now(&copy), copy.done = true;
        else
            memset((void *)(uintptr_t)copy.to, PTX_PATTERN, bytes);
        fiber->copy[fiber->copies++] = copy;
    }
}

void ptx_copies_commit(struct ptx_warp *warp, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) ptx_fiber_of(warp)->groups[__builtin_ctz(left)]++;
}

void ptx_copies_wait(struct ptx_warp *warp, uint32_t pending, uint32_t lanes, uint32_t site) {
    struct ptx_team *const team = ptx_team_of(warp);
    struct ptx_fiber *const fiber = ptx_fiber_of(warp);
    int kept = 0;
    for (int i = 0; i < fiber->copies; i++) {
        const struct ptx_pending *copy = &fiber->copy[i];
        const bool comes = lanes >> copy->lane & 1 && (pending == (uint32_t)PTX_ALL_COPIES ||
                                                       (uint64_t)copy->group + pending < fiber->groups[copy->lane]);
        if (!comes) {
            fiber->copy[kept++] = *copy;
            continue;
        }
        if (!copy->done) copy_now(copy);
        if (!team->checks) continue;
        const size_t at = copy->to - team->shared->begin;
        ptx_bits_set(team->shared->valid, at, copy->bytes, true);
        for (uint32_t k = 0; k < copy->bytes; k += 4)
            write_word(team, fiber, team->shared, (at + k) / 4, stamp_of(team, fiber, copy->lane) | PTX_BYTES(15),
                       site);
    }
    fiber->copies = kept;
}
