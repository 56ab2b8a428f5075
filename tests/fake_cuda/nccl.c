/* nccl.c - a fake NCCL: communicators between threads of this process or, under a launcher, of several processes of a
 * host (arena.h).
 *
 * As in NCCL, an operation blocks its stream until the other members have joined it, sends and receives of a pair are
 * matched in order, operations of one group run concurrently, and an abort releases all waiting work. A nonblocking
 * communicator is in progress while it is made, split, or connected (by the first call of both sides); calls on it,
 * which NCCL forbids then, are refused. A complete split writes its communicator to the address in the call; a member
 * in another process writes its own when it next asks for the parent's state. Maxima ignore NaN; bf16 is rounded after
 * each addition. Environment variables set faults:
 *
 *   FAKE_NCCL_FAIL=f@n   the nth next call of function f succeeds, then its work fails, and blocks its stream for good
 *   FAKE_NCCL_HANG=f@n   the same without an error
 *   FAKE_NCCL_REFUSE=f@n the call itself fails */
#include "nccl.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "fake.h"

enum { MOST = 128, SCALES = 8, BUNDLE = 2 * MOST };

struct operation {
    enum { SUM, SUM_SCATTER, GATHER, BROADCAST, SEND, RECEIVE } kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    float scale;
    int peer; /* or root */
    uint64_t number;
    bool stuck, done;
    void *own; /* target of the result, if `out` is a copy in the arena */
};

/* Operations that are enqueued as one piece of work. */
struct bundle {
    ncclComm_t comm;
    int count;
    struct operation operation[];
};

struct meeting { /* of a collective's members */
    struct meeting *next;
    uint64_t number;
    int arrived, inside;
    bool done;
    const struct operation *of[MOST];
};

struct post { /* a send or receive without its counterpart so far */
    struct post *next;
    int from, to;
    struct operation *operation;
};

struct clique { /* the ranks of one communicator */
    struct clique *next;
    struct fake_arena *arena;
    char id[NCCL_UNIQUE_ID_BYTES];
    int size, joined, members;
    uint32_t changed; /* who waits for members waits for this */
    struct meeting *meetings;
    struct post *posts;
    int collectives;                              /* ranks that have called a collective */
    bool sends[MOST][MOST], receives[MOST][MOST]; /* [from][to]: called at least once */
};

struct ncclComm {
    struct fake_arena *arena;
    struct clique *clique; /* NULL: the split is not complete */
    int rank, splits, holders;
    bool aborted, collective;
    int graphs; /* graphs with calls on it */
    ncclResult_t error;
    uint64_t collectives, sends[MOST], receives[MOST];
    float scale[SCALES];
    bool scales[SCALES];
};

struct split {
    struct split *next;
    struct clique *parent;
    int number, arrived, left; /* left: to be handed over, once all have arrived */
    int color[MOST], key[MOST];
    ncclComm_t made[MOST], *place[MOST];
};

/* ---- faults ---- */

struct orders {
    char seen[80];
    int calls;
};

static bool is_ordered(struct orders *orders, const char *variable, const char *function) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *told = getenv(variable);
    if (!told) told = "";
    pthread_mutex_lock(&lock);
    if (strcmp(orders->seen, told)) {
        snprintf(orders->seen, sizeof orders->seen, "%s", told);
        orders->calls = 0;
    }
    const char *at = strchr(orders->seen, '@');
    const size_t length = at ? (size_t)(at - orders->seen) : strlen(orders->seen);
    const bool meant = *told && strlen(function) == length && !strncmp(orders->seen, function, length);
    const bool ordered = meant && ++orders->calls == (at ? atoi(at + 1) : 1);
    pthread_mutex_unlock(&lock);
    return ordered;
}

static struct orders fail, hang, refuse;

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "in progress"};
    return text[result];
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return "";
}

/* ---- communicators ---- */

static struct clique *new_clique(struct fake_arena *arena, int size) {
    struct clique *clique = fake_arena_take(arena, sizeof *clique);
    clique->arena = arena;
    clique->size = size;
    return clique;
}

static ncclComm_t new_comm(struct fake_arena *arena) {
    ncclComm_t comm = fake_arena_take(arena, sizeof *comm);
    comm->arena = arena;
    comm->holders = 1;
    return comm;
}

static void unlist(struct split *split) {
    struct fake_arena *arena = split->parent->arena;
    struct split **at = &arena->splits;
    while (*at != split) at = &(*at)->next;
    *at = split->next;
    fake_arena_give(arena, split);
}

/* Drops splits that never became complete or were not fetched: their communicators have no owner. */
static void drop_splits(const struct clique *parent) {
    for (struct split *split = parent->arena->splits, *next; split; split = next) {
        next = split->next;
        if (split->parent != parent) continue;
        for (int i = 0; i < parent->size && !split->left; i++) fake_arena_give(parent->arena, split->made[i]);
        unlist(split);
    }
}

static void let_go(ncclComm_t comm) {
    if (--comm->holders) return;
    struct clique *clique = comm->clique;
    if (clique && --clique->members == 0 && clique->joined == clique->size) {
        drop_splits(clique);
        fake_arena_give(comm->arena, clique);
    }
    fake_arena_give(comm->arena, comm);
}

static void join(ncclComm_t comm, struct clique *clique, int rank) {
    comm->clique = clique;
    comm->rank = rank;
    clique->joined++;
    clique->members++;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static atomic_int ids;
    char words[64];
    memset(id, 0, sizeof *id);
    struct fake_arena *arena = fake_arena_own(words, sizeof words);
    snprintf(id->internal, sizeof id->internal, "%s %d", words, ++ids);
    const bool refused = is_ordered(&refuse, "FAKE_NCCL_REFUSE", __func__);
    return refused || !arena ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks || config->blocking) return ncclInvalidArgument;
    struct fake_arena *arena = fake_arena_of(id.internal);
    if (!arena) return ncclSystemError;
    fake_arena_lock(arena);
    struct clique **at = &arena->cliques;
    while (*at && memcmp((*at)->id, id.internal, sizeof id.internal)) at = &(*at)->next;
    if (!*at) {
        *at = new_clique(arena, ranks);
        memcpy((*at)->id, id.internal, sizeof id.internal);
    }
    struct clique *clique = *at;
    *comm = new_comm(arena);
    join(*comm, clique, rank);
    if (clique->joined == clique->size) *at = clique->next;
    fake_arena_unlock(arena);
    return ncclInProgress;
}

/* Makes the communicators of the members with COLOR. */
static void make_color(struct split *split, int color) {
    int members[MOST], count = 0;
    for (int i = 0; i < split->parent->size; i++) {
        if (split->color[i] == color) members[count++] = i;
    }
    struct clique *clique = new_clique(split->parent->arena, count);
    for (int i = 0; i < count; i++) {
        int rank = 0;
        for (int j = 0; j < count; j++) rank += split->key[members[j]] < split->key[members[i]];
        join(split->made[members[i]], clique, rank);
    }
}

static void hand_over(struct split *split, int rank) {
    if (!split->place[rank]) return;
    __atomic_store_n(split->place[rank], split->made[rank], __ATOMIC_RELEASE);
    split->place[rank] = NULL;
    if (--split->left == 0) unlist(split);
}

/* Other processes take theirs. */
static void complete(struct split *split) {
    const int size = split->parent->size;
    const bool shared = split->parent->arena->shared;
    for (int i = 0; i < size; i++) {
        bool first = split->color[i] != NCCL_SPLIT_NOCOLOR;
        for (int j = 0; j < i; j++) first = first && split->color[j] != split->color[i];
        if (first) make_color(split, split->color[i]);
    }
    split->left = size;
    for (int i = 0; i < size && !shared; i++) hand_over(split, i);
}

static void take_splits(ncclComm_t comm) {
    for (struct split *split = comm->arena->splits, *next; split && comm->arena->shared; split = next) {
        next = split->next;
        if (split->parent == comm->clique && split->left) hand_over(split, comm->rank);
    }
}

static struct split *find_split(struct clique *parent, int number) {
    struct split **at = &parent->arena->splits;
    while (*at && ((*at)->parent != parent || (*at)->number != number)) at = &(*at)->next;
    if (!*at) {
        *at = fake_arena_take(parent->arena, sizeof **at);
        (*at)->parent = parent;
        (*at)->number = number;
    }
    return *at;
}

static ncclResult_t state_of(ncclComm_t comm);

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    (void)config;
    ncclResult_t result = ncclInProgress;
    fake_arena_lock(comm->arena);
    if (state_of(comm)) {
        result = ncclInvalidUsage;
    } else {
        struct split *split = find_split(comm->clique, comm->splits++);
        split->color[comm->rank] = color;
        split->key[comm->rank] = key;
        split->place[comm->rank] = made;
        split->made[comm->rank] = color == NCCL_SPLIT_NOCOLOR ? NULL : new_comm(comm->arena);
        if (++split->arrived == comm->clique->size) complete(split);
    }
    fake_arena_unlock(comm->arena);
    return result;
}

/* Returns whether it waits for the others' first calls. */
static bool is_connecting(ncclComm_t comm) {
    const struct clique *clique = comm->clique;
    const int me = comm->rank;
    if (comm->collective && clique->collectives < clique->size) return true;
    for (int peer = 0; peer < clique->size; peer++) {
        if (clique->sends[me][peer] && !clique->receives[me][peer]) return true;
        if (clique->receives[peer][me] && !clique->sends[peer][me]) return true;
    }
    return false;
}

static bool is_splitting(ncclComm_t comm) {
    for (const struct split *split = comm->arena->splits; split; split = split->next) {
        if (split->parent == comm->clique && split->number < comm->splits && !split->left) return true;
    }
    return false;
}

static ncclResult_t state_of(ncclComm_t comm) {
    if (comm->error) return comm->error;
    if (!comm->clique || comm->clique->joined < comm->clique->size) return ncclInProgress;
    take_splits(comm);
    return is_splitting(comm) || is_connecting(comm) ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    fake_arena_lock(comm->arena);
    *state = state_of(comm);
    fake_arena_unlock(comm->arena);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    struct fake_arena *arena = comm->arena;
    fake_arena_lock(arena);
    comm->aborted = true;
    if (comm->clique) fake_arena_wake(&comm->clique->changed);
    while (comm->graphs) fake_arena_wait(arena, &comm->clique->changed);
    let_go(comm);
    fake_arena_unlock(arena);
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
    int free = 0;
    while (free < SCALES && comm->scales[free]) free++;
    if (residence != ncclScalarHostImmediate || free == SCALES) return ncclInvalidArgument;
    if (type != ncclFloat32 && type != ncclBfloat16) return ncclInvalidArgument;
    uint16_t half;
    memcpy(&half, scalar, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&comm->scale[free], type == ncclBfloat16 ? (const void *)&bits : scalar, sizeof bits);
    comm->scales[free] = true;
    *op = (ncclRedOp_t)(ncclNumOps + free);
    return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    comm->scales[op - ncclNumOps] = false;
    return ncclSuccess;
}

/* ---- arithmetic ---- */

static size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : 4; }

static float load(const void *array, ncclDataType_t type, size_t i) {
    uint32_t bits;
    if (type == ncclBfloat16) {
        bits = (uint32_t)((const uint16_t *)array)[i] << 16;
    } else {
        bits = ((const uint32_t *)array)[i];
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded to TYPE. */
static float narrow(ncclDataType_t type, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type != ncclBfloat16) return value;
    bits = isnan(value) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(void *array, ncclDataType_t type, size_t i, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == ncclBfloat16) {
        ((uint16_t *)array)[i] = (uint16_t)(bits >> 16);
    } else {
        ((uint32_t *)array)[i] = bits;
    }
}

static float reduce_floats(const struct meeting *meeting, int size, size_t i) {
    const struct operation *first = meeting->of[0];
    float sum = 0;
    for (int r = 0; r < size; r++) {
        const struct operation *operation = meeting->of[r];
        float x = load(operation->in, first->type, i);
        if (operation->op >= ncclNumOps) x = narrow(first->type, x * operation->scale);
        sum = !r ? x : first->op == ncclMax ? fmaxf(sum, x) : narrow(first->type, sum + x);
    }
    return first->op == ncclAvg ? narrow(first->type, sum * (1.0f / (float)size)) : sum;
}

static int32_t reduce_ints(const struct meeting *meeting, int size, size_t i) {
    uint32_t sum = 0;
    for (int r = 0; r < size; r++) {
        const uint32_t x = ((const uint32_t *)meeting->of[r]->in)[i];
        if (meeting->of[0]->op == ncclMax) {
            sum = !r || (int32_t)x > (int32_t)sum ? x : sum;
        } else {
            sum += x;
        }
    }
    return (int32_t)sum;
}

/* All members' COUNT elements combined, into TOTAL. */
static void reduce(const struct meeting *meeting, int size, size_t count, void *total) {
    const ncclDataType_t type = meeting->of[0]->type;
    for (size_t i = 0; i < count; i++) {
        if (type == ncclInt32) {
            ((int32_t *)total)[i] = reduce_ints(meeting, size, i);
        } else {
            store(total, type, i, reduce_floats(meeting, size, i));
        }
    }
}

/* To the executor: sums are read and written, all else is copied. BLOCK bytes come from each member, or go to it. */
static void tell(const struct meeting *meeting, int size, size_t block) {
    const struct operation *first = meeting->of[0];
    const bool scatters = first->kind == SUM_SCATTER, sums = first->kind == SUM || scatters;
    for (int r = 0; r < size && sums; r++) fake_read(meeting->of[r]->in, scatters ? block * (size_t)size : block);
    for (int r = 0; r < size; r++) {
        char *out = meeting->of[r]->out;
        if (sums) fake_written(out, block);
        if (first->kind == BROADCAST) fake_copied(out, meeting->of[first->peer]->in, block);
        for (int s = 0; s < size && first->kind == GATHER; s++)
            fake_copied(out + block * (size_t)s, meeting->of[s]->in, block);
    }
}

/* Does the members' collective. Reads all inputs into TOTAL first, because outputs may be inputs. */
static void perform(const struct meeting *meeting, int size) {
    const struct operation *first = meeting->of[0];
    const size_t block = first->count * size_of(first->type);
    const bool scatters = first->kind == SUM_SCATTER, gathers = first->kind == GATHER;
    const size_t blocks = scatters || gathers ? (size_t)size : 1;
    char *total = malloc(block * blocks + 1);
    if (gathers) {
        for (int r = 0; r < size; r++) memcpy(total + block * (size_t)r, meeting->of[r]->in, block);
    } else if (first->kind == BROADCAST) {
        memcpy(total, meeting->of[first->peer]->in, block);
    } else {
        reduce(meeting, size, first->count * blocks, total);
    }
    for (int r = 0; r < size; r++) {
        memcpy(meeting->of[r]->out, total + (scatters ? block * (size_t)r : 0), scatters ? block : block * blocks);
    }
    free(total);
    if (fake_executor) tell(meeting, size, block);
}

static bool agree(const struct meeting *meeting, int size) {
    const struct operation *a = meeting->of[0];
    for (int r = 1; r < size; r++) {
        const struct operation *b = meeting->of[r];
        const bool same_op = a->op == b->op || (a->op >= ncclNumOps && b->op >= ncclNumOps);
        if (a->kind != b->kind || a->count != b->count || a->type != b->type || !same_op || a->peer != b->peer)
            return false;
    }
    return true;
}

/* ---- in the streams ---- */

static void wait_for_abort(ncclComm_t comm) {
    while (!comm->aborted) fake_arena_wait(comm->arena, &comm->clique->changed);
}

static struct meeting *find_meeting(struct clique *clique, uint64_t number) {
    struct meeting **at = &clique->meetings;
    while (*at && (*at)->number != number) at = &(*at)->next;
    if (!*at) {
        *at = fake_arena_take(clique->arena, sizeof **at);
        (*at)->number = number;
    }
    return *at;
}

static void leave(struct clique *clique, struct meeting *meeting) {
    if (--meeting->inside) return;
    struct meeting **at = &clique->meetings;
    while (*at != meeting) at = &(*at)->next;
    *at = meeting->next;
    fake_arena_give(clique->arena, meeting);
}

static void run_collective(ncclComm_t comm, struct operation *operation) {
    struct clique *clique = comm->clique;
    struct meeting *meeting = find_meeting(clique, operation->number);
    meeting->inside++;
    meeting->of[comm->rank] = operation;
    if (++meeting->arrived == clique->size) {
        meeting->done = agree(meeting, clique->size);
        if (!meeting->done) comm->error = ncclInvalidUsage;
        if (meeting->done) perform(meeting, clique->size);
        fake_arena_wake(&clique->changed);
    }
    while (!meeting->done && !comm->aborted) fake_arena_wait(comm->arena, &comm->clique->changed);
    operation->done = meeting->done;
    if (!meeting->done) {
        meeting->arrived--;
        meeting->of[comm->rank] = NULL;
    }
    leave(clique, meeting);
}

/* Matches the operation with its counterpart, or posts it for that. */
static void post(ncclComm_t comm, struct operation *operation) {
    struct clique *clique = comm->clique;
    const bool sends = operation->kind == SEND;
    const int from = sends ? comm->rank : operation->peer, to = sends ? operation->peer : comm->rank;
    for (struct post **at = &clique->posts; *at; at = &(*at)->next) {
        struct post *other = *at;
        struct operation *half = other->operation;
        if (other->from != from || other->to != to || half->number != operation->number ||
            half->kind == operation->kind)
            continue;
        const struct operation *source = sends ? operation : half, *target = sends ? half : operation;
        const size_t bytes = source->count * size_of(source->type);
        if (bytes != target->count * size_of(target->type)) {
            comm->error = ncclInvalidUsage;
            return;
        }
        memcpy(target->out, source->in, bytes);
        fake_copied(target->out, source->in, bytes);
        operation->done = half->done = true;
        *at = other->next;
        fake_arena_give(comm->arena, other);
        fake_arena_wake(&clique->changed);
        return;
    }
    struct post *mine = fake_arena_take(comm->arena, sizeof *mine);
    *mine = (struct post){clique->posts, from, to, operation};
    clique->posts = mine;
}

static void withdraw(struct clique *clique, const struct operation *operation) {
    for (struct post **at = &clique->posts; *at; at = &(*at)->next) {
        struct post *post = *at;
        if (post->operation != operation) continue;
        *at = post->next;
        fake_arena_give(clique->arena, post);
        return;
    }
}

static void run_exchange(struct bundle *bundle) {
    ncclComm_t comm = bundle->comm;
    for (int i = 0; i < bundle->count; i++) post(comm, &bundle->operation[i]);
    for (int i = 0; i < bundle->count;) {
        if (bundle->operation[i].done) {
            i++;
        } else if (comm->aborted) {
            withdraw(comm->clique, &bundle->operation[i++]);
        } else {
            fake_arena_wait(comm->arena, &comm->clique->changed);
        }
    }
}

/* Bytes that an operation reads, and writes, at this member. */
static size_t bytes_in(ncclComm_t comm, const struct operation *operation) {
    const size_t block = operation->count * size_of(operation->type);
    if (operation->kind == RECEIVE) return 0;
    if (operation->kind == BROADCAST) return operation->peer == comm->rank ? block : 0;
    return operation->kind == SUM_SCATTER ? block * (size_t)comm->clique->size : block;
}

static size_t bytes_out(ncclComm_t comm, const struct operation *operation) {
    const size_t block = operation->count * size_of(operation->type);
    if (operation->kind == SEND) return 0;
    return operation->kind == GATHER ? block * (size_t)comm->clique->size : block;
}

/* Copies sent data to the arena, the only memory common to all processes. Received data are copied from there. */
static void bring(ncclComm_t comm, struct operation *operation) {
    const size_t in = bytes_in(comm, operation);
    void *copy = fake_arena_take(comm->arena, in);
    if (in) memcpy(copy, operation->in, in);
    fake_read(operation->in, in);
    operation->own = operation->out;
    operation->in = copy;
    operation->out = fake_arena_take(comm->arena, bytes_out(comm, operation));
}

static void fetch(ncclComm_t comm, struct operation *operation) {
    const size_t out = bytes_out(comm, operation);
    if (out && operation->done) memcpy(operation->own, operation->out, out);
    if (out && operation->done) fake_written(operation->own, out);
    fake_arena_give(comm->arena, (void *)(uintptr_t)operation->in);
    fake_arena_give(comm->arena, operation->out);
}

/* Numbers the operations: streams and graphs decide the order on a communicator. */
static void give_numbers(struct bundle *bundle) {
    ncclComm_t comm = bundle->comm;
    for (int i = 0; i < bundle->count; i++) {
        struct operation *operation = &bundle->operation[i];
        operation->number = operation->kind == SEND      ? comm->sends[operation->peer]++
                            : operation->kind == RECEIVE ? comm->receives[operation->peer]++
                                                         : comm->collectives++;
    }
}

static void run_bundle(void *argument) {
    struct bundle *bundle = *(struct bundle **)argument;
    ncclComm_t comm = bundle->comm;
    struct fake_arena *arena = comm->arena;
    bool stuck = false;
    fake_arena_lock(arena);
    give_numbers(bundle);
    for (int i = 0; i < bundle->count; i++) stuck |= bundle->operation[i].stuck;
    if (stuck) wait_for_abort(comm);
    if (!comm->aborted) { /* otherwise nothing moves any more */
        for (int i = 0; i < bundle->count && arena->shared; i++) bring(comm, &bundle->operation[i]);
        if (bundle->operation[0].kind < SEND) {
            run_collective(comm, &bundle->operation[0]);
        } else {
            run_exchange(bundle);
        }
        for (int i = 0; i < bundle->count && arena->shared; i++) fetch(comm, &bundle->operation[i]);
    }
    let_go(comm);
    fake_arena_give(arena, bundle);
    fake_arena_unlock(arena);
}

/* ---- in graphs ---- */

static size_t bytes_of(int count) { return sizeof(struct bundle) + (size_t)count * sizeof(struct operation); }

static struct bundle *new_bundle(ncclComm_t comm, int count, const struct operation *operations) {
    struct bundle *bundle = fake_arena_take(comm->arena, bytes_of(count));
    bundle->comm = comm;
    bundle->count = count;
    memcpy(bundle->operation, operations, (size_t)count * sizeof *operations);
    return bundle;
}

static void run_captured(void *argument) {
    const struct bundle *captured = argument;
    struct fake_arena *arena = captured->comm->arena;
    fake_arena_lock(arena);
    struct bundle *bundle = new_bundle(captured->comm, captured->count, captured->operation);
    fake_arena_unlock(arena);
    run_bundle(&bundle);
}

static void keep(const void *argument, bool launched) {
    ncclComm_t comm = ((const struct bundle *)argument)->comm;
    struct fake_arena *arena = comm->arena;
    fake_arena_lock(arena);
    comm->holders++;
    comm->graphs += !launched;
    fake_arena_unlock(arena);
}

static void drop(const void *argument) {
    ncclComm_t comm = ((const struct bundle *)argument)->comm;
    struct fake_arena *arena = comm->arena;
    fake_arena_lock(arena);
    comm->graphs--;
    fake_arena_wake(&comm->clique->changed);
    let_go(comm);
    fake_arena_unlock(arena);
}

/* ---- calls ---- */

static _Thread_local struct {
    int depth, count;
    ncclComm_t comm;
    cudaStream_t stream;
    struct operation operation[BUNDLE];
} group;

static void note_first(ncclComm_t comm, const struct operation *operation) {
    struct clique *clique = comm->clique;
    if (operation->kind == SEND) {
        clique->sends[comm->rank][operation->peer] = true;
    } else if (operation->kind == RECEIVE) {
        clique->receives[operation->peer][comm->rank] = true;
    } else if (!comm->collective) {
        comm->collective = true;
        clique->collectives++;
    }
}

static ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, int count, const struct operation *operations) {
    struct bundle *bundle = new_bundle(comm, count, operations);
    for (int i = 0; i < count; i++) note_first(comm, &operations[i]);
    struct CUgraph_st *graph = fake_capture_of(stream);
    if (graph) {
        fake_capture(graph, stream, run_captured, bundle, bytes_of(count));
        fake_arena_give(comm->arena, bundle);
        fake_arena_unlock(comm->arena);
        fake_capture_holds(graph, keep, drop);
        fake_arena_lock(comm->arena);
        return state_of(comm);
    }
    comm->holders++;
    const ncclResult_t result =
        fake_enqueue(stream, run_bundle, &bundle, sizeof bundle) ? ncclUnhandledCudaError : state_of(comm);
    return result;
}

static ncclResult_t call(const char *function, ncclComm_t comm, cudaStream_t stream, struct operation operation) {
    ncclResult_t result = ncclSuccess;
    fake_work(stream, "call %s %zu", function, operation.count * size_of(operation.type));
    fake_arena_lock(comm->arena);
    if (is_ordered(&refuse, "FAKE_NCCL_REFUSE", function)) {
        result = ncclInternalError;
    } else if (comm->aborted || state_of(comm) == ncclInProgress) {
        result = ncclInvalidUsage;
    }
    if (is_ordered(&fail, "FAKE_NCCL_FAIL", function)) {
        operation.stuck = true;
        comm->error = ncclRemoteError;
    }
    if (is_ordered(&hang, "FAKE_NCCL_HANG", function)) operation.stuck = true;
    if (operation.op >= ncclNumOps) operation.scale = comm->scale[operation.op - ncclNumOps];
    if (result == ncclSuccess && !group.depth) {
        result = issue(comm, stream, 1, &operation);
    } else if (result == ncclSuccess) {
        const bool fits = group.count < BUNDLE && operation.kind >= SEND &&
                          (!group.count || (group.comm == comm && group.stream == stream));
        if (fits) group.operation[group.count++] = operation;
        if (!fits) result = ncclInvalidUsage; /* more than this project uses */
        group.comm = comm;
        group.stream = stream;
    }
    fake_arena_unlock(comm->arena);
    return result == ncclRemoteError ? ncclSuccess : result;
}

ncclResult_t ncclGroupStart(void) {
    if (!group.depth++) group.count = 0;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (--group.depth || !group.count) return ncclSuccess;
    fake_arena_lock(group.comm->arena);
    const ncclResult_t result = issue(group.comm, group.stream, group.count, group.operation);
    fake_arena_unlock(group.comm->arena);
    return result == ncclRemoteError ? ncclSuccess : result;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, stream,
                (struct operation){.kind = SUM, .in = in, .out = out, .count = count, .type = type, .op = op});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, stream,
                (struct operation){.kind = SUM_SCATTER, .in = in, .out = out, .count = count, .type = type, .op = op});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(__func__, comm, stream,
                (struct operation){.kind = GATHER, .in = in, .out = out, .count = count, .type = type});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return call(
        __func__, comm, stream,
        (struct operation){.kind = BROADCAST, .in = in, .out = out, .count = count, .type = type, .peer = root});
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return call(__func__, comm, stream,
                (struct operation){.kind = SEND, .in = in, .count = count, .type = type, .peer = peer});
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return call(__func__, comm, stream,
                (struct operation){.kind = RECEIVE, .out = out, .count = count, .type = type, .peer = peer});
}
