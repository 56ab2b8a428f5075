/* pipeline.c - pipelines as tables, and their costs.
 *
 * The article on parallelism shows four, from Graphcore's tutorial on pipelining. Their ranks work in lockstep:
 * clocks tell when a rank works, and not only in which order (spmd/schedule/generators/lockstep.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/training/choices/schedule_choice.h"
#include "drivers/tools/plan/plan.h"
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/generate.h"
#include "spmd/schedule/registry.h"

/* ---- the article's pipelines ---- */

/* Inference: only forwards. */
static int inference_forward(const struct sl_schedule *schedule, int stage, int microbatch) {
    const int period = sl_larger(schedule->microbatches, schedule->ranks);
    return microbatch + sl_schedule_rank_of(schedule, stage) + sl_schedule_loop_of(schedule, stage) * period;
}

static const struct sl_schedule_kind inference = {
    .name = "inference",
    .generate = sl_generate_lockstep,
    .variant.lockstep = {inference_forward, NULL},
    .least_loops = 1,
    .most_loops = SL_ANY_LOOPS,
    .sets_times = true,
};

static const struct article_pipeline {
    const char *name;
    const struct sl_schedule_kind *kind; /* NULL: registered */
    const char *looped; /* with several loops: the equivalent schedule, "" if there is none; NULL: itself */
} article[] = {
    {"sequential", NULL, NULL},
    {"grouped", NULL, ""},
    {"interleaved", NULL, "interleaved-1f1b"},
    {"inference", &inference, NULL},
};
enum { PIPELINES = sizeof article / sizeof *article };

const char *plan_pipeline_name(int i) { return i >= 0 && i < PIPELINES ? article[i].name : NULL; }

/* Returns the article's pipeline; NULL: the name is a schedule's, or unknown. */
static const struct article_pipeline *find_article(const char *name) {
    for (int i = 0; i < PIPELINES; i++)
        if (!strcmp(article[i].name, name)) return &article[i];
    return NULL;
}

bool plan_pipeline_trains(const char *name) {
    const struct article_pipeline *of = find_article(name);
    return !of || !of->kind;
}

/* ---- tables ---- */

static int make_article(struct sl_schedule *schedule, const struct plan_job *job, const struct article_pipeline *of,
                        struct sl_error *error) {
    const int loops = sl_larger(job->loops, 1);
    const char *name = loops > 1 && of->looped ? of->looped : of->name;
    if (of->kind) return sl_schedule_generate(schedule, of->kind, job->stages, loops, job->microbatches, error);
    if (!*name)
        return sl_error_set(error, SL_BAD_INPUT, "--loops: %d, but the %s pipeline has one stage a rank", loops,
                            of->name);
    if (name != of->name) return sl_schedule_make(schedule, name, job->stages, loops, job->microbatches, error);
    struct sl_schedule_kind in_step = *sl_schedule_find(name, error);
    in_step.sets_times = true;
    return sl_schedule_generate(schedule, &in_step, job->stages, loops, job->microbatches, error);
}

static int unknown_pipeline(const char *name, struct sl_error *error) {
    char names[sizeof error->message];
    sl_schedule_list_names(plan_pipeline_name, names, sizeof names);
    sl_error_set(error, SL_BAD_INPUT, "--pipeline: \"%.60s\" is not one of all, %s", name, names);
    return sl_schedule_suggest(name, plan_pipeline_name, error);
}

int plan_pipeline_table(struct sl_schedule *schedule, const struct plan_job *job, const char *name,
                        struct sl_error *error) {
    const struct article_pipeline *of = find_article(name);
    if (of) return make_article(schedule, job, of, error);
    const struct sl_schedule_kind *kind = sl_schedule_find(name, NULL);
    if (!kind) return unknown_pipeline(name, error);
    if (kind->placement == SL_MIRRORED)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--pipeline: %s holds the model twice, which plan does not count: the driver schedule "
                            "simulates it",
                            name);
    return sl_schedule_generate(schedule, kind, job->stages, job->loops ? job->loops : kind->default_loops,
                                job->microbatches, error);
}

/* Proves a copy, since lowering changes the table. */
static int prove(const struct plan_job *job, const char *name, struct sl_error *error) {
    struct sl_schedule schedule = {0};
    int slots, status = plan_pipeline_table(&schedule, job, name, error);
    if (status == SL_OK) status = sl_schedule_lower(&schedule, error);
    if (status == SL_OK) status = sl_schedule_slots(&schedule, 1, &slots, error);
    sl_schedule_free(&schedule);
    return status;
}

/* ---- costs ---- */

double plan_pipeline_cost(const struct plan_pipeline *pipeline, const struct plan_job *job, int rank,
                          enum sl_action_kind kind) {
    const double again = job->recompute ? job->forward : 0; /* recomputation before the gradients */
    const double gradient = kind == SL_BACKWARD ? job->backward : job->backward / 2;
    const double cost = kind == SL_FORWARD ? job->forward : gradient + (kind == SL_WEIGHT_GRADIENT ? 0 : again);
    return pipeline->weight[rank] * cost / pipeline->schedule.loops;
}

/* Reads "1,1,1.5,1", a number per rank. */
static int read_weights(struct plan_pipeline *pipeline, const struct plan_job *job, struct sl_error *error) {
    const char *text = job->stage_times;
    for (int r = 0; r < job->stages; r++) {
        pipeline->weight[r] = 1;
        if (!text) continue;
        char *end;
        const double weight = strtod(text, &end);
        const bool plain = end > text && text[strspn(text, "0123456789.,")] == 0;
        if (!plain || !(weight > 0) || weight > 1e6 || *end != (r == job->stages - 1 ? 0 : ','))
            return sl_error_set(error, SL_BAD_INPUT,
                                "--stage-times: \"%.80s\" is not %d numbers from above 0 to 1000000, one a rank, "
                                "separated by commas",
                                job->stage_times, job->stages);
        pipeline->weight[r] = weight;
        text = end + 1;
    }
    return SL_OK;
}

/* Counts of one walk over the table. */
struct measure {
    int *working;            /* [iterations] number of working ranks */
    int *latest;             /* [iterations] iteration in which the latest of its input states was computed, -1: none */
    int *forward, *backward; /* [stages][microbatches] iteration */
};

static int *time_of(const struct sl_schedule *schedule, int *times, int stage, int microbatch) {
    return &times[(size_t)stage * (size_t)schedule->microbatches + (size_t)microbatch];
}

static int open_measure(struct plan_pipeline *pipeline, struct measure *measure) {
    const struct sl_schedule *schedule = &pipeline->schedule;
    for (int r = 0; r < schedule->ranks; r++) {
        const struct sl_rank_schedule *rank = &schedule->rank[r];
        if (rank->count) pipeline->iterations = sl_larger(pipeline->iterations, rank->action[rank->count - 1].time + 1);
    }
    const size_t iterations = (size_t)pipeline->iterations;
    const size_t cells = (size_t)sl_schedule_stages(schedule) * (size_t)schedule->microbatches;
    pipeline->begin = calloc(2 * iterations, sizeof *pipeline->begin);
    measure->working = calloc(2 * (iterations + cells), sizeof *measure->working);
    if (!pipeline->begin || !measure->working) return SL_FAILED;
    pipeline->end = pipeline->begin + iterations;
    measure->latest = measure->working + iterations;
    measure->forward = measure->latest + iterations;
    measure->backward = measure->forward + cells;
    for (size_t t = 0; t < iterations; t++) measure->latest[t] = -1;
    return SL_OK;
}

/* Computes the length of each iteration (in pipeline->end), its working ranks, and RANK's number of microbatches
 * with saved activations. */
static void measure_rank(struct plan_pipeline *pipeline, const struct plan_job *job, struct measure *measure,
                         int rank) {
    const struct sl_schedule *schedule = &pipeline->schedule;
    int kept = 0, time = -1;
    double cell = 0;
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        const int stage = sl_schedule_stage(schedule, rank, action->loop);
        const double cost = plan_pipeline_cost(pipeline, job, rank, action->kind);
        measure->working[action->time] += action->time != time;
        cell = action->time == time ? cell + cost : cost;
        time = action->time;
        pipeline->end[time] = fmax(pipeline->end[time], cell);
        pipeline->busy += cost;
        if (action->kind == SL_FORWARD) *time_of(schedule, measure->forward, stage, action->microbatch) = time;
        if (sl_has_input_gradient(action->kind))
            *time_of(schedule, measure->backward, stage, action->microbatch) = time;
        kept += (action->kind == SL_FORWARD && pipeline->trains) - sl_has_weight_gradient(action->kind);
        pipeline->kept = sl_larger(pipeline->kept, kept);
    }
}

static void count_message(struct plan_pipeline *pipeline, struct measure *measure, int from, int sent, int to,
                          int needed) {
    if (sl_schedule_rank_of(&pipeline->schedule, from) == sl_schedule_rank_of(&pipeline->schedule, to)) return;
    pipeline->messages++;
    measure->latest[needed] = sl_larger(measure->latest[needed], sent);
}

static void count_messages(struct plan_pipeline *pipeline, struct measure *measure) {
    const struct sl_schedule *schedule = &pipeline->schedule;
    for (int stage = 0; stage + 1 < sl_schedule_stages(schedule); stage++) {
        for (int i = 0; i < schedule->microbatches; i++) {
            count_message(pipeline, measure, stage, *time_of(schedule, measure->forward, stage, i), stage + 1,
                          *time_of(schedule, measure->forward, stage + 1, i));
            if (!pipeline->trains) continue;
            count_message(pipeline, measure, stage + 1, *time_of(schedule, measure->backward, stage + 1, i), stage,
                          *time_of(schedule, measure->backward, stage, i));
        }
    }
}

/* Places the iterations in time. An exchange right before an iteration transfers all states computed by then, so it
 * is needed only if the iteration uses a state computed after the last exchange. */
static void place_in_time(struct plan_pipeline *pipeline, const struct plan_job *job, const struct measure *measure) {
    int exchanged = 0; /* states computed before this iteration have been exchanged */
    double now = 0;
    for (int t = 0; t < pipeline->iterations; t++) {
        if (measure->latest[t] >= exchanged) {
            exchanged = t;
            pipeline->exchanges++;
            now += job->exchange;
        }
        pipeline->begin[t] = now;
        now += pipeline->end[t];
        pipeline->end[t] = now;
    }
    pipeline->time = now;
    pipeline->bubble = now > 0 ? 1 - pipeline->busy / (pipeline->schedule.ranks * now) : 0;
}

static void find_phases(struct plan_pipeline *pipeline, const struct measure *measure) {
    for (int begin = 0, end; begin < pipeline->iterations; begin = end + 1) {
        for (end = begin; end < pipeline->iterations && measure->working[end] == pipeline->schedule.ranks;) end++;
        if (end - begin <= pipeline->main) continue;
        pipeline->ramp_up = begin;
        pipeline->main = end - begin;
    }
    pipeline->ramp_down = pipeline->iterations - pipeline->main - pipeline->ramp_up;
}

int plan_pipeline_make(struct plan_pipeline *pipeline, const struct plan_job *job, const char *name,
                       struct sl_error *error) {
    struct measure measure = {0};
    *pipeline = (struct plan_pipeline){.trains = plan_pipeline_trains(name)};
    SL_TRY(plan_pipeline_table(&pipeline->schedule, job, name, error));
    if (pipeline->trains) SL_TRY(prove(job, name, error));
    pipeline->weight = calloc((size_t)job->stages, sizeof *pipeline->weight);
    int status = pipeline->weight ? read_weights(pipeline, job, error) : SL_FAILED;
    if (status == SL_OK) status = open_measure(pipeline, &measure);
    if (status == SL_OK) {
        for (int r = 0; r < job->stages; r++) measure_rank(pipeline, job, &measure, r);
        count_messages(pipeline, &measure);
        place_in_time(pipeline, job, &measure);
        find_phases(pipeline, &measure);
    } else if (status == SL_FAILED) {
        sl_error_set(error, SL_FAILED, "pipeline %s: no memory", name);
    }
    free(measure.working);
    return status;
}

void plan_pipeline_free(struct plan_pipeline *pipeline) {
    sl_schedule_free(&pipeline->schedule);
    free(pipeline->weight);
    free(pipeline->begin);
    *pipeline = (struct plan_pipeline){0};
}
