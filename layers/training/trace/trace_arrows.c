/* trace_arrows.c - pairs sends with takes. */
#include "layers/training/trace/trace_arrows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A send or a take. Its pipeline, step, direction, pair of stages and microbatch identify a message; passes through the
 * pipeline repeat it in order. */
struct end {
    int pipeline, step, stage /* the earlier stage of the pair */, microbatch;
    bool activation, takes;
    int coordinate;
    double begin, end;
};

int sl_trace_pipeline_of(const struct sl_trace_run *run, int coordinate) {
    const struct sl_mesh *mesh = run->mesh;
    int pipeline = 0;
    for (int a = 0; a < mesh->axes; a++)
        if (strcmp(mesh->axis[a].name, run->pipe_axis) != 0)
            pipeline = pipeline * mesh->axis[a].size + sl_mesh_index(mesh, coordinate, a);
    return pipeline;
}

/* Whether EVENT is an end of a message. */
static bool read_end(const struct sl_trace_event *event, struct end *end) {
    if (event->work != SL_TRACE_COMMUNICATION || event->stage < 0) return false;
    end->takes = !strncmp(event->name, "take ", 5);
    if (!end->takes && strncmp(event->name, "send ", 5) != 0) return false;
    end->activation = !strcmp(event->name + 5, "activation");
    /* An activation goes to the next stage, a gradient to the one before. */
    end->stage = event->stage - (end->takes == end->activation);
    end->step = event->step;
    end->microbatch = event->microbatch;
    end->begin = event->begin;
    end->end = event->end;
    return true;
}

static int compare_keys(const struct end *a, const struct end *b) {
    if (a->pipeline != b->pipeline) return a->pipeline < b->pipeline ? -1 : 1;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->activation != b->activation) return a->activation ? -1 : 1;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    return (a->microbatch > b->microbatch) - (a->microbatch < b->microbatch);
}

/* Orders the ends of one message and of its repetitions: sends first, then by time. */
static int in_order(const void *left, const void *right) {
    const struct end *a = left, *b = right;
    const int keys = compare_keys(a, b);
    if (keys) return keys;
    if (a->takes != b->takes) return a->takes ? 1 : -1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int collect(struct end *list, const struct sl_trace *trace, const struct sl_trace_run *run) {
    int count = 0;
    for (int c = 0; c < run->mesh->size; c++) {
        for (int i = 0; i < trace[c].count; i++) {
            struct end end = {.pipeline = sl_trace_pipeline_of(run, c), .coordinate = c};
            if (read_end(&trace[c].event[i], &end)) list[count++] = end;
        }
    }
    return count;
}

/* Adds an arrow. The taker may have the message before the sender's event ends, but not before it begins. */
static void add_arrow(struct sl_trace_arrows *arrows, const struct end *send, const struct end *take) {
    if (take->end < send->begin) return;
    arrows->arrow[arrows->count++] = (struct sl_trace_arrow){.activation = send->activation,
                                                             .sender = send->coordinate,
                                                             .taker = take->coordinate,
                                                             .sent = send->begin,
                                                             .taken = fmax(take->begin, send->begin)};
}

int sl_trace_arrows_find(struct sl_trace_arrows *arrows, const struct sl_trace *trace, const struct sl_trace_run *run,
                         struct sl_error *error) {
    size_t most = 1;
    for (int c = 0; c < run->mesh->size; c++) most += (size_t)trace[c].count;
    struct end *list = malloc(most * sizeof *list);
    *arrows = (struct sl_trace_arrows){.arrow = malloc(most * sizeof *arrows->arrow)};
    if (!list || !arrows->arrow) {
        free(list);
        return sl_error_set(error, SL_FAILED, "no memory for the messages in a trace");
    }
    const int count = collect(list, trace, run);
    qsort(list, (size_t)count, sizeof *list, in_order);
    for (int first = 0, take, next; first < count; first = next) {
        for (take = first; take < count && !list[take].takes && !compare_keys(&list[take], &list[first]);) take++;
        for (next = take; next < count && !compare_keys(&list[next], &list[first]);) next++;
        for (int i = 0; first + i < take && take + i < next; i++) add_arrow(arrows, &list[first + i], &list[take + i]);
    }
    free(list);
    return SL_OK;
}
