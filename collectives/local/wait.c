/* wait.c - waiting for words, awake and asleep. */
#include "collectives/local/engine.h"

#include <sched.h>
#include <string.h>

#include "collectives/engines.h"

enum {
    YIELDS = 4,               /* before sleeping, if coordinates share cores */
    TAKEN_NANOSECONDS = 1500, /* a longer yield let another thread work, not only check */
    SPINS_A_LOOK = 16,        /* between two readings of the clock */
};

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- waiting ---- */

static bool has_reached(struct sl_local_word *word, uint32_t target) {
    return sl_local_reached(atomic_load_explicit(&word->value, memory_order_acquire), target);
}

/* Whether the word is reached within a few checks, or after one yield if cores are shared. */
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

/* Waits for a moment without sleeping; returns whether the word was reached. If cores are shared, the wait ends after a
 * few yields in which other threads worked. As long as no other thread uses the core, staying awake is better, because
 * waking up takes long. */
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

/* Publishes the wait, and the sleep: the beat becomes odd. */
static void lie_down(struct sl_local_coordinate *me, struct sl_local_word *bed,
                     const struct sl_local_missing *missing) {
    atomic_store_explicit(&me->peer, missing->peer, memory_order_release);
    atomic_store_explicit(&me->word, missing->word, memory_order_release);
    atomic_store_explicit(&me->target, missing->target, memory_order_release);
    atomic_store_explicit(&me->bed, bed, memory_order_release);
    const uint32_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store(&me->beat, beat + 1); /* odd: SC with words, for the proofs */
}

static void get_up(struct sl_local_coordinate *me) {
    const uint32_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store(&me->beat, beat + 1);
}

/* Sleeps until WORD has been raised, or the peer in MISSING is no longer missing. Checks the run after each waking. */
static int sleep_through(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                         const struct sl_local_missing *missing) {
    struct sl_local_watch watch = {.looked = sl_now()};
    int status = SL_OK;
    lie_down(me, word, missing);
    for (;;) {
        const uint32_t value = atomic_load(&word->value);
        if (sl_local_reached(value, target)) break;
        if (missing->word != word && has_reached(missing->word, missing->target)) break;
        status = sl_local_look(me, &watch);
        if (status) break;
        sl_local_sleep(word, value);
    }
    get_up(me);
    return status;
}

/* Sleeps at most one tick. For waits without a missing peer: the last one to arrive is about to raise the word. */
static int doze(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target) {
    const uint32_t value = atomic_load(&word->value);
    if (!sl_local_reached(value, target)) sl_local_sleep(word, value);
    return atomic_load(&me->run->status) ? SL_FAILED : SL_OK;
}

/* LACK is NULL if the peer in MISSING raises the word itself. */
static int wait_asleep(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                       struct sl_local_missing *missing, const struct sl_local_lack *lack) {
    int status = SL_OK;
    atomic_fetch_add(&word->sleepers, 1); /* SC with the value */
    while (!status && !has_reached(word, target)) {
        if (lack) status = lack->find(me, lack->arg, missing);
        if (status) break;
        status = missing->peer < 0 ? doze(me, word, target) : sleep_through(me, word, target, missing);
    }
    atomic_fetch_sub(&word->sleepers, 1);
    return status;
}

static int wait_for(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                    struct sl_local_missing *missing, const struct sl_local_lack *lack,
                    const struct sl_local_stamp *stamp) {
    if (has_reached(word, target)) return SL_OK;
    const struct sl_local_pause pause = sl_local_pause_begin(me, missing->peer);
    int status = SL_OK;
    /* If many coordinates share cores, yielding only makes others yield. */
    const bool came = (me->run->spin || !lack) && wait_awake(me->run, word, target);
    if (!came && wait_asleep(me, word, target, missing, lack)) status = sl_local_alive(me);
    sl_local_pause_end(me, &pause, stamp);
    return status;
}

int sl_local_wait(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target, int peer,
                  const struct sl_local_stamp *stamp) {
    struct sl_local_missing missing = {peer, word, target};
    return wait_for(me, word, target, &missing, NULL, stamp);
}

int sl_local_wait_for_all(struct sl_local_coordinate *me, struct sl_local_word *word, uint32_t target,
                          const struct sl_local_lack *lack, const struct sl_local_stamp *stamp) {
    struct sl_local_missing missing = {.peer = -1};
    return wait_for(me, word, target, &missing, lack, stamp);
}

/* ---- calls ---- */

/* Writes the name, word by word: a reader during a change sees parts of both names, up to a zero. */
static void note_module(struct sl_local_coordinate *me, const char *name) {
    uint64_t words[SL_MODULE_CALLED / sizeof(uint64_t)];
    const size_t length = name ? strnlen(name, sizeof words - 1) : 0;
    words[length / sizeof *words] = 0; /* bytes behind the text */
    if (length) memcpy(words, name, length);
    for (size_t i = 0; i <= length / sizeof *words; i++)
        atomic_store_explicit(&me->module[i], words[i], memory_order_relaxed);
}

/* Relaxed stores: verdicts quote these values, and no other access depends on their order. */
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
