/* test_nccl_counts.c - communicators, streams, connecting messages and hosts' marks of engine nccl, as counted and as
 * computed: for each coordinate they grow with its groups and channels, and with the logarithm of the members. */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tests/rigs/run_on.h"

/* Largest groups whose members tell each other directly (collectives/mpi/line.c), and connect in pairs
 * (collectives/nccl/collectives.c). */
enum { DIRECT = 8, CONNECTED = 64 };

/* ---- counting ---- */

static _Atomic int communicators, streams, sends;

ncclResult_t __real_ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t __wrap_ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
    communicators++;
    return __real_ncclCommInitRankConfig(comm, size, id, rank, config);
}

ncclResult_t __real_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config);
ncclResult_t __wrap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config);
ncclResult_t __wrap_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    communicators += color != NCCL_SPLIT_NOCOLOR;
    return __real_ncclCommSplit(comm, color, key, made, config);
}

ncclResult_t __real_ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream);
ncclResult_t __wrap_ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream);
ncclResult_t __wrap_ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
    sends++;
    return __real_ncclSend(data, count, type, peer, comm, stream);
}

cudaError_t __real_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    streams++;
    return __real_cudaStreamCreateWithFlags(stream, flags);
}

/* ---- groups and channels ---- */

enum { GROUPS = 3 };

static bool are_processes(const struct sl_spmd *self) { return self->engine->table->apart; }

/* Coordinates of this process. */
static int here(const struct sl_spmd *self) { return are_processes(self) ? 1 : self->mesh->size; }

/* A message to the next coordinate of a ring. */
static int send_round(struct sl_spmd *self, struct sl_channel *to_next, struct sl_channel *from_last) {
    const int size = self->mesh->size, me = self->coordinate;
    void *slot;
    const void *message;
    SL_TRY(sl_channel_open(self, to_next, me, (me + 1) % size, SL_CACHE_LINE, 1));
    SL_TRY(sl_channel_open(self, from_last, (me + size - 1) % size, me, SL_CACHE_LINE, 1));
    SL_TRY(sl_channel_acquire(self, to_next, &slot));
    SL_TRY(sl_channel_post(self, to_next));
    SL_TRY(sl_channel_take(self, from_last, &message));
    return sl_channel_release(self, from_last);
}

/* A connection of each pair of the groups in which pairs are connected, and one of each channel. */
static int connecting(const struct sl_group *group) {
    int all = 0;
    for (int g = 0; g < GROUPS; g++) all += group[g].size <= CONNECTED ? group[g].size : 0;
    return all;
}

/* ---- marks ---- */

/* Messages by which a member tells the others of CALL. */
static uint64_t marks_of(const struct sl_collective *call) {
    const int size = call->group->size;
    uint64_t rounds = 0;
    if (call->operation == SL_PPERMUTE) return call->source == call->destination ? 1 : 2;
    if (call->operation == SL_GATHER) return call->group->rank == call->root ? (uint64_t)size - 1 : 1;
    while (1 << rounds < size) rounds++;
    return size > DIRECT ? rounds : (uint64_t)size - 1;
}

static int count_marks(struct sl_spmd *self, const struct sl_group *group, char *x, char *y) {
    struct sl_collective call;
    for (int number = 0; make_call(group, number, 1, x, y, &call); number++) {
        struct sl_traffic sent[SL_TRAFFIC_KINDS] = {0};
        const struct sl_traffic *got = &sent[call.operation];
        const uint64_t wanted = are_processes(self) ? marks_of(&call) : 0;
        self->sent = sent;
        const int status = sl_call(self, SL_HERE, call);
        self->sent = NULL;
        if (status) return status;
        if (got->messages[SL_WAY_HOST] == wanted && got->bells == (are_processes(self) ? wanted : 1)) continue;
        return sl_fail(self, SL_CHECK_FAILED, "call %d over \"%s\": %d messages and %d bells, computed %d", number,
                       group->name, (int)got->messages[SL_WAY_HOST], (int)got->bells, (int)wanted);
    }
    return SL_OK;
}

/* ---- the program ---- */

static int counts_program(struct sl_spmd *self, void *arg) {
    struct sl_group group[GROUPS];
    struct sl_channel to_next, from_last;
    const int before = streams;
    (void)arg;
    for (int g = 0; g < GROUPS; g++) SL_TRY(sl_group_axes(self, (const char *[]){"*", "x", "y"}[g], &group[g]));
    SL_TRY(send_round(self, &to_next, &from_last));
    SL_TRY(sl_barrier(self, &group[0]));
    const int each = 1 + GROUPS + 2; /* the first one of all, from which groups are split; and channels */
    CHECK(self, communicators == here(self) * each);
    CHECK(self, !are_processes(self) || streams - before == each);
    CHECK(self, sends == here(self) * (connecting(group) + 2)); /* the channel's first word, and a message */
    SL_TRY(sl_barrier(self, &group[0]));
    const size_t bytes = (size_t)self->mesh->size * (size_t)self->mesh->size * sizeof(float);
    char *x = sl_device.take(2 * bytes);
    CHECK(self, x);
    sl_device.zero(x, 2 * bytes);
    int status = SL_OK;
    for (int g = 0; g < GROUPS && !status; g++) status = count_marks(self, &group[g], x, x + bytes);
    sl_device.give(x);
    return status;
}

static void expect_computed(const char *mesh) {
    struct sl_error error;
    communicators = sends = 0;
    if (run_on((struct test_run){.mesh = mesh, .timeout = 300}, counts_program, &error)) fail_msg("%s", error.message);
}

static void counts_are_as_computed(void **state) {
    (void)state;
    expect_computed(getenv("SL_TEST_MESH") ? getenv("SL_TEST_MESH") : "x=4,y=2");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_as_computed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
