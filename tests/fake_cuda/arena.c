/* arena.c - memory shared by processes, without a name; locks that outlive their holders. */
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 64, NAP_MS = 50 };
#define BYTES ((size_t)1 << 28)                 /* of addresses; untouched pages take no memory */
#define FIRST_ADDRESS ((uintptr_t)0x1000000000) /* of rank 0's arena; nothing else is mapped there */

static struct fake_arena alone = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* This process's mappings of all processes' arenas. */
static struct fake_arena *arenas[PROCESSES];
static int own_file = -1;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* ---- arenas ---- */

static int first_number(const char *const *names, int otherwise) {
    for (; *names; names++) {
        if (getenv(*names)) return atoi(getenv(*names));
    }
    return otherwise;
}

static struct fake_arena *map(int file, int rank) {
    void *wanted = (void *)(FIRST_ADDRESS + BYTES * (uintptr_t)rank);
    void *memory =
        mmap(wanted, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
    if (memory == wanted) return memory;
    if (memory != MAP_FAILED) munmap(memory, BYTES);
    return NULL;
}

/* The lock goes on when its holder has died. */
static void make(struct fake_arena *arena) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&arena->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    arena->shared = true;
    arena->used = (sizeof *arena + 63) / 64 * 64;
}

struct fake_arena *fake_arena_own(char *id, size_t size) {
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
    const int rank = first_number(ranks, 0);
    if (first_number(sizes, 1) < 2) {
        snprintf(id, size, "alone");
        return &alone;
    }
    if (rank < 0 || rank >= PROCESSES) return NULL;
    pthread_mutex_lock(&opening);
    if (!arenas[rank]) {
        own_file = memfd_create("fake NCCL", MFD_CLOEXEC);
        const bool sized = own_file >= 0 && !ftruncate(own_file, (off_t)BYTES);
        arenas[rank] = sized ? map(own_file, rank) : NULL;
        if (arenas[rank]) make(arenas[rank]);
    }
    snprintf(id, size, "%d %d %d", rank, (int)getpid(), own_file);
    pthread_mutex_unlock(&opening);
    return arenas[rank];
}

struct fake_arena *fake_arena_of(const char *id) {
    int rank, pid, file;
    char path[64];
    if (sscanf(id, "%d %d %d", &rank, &pid, &file) != 3) return &alone;
    pthread_mutex_lock(&opening);
    if (!arenas[rank]) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, file);
        const int theirs = open(path, O_RDWR | O_CLOEXEC);
        if (theirs >= 0) arenas[rank] = map(theirs, rank);
        if (theirs >= 0) close(theirs);
    }
    pthread_mutex_unlock(&opening);
    return arenas[rank];
}

void fake_arena_lock(struct fake_arena *arena) {
    if (pthread_mutex_lock(&arena->lock) == EOWNERDEAD) pthread_mutex_consistent(&arena->lock);
}

void fake_arena_unlock(struct fake_arena *arena) { pthread_mutex_unlock(&arena->lock); }

/* ---- blocks ---- */

struct block {
    _Alignas(max_align_t) int class;
    struct block *next;
};

void *fake_arena_take(struct fake_arena *arena, size_t bytes) {
    struct block *block = NULL;
    int class = 7;
    while (((size_t)1 << class) < bytes + sizeof *block) class ++;
    if (!arena->shared) {
        block = calloc(1, bytes + sizeof *block);
    } else if (arena->given[class]) {
        block = arena->given[class];
        arena->given[class] = block->next;
        memset(block + 1, 0, bytes);
    } else if (((size_t)1 << class) <= BYTES - arena->used) {
        block = (struct block *)((char *)arena + arena->used);
        arena->used += (size_t)1 << class;
    }
    if (!block) {
        fprintf(stderr, "fake NCCL: no memory for %zu bytes\n", bytes);
        abort();
    }
    block->class = class;
    return block + 1;
}

void fake_arena_give(struct fake_arena *arena, void *memory) {
    if (!memory) return;
    struct block *block = (struct block *)memory - 1;
    if (!arena->shared) {
        free(block);
        return;
    }
    block->next = arena->given[block->class];
    arena->given[block->class] = block;
}

/* ---- waiting ---- */

/* Naps: who should have woken others may have died. */
void fake_arena_wait(struct fake_arena *arena, uint32_t *changed) {
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
    const uint32_t seen = *changed;
    fake_arena_unlock(arena);
    syscall(SYS_futex, changed, FUTEX_WAIT, seen, &nap, NULL, 0);
    fake_arena_lock(arena);
}

void fake_arena_wake(uint32_t *changed) {
    ++*changed;
    syscall(SYS_futex, changed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
