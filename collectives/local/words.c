/* words.c - words: memory for them, raising them, and ending together. */
#include "collectives/local/engine.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void *sl_local_take(size_t bytes) {
    const size_t rounded = (bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    void *memory = aligned_alloc(SL_CACHE_LINE, rounded);
    if (memory) memset(memory, 0, rounded);
    return memory;
}

static void futex_wake(struct sl_local_word *word) {
    syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void sl_local_sleep(struct sl_local_word *word, uint32_t value) {
    const struct timespec tick = {.tv_nsec = SL_LOCAL_TICK_MS * 1000000L};
    syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, value, &tick, NULL, 0);
}

void sl_local_post(struct sl_local_word *word, uint32_t value) {
    atomic_store(&word->value, value); /* SC with sleepers */
    if (atomic_load(&word->sleepers)) futex_wake(word);
}

/* Misses a sleeper between its check and its sleep; such a sleeper checks again a tick later. */
void sl_local_wake_all(struct sl_local_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_local_coordinate *other = &run->coordinate[i];
        if (atomic_load(&other->beat) & 1) futex_wake(atomic_load(&other->bed));
    }
}

/* ---- the end of the run ---- */

int sl_local_begin_moving(struct sl_local_coordinate *me) {
    atomic_store(&me->moving, true); /* SC with the status: see sl_local_alive */
    if (!atomic_load(&me->run->status)) return SL_OK;
    sl_local_end_moving(me);
    return sl_local_alive(me);
}

void sl_local_end_moving(struct sl_local_coordinate *me) {
    atomic_store_explicit(&me->moving, false, memory_order_release);
}

/* After the end of the run a coordinate may free its buffers once no peer moves data: a peer that has not begun by now
 * sees the end, too, and never begins. Moving never waits, so this is short. Enqueued moves are awaited. */
int sl_local_alive(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    if (!atomic_load(&run->status)) return SL_OK;
    for (int i = 0; i < run->mesh->size; i++) {
        while (atomic_load(&run->coordinate[i].moving)) sched_yield();
        sl_local_await_moved(&run->coordinate[i]);
    }
    return SL_FAILED;
}
