/* test_long_chain.c - engine mpi's looks at its neighbours, whose notes and ends this program makes up: a chain of
 * waits as long as a large run; ended processes of which the run needs one. No process of MPI is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/mpi/process/board.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"
#include "collectives/mpi/word.h"

enum { COORDINATES = 1024, NUMBER = 7, STACK = 256 * 1024 };

bool __wrap_sl_mpi_ask_neighbour(int rank, struct sl_mpi_note *note, double *written);
bool __wrap_sl_mpi_is_neighbour(int rank);
bool __wrap_sl_mpi_is_gone(int rank);

/* ---- a chain ---- */

/* Each coordinate waits for the next one, the last one for the first. */
bool __wrap_sl_mpi_ask_neighbour(int rank, struct sl_mpi_note *note, double *written) {
    *note = (struct sl_mpi_note){
        .run = NUMBER, .state = 1, .peer = (rank + 1) % COORDINATES, .number = 1, .place = "take on a channel"};
    *written = sl_now();
    return true;
}

static bool never(void *of) {
    (void)of;
    return false;
}
static int second(void *of) {
    (void)of;
    return 1;
}

/* Looks until the run has ended. A chain that took stack for each link would not fit. */
static void *look(void *of) {
    struct sl_mpi_run *run = of;
    const struct timespec pause = {.tv_nsec = 1000000};
    const double end = sl_now() + 20;
    while (!run->status && sl_now() < end) {
        sl_mpi_look(run);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void a_long_circle_is_told(void **state) {
    (void)state;
    static struct sl_mpi_link chain[COORDINATES];
    static char places[SL_MPI_PLACES][SL_MPI_PLACE];
    uint64_t told[COORDINATES / 64] = {0}, quiet[COORDINATES / 64] = {0};
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, "data=1024", NULL), SL_OK);
    const struct sl_engine engine = {.timeout = 0.05};
    struct sl_mpi_wait wait = {never, second, NULL, false};
    struct sl_mpi_run run = {.spmd = {.mesh = &mesh, .engine = &engine},
                             .mesh = &mesh,
                             .engine = &engine,
                             .number = NUMBER,
                             .wait = &wait,
                             .waits = 1,
                             .watch = {.peer = -1},
                             .chain = chain,
                             .place_called = places,
                             .told = told,
                             .quiet = quiet,
                             .absent = -1};
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    assert_int_equal(pthread_attr_setstacksize(&small, STACK), 0);
    assert_int_equal(pthread_create(&thread, &small, look, &run), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
    assert_int_equal(run.status, SL_FAILED);
    assert_int_equal(run.watch.count, COORDINATES);
    assert_non_null(strstr(run.verdict.message, "deadlock: 1024 coordinates wait for one another"));
    assert_non_null(strstr(run.verdict.message, "1023 coordinates (data=1-1023) wait for"));
}

/* ---- ended processes ---- */

static bool gone[8];
bool __wrap_sl_mpi_is_neighbour(int rank) {
    (void)rank;
    return true;
}
bool __wrap_sl_mpi_is_gone(int rank) { return gone[rank]; }

/* The rank found once the last result is old. */
static int find_gone(void) {
    const struct timespec tick = {.tv_nsec = (SL_MPI_TICK_MS + 1) * 1000000L};
    nanosleep(&tick, NULL);
    return sl_mpi_find_gone();
}

static void a_spare_process_hides_nobody(void **state) {
    (void)state;
    sl_mpi_process()->size = 8;
    assert_int_equal(find_gone(), -1);
    gone[7] = true;
    assert_int_equal(find_gone(), 7);
    gone[2] = true;
    assert_int_equal(find_gone(), 2);
    assert_int_equal(find_gone(), 2);
    sl_mpi_process()->size = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_circle_is_told),
        cmocka_unit_test(a_spare_process_hides_nobody),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
