/* threads.c - communication between threads of this process, by words of the local engine.
 *
 * A member of a group raises its word with every call; each end of a channel raises one when it has been opened, and
 * one with each message. collectives/local/wait.c and collectives/local/proofs.c do the waits and verdicts. */
#include "collectives/engines.h"
#include "collectives/local/engine.h"
#include "collectives/nccl/engine.h"

#include <stdlib.h>
#include <string.h>

struct member {
    alignas(SL_CACHE_LINE) struct sl_local_word begun; /* number of calls */
    struct sl_collective call[SL_MAX_IN_FLIGHT];       /* used in checked mode, under the group's lock */
};

struct group {
    struct group *next;
    struct sl_group group; /* the copy of its first opener */
    uint64_t opened;       /* set of coordinates that have opened it */
    int left;              /* members still to close it */
    pthread_mutex_t lock;
    struct member member[];
};

struct channel {
    alignas(SL_CACHE_LINE) struct sl_local_word open[2];
    alignas(SL_CACHE_LINE) struct sl_local_word messages[2]; /* posted, released */
    struct channel *next;
    int from, to, slots;
    size_t bytes;
    const char *site;
    bool opened[2];
    ncclUniqueId id;
};

/* Under the run's lock. */
struct sl_nccl_told {
    bool has_id;
    ncclUniqueId id;
    struct group *groups;
    struct channel *channels;
};

static struct sl_local_coordinate *host_of(const struct sl_nccl_coordinate *me) { return sl_local_self(me->self); }

static int progress(struct sl_nccl_coordinate *me) { return sl_engine_local.progress(me->self); }

static int unique_id(struct sl_nccl_coordinate *me, ncclUniqueId *id) {
    pthread_mutex_lock(&me->run->lock);
    struct sl_nccl_told *told = me->run->told;
    const ncclResult_t result = told->has_id ? ncclSuccess : ncclGetUniqueId(&told->id);
    if (result == ncclSuccess) {
        told->has_id = true;
        *id = told->id;
    }
    pthread_mutex_unlock(&me->run->lock);
    return sl_nccl_succeeded(&me->world->wire, "ncclGetUniqueId", result) ? SL_OK : SL_FAILED;
}

/* ---- groups ---- */

static struct group *new_group(const struct sl_group *group) {
    struct group *made = sl_local_take(sizeof *made + (size_t)group->size * sizeof *made->member);
    if (!made) return NULL;
    made->group = *group;
    made->left = group->size;
    pthread_mutex_init(&made->lock, NULL);
    return made;
}

static bool has_members(const struct sl_group *one, const struct sl_group *other) {
    bool same = one->size == other->size;
    for (int i = 0; i < one->size && same; i++) same = sl_group_member(one, i) == sl_group_member(other, i);
    return same;
}

/* The first group of the same members not opened yet by this coordinate. NULL without memory. */
static struct group *open_group(struct sl_nccl_told *told, const struct sl_group *group, int coordinate) {
    const uint64_t me = UINT64_C(1) << coordinate;
    struct group **at = &told->groups;
    for (; *at; at = &(*at)->next) {
        if (!((*at)->opened & me) && has_members(&(*at)->group, group)) break;
    }
    if (!*at) *at = new_group(group);
    if (*at) (*at)->opened |= me;
    return *at;
}

static int group_open(struct sl_nccl_coordinate *me, struct sl_nccl_group *group) {
    pthread_mutex_lock(&me->run->lock);
    group->hosts = open_group(me->run->told, &group->group, me->self->coordinate);
    pthread_mutex_unlock(&me->run->lock);
    if (group->hosts) return SL_OK;
    return sl_fail(me->self, SL_FAILED, "no memory for the group \"%s\"", group->group.name);
}

static void free_group(struct group *group) {
    pthread_mutex_destroy(&group->lock);
    free(group);
}

/* The last member frees it, under the lock held by verdicts while they read a word or place of it. */
static int group_close(struct sl_nccl_group *of) {
    struct group *group = of->hosts, **at = &of->wire.me->run->told->groups;
    struct sl_local_run *host = host_of(of->wire.me)->run;
    pthread_mutex_lock(&of->wire.me->run->lock);
    const bool last = --group->left == 0;
    while (last && *at != group) at = &(*at)->next;
    if (last) *at = group->next;
    pthread_mutex_unlock(&of->wire.me->run->lock);
    pthread_mutex_lock(&host->opening);
    if (last) free_group(group);
    pthread_mutex_unlock(&host->opening);
    return SL_OK;
}

/* Compares the call with the calls of the members that have begun it. The later of two members sees the earlier. */
static int compare(struct sl_local_coordinate *host, struct group *group, const struct sl_collective *call,
                   uint32_t ticket) {
    for (int i = 0; i < group->group.size; i++) {
        if (!sl_local_reached(atomic_load(&group->member[i].begun.value), ticket + 1)) continue;
        const struct sl_collective *theirs = &group->member[i].call[ticket % SL_MAX_IN_FLIGHT];
        if (!sl_calls_agree(call, theirs, i))
            return sl_local_mismatch(host, call, theirs, sl_group_member(&group->group, i));
    }
    return SL_OK;
}

/* In checked mode a description is replaced only after all members have compared it with theirs. */
static int begin_checked(struct sl_local_coordinate *host, struct group *group, const struct sl_collective *call,
                         uint32_t ticket) {
    struct member *mine = &group->member[call->group->rank];
    const uint32_t earlier = ticket - SL_MAX_IN_FLIGHT;
    for (int i = 0; i < group->group.size; i++)
        SL_TRY(sl_local_wait(host, &group->member[i].begun, earlier + 1, sl_group_member(&group->group, i), NULL));
    pthread_mutex_lock(&group->lock);
    mine->call[ticket % SL_MAX_IN_FLIGHT] = *call;
    const int status = compare(host, group, call, ticket);
    if (!status) sl_local_post(&mine->begun, ticket + 1);
    pthread_mutex_unlock(&group->lock);
    return status;
}

static int begin(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    struct sl_nccl_coordinate *me = of->wire.me;
    struct group *group = of->hosts;
    if (me->run->engine->checked) return begin_checked(host_of(me), group, call, ticket);
    sl_local_post(&group->member[call->group->rank].begun, ticket + 1);
    return SL_OK;
}

static bool met(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    const struct group *group = of->hosts;
    for (int i = 0; i < group->group.size; i++) {
        const uint32_t begun = atomic_load_explicit(&group->member[i].begun.value, memory_order_acquire);
        if (sl_nccl_needs(call, i) && !sl_local_reached(begun, ticket + 1)) return false;
    }
    return true;
}

static int meet(struct sl_nccl_group *of, const struct sl_collective *call, uint32_t ticket) {
    struct group *group = of->hosts;
    for (int i = 0; i < group->group.size; i++) {
        if (!sl_nccl_needs(call, i)) continue;
        SL_TRY(sl_local_wait(host_of(of->wire.me), &group->member[i].begun, ticket + 1,
                             sl_group_member(&group->group, i), NULL));
    }
    return SL_OK;
}

/* ---- channels ---- */

static struct channel *new_channel(const struct sl_nccl_channel *wanted) {
    struct channel *made = sl_local_take(sizeof *made);
    if (!made) return NULL;
    made->from = wanted->from, made->to = wanted->to;
    made->slots = wanted->slots, made->bytes = wanted->bytes;
    made->site = wanted->site;
    if (made->from == made->to || ncclGetUniqueId(&made->id) == ncclSuccess) return made;
    free(made);
    return NULL;
}

/* This end of the pair's first channel with this end not open. NULL without memory. */
static struct channel *open_end(struct sl_nccl_told *told, const struct sl_nccl_channel *wanted) {
    struct channel **at = &told->channels;
    for (; *at; at = &(*at)->next) {
        const bool same_pair = (*at)->from == wanted->from && (*at)->to == wanted->to;
        if (same_pair && !(*at)->opened[wanted->end]) break;
    }
    if (!*at) *at = new_channel(wanted);
    if (*at) (*at)->opened[wanted->end] = true;
    return *at;
}

static int channel_open(struct sl_nccl_channel *wanted) {
    struct sl_nccl_coordinate *me = wanted->me;
    pthread_mutex_lock(&me->run->lock);
    struct channel *channel = open_end(me->run->told, wanted);
    pthread_mutex_unlock(&me->run->lock);
    if (!channel)
        return sl_fail(me->self, SL_FAILED, "no memory for channel %d -> %d, or NCCL gives no id (opened at %s)",
                       wanted->from, wanted->to, wanted->site);
    struct sl_error verdict = {0};
    if (!sl_channel_ends_agree(&verdict, wanted->from, wanted->to,
                               &(struct sl_channel_end){wanted->slots, wanted->bytes, wanted->site},
                               &(struct sl_channel_end){channel->slots, channel->bytes, channel->site})) {
        sl_local_end(host_of(me)->run, SL_FAILED, "%s", verdict.message);
        return sl_local_alive(host_of(me));
    }
    wanted->hosts = channel;
    if (channel->from != channel->to && !sl_nccl_wire_join(&wanted->wire, 2, channel->id, wanted->end))
        return sl_nccl_fail(&wanted->wire, "opening", wanted->site);
    sl_local_post(&channel->open[wanted->end], 1);
    return SL_OK;
}

static int coordinate_at(const struct sl_nccl_channel *channel, int end) {
    return end == SL_NCCL_SENDER ? channel->from : channel->to;
}

static int channel_meet(struct sl_nccl_channel *of) {
    struct channel *channel = of->hosts;
    return sl_local_wait(host_of(of->me), &channel->open[!of->end], 1, coordinate_at(of, !of->end), NULL);
}

static int channel_wait(struct sl_nccl_channel *of, int end, uint32_t target) {
    struct channel *channel = of->hosts;
    return sl_local_wait(host_of(of->me), &channel->messages[!end], target, coordinate_at(of, !end), NULL);
}

static void channel_raise(struct sl_nccl_channel *of, int end, uint32_t count) {
    struct channel *channel = of->hosts;
    sl_local_post(&channel->messages[end], count);
}

/* ---- all ---- */

/* The run is the argument of the local engine's program. */
static struct sl_nccl_run *run_of(const struct sl_spmd *self) { return sl_local_self(self)->run->arg; }

static int open_run(struct sl_nccl_run *run) {
    run->told = calloc(1, sizeof *run->told);
    return run->told ? SL_OK : SL_FAILED;
}

static void close_run(struct sl_nccl_run *run) {
    struct sl_nccl_told *told = run->told;
    while (told->groups) {
        struct group *group = told->groups;
        told->groups = group->next;
        free_group(group);
    }
    while (told->channels) {
        struct channel *channel = told->channels;
        told->channels = channel->next;
        free(channel);
    }
    free(told);
}

const struct sl_nccl_hosts sl_nccl_threads = {
    .run_of = run_of,
    .open = open_run,
    .close = close_run,
    .progress = progress,
    .unique_id = unique_id,
    .group_open = group_open,
    .group_close = group_close,
    .begin = begin,
    .met = met,
    .meet = meet,
    .channel_open = channel_open,
    .channel_meet = channel_meet,
    .channel_wait = channel_wait,
    .channel_raise = channel_raise,
};
