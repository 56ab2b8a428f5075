/* stand_still.c WHERE [TIMEOUT] - runs three processes; the second stops itself at WHERE: "before" the run; "late" in
 * it, when others wait for it and have heard from it; "in" it after its last call; "after" it; or "never". "lost": only
 * the first process is in the run, and is killed while the others look on. "unwatched": no process may start a thread,
 * so there is no watchdog; "unwatched-end": the same once the run is over. TIMEOUT: 1 second. The exit status is the
 * run's. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"

static void stop_if(const char *where, const char *here, int coordinate) {
    if (coordinate == 1 && !strcmp(where, here)) raise(SIGSTOP);
}

/* From here on a thread's stack would need as much as all addresses. */
static void allow_no_threads(void) {
    pthread_attr_t attributes;
    pthread_getattr_default_np(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 47);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

/* Computes for half a second, and reports progress to the others meanwhile. */
static int linger(struct sl_spmd *self) {
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int i = 0; i < 100; i++) {
        SL_TRY(sl_progress(self));
        nanosleep(&pause, NULL);
    }
    return SL_OK;
}

static int program(struct sl_spmd *self, void *where) {
    struct sl_group group;
    float mine = 1, sum = 0;
    int status = sl_group_axes(self, "data", &group);
    if (!status && self->coordinate == 1) status = linger(self);
    stop_if(where, "late", self->coordinate);
    if (!status) status = sl_psum(self, &group, SL_F32, &mine, &sum, 1);
    stop_if(where, "in", self->coordinate);
    return status;
}

static int be_lost(struct sl_spmd *self, void *arg) {
    (void)arg;
    SL_TRY(linger(self));
    return raise(SIGKILL);
}

/* The coordinate of the process, before there is a run to ask. */
static int find_coordinate(struct sl_spmd *self, void *coordinate) {
    *(int *)coordinate = self->coordinate;
    return SL_OK;
}

int main(int argc, char **argv) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    struct sl_error error = {0};
    int coordinate = 0;
    const bool lost = argc == 2 && !strcmp(argv[1], "lost");
    const double seconds = argc == 3 ? atof(argv[2]) : 1;
    if (argc < 2 || sl_mesh_parse(&mesh, lost ? "data=1" : "data=3", NULL)) return SL_BAD_INPUT;
    if (!strcmp(argv[1], "unwatched")) allow_no_threads();
    if (sl_engine_open_within(&engine, "mpi", seconds, &error)) {
        fprintf(stderr, "stand_still: %s\n", error.message);
        return error.status;
    }
    engine.error = &error;
    engine.spare = lost;
    int status = sl_run(&mesh, &engine, find_coordinate, &coordinate);
    stop_if(argv[1], "before", coordinate);
    if (!status) status = sl_run(&mesh, &engine, lost ? be_lost : program, argv[1]);
    if (status && sl_speaks(&engine)) fprintf(stderr, "stand_still: %s\n", error.message);
    stop_if(argv[1], "after", coordinate);
    if (!strcmp(argv[1], "unwatched-end")) allow_no_threads();
    return status;
}
