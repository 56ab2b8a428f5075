/* crew.c - threads take parts by incrementing a ticket, which also identifies the work. */
#include "spmd/base/crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "spmd/base/memory.h"

/* A ticket: the work's number, its number of parts, and the next free part. */
enum { PARTS_SHIFT = 16, NUMBER_SHIFT = 32, PART = 0xffff };

/* Polls before a thread gives up; a poll takes a few to some forty nanoseconds. */
enum { LOOKS = 2000 };

struct sl_crew {
    _Alignas(SL_CACHE_LINE) _Atomic uint64_t ticket;
    void (*work)(void *arg, int part); /* of the ticket's work; read only by threads that have one of its parts */
    void *arg;
    _Alignas(SL_CACHE_LINE) _Atomic int ended; /* finished parts */
    _Alignas(SL_CACHE_LINE) _Atomic int asleep;
    _Atomic bool closes;
    pthread_mutex_t mutex;
    pthread_cond_t wakes;
    int helpers;
    pthread_t thread[SL_CREW_MOST];
};

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool has_parts(uint64_t ticket) { return (ticket & PART) < (ticket >> PARTS_SHIFT & PART); }

/* Computes parts until none is free. If the ticket has changed since it was read, it is read again. */
static void take_parts(struct sl_crew *crew) {
    uint64_t ticket = atomic_load_explicit(&crew->ticket, memory_order_acquire);
    while (has_parts(ticket)) {
        if (!atomic_compare_exchange_weak(&crew->ticket, &ticket, ticket + 1)) continue;
        crew->work(crew->arg, (int)(ticket & PART));
        atomic_fetch_add_explicit(&crew->ended, 1, memory_order_release);
        ticket = atomic_load_explicit(&crew->ticket, memory_order_acquire);
    }
}

/* Polls for work, LOOKS times; returns whether there is some. */
static bool look_out(struct sl_crew *crew) {
    for (int i = 0; i < LOOKS; i++) {
        if (has_parts(atomic_load_explicit(&crew->ticket, memory_order_relaxed))) return true;
        if (atomic_load_explicit(&crew->closes, memory_order_relaxed)) return false;
        pause_briefly();
    }
    return false;
}

/* The owner reads `asleep` after it has changed the ticket: either the helper sees the ticket, or the owner the
 * sleeper. */
static void sleep_until_work(struct sl_crew *crew) {
    pthread_mutex_lock(&crew->mutex);
    atomic_fetch_add(&crew->asleep, 1);
    while (!has_parts(atomic_load(&crew->ticket)) && !atomic_load(&crew->closes))
        pthread_cond_wait(&crew->wakes, &crew->mutex);
    atomic_fetch_sub(&crew->asleep, 1);
    pthread_mutex_unlock(&crew->mutex);
}

/* The owner may be bound to a core; the process's first thread is not, unless a launcher has bound the process. */
static void run_where_the_process_may(void) {
    cpu_set_t allowed;
    if (!sched_getaffinity(getpid(), sizeof allowed, &allowed))
        pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
}

static void *help(void *arg) {
    struct sl_crew *crew = arg;
    run_where_the_process_may();
    while (!atomic_load(&crew->closes)) {
        if (look_out(crew))
            take_parts(crew);
        else
            sleep_until_work(crew);
    }
    return NULL;
}

static void wake(struct sl_crew *crew) {
    pthread_mutex_lock(&crew->mutex);
    pthread_cond_broadcast(&crew->wakes);
    pthread_mutex_unlock(&crew->mutex);
}

struct sl_crew *sl_crew_open(int threads) {
    struct sl_crew *crew = threads > 1 ? aligned_alloc(SL_CACHE_LINE, sizeof *crew) : NULL;
    if (!crew) return NULL;
    *crew = (struct sl_crew){.helpers = 0};
    pthread_mutex_init(&crew->mutex, NULL);
    pthread_cond_init(&crew->wakes, NULL);
    while (crew->helpers + 1 < threads && crew->helpers + 1 < SL_CREW_MOST) {
        if (pthread_create(&crew->thread[crew->helpers], NULL, help, crew)) break;
        crew->helpers++;
    }
    if (crew->helpers) return crew;
    sl_crew_close(crew);
    return NULL;
}

void sl_crew_close(struct sl_crew *crew) {
    if (!crew) return;
    atomic_store(&crew->closes, true);
    wake(crew);
    for (int i = 0; i < crew->helpers; i++) pthread_join(crew->thread[i], NULL);
    pthread_cond_destroy(&crew->wakes);
    pthread_mutex_destroy(&crew->mutex);
    free(crew);
}

int sl_crew_threads(const struct sl_crew *crew) { return crew ? crew->helpers + 1 : 1; }

/* Waits for the helpers' parts. A helper in a part may have lost its core, so the wait yields after LOOKS polls. */
static void wait_for(struct sl_crew *crew, int parts) {
    for (int looks = 0; atomic_load_explicit(&crew->ended, memory_order_acquire) < parts; looks++) {
        if (looks < LOOKS)
            pause_briefly();
        else
            sched_yield();
    }
}

/* The owner begins with the first part at once: a ticket takes a while from core to core. */
void sl_crew_run(struct sl_crew *crew, int parts, void (*work)(void *arg, int part), void *arg) {
    if (!crew || parts < 2) {
        for (int part = 0; part < parts; part++) work(arg, part);
        return;
    }
    const uint64_t number = (atomic_load_explicit(&crew->ticket, memory_order_relaxed) >> NUMBER_SHIFT) + 1;
    crew->work = work;
    crew->arg = arg;
    atomic_store_explicit(&crew->ended, 0, memory_order_relaxed);
    atomic_store(&crew->ticket, number << NUMBER_SHIFT | (uint64_t)parts << PARTS_SHIFT | 1);
    if (atomic_load(&crew->asleep)) wake(crew);
    work(arg, 0);
    take_parts(crew);
    wait_for(crew, parts - 1);
}
