/* test_hosts.c - calls of processes on several hosts, which pretend_hosts.c makes up: long sums, and every call's
 * messages, bytes and bells, as counted and as computed. */
#include "tests/rigs/run_on.h"

#include <stdlib.h>

#include "collectives/costs/costs.h"

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

/* Whether SUM is the sum in member order, times SCALE. */
static bool is_sum(const float *sum, size_t n, int call, int size, float scale) {
    for (size_t i = 0; i < n; i++) {
        float wanted = value(call, 0, i);
        for (int member = 1; member < size; member++) wanted += value(call, member, i);
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
            CHECK(self, is_sum(memory + (size_t)call * lengths[LENGTHS - 1], n, call, group->size,
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

/* ---- counts ---- */

enum { CASES = 14 };

/* Case number I of a call over GROUP; false: there are no more. */
static bool make_call(const struct sl_group *group, int i, size_t n, char *in, char *out, struct sl_collective *call) {
    static int pairs[MOST][2];
    for (int k = 0; k < group->size; k++) pairs[k][0] = k, pairs[k][1] = (k + 1) % group->size;
    const struct sl_collective cases[CASES] = {
        sl_describe_barrier(group),
        sl_describe_ppermute(group, SL_F32, in, out, n, group->size, (const int(*)[2])pairs),
        sl_describe_psum(group, SL_F32, in, out, n),
        sl_describe_pmean(group, SL_BF16, in, out, n),
        sl_describe_pmax(group, SL_F32, in, out, n),
        sl_describe_psum(group, SL_I32, in, out, n),
        sl_describe_psum_tree(group, SL_F32, in, out, n),
        sl_describe_psum_scatter(group, SL_F32, in, out, n),
        sl_describe_psum_scatter_tree(group, SL_F32, in, out, n),
        sl_describe_all_gather(group, SL_F32, in, out, n),
        sl_describe_all_to_all(group, SL_F32, in, out, 2,
                               (const size_t[]){(size_t)group->size, n * (size_t)group->size}, 0, 1),
        sl_describe_broadcast(group, SL_F32, in, out, n, group->size - 1),
        sl_describe_gather(group, SL_F32, in, out, n, 0),
        sl_describe_psum(group, SL_F32, out, out, 0),
    };
    if (i < CASES) *call = cases[i];
    return i < CASES;
}

static int compare_counts(struct sl_spmd *self, const struct sl_group *group, size_t n, char *in, char *out) {
    static const char *const link[] = {"memory", "host", "network"};
    int at[MOST], first[MOST + 1];
    const struct sl_layout layout = layout_of(group, at, first);
    struct sl_collective call;
    for (int i = 0; make_call(group, i, n, in, out, &call); i++) {
        struct sl_traffic sent[SL_TRAFFIC_KINDS] = {0}, wanted = {0};
        const struct sl_traffic *got = &sent[call.operation];
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
    const size_t size = (size_t)self->mesh->size;
    char *in = calloc(size * size, 4 * 1030), *out = calloc(size * size, 4 * 1030);
    struct sl_group group[3];
    int status = in && out ? SL_OK : sl_fail(self, SL_FAILED, "no memory");
    for (int g = 0; g < 3 && !status; g++) status = sl_group_axes(self, (const char *[]){"*", "x", "y"}[g], &group[g]);
    for (int g = 0; g < 3 && !status; g++)
        for (int i = 0; i < 4 && !status; i++)
            if (count[i] * (size_t)group[g].size * (size_t)group[g].size <= size * size * 1030)
                status = compare_counts(self, &group[g], count[i], in, out);
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

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    processes = atoi(getenv("SL_TEST_PROCESSES") ? getenv("SL_TEST_PROCESSES") : "8");
    snprintf(whole_mesh, sizeof whole_mesh, "x=%d,y=2", processes / 2);
    read_hosts(processes);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_sums), cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
