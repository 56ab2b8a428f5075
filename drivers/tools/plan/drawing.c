/* drawing.c - draws pipelines, and prints their costs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/plan/plan.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/drawing/page.h"

enum { WIDEST = 400 }; /* most iterations of a drawn table */

/* ---- as text ---- */

static int print_table(const struct sl_output *output, const struct plan_pipeline *pipeline, struct sl_error *error) {
    const struct sl_schedule *schedule = &pipeline->schedule;
    if (pipeline->iterations > WIDEST) {
        fprintf(output->stream, "%d iterations: too many to draw\n", pipeline->iterations);
        return SL_OK;
    }
    const int status = output->columns ? sl_schedule_print_folded(schedule, output->columns, true, output->stream)
                                       : sl_schedule_print_table(schedule, output->stream);
    if (output->columns) sl_schedule_print_legend(schedule, true, output->stream);
    return status ? sl_error_set(error, status, "no memory to print") : SL_OK;
}

static void print_phases(FILE *file, const struct plan_pipeline *pipeline) {
    const int begin = pipeline->ramp_up, end = begin + pipeline->main;
    if (pipeline->main)
        fprintf(file, "ramp-up: %d iterations, main phase: %d (from iteration %d), ramp-down: %d\n\n", begin,
                pipeline->main, begin, pipeline->iterations - end);
    else
        fprintf(file, "no main phase: in no iteration do all ranks work\n\n");
}

/* ---- as JSON ---- */

static json_t *json_cell(const struct plan_pipeline *pipeline, int rank, const struct sl_action *action) {
    char text[40];
    snprintf(text, sizeof text, "%d%c%d", sl_schedule_stage(&pipeline->schedule, rank, action->loop),
             sl_action_letter(action->kind), action->microbatch);
    return json_pack("{s:s, s:i, s:f, s:f}", "action", text, "iteration", action->time, "begin",
                     pipeline->begin[action->time], "end", pipeline->end[action->time]);
}

/* Prints a line per rank: its actions, with iteration, begin and end. */
static int print_json_table(const struct sl_output *output, const struct plan_pipeline *pipeline,
                            struct sl_error *error) {
    for (int r = 0; r < pipeline->schedule.ranks; r++) {
        json_t *cells = json_array();
        for (int i = 0; i < pipeline->schedule.rank[r].count; i++)
            json_array_append_new(cells, json_cell(pipeline, r, &pipeline->schedule.rank[r].action[i]));
        json_t *object = json_pack("{s:s, s:s, s:i, s:o}", "section", "table", "pipeline", pipeline->schedule.name,
                                   "rank", r, "actions", cells);
        SL_TRY(sl_json_print(output->stream, output->name, object, error));
    }
    return SL_OK;
}

/* ---- the section ---- */

static const struct plan_field field[] = {{"pipeline", "pipeline", -16, PLAN_FIELD_TEXT},
                                          {"loops", "loops", 5, PLAN_FIELD_COUNT},
                                          {"iterations", "iterations", 10, PLAN_FIELD_COUNT},
                                          {"ramp_up", "ramp-up", 7, PLAN_FIELD_COUNT},
                                          {"main", "main", 6, PLAN_FIELD_COUNT},
                                          {"ramp_down", "ramp-down", 9, PLAN_FIELD_COUNT},
                                          {"time", "time ms", 8, PLAN_FIELD_REAL},
                                          {"ramp_up_time", "until main", 10, PLAN_FIELD_REAL},
                                          {"bubble", "bubble", 7, PLAN_FIELD_SHARE},
                                          {"kept", "kept", 5, PLAN_FIELD_COUNT},
                                          {"exchanges", "exchanges", 9, PLAN_FIELD_COUNT},
                                          {"messages", "messages", 8, PLAN_FIELD_COUNT},
                                          {"bytes", "moved", 11, PLAN_FIELD_BYTES},
                                          {"latency", "first result", 12, PLAN_FIELD_REAL},
                                          {0}};

/* Returns the time when the first microbatch has passed all stages (and back, in training). */
static double latency_of(const struct plan_pipeline *pipeline) {
    double latency = 0;
    for (int r = 0; r < pipeline->schedule.ranks; r++) {
        for (int i = 0; i < pipeline->schedule.rank[r].count; i++) {
            const struct sl_action *action = &pipeline->schedule.rank[r].action[i];
            if (action->microbatch == 0) latency = fmax(latency, pipeline->end[action->time]);
        }
    }
    return latency;
}

static int add_costs(struct plan_rows *rows, const struct plan_job *job, const struct plan_pipeline *pipeline,
                     struct sl_error *error) {
    const double message =
        (double)job->microbatch_size * job->sequence * job->hidden * plan_element_bytes(job->precision);
    const bool ends = pipeline->main > 0;
    const union plan_value value[] = {{.text = pipeline->schedule.name},
                                      {.number = pipeline->schedule.loops},
                                      {.number = pipeline->iterations},
                                      {.number = ends ? pipeline->ramp_up : NAN},
                                      {.number = ends ? pipeline->main : NAN},
                                      {.number = ends ? pipeline->ramp_down : NAN},
                                      {.number = pipeline->time},
                                      {.number = ends ? pipeline->begin[pipeline->ramp_up] : NAN},
                                      {.number = pipeline->bubble},
                                      {.number = pipeline->kept},
                                      {.number = pipeline->exchanges},
                                      {.number = pipeline->messages},
                                      {.number = pipeline->messages * message},
                                      {.number = latency_of(pipeline)}};
    return plan_rows_add(rows, value, error);
}

static int print_pipeline(const struct plan_rows *rows, const struct plan_pipeline *pipeline, struct sl_error *error) {
    if (rows->json) return print_json_table(rows->output, pipeline, error);
    fprintf(rows->output->stream, "%s\n", pipeline->schedule.name);
    SL_TRY(print_table(rows->output, pipeline, error));
    print_phases(rows->output->stream, pipeline);
    return SL_OK;
}

enum { MOST_PIPELINES = 8 };

/* Lists the job's pipeline, or else the article's; returns their number. */
static int list_pipelines(const struct plan_job *job, const char **name) {
    int count = 0;
    if (job->pipeline)
        name[count++] = job->pipeline;
    else
        for (; plan_pipeline_name(count); count++) name[count] = plan_pipeline_name(count);
    return count;
}

int plan_print_pipelines(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    const char *name[MOST_PIPELINES];
    struct plan_pipeline pipeline[MOST_PIPELINES] = {0};
    const int count = list_pipelines(job, name);
    int status = SL_OK;
    plan_rows_note(
        rows,
        "Pipelines: %d ranks, %d microbatches; of a rank a forward takes %g ms, a backward %g ms; an exchange "
        "%g ms\n\n",
        job->stages, job->microbatches, job->forward, job->backward, job->exchange);
    for (int i = 0; i < count && status == SL_OK; i++) {
        status = plan_pipeline_make(&pipeline[i], job, name[i], error);
        if (status == SL_OK) status = print_pipeline(rows, &pipeline[i], error);
    }
    if (status == SL_OK)
        plan_rows_begin(rows, "pipeline",
                        "All ranks work in step: an iteration takes as long as its longest cell, and states are\n"
                        "exchanged as late as they can be. In the driver schedule a rank waits only for what it\n"
                        "reads, so that interleaved has a smaller bubble there.",
                        field);
    for (int i = 0; i < count && status == SL_OK; i++) status = add_costs(rows, job, &pipeline[i], error);
    if (status == SL_OK)
        plan_rows_note(rows,
                       "\nkept: most microbatches whose activations a rank keeps; moved: activations and gradients, "
                       "all messages together\n");
    for (int i = 0; i < count; i++) plan_pipeline_free(&pipeline[i]);
    return status;
}

/* ---- drawings ---- */

static int count_actions(const struct sl_schedule *schedule) {
    int count = 0;
    for (int r = 0; r < schedule->ranks; r++) count += schedule->rank[r].count;
    return count;
}

/* Adds the events in time; the actions of a pair follow each other. */
static void add_events(const struct plan_job *job, const struct plan_pipeline *pipeline, int rank,
                       struct sl_simulation *simulation) {
    const struct sl_schedule *schedule = &pipeline->schedule;
    int time = -1;
    double now = 0;
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        now = action->time == time ? now : pipeline->begin[action->time];
        time = action->time;
        const double end = now + plan_pipeline_cost(pipeline, job, rank, action->kind);
        simulation->event[simulation->count++] =
            (struct sl_event){.kind = action->kind,
                              .rank = rank,
                              .stage = sl_schedule_stage(schedule, rank, action->loop),
                              .loop = action->loop,
                              .microbatch = action->microbatch,
                              .microbatches = 1,
                              .begin = now,
                              .end = end};
        now = end;
    }
}

static int lay_out(const struct plan_job *job, const struct plan_pipeline *pipeline, struct sl_simulation *simulation) {
    *simulation =
        (struct sl_simulation){.ranks = job->stages,
                               .span = pipeline->time,
                               .step = pipeline->time,
                               .bubble = pipeline->bubble,
                               .event = calloc((size_t)count_actions(&pipeline->schedule), sizeof *simulation->event)};
    if (!simulation->event) return SL_FAILED;
    for (int r = 0; r < job->stages; r++) add_events(job, pipeline, r, simulation);
    return SL_OK;
}

/* Draws the pipelines as layers, one below the other. */
static void draw_all(const struct plan_job *job, int count, const struct plan_pipeline *pipeline,
                     const struct sl_simulation *simulation, sl_timeline_writer *write, FILE *file) {
    struct sl_timeline_layer layer[MOST_PIPELINES];
    char heading[MOST_PIPELINES][160], subtitle[240];
    struct sl_timeline timeline = {.title = "pipelines", .subtitle = subtitle, .layers = count, .layer = layer};
    snprintf(subtitle, sizeof subtitle,
             "%d rank%s, %d microbatch%s; of a rank a forward takes %g ms, a backward %g ms; ranks work in step, "
             "unlike those of the driver schedule",
             job->stages, job->stages > 1 ? "s" : "", job->microbatches, job->microbatches > 1 ? "es" : "",
             job->forward, job->backward);
    for (int i = 0; i < count; i++) {
        const int used = snprintf(heading[i], sizeof heading[i], "%s: %.6g ms, bubble %.1f %%",
                                  pipeline[i].schedule.name, pipeline[i].time, 100 * pipeline[i].bubble);
        if (pipeline[i].kept) /* the pipeline trains */
            snprintf(heading[i] + used, sizeof heading[i] - (size_t)used, ", keeps %d", pipeline[i].kept);
        timeline.end = fmax(timeline.end, pipeline[i].time);
        layer[i] = (struct sl_timeline_layer){.schedule = &pipeline[i].schedule,
                                              .heading = heading[i],
                                              .idle = simulation[i].span,
                                              .count = simulation[i].count,
                                              .event = simulation[i].event};
    }
    write(&timeline, file);
}

int plan_draw(const struct sl_output *output, const struct plan_job *job, bool page, struct sl_error *error) {
    const char *name[MOST_PIPELINES];
    struct plan_pipeline pipeline[MOST_PIPELINES] = {0};
    struct sl_simulation simulation[MOST_PIPELINES] = {0};
    const int count = list_pipelines(job, name);
    int status = SL_OK;
    for (int i = 0; i < count && status == SL_OK; i++) {
        status = plan_pipeline_make(&pipeline[i], job, name[i], error);
        if (status == SL_OK && lay_out(job, &pipeline[i], &simulation[i]))
            status = sl_error_set(error, SL_FAILED, "no memory to draw");
    }
    if (status == SL_OK && job->pipeline)
        (page ? sl_schedule_write_page : sl_schedule_write_svg)(&pipeline->schedule, simulation, output->stream);
    else if (status == SL_OK)
        draw_all(job, count, pipeline, simulation, page ? sl_page_write : sl_timeline_write, output->stream);
    for (int i = 0; i < count; i++) {
        free(simulation[i].event);
        plan_pipeline_free(&pipeline[i]);
    }
    return status;
}

int plan_write_csv(const struct sl_output *output, const struct plan_job *job, struct sl_error *error) {
    struct sl_schedule schedule = {0};
    int status = plan_pipeline_table(&schedule, job, job->pipeline, error);
    if (status == SL_OK)
        sl_schedule_write_csv(&schedule, output->stream); /* a full disk is reported when the stream is closed */
    sl_schedule_free(&schedule);
    return status;
}
