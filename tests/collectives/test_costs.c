/* test_costs.c - messages, bytes and bells of every call between threads, as counted and as computed: of each member in
 * groups without gates, and of all members together in larger ones, since any of these may be the last to arrive. */
#include "tests/rigs/run_on.h"

#include "collectives/costs/costs.h"

enum { COUNTS = 3 };
static const size_t count[COUNTS] = {1, 256, 1030};

/* Counted traffic minus computed traffic, summed over the members, by call. */
static _Atomic int64_t messages[COUNTS][COUNTED_CALLS], bytes[COUNTS][COUNTED_CALLS], bells[COUNTS][COUNTED_CALLS];

enum { ROOM = 70000 }; /* elements of an input, and of an output */

static int count_calls(struct sl_spmd *self, const struct sl_group *group, int at, char *in, char *out) {
    struct sl_collective call;
    for (int i = 0; make_call(group, i, count[at], in, out, &call); i++) {
        struct sl_traffic sent[SL_TRAFFIC_KINDS] = {0}, wanted = {0};
        const struct sl_traffic *got = &sent[call.operation];
        if (counted_elements(i, count[at], (size_t)group->size) > ROOM) continue;
        sl_thread_call_costs(&call, &wanted);
        self->sent = sent;
        const int status = sl_call(self, SL_HERE, call);
        self->sent = NULL;
        if (status) return status;
        messages[at][i] += (int64_t)(got->messages[SL_WAY_MEMORY] - wanted.messages[SL_WAY_MEMORY]);
        bytes[at][i] += (int64_t)(got->bytes[SL_WAY_MEMORY] - wanted.bytes[SL_WAY_MEMORY]);
        bells[at][i] += (int64_t)(got->bells - wanted.bells);
        CHECK(self, got->messages[SL_WAY_HOST] + got->messages[SL_WAY_NETWORK] == 0);
        if (group->size > SL_FEW_THREADS) continue;
        CHECK(self, got->messages[SL_WAY_MEMORY] == wanted.messages[SL_WAY_MEMORY]);
        CHECK(self, got->bytes[SL_WAY_MEMORY] == wanted.bytes[SL_WAY_MEMORY] && got->bells == wanted.bells);
    }
    return SL_OK;
}

static int counts_program(struct sl_spmd *self, void *arg) {
    (void)arg;
    char *in = calloc(ROOM, sizeof(float)), *out = calloc(ROOM, sizeof(float));
    struct sl_group group;
    int status = in && out ? sl_group_axes(self, "*", &group) : sl_fail(self, SL_FAILED, "no memory");
    for (int at = 0; at < COUNTS && !status; at++) status = count_calls(self, &group, at, in, out);
    free(in);
    free(out);
    return status;
}

static void expect_computed(const char *mesh) {
    expect_ok(mesh, counts_program, NULL);
    for (int at = 0; at < COUNTS; at++)
        for (int i = 0; i < COUNTED_CALLS; i++)
            if (messages[at][i] || bytes[at][i] || bells[at][i])
                fail_msg("case %d of %zu elements on %s: %lld messages, %lld bytes and %lld bells more than computed",
                         i, count[at], mesh, (long long)messages[at][i], (long long)bytes[at][i],
                         (long long)bells[at][i]);
}

static void eight_threads(void **state) {
    (void)state;
    expect_computed("x=8");
}
static void sixty_four_threads(void **state) {
    (void)state;
    expect_computed("x=64");
}
static void more_threads_than_a_block(void **state) {
    (void)state;
    expect_computed(TEST_WATCHES_THREADS ? "x=70" : "x=256");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(eight_threads), cmocka_unit_test(sixty_four_threads),
                                       cmocka_unit_test(more_threads_than_a_block)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
