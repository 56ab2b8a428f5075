/* schedule.c - generates or reads a pipeline schedule, proves that it runs, and prints, draws or simulates it, or
 * compares it with a training run. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "drivers/common/metrics.h"
#include "drivers/common/options.h"
#include "drivers/common/schedule_choice.h"
#include "drivers/schedule/costs.h"
#include "drivers/schedule/report.h"
#include "layers/training/pipeline.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/draw.h"

enum format { TABLE, INDICES, CSV, SVG, JSON };

/* Below 1: not given. */
struct config {
    const char *name, *file;
    int stages, loops, microbatches;
    int format, buffers, group;
    bool json, check, simulate, overlap;
    double communication;
    struct sl_stage_costs cost;
    const char *costs, *compare;
};

/* The schedule and what is found out about it. */
struct study {
    struct sl_schedule schedule;
    int buffers, group;
    struct sl_stage_costs *cost; /* [stages] */
    struct sl_simulation simulation;
    struct schedule_trace trace;
    struct schedule_measurement measurement;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option schedule_table[] = {
    {"name", SL_OPTION_TEXT, FIELD(name), .value = "NAME", .help = "one of the schedules below (default looped-bfs)"},
    {"stages", SL_OPTION_INTEGER, FIELD(stages), .min = 1, .max = 4096, .help = "ranks of the pipeline (default 4)"},
    {"loops", SL_OPTION_INTEGER, FIELD(loops), .min = 1, .max = 4096,
     .help = "stages of each rank (default 2, or 1 if the schedule cannot have more)"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 1, .max = 65536,
     .help = "parts of a batch (default 8)"},
    {"file", SL_OPTION_TEXT, FIELD(file), .value = "FILE", .path = SL_PATH_TEXT,
     .help = "read the schedule from FILE (PyTorch's CSV format) instead of generating it"},
    {0},
};
static const struct sl_option output_table[] = {
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "table|indices|csv|svg|json",
     .help =
         "a line a rank; the looping pipeline's index arrays; PyTorch's CSV format; a drawn timeline; a JSON object"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "the same as --format json"},
    {"check", SL_OPTION_FLAG, FIELD(check), .help = "print what was proven about the schedule"},
    {"buffers", SL_OPTION_INTEGER, FIELD(buffers), .min = 1, .max = 65536,
     .help = "messages that may wait between two ranks, each way (default: the fewest that are enough, at least 2)"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(group), .min = 1, .max = 65536,
     .help =
         "microbatches in one weight-gradient product; the product runs after the gradient was sent, as in training "
         "(default: a backward is one piece)"},
    {0},
};
static const struct sl_option simulation_table[] = {
    {"simulate", SL_OPTION_FLAG, FIELD(simulate),
     .help = "print how long the schedule takes, and where ranks are idle"},
    {"forward", SL_OPTION_REAL, FIELD(cost.forward), .max = SL_MAX_COST,
     .help = "ms that a stage takes for the forward of a microbatch"},
    {"input-gradient", SL_OPTION_REAL, FIELD(cost.input_gradient), .max = SL_MAX_COST,
     .help = "ms for its input gradient"},
    {"weight-gradient", SL_OPTION_REAL, FIELD(cost.weight_gradient), .max = SL_MAX_COST,
     .help = "ms for its weight gradient"},
    {"communication", SL_OPTION_REAL, FIELD(communication), .max = SL_MAX_COST,
     .help = "ms that a message between two ranks takes"},
    {"reduce", SL_OPTION_REAL, FIELD(cost.reduce), .max = SL_MAX_COST,
     .help = "ms to reduce a stage's gradients over data"},
    {"optimizer", SL_OPTION_REAL, FIELD(cost.optimizer), .max = SL_MAX_COST,
     .help = "ms that the optimizer takes for a stage's parameters, once a step"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap), .help = "reduce a stage's gradients while others compute"},
    {"costs", SL_OPTION_TEXT, FIELD(costs), .value = "FILE", .path = SL_PATH_TEXT,
     .help = "read the costs from FILE: JSON with any of forward, input_gradient, weight_gradient, reduce, optimizer "
             "(a number, "
             "or a list with one a stage), communication, overlap; or a trace that a driver's --trace has written"},
    {"compare", SL_OPTION_TEXT, FIELD(compare), .value = "TRACE", .path = SL_PATH_TEXT,
     .help =
         "simulate the run that TRACE (written by a driver's --trace) recorded, with the costs measured in it and a "
         "core for each coordinate, and print where its time went instead: bubble (what was waited for was not "
         "computed yet), transfer (it was on its way), no core (coordinates share cores); the schedule is the trace's, "
         "unless --name or --file gives another"},
    {0},
};

/* ---- the schedule ---- */

static const char *name_of(const struct config *config, const struct study *study) {
    if (config->file) return config->file;
    if (config->name) return config->name;
    return study->trace.ranks ? study->trace.name : "looped-bfs";
}

/* The first that is given. */
static int one_of(int first, int second, int third) { return first > 0 ? first : second > 0 ? second : third; }

static int make(const struct config *config, struct study *study, struct sl_error *error) {
    const struct schedule_trace *trace = &study->trace;
    if (config->file && config->name)
        return sl_error_set(error, SL_BAD_INPUT, "--file and --name: a schedule is read or generated, not both");
    if (config->file) return sl_schedule_read_csv(&study->schedule, config->file, error);
    const char *name = name_of(config, study);
    const struct sl_schedule_kind *kind = sl_schedule_find(name, error);
    if (!kind && !config->name)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--compare: %s: its schedule \"%s\" was read from a file: --file names it", trace->path,
                            name);
    if (!kind) return SL_BAD_INPUT;
    return sl_schedule_generate(&study->schedule, kind, one_of(config->stages, trace->ranks, 4),
                                one_of(config->loops, trace->loops, kind->default_loops),
                                one_of(config->microbatches, trace->microbatches, 8), error);
}

static int prove(const struct config *config, struct study *study, struct sl_error *error) {
    SL_TRY(sl_schedule_lower(&study->schedule, error));
    study->buffers = config->buffers;
    study->group = one_of(config->group, study->trace.group, 0);
    if (study->buffers < 1) {
        SL_TRY(sl_schedule_slots(&study->schedule, SL_PIPELINE_FEWEST_SLOTS, &study->buffers, error));
        if (study->group <= 1) return SL_OK; /* proven so */
    }
    return sl_schedule_check(&study->schedule, study->buffers, one_of(study->group, 1, 1), NULL, error);
}

static int simulate(const struct config *config, struct study *study, struct sl_error *error) {
    const int stages = sl_schedule_stages(&study->schedule);
    study->cost = malloc((size_t)stages * sizeof *study->cost);
    if (!study->cost) return sl_error_set(error, SL_FAILED, "no memory to simulate");
    for (int s = 0; s < stages; s++) study->cost[s] = config->cost;
    struct sl_costs costs = {.count = stages,
                             .stage = study->cost,
                             .communication = config->communication,
                             .overlap = config->compare ? study->trace.overlap : config->overlap,
                             .group = study->group};
    if (config->compare)
        SL_TRY(
            schedule_trace_measure(&study->trace, &study->schedule, &costs, study->cost, &study->measurement, error));
    if (config->costs) SL_TRY(schedule_costs_read(&costs, study->cost, stages, config->costs, error));
    return sl_schedule_simulate(&study->schedule, &costs, &study->simulation, error);
}

/* ---- output ---- */

/* Columns of the terminal that stdout is; 0: it is none. */
static int terminal_columns(void) {
    struct winsize size;
    const char *terminal = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || !terminal || !strcmp(terminal, "dumb")) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static int print_table(const struct sl_schedule *schedule) {
    const int columns = terminal_columns();
    return columns ? sl_schedule_print_terminal(schedule, columns, stdout) : sl_schedule_print_table(schedule, stdout);
}

static void print_proof(const struct study *study) {
    int most = 0;
    for (int r = 0; r < study->simulation.ranks; r++)
        if (study->simulation.rank[r].stash > most) most = study->simulation.rank[r].stash;
    printf("every action runs once, after what it needs; no deadlock with %d buffers; at most %d microbatches kept\n",
           study->buffers, most);
}

static int print(const struct config *config, const struct study *study, struct sl_error *error) {
    const struct schedule_report report = {.schedule = &study->schedule,
                                           .buffers = study->buffers,
                                           .simulation = &study->simulation,
                                           .measurement = config->compare ? &study->measurement : NULL,
                                           .trace = &study->trace};
    int status = SL_OK;
    switch (config->format) {
    case JSON:
        return schedule_report_json(&report, error);
    case SVG:
        sl_schedule_write_svg(&study->schedule, &study->simulation, stdout);
        return SL_OK;
    case CSV:
        if (sl_schedule_write_csv(&study->schedule, stdout))
            return sl_error_set(error, SL_FAILED, "stdout: could not be written");
        return SL_OK;
    case INDICES:
        status = sl_schedule_print_indices(&study->schedule, stdout);
        break;
    case TABLE:
        status = config->compare ? SL_OK : print_table(&study->schedule);
    }
    if (status) return sl_error_set(error, status, "no memory to print");
    if (config->check) print_proof(study);
    if (config->simulate) schedule_report_simulation(&report);
    if (config->compare) schedule_report_comparison(&report);
    return SL_OK;
}

static int run(const struct config *config, struct study *study, struct sl_error *error) {
    if (config->compare) SL_TRY(schedule_trace_read(&study->trace, config->compare, error));
    int status = make(config, study, error);
    if (status == SL_OK) status = prove(config, study, error);
    if (status == SL_BAD_INPUT && config->format == JSON) {
        struct sl_error unwritten = {0};
        if (schedule_report_invalid(name_of(config, study), study->schedule.ranks, error->message, &unwritten))
            *error = unwritten;
        return error->status;
    }
    SL_TRY(status);
    SL_TRY(simulate(config, study, error));
    return print(config, study, error);
}

int main(int argc, char **argv) {
    struct config config = {.overlap = true, .cost = {1, 1, 1, 0, 0}};
    struct sl_options options = {
        .program = "schedule",
        .summary = "Generates or reads a pipeline schedule, proves that it runs, and prints, draws or simulates it.",
        .section = SL_SECTIONS({"Schedule", schedule_table, &config}, {"Output", output_table, &config},
                               {"Simulation", simulation_table, &config}),
        .words = {"Schedules", sl_schedule_word},
    };
    struct study study = {0};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        if (config.json) config.format = JSON;
        status = sl_options_finish(&options, run(&config, &study, &error), &error);
    }
    schedule_measurement_free(&study.measurement);
    schedule_trace_free(&study.trace);
    sl_schedule_free(&study.schedule);
    sl_simulation_free(&study.simulation);
    free(study.cost);
    sl_options_free(&options);
    return status;
}
