/* test_own_memory.c - the memory that an engine allocates for a coordinate, beside its program's values: at most 64 KB,
 * and 200 bytes for each coordinate of the run; and beside the memory of its groups. Between threads, memory of all is
 * divided by their number. With processes as the engine, SL_TEST_PROCESSES has their number. */
#include "tests/rigs/allocations.h"
#include "tests/rigs/run_on.h"

#include <stdatomic.h>

enum { FIXED = 64 << 10, EACH = 200 };

static _Atomic size_t by_threads; /* bytes */

/* Opens a group of all and makes a call, if ARG is not NULL. */
static int program(struct sl_spmd *self, void *arg) {
    struct sl_group group;
    if (arg) {
        SL_TRY(sl_group_axes(self, "*", &group));
        SL_TRY(sl_barrier(self, &group));
    }
    if (shares_memory()) by_threads += taken;
    return SL_OK;
}

/* Returns the bytes that a run on N coordinates allocates for each; a process's first run also those with which it has
 * joined the others. */
static size_t own_bytes(int n, bool with_group) {
    static bool joined;
    struct sl_error error;
    char mesh[20];
    const size_t before = shares_memory() || joined ? taken : 0;
    joined = true;
    snprintf(mesh, sizeof mesh, "x=%d", n);
    by_threads = 0;
    if (run_on((struct test_run){.mesh = mesh, .arg = with_group ? &n : NULL}, program, &error))
        fail_msg("%s", error.message);
    return shares_memory() ? (by_threads + taken - before) / (size_t)n : taken - before;
}

static void expect_little(int n) {
    const size_t own = own_bytes(n, false), again = own_bytes(n, false), all = own_bytes(n, true);
    printf("# %d coordinates: %zu bytes each, and %zu for a group of all\n", n, own, all - again);
    if (own > FIXED + EACH * (size_t)n) fail_msg("%zu bytes for each of %d coordinates", own, n);
}

static void test_own_memory(void **state) {
    (void)state;
    const char *processes = getenv("SL_TEST_PROCESSES");
    if (!shares_memory()) {
        expect_little(processes ? atoi(processes) : 8);
        return;
    }
    for (int n = 64; n <= (__has_feature(thread_sanitizer) ? 64 : 1024); n *= 4) expect_little(n);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
