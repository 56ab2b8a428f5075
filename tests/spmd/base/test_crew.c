/* test_crew.c - every part of every work is done once, by any thread. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <unistd.h>

#include "spmd/base/crew.h"

enum { MOST_PARTS = 300 };

struct work {
    atomic_int done[MOST_PARTS];
    int plain[MOST_PARTS]; /* without atomics: each part has one writer, and the owner sees its result */
    useconds_t delay;      /* of part 0 */
    atomic_int others;     /* parts done by other threads than the owner */
    pthread_t owner;
};

static void do_part(void *arg, int part) {
    struct work *work = arg;
    if (part == 0 && work->delay) usleep(work->delay);
    atomic_fetch_add(&work->done[part], 1);
    work->plain[part] += part + 1;
    if (!pthread_equal(pthread_self(), work->owner)) atomic_fetch_add(&work->others, 1);
}

static void run_and_check(struct sl_crew *crew, int parts, useconds_t delay) {
    struct work work = {.delay = delay, .owner = pthread_self()};
    for (int times = 1; times <= 3; times++) {
        sl_crew_run(crew, parts, do_part, &work);
        for (int part = 0; part < MOST_PARTS; part++) {
            assert_int_equal(atomic_load(&work.done[part]), part < parts ? times : 0);
            assert_int_equal(work.plain[part], part < parts ? times * (part + 1) : 0);
        }
    }
}

static void every_part_is_done_once(void **state) {
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        struct sl_crew *crew = sl_crew_open(threads);
        assert_non_null(crew);
        assert_int_equal(sl_crew_threads(crew), threads);
        for (int parts = 0; parts <= MOST_PARTS; parts = 2 * parts + 1) run_and_check(crew, parts, 0);
        for (int i = 0; i < 300; i++) run_and_check(crew, threads, 0);
        sl_crew_close(crew);
    }
}

static void helpers_that_sleep_wake_up(void **state) {
    (void)state;
    struct sl_crew *crew = sl_crew_open(2);
    struct work work = {.delay = 20000, .owner = pthread_self()};
    assert_non_null(crew);
    usleep(20000); /* far longer than a helper looks out */
    for (int tries = 0; tries < 100 && !atomic_load(&work.others); tries++) {
        sl_crew_run(crew, 2, do_part, &work);
        usleep(5000);
    }
    assert_true(atomic_load(&work.others) > 0);
    run_and_check(crew, 7, 0);
    sl_crew_close(crew);
}

static void a_part_that_takes_long_is_waited_for(void **state) {
    (void)state;
    struct sl_crew *crew = sl_crew_open(3);
    assert_non_null(crew);
    run_and_check(crew, 3, 3000);
    sl_crew_close(crew);
}

static void one_thread_needs_no_crew(void **state) {
    (void)state;
    assert_null(sl_crew_open(0));
    assert_null(sl_crew_open(1));
    assert_int_equal(sl_crew_threads(NULL), 1);
    run_and_check(NULL, 5, 0);
    sl_crew_close(NULL);
    struct sl_crew *crew = sl_crew_open(10 * SL_CREW_MOST);
    assert_true(sl_crew_threads(crew) <= SL_CREW_MOST);
    sl_crew_close(crew); /* without any work */
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(helpers_that_sleep_wake_up),
        cmocka_unit_test(a_part_that_takes_long_is_waited_for),
        cmocka_unit_test(one_thread_needs_no_crew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
