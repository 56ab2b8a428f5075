/* hosts.c - communication between the coordinates' hosts, over lines of the engine below. That engine waits, and gives
 * verdicts.
 *
 * A member of a group tells its number of calls to the members whose data the call needs; if each member needs all, in
 * as few messages as the engine below can. In checked mode it tells all members, with a description of the call. An end
 * of a channel tells, with its first count, its arguments and, if it is the sender, the id of the communicator. Then it
 * tells a count for each post or release. */
#include <stdio.h>

#include "collectives/nccl/engine.h"
#include "collectives/operations.h"

static const struct sl_engine_table *below(const struct sl_nccl_coordinate *me) { return me->run->below; }

/* Numbers of lines: 0 for the id, odd numbers for groups, even numbers for channels. */

int sl_nccl_unique_id(struct sl_nccl_coordinate *me, ncclUniqueId *id) {
    const struct sl_group *all = &me->world->group;
    struct sl_engine_line line = {.group = all, .bytes = sizeof *id, .kept = 1};
    const char *reason = below(me)->line_open(me->self, &line);
    if (reason) return sl_fail(me->self, SL_FAILED, "the group \"*\": %s", reason);
    if (all->rank == 0) {
        if (!sl_nccl_succeeded(&me->world->wire, "ncclGetUniqueId", ncclGetUniqueId(id))) return SL_FAILED;
        below(me)->line_tell(me->self, &line, 1, id, NULL);
    } else {
        SL_TRY(below(me)->line_hear(me->self, &line, 0, 1, true));
        *id = *(const ncclUniqueId *)below(me)->line_message(&line, 0, 1);
    }
    return below(me)->line_close(me->self, &line);
}

/* ---- groups ---- */

bool sl_nccl_needs(const struct sl_collective *call, int position) {
    const bool all = call->operation == SL_BROADCAST; /* NCCL's broadcast passes through all members */
    return all || sl_has_position(sl_call_sources(call), position) ||
           sl_has_position(sl_call_destinations(call), position);
}

/* A member is at most SL_MAX_IN_FLIGHT calls ahead of another member, whose last SL_MAX_IN_FLIGHT calls may not be
 * compared yet. */
int sl_nccl_group_line(struct sl_nccl_group *group) {
    struct sl_nccl_coordinate *me = group->wire.me;
    const bool checked = me->run->engine->checked;
    group->line = (struct sl_engine_line){.group = &group->group,
                                          .number = 2 * (int64_t)me->opened + 1,
                                          .bytes = checked ? sizeof *group->mine : 0,
                                          .kept = checked ? 2 * SL_MAX_IN_FLIGHT : 0};
    const char *reason = below(me)->line_open(me->self, &group->line);
    return reason ? sl_fail(me->self, SL_FAILED, "the group \"%s\": %s", group->group.name, reason) : SL_OK;
}

/* Compares the calls begun both here and by the member at POSITION that have not been compared yet. */
static int compare(struct sl_nccl_group *group, int position) {
    struct sl_nccl_coordinate *me = group->wire.me;
    uint32_t *compared = &group->compared[position];
    while (*compared != group->begun && below(me)->line_heard(&group->line, position, *compared + 1)) {
        ++*compared;
        struct sl_collective mine = sl_noted_call(&group->mine[*compared % SL_MAX_IN_FLIGHT]);
        const struct sl_collective theirs = sl_noted_call(below(me)->line_message(&group->line, position, *compared));
        mine.group = &group->group;
        if (sl_calls_agree(&mine, &theirs, position)) continue;
        struct sl_error verdict = {0};
        sl_verdict_mismatch(&verdict, me->run->mesh, &mine, me->self->coordinate, &theirs,
                            sl_group_member(mine.group, position));
        below(me)->end(me->self, &verdict, -1);
        return sl_nccl_alive(me);
    }
    return SL_OK;
}

/* Waits, or looks, for the member at POSITION to begin its call number COUNT - 1. */
static int hear(struct sl_nccl_group *group, int position, uint32_t count, bool waits) {
    struct sl_nccl_coordinate *me = group->wire.me;
    SL_TRY(below(me)->line_hear(me->self, &group->line, position, count, waits));
    return me->run->engine->checked ? compare(group, position) : SL_OK;
}

/* Whether the members tell each other CALL without a description, each to all. */
static bool meets(const struct sl_nccl_group *group, const struct sl_collective *call) {
    return !group->wire.me->run->engine->checked && (call->operation == SL_BROADCAST || sl_call_meets(call));
}

/* If two members of one process begin a call, the later one hears the earlier one's count. */
static int begin_checked(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t count) {
    struct sl_nccl_coordinate *me = group->wire.me;
    struct sl_call_note *mine = &group->mine[count % SL_MAX_IN_FLIGHT];
    const int rank = group->group.rank;
    for (int i = 0; i < group->group.size; i++) {
        if (i != rank) SL_TRY(hear(group, i, count - SL_MAX_IN_FLIGHT, true));
    }
    *mine = sl_note_call(call);
    group->begun = count;
    below(me)->line_tell(me->self, &group->line, count, mine, NULL);
    for (int i = 0; i < group->group.size; i++) {
        if (i != rank) SL_TRY(hear(group, i, count, false));
    }
    return SL_OK;
}

int sl_nccl_begin(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket) {
    struct sl_nccl_coordinate *me = group->wire.me;
    group->line.kind = call->operation;
    if (me->run->engine->checked) return begin_checked(group, call, ticket + 1);
    for (int i = 0; i < group->group.size; i++) group->needs[i] = sl_nccl_needs(call, i);
    below(me)->line_tell(me->self, &group->line, ticket + 1, NULL, meets(group, call) ? NULL : group->needs);
    return SL_OK;
}

bool sl_nccl_met(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket) {
    const struct sl_engine_table *table = below(group->wire.me);
    if (meets(group, call))
        return !hear(group, SL_ALL_MEMBERS, ticket + 1, false) &&
               table->line_heard(&group->line, SL_ALL_MEMBERS, ticket + 1);
    for (int i = 0; i < group->group.size; i++) {
        if (i == group->group.rank || !sl_nccl_needs(call, i)) continue;
        if (hear(group, i, ticket + 1, false) || !table->line_heard(&group->line, i, ticket + 1)) return false;
    }
    return true;
}

int sl_nccl_meet(struct sl_nccl_group *group, const struct sl_collective *call, uint32_t ticket) {
    if (meets(group, call)) return hear(group, SL_ALL_MEMBERS, ticket + 1, true);
    for (int i = 0; i < group->group.size; i++) {
        if (i != group->group.rank && sl_nccl_needs(call, i)) SL_TRY(hear(group, i, ticket + 1, true));
    }
    return SL_OK;
}

/* ---- channels ---- */

struct opening {
    uint64_t bytes;
    int64_t slots;
    char site[112];
    ncclUniqueId id; /* the sender's */
};

/* The n-th channel from a lower to a higher coordinate has line 4 n + 2; the n-th channel in the other direction has
 * line 4 n + 4. */
static int64_t number_of(const struct sl_nccl_channel *channel) {
    int64_t number = channel->from > channel->to ? 4 : 2;
    for (const struct sl_nccl_channel *at = channel->next; at; at = at->next)
        number += 4 * (at->from == channel->from && at->to == channel->to);
    return number;
}

int sl_nccl_channel_line(struct sl_nccl_channel *channel) {
    struct sl_nccl_coordinate *me = channel->me;
    const int ends[2] = {channel->from, channel->to};
    const int *kept = sl_list_kept(me->self, 2, ends);
    channel->ends = (struct sl_group){
        .size = channel->from == channel->to ? 1 : 2, .rank = channel->end, .members = {.list = kept}};
    channel->line = (struct sl_engine_line){.group = &channel->ends,
                                            .number = number_of(channel),
                                            .bytes = sizeof(struct opening),
                                            .kept = 1,
                                            .kind = (enum sl_operation)SL_CHANNELS_TRAFFIC};
    const char *reason = kept ? below(me)->line_open(me->self, &channel->line) : "no memory";
    if (!reason) return SL_OK;
    return sl_fail(me->self, SL_FAILED, "channel %d -> %d: %s (opened at %s)", channel->from, channel->to, reason,
                   channel->site);
}

/* Handles the sender's opening. */
static void match(struct sl_nccl_channel *channel) {
    struct sl_nccl_coordinate *me = channel->me;
    const struct opening *theirs = below(me)->line_message(&channel->line, SL_NCCL_SENDER, 1);
    struct sl_error verdict = {0};
    if (sl_channel_ends_agree(&verdict, channel->from, channel->to,
                              &(struct sl_channel_end){channel->slots, channel->bytes, channel->site},
                              &(struct sl_channel_end){(int)theirs->slots, theirs->bytes, theirs->site})) {
        sl_nccl_wire_join(&channel->wire, 2, theirs->id, SL_NCCL_RECEIVER);
        return;
    }
    below(me)->end(me->self, &verdict, -1);
    atomic_store(&me->run->failed, true);
}

bool sl_nccl_is_apart(struct sl_nccl_channel *channel) {
    struct sl_nccl_wire *wire = &channel->wire;
    pthread_mutex_lock(&wire->lock);
    if (wire->state == SL_NCCL_APART && !wire->aborted &&
        below(channel->me)->line_heard(&channel->line, SL_NCCL_SENDER, 1)) {
        wire->state = SL_NCCL_OPENING;
        match(channel);
    }
    const bool apart = wire->state == SL_NCCL_APART;
    pthread_mutex_unlock(&wire->lock);
    return apart;
}

int sl_nccl_ends_open(struct sl_nccl_channel *channel) {
    struct sl_nccl_coordinate *me = channel->me;
    struct opening mine = {.bytes = channel->bytes, .slots = channel->slots};
    snprintf(mine.site, sizeof mine.site, "%s", channel->site);
    if (channel->end == SL_NCCL_SENDER && (!SL_NCCL(&channel->wire, ncclGetUniqueId(&mine.id)) ||
                                           !sl_nccl_wire_join(&channel->wire, 2, mine.id, SL_NCCL_SENDER)))
        return sl_nccl_fail(&channel->wire, "opening", channel->site);
    below(me)->line_tell(me->self, &channel->line, 1, &mine, NULL);
    sl_nccl_is_apart(channel); /* the sender may have been first */
    return sl_nccl_alive(me);
}

int sl_nccl_ends_meet(struct sl_nccl_channel *channel) {
    struct sl_nccl_coordinate *me = channel->me;
    SL_TRY(below(me)->line_hear(me->self, &channel->line, !channel->end, 1, true));
    sl_nccl_is_apart(channel);
    return sl_nccl_alive(me);
}

/* On a channel to oneself, whose counts are not told, no other coordinate can release a slot, or send. */
int sl_nccl_await_count(struct sl_nccl_channel *channel, int end, uint32_t target) {
    struct sl_nccl_coordinate *me = channel->me;
    const bool own = channel->from == channel->to;
    if (own && (int32_t)(channel->count[!end] - target) >= 0) return SL_OK;
    if (!own && end == SL_NCCL_SENDER && !channel->met) return SL_OK; /* nothing has been sent yet */
    return below(me)->line_hear(me->self, &channel->line, own ? 0 : !end, own ? 1 : target + 1, true);
}

void sl_nccl_tell_count(struct sl_nccl_channel *channel, int end) {
    struct sl_nccl_coordinate *me = channel->me;
    if (channel->from != channel->to)
        below(me)->line_tell(me->self, &channel->line, channel->count[end] + 1, NULL, NULL);
}
