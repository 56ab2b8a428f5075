/* verdict.c - why a run cannot go on: proofs that a wait is in vain.
 *
 * A word is raised by its owner alone, so these two are certain:
 *
 * The peer has returned. Its return is seen first, and only then the word seen unraised.
 *
 * A circle of sleepers, each waiting for the next one's word. Sleepers post nothing, so it is enough that all were
 * asleep at one instant with all words unraised. The beats are read one by one, then for each sleeper the word and once
 * more the beat. The same odd beat twice means asleep all the while between, and every such span contains the instant
 * when the last beat had been read for the first time; a word that is unraised later was unraised then.
 *
 * That a peer is absent is no proof but a decision: it is awake and has not beaten for the engine's timeout. */
#include "collectives/local/engine.h"
#include "collectives/verdict.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* The latest call of OF; the run is locked for as long as it is read. */
static struct sl_last_call last_call(const struct sl_local_coordinate *of) {
    struct sl_last_call place;
    uint64_t words[SL_MODULE_CALLED / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) words[i] = atomic_load(&of->module[i]);
    ((char *)words)[sizeof words - 1] = 0;
    const struct sl_doing doing = {.what = atomic_load(&of->what),
                                   .stage = atomic_load(&of->stage),
                                   .microbatch = atomic_load(&of->microbatch),
                                   .action = atomic_load(&of->action),
                                   .steps = atomic_load(&of->steps),
                                   .module = (const char *)words};
    sl_last_call_note(&place, atomic_load(&of->verb), atomic_load(&of->object), atomic_load(&of->site), &doing);
    return place;
}

/* The latest call of COORDINATE; returns TEXT. */
static const char *place(struct sl_local_run *run, int coordinate, char text[300]) {
    pthread_mutex_lock(&run->opening); /* a group that is closed may be the object no more */
    const struct sl_last_call place = last_call(&run->coordinate[coordinate]);
    sl_last_call_describe(&place, text, 300);
    pthread_mutex_unlock(&run->opening);
    return text;
}

/* A line for each of the sleepers LIST[count]. */
static void append_sleepers(struct sl_error *text, struct sl_local_run *run, int count, const int *list) {
    int i = 0;
    for (bool fits = true; i < count && fits; i += fits) {
        char where[300];
        fits = sl_verdict_add_wait(text, run->mesh, list[i], atomic_load(&run->coordinate[list[i]].peer),
                                   place(run, list[i], where));
    }
    if (i < count) sl_verdict_add_more(text, count - i);
}

static bool is_asleep(uint32_t beat) { return beat & 1; }

/* A line for each coordinate that sleeps waiting for PEER. */
static void append_waiters(struct sl_error *text, struct sl_local_run *run, int peer) {
    int list[SL_MAX_COORDINATES], count = 0;
    for (int i = 0; i < run->mesh->size; i++) {
        const struct sl_local_coordinate *other = &run->coordinate[i];
        if (is_asleep(atomic_load(&other->beat)) && atomic_load(&other->peer) == peer) list[count++] = i;
    }
    append_sleepers(text, run, count, list);
}

/* ---- ending the run ---- */

/* Who waits for whom, while sleepers still sleep. */
static void note_waits(struct sl_local_run *run) {
    struct sl_waits *waits = run->engine->waits;
    pthread_mutex_lock(&run->opening);
    for (int i = 0; i < run->mesh->size; i++) {
        const struct sl_local_coordinate *of = &run->coordinate[i];
        const enum sl_waiting_state state = atomic_load(&of->returned)          ? SL_RETURNED
                                            : is_asleep(atomic_load(&of->beat)) ? SL_WAITS
                                                                                : SL_COMPUTES;
        const struct sl_last_call place = last_call(of);
        sl_waiting_note(&waits->coordinate[i], state, atomic_load(&of->peer), &place);
    }
    pthread_mutex_unlock(&run->opening);
    waits->coordinates = run->mesh->size;
}

/* The first verdict is the run's: whoever begins to end it writes the message and, where somebody WAITS in vain, who
 * waits for whom. The status, which lets sleepers go, is set behind that. */
static int end(struct sl_local_run *run, int status, const struct sl_error *text, bool waits) {
    if (atomic_exchange(&run->ending, true)) {
        while (!atomic_load(&run->status)) sched_yield();
        return SL_FAILED;
    }
    run->verdict = *text;
    run->verdict.status = status;
    run->in_vain = waits;
    if (waits && run->engine->waits) note_waits(run);
    atomic_store(&run->status, status);
    sl_local_wake_all(run);
    return SL_FAILED;
}

void sl_local_end(struct sl_local_run *run, int status, const char *format, ...) {
    struct sl_error text = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text.message, sizeof text.message, format, arguments);
    va_end(arguments);
    end(run, status, &text, false);
}

/* ---- looking around ---- */

static bool in_vain(const struct sl_local_coordinate *sleeper) {
    return !sl_local_reached(atomic_load(&atomic_load(&sleeper->word)->value), atomic_load(&sleeper->target));
}

static int look_for_returned(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    const int peer = atomic_load(&me->peer);
    if (!atomic_load(&run->coordinate[peer].returned) || !in_vain(me)) return SL_OK;
    struct sl_error text = {0};
    char where[300];
    sl_verdict_returned(&text, run->mesh, peer, place(run, peer, where));
    append_waiters(&text, run, peer);
    return end(run, SL_FAILED, &text, true);
}

/* Whether SLEEPER, which had BEAT, has slept since and its word is unraised. While it sleeps, its word is not freed. */
static bool sleeps_in_vain(const struct sl_local_coordinate *sleeper, uint32_t beat) {
    pthread_mutex_lock(&sleeper->run->opening);
    const bool sleeps = atomic_load(&sleeper->beat) == beat;
    const bool vain = sleeps && in_vain(sleeper) && atomic_load(&sleeper->beat) == beat;
    pthread_mutex_unlock(&sleeper->run->opening);
    return vain;
}

/* Follows the waits from ME until somebody is awake or comes up twice: then CIRCLE holds those in between. */
static int find_circle(const struct sl_local_coordinate *me, int circle[SL_MAX_COORDINATES]) {
    const struct sl_local_run *run = me->run;
    int chain[SL_MAX_COORDINATES], position[SL_MAX_COORDINATES], length = 0;
    uint32_t beat[SL_MAX_COORDINATES];
    memset(position, -1, sizeof position);
    int at = me->spmd.coordinate;
    while (position[at] < 0) {
        beat[length] = atomic_load(&run->coordinate[at].beat);
        if (!is_asleep(beat[length])) return 0;
        chain[length] = at;
        position[at] = length++;
        at = atomic_load(&run->coordinate[at].peer);
    }
    const int first = position[at];
    for (int i = first; i < length; i++) {
        if (!sleeps_in_vain(&run->coordinate[chain[i]], beat[i])) return 0;
        circle[i - first] = chain[i];
    }
    return length - first;
}

static int look_for_circle(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    int circle[SL_MAX_COORDINATES];
    const int length = find_circle(me, circle);
    if (!length) return SL_OK;
    struct sl_error text = {0};
    sl_verdict_deadlock(&text, length);
    append_sleepers(&text, run, length, circle);
    return end(run, SL_FAILED, &text, true);
}

/* A peer that sleeps itself is not the absent one. Time in which this thread did not run either does not count. */
static int look_for_absent(struct sl_local_coordinate *me, struct sl_local_watch *watch, double elapsed) {
    struct sl_local_run *run = me->run;
    const int peer = atomic_load(&me->peer);
    const uint32_t beat = atomic_load(&run->coordinate[peer].beat);
    const double most = 2e-3 * SL_LOCAL_TICK_MS;
    watch->absent = beat == watch->beat && !is_asleep(beat) ? watch->absent + (elapsed < most ? elapsed : most) : 0;
    watch->beat = beat;
    if (watch->absent < run->engine->timeout) return SL_OK;
    struct sl_error text = {0};
    char where[300];
    sl_verdict_absent(&text, run->mesh, peer, run->engine->timeout, place(run, peer, where));
    append_waiters(&text, run, peer);
    return end(run, SL_FAILED, &text, true);
}

int sl_local_look(struct sl_local_coordinate *me, struct sl_local_watch *watch) {
    if (atomic_load(&me->run->status)) return SL_FAILED;
    SL_TRY(look_for_returned(me));
    const double now = sl_now(), elapsed = now - watch->looked;
    if (elapsed < 1e-3 * SL_LOCAL_TICK_MS) return SL_OK;
    watch->looked = now;
    SL_TRY(look_for_circle(me));
    return look_for_absent(me, watch, elapsed);
}

/* ---- calls that differ ---- */

int sl_local_mismatch(struct sl_local_coordinate *me, const struct sl_collective *mine,
                      const struct sl_collective *theirs, int peer) {
    struct sl_error text = {0};
    sl_verdict_mismatch(&text, me->run->mesh, mine, me->spmd.coordinate, theirs, peer);
    end(me->run, SL_FAILED, &text, false);
    return sl_local_alive(me);
}
