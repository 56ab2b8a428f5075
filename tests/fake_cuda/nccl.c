/* nccl.c - a fake NCCL: communicators between threads of this process.
 *
 * As with NCCL, an operation holds its stream up until the others have joined it, sends and receives of a pair meet in
 * order, those of one group go on side by side, an abort lets go whatever waits, and a communicator that does not block
 * is in progress while it is made, split, or connected, which takes the first call of both sides. What a split makes
 * is handed over when it is complete, to the address that was given then. Maxima pass over NaN
 * and bf16 is rounded after each addition. Calls on a communicator in progress, which NCCL forbids, are refused. The
 * environment says what is to go wrong:
 *
 *   FAKE_NCCL_FAIL=f@n   the nth call of function f from now on: fails later, and holds its stream up for good
 *   FAKE_NCCL_HANG=f@n   the same without an error
 *   FAKE_NCCL_REFUSE=f@n the call itself fails */
#include "nccl.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { MOST = 64, SCALES = 8, BUNDLE = 2 * MOST };

/* One lock for everything; who waits for a clique's members waits for its own `changed`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
};

/* Pieces of work that are enqueued as one. */
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

struct post { /* a send or receive that has not met its other half */
    struct post *next;
    int from, to;
    struct operation *operation;
};

struct clique { /* the ranks of one communicator */
    struct clique *next;
    char id[NCCL_UNIQUE_ID_BYTES];
    int size, joined, members;
    pthread_cond_t changed;
    struct meeting *meetings;
    struct post *posts;
    int collectives;                              /* ranks that have called one */
    bool sends[MOST][MOST], receives[MOST][MOST]; /* from, to: called once at least */
};

struct ncclComm {
    struct clique *clique; /* NULL: the split is not complete */
    struct split *split;   /* of this one, under way */
    int rank, splits, holders;
    bool aborted, collective;
    ncclResult_t error;
    uint64_t collectives, sends[MOST], receives[MOST];
    float scale[SCALES];
    bool scales[SCALES];
};

struct split {
    struct split *next;
    struct clique *parent;
    int number, arrived;
    int color[MOST], key[MOST];
    ncclComm_t made[MOST], *place[MOST];
};

static struct clique *cliques; /* not complete */
static struct split *splits;

/* ---- what goes wrong ---- */

struct orders {
    char seen[80];
    int calls;
};

static bool is_ordered(struct orders *orders, const char *variable, const char *function) {
    const char *told = getenv(variable);
    if (!told) told = "";
    if (strcmp(orders->seen, told)) {
        snprintf(orders->seen, sizeof orders->seen, "%s", told);
        orders->calls = 0;
    }
    const char *at = strchr(orders->seen, '@');
    const size_t length = at ? (size_t)(at - orders->seen) : strlen(orders->seen);
    if (!*told || strlen(function) != length || strncmp(orders->seen, function, length)) return false;
    return ++orders->calls == (at ? atoi(at + 1) : 1);
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

static struct clique *new_clique(int size) {
    struct clique *clique = calloc(1, sizeof *clique);
    clique->size = size;
    pthread_cond_init(&clique->changed, NULL);
    return clique;
}

static void unlist(struct split *split) {
    struct split **at = &splits;
    while (*at != split) at = &(*at)->next;
    *at = split->next;
    free(split);
}

/* Those that never became complete: nobody has what they made. */
static void drop_splits(const struct clique *parent) {
    for (struct split *split = splits, *next; split; split = next) {
        next = split->next;
        if (split->parent != parent) continue;
        for (int i = 0; i < parent->size; i++) free(split->made[i]);
        unlist(split);
    }
}

static void let_go(ncclComm_t comm) {
    if (--comm->holders) return;
    struct clique *clique = comm->clique;
    if (clique && --clique->members == 0 && clique->joined == clique->size) {
        drop_splits(clique);
        pthread_cond_destroy(&clique->changed);
        free(clique);
    }
    free(comm);
}

static void join(ncclComm_t comm, struct clique *clique, int rank) {
    comm->clique = clique;
    comm->rank = rank;
    clique->joined++;
    clique->members++;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int ids;
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&lock);
    snprintf(id->internal, sizeof id->internal, "%d", ++ids);
    const bool refused = is_ordered(&refuse, "FAKE_NCCL_REFUSE", "ncclGetUniqueId");
    pthread_mutex_unlock(&lock);
    return refused ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks || config->blocking) return ncclInvalidArgument;
    pthread_mutex_lock(&lock);
    struct clique **at = &cliques;
    while (*at && memcmp((*at)->id, id.internal, sizeof id.internal)) at = &(*at)->next;
    if (!*at) {
        *at = new_clique(ranks);
        memcpy((*at)->id, id.internal, sizeof id.internal);
    }
    struct clique *clique = *at;
    *comm = calloc(1, sizeof **comm);
    (*comm)->holders = 1;
    join(*comm, clique, rank);
    if (clique->joined == clique->size) *at = clique->next;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}

/* Makes the communicators of those with one color. */
static void make_color(struct split *split, int color) {
    int members[MOST], count = 0;
    for (int i = 0; i < split->parent->size; i++) {
        if (split->color[i] == color) members[count++] = i;
    }
    struct clique *clique = new_clique(count);
    for (int i = 0; i < count; i++) {
        int rank = 0;
        for (int j = 0; j < count; j++) rank += split->key[members[j]] < split->key[members[i]];
        join(split->made[members[i]], clique, rank);
    }
}

static void complete(struct split *split) {
    for (int i = 0; i < split->parent->size; i++) {
        bool first = split->color[i] != NCCL_SPLIT_NOCOLOR;
        for (int j = 0; j < i; j++) first = first && split->color[j] != split->color[i];
        if (first) make_color(split, split->color[i]);
    }
    for (int i = 0; i < split->parent->size; i++) __atomic_store_n(split->place[i], split->made[i], __ATOMIC_RELEASE);
    unlist(split);
}

static struct split *find_split(struct clique *parent, int number) {
    struct split **at = &splits;
    while (*at && ((*at)->parent != parent || (*at)->number != number)) at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        (*at)->parent = parent;
        (*at)->number = number;
    }
    return *at;
}

static ncclResult_t state_of(ncclComm_t comm);

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    (void)config;
    ncclResult_t result = ncclInProgress;
    pthread_mutex_lock(&lock);
    if (state_of(comm)) {
        result = ncclInvalidUsage;
    } else {
        struct split *split = find_split(comm->clique, comm->splits++);
        split->color[comm->rank] = color;
        split->key[comm->rank] = key;
        split->place[comm->rank] = made;
        split->made[comm->rank] = color == NCCL_SPLIT_NOCOLOR ? NULL : calloc(1, sizeof **made);
        if (split->made[comm->rank]) split->made[comm->rank]->holders = 1;
        if (++split->arrived == comm->clique->size) complete(split);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether it waits for the others' first calls. */
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
    for (const struct split *split = splits; split; split = split->next) {
        if (split->parent == comm->clique && split->number < comm->splits) return true;
    }
    return false;
}

static ncclResult_t state_of(ncclComm_t comm) {
    if (comm->error) return comm->error;
    if (!comm->clique || comm->clique->joined < comm->clique->size) return ncclInProgress;
    return is_splitting(comm) || is_connecting(comm) ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    pthread_mutex_lock(&lock);
    *state = state_of(comm);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    pthread_mutex_lock(&lock);
    comm->aborted = true;
    if (comm->clique) pthread_cond_broadcast(&comm->clique->changed);
    let_go(comm);
    pthread_mutex_unlock(&lock);
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

/* What a meeting's members wanted: everything into TOTAL first, as outputs may be inputs. */
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
    while (!comm->aborted) pthread_cond_wait(&comm->clique->changed, &lock);
}

static struct meeting *find_meeting(struct clique *clique, uint64_t number) {
    struct meeting **at = &clique->meetings;
    while (*at && (*at)->number != number) at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        (*at)->number = number;
    }
    return *at;
}

static void leave(struct clique *clique, struct meeting *meeting) {
    if (--meeting->inside) return;
    struct meeting **at = &clique->meetings;
    while (*at != meeting) at = &(*at)->next;
    *at = meeting->next;
    free(meeting);
}

static void run_collective(ncclComm_t comm, const struct operation *operation) {
    struct clique *clique = comm->clique;
    struct meeting *meeting = find_meeting(clique, operation->number);
    meeting->inside++;
    meeting->of[comm->rank] = operation;
    if (++meeting->arrived == clique->size) {
        meeting->done = agree(meeting, clique->size);
        if (!meeting->done) comm->error = ncclInvalidUsage;
        if (meeting->done) perform(meeting, clique->size);
        pthread_cond_broadcast(&clique->changed);
    }
    while (!meeting->done && !comm->aborted) pthread_cond_wait(&clique->changed, &lock);
    if (!meeting->done) {
        meeting->arrived--;
        meeting->of[comm->rank] = NULL;
    }
    leave(clique, meeting);
}

/* Meets the other half, or leaves word for it. */
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
        operation->done = half->done = true;
        *at = other->next;
        free(other);
        pthread_cond_broadcast(&clique->changed);
        return;
    }
    struct post *mine = malloc(sizeof *mine);
    *mine = (struct post){clique->posts, from, to, operation};
    clique->posts = mine;
}

static void withdraw(struct clique *clique, const struct operation *operation) {
    for (struct post **at = &clique->posts; *at; at = &(*at)->next) {
        struct post *post = *at;
        if (post->operation != operation) continue;
        *at = post->next;
        free(post);
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
            pthread_cond_wait(&comm->clique->changed, &lock);
        }
    }
}

static void run_bundle(void *argument) {
    struct bundle *bundle = *(struct bundle **)argument;
    bool stuck = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < bundle->count; i++) stuck |= bundle->operation[i].stuck;
    if (stuck) wait_for_abort(bundle->comm);
    if (bundle->comm->aborted) {
        /* nothing moves any more */
    } else if (bundle->operation[0].kind < SEND) {
        run_collective(bundle->comm, &bundle->operation[0]);
    } else {
        run_exchange(bundle);
    }
    let_go(bundle->comm);
    pthread_mutex_unlock(&lock);
    free(bundle);
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
    struct bundle *bundle = calloc(1, sizeof *bundle + (size_t)count * sizeof *operations);
    bundle->comm = comm;
    bundle->count = count;
    memcpy(bundle->operation, operations, (size_t)count * sizeof *operations);
    for (int i = 0; i < count; i++) {
        struct operation *operation = &bundle->operation[i];
        operation->number = operation->kind == SEND      ? comm->sends[operation->peer]++
                            : operation->kind == RECEIVE ? comm->receives[operation->peer]++
                                                         : comm->collectives++;
        note_first(comm, operation);
    }
    comm->holders++;
    const ncclResult_t result =
        fake_enqueue(stream, run_bundle, &bundle, sizeof bundle) ? ncclUnhandledCudaError : state_of(comm);
    return result;
}

static ncclResult_t call(const char *function, ncclComm_t comm, cudaStream_t stream, struct operation operation) {
    ncclResult_t result = ncclSuccess;
    fake_work(stream, "call %s %zu", function, operation.count * size_of(operation.type));
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return result == ncclRemoteError ? ncclSuccess : result;
}

ncclResult_t ncclGroupStart(void) {
    if (!group.depth++) group.count = 0;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (--group.depth || !group.count) return ncclSuccess;
    pthread_mutex_lock(&lock);
    const ncclResult_t result = issue(group.comm, group.stream, group.count, group.operation);
    pthread_mutex_unlock(&lock);
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
