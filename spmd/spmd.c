/* spmd.c - starts a run, and answers a program's questions about its coordinate. */
#include "spmd/spmd.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spmd/device/device.h"
#include "spmd/engine.h"

bool sl_speaks(const struct sl_engine *engine) {
    return !engine || !engine->table || !engine->table->speaks || engine->table->speaks();
}

bool sl_reports(const struct sl_engine *engine) {
    return engine && engine->table && engine->table->reports ? engine->table->reports() : sl_speaks(engine);
}

int sl_report(const struct sl_engine *engine, const struct sl_error *error) {
    if (engine && engine->error) {
        if (engine->error != error) *engine->error = *error;
    } else if (sl_reports(engine)) {
        fprintf(stderr, "shardloop: %s\n", error->message);
    }
    return error->status;
}

/* Checks a run before its start. */
static int check_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program,
                     struct sl_error *error) {
    if (!engine || !engine->table) return sl_error_set(error, SL_BAD_INPUT, "run: no engine is open");
    if (engine->table->missing) {
        return sl_error_set(error, SL_BAD_INPUT, "engine \"%s\" is not in this build: configure with -D%s=ON",
                            engine->table->name, engine->table->missing);
    }
    if (!(engine->timeout > 0)) {
        return sl_error_set(error, SL_BAD_INPUT, "run: the engine's timeout of %g is not a number of seconds above 0",
                            engine->timeout);
    }
    if (!mesh || !program) return sl_error_set(error, SL_BAD_INPUT, "run: there is no %s", mesh ? "program" : "mesh");
    return sl_mesh_check(mesh, error);
}

/* ---- lists of coordinates ---- */

struct list {
    struct list *next;
    int count, coordinate[];
};

/* The lists of a run, shared by its coordinates. */
struct sl_lists {
    pthread_mutex_t lock;
    struct list *first;
};

static struct list *new_list(struct sl_lists *lists, int count, const int *coordinates) {
    const size_t bytes = (size_t)count * sizeof *coordinates;
    struct list *list = malloc(sizeof *list + bytes);
    if (!list) return NULL;
    *list = (struct list){lists->first, count};
    memcpy(list->coordinate, coordinates, bytes);
    return lists->first = list;
}

const int *sl_list_kept(struct sl_spmd *self, int count, const int *coordinates) {
    struct sl_lists *lists = self->lists;
    pthread_mutex_lock(&lists->lock);
    struct list *list = lists->first;
    while (list && (list->count != count || memcmp(list->coordinate, coordinates, (size_t)count * sizeof *coordinates)))
        list = list->next;
    if (!list) list = new_list(lists, count, coordinates);
    pthread_mutex_unlock(&lists->lock);
    return list ? list->coordinate : NULL;
}

static void free_lists(struct sl_lists *lists) {
    while (lists->first) {
        struct list *list = lists->first;
        lists->first = list->next;
        free(list);
    }
    pthread_mutex_destroy(&lists->lock);
}

/* ---- running ---- */

struct placed {
    sl_program *program;
    void *arg;
    struct sl_lists lists;
};

/* Runs the program on its coordinate's device. */
static int run_placed(struct sl_spmd *self, void *arg) {
    struct placed *placed = arg;
    self->lists = &placed->lists;
    SL_TRY(sl_device.open(self->device, &self->queue, &self->error));
    int status = placed->program(self, placed->arg);
    const int settled = sl_device.settle(self->error.status ? NULL : &self->error); /* if the program has failed, its
                                                                                       own error stays */
    sl_device.close();
    return status ? status : settled;
}

int sl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct sl_error error = {0};
    struct placed placed = {.program = program, .arg = arg};
    if (check_run(mesh, engine, program, &error) || sl_device.check(&error)) return sl_report(engine, &error);
    pthread_mutex_init(&placed.lists.lock, NULL);
    const int status = engine->table->run(mesh, engine, run_placed, &placed);
    free_lists(&placed.lists);
    return status;
}

int sl_axis_index(const struct sl_spmd *self, const char *axis) {
    const int number = sl_mesh_find_axis(self->mesh, axis);
    return number < 0 ? 0 : sl_mesh_index(self->mesh, self->coordinate, number);
}

int sl_axis_size(const struct sl_spmd *self, const char *axis) { return sl_mesh_axis_size(self->mesh, axis); }

int sl_fail(struct sl_spmd *self, int status, const char *format, ...) {
    if (self->error.status) return status;
    char line[sizeof self->error.message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return sl_error_set(&self->error, status, "%s", line);
}

double sl_cpu_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

double sl_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
