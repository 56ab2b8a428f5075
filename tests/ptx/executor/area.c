/* area.c - areas by address. Changes are few, look-ups are many and mostly answered by the caller's own near ones. */
#include "area.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

static struct {
    pthread_rwlock_t lock;
    struct ptx_area **area; /* by address */
    size_t count, room;
    unsigned changes; /* of memory that has gone */
} all = {.lock = PTHREAD_RWLOCK_INITIALIZER, .changes = 1};

static void *need(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "ptx: no memory for the checker\n");
    abort();
}

/* Stamps of large areas take memory only for touched pages: zeros from calloc are the system's own pages. */
struct ptx_area *ptx_area_make(uint64_t begin, size_t bytes, enum ptx_kind kind, bool inside) {
    struct ptx_area *area = need(calloc(1, sizeof *area));
    const size_t words = bytes / 4 + 2;
    *area = (struct ptx_area){.begin = begin, .end = begin + bytes, .kind = kind};
    area->wrote = need(calloc(words, sizeof *area->wrote));
    area->read = need(calloc(words, sizeof *area->read));
    if (kind != PTX_OF_HOST) area->valid = need(calloc(1, bytes / 8 + 9));
    if (inside) area->inside = need(calloc(1, bytes / 8 + 9));
    return area;
}

static void drop_shadows(struct ptx_area *area) {
    free(area->valid);
    free(area->inside);
    free(area->wrote);
    free(area->read);
    area->valid = area->inside = NULL;
    area->wrote = area->read = NULL;
}

void ptx_area_drop(struct ptx_area *area) {
    if (!area) return;
    drop_shadows(area);
    free(area);
}

bool ptx_bits_all(const uint8_t *bits, size_t from, size_t count) {
    while (count) {
        uint64_t word;
        memcpy(&word, bits + from / 8, sizeof word);
        const size_t shift = from % 8, here = count < 64 - shift ? count : 64 - shift;
        const uint64_t mask = here == 64 ? ~0ull : ((1ull << here) - 1) << shift;
        if (~word & mask) return false;
        from += here;
        count -= here;
    }
    return true;
}

void ptx_bits_set(uint8_t *bits, size_t from, size_t count, bool on) {
    while (count && (from % 8 || count < 8)) {
        const uint8_t bit = (uint8_t)(1u << from % 8);
        bits[from / 8] = (uint8_t)(on ? bits[from / 8] | bit : bits[from / 8] & ~bit);
        from++;
        count--;
    }
    memset(bits + from / 8, on ? 0xff : 0, count / 8);
    if (count % 8) ptx_bits_set(bits, from + count / 8 * 8, count % 8, on);
}

/* The last one that begins at or before ADDRESS; -1: none. */
static long before(uint64_t address) {
    long low = 0, high = (long)all.count;
    while (low < high) {
        const long middle = (low + high) / 2;
        if (all.area[middle]->begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

struct ptx_area *ptx_area_find(struct ptx_near *near, uint64_t address) {
    const unsigned changes = __atomic_load_n(&all.changes, __ATOMIC_ACQUIRE);
    if (near->changes == changes && address - near->begin < near->end - near->begin) return near->area;
    pthread_rwlock_rdlock(&all.lock);
    const long at = before(address);
    struct ptx_area *area = at >= 0 && address < all.area[at]->end ? all.area[at] : NULL;
    pthread_rwlock_unlock(&all.lock);
    if (area) *near = (struct ptx_near){area, area->begin, area->end, changes};
    return area;
}

bool ptx_area_written(const struct ptx_area *area, size_t from, size_t bytes) {
    if (!area->valid || ptx_bits_all(area->valid, from, bytes)) return true;
    if (area->kind != PTX_OF_BOTH) return false;
    /* The host's stores are unseen, and single bytes of its own may be as the pattern's: a word without a changed
     * byte counts as never written. */
    const uint8_t *memory = (const uint8_t *)(uintptr_t)area->begin;
    const size_t size = area->end - area->begin;
    for (size_t word = from / 4 * 4; word < from + bytes; word += 4) {
        bool written = false;
        for (size_t i = word; i < word + 4 && i < size; i++)
            written |= area->valid[i / 8] >> i % 8 & 1 || memory[i] != PTX_PATTERN;
        if (!written) return false;
    }
    return true;
}

void ptx_memory_take(const void *at, size_t bytes, enum ptx_memory kind) {
    static const enum ptx_kind kinds[] = {PTX_OF_DEVICE, PTX_OF_BOTH, PTX_OF_HOST};
    if (!bytes) return;
    const uint64_t begin = (uintptr_t)at;
    struct ptx_area *area = ptx_area_make(begin, bytes, kinds[kind], false);
    if (kind != PTX_HOST) memset((void *)(uintptr_t)begin, PTX_PATTERN, bytes);
    pthread_rwlock_wrlock(&all.lock);
    /* Freed memory makes room if its addresses are used again. */
    size_t first = (size_t)(before(begin) + 1);
    if (first && all.area[first - 1]->end > begin) first--;
    size_t last = first;
    while (last < all.count && all.area[last]->begin < begin + bytes) ptx_area_drop(all.area[last++]);
    if (all.count + 1 > all.room) {
        all.room = all.room ? 2 * all.room : 256;
        all.area = need(realloc(all.area, all.room * sizeof *all.area));
    }
    memmove(all.area + first + 1, all.area + last, (all.count - last) * sizeof *all.area);
    all.area[first] = area;
    all.count = all.count - (last - first) + 1;
    if (last > first) __atomic_fetch_add(&all.changes, 1, __ATOMIC_RELEASE);
    pthread_rwlock_unlock(&all.lock);
}

void ptx_memory_free(const void *at) {
    pthread_rwlock_wrlock(&all.lock);
    const long i = before((uintptr_t)at);
    if (i >= 0 && all.area[i]->begin == (uintptr_t)at && !all.area[i]->freed) {
        all.area[i]->freed = true;
        drop_shadows(all.area[i]);
        __atomic_fetch_add(&all.changes, 1, __ATOMIC_RELEASE);
    }
    pthread_rwlock_unlock(&all.lock);
}

static struct ptx_area *area_of_host(const void *at, size_t bytes) {
    struct ptx_near none = {0};
    struct ptx_area *area = ptx_area_find(&none, (uintptr_t)at);
    return area && !area->freed && (uintptr_t)at + bytes <= area->end ? area : NULL;
}

void ptx_memory_written(const void *at, size_t bytes) {
    struct ptx_area *area = area_of_host(at, bytes);
    if (area && area->valid) ptx_bits_set(area->valid, (uintptr_t)at - area->begin, bytes, true);
}

void ptx_memory_copied(const void *to, const void *from, size_t bytes) {
    struct ptx_area *target = area_of_host(to, bytes), *source = area_of_host(from, bytes);
    if (!target || !target->valid) return;
    const size_t at = (uintptr_t)to - target->begin;
    if (!source || ptx_area_written(source, (uintptr_t)from - source->begin, bytes)) {
        ptx_bits_set(target->valid, at, bytes, true);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        ptx_bits_set(target->valid, at + i, 1, ptx_area_written(source, (uintptr_t)from - source->begin + i, 1));
}

void ptx_memory_read(const void *at, size_t bytes) {
    struct ptx_near none = {0};
    struct ptx_area *area = ptx_area_find(&none, (uintptr_t)at);
    if (!area) return; /* the host's own */
    const size_t from = (uintptr_t)at - area->begin;
    const char *why = area->freed                            ? "memory that has been freed"
                      : (uintptr_t)at + bytes > area->end    ? "beyond the end of its memory"
                      : !ptx_area_written(area, from, bytes) ? "memory that nobody has written"
                                                             : NULL;
    if (!why) return;
    fprintf(stderr, "ptx: a library reads %s: %zu bytes at %zu of %zu\n", why, bytes, from,
            (size_t)(area->end - area->begin));
    _Exit(86);
}
