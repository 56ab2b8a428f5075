/* stand_still.c WHERE - three processes, the second of which stops itself: "before" the run, "in" it after its last
 * call, "after" it, or nowhere ("never"). Exit status: the run's. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"

static const double seconds = 1; /* timeout */

static void stop_if(const char *where, const char *here, int coordinate) {
    if (coordinate == 1 && !strcmp(where, here)) raise(SIGSTOP);
}

static int program(struct sl_spmd *self, void *where) {
    struct sl_group group;
    float mine = 1, sum = 0;
    int status = sl_group_axes(self, "data", &group);
    if (!status) status = sl_psum(self, &group, SL_F32, &mine, &sum, 1);
    stop_if(where, "in", self->coordinate);
    return status;
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
    if (argc != 2 || sl_mesh_parse(&mesh, "data=3", NULL)) return SL_BAD_INPUT;
    if (sl_engine_open_within(&engine, "mpi", seconds, &error)) return error.status;
    engine.error = &error;
    int status = sl_run(&mesh, &engine, find_coordinate, &coordinate);
    stop_if(argv[1], "before", coordinate);
    if (!status) status = sl_run(&mesh, &engine, program, argv[1]);
    if (status && sl_speaks(&engine)) fprintf(stderr, "stand_still: %s\n", error.message);
    stop_if(argv[1], "after", coordinate);
    return status;
}
