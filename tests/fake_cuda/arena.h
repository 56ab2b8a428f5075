/* arena.h - memory of the fake NCCL's communicators: this process's own or, if a launcher has started several
 * processes, memory that they share. Shared memory has no name, so it ends with the processes, and it lies at the same
 * address in all of them, so pointers into it hold everywhere. */
#ifndef FAKE_ARENA_H
#define FAKE_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_ARENA_CLASSES = 40 };

struct fake_arena {
    pthread_mutex_t lock; /* protects all fields and blocks */
    bool shared;
    size_t used;
    void *given[FAKE_ARENA_CLASSES]; /* free blocks by size class, powers of two */
    struct clique *cliques;          /* incomplete ones */
    struct split *splits;
};

/* Returns the arena for communicators with ids from this process; NULL if there is no memory. Writes SIZE bytes to ID,
 * by which other processes find the arena. */
struct fake_arena *fake_arena_own(char *id, size_t size);
/* Returns the arena that ID names; NULL if its process has ended. */
struct fake_arena *fake_arena_of(const char *id);

void fake_arena_lock(struct fake_arena *arena);
void fake_arena_unlock(struct fake_arena *arena);

/* Allocates zeroed memory. The arena is locked, here and below. Ends the process if there is no memory. */
void *fake_arena_take(struct fake_arena *arena, size_t bytes);
void fake_arena_give(struct fake_arena *arena, void *memory);

/* Waits, with the arena unlocked, until *CHANGED, a word of the arena, changes. May return early. */
void fake_arena_wait(struct fake_arena *arena, uint32_t *changed);
void fake_arena_wake(uint32_t *changed);

#endif
