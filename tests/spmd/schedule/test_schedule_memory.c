/* test_schedule_memory.c - memory of a table with all derived data, messages included: always less than 64 bytes
 * for each compute action. The linker redirects calls of malloc and its like to the functions below, which count. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spmd/schedule/registry.h"
#include "spmd/schedule/simulate.h"

enum { MOST_BYTES = 64 };

static size_t now, most;

static void *note(void *memory) {
    now += malloc_usable_size(memory);
    if (now > most) most = now;
    return memory;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t bytes) { return note(__real_malloc(bytes)); }
void *__wrap_calloc(size_t count, size_t size) { return note(__real_calloc(count, size)); }
void *__wrap_realloc(void *memory, size_t bytes) {
    const size_t before = malloc_usable_size(memory);
    void *moved = __real_realloc(memory, bytes);
    if (moved) now -= before;
    return moved ? note(moved) : NULL;
}
void __wrap_free(void *memory) {
    now -= malloc_usable_size(memory);
    __real_free(memory);
}

/* ---- tables ---- */

struct trial {
    const struct sl_schedule_kind *kind;
    int ranks, microbatches, group, cores;
    bool sharded;
};

static long long count_compute(const struct sl_schedule *schedule) {
    long long count = 0;
    for (int r = 0; r < schedule->ranks; r++)
        for (int i = 0; i < schedule->rank[r].count; i++)
            count += schedule->rank[r].action[i].kind <= SL_WEIGHT_GRADIENT;
    return count;
}

/* Returns the peak memory in bytes per compute action while a table is made, lowered and simulated. */
static double take(const struct trial *trial) {
    const struct sl_stage_costs stage = {1, 1, 1, 1, 1, 1};
    const struct sl_costs costs = {
        .count = 1, .stage = &stage, .overlap = true, .group = trial->group, .cores = trial->cores};
    struct sl_schedule schedule;
    struct sl_simulation simulation;
    struct sl_error error = {0};
    int slots;
    const size_t before = most = now;
    if (sl_schedule_generate(&schedule, trial->kind, trial->ranks, trial->kind->default_loops, trial->microbatches,
                             &error))
        fail_msg("%s", error.message);
    schedule.sharded = trial->sharded;
    assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
    assert_int_equal(sl_schedule_slots(&schedule, 2, &slots, &error), SL_OK);
    assert_int_equal(sl_schedule_time(&schedule, &costs, &simulation, &error), SL_OK);
    const double bytes = (double)(most - before) / (double)count_compute(&schedule);
    sl_simulation_free(&simulation);
    sl_schedule_free(&schedule);
    assert_int_equal(now, before);
    return bytes;
}

static void expect_little(const struct trial *trial, const char *how) {
    const double bytes = take(trial);
    print_message("# %s%s, %d ranks, %d microbatches: %.1f bytes\n", trial->kind->name, how, trial->ranks,
                  trial->microbatches, bytes);
    if (!(bytes < MOST_BYTES)) fail_msg("%s%s takes %.1f bytes an action", trial->kind->name, how, bytes);
}

/* dualpipev has twice as many microbatches as ranks. */
static void actions_take_few_bytes(void **state) {
    (void)state;
    for (int i = 0; sl_schedule_kind_at(i); i++) {
        struct trial trial = {.kind = sl_schedule_kind_at(i), .ranks = 128, .microbatches = 256};
        expect_little(&trial, "");
        trial.group = 1;
        expect_little(&trial, ", weight gradients apart");
    }
}

static void so_do_those_of_sharded_tables(void **state) {
    (void)state;
    for (int i = 0; sl_schedule_kind_at(i); i++) {
        const struct trial trial = {.kind = sl_schedule_kind_at(i), .ranks = 128, .microbatches = 256, .sharded = true};
        expect_little(&trial, ", sharded");
    }
}

static void so_do_those_that_share_cores(void **state) {
    (void)state;
    for (int i = 0; sl_schedule_kind_at(i); i++) {
        const struct trial trial = {
            .kind = sl_schedule_kind_at(i), .ranks = 16, .microbatches = 1024, .cores = 4, .group = 256};
        expect_little(&trial, ", 4 cores");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions_take_few_bytes),
        cmocka_unit_test(so_do_those_of_sharded_tables),
        cmocka_unit_test(so_do_those_that_share_cores),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
