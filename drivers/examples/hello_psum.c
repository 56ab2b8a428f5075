/* hello_psum.c - an example to copy: the smallest program. It teaches the terms mesh, coordinate and group.
 *
 * The function program runs once at every coordinate of the mesh, here as threads of this process. Coordinates that
 * differ in "model" only form a group; psum gives each of them the sum of their values. */
#include <shardloop/shardloop.h>
#include <stdio.h>

static int program(struct sl_spmd *self, void *arg) {
    (void)arg;
    struct sl_group group;
    float mine = (float)self->coordinate, sum = 0;
    SL_TRY(sl_group_axes(self, "model", &group));
    SL_TRY(sl_psum(self, &group, SL_F32, &mine, &sum, 1));
    printf("coordinate %d, data %d, model %d: the sum along model is %g\n", self->coordinate,
           sl_axis_index(self, "data"), sl_axis_index(self, "model"), sum);
    return SL_OK;
}

int main(void) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    struct sl_error error;
    if (sl_mesh_parse(&mesh, "data=2,model=3", &error) || sl_engine_open(&engine, "local", &error))
        return fprintf(stderr, "hello_psum: %s\n", error.message), error.status;
    return sl_run(&mesh, &engine, program, NULL);
}
