/* schedule.c - generates a pipeline schedule, proves it, and prints it. */
#include <stdio.h>

#include "drivers/metrics.h"
#include "drivers/options.h"
#include "layers/pipeline.h"

enum format { TABLE, INDICES };

struct config {
    const char *name;
    int stages, loops, microbatches, buffers;
    int format;
    bool check;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option driver_table[] = {
    {"name", SL_OPTION_TEXT, FIELD(name), .value = "NAME", .help = "gpipe or looped-bfs"},
    {"stages", SL_OPTION_INTEGER, FIELD(stages), .min = 1, .max = 4096, .help = "ranks of the pipeline"},
    {"loops", SL_OPTION_INTEGER, FIELD(loops), .min = 1, .max = 4096, .help = "stages a rank"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 1, .max = 65536, .help = "parts of a batch"},
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "table|indices",
     .help = "one line a rank, or the looping pipeline's index arrays"},
    {"check", SL_OPTION_FLAG, FIELD(check), .help = "say what was proven about the table"},
    {"buffers", SL_OPTION_INTEGER, FIELD(buffers), .min = 1, .max = 65536,
     .help = "messages that may lie between two ranks, each way"},
    {0},
};

static int print(const struct config *config, const struct sl_schedule *schedule, int stash, struct sl_error *error) {
    if (config->format == INDICES) {
        if (sl_schedule_print_indices(schedule, stdout)) return sl_error_set(error, SL_FAILED, "no memory to print");
    } else {
        sl_schedule_print_table(schedule, stdout);
    }
    if (config->check)
        printf(
            "every action runs once, after what it needs; no deadlock with %d buffers; at most %d microbatches kept\n",
            config->buffers, stash);
    return SL_OK;
}

static int run(const struct config *config, struct sl_schedule *schedule, struct sl_error *error) {
    int stash;
    SL_TRY(sl_schedule_make(schedule, config->name, config->stages, config->loops, config->microbatches, error));
    SL_TRY(sl_schedule_lower(schedule, error));
    SL_TRY(sl_schedule_check(schedule, config->buffers, &stash, error));
    return print(config, schedule, stash, error);
}

int main(int argc, char **argv) {
    struct config config = {
        .name = "looped-bfs", .stages = 4, .loops = 2, .microbatches = 8, .buffers = SL_PIPELINE_FEWEST_SLOTS};
    struct sl_options options = {
        .program = "schedule",
        .summary = "Generates a pipeline schedule, proves that it runs, and prints it.",
        .section = {{"Schedule", driver_table, &config}},
    };
    struct sl_schedule schedule = {0};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = run(&config, &schedule, &error);
        if (status == SL_OK) status = sl_stdout_finish(&error);
        if (status) sl_options_report(&options, &error);
    }
    sl_schedule_free(&schedule);
    sl_options_free(&options);
    return status;
}
