/* shards.c - inserts UNSHARD and RESHARD: when a loop's sharded parameters are gathered, and when their room becomes
 * free.
 *
 * A rank has room for the gathered parameters of two loops: the loop that computes, and the next one. So a loop is
 * gathered while the previous one computes. W reads no parameters. Source: PyTorch's pipelining schedules, which insert
 * the same two actions by looking ahead. */
#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/schedule.h"

enum { NONE = -1 };

/* The next loops that compute, as seen from an action. */
struct ahead {
    int loop[SL_MOST_UNSHARDED];
};

static bool reads_parameters(enum sl_action_kind kind) { return kind == SL_FORWARD || sl_has_input_gradient(kind); }

static void put_first(struct ahead *ahead, int loop) {
    int place = 0;
    while (place < SL_MOST_UNSHARDED - 1 && ahead->loop[place] != loop) place++;
    memmove(&ahead->loop[1], &ahead->loop[0], (size_t)place * sizeof ahead->loop[0]);
    ahead->loop[0] = loop;
}

/* Fills AHEAD [count + 1] for RANK's actions. */
static void look_ahead(const struct sl_rank_schedule *rank, struct ahead *ahead) {
    struct ahead next;
    for (int i = 0; i < SL_MOST_UNSHARDED; i++) next.loop[i] = NONE;
    ahead[rank->count] = next;
    for (int a = rank->count - 1; a >= 0; a--) {
        if (reads_parameters(rank->action[a].kind)) put_first(&next, rank->action[a].loop);
        ahead[a] = next;
    }
}

static bool is_ahead(const struct ahead *ahead, int loop) {
    for (int i = 0; i < SL_MOST_UNSHARDED; i++)
        if (ahead->loop[i] == loop) return true;
    return false;
}

static int append(struct sl_rank_schedule *to, enum sl_action_kind kind, int loop, int time) {
    const struct sl_action action = {.kind = kind, .time = time, .loop = (uint16_t)loop};
    return sl_schedule_append(to, &action) ? SL_OK : SL_FAILED;
}

/* Appends to TO: RESHARDs of loops only in NOW, then UNSHARDs of loops only in AHEAD. */
static int change(struct sl_rank_schedule *to, struct ahead *now, const struct ahead *ahead, int time) {
    for (int i = 0; i < SL_MOST_UNSHARDED; i++) {
        if (now->loop[i] == NONE || is_ahead(ahead, now->loop[i])) continue;
        SL_TRY(append(to, SL_RESHARD, now->loop[i], time));
        now->loop[i] = NONE;
    }
    for (int i = 0; i < SL_MOST_UNSHARDED; i++) {
        int place = 0;
        if (ahead->loop[i] == NONE || is_ahead(now, ahead->loop[i])) continue;
        while (now->loop[place] != NONE) place++;
        SL_TRY(append(to, SL_UNSHARD, ahead->loop[i], time));
        now->loop[place] = ahead->loop[i];
    }
    return SL_OK;
}

/* Whether loops may change before ACTION: not between two actions of a pair, nor between a result and its message. */
static bool may_change(const struct sl_action *action) {
    const bool takes = action->kind == SL_TAKE_ACTIVATION || action->kind == SL_TAKE_GRADIENT;
    return (takes || reads_parameters(action->kind)) && !action->paired;
}

static int insert(const struct sl_rank_schedule *from, const struct ahead *ahead, struct sl_rank_schedule *to) {
    struct ahead now = ahead[from->count];
    int time = 0;
    for (int a = 0; a < from->count; a++) {
        time = from->action[a].time;
        if (may_change(&from->action[a])) SL_TRY(change(to, &now, &ahead[a], time));
        if (!sl_schedule_append(to, &from->action[a])) return SL_FAILED;
    }
    return change(to, &now, &ahead[from->count], time);
}

/* Frees unused room of the list. */
static void trim(struct sl_rank_schedule *rank) {
    struct sl_action *exact = rank->count ? realloc(rank->action, (size_t)rank->count * sizeof *exact) : NULL;
    if (!exact) return;
    rank->action = exact;
    rank->capacity = rank->count;
}

int sl_schedule_insert_shards(struct sl_rank_schedule *rank) {
    struct ahead *ahead = malloc(((size_t)rank->count + 1) * sizeof *ahead);
    struct sl_rank_schedule with = {0};
    if (!ahead) return SL_FAILED;
    look_ahead(rank, ahead);
    const int status = insert(rank, ahead, &with);
    free(ahead);
    if (status == SL_OK) trim(&with);
    free(status == SL_OK ? rank->action : with.action);
    if (status == SL_OK) *rank = with;
    return status;
}

/* ---- checking ---- */

static int refuse(const struct sl_schedule *schedule, int rank, const struct sl_action *action, const char *why,
                  struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "schedule %s: rank %d, %s of microbatch %d in stage %d: %s",
                        schedule->name, rank, sl_action_name(action->kind), action->microbatch,
                        sl_schedule_stage(schedule, rank, action->loop), why);
}

/* Returns why ACTION may not come now; NULL: it may. WHOLE [loops]: the COUNT gathered loops. */
static const char *wrong(const struct sl_action *action, const bool *whole, int count) {
    const bool there = whole[action->loop];
    if (action->kind == SL_UNSHARD && there) return "its loop's parameters have been gathered already";
    if (action->kind == SL_UNSHARD && count == SL_MOST_UNSHARDED) return "there is room for two loops only";
    if (action->kind == SL_RESHARD && !there) return "its loop's parameters have not been gathered";
    if (reads_parameters(action->kind) && !there) return "its loop's parameters have not been gathered";
    return NULL;
}

static int check_rank(const struct sl_schedule *schedule, int rank, bool *whole, struct sl_error *error) {
    int count = 0;
    memset(whole, 0, (size_t)schedule->loops * sizeof *whole);
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const struct sl_action *action = &schedule->rank[rank].action[a];
        if (action->loop >= schedule->loops) continue; /* the walk reports it */
        const char *why = wrong(action, whole, count);
        if (why) return refuse(schedule, rank, action, why, error);
        if (action->kind != SL_UNSHARD && action->kind != SL_RESHARD) continue;
        whole[action->loop] = action->kind == SL_UNSHARD;
        count += action->kind == SL_UNSHARD ? 1 : -1;
    }
    if (count == 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "schedule %s: rank %d keeps the gathered parameters of %d loops",
                        schedule->name, rank, count);
}

int sl_schedule_check_shards(const struct sl_schedule *schedule, struct sl_error *error) {
    bool *whole = schedule->sharded ? malloc((size_t)schedule->loops * sizeof *whole) : NULL;
    int status = SL_OK;
    if (!schedule->sharded) return SL_OK;
    if (!whole) return sl_error_set(error, SL_FAILED, "schedule %s: no memory to check it", schedule->name);
    for (int r = 0; r < schedule->ranks && status == SL_OK; r++) status = check_rank(schedule, r, whole, error);
    free(whole);
    return status;
}

int sl_schedule_unsharded(const struct sl_schedule *schedule, int rank) {
    int count = 0, most = 0;
    for (int a = 0; a < schedule->rank[rank].count; a++) {
        const enum sl_action_kind kind = schedule->rank[rank].action[a].kind;
        count += (kind == SL_UNSHARD) - (kind == SL_RESHARD);
        if (count > most) most = count;
    }
    return most;
}
