/* gpipe.c - runs "Implement single node pipeline parallelism from scratch" (xrsrke): the clock cycles of GPipe, its
 * timeline, the article's two networks as pipelines compared with the same networks on one device, and a question
 * the article leaves open: a worker that fails in the middle. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/gpipe/gpipe.h"
#include "drivers/gpipe/pool.h"
#include "drivers/common/metrics.h"
#include "drivers/common/option_values.h"
#include "drivers/common/options.h"
#include "drivers/speed/placement_report.h"
#include "drivers/speed/cores.h"

/* ---- options ---- */

enum { MOST_MICROBATCHES = 1024 };

struct config {
    struct sl_common_options common;
    int microbatches, partitions; /* 0: as in the article */
    const char *fail, *trace;
    bool queues;
    int workers, attempts;
    double trouble, task_ms;
    const char *kill;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option pipeline_table[] = {
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 1, .max = MOST_MICROBATCHES,
     .help = "microbatches (default: 5 for the clock cycles, 3 for the pipeline, as in the article)"},
    {"partitions", SL_OPTION_INTEGER, FIELD(partitions), .min = 1, .max = GPIPE_MOST_LAYERS,
     .help = "partitions of the model (default: 3 for the clock cycles, 2 for the pipeline, as in the article)"},
    {"fail", SL_OPTION_TEXT, FIELD(fail), .value = "COORDINATE@ACTION",
     .help = "make a coordinate fail just before an action, such as 2@B3: F, B, I or W (forward, backward, input or "
             "weight gradient) and a microbatch; 1@1F2 also names the stage. It fails in the first run that has the "
             "action. With --queues the first attempt at the task of a partition fails, such as 1@F2"},
    {"trace", SL_OPTION_TEXT, FIELD(trace), .value = "FILE", .path = SL_PATH_STREAM, .read = "!queues",
     .help = "write the times of each coordinate's work in the pipeline without tensor parallelism to FILE (Chrome "
             "trace events, for Perfetto)"},
    {0},
};

static const struct sl_option queues_table[] = {
    {"queues", SL_OPTION_FLAG, FIELD(queues),
     .help = "run pipelines as in the article: a main thread sends the tasks of each clock cycle through queues to "
             "worker threads. The axis pipe is the number of partitions; each coordinate of tensor has a main thread"},
    {"workers", SL_OPTION_INTEGER, FIELD(workers), .min = 1, .max = GPIPE_MOST_WORKERS, .zero = "active",
     .read = "queues",
     .help = "worker threads, or active: as many as there are active partitions in each cycle. With tensor parallelism "
             "there is one"},
    {"attempts", SL_OPTION_INTEGER, FIELD(attempts), .min = 1, .max = 1000, .read = "queues",
     .help = "most attempts at a task that fails or whose worker dies"},
    {"kill", SL_OPTION_TEXT, FIELD(kill), .value = "COORDINATE@ACTION", .read = "queues",
     .help = "end the worker that gets a task of a partition, such as 1@F2: F or B, and a microbatch"},
    {"trouble", SL_OPTION_REAL, FIELD(trouble), .min = 0, .max = 1, .read = "queues",
     .help = "probability that an attempt fails; half of the failing attempts also end their worker"},
    {"task-ms", SL_OPTION_REAL, FIELD(task_ms), .min = 0, .max = 1000, .read = "queues",
     .help = "milliseconds added to each task, as if a device computed it"},
    {0},
};

static const struct sl_option run_table[] = {
    {"seed", SL_OPTION_SEED, FIELD(common.seed), .help = "seed of all random numbers, taken modulo 2^32"},
    {"json", SL_OPTION_FLAG, FIELD(common.json), .help = "print the differences as one JSON object and nothing else"},
    {0},
};

static int read_failure(struct gpipe_failure *failure, const char *option, const char *text, struct sl_error *error) {
    const char *at = text;
    *failure = (struct gpipe_failure){.text = text, .stage = -1};
    bool read = sl_option_read_digits(&at, &failure->coordinate) && *at++ == '@';
    if (read && !strchr("FBIW", *at)) read = sl_option_read_digits(&at, &failure->stage);
    failure->action = read && *at && strchr("FBIW", *at) ? *at++ : 0;
    if (failure->action && sl_option_read_digits(&at, &failure->microbatch) && !*at) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: \"%.80s\" is not COORDINATE@ACTION, an action being F, B, I or W and a microbatch, as "
                        "in 2@B3, or with the stage before it, as in 1@1F2",
                        option, text);
}

/* ---- the article's two tests ---- */

enum { PIPELINE, TENSOR, EXPERIMENTS };

struct experiment {
    struct gpipe_network network;
    struct gpipe_run single, parallel;
    struct gpipe_queues queues;
    double roundings; /* as in allowed() */
    double output, gradient, batch_gradient, allowed_output, allowed_gradient, allowed_batch_gradient;
};

/* The article's test_pipeline: linear layers 1-1, one per partition; microbatch i is the number i. The model without
 * a pipeline also processes one microbatch after the other. */
static int open_pipeline(struct experiment *experiment, const struct config *config, struct sl_error *error) {
    const int microbatches = config->microbatches ? config->microbatches : 3;
    const int partitions = config->partitions ? config->partitions : 2;
    int columns[GPIPE_MOST_LAYERS + 2] = {0};
    char mesh[32];
    for (int i = 0; i <= partitions; i++) columns[i] = 1;
    SL_TRY(gpipe_network_open(&experiment->network, columns, false, microbatches, config->common.seed, error));
    for (int i = 0; i < microbatches; i++) experiment->network.inputs[i] = (float)i;
    experiment->roundings = 2 * partitions + microbatches;
    snprintf(mesh, sizeof mesh, GPIPE_PIPE_AXIS "=%d", partitions);
    SL_TRY(sl_mesh_parse(&experiment->parallel.mesh, mesh, error));
    SL_TRY(gpipe_open(&experiment->parallel, &experiment->network, microbatches, error));
    return gpipe_open(&experiment->single, &experiment->network, microbatches, error);
}

/* The article's test_tensor_parallelism_with_pipeline: ten microbatches of one row; without the pipeline one batch. */
static int open_tensor(struct experiment *experiment, const struct config *config, struct sl_error *error) {
    enum { BATCH = 10, INPUT = 16, OUTPUT = 12, WORKERS = 4, HIDDEN = OUTPUT * WORKERS };
    const int columns[] = {INPUT, HIDDEN, OUTPUT, 0};
    SL_TRY(gpipe_network_open(&experiment->network, columns, true, BATCH, config->common.seed, error));
    experiment->roundings = INPUT + HIDDEN + OUTPUT + BATCH;
    SL_TRY(gpipe_open(&experiment->parallel, &experiment->network, BATCH, error));
    return gpipe_open(&experiment->single, &experiment->network, 1, error);
}

/* Sets the queues' options. If coordinates communicate within tasks, all must execute them in one order: one worker. */
static void choose_queues(struct experiment *experiment, const struct config *config) {
    experiment[PIPELINE].queues = (struct gpipe_queues){.workers = config->workers,
                                                        .attempts = config->attempts,
                                                        .trouble = config->trouble,
                                                        .task_ms = config->task_ms,
                                                        .seed = config->common.seed};
    experiment[TENSOR].queues = (struct gpipe_queues){.workers = 1, .attempts = 1, .task_ms = config->task_ms};
    for (int e = 0; config->queues && e < EXPERIMENTS; e++) experiment[e].parallel.queues = &experiment[e].queues;
}

/* Reads the task named by OPTION into FAILURE, in the pipeline without tensor parallelism. */
static int read_task(struct gpipe_failure *failure, const struct gpipe_run *run, const char *option, const char *text,
                     struct sl_error *error) {
    SL_TRY(read_failure(failure, option, text, error));
    if (gpipe_has(run, failure)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: \"%.80s\" is no task: partitions 0 to %d, actions F and B, microbatches 0 to %d", option,
                        text, run->partitions - 1, run->schedule.microbatches - 1);
}

static int read_tasks(struct experiment *experiment, struct gpipe_failure *failure, struct gpipe_failure *death,
                      const struct config *config, struct sl_error *error) {
    struct gpipe_run *run = &experiment[PIPELINE].parallel;
    if (config->fail) SL_TRY(read_task(failure, run, "--fail", config->fail, error));
    if (config->kill) SL_TRY(read_task(death, run, "--kill", config->kill, error));
    if (config->fail) run->failure = failure;
    if (config->kill) experiment[PIPELINE].queues.death = death;
    return SL_OK;
}

/* Prepares both experiments; all input errors are found before any output. */
static int prepare(struct experiment *experiment, struct gpipe_failure *failure, struct gpipe_failure *death,
                   const struct config *config, struct sl_engine *engine, struct sl_error *error) {
    choose_queues(experiment, config);
    experiment[PIPELINE].parallel.name = "the pipeline";
    experiment[TENSOR].parallel.name = "the pipeline with tensor parallelism";
    SL_TRY(sl_common_open(&config->common, &experiment[TENSOR].parallel.mesh, engine, error));
    for (int e = 0; e < EXPERIMENTS; e++) {
        experiment[e].single.name = "one device";
        SL_TRY(sl_mesh_parse(&experiment[e].single.mesh, GPIPE_PIPE_AXIS "=1", error));
    }
    SL_TRY(open_pipeline(&experiment[PIPELINE], config, error));
    SL_TRY(open_tensor(&experiment[TENSOR], config, error));
    if (config->queues) return read_tasks(experiment, failure, death, config, error);
    if (!config->fail) return SL_OK;
    SL_TRY(read_failure(failure, "--fail", config->fail, error));
    for (int e = 0; e < EXPERIMENTS; e++) {
        if (!gpipe_has(&experiment[e].parallel, failure)) continue;
        experiment[e].parallel.failure = failure;
        return SL_OK;
    }
    const struct gpipe_run *plain = &experiment[PIPELINE].parallel, *tensor = &experiment[TENSOR].parallel;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--fail: \"%.80s\" happens in neither run: coordinates 0 to %d and microbatches 0 to %d, or 0 "
                        "to %d and 0 to %d; a coordinate's stage is its index along " GPIPE_PIPE_AXIS,
                        config->fail, plain->mesh.size - 1, plain->schedule.microbatches - 1, tensor->mesh.size - 1,
                        tensor->schedule.microbatches - 1);
}

/* ---- clock cycles and timelines ---- */

/* Returns RANK's forward in iteration TIME, NULL in a bubble; AT is the index in the rank's list. */
static const struct sl_action *forward_at(const struct sl_rank_schedule *rank, int time, int *at) {
    while (*at < rank->count && (rank->action[*at].kind != SL_FORWARD || rank->action[*at].time < time)) ++*at;
    return *at < rank->count && rank->action[*at].time == time ? &rank->action[*at] : NULL;
}

static void print_task(int microbatch, int partition, bool first) {
    printf("%s(%d, %d)", first ? "" : ", ", microbatch, partition);
}

/* Prints the forwards of each cycle, as Python prints the article's list of lists. */
static void print_clock_cycles(const struct sl_schedule *schedule) {
    const int cycles = sl_schedule_iterations(schedule);
    int at[schedule->ranks];
    memset(at, 0, sizeof at);
    for (int time = 0; time < cycles; time++) {
        bool first = true;
        printf(time ? " [" : "[[");
        for (int r = 0; r < schedule->ranks; r++) {
            const struct sl_action *forward = forward_at(&schedule->rank[r], time, &at[r]);
            if (!forward) continue;
            print_task(forward->microbatch, sl_schedule_stage(schedule, r, forward->loop), first);
            first = false;
        }
        printf(time < cycles - 1 ? "],\n" : "]]\n");
    }
}

static int print_schedule(const struct config *config, struct sl_error *error) {
    const int microbatches = config->microbatches ? config->microbatches : 5;
    const int partitions = config->partitions ? config->partitions : 3;
    struct sl_schedule schedule;
    SL_TRY(sl_schedule_make(&schedule, "gpipe", partitions, 1, microbatches, error));
    printf("clock cycles of %d microbatches on %d partitions: tasks (microbatch, partition)\n\n", microbatches,
           partitions);
    print_clock_cycles(&schedule);
    printf("\ntimeline, a column a cycle: partition, F forward or B backward, microbatch\n\n");
    const int status = sl_schedule_print_table(&schedule, stdout);
    sl_schedule_free(&schedule);
    return status ? sl_error_set(error, status, "no memory for the timeline") : SL_OK;
}

static int by_end(const void *left, const void *right) {
    const struct sl_trace_event *a = left, *b = right;
    return (a->end > b->end) - (a->end < b->end);
}

/* Prints the tasks called NAME in the order in which the workers finished them. ROOM holds all events. */
static void print_finished(const struct gpipe_run *run, const char *name, struct sl_trace_event *room) {
    size_t count = 0;
    for (int c = 0; c < run->mesh.size; c++) {
        const struct sl_trace *trace = &run->trace->trace[c];
        for (int i = 0; i < trace->count; i++) {
            const struct sl_trace_event *event = &trace->event[i];
            if (event->work == SL_TRACE_COMPUTE && !strcmp(event->name, name)) room[count++] = *event;
        }
    }
    qsort(room, count, sizeof *room, by_end);
    printf("[");
    for (size_t i = 0; i < count; i++) print_task(room[i].microbatch, room[i].stage, i == 0);
    printf("]\n");
}

/* ---- the runs ---- */

static int pass(struct gpipe_run *run, const struct sl_engine *engine, struct sl_error *error) {
    const int status = gpipe_pass(run, engine);
    if (status == SL_OK) return SL_OK;
    const struct sl_error verdict = *error;
    return sl_error_set(error, status, "%s: %.500s", run->name, verdict.message);
}

static void print_order(const struct gpipe_run *run, struct sl_trace_event *room) {
    printf("\npipeline of %d microbatches on %d partitions: tasks in the order in which the workers finished them\n\n",
           run->schedule.microbatches, run->mesh.size);
    printf("forward:  ");
    print_finished(run, "F", room);
    printf("backward: ");
    print_finished(run, "I", room);
}

/* Runs the pass, prints the pipeline's timeline, and writes the trace if a file is given. */
static int pass_and_print(struct gpipe_run *run, const struct sl_engine *engine, const struct config *config,
                          struct sl_trace_file *trace, struct sl_error *error) {
    const struct sl_trace_run about = gpipe_about(run, sl_cores_of(engine));
    size_t events = 0;
    if (run->queues) {
        SL_TRY(pass(run, engine, error));
        if (!config->common.json && sl_speaks(engine)) gpipe_print_queues(run);
        return SL_OK;
    }
    SL_TRY(sl_trace_file_open(trace, &about, 1, error));
    run->trace = trace;
    SL_TRY(pass(run, engine, error));
    for (int c = 0; c < run->mesh.size; c++) events += (size_t)trace->trace[c].count;
    struct sl_trace_event *room = malloc((events + 1) * sizeof *room);
    if (!room) return sl_error_set(error, SL_FAILED, "no memory for the timeline");
    if (!config->common.json) print_order(run, room);
    free(room);
    return trace->stream ? sl_trace_file_write(trace, error) : SL_OK;
}

/* ---- comparison ---- */

/* Computes the largest difference of N elements, and the largest expected magnitude. */
static void compare(size_t n, const float *expected, const float *given, double *difference, double *largest) {
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)given[i] - expected[i]), magnitude = fabs((double)expected[i]);
        if (d > *difference || isnan(d)) *difference = d; /* a NaN stays */
        if (magnitude > *largest) *largest = magnitude;
    }
}

/* Returns the allowed difference from rounding: each element is rounded ROUNDINGS times, in each run by half an
 * FLT_EPSILON of a partial sum, which is of the size of the largest elements. */
static double allowed(const struct experiment *experiment, double largest) {
    return experiment->roundings * (double)FLT_EPSILON * largest;
}

static int compare_runs(struct experiment *experiment, struct sl_error *error) {
    const struct gpipe_run *single = &experiment->single, *parallel = &experiment->parallel;
    const struct gpipe_network *network = &experiment->network;
    const size_t outputs = (size_t)network->batch * (size_t)network->columns[network->layers];
    const size_t inputs = (size_t)network->batch * (size_t)network->columns[0];
    double largest_output = 0, largest_gradient = 0, largest_of_batch = 0;
    compare(outputs, single->outputs, parallel->outputs, &experiment->output, &largest_output);
    compare(inputs, single->batch_gradient, parallel->batch_gradient, &experiment->batch_gradient, &largest_of_batch);
    for (int i = 0; i < network->values.count; i++) {
        const struct sl_tensor *expected = sl_store_find(&single->gradients, network->values.tensor[i].name);
        const struct sl_tensor *given = sl_store_find(&parallel->gradients, network->values.tensor[i].name);
        if (!expected || !given)
            return sl_error_set(error, SL_CHECK_FAILED, "%s left no gradient of %s", parallel->name,
                                network->values.tensor[i].name);
        compare(sl_array_elements(&expected->array), expected->array.data, given->array.data, &experiment->gradient,
                &largest_gradient);
    }
    experiment->allowed_output = allowed(experiment, largest_output);
    experiment->allowed_gradient = allowed(experiment, largest_gradient);
    experiment->allowed_batch_gradient = allowed(experiment, largest_of_batch);
    return SL_OK;
}

static int judge(const struct experiment *experiment, struct sl_error *error) {
    const struct {
        const char *name;
        double difference, allowed;
    } compared[] = {{"outputs", experiment->output, experiment->allowed_output},
                    {"gradients", experiment->gradient, experiment->allowed_gradient},
                    {"gradients of the batch", experiment->batch_gradient, experiment->allowed_batch_gradient}};
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++) {
        if (compared[i].difference <= compared[i].allowed) continue;
        return sl_error_set(error, SL_CHECK_FAILED,
                            "%s: the %s differ from those on one device by %.3g, allowed is %.3g",
                            experiment->parallel.name, compared[i].name, compared[i].difference, compared[i].allowed);
    }
    return SL_OK;
}

/* ---- results ---- */

static int report_json(const struct experiment *experiment, struct sl_error *error) {
    const struct experiment *pipeline = &experiment[PIPELINE], *tensor = &experiment[TENSOR];
    const struct gpipe_record *record = &pipeline->parallel.record;
    json_t *object =
        json_pack("{so so so so so so}", "pipeline_output", sl_json_real(pipeline->output), "pipeline_gradient",
                  sl_json_real(pipeline->gradient), "pipeline_batch_gradient", sl_json_real(pipeline->batch_gradient),
                  "tensor_output", sl_json_real(tensor->output), "tensor_gradient", sl_json_real(tensor->gradient),
                  "tensor_batch_gradient", sl_json_real(tensor->batch_gradient));
    if (object && pipeline->parallel.queues)
        json_object_update_new(object, json_pack("{si si si si so}", "tasks", record->tasks, "attempts",
                                                 record->attempts, "workers_started", record->started, "workers_died",
                                                 record->died, "utilization", sl_json_real(record->utilization)));
    return sl_json_print(stdout, "stdout", object, error);
}

static void report_table(const struct experiment *experiment) {
    static const struct sl_column column[] = {{"largest difference from one device", -38},
                                              {"mesh", -16},
                                              {"outputs", 10},
                                              {"allowed", 10},
                                              {"gradients", 10},
                                              {"allowed", 10},
                                              {"batch", 10},
                                              {"allowed", 10}};
    struct sl_table table;
    printf("\n");
    sl_table_begin(&table, stdout, 8, column);
    for (int e = 0; e < EXPERIMENTS; e++) {
        char mesh[SL_MAX_AXES * (SL_AXIS_NAME + 12)];
        sl_table_cell(&table, "%s", experiment[e].parallel.name);
        sl_table_cell(&table, "%s", sl_mesh_print(&experiment[e].parallel.mesh, mesh, sizeof mesh));
        sl_table_cell(&table, "%.3g", experiment[e].output);
        sl_table_cell(&table, "%.3g", experiment[e].allowed_output);
        sl_table_cell(&table, "%.3g", experiment[e].gradient);
        sl_table_cell(&table, "%.3g", experiment[e].allowed_gradient);
        sl_table_cell(&table, "%.3g", experiment[e].batch_gradient);
        sl_table_cell(&table, "%.3g", experiment[e].allowed_batch_gradient);
    }
}

/* Prints forecasts from the work of the only pass, which includes first touches of memory. */
static int report_forecasts(const struct experiment *experiment, const struct sl_engine *engine,
                            struct sl_error *error) {
    printf("\n");
    for (int e = 0; e < EXPERIMENTS; e++) {
        const struct gpipe_run *run = &experiment[e].parallel;
        const struct sl_trace_run about = gpipe_about(run, sl_cores_of(engine));
        struct sl_step_forecast forecast;
        char mesh[SL_MAX_AXES * (SL_AXIS_NAME + 12)];
        SL_TRY(sl_step_forecast_make(&forecast, &about, run->watch, 1, error));
        printf("%s: ", sl_mesh_print(&run->mesh, mesh, sizeof mesh));
        sl_step_forecast_print(&forecast, stdout);
    }
    return SL_OK;
}

/* ---- main ---- */

static int come_together(struct sl_spmd *self, void *arg) {
    (void)self, (void)arg;
    return SL_OK;
}

static int run_all(struct experiment *experiment, const struct config *config, struct sl_trace_file *trace,
                   struct sl_error *error) {
    struct sl_engine engine;
    struct gpipe_failure failure, death;
    SL_TRY(prepare(experiment, &failure, &death, config, &engine, error));
    if (config->common.show_placement)
        return sl_placement_report(&experiment[TENSOR].parallel.on, &engine, config->common.json, error);
    engine.error = error;
    /* Checks, before any output, that there are as many processes as the largest mesh has coordinates. */
    if (engine.table->apart) SL_TRY(sl_run(&experiment[TENSOR].parallel.on, &engine, come_together, NULL));
    if (config->trace && sl_speaks(&engine)) SL_TRY(sl_trace_file_create(trace, "--trace", config->trace, error));
    if (!config->common.json) SL_TRY(print_schedule(config, error));
    engine.spare = true; /* the mesh with tensor parallelism has more coordinates */
    SL_TRY(pass_and_print(&experiment[PIPELINE].parallel, &engine, config, trace, error));
    engine.spare = false;
    SL_TRY(pass(&experiment[TENSOR].parallel, &engine, error));
    engine.spare = true;
    for (int e = 0; e < EXPERIMENTS; e++) {
        SL_TRY(pass(&experiment[e].single, &engine, error));
        if (sl_speaks(&engine)) SL_TRY(compare_runs(&experiment[e], error));
    }
    if (!sl_speaks(&engine)) return SL_OK;
    if (config->common.json) {
        SL_TRY(report_json(experiment, error));
    } else {
        report_table(experiment);
        if (!config->queues) SL_TRY(report_forecasts(experiment, &engine, error));
    }
    for (int e = 0; e < EXPERIMENTS; e++) SL_TRY(judge(&experiment[e], error));
    return SL_OK;
}

int main(int argc, char **argv) {
    struct config config = {.common = sl_common_defaults(1), .workers = 1, .attempts = 3};
    config.common.mesh = GPIPE_PIPE_AXIS "=2," GPIPE_TENSOR_AXIS "=4";
    struct sl_options options = {
        .program = "gpipe",
        .summary =
            "Shows the clock cycles of GPipe, and that a pipeline, and one with tensor parallelism, compute the "
            "results of one device; or the end of a run in which a coordinate fails. The mesh, for the pipeline with "
            "tensor parallelism, has the axes pipe and tensor.",
        .brief = {"mesh microbatches partitions fail trace queues workers attempts kill seed json",
                  (const char *const[]){"--microbatches 8 --partitions 4", "--queues --workers active --kill 0@B1",
                                        "--fail 2@B3", NULL}},
        .engine = &config.common.engine,
        .section = SL_SECTIONS({"Mesh", sl_mesh_table, &config.common}, {"Run", run_table, &config},
                               {"Pipeline", pipeline_table, &config}, {"Queues", queues_table, &config}),
    };
    struct sl_error error = {0};
    struct experiment experiment[EXPERIMENTS] = {{.output = 0}};
    struct sl_trace_file trace = {0};
    config.common.command = &options;
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, run_all(experiment, &config, &trace, &error), &error);
    }
    for (int e = 0; e < EXPERIMENTS; e++) {
        gpipe_free(&experiment[e].single);
        gpipe_free(&experiment[e].parallel);
        gpipe_network_free(&experiment[e].network);
    }
    sl_trace_file_free(&trace);
    sl_options_free(&options);
    return status;
}
