/* schedule.c - generates or reads a pipeline schedule, proves that it runs, and prints, draws or simulates it;
 * compares it with a training run; or compares all schedules. */
#include <stdlib.h>
#include <string.h>

#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/training/choices/schedule_choice.h"
#include "drivers/schedule/all.h"
#include "drivers/schedule/costs.h"
#include "drivers/schedule/curve.h"
#include "drivers/schedule/drawing.h"
#include "drivers/schedule/study.h"
#include "drivers/schedule/synthesis.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/drawing/page.h"
#include "spmd/schedule/synthesis/synthesize.h"

enum format { TABLE, INDICES, CSV, SVG, HTML, JSON };

/* Values below 1: not given. */
struct config {
    const char *name, *file;
    int stages, loops, microbatches;
    int format, buffers, group, width, cores;
    bool all, json, fsdp, check, simulate, overlap;
    double communication;
    struct sl_stage_costs cost;
    const char *costs, *compare, *over, *output;
    const char *curve, *machine;
    int batch, width_of_layers;
    struct schedule_synthesis_options synthesis;
};

/* A schedule, and a run to compare it with. */
struct subject {
    struct schedule_study study;
    struct schedule_study under;         /* another schedule, drawn below it; optional */
    struct schedule_synthesis synthesis; /* input and result of the search; optional */
    int group;                           /* microbatches of a weight-gradient product; 0: backwards are not split */
    struct schedule_trace trace;
    struct schedule_measurement measurement;
    bool refuted; /* JSON output has told why it does not run */
};

#define FIELD(name) offsetof(struct config, name)
/* Conditions of options: output that includes a schedule's time; in comparisons with a run, measured costs replace
 * the options. */
#define TOLD "simulate&!compare&!curve|format=svg/html/json&!compare&!curve|all"
#define TIMES TOLD "|curve&!machine"
#define COSTS TIMES "|synthesize"

static const struct sl_option schedule_table[] = {
    {"name", SL_OPTION_TEXT, FIELD(name), .value = "NAME", .alias = "schedule", .read = "!file&!all&!synthesize&!curve",
     .word = sl_schedule_word, .help = "the schedule: one of those below (default: looped-bfs)"},
    {"stages", SL_OPTION_INTEGER, FIELD(stages), .min = 1, .max = SL_MAX_STAGES, .read = "!file",
     .help = "ranks of the pipeline (default 4)"},
    {"loops", SL_OPTION_INTEGER, FIELD(loops), .min = 1, .max = SL_MAX_STAGES, .read = "!file",
     .help = "stages of each rank (default 2, or 1 if the schedule cannot have more)"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 1, .max = 65536, .read = "!file",
     .help = "parts of a batch (default 8)"},
    {"file", SL_OPTION_TEXT, FIELD(file), .value = "FILE", .path = SL_PATH_TEXT, .read = "!all&!synthesize&!curve",
     .help = "read the schedule from FILE (PyTorch's CSV format) instead of generating it"},
    {"fsdp", SL_OPTION_FLAG, FIELD(fsdp),
     .read = "!all&!curve&simulate|compare|check|!all&!curve&!format=table/indices",
     .help = "shard parameters over the axis data: a stage's are gathered ahead of use, and at most two stages' exist "
             "at once"},
    {"all", SL_OPTION_FLAG, FIELD(all),
     .help = "compare all schedules that fit --stages and --microbatches, the fastest first. All have one model: each "
             "schedule has --loops stages a rank, or the nearest possible number, and costs are those of a stage of "
             "--loops"},
    {"curve", SL_OPTION_TEXT, FIELD(curve), .value = "NAME,NAME...", .read = "!all&!synthesize&!compare&!file",
     .help = "utilization of schedules for batches of 1, 2, 4 to --microbatches microbatches, without and with "
             "--communication: a table, a drawing or JSON lines"},
    {"machine", SL_OPTION_TEXT, FIELD(machine), .value = "FILE", .path = SL_PATH_TEXT, .read = "curve",
     .help = "with --curve, take batches of 1, 2, 4 to --batch rows, each with its best number of microbatches; the "
             "rates of products are those in FILE (docs/planning.md)"},
    {"batch", SL_OPTION_INTEGER, FIELD(batch), .min = 1, .max = 1 << 20, .read = "machine",
     .help = "rows of the largest batch"},
    {"layer-width", SL_OPTION_INTEGER, FIELD(width_of_layers), .min = 1, .max = 1 << 16, .read = "machine",
     .help = "rows and columns of a layer's kernel; a rank has one layer a loop"},
    {0},
};
static const struct sl_option output_table[] = {
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "table|indices|csv|svg|html|json",
     .help = "format of the output: a table with a line for each rank; the looping pipeline's index arrays; PyTorch's "
             "CSV format; a drawn timeline (svg), with --compare the run below its prediction; an HTML page of it that "
             "zooms and describes each box; JSON, with --all an object a line"},
    {"over", SL_OPTION_TEXT, FIELD(over), .value = "NAME", .read = "format=svg/html&!compare&!all&!curve",
     .word = sl_schedule_word,
     .help = "with --format svg or html, draw the schedule over the grey timeline of schedule NAME on the same model; "
             "if NAME has fewer loops, its stages are fewer and longer"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "the same as --format json"},
    {"output", SL_OPTION_TEXT, FIELD(output), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "print to FILE instead of stdout; the name's ending chooses the format: .svg, .html, .csv, .json"},
    {"width", SL_OPTION_INTEGER, FIELD(width), .max = 1 << 20, .read = "format=table&!compare&!all&!curve",
     .help = "columns of a schedule's table; a longer one is continued below; 0: the terminal's width, or no limit if "
             "stdout is not a terminal"},
    {"check", SL_OPTION_FLAG, FIELD(check), .read = "format=table/indices/json&!all&!curve",
     .help = "print the proven properties of the schedule"},
    {"buffers", SL_OPTION_INTEGER, FIELD(buffers), .min = 1, .max = 65536,
     .help = "messages that can wait between two ranks, in each direction (default: the fewest possible, at least 2)"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(group), .min = 1, .max = 65536, .read = TIMES "|compare|check|curve",
     .help = "microbatches in one weight-gradient product, which runs after the input gradient was sent, as in "
             "training (default: a backward is one action)"},
    {0},
};
static const struct sl_option simulation_table[] = {
    {"simulate", SL_OPTION_FLAG, FIELD(simulate), .read = "!format=csv&!all&!curve",
     .help = "print the schedule's duration and the ranks' idle times"},
    {"forward", SL_OPTION_REAL, FIELD(cost.forward), .max = SL_MAX_COST, .read = COSTS,
     .help = "ms that a stage takes for the forward of a microbatch"},
    {"input-gradient", SL_OPTION_REAL, FIELD(cost.input_gradient), .max = SL_MAX_COST, .read = COSTS,
     .help = "ms for its input gradient"},
    {"weight-gradient", SL_OPTION_REAL, FIELD(cost.weight_gradient), .max = SL_MAX_COST, .read = COSTS,
     .help = "ms for its weight gradient"},
    {"communication", SL_OPTION_REAL, FIELD(communication), .max = SL_MAX_COST, .read = COSTS,
     .help = "ms that a message between two ranks takes"},
    {"reduce", SL_OPTION_REAL, FIELD(cost.reduce), .max = SL_MAX_COST, .read = TIMES,
     .help = "ms to reduce a stage's gradients over data"},
    {"unshard", SL_OPTION_REAL, FIELD(cost.unshard), .max = SL_MAX_COST,
     .read = "fsdp&simulate&!compare|fsdp&format=svg/html/json&!compare",
     .help = "ms to gather a stage's parameters over data, each time; only with --fsdp"},
    {"optimizer", SL_OPTION_REAL, FIELD(cost.optimizer), .max = SL_MAX_COST, .read = TIMES,
     .help = "ms that the optimizer takes for a stage's parameters, once a step"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap), .read = TIMES "|curve",
     .help = "reduce a stage's gradients while others compute"},
    {"cores", SL_OPTION_INTEGER, FIELD(cores), .min = 0, .max = 4096, .read = COSTS "|compare|curve",
     .help = "cores that the ranks share equally; 0: each rank has one"},
    {"costs", SL_OPTION_TEXT, FIELD(costs), .value = "FILE", .path = SL_PATH_TEXT, .read = TOLD "|synthesize|compare",
     .help = "read the costs from FILE: JSON with any of forward, input_gradient, weight_gradient, reduce, unshard, "
             "optimizer, kept (a number, or a list with one a stage), communication, overlap; or a trace that "
             "--trace of a training has written"},
    {"compare", SL_OPTION_TEXT, FIELD(compare), .value = "TRACE", .path = SL_PATH_TEXT, .read = "!all&!synthesize",
     .help = "simulate a recorded run: TRACE, the file of a training's --trace, gives the costs, and each coordinate "
             "has a core. Print the run's time by cause: not ready (data are not computed yet), transfer (data are on "
             "their way), no core (another coordinate or program has the core). The schedule is the trace's, unless "
             "--name or --file gives another"},
    {0},
};

static const struct sl_brief brief = {
    "name stages loops microbatches file fsdp all format json output check buffers simulate forward input-gradient "
    "weight-gradient communication reduce cores costs compare synthesize",
    (const char *const[]){"--name interleaved-zb --stages 4 --loops 2 --microbatches 8 --simulate",
                          "--all --stages 4 --microbatches 8", "--name zbv --output zbv.svg", NULL}};

/* ---- the schedule ---- */

static const char *name_of(const struct config *config, const struct subject *subject) {
    if (config->file) return config->file;
    if (config->name) return config->name;
    if (config->synthesis.asked) return "synthesized";
    return subject->trace.ranks ? subject->trace.name : "looped-bfs";
}

/* Returns the first positive value; 0 if there is none. */
static int one_of(int first, int second, int third) { return first > 0 ? first : second > 0 ? second : third; }

static int synthesize(const struct config *config, struct subject *subject, struct sl_error *error) {
    struct schedule_synthesis *synthesis = &subject->synthesis;
    const char *other = config->fsdp ? "--fsdp" : config->group > 1 ? "--wgrad-group" : NULL;
    if (other)
        return sl_error_set(error, SL_BAD_INPUT, "--synthesize and %s: a schedule is looked for without it", other);
    *synthesis =
        (struct schedule_synthesis){.ranks = one_of(config->stages, 4, 4),
                                    .loops = one_of(config->loops, 2, 2),
                                    .cost = &config->cost,
                                    .costs = {.communication = config->communication, .overlap = config->overlap}};
    SL_TRY(schedule_synthesis_find(synthesis, &config->synthesis, one_of(config->microbatches, 8, 8), config->costs,
                                   &subject->study.schedule, error));
    return SL_OK;
}

static int make(const struct config *config, struct subject *subject, struct sl_error *error) {
    const struct schedule_trace *trace = &subject->trace;
    if (config->synthesis.asked) return synthesize(config, subject, error);
    if (config->file) return sl_schedule_read_csv(&subject->study.schedule, config->file, error);
    const char *name = name_of(config, subject);
    const struct sl_schedule_kind *kind = sl_schedule_find(name, error);
    if (!kind && !config->name)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--compare: %s: its schedule \"%s\" was read from a file: --file names it", trace->path,
                            name);
    if (!kind) return sl_schedule_suggest(name, NULL, error);
    const int loops = sl_schedule_fit_loops(kind, trace->loops);
    if (trace->ranks && config->loops < 1 && loops != trace->loops)
        return sl_error_set(error, SL_BAD_INPUT,
                            "the trace %s: its ranks have %d stage%s, those of schedule %s %d: compare it with a "
                            "schedule of as many; --all --stages %d --loops %d --microbatches %d --costs %s tells how "
                            "long others take",
                            trace->path, trace->loops, trace->loops == 1 ? "" : "s", name, loops, trace->ranks,
                            trace->loops, trace->microbatches, trace->path);
    return sl_schedule_generate(&subject->study.schedule, kind, one_of(config->stages, trace->ranks, 4),
                                one_of(config->loops, trace->loops, kind->default_loops),
                                one_of(config->microbatches, trace->microbatches, 8), error);
}

static int prove(const struct config *config, struct subject *subject, struct sl_error *error) {
    subject->group = one_of(config->group, subject->trace.group, 0);
    subject->study.schedule.sharded = config->fsdp || subject->trace.sharded;
    return schedule_study_prove(&subject->study, config->buffers, subject->group, error);
}

/* Simulates the schedule drawn below the subject's, with the same ranks and microbatches, on the same model. */
static int simulate_under(const struct config *config, struct subject *subject, struct sl_costs costs,
                          struct sl_error *error) {
    const struct schedule_study *study = &subject->study;
    struct schedule_study *under = &subject->under;
    const struct sl_schedule_kind *kind = sl_schedule_find(config->over, error);
    if (!kind) return sl_schedule_suggest(config->over, NULL, error);
    SL_TRY(sl_schedule_generate(&under->schedule, kind, study->schedule.ranks,
                                sl_schedule_fit_loops(kind, study->schedule.loops), study->schedule.microbatches,
                                error));
    under->schedule.sharded = config->fsdp;
    SL_TRY(schedule_study_prove(under, config->buffers, subject->group, error));
    SL_TRY(schedule_study_costs(under, &config->cost, error));
    schedule_study_join(under, study->cost, sl_schedule_depth(&study->schedule));
    costs.count = sl_schedule_stages(&under->schedule);
    costs.stage = under->cost;
    return sl_schedule_simulate(&under->schedule, &costs, &under->simulation, error);
}

static int simulate(const struct config *config, struct subject *subject, struct sl_error *error) {
    struct schedule_study *study = &subject->study;
    const bool drawn = config->format == SVG || config->format == HTML;
    SL_TRY(schedule_study_costs(study, &config->cost, error));
    struct sl_costs costs = {.count = sl_schedule_stages(&study->schedule),
                             .stage = study->cost,
                             .communication = config->communication,
                             .overlap = config->compare ? subject->trace.overlap : config->overlap,
                             .group = subject->group,
                             .cores = config->cores};
    if (config->synthesis.asked) schedule_synthesis_costs(&subject->synthesis, &costs, study->cost);
    if (config->compare)
        SL_TRY(schedule_trace_measure(&subject->trace, &study->schedule, &costs, study->cost, &subject->measurement,
                                      error));
    if (config->costs && !config->synthesis.asked)
        SL_TRY(schedule_costs_read(&costs, study->cost, NULL, costs.count, config->costs, error));
    SL_TRY((drawn ? sl_schedule_simulate : sl_schedule_time)(&study->schedule, &costs, &study->simulation, error));
    if (config->compare) schedule_simulation_gathers(&study->simulation, subject->measurement.gather);
    return config->over ? simulate_under(config, subject, costs, error) : SL_OK;
}

/* ---- output ---- */

static const struct sl_option_word notation[] = {
    {"4F0", "stage 4, forward (F), microbatch 0", NULL},
    {"4B0",
     "its backward (B); some schedules have the two halves of a backward, 4I0, the input gradient, and 4W0, the "
     "weight gradient",
     NULL},
    {"2F5+5B1", "two actions in one time step", NULL},
    {".", "the rank is idle", NULL},
    {"bubble",
     "of the time from the first compute of any rank to the last one's end, the share in which ranks do not compute",
     NULL},
    {"kept",
     "the most microbatches that a rank holds at once, from the forward to the weight gradient, over all its "
     "stages",
     NULL},
    {0},
};

static struct sl_option_word notation_word(int i) { return notation[i]; }

/* Whether a table has too many cells to be useful; most of them would be idle. */
static bool is_too_large(const struct sl_schedule *schedule, FILE *file) {
    enum { MOST_CELLS = 1 << 26 };
    int last = -1;
    for (int r = 0; r < schedule->ranks; r++) {
        const struct sl_rank_schedule *rank = &schedule->rank[r];
        if (rank->count && rank->action[rank->count - 1].time > last) last = rank->action[rank->count - 1].time;
    }
    if ((long long)schedule->ranks * (last + 1) <= MOST_CELLS) return false;
    fprintf(file, "%d ranks and %d time steps: too long a table to print; --format csv lists what ranks do\n",
            schedule->ranks, last + 1);
    return true;
}

static int print_table(const struct config *config, const struct sl_schedule *schedule,
                       const struct sl_output *output) {
    if (is_too_large(schedule, output->stream)) return SL_OK;
    const int columns = config->width > 0 ? config->width : output->width;
    const bool coloured = output->columns > 0;
    SL_TRY(columns > 0 ? sl_schedule_print_folded(schedule, columns, coloured, output->stream)
                       : sl_schedule_print_table(schedule, output->stream));
    sl_schedule_print_legend(schedule, coloured, output->stream);
    return SL_OK;
}

static void print_proof(const struct schedule_study *study, FILE *file) {
    fprintf(file,
            "every action runs once, after what it needs; no deadlock with %d buffers; at most %d microbatches kept\n",
            study->buffers, schedule_study_kept(study));
}

static void print_simulation(const struct schedule_report *report) {
    schedule_report_simulation(report);
    fputs("kept: the most microbatches that a rank holds at once, over all its stages\n", report->output->stream);
    if (report->schedule->sharded)
        fputs("gathering: it waits for parameters that are sharded over data\n", report->output->stream);
}

static int print_comparison(const struct config *config, const struct subject *subject,
                            const struct schedule_report *report, struct sl_error *error) {
    struct schedule_measured_step step;
    const int status = schedule_measured_step_find(&step, &subject->trace, &subject->study.schedule, error);
    if (status == SL_OK)
        schedule_draw_comparison(report, &step, config->format == HTML ? sl_page_write : sl_timeline_write);
    schedule_measured_step_free(&step);
    return status;
}

static int draw(const struct config *config, const struct subject *subject, const struct schedule_report *report,
                struct sl_error *error) {
    const struct schedule_study *study = &subject->study;
    FILE *file = report->output->stream;
    if (config->compare) return print_comparison(config, subject, report, error);
    if (config->over)
        schedule_draw_over(study, &subject->under, config->format == HTML ? sl_page_write : sl_timeline_write, file);
    else
        (config->format == HTML ? sl_schedule_write_page : sl_schedule_write_svg)(&study->schedule, &study->simulation,
                                                                                  file);
    return SL_OK;
}

static int print(const struct config *config, const struct subject *subject, const struct sl_output *output,
                 struct sl_error *error) {
    const struct schedule_study *study = &subject->study;
    const struct schedule_report report = {.output = output,
                                           .schedule = &study->schedule,
                                           .buffers = study->buffers,
                                           .simulation = &study->simulation,
                                           .measurement = config->compare ? &subject->measurement : NULL,
                                           .trace = &subject->trace,
                                           .synthesis = config->synthesis.asked ? &subject->synthesis : NULL};
    int status = SL_OK;
    switch (config->format) {
    case JSON:
        return schedule_report_json(&report, error);
    case SVG:
    case HTML:
        return draw(config, subject, &report, error);
    case CSV:
        if (sl_schedule_write_csv(&study->schedule, output->stream))
            return sl_error_set(error, SL_FAILED, "%s: could not be written", output->name);
        return SL_OK;
    case INDICES:
        status = sl_schedule_print_indices(&study->schedule, output->stream);
        break;
    case TABLE:
        status = config->compare ? SL_OK : print_table(config, &study->schedule, output);
    }
    if (status) return sl_error_set(error, status, "no memory to print");
    if (config->check) print_proof(study, output->stream);
    if (config->simulate) print_simulation(&report);
    if (config->compare) schedule_report_comparison(&report);
    if (config->synthesis.asked) schedule_report_synthesis(&report);
    return SL_OK;
}

/* ---- dispatch ---- */

/* Builds the model; MICROBATCHES is the default. */
static struct schedule_model model_of(const struct config *config, int loops, int microbatches) {
    return (struct schedule_model){.stages = one_of(config->stages, 4, 4),
                                   .microbatches = one_of(config->microbatches, microbatches, microbatches),
                                   .loops = loops,
                                   .buffers = config->buffers,
                                   .group = config->group,
                                   .cost = config->cost,
                                   .communication = config->communication,
                                   .overlap = config->overlap,
                                   .cores = config->cores};
}

static int run_curve(const struct config *config, const struct sl_output *output, struct sl_error *error) {
    if (config->format != TABLE && config->format != SVG && config->format != JSON)
        return sl_error_set(error, SL_BAD_INPUT, "--curve: its formats are table, svg and json");
    const struct schedule_curve_options curve = {.names = config->curve,
                                                 .model = model_of(config, one_of(config->loops, 2, 2), 64),
                                                 .machine = config->machine,
                                                 .batch = config->batch,
                                                 .width = config->width_of_layers,
                                                 .format = config->format == SVG    ? SCHEDULE_CURVE_SVG
                                                           : config->format == JSON ? SCHEDULE_CURVE_JSON
                                                                                    : SCHEDULE_CURVE_TABLE};
    return schedule_curve(&curve, output, error);
}

/* In JSON, reports that the schedule does not run as a result. */
static int tell_refuted(const struct config *config, struct subject *subject, const struct sl_output *output,
                        struct sl_error *error) {
    const struct sl_error why = *error;
    *error = (struct sl_error){0};
    subject->refuted = true;
    return schedule_report_invalid(output, name_of(config, subject), subject->study.schedule.ranks, why.message, error);
}

static int run_one(const struct config *config, struct subject *subject, const struct sl_output *output,
                   struct sl_error *error) {
    if (config->compare) SL_TRY(schedule_trace_read(&subject->trace, config->compare, error));
    SL_TRY(make(config, subject, error));
    if (config->compare && config->format != CSV && config->format != INDICES)
        SL_TRY(schedule_trace_fuse(&subject->trace, &subject->study.schedule, error));
    const int status = prove(config, subject, error);
    if (status == SL_BAD_INPUT && config->format == JSON) return tell_refuted(config, subject, output, error);
    SL_TRY(status);
    SL_TRY(simulate(config, subject, error));
    return print(config, subject, output, error);
}

static int run_all(const struct config *config, const struct sl_output *output, struct sl_error *error) {
    if (config->format == CSV || config->format == INDICES)
        return sl_error_set(error, SL_BAD_INPUT, "--all: there is no format %s of it: it is table, svg, html or json",
                            config->format == CSV ? "csv" : "indices");
    const struct schedule_all all = {.model = model_of(config, config->loops, 8),
                                     .costs = config->costs,
                                     .format = config->format == SVG    ? SCHEDULE_ALL_SVG
                                               : config->format == HTML ? SCHEDULE_ALL_HTML
                                               : config->format == JSON ? SCHEDULE_ALL_JSON
                                                                        : SCHEDULE_ALL_TABLE};
    return schedule_all(&all, output, error);
}

static int run(const struct config *config, struct subject *subject, struct sl_error *error) {
    struct sl_output output;
    SL_TRY(sl_output_open(&output, config->output, error));
    const int status = config->all     ? run_all(config, &output, error)
                       : config->curve ? run_curve(config, &output, error)
                                       : run_one(config, subject, &output, error);
    const int closed = sl_output_close(&output, status, error);
    return closed ? closed : status;
}

int main(int argc, char **argv) {
    struct config config = {.overlap = true,
                            .cost = {1, 1, 1, 0, 0, 0},
                            .batch = 4096,
                            .width_of_layers = 1024,
                            .synthesis = SCHEDULE_SYNTHESIS_DEFAULTS};
    struct sl_options options = {
        .program = "schedule",
        .summary = "Generates or reads a pipeline schedule, proves that it runs, and prints, draws or simulates it.",
        .section = SL_SECTIONS({"Schedule", schedule_table, &config}, {"Output", output_table, &config},
                               {"Simulation", simulation_table, &config},
                               {"Search", schedule_synthesis_table, &config.synthesis}),
        .words = {"Schedules", sl_schedule_word},
        .notation = {"Notation", notation_word},
        .brief = brief,
    };
    struct subject subject = {0};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, run(&config, &subject, &error), &error);
        if (status == SL_OK && subject.refuted) status = SL_CHECK_FAILED;
    }
    schedule_measurement_free(&subject.measurement);
    schedule_trace_free(&subject.trace);
    schedule_study_free(&subject.study);
    schedule_study_free(&subject.under);
    schedule_synthesis_free(&subject.synthesis);
    sl_options_free(&options);
    return status;
}
