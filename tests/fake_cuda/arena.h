/* arena.h - where the fake NCCL's communicators live: in this process's own memory or, where a launcher has started
 * several processes, in memory that they share. That has no name, so nothing of it is left behind, and lies at the same
 * address in all of them: pointers into it hold everywhere. */
#ifndef FAKE_ARENA_H
#define FAKE_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_ARENA_CLASSES = 40 };

struct fake_arena {
    pthread_mutex_t lock; /* of all that lies here */
    bool shared;
    size_t used;
    void *given[FAKE_ARENA_CLASSES]; /* free blocks by size, powers of two */
    struct clique *cliques;          /* not complete */
    struct split *splits;
};

/* The arena for communicators that this process makes ids for, and words that others find it by (SIZE bytes at ID).
 * NULL without memory. */
struct fake_arena *fake_arena_own(char *id, size_t size);
/* The one that the words at ID tell; NULL: the process that made it has ended. */
struct fake_arena *fake_arena_of(const char *id);

void fake_arena_lock(struct fake_arena *arena);
void fake_arena_unlock(struct fake_arena *arena);

/* Zeros; the arena is locked, here and below. Ends the process where there is no memory. */
void *fake_arena_take(struct fake_arena *arena, size_t bytes);
void fake_arena_give(struct fake_arena *arena, void *memory);

/* Waits until *CHANGED, which lies in the arena, does; now and then it returns without. Unlocked meanwhile. */
void fake_arena_wait(struct fake_arena *arena, uint32_t *changed);
void fake_arena_wake(uint32_t *changed);

#endif
