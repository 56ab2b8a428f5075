/* report.c - reports training runs: as a page with plots, one plot, plots in a terminal, or JSON. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/tools/report/chart.h"
#include "drivers/tools/report/runs/csv.h"
#include "drivers/tools/report/runs/facts.h"
#include "drivers/tools/report/memory_bars.h"
#include "drivers/tools/report/page.h"
#include "drivers/tools/report/terminal.h"

enum { ALL = REPORT_PLOTS, MEMORY = REPORT_PLOTS, TIMELINE }; /* choices besides plots: of --terminal, of --svg */

/* Values below 0: not given. */
struct config {
    const char *output, *csv;
    int svg, terminal, width;
    bool json;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option table[] = {
    {"svg", SL_OPTION_CHOICE, FIELD(svg), .value = REPORT_PLOT_NAMES "|memory|timeline",
     .help = "one plot as a picture (SVG); timeline is that of the first trace"},
    {"terminal", SL_OPTION_CHOICE, FIELD(terminal), .value = REPORT_PLOT_NAMES "|all",
     .help =
         "the runs' numbers and one plot, or all, as text: braille dots where the locale is UTF-8, ASCII elsewhere"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "the runs' numbers as JSON, an object a run"},
    {"csv", SL_OPTION_TEXT, FIELD(csv), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write the runs' steps to FILE, a row a step, as comma-separated values (RFC 4180)"},
    {"output", SL_OPTION_TEXT, FIELD(output), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write to FILE, in place of stdout: a page (HTML) that needs no other file, unless another option "
             "asks for something else"},
    {"width", SL_OPTION_INTEGER, FIELD(width), .min = REPORT_LEAST_COLUMNS, .max = REPORT_MOST_COLUMNS,
     .read = "terminal", .help = "columns of the text of --terminal (default: the terminal's, or 80)"},
    {0},
};

struct report {
    const struct config *config;
    struct report_runs runs;
    struct report_timeline timeline[REPORT_MOST_RUNS];
};

static int check(const struct config *config, const struct sl_operands *operands, struct sl_error *error) {
    if (operands->count == 0)
        return sl_error_set(error, SL_BAD_INPUT,
                            "RUN is missing: a file that --metrics of a training wrote (see --help)");
    if ((config->svg >= 0) + (config->terminal >= 0) + config->json + (config->csv != NULL) > 1)
        return sl_error_set(error, SL_BAD_INPUT, "--svg, --terminal, --json and --csv: one of them at most");
    if (config->json && config->output) return sl_error_set(error, SL_BAD_INPUT, "--output: --json goes to stdout");
    if (config->csv && config->output)
        return sl_error_set(error, SL_BAD_INPUT, "--output: --csv names the file of its own");
    if (!config->output && !config->csv && config->terminal < 0 && !config->json && isatty(STDOUT_FILENO))
        return sl_error_set(error, SL_BAD_INPUT,
                            "a page is nothing for a terminal: write it with --output FILE.html, or see the plots here "
                            "with --terminal all");
    return SL_OK;
}

static int open_timelines(struct report *report, struct sl_error *error) {
    for (int i = 0; i < report->runs.count; i++)
        if (report->runs.run[i].trace)
            SL_TRY(report_timeline_open(&report->timeline[i], report->runs.run[i].trace, error));
    return SL_OK;
}

static int nothing(const char *option, const char *plot, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s %s: none of the runs has it", option, plot);
}

static int write_timeline(const struct report *report, FILE *file, struct sl_error *error) {
    for (int i = 0; i < report->runs.count; i++) {
        if (!report->runs.run[i].trace) continue;
        const struct report_timeline *timeline = &report->timeline[i];
        if (timeline->missing.status) return sl_error_set(error, SL_BAD_INPUT, "%s", timeline->missing.message);
        report_timeline_write(file, timeline);
        return SL_OK;
    }
    return nothing("--svg", "timeline", error);
}

static int write_svg(const struct report *report, FILE *file, struct sl_error *error) {
    const int plot = report->config->svg;
    if (plot == TIMELINE) return write_timeline(report, file, error);
    if (plot == MEMORY)
        return report_memory_write(file, &report->runs, true) ? SL_OK : nothing("--svg", "memory", error);
    if (report_chart_write_file(file, &report_plots[plot], &report->runs)) return SL_OK;
    return nothing("--svg", report_plots[plot].name, error);
}

static int write_text(const struct report *report, const struct sl_output *output, struct sl_error *error) {
    const struct config *config = report->config;
    const struct report_terminal terminal =
        report_terminal_of(output->stream, config->width ? config->width : output->width, output->columns > 0);
    const int plot = config->terminal;
    report_terminal_facts(&terminal, &report->runs);
    if (plot != ALL)
        return report_terminal_plot(&terminal, &report_plots[plot], &report->runs)
                   ? SL_OK
                   : nothing("--terminal", report_plots[plot].name, error);
    for (int p = 0; p < REPORT_PLOTS; p++) report_terminal_plot(&terminal, &report_plots[p], &report->runs);
    return SL_OK;
}

static int write_all(const struct report *report, const struct sl_output *output, struct sl_error *error) {
    const struct config *config = report->config;
    if (config->csv) return report_csv_write(output->stream, &report->runs), SL_OK;
    if (config->svg >= 0) return write_svg(report, output->stream, error);
    if (config->terminal >= 0) return write_text(report, output, error);
    return report_page_write(output->stream, &report->runs, report->timeline, error);
}

static void remark(const struct sl_options *options, const struct report_runs *runs) {
    char text[160];
    for (int i = 0; i < runs->count; i++)
        if (*report_run_remark(&runs->run[i], text, sizeof text))
            fprintf(stderr, "%s: %s: %s\n", options->program, runs->run[i].metrics, text);
}

static int run(struct report *report, const struct sl_options *options, struct sl_error *error) {
    const struct config *config = report->config;
    struct sl_output output = {0};
    SL_TRY(check(config, &options->operands, error));
    SL_TRY(report_runs_open(&report->runs, options->operands.word, options->operands.count, error));
    SL_TRY(open_timelines(report, error));
    remark(options, &report->runs);
    if (config->json) return report_facts_json(&report->runs, error);
    SL_TRY(sl_output_open(&output, config->csv ? config->csv : config->output, error));
    if (config->csv) output.option = "--csv";
    return sl_output_close(&output, write_all(report, &output, error), error);
}

int main(int argc, char **argv) {
    struct config config = {.svg = -1, .terminal = -1};
    struct sl_options options = {
        .program = "report",
        .summary = "Shows training runs, from the files of their --metrics and --trace.",
        .section = SL_SECTIONS({"Output", table, &config}),
        .operands = {.name = "RUN",
                     .help = "metrics of a run, or a trace, which belongs to the run before it; or a directory with "
                             "files of a run that are called metrics and trace. NAME=RUN names it",
                     .path = SL_PATH_RUN,
                     .path_of = report_path_of},
    };
    struct report report = {.config = &config};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered)
        status = sl_options_finish(&options, run(&report, &options, &error), &error);
    for (int i = 0; i < REPORT_MOST_RUNS; i++) report_timeline_free(&report.timeline[i]);
    report_runs_free(&report.runs);
    sl_options_free(&options);
    return status;
}
