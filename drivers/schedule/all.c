/* all.c - compares all schedules on one model. */
#include "drivers/schedule/all.h"

#include <math.h>
#include <stdlib.h>

#include "drivers/common/metrics.h"
#include "drivers/schedule/costs.h"
#include "drivers/schedule/schedule_report.h"
#include "drivers/schedule/study.h"
#include "spmd/schedule/registry.h"
#include "spmd/schedule/drawing/page.h"
#include "spmd/schedule/drawing/timeline.h"
#include "spmd/schedule/synthesis/synthesize.h"

struct candidate {
    const struct sl_schedule_kind *kind;
    struct schedule_study study;
    int messages;          /* between ranks, per step */
    struct sl_error error; /* reason if it does not fit */
};

struct comparison {
    const struct schedule_all *all;
    int parts;                   /* of the model */
    struct sl_stage_costs *part; /* [parts] their costs */
    struct sl_costs costs;       /* other costs */
    int count, fitting;
    struct candidate *candidate; /* [count] fitting ones first */
};

/* ---- costs ---- */

static int most_loops(const struct schedule_all *all) {
    const struct sl_schedule_kind *kind;
    int loops = all->model.loops;
    for (int i = 0; all->model.loops < 1 && (kind = sl_schedule_kind_at(i)); i++)
        if (kind->default_loops > loops) loops = kind->default_loops;
    return loops;
}

static int read_costs(struct comparison *comparison, struct sl_error *error) {
    const struct schedule_all *all = comparison->all;
    const long long parts = (long long)all->model.stages * most_loops(all);
    if (parts > SL_MAX_STAGES)
        return sl_error_set(error, SL_BAD_INPUT, "--all: %d stages, %d loops: must be at most %d stages together",
                            all->model.stages, most_loops(all), SL_MAX_STAGES);
    comparison->parts = (int)parts;
    comparison->part = malloc((size_t)parts * sizeof *comparison->part);
    if (!comparison->part) return sl_error_set(error, SL_FAILED, "no memory to simulate");
    for (int i = 0; i < comparison->parts; i++) comparison->part[i] = all->model.cost;
    comparison->costs = (struct sl_costs){.communication = all->model.communication,
                                          .overlap = all->model.overlap,
                                          .group = all->model.group,
                                          .cores = all->model.cores};
    if (!all->costs) return SL_OK;
    return schedule_costs_read(&comparison->costs, comparison->part, NULL, comparison->parts, all->costs, error);
}

/* ---- candidates ---- */

static int count_messages(const struct sl_schedule *schedule) {
    int messages = 0;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const bool sends = action->kind == SL_SEND_ACTIVATION || action->kind == SL_SEND_GRADIENT;
            messages += sends && action->peer != r;
        }
    }
    return messages;
}

static bool is_drawn(const struct schedule_all *all) {
    return all->format == SCHEDULE_ALL_SVG || all->format == SCHEDULE_ALL_HTML;
}

static int examine(const struct comparison *comparison, struct candidate *candidate) {
    const struct schedule_all *all = comparison->all;
    const struct sl_schedule_kind *kind = candidate->kind;
    struct schedule_study *study = &candidate->study;
    struct sl_error *error = &candidate->error;
    const int loops = all->model.loops > 0 ? sl_schedule_fit_loops(kind, all->model.loops) : kind->default_loops;
    SL_TRY(sl_schedule_generate(&study->schedule, kind, all->model.stages, loops, all->model.microbatches, error));
    SL_TRY(schedule_study_prove(study, all->model.buffers, all->model.group, error));
    SL_TRY(schedule_study_costs(study, &all->model.cost, error));
    schedule_study_join(study, comparison->part, comparison->parts);
    struct sl_costs costs = comparison->costs;
    costs.count = sl_schedule_stages(&study->schedule);
    costs.stage = study->cost;
    candidate->messages = count_messages(&study->schedule);
    if (is_drawn(all)) return sl_schedule_simulate(&study->schedule, &costs, &study->simulation, error);
    SL_TRY(sl_schedule_time(&study->schedule, &costs, &study->simulation, error));
    schedule_study_forget_actions(study); /* to have room for the next schedule's actions */
    return SL_OK;
}

/* Orders candidates: the fastest first; equally fast or not fitting ones as in the registry. */
static int by_time(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    const bool fits = !a->error.status;
    if (fits != !b->error.status) return fits ? -1 : 1;
    const double x = fits ? a->study.simulation.step : 0, y = fits ? b->study.simulation.step : 0;
    if (fabs(x - y) > 1e-9 * fmax(x, y)) return x < y ? -1 : 1;
    return (a->kind > b->kind) - (a->kind < b->kind);
}

static int examine_all(struct comparison *comparison, struct sl_error *error) {
    while (sl_schedule_kind_at(comparison->count)) comparison->count++;
    comparison->candidate = calloc((size_t)comparison->count, sizeof *comparison->candidate);
    if (!comparison->candidate) return sl_error_set(error, SL_FAILED, "no memory to compare schedules");
    for (int i = 0; i < comparison->count; i++) {
        struct candidate *candidate = &comparison->candidate[i];
        candidate->kind = sl_schedule_kind_at(i);
        const int status = examine(comparison, candidate);
        if (status == SL_FAILED)
            return sl_error_set(error, SL_FAILED, "%s",
                                candidate->error.status ? candidate->error.message : "no memory to compare schedules");
        comparison->fitting += status == SL_OK;
    }
    qsort(comparison->candidate, (size_t)comparison->count, sizeof *comparison->candidate, by_time);
    if (comparison->fitting) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--all: no schedule fits: %s", comparison->candidate[0].error.message);
}

/* ---- output ---- */

/* Describes the common inputs. Returns TEXT. */
static const char *describe(const struct comparison *comparison, char *text, size_t size) {
    const struct schedule_all *all = comparison->all;
    const int loops = comparison->parts / all->model.stages;
    snprintf(text, size, "%d rank%s, %d microbatch%s; the same model everywhere: %d stages at %d loop%s%s",
             all->model.stages, all->model.stages > 1 ? "s" : "", all->model.microbatches,
             all->model.microbatches > 1 ? "es" : "", comparison->parts, loops, loops > 1 ? "s" : "",
             loops > 1 ? ", thicker ones at fewer" : "");
    return text;
}

static void print_table(const struct comparison *comparison, FILE *file) {
    static const struct sl_column column[] = {{"schedule", -18}, {"loops", 5},       {"ms a step", 11}, {"bubble", 8},
                                              {"kept", 6},       {"kept/loops", 11}, {"messages", 9}};
    struct sl_table table;
    char text[200];
    fprintf(file, "%s\n\n", describe(comparison, text, sizeof text));
    sl_table_begin(&table, file, sizeof column / sizeof *column, column);
    for (int i = 0; i < comparison->fitting; i++) {
        const struct candidate *candidate = &comparison->candidate[i];
        const struct sl_simulation *simulation = &candidate->study.simulation;
        const int loops = candidate->study.schedule.loops, kept = schedule_study_kept(&candidate->study);
        sl_table_cell(&table, "%s", candidate->kind->name);
        sl_table_cell(&table, "%d", loops);
        sl_table_cell(&table, "%.6g", simulation->step);
        sl_table_cell(&table, "%.1f %%", 100 * simulation->bubble);
        sl_table_cell(&table, "%d", kept);
        sl_table_cell(&table, "%.4g", (double)kept * candidate->study.schedule.copies / loops);
        sl_table_cell(&table, "%d", candidate->messages);
    }
    fprintf(file, "\nbubble: of the time from the first compute of any rank to the last one's end, the share in which\n"
                  "ranks do not compute; ranks of sequential, grouped and interleaved do not work in step here, as\n"
                  "they do in the driver plan, whose bubbles are therefore as large or larger\n"
                  "kept: the most microbatches that a rank holds at once, over all its stages;\n"
                  "kept/loops: the same in microbatches of its whole share of the model\n"
                  "messages: activations and gradients sent from rank to rank, in a step\n");
    for (int i = comparison->fitting; i < comparison->count; i++)
        fprintf(file, "%sdoes not fit: %s\n", i == comparison->fitting ? "\n" : "",
                comparison->candidate[i].error.message);
}

static int print_json(const struct comparison *comparison, const struct sl_output *output, struct sl_error *error) {
    for (int i = 0; i < comparison->count; i++) {
        const struct candidate *candidate = &comparison->candidate[i];
        const struct sl_schedule *schedule = &candidate->study.schedule;
        const struct sl_simulation *simulation = &candidate->study.simulation;
        if (candidate->error.status) {
            SL_TRY(schedule_report_invalid(output, candidate->kind->name, comparison->all->model.stages,
                                           candidate->error.message, error));
            continue;
        }
        SL_TRY(sl_json_print(output->stream, output->name,
                             json_pack("{s:s,s:i,s:i,s:i,s:o,s:o,s:o,s:i,s:i,s:i,s:b}", "name", schedule->name, "ranks",
                                       schedule->ranks, "loops", schedule->loops, "microbatches",
                                       schedule->microbatches, "bubble", sl_json_real(simulation->bubble), "step_ms",
                                       sl_json_real(simulation->step), "compute_ms", sl_json_real(simulation->span),
                                       "kept", schedule_study_kept(&candidate->study), "messages", candidate->messages,
                                       "buffers", candidate->study.buffers, "valid", true),
                             error));
    }
    return SL_OK;
}

/* A drawing: a layer per schedule, and a note for each that does not fit. */
struct picture {
    struct sl_timeline_layer *layer; /* [count] */
    char (*heading)[160];            /* [count] */
    char (*note)[640];               /* [count] */
    const char **line;               /* [count] */
};

static void paint(const struct comparison *comparison, const struct picture *picture, FILE *file) {
    sl_timeline_writer *const write = comparison->all->format == SCHEDULE_ALL_HTML ? sl_page_write : sl_timeline_write;
    char subtitle[200];
    struct sl_timeline timeline = {.title = "all schedules",
                                   .subtitle = describe(comparison, subtitle, sizeof subtitle),
                                   .layer = picture->layer,
                                   .note = picture->line};
    for (int i = 0; i < comparison->count; i++) {
        const struct candidate *candidate = &comparison->candidate[i];
        const struct schedule_study *study = &candidate->study;
        if (candidate->error.status) {
            picture->line[timeline.notes] = picture->note[timeline.notes];
            snprintf(picture->note[timeline.notes++], sizeof *picture->note, "does not fit: %.600s",
                     candidate->error.message);
            continue;
        }
        const int loops = study->schedule.loops;
        snprintf(picture->heading[i], sizeof *picture->heading,
                 "%s, %d loop%s: %.6g ms, bubble %.1f %%, keeps %d, %d messages", candidate->kind->name, loops,
                 loops > 1 ? "s" : "", study->simulation.step, 100 * study->simulation.bubble,
                 schedule_study_kept(study), candidate->messages);
        timeline.end = fmax(timeline.end, study->simulation.step);
        picture->layer[timeline.layers++] = (struct sl_timeline_layer){.schedule = &study->schedule,
                                                                       .heading = picture->heading[i],
                                                                       .idle = study->simulation.span,
                                                                       .count = study->simulation.count,
                                                                       .event = study->simulation.event};
    }
    write(&timeline, file);
}

static int draw(const struct comparison *comparison, FILE *file, struct sl_error *error) {
    const size_t count = (size_t)comparison->count;
    struct picture picture = {.layer = calloc(count, sizeof *picture.layer),
                              .heading = calloc(count, sizeof *picture.heading),
                              .note = calloc(count, sizeof *picture.note),
                              .line = calloc(count, sizeof *picture.line)};
    int status = SL_OK;
    if (picture.layer && picture.heading && picture.note && picture.line)
        paint(comparison, &picture, file);
    else
        status = sl_error_set(error, SL_FAILED, "no memory to draw");
    free(picture.layer);
    free(picture.heading);
    free(picture.note);
    free(picture.line);
    return status;
}

int schedule_all(const struct schedule_all *all, const struct sl_output *output, struct sl_error *error) {
    struct comparison comparison = {.all = all};
    int status = read_costs(&comparison, error);
    if (status == SL_OK) status = examine_all(&comparison, error);
    if (status == SL_OK && all->format == SCHEDULE_ALL_TABLE) print_table(&comparison, output->stream);
    if (status == SL_OK && (all->format == SCHEDULE_ALL_SVG || all->format == SCHEDULE_ALL_HTML))
        status = draw(&comparison, output->stream, error);
    if (status == SL_OK && all->format == SCHEDULE_ALL_JSON) status = print_json(&comparison, output, error);
    for (int i = 0; comparison.candidate && i < comparison.count; i++)
        schedule_study_free(&comparison.candidate[i].study);
    free(comparison.candidate);
    free(comparison.part);
    return status;
}
