/* transformer.c - trains, evaluates and samples a transformer over data, pipeline and tensor coordinates. */
#include "drivers/transformer/transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/common/interrupt.h"
#include "drivers/common/placement_report.h"
#include "drivers/common/schedule_choice.h"

static int report_bytes(struct transformer_job *job, struct sl_error *error) {
    static const struct sl_column column[] = {{"coordinate", -36}, {"parameters, optimizer", 22}, {"activations", 14}};
    if (!job->config->common.json) sl_table_begin(&job->table, stdout, 3, column);
    for (int c = 0; c < job->mesh.size; c++) {
        char name[128];
        if (job->config->common.json) {
            SL_TRY(
                sl_json_print(stdout, "stdout",
                              json_pack("{si sI sI}", "coordinate", c, "state_bytes", (json_int_t)job->state_bytes[c],
                                        "activation_bytes", (json_int_t)job->activation_bytes[c]),
                              error));
            continue;
        }
        sl_table_cell(&job->table, "%s", sl_mesh_describe(&job->mesh, c, name, sizeof name));
        sl_table_cell(&job->table, "%.2f MB", job->state_bytes[c] / 1e6);
        sl_table_cell(&job->table, "%.2f MB", job->activation_bytes[c] / 1e6);
    }
    return SL_OK;
}

static int train(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    if (config->dry_run) {
        SL_TRY(sl_run(&job->mesh, engine, transformer_train_program, job));
        return sl_speaks(engine) ? report_bytes(job, error) : SL_OK;
    }
    sl_interrupt_catch();
    if (!sl_speaks(engine)) return sl_run(&job->mesh, engine, transformer_train_program, job);
    if (config->gradients && config->common.steps == 0)
        return sl_error_set(error, SL_BAD_INPUT, "--gradients: no steps, so no gradients");
    if (config->gradients) SL_TRY(sl_safetensors_can_write(config->gradients, error));
    SL_TRY(sl_checkpoints_open(&job->checkpoints, error));
    SL_TRY(sl_metrics_open(&job->metrics, config->metrics, error));
    sl_progress_begin(&job->progress, "step", config->common.steps - job->checkpoints.first);
    int status = sl_run(&job->mesh, engine, transformer_train_program, job);
    sl_progress_clear(&job->progress);
    if (status == SL_OK && config->profile)
        status = sl_profile_report(job->profile, &job->mesh, job->done - 1, config->common.json, error);
    if (status == SL_OK) status = transformer_report_end(job, error);
    if (status == SL_OK && config->gradients) status = sl_safetensors_write(&job->gradients, config->gradients, error);
    const int closed = sl_metrics_close(&job->metrics, status ? NULL : error);
    return status ? status : closed;
}

static int evaluate(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(sl_run(&job->mesh, engine, transformer_evaluate_program, job));
    if (job->config->common.json)
        return sl_json_print(stdout, "stdout",
                             json_pack("{so sI}", "evaluation_loss", sl_json_real(job->evaluation_loss), "parameters",
                                       (json_int_t)sl_transformer_parameters(&job->model)),
                             error);
    printf("evaluation loss %.9g\n", job->evaluation_loss);
    return SL_OK;
}

static int start(struct transformer_job *job, enum transformer_command command, const struct transformer_config *config,
                 struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    SL_TRY(sl_common_open(&config->common, &mesh, &engine, error));
    if (config->common.show_placement) return sl_placement_report(&mesh, &engine, config->common.json, error);
    SL_TRY(transformer_prepare(job, command, config, &mesh, error));
    engine.error = error;
    if (config->show_shardings) return sl_run(&job->mesh, &engine, transformer_shardings_program, job);
    switch (command) {
    case TRANSFORMER_TRAIN:
        return train(job, &engine, error);
    case TRANSFORMER_EVALUATE:
        return evaluate(job, &engine, error);
    default:
        return sl_run(&job->mesh, &engine, transformer_generate_program, job);
    }
}

/* ---- main ---- */

struct command {
    const char *name, *program, *summary;
};

static const struct command commands[] = {
    [TRANSFORMER_TRAIN] = {"train", "transformer train", "Trains the transformer on a text."},
    [TRANSFORMER_EVALUATE] = {"evaluate", "transformer evaluate", "The mean loss over the part of a text kept for it."},
    [TRANSFORMER_GENERATE] = {"generate", "transformer generate", "Continues a prompt."},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int explain(FILE *stream) {
    fprintf(stream, "Usage: transformer train|evaluate|generate [OPTION]...\n");
    for (int i = 0; i < COMMANDS; i++) fprintf(stream, "  %-10s%s\n", commands[i].name, commands[i].summary);
    fprintf(stream, "transformer COMMAND --help tells a command's options.\n");
    return SL_OK;
}

static int run(enum transformer_command command, const char *program, int argc, char **argv) {
    struct transformer_config config = transformer_defaults(command);
    struct sl_options options = {
        .program = program, .summary = commands[command].summary, .engine = &config.common.engine};
    struct transformer_job job = {.final_loss = NAN, .evaluation_loss = NAN};
    struct sl_error error = {0};
    transformer_sections(command, &config, options.section);
    if (command != TRANSFORMER_GENERATE) options.words = (struct sl_option_words){"Schedules", sl_schedule_word};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = start(&job, command, &config, &error);
        if (status == SL_OK) status = sl_stdout_finish(&error);
        if (status) sl_options_report(&options, &error);
    }
    sl_checkpoints_close(&job.checkpoints);
    transformer_finish(&job);
    sl_options_free(&options);
    return status;
}

int main(int argc, char **argv) {
    for (int i = 0; argc > 1 && i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return run((enum transformer_command)i, commands[i].program, argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "--help")) return explain(stdout);
    if (argc > 1 && !strcmp(argv[1], "--version")) return run(TRANSFORMER_TRAIN, "transformer", argc, argv);
    fprintf(stderr, "transformer: %s%.60s%s: choose one of train, evaluate, generate\n",
            argc > 1 ? "there is no \"" : "no command", argc > 1 ? argv[1] : "", argc > 1 ? "\"" : "");
    return SL_BAD_INPUT;
}
