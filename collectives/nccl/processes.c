/* processes.c - communication between processes, by messages on the mpi engine's communicator.
 *
 * A member sends its call to the members needed by the call, in checked mode to all; an end of a channel sends its
 * arguments to the other end, the sender also the id of their communicator, and then an empty message for each post or
 * release. Only the program's thread uses MPI: the watchdog passes its verdict to it. collectives/mpi/wait.c and
 * collectives/mpi/questions.c do the waits and verdicts.
 *
 * In checked mode calls are compared when a member waits, and in their streams, before their data moves
 * (compare_calls.c): whichever comes first. */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/engines.h"
#include "collectives/mpi/wire.h"
#include "collectives/nccl/engine.h"

/* MPI has one state per process, and so does this file. */
static struct sl_nccl_run *running;

struct group {
    struct group *next;
    struct sl_nccl_group *of;
    int number;
    bool waits_for_all; /* for the slot's previous messages, of the call replaced by `ticket` */
    uint32_t ticket;
    const struct sl_collective *call;
    struct sl_mpi_signature mine[SL_MAX_IN_FLIGHT];
    struct sl_mpi_signature (*theirs)[SL_NCCL_MOST]; /* [SL_MAX_IN_FLIGHT]; the next two likewise */
    MPI_Request (*hear)[SL_NCCL_MOST], (*tell)[SL_NCCL_MOST];
};

struct opening {
    uint64_t bytes;
    int64_t slots;
    char site[112];
    ncclUniqueId id;
};

struct channel {
    struct channel *next;
    struct sl_nccl_channel *of;
    struct opening mine, theirs;
    MPI_Request tell, hear; /* openings */
    bool joined;
    MPI_Request count; /* the other end's next post or release */
    uint32_t heard, target;
    int tag;
};

struct sl_nccl_told {
    ncclUniqueId id; /* receive buffer; and its request: */
    MPI_Request hear;
    struct group *groups;
    struct channel *channels;
};

static struct sl_mpi_run *host_of(const struct sl_nccl_coordinate *me) { return sl_mpi_self(me->self); }

static bool ok(const struct sl_nccl_coordinate *me, int code) { return sl_mpi_ok(host_of(me), code, "between hosts"); }

/* ---- the end of the run ---- */

static void turn(struct sl_nccl_coordinate *me);

/* Looks after channels that are being opened, and waits for the end if there is a verdict. SL_FAILED once the run has
 * ended. */
static int progress(struct sl_nccl_coordinate *me) {
    turn(me);
    const int status = sl_mpi_turn(host_of(me));
    return !status && host_of(me)->proposed ? sl_mpi_await_end(host_of(me)) : status;
}

/* Waits, unless the watchdog ends the wait. */
static int wait_until(struct sl_nccl_coordinate *me, bool (*ready)(void *), int (*peer)(void *), void *of) {
    SL_TRY(sl_mpi_wait(host_of(me), &(struct sl_mpi_wait){ready, peer, of, false}));
    return progress(me);
}

/* Whether the watchdog has ended the run. After its own proposal, a coordinate keeps waiting until the verdict is the
 * run's, and is reported as waiting. */
static bool is_over(struct sl_nccl_coordinate *me) {
    turn(me);
    return atomic_load(&me->run->failed);
}

/* ---- groups ---- */

static int group_open(struct sl_nccl_coordinate *me, struct sl_nccl_group *of) {
    struct group *group = calloc(1, sizeof *group);
    if (group) {
        group->theirs = calloc(SL_MAX_IN_FLIGHT, sizeof *group->theirs);
        group->hear = calloc(SL_MAX_IN_FLIGHT, sizeof *group->hear);
        group->tell = calloc(SL_MAX_IN_FLIGHT, sizeof *group->tell);
    }
    if (!group || !group->theirs || !group->hear || !group->tell)
        return sl_fail(me->self, SL_FAILED, "no memory for the group \"%s\"", of->group.name);
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) {
        for (int peer = 0; peer < SL_NCCL_MOST; peer++)
            group->hear[slot][peer] = group->tell[slot][peer] = MPI_REQUEST_NULL;
    }
    group->of = of;
    group->number = me->opened;
    group->next = me->run->told->groups;
    me->run->told->groups = group;
    of->hosts = group;
    if (!sl_nccl_comparisons_open(of))
        return sl_fail(me->self, SL_FAILED, "no memory for the group \"%s\"", of->group.name);
    if (sl_mpi_tag((int64_t)(group->number + 1) * SL_MAX_IN_FLIGHT, false) >= 0) return SL_OK;
    return sl_fail(me->self, SL_FAILED, "the group \"%s\" is number %d: this MPI has no tags for so many",
                   of->group.name, group->number);
}

static int slot_of(const struct group *group) { return (int)(group->ticket % SL_MAX_IN_FLIGHT); }

/* Compares the call received from PEER; returns whether it is the same as the one here. */
static bool agrees(struct group *group, int peer) {
    struct sl_nccl_coordinate *me = group->of->wire.me;
    const struct sl_collective call = sl_mpi_call_of(&group->theirs[slot_of(group)][peer]);
    struct sl_collective mine = sl_mpi_call_of(&group->mine[slot_of(group)]); /* the call itself may be over */
    mine.group = &group->of->group;
    if (!me->run->engine->checked || sl_calls_agree(&mine, &call, peer)) return true;
    struct sl_error verdict = {0};
    sl_verdict_mismatch(&verdict, me->run->mesh, &mine, me->self->coordinate, &call, sl_group_member(mine.group, peer));
    sl_mpi_propose(host_of(me), SL_FAILED, -1, &verdict);
    return false;
}

/* A member with a message under way from or to it, or -1. */
static int missing(void *of) {
    struct group *group = of;
    const int slot = slot_of(group);
    for (int peer = 0; peer < group->of->group.size; peer++) {
        int heard = 1, told = 1;
        if (group->hear[slot][peer] != MPI_REQUEST_NULL) {
            if (!ok(group->of->wire.me, MPI_Test(&group->hear[slot][peer], &heard, MPI_STATUS_IGNORE))) return -1;
            if (heard && !agrees(group, peer)) return -1;
        }
        if (group->waits_for_all) MPI_Test(&group->tell[slot][peer], &told, MPI_STATUS_IGNORE);
        if (!told || (!heard && (group->waits_for_all || sl_nccl_needs(group->call, peer))))
            return sl_group_member(&group->of->group, peer);
    }
    return -1;
}

static bool are_all_there(void *of) {
    struct group *group = of;
    return is_over(group->of->wire.me) || missing(group) < 0;
}

static int begin(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    struct group *group = of->hosts;
    struct sl_nccl_coordinate *me = of->wire.me;
    group->ticket = ticket;
    group->call = call;
    group->waits_for_all = true;
    SL_TRY(wait_until(me, are_all_there, missing, group));
    const int slot = slot_of(group), tag = sl_mpi_tag((int64_t)group->number * SL_MAX_IN_FLIGHT + slot, false);
    struct sl_mpi_signature *mine = &group->mine[slot];
    *mine = sl_mpi_signature_of(call);
    for (int peer = 0; peer < call->group->size; peer++) {
        const int at = sl_group_member(call->group, peer);
        if (peer == call->group->rank || !(me->run->engine->checked || sl_nccl_needs(call, peer))) continue;
        if (!ok(me, MPI_Irecv(&group->theirs[slot][peer], sizeof *mine, MPI_BYTE, at, tag, host_of(me)->wire,
                              &group->hear[slot][peer])) ||
            !ok(me, MPI_Isend(mine, sizeof *mine, MPI_BYTE, at, tag, host_of(me)->wire, &group->tell[slot][peer])))
            return progress(me);
    }
    return SL_OK;
}

static void free_group(struct group *group) {
    free(group->theirs);
    free(group->hear);
    free(group->tell);
    free(group);
}

/* Waits for all messages under way. */
static int group_close(struct sl_nccl_group *of) {
    struct group *group = of->hosts, **at = &of->wire.me->run->told->groups;
    group->waits_for_all = true;
    for (group->ticket = 0; group->ticket < SL_MAX_IN_FLIGHT; group->ticket++)
        SL_TRY(wait_until(of->wire.me, are_all_there, missing, group));
    while (*at != group) at = &(*at)->next;
    *at = group->next;
    free_group(group);
    sl_nccl_comparisons_close(of);
    return SL_OK;
}

static void look_at(struct group *group, const struct sl_collective *call, uint32_t ticket) {
    group->ticket = ticket;
    group->call = call;
    group->waits_for_all = false;
}

static bool met(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    look_at(of->hosts, call, ticket);
    return !progress(of->wire.me) && missing(of->hosts) < 0 && !host_of(of->wire.me)->proposed;
}

static int meet(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    look_at(of->hosts, call, ticket);
    return wait_until(of->wire.me, are_all_there, missing, of->hosts);
}

/* ---- id of the communicator of all: the first coordinate sends it to the others ---- */

static bool has_id(void *of) {
    struct sl_nccl_coordinate *me = of;
    int here = 0;
    return is_over(me) || !ok(me, MPI_Test(&me->run->told->hear, &here, MPI_STATUS_IGNORE)) || here;
}

static int first(void *of) {
    (void)of;
    return 0;
}

static int send_id(struct sl_nccl_coordinate *me, const ncclUniqueId *id, int tag) {
    for (int other = 1; other < me->run->mesh->size; other++) {
        if (!ok(me, MPI_Send(id, sizeof *id, MPI_BYTE, other, tag, host_of(me)->wire))) return SL_FAILED;
    }
    return SL_OK;
}

/* If the first coordinate fails to make it, the others see the end of the run instead. */
static int unique_id(struct sl_nccl_coordinate *me, ncclUniqueId *id) {
    struct sl_nccl_told *told = me->run->told;
    const int tag = sl_mpi_tag(0, true);
    if (me->self->coordinate == 0) {
        if (!sl_nccl_succeeded(&me->world->wire, "ncclGetUniqueId", ncclGetUniqueId(id))) return SL_FAILED;
        return send_id(me, id, tag);
    }
    if (!ok(me, MPI_Irecv(&told->id, sizeof told->id, MPI_BYTE, 0, tag, host_of(me)->wire, &told->hear)))
        return progress(me);
    SL_TRY(wait_until(me, has_id, first, me));
    *id = told->id;
    return SL_OK;
}

/* ---- channels ---- */

static int other_end(const struct channel *channel) {
    return channel->of->end == SL_NCCL_SENDER ? channel->of->to : channel->of->from;
}

static bool is_own(const struct channel *channel) { return channel->of->from == channel->of->to; }

/* The n-th channel from a lower to a higher coordinate has the tags 4 n + 1 and 4 n + 2, the n-th one back has 4 n + 3
 * and 4 n + 4: both ends of each send. Tag 0 is for the id of all. */
static int tag_of(const struct sl_nccl_told *told, const struct sl_nccl_channel *of) {
    int64_t number = of->from < of->to ? 1 : 3;
    for (const struct channel *at = told->channels; at; at = at->next)
        number += 4 * (at->of->from == of->from && at->of->to == of->to);
    return (int)number;
}

static bool hear_count(struct channel *channel) {
    return ok(channel->of->me, MPI_Irecv(NULL, 0, MPI_BYTE, other_end(channel), sl_mpi_tag(channel->tag, true),
                                         host_of(channel->of->me)->wire, &channel->count));
}

static int channel_open(struct sl_nccl_channel *of) {
    struct sl_nccl_coordinate *me = of->me;
    struct sl_nccl_told *told = me->run->told;
    struct channel *channel = calloc(1, sizeof *channel);
    if (!channel)
        return sl_fail(me->self, SL_FAILED, "no memory for channel %d -> %d (opened at %s)", of->from, of->to,
                       of->site);
    *channel = (struct channel){.of = of, .tag = tag_of(told, of), .next = told->channels};
    channel->tell = channel->hear = channel->count = MPI_REQUEST_NULL;
    told->channels = channel;
    of->hosts = channel;
    if (is_own(channel)) return SL_OK;
    const int tag = sl_mpi_tag(channel->tag + 1, true);
    if (tag < 0)
        return sl_fail(me->self, SL_FAILED, "channel %d -> %d: this MPI has no tags for so many (opened at %s)",
                       of->from, of->to, of->site);
    channel->mine = (struct opening){.bytes = of->bytes, .slots = of->slots};
    snprintf(channel->mine.site, sizeof channel->mine.site, "%s", of->site);
    if (of->end == SL_NCCL_SENDER) {
        channel->joined = SL_NCCL(&of->wire, ncclGetUniqueId(&channel->mine.id)) &&
                          sl_nccl_wire_join(&of->wire, 2, channel->mine.id, SL_NCCL_SENDER);
        if (!channel->joined) return sl_nccl_fail(&of->wire, "opening", of->site);
    }
    MPI_Comm wire = host_of(me)->wire;
    const bool told_and_heard = ok(me, MPI_Irecv(&channel->theirs, sizeof channel->theirs, MPI_BYTE, other_end(channel),
                                                 tag, wire, &channel->hear)) &&
                                ok(me, MPI_Isend(&channel->mine, sizeof channel->mine, MPI_BYTE, other_end(channel),
                                                 tag, wire, &channel->tell)) &&
                                hear_count(channel);
    return told_and_heard ? SL_OK : progress(me);
}

/* Handles the other end's opening. */
static void match(struct channel *channel) {
    const struct opening *theirs = &channel->theirs;
    struct sl_nccl_channel *of = channel->of;
    struct sl_error verdict = {0};
    if (!sl_channel_ends_agree(&verdict, of->from, of->to, &(struct sl_channel_end){of->slots, of->bytes, of->site},
                               &(struct sl_channel_end){(int)theirs->slots, theirs->bytes, theirs->site})) {
        sl_mpi_propose(host_of(of->me), SL_FAILED, -1, &verdict);
    } else if (of->end == SL_NCCL_RECEIVER && !sl_nccl_wire_join(&of->wire, 2, theirs->id, SL_NCCL_RECEIVER)) {
        sl_nccl_fail(&of->wire, "opening", of->site);
    }
    channel->joined = true;
}

/* Advances channels whose other end's opening has come. */
static void turn(struct sl_nccl_coordinate *me) {
    for (struct channel *channel = me->run->told->channels; channel; channel = channel->next) {
        int heard = 0;
        if (channel->hear == MPI_REQUEST_NULL) continue;
        if (ok(me, MPI_Test(&channel->hear, &heard, MPI_STATUS_IGNORE)) && heard) match(channel);
    }
}

static bool is_open(void *of) {
    struct channel *channel = of;
    return is_over(channel->of->me) || (channel->joined && channel->hear == MPI_REQUEST_NULL);
}

static bool has_counted(void *of) {
    struct channel *channel = of;
    int heard = 1;
    if (is_over(channel->of->me)) return true;
    while ((int32_t)(channel->heard - channel->target) < 0 && heard) {
        if (!ok(channel->of->me, MPI_Test(&channel->count, &heard, MPI_STATUS_IGNORE))) return true;
        if (heard) channel->heard++;
        if (heard && !hear_count(channel)) return true;
    }
    return (int32_t)(channel->heard - channel->target) >= 0;
}

static int peer_of(void *of) { return other_end(of); }

static int channel_meet(struct sl_nccl_channel *of) { return wait_until(of->me, is_open, peer_of, of->hosts); }

/* On a channel to oneself no other coordinate can release a slot, or send. */
static int wait_for_oneself(struct sl_nccl_coordinate *me) {
    struct sl_error verdict = {0};
    char where[200];
    const int coordinate = me->self->coordinate;
    sl_verdict_deadlock(&verdict, 1);
    sl_verdict_add_wait(&verdict, me->run->mesh, coordinate, coordinate,
                        sl_last_call_describe(&host_of(me)->place, where, sizeof where));
    sl_mpi_propose(host_of(me), SL_FAILED, -1, &verdict);
    return sl_mpi_await_end(host_of(me));
}

static int channel_wait(struct sl_nccl_channel *of, int end, uint32_t target) {
    struct channel *channel = of->hosts;
    if (is_own(channel)) return (int32_t)(of->count[!end] - target) >= 0 ? SL_OK : wait_for_oneself(of->me);
    channel->target = target;
    return wait_until(of->me, has_counted, peer_of, channel);
}

static void channel_raise(struct sl_nccl_channel *of, int end, uint32_t count) {
    struct channel *channel = of->hosts;
    MPI_Request request = MPI_REQUEST_NULL;
    (void)end, (void)count;
    if (is_own(channel)) return;
    if (ok(of->me, MPI_Isend(NULL, 0, MPI_BYTE, other_end(channel), sl_mpi_tag(channel->tag, true),
                             host_of(of->me)->wire, &request)))
        MPI_Request_free(&request);
}

/* ---- all ---- */

static struct sl_nccl_run *run_of(const struct sl_spmd *self) {
    (void)self;
    return running;
}

static int open_run(struct sl_nccl_run *run) {
    running = run;
    run->told = calloc(1, sizeof *run->told);
    return run->told ? SL_OK : SL_FAILED;
}

/* If the run has failed, MPI's receive buffers are not freed. */
static void close_run(struct sl_nccl_run *run) {
    struct sl_nccl_told *told = run->told;
    running = NULL;
    if (atomic_load(&run->failed)) return;
    while (told && told->groups) {
        struct group *group = told->groups;
        told->groups = group->next;
        free_group(group);
    }
    while (told && told->channels) {
        struct channel *channel = told->channels;
        told->channels = channel->next;
        if (channel->count != MPI_REQUEST_NULL) {
            MPI_Cancel(&channel->count);
            MPI_Request_free(&channel->count);
        }
        free(channel);
    }
    free(told);
}

const struct sl_nccl_hosts sl_nccl_processes = {
    .reuses = true,
    .run_of = run_of,
    .open = open_run,
    .close = close_run,
    .progress = progress,
    .unique_id = unique_id,
    .group_open = group_open,
    .group_close = group_close,
    .begin = begin,
    .describe = sl_nccl_describe,
    .judge = sl_nccl_judge,
    .met = met,
    .meet = meet,
    .channel_open = channel_open,
    .channel_meet = channel_meet,
    .channel_wait = channel_wait,
    .channel_raise = channel_raise,
};

static int join(double timeout, struct sl_error *error) { return sl_engine_mpi.open(timeout, error); }

const struct sl_engine_table sl_engine_nccl_processes = {
    .name = "nccl",
    .most = SL_NCCL_MOST,
    .apart = true,
    .both_ends = true,
    .open = join,
    .speaks = sl_mpi_speaks,
    .reports = sl_mpi_reports,
    .run = sl_nccl_run,
    .group_open = sl_nccl_group_open,
    .group_close = sl_nccl_group_close,
    .start = sl_nccl_start,
    .test = sl_nccl_test,
    .wait = sl_nccl_finish,
    .channel_open = sl_nccl_channel_open,
    .channel_acquire = sl_nccl_channel_acquire,
    .channel_post = sl_nccl_channel_post,
    .channel_take = sl_nccl_channel_take,
    .channel_release = sl_nccl_channel_release,
    .channels_rest = sl_nccl_channels_rest,
    .progress = sl_nccl_progress,
};
