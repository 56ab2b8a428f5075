/* test_late_messages.c - engine mpi, if MPI delivers messages beside data later than their bells. */
#include "tests/rigs/run_on.h"

#include <mpi.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64, LATE_MS = 150, PATIENCE_S = 30, LONGEST_DATA = 512 /* bytes: largest message of these runs' data */ };

/* Replacements of MPI's functions: a message beside data leaves LATE_MS after the call. */
static struct {
    MPI_Request request;
    double leaves; /* on sl_now's clock */
    bool left;
} late[MOST];
static int messages;

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    if (count <= LONGEST_DATA || messages == MOST) /* messages beside data have a verdict's room */
        return PMPI_Isend(data, count, type, to, tag, comm, request);
    const int code = PMPI_Send_init(data, count, type, to, tag, comm, request);
    late[messages].request = *request;
    late[messages++].leaves = sl_now() + 1e-3 * LATE_MS;
    return code;
}

/* Called by all replacements: sends the messages that are due. */
static void let_leave(void) {
    for (int i = 0; i < messages; i++) {
        if (late[i].left || sl_now() < late[i].leaves) continue;
        PMPI_Start(&late[i].request);
        late[i].left = true;
    }
}

int MPI_Test(MPI_Request *request, int *ended, MPI_Status *status) {
    int i = 0;
    let_leave();
    while (i < messages && (*request == MPI_REQUEST_NULL || late[i].request != *request)) i++;
    if (i == messages) return PMPI_Test(request, ended, status);
    *ended = 0;
    if (late[i].left) PMPI_Test(&late[i].request, ended, status);
    if (!*ended) return MPI_SUCCESS;
    *request = MPI_REQUEST_NULL;
    return PMPI_Request_free(&late[i].request);
}

/* Coordinate 0 fails, when the others have returned or wait for it. */
static int failing_program(struct sl_spmd *self, void *arg) {
    const bool waits = *(const bool *)arg;
    const struct timespec while_others_come = {.tv_nsec = 50 * 1000 * 1000L};
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    if (self->coordinate) return waits ? sl_barrier(self, &world) : SL_OK;
    nanosleep(&while_others_come, NULL);
    return sl_fail(self, SL_FAILED, "it fails");
}

static void a_late_verdict_is_heard(void **state) {
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        bool arg = waits;
        alarm(PATIENCE_S); /* in case a run hangs */
        EXPECT_VERDICT(((struct test_run){.mesh = "x=3", .arg = &arg}), failing_program, SL_FAILED,
                       "coordinate 0 (x=0): it fails");
        alarm(0);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_late_verdict_is_heard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
