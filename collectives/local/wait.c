/* wait.c - words: posting them, waiting for them, and giving up together. */
#include "collectives/local/engine.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engines.h"

enum {
    YIELDS = 4,               /* before sleeping, where coordinates share cores */
    TAKEN_NANOSECONDS = 1500, /* a yield that takes longer has let somebody work, not only look */
    SPINS_A_LOOK = 16,        /* between two looks at the clock */
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- futexes ---- */

static void futex_wake(struct sl_local_word *word) {
    syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps while the word has VALUE, for a tick at most. */
static void futex_sleep(struct sl_local_word *word, uint32_t value) {
    const struct timespec tick = {.tv_nsec = SL_LOCAL_TICK_MS * 1000000L};
    syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, value, &tick, NULL, 0);
}

void sl_local_post(struct sl_local_word *word, uint32_t value) {
    atomic_store(&word->value, value); /* SC with sleepers */
    if (atomic_load(&word->sleepers)) futex_wake(word);
}

/* A sleeper that looks around just before it falls asleep is missed here, and looks again a tick later. */
void sl_local_wake_all(struct sl_local_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_local_coordinate *other = &run->coordinate[i];
        if (atomic_load(&other->beat) & 1) futex_wake(atomic_load(&other->word));
    }
}

/* ---- waiting ---- */

static bool has_reached(struct sl_local_word *word, uint32_t target) {
    return sl_local_reached(atomic_load_explicit(&word->value, memory_order_acquire), target);
}

/* Whether the word is reached within a few looks, or once somebody else has had the core that they share. */
static bool look(const struct sl_local_run *run, struct sl_local_word *word, uint32_t target) {
    if (!run->spin) {
        sched_yield();
        return has_reached(word, target);
    }
    for (int i = 0; i < SPINS_A_LOOK; i++) {
        relax();
        if (has_reached(word, target)) return true;
    }
    return false;
}

/* For a moment without sleeping; whether it came true. Who shares a core leaves it to the others when they have taken
 * it a few times. While nobody takes it, it is better kept awake: to wake it takes long. */
static bool wait_awake(const struct sl_local_run *run, struct sl_local_word *word, uint32_t target) {
    double now = sl_now();
    const double end = now + SL_AWAKE_SECONDS;
    for (int taken = 0; taken < YIELDS && now < end;) {
        const double before = now;
        if (look(run, word, target)) return true;
        now = sl_now();
        taken += !run->spin && now - before > 1e-9 * TAKEN_NANOSECONDS;
    }
    return false;
}

/* Publishes the wait, then sleeps until the word is raised, looking around on each waking. */
static int wait_asleep(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target, int peer) {
    atomic_store_explicit(&me->peer, peer, memory_order_release);
    atomic_store_explicit(&me->word, word, memory_order_release);
    atomic_store_explicit(&me->target, target, memory_order_release);
    const uint32_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store(&me->beat, beat + 1);    /* odd: SC with words, for the proofs */
    atomic_fetch_add(&word->sleepers, 1); /* SC with the value */
    struct sl_local_watch watch = {.looked = sl_now()};
    int status = SL_OK;
    for (;;) {
        const uint32_t value = atomic_load(&word->value);
        if (sl_local_reached(value, target)) break;
        status = sl_local_look(me, &watch);
        if (status) break;
        futex_sleep(word, value);
    }
    atomic_fetch_sub(&word->sleepers, 1);
    atomic_store(&me->beat, beat + 2);
    return status;
}

int sl_local_wait(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target, int peer,
                  const struct sl_local_stamp *stamp) {
    if (has_reached(word, target)) return SL_OK;
    const struct sl_local_pause pause = sl_local_pause_begin(me, peer);
    int status = SL_OK;
    if (!wait_awake(me->run, word, target) && wait_asleep(me, word, target, peer)) status = sl_local_alive(me);
    sl_local_pause_end(me, &pause, stamp);
    return status;
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

/* Who has seen the end of the run may free its buffers when no peer moves data: one that has not begun by now will see
 * the end, too, and never begin. Moving never waits for anything, so this is short. What it has enqueued is waited for.
 */
int sl_local_alive(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    if (!atomic_load(&run->status)) return SL_OK;
    for (int i = 0; i < run->mesh->size; i++) {
        while (atomic_load(&run->coordinate[i].moving)) sched_yield();
        sl_local_await_moved(&run->coordinate[i]);
    }
    return SL_FAILED;
}

/* Text, word by word: readers of one that changes see parts of both, up to a zero. */
static void note_module(struct sl_local_coordinate *me, const char *name) {
    uint64_t words[SL_MODULE_CALLED / sizeof(uint64_t)];
    const size_t length = name ? strnlen(name, sizeof words - 1) : 0;
    words[length / sizeof *words] = 0; /* whose last bytes may be no text */
    if (length) memcpy(words, name, length);
    for (size_t i = 0; i <= length / sizeof *words; i++)
        atomic_store_explicit(&me->module[i], words[i], memory_order_relaxed);
}

/* They say more of the place, and order nothing. */
static void note_doing(struct sl_local_coordinate *me) {
    const struct sl_doing *doing = &me->spmd.doing;
    atomic_store_explicit(&me->what, doing->what, memory_order_relaxed);
    atomic_store_explicit(&me->stage, doing->stage, memory_order_relaxed);
    atomic_store_explicit(&me->microbatch, doing->microbatch, memory_order_relaxed);
    atomic_store_explicit(&me->action, doing->action, memory_order_relaxed);
    atomic_store_explicit(&me->steps, doing->steps, memory_order_relaxed);
    note_module(me, doing->module);
}

int sl_local_enter(struct sl_local_coordinate *me, const char *verb, const char *object, const char *site) {
    const uint32_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store_explicit(&me->beat, beat + 2, memory_order_relaxed);
    atomic_store_explicit(&me->verb, verb, memory_order_release);
    atomic_store_explicit(&me->object, object, memory_order_release);
    atomic_store_explicit(&me->site, site, memory_order_release);
    note_doing(me);
    if (me->spmd.error.status) sl_local_give_up(me, me->spmd.error.status);
    return sl_local_alive(me);
}
