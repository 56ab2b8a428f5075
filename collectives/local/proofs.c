/* proofs.c - why a run cannot go on: proofs that a wait can never end.
 *
 * A word is raised by its owner only, so two findings are certain:
 *
 * The peer has returned. Its return is read first, and only then the word, still unraised.
 *
 * A circle of sleepers: each waits for the next one's word, and perhaps for further words. Sleepers post nothing, so it
 * is enough that all were asleep at one instant with all words unraised. The proof reads the beats one by one, then for
 * each sleeper the word and once more the beat. If a beat is odd and the same both times, the sleeper was asleep in
 * between. Each of these intervals contains the instant at which the first round of reading beats ended; a word that is
 * unraised later was unraised then.
 *
 * The finding that a peer is absent is a decision, not a proof: the peer is awake, and its beat has not risen for the
 * engine's timeout. */
#include "collectives/local/engine.h"
#include "collectives/verdict.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- text ---- */

/* Reads the latest call of OF; the caller holds the run's lock. */
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

/* Describes the latest call of COORDINATE in the run ARG; returns TEXT. */
static const char *place(void *arg, int coordinate, char text[SL_VERDICT_PLACE]) {
    struct sl_local_run *run = arg;
    pthread_mutex_lock(&run->opening); /* the object's group is not freed meanwhile */
    const struct sl_last_call place = last_call(&run->coordinate[coordinate]);
    sl_last_call_describe(&place, text, SL_VERDICT_PLACE);
    pthread_mutex_unlock(&run->opening);
    return text;
}

static int peer_of(void *arg, int coordinate) {
    struct sl_local_run *run = arg;
    return atomic_load(&run->coordinate[coordinate].peer);
}

/* Adds lines for the sleepers LIST[count]. */
static void append_sleepers(struct sl_error *text, struct sl_local_run *run, int count, const int *list) {
    sl_verdict_add_waits(text, run->mesh, count, list, &(struct sl_verdict_waits){peer_of, place, run});
}

static bool is_asleep(uint32_t beat) { return beat & 1; }

/* Adds lines for the sleepers that wait for PEER. */
static void append_waiters(struct sl_error *text, struct sl_local_run *run, int peer) {
    int list[run->mesh->size], count = 0;
    for (int i = 0; i < run->mesh->size; i++) {
        const struct sl_local_coordinate *other = &run->coordinate[i];
        if (is_asleep(atomic_load(&other->beat)) && atomic_load(&other->peer) == peer) list[count++] = i;
    }
    append_sleepers(text, run, count, list);
}

/* ---- ending the run ---- */

/* Fills in engine->waits, while the sleepers still sleep. */
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

/* Ends the run with the verdict TEXT; only the first caller's verdict is used. The first caller writes the message and,
 * if the verdict is about a wait (WAITS), the waits of all coordinates. Then it sets the status and wakes all
 * sleepers. */
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

void sl_local_give_up(struct sl_local_coordinate *me, int status) {
    char who[200];
    sl_mesh_describe(me->run->mesh, me->spmd.coordinate, who, sizeof who);
    const char *message = me->spmd.error.message;
    if (message[0]) {
        sl_local_end(me->run, status, "coordinate %s: %s", who, message);
    } else {
        sl_local_end(me->run, status, "coordinate %s: the program returned status %d", who, status);
    }
}

/* ---- checks ---- */

static bool in_vain(const struct sl_local_coordinate *sleeper) {
    return !sl_local_reached(atomic_load(&atomic_load(&sleeper->word)->value), atomic_load(&sleeper->target));
}

static int look_for_returned(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    const int peer = atomic_load(&me->peer);
    if (!atomic_load(&run->coordinate[peer].returned) || !in_vain(me)) return SL_OK;
    struct sl_error text = {0};
    char where[SL_VERDICT_PLACE];
    sl_verdict_returned(&text, run->mesh, peer, place(run, peer, where));
    append_waiters(&text, run, peer);
    return end(run, SL_FAILED, &text, true);
}

/* Whether SLEEPER has slept since it had BEAT, with its word unraised. While it sleeps, its word is not freed. */
static bool sleeps_in_vain(const struct sl_local_coordinate *sleeper, uint32_t beat) {
    pthread_mutex_lock(&sleeper->run->opening);
    const bool sleeps = atomic_load(&sleeper->beat) == beat;
    const bool vain = sleeps && in_vain(sleeper) && atomic_load(&sleeper->beat) == beat;
    pthread_mutex_unlock(&sleeper->run->opening);
    return vain;
}

/* Follows the waits from ME for STEPS; -1 if a coordinate on the way is awake. */
static int follow_waits(const struct sl_local_coordinate *me, int from, int steps) {
    for (; steps > 0; steps--) {
        const struct sl_local_coordinate *sleeper = &me->run->coordinate[from];
        if (!is_asleep(atomic_load(&sleeper->beat))) return -1;
        from = atomic_load(&sleeper->peer);
    }
    return from;
}

/* Length of the circle in which the waits from ME end; *FIRST is the first of its members that the walk meets. 0: there
 * is no circle, or no longer. After as many steps as there are coordinates, the walk is inside the circle. */
static int find_length(const struct sl_local_coordinate *me, int *first) {
    const int all = me->run->mesh->size, inside = follow_waits(me, me->spmd.coordinate, all);
    int length = 1;
    for (int at = inside; at >= 0 && (at = follow_waits(me, at, 1)) != inside; length++)
        if (at < 0 || length == all) return 0;
    if (inside < 0) return 0;
    int ahead = follow_waits(me, me->spmd.coordinate, length);
    *first = me->spmd.coordinate;
    for (int steps = 0; *first != ahead; steps++) {
        *first = follow_waits(me, *first, 1);
        ahead = ahead < 0 ? -1 : follow_waits(me, ahead, 1);
        if (*first < 0 || ahead < 0 || steps == all) return 0;
    }
    return length;
}

/* Whether all LENGTH sleepers from FIRST on, written to CIRCLE, sleep with unraised words, and the last waits for
 * FIRST. */
static bool proves_circle(const struct sl_local_run *run, int first, int length, int *circle, uint32_t *beat) {
    int at = first;
    for (int i = 0; i < length; i++) {
        circle[i] = at;
        beat[i] = atomic_load(&run->coordinate[at].beat);
        if (!is_asleep(beat[i])) return false;
        at = atomic_load(&run->coordinate[at].peer);
    }
    for (int i = 0; i < length; i++)
        if (!sleeps_in_vain(&run->coordinate[circle[i]], beat[i])) return false;
    return at == first;
}

/* Most waits lead to an awake coordinate, so arrays are allocated only once a circle is found. */
static int look_for_circle(struct sl_local_coordinate *me) {
    struct sl_local_run *run = me->run;
    int first;
    const int length = find_length(me, &first);
    if (!length) return SL_OK;
    int circle[length];
    uint32_t beat[length];
    if (!proves_circle(run, first, length, circle, beat)) return SL_OK;
    struct sl_error text = {0};
    sl_verdict_deadlock(&text, length);
    append_sleepers(&text, run, length, circle);
    return end(run, SL_FAILED, &text, true);
}

/* A sleeping peer is not absent. Time in which this thread itself did not run does not count. */
static int look_for_absent(struct sl_local_coordinate *me, struct sl_local_watch *watch, double elapsed) {
    struct sl_local_run *run = me->run;
    const int peer = atomic_load(&me->peer);
    const uint32_t beat = atomic_load(&run->coordinate[peer].beat);
    const double most = 2e-3 * SL_LOCAL_TICK_MS;
    watch->absent = beat == watch->beat && !is_asleep(beat) ? watch->absent + (elapsed < most ? elapsed : most) : 0;
    watch->beat = beat;
    if (watch->absent < run->engine->timeout) return SL_OK;
    struct sl_error text = {0};
    char where[SL_VERDICT_PLACE];
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

/* ---- differing calls ---- */

int sl_local_mismatch(struct sl_local_coordinate *me, const struct sl_collective *mine,
                      const struct sl_collective *theirs, int peer) {
    struct sl_error text = {0};
    sl_verdict_mismatch(&text, me->run->mesh, mine, me->spmd.coordinate, theirs, peer);
    end(me->run, SL_FAILED, &text, false);
    return sl_local_alive(me);
}
