/* test_hosts.c - calls of processes on several hosts, which pretend_hosts.c makes up: their results, and every call's
 * messages, bytes and bells, as counted and as computed; and how often calls wake a process. */
#include "tests/rigs/run_on.h"

#include <stdlib.h>

#include "collectives/costs/costs.h"
#include "collectives/mpi/process/shared.h"
#include "collectives/sums/reduce.h"
#include "spmd/base/numbers/dtype.h"

/* ---- the hosts ---- */

enum { MOST = 256 };

/* Host of each process, as SL_TEST_HOSTS has it. */
static int host_of[MOST];
static void read_hosts(int processes) {
    const char *sizes = getenv("SL_TEST_HOSTS");
    int size = processes, left = 0, host = -1;
    for (int i = 0; i < processes; i++, left--) {
        if (left == 0) {
            if (sizes && *sizes) size = (int)strtol(sizes, (char **)&sizes, 10);
            if (sizes && *sizes == ',') sizes++;
            left = size;
            host++;
        }
        host_of[i] = host;
    }
}

/* The layout of a group's members, whose hosts go to AT [size] and first positions to FIRST [size + 1]. */
static struct sl_layout layout_of(const struct sl_group *group, int *at, int *first) {
    struct sl_layout layout = {.members = group->size, .first = first};
    bool seen[MOST] = {false}, apart = false;
    for (int i = 0; i < group->size; i++) {
        at[i] = host_of[sl_group_member(group, i)];
        if (i && at[i] == at[i - 1]) continue;
        apart |= seen[at[i]];
        seen[at[i]] = true;
        first[layout.hosts++] = i;
    }
    first[layout.hosts] = group->size;
    if (apart) layout.hosts = 0;
    return layout;
}

/* ---- long sums ---- */

enum { LENGTHS = 6, CALLS = 3 };
static const size_t lengths[LENGTHS] = {1025, 4096, 16384, 16384 + 5, 100001, 400000};

static float value(int call, int member, size_t i) {
    const uint64_t random = mix((uint64_t)(call * 1000 + member) * 1000003 + i);
    return (float)(int)(random % 2000001 - 1000000) * (random & 1 ? 1e-6f : 1e-3f);
}

/* The sum of the members from FIRST to END, in their order. */
static float sum_in_order(int call, int first, int end, size_t i) {
    float sum = value(call, first, i);
    for (int member = first + 1; member < end; member++) sum += value(call, member, i);
    return sum;
}

/* Whether SUM is the sum in member order, in blocks of SL_SUM_BLOCK, times SCALE. Each coordinate computes every eighth
 * element again, so eight of them compute all. */
static bool is_sum(const float *sum, size_t n, int call, int coordinate, int size, float scale) {
    for (size_t i = (size_t)coordinate % 8; i < n; i += 8) {
        float wanted = sum_in_order(call, 0, size < SL_SUM_BLOCK ? size : SL_SUM_BLOCK, i);
        for (int first = SL_SUM_BLOCK; first < size; first += SL_SUM_BLOCK)
            wanted += sum_in_order(call, first, size < first + SL_SUM_BLOCK ? size : first + SL_SUM_BLOCK, i);
        if (scale != 1) wanted *= scale;
        if (memcmp(&sum[i], &wanted, sizeof wanted) != 0) return false;
    }
    return true;
}

/* Several sums in place are under way at a time; one of them is a mean. */
static int sum_lengths(struct sl_spmd *self, const struct sl_group *group, float *memory) {
    for (int length = 0; length < LENGTHS; length++) {
        const size_t n = lengths[length];
        struct sl_request request[CALLS];
        for (int call = 0; call < CALLS; call++) {
            float *array = memory + (size_t)call * lengths[LENGTHS - 1];
            for (size_t i = 0; i < n; i++) array[i] = value(call, group->rank, i);
            SL_TRY(sl_start(self, &request[call], SL_HERE,
                            call == 1 ? sl_describe_pmean(group, SL_F32, array, array, n)
                                      : sl_describe_psum(group, SL_F32, array, array, n)));
        }
        for (int call = CALLS - 1; call >= 0; call--) SL_TRY(sl_wait(self, &request[call]));
        for (int call = 0; call < CALLS; call++)
            CHECK(self, is_sum(memory + (size_t)call * lengths[LENGTHS - 1], n, call, self->coordinate, group->size,
                               call == 1 ? 1.0f / (float)group->size : 1));
    }
    return SL_OK;
}

static int long_sums_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    float *memory = malloc(CALLS * lengths[LENGTHS - 1] * sizeof *memory);
    struct sl_group all, rows, columns;
    int status = sl_group_axes(self, "*", &all);
    if (!status) status = sl_group_axes(self, "x", &columns);
    if (!status) status = sl_group_axes(self, "y", &rows);
    if (!memory && !status) status = sl_fail(self, SL_FAILED, "no memory");
    if (!status) status = sum_lengths(self, &all, memory);
    if (!status) status = sum_lengths(self, &columns, memory);
    if (!status) status = sum_lengths(self, &rows, memory);
    free(memory);
    return status;
}

static char whole_mesh[40];
static int processes;

static void test_long_sums(void **state) {
    (void)state;
    expect_ok(whole_mesh, long_sums_program, NULL);
}

/* ---- results of calls that hosts pass on ---- */

/* Kinds of calls. If a call cuts or joins, its blocks have N elements. */
enum { KINDS = 10 };
static const enum sl_dtype dtypes[] = {SL_F32, SL_BF16, SL_F16};

static int root_of(const struct sl_group *group, size_t n) { return (int)(n % (size_t)group->size); }

static struct sl_collective describe(const struct sl_group *group, int kind, enum sl_dtype dtype, const void *in,
                                     void *out, size_t n) {
    switch (kind) {
    case 0:
        return sl_describe_pmean(group, dtype, in, out, n);
    case 1:
        return sl_describe_psum_tree(group, dtype, in, out, n);
    case 2:
        return sl_describe_pmax(group, dtype, in, out, n);
    case 3:
        return sl_describe_psum_scatter(group, dtype, in, out, n);
    case 4:
        return sl_describe_psum_scatter_tree(group, dtype, in, out, n);
    case 5: /* blocks of rows of a matrix: N columns of each are one member's */
        return sl_describe_psum_scatter_dim(group, dtype, in, out, 2, (const size_t[]){3, n * (size_t)group->size}, 1);
    case 6:
        return sl_describe_all_gather_dim(group, dtype, in, out, 2, (const size_t[]){3, n}, 1);
    case 7:
        return sl_describe_all_gather(group, dtype, in, out, n);
    case 8:
        return sl_describe_broadcast(group, dtype, in, out, n, root_of(group, n));
    default:
        return sl_describe_all_to_all(group, dtype, in, out, 2, (const size_t[]){(size_t)group->size, n}, 0, 1);
    }
}

/* Elements of a member's input: of one block, or of all; and elements of a block. */
static size_t block_of(int kind, size_t n) { return kind == 5 || kind == 6 ? 3 * n : n; }
static size_t elements_in(int kind, size_t n, int size) {
    return (kind >= 3 && kind <= 5) || kind == 9 ? block_of(kind, n) * (size_t)size : block_of(kind, n);
}

static void fill(enum sl_dtype dtype, void *array, int member, int kind, size_t count) {
    for (size_t i = 0; i < count; i++) sl_store_float(dtype, array, i, value(kind, member, i));
}

/* Index, in each member's input, of number I of this member's results. */
static size_t summand(const struct sl_group *group, int kind, size_t n, size_t i) {
    const size_t me = (size_t)group->rank;
    if (kind == 3 || kind == 4) return me * n + i;
    return kind == 5 ? i / n * n * (size_t)group->size + me * n + i % n : i;
}

/* The member with number I of a result that is not a sum, and its index in the member's input. */
static int gathered_from(const struct sl_group *group, int kind, size_t n, size_t i, size_t *index) {
    const size_t all = n * (size_t)group->size;
    if (kind == 8) *index = i;
    if (kind == 8) return root_of(group, n);
    *index = kind == 6 ? i / all * n + i % n : kind == 9 ? (size_t)group->rank * n + i % n : i % n;
    return (int)(kind == 6 ? i % all / n : i / n);
}

/* Compares a few results with those computed from all members' values in one place. */
static int check_results(struct sl_spmd *self, const struct sl_group *group, int kind, enum sl_dtype dtype, size_t n,
                         const char *out) {
    static const enum sl_reduction reduction[] = {SL_SUM, SL_TREE, SL_MAXIMUM, SL_SUM, SL_TREE, SL_SUM};
    const size_t size = sl_dtype_size(dtype),
                 results = block_of(kind, n) * (kind >= 6 && kind != 8 ? (size_t)group->size : 1);
    for (size_t i = 0; i < results; i += results < 50 ? 1 : 1 + mix(i) % (results / 25)) {
        float summands[MOST], wanted;
        const void *input[MOST];
        size_t index;
        if (kind >= 6) {
            const int member = gathered_from(group, kind, n, i, &index);
            sl_store_float(dtype, &wanted, 0, value(kind, member, index));
        } else {
            for (int member = 0; member < group->size; member++) {
                sl_store_float(dtype, &summands[member], 0, value(kind, member, summand(group, kind, n, i)));
                input[member] = &summands[member];
            }
            sl_reduce(reduction[kind], dtype, kind == 0 ? 1.0f / (float)group->size : 1, 1, group->size, input, 1,
                      (void *[]){&wanted});
        }
        if (memcmp(out + i * size, &wanted, size) != 0)
            return sl_fail(self, SL_CHECK_FAILED, "kind %d of %zu elements of %zu bytes over \"%s\": %zu differs", kind,
                           n, size, group->name, i);
    }
    return SL_OK;
}

static int check_kind(struct sl_spmd *self, const struct sl_group *group, int kind, enum sl_dtype dtype, size_t n,
                      char *in, char *out) {
    fill(dtype, in, group->rank, kind, elements_in(kind, n, group->size));
    SL_TRY(sl_call(self, SL_HERE, describe(group, kind, dtype, in, out, n)));
    SL_TRY(check_results(self, group, kind, dtype, n, out));
    if (kind > 2) return SL_OK;
    SL_TRY(sl_call(self, SL_HERE, describe(group, kind, dtype, in, in, n)));
    return check_results(self, group, kind, dtype, n, in);
}

static int results_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    static const size_t count[] = {1, 17, 120, 1026, 20011, 400009};
    enum { ROOM = 1 << 20 }; /* elements of all blocks together */
    char *in = malloc(3 * sizeof(float) * ROOM), *out = malloc(3 * sizeof(float) * ROOM);
    struct sl_group group[3];
    int status = in && out ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
    for (int g = 0; g < 3 && !status; g++) status = sl_group_axes(self, (const char *[]){"*", "x", "y"}[g], &group[g]);
    for (int i = 0; i < 3 * 6 * 3 * KINDS && !status; i++) {
        const struct sl_group *its = &group[i % 3];
        const int kind = i / 3 % KINDS;
        const size_t n = count[i / 3 / KINDS % 6];
        const enum sl_dtype dtype = dtypes[i / 3 / KINDS / 6];
        const size_t all = n * (kind < 3 || kind == 8 ? 1 : (size_t)its->size);
        if (all <= ROOM / 4 || (kind == 0 && dtype == SL_BF16)) status = check_kind(self, its, kind, dtype, n, in, out);
    }
    free(in);
    free(out);
    return status;
}

static void test_results(void **state) {
    (void)state;
    expect_ok(whole_mesh, results_program, NULL);
}

/* A root that leads its host does not wait for other members: one of them first awaits the root's next message. */
static int early_root_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group all, pair;
    SL_TRY(sl_group_axes(self, "*", &all));
    for (int other = 1; other < all.size; other++) {
        int32_t sent = all.rank == 0 ? 7 + other : 0, got = 0;
        SL_TRY(sl_group_list(self, 2, (const int[]){0, other}, &pair));
        if (all.rank == other) SL_TRY(sl_ppermute(self, &pair, SL_I32, &sent, &got, 1, 1, (const int[][2]){{0, 1}}));
        SL_TRY(sl_broadcast(self, &all, SL_I32, &sent, &sent, 1, 0));
        if (all.rank == 0) SL_TRY(sl_ppermute(self, &pair, SL_I32, &sent, &got, 1, 1, (const int[][2]){{0, 1}}));
        CHECK(self, sent == 7 + other && (all.rank != other || got == sent));
        SL_TRY(sl_group_close(self, &pair));
    }
    return SL_OK;
}

static void test_early_root(void **state) {
    (void)state;
    struct sl_error error;
    if (run_on((struct test_run){.mesh = whole_mesh, .timeout = 5}, early_root_program, &error))
        fail_msg("%s", error.message);
}

/* ---- counts ---- */

enum { ROOM = 64 * 64 * 1030 }; /* elements of an input, and of an output */

static int compare_counts(struct sl_spmd *self, const struct sl_group *group, size_t n, char *in, char *out) {
    static const char *const link[] = {"memory", "host", "network"};
    int at[MOST], first[MOST + 1];
    const struct sl_layout layout = layout_of(group, at, first);
    struct sl_collective call;
    for (int i = 0; make_call(group, i, n, in, out, &call); i++) {
        struct sl_traffic sent[SL_TRAFFIC_KINDS] = {0}, wanted = {0};
        const struct sl_traffic *got = &sent[call.operation];
        if (counted_elements(i, n, (size_t)group->size) > ROOM) continue;
        sl_call_costs(&call, &layout, at, &wanted);
        self->sent = sent;
        const int status = sl_call(self, SL_HERE, call);
        self->sent = NULL;
        if (status) return status;
        for (int l = 0; l < SL_WAYS; l++)
            if (got->messages[l] != wanted.messages[l] || got->bytes[l] != wanted.bytes[l])
                return sl_fail(
                    self, SL_CHECK_FAILED,
                    "case %d of %zu elements over \"%s\": %llu messages of %llu bytes by %s, computed %llu of %llu", i,
                    n, group->name, (unsigned long long)got->messages[l], (unsigned long long)got->bytes[l], link[l],
                    (unsigned long long)wanted.messages[l], (unsigned long long)wanted.bytes[l]);
        if (got->bells != wanted.bells)
            return sl_fail(self, SL_CHECK_FAILED, "case %d of %zu elements over \"%s\": %llu bells, computed %llu", i,
                           n, group->name, (unsigned long long)got->bells, (unsigned long long)wanted.bells);
    }
    return SL_OK;
}

static int counts_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    enum { LONGEST = 40000 };
    static const size_t count[] = {1, 256, 1030, LONGEST};
    char *in = calloc(ROOM, sizeof(float)), *out = calloc(ROOM, sizeof(float));
    struct sl_group group[3];
    int status = in && out ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
    for (int g = 0; g < 3 && !status; g++) status = sl_group_axes(self, (const char *[]){"*", "x", "y"}[g], &group[g]);
    for (int g = 0; g < 3 && !status; g++)
        for (int i = 0; i < 4 && !status; i++) status = compare_counts(self, &group[g], count[i], in, out);
    free(in);
    free(out);
    return status;
}

static void test_counts(void **state) {
    (void)state;
    struct sl_error error;
    const int status = run_on((struct test_run){.mesh = whole_mesh}, counts_program, &error);
    if (status) fail_msg("%s", error.message);
}

/* ---- bells ---- */

enum { BARRIERS = 200 };

/* In a barrier a member is woken once by the last one to come, or by its leader, and once if it wants room. Two members
 * that are last at the same time both ring. */
static int bells_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    SL_TRY(sl_group_axes(self, "*", &group));
    SL_TRY(sl_barrier(self, &group));
    const uint32_t before = sl_mpi_rings();
    for (int i = 0; i < BARRIERS; i++) SL_TRY(sl_barrier(self, &group));
    const uint32_t rings = sl_mpi_rings() - before;
    if (rings <= 3 * BARRIERS) return SL_OK;
    return sl_fail(self, SL_CHECK_FAILED, "%u bells of %d barriers", rings, BARRIERS);
}

/* Between hosts, and in checked mode, bells also announce messages. */
static void test_bells(void **state) {
    (void)state;
    struct sl_error error;
    if (host_of[processes - 1] > 0) return;
    if (run_on((struct test_run){.mesh = whole_mesh}, bells_program, &error)) fail_msg("%s", error.message);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    processes = atoi(getenv("SL_TEST_PROCESSES") ? getenv("SL_TEST_PROCESSES") : "8");
    snprintf(whole_mesh, sizeof whole_mesh, "x=%d,y=2", processes / 2);
    read_hosts(processes);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_sums), cmocka_unit_test(test_results),
                                       cmocka_unit_test(test_early_root), cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_bells)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
