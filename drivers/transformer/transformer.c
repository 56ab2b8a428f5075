/* transformer.c - trains, evaluates and samples a transformer over data, pipeline and tensor coordinates. */
#include "drivers/transformer/transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/common/commands.h"
#include "drivers/speed/placement_report.h"
#include "drivers/training/choices/schedule_choice.h"
#include "drivers/tools/search/forecast.h"
#include "drivers/training/restart/restart.h"
#include "drivers/training/shardings_report.h"

static int train(struct transformer_job *job, struct sl_engine *engine, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    struct sl_forecast forecast;
    if (config->search.plan)
        return sl_search(&job->job, engine, config->common.command, &config->search, config->common.json, error);
    SL_TRY(sl_forecast_make(&forecast, &job->training, engine, &config->search, error));
    return sl_training_run(&job->training, engine, error);
}

static int start(struct transformer_job *job, enum transformer_command command, struct transformer_config *config,
                 struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    SL_TRY(sl_common_open(&config->common, &mesh, &engine, error));
    if (config->common.show_placement) return sl_placement_report(&mesh, &engine, config->common.json, error);
    job->one_machine = engine.table == &sl_engine_local;
    if (config->chat) SL_TRY(transformer_read_chats(job, config, command, sl_speaks(&engine), error));
    if (config->questions) SL_TRY(transformer_read_choices(job, config, &mesh, error));
    SL_TRY(transformer_prepare(job, command, config, &mesh, &engine, error));
    if (engine.table->apart) SL_TRY(transformer_sign(job, error));
    engine.error = error;
    if (command == TRANSFORMER_TRAIN) return train(job, &engine, error);
    if (config->training.show_shardings) return sl_shardings_report(&job->job, &engine, config->common.json);
    if (command == TRANSFORMER_EVALUATE) return transformer_run_evaluation(job, &engine, error);
    if (command == TRANSFORMER_EXPORT) return transformer_run_export(job, &engine, error);
    return transformer_run_generation(job, &engine, error);
}

/* ---- main ---- */

static int run(const struct sl_command *command, const char *program, int argc, char **argv);

/* In the order of enum transformer_command. */
static const struct sl_command commands[] = {
    {"train", "transformer train", "Trains the transformer on a text.", run},
    {"evaluate", "transformer evaluate",
     "The mean loss over a text, or over the part of one that is kept for it; or answers to questions.", run},
    {"generate", "transformer generate", "Continues a prompt.", run},
    {"export", "transformer export", "Writes a model for Hugging Face's library or llama.cpp.", run},
    {0},
};
enum { COMMANDS = sizeof commands / sizeof *commands - 1 };

/* Published models have grouped attention; the model's files set the other sizes (transformer_take_model). */
static void settle(const struct sl_options *options) {
    struct transformer_config *config = options->own;
    if (config->model) config->attention = SL_ATTENTION_GROUPED;
}

/* For commands that use a trained model: any runs on one coordinate unless the user gives another mesh. And if the user
 * gives data, the run's --eval-data are dropped. */
static void settle_trained(const struct sl_options *options) {
    struct transformer_config *config = options->own;
    settle(options);
    if ((config->params || config->model) && !sl_option_given(options, "mesh")) config->common.mesh = "data=1";
    if (sl_option_given(options, "data") && !sl_option_given(options, "eval-data")) config->eval_data = NULL;
}

/* The examples form a sequence: later ones use files saved by earlier ones. */
static const struct sl_brief briefs[COMMANDS] = {
    [TRANSFORMER_TRAIN] = {"mesh engine steps data batch model-dimension n-heads blocks layers-per-block sequence "
                           "attention model tokenizer precision dry-run schedule microbatches lr warmup lr-schedule "
                           "metrics save save-every resume evaluate-every",
                           (const char *const[]){
                               "--attention gqa --mlp silu --biases none --layers-per-block 1 --steps 20 --save run",
                               "--resume run --steps 30 --metrics run.jsonl --evaluate-every 5",
                               "--mesh data=2,pipe=2 --schedule looped-bfs --loops 3 --dry-run", NULL}},
    [TRANSFORMER_EVALUATE] = {"mesh engine json data eval-data batch evaluate-batches chat choices sequence "
                              "params model tokenizer adapters precision dry-run",
                              (const char *const[]){"--params run", "--params run --eval-data /etc/services",
                                                    "--params run --mesh data=2,pipe=2", NULL}},
    [TRANSFORMER_GENERATE] = {"mesh engine seed json interactive params model tokenizer adapters precision "
                              "prompt prompts length samples temperature sample-top-k sample-top-p stop",
                              (const char *const[]){"--params run --prompt License --length 64",
                                                    "--params run --prompt The --samples 4 --temperature 0.5",
                                                    "--params run --prompt The --temperature 0 --json", NULL}},
    [TRANSFORMER_EXPORT] = {"json sequence context params model tokenizer adapters format to type file-megabytes",
                            (const char *const[]){"--params run --format hf --to run-hf",
                                                  "--params run --format gguf --to run-gguf",
                                                  "--params run --format gguf --type q8_0 --to run-q8", NULL}},
};

static int run(const struct sl_command *named, const char *program, int argc, char **argv) {
    const enum transformer_command command = (enum transformer_command)(named - commands);
    struct transformer_config config = transformer_defaults(command);
    struct sl_training_options *training = &config.training;
    const struct sl_option_section *const sections[COMMANDS] = {
        [TRANSFORMER_TRAIN] = SL_SECTIONS(
            {"Mesh", sl_mesh_table, &config.common}, {"Run", sl_common_table, &config.common},
            {"Data", transformer_data_table, &config}, {"Conversations", transformer_chat_table, &config},
            {"Model", transformer_model_table, &config}, {"Latents, experts", transformer_own_table, &config},
            {"Dropout, balance", transformer_loss_table, &config}, {"Parameters", transformer_parameter_table, &config},
            {"PEFT", transformer_given_adapter_table, &config}, {"Layout", sl_layout_table, training},
            {"Context", transformer_context_table, &config}, {"Schedule", transformer_schedule_table, &config},
            {"Pipeline", sl_pipeline_table, training}, {"Plan", sl_search_table, &config.search},
            {"Adapters", transformer_adapter_table, &config}, sl_optimizer_section(&training->optimizer),
            {"Learning rate", sl_rate_table, training}, {"Records", sl_record_table, training},
            {"Checkpoints", sl_checkpoint_table, &training->checkpoints},
            {"Evaluation and samples", transformer_sample_table, &config}, {"Speed", transformer_speed_table, &config},
            {"Generation", transformer_generation_table, &config}),
        [TRANSFORMER_EVALUATE] = SL_SECTIONS(
            {"Mesh", sl_mesh_table, &config.common}, {"Run", sl_query_table, &config.common},
            {"Data", transformer_data_table, &config}, {"Conversations", transformer_chat_table, &config},
            {"Multiple choice", transformer_choice_table, &config}, {"Model", transformer_model_table, &config},
            {"Latents, experts", transformer_own_table, &config}, {"Parameters", transformer_parameter_table, &config},
            {"PEFT", transformer_given_adapter_table, &config}, {"Layout", sl_layout_table, training},
            {"Context", transformer_context_table, &config}, {"Schedule", transformer_schedule_table, &config}),
        [TRANSFORMER_GENERATE] = SL_SECTIONS(
            {"Mesh", sl_mesh_table, &config.common}, {"Run", sl_query_table, &config.common},
            {"Conversations", transformer_interactive_table, &config}, {"Model", transformer_model_table, &config},
            {"Latents, experts", transformer_own_table, &config}, {"Parameters", transformer_parameter_table, &config},
            {"PEFT", transformer_given_adapter_table, &config}, {"Layout", sl_layout_table, training},
            {"Generation", transformer_generation_table, &config},
            {"End of a sample", transformer_ending_table, &config}),
        [TRANSFORMER_EXPORT] = SL_SECTIONS(
            {"Run", sl_print_table, &config.common}, {"Model", transformer_model_table, &config},
            {NULL, transformer_own_table, &config}, {"Parameters", transformer_parameter_table, &config},
            {"PEFT", transformer_given_adapter_table, &config}, {"Files", transformer_export_table, &config}),
    };
    struct sl_options options = {.program = program,
                                 .summary = named->summary,
                                 .engine = &config.common.engine,
                                 .section = sections[command],
                                 .brief = briefs[command]};
    struct transformer_job job = {.score = {NAN, 0}};
    struct sl_error error = {0};
    if (transformer_reads_data(command)) options.words = (struct sl_option_words){"Schedules", sl_schedule_word};
    options.params = command == TRANSFORMER_EVALUATE ? SL_KEPT_DATA : SL_KEPT_MODEL;
    options.settle = command == TRANSFORMER_TRAIN ? settle : settle_trained;
    options.own = &config;
    config.common.command = &options;
    int status = sl_options_parse(&options, argc, argv);
    if (command == TRANSFORMER_EXPORT) config.common.mesh = "data=1";
    if (status == SL_OK && sl_restart_asked(&options, &training->checkpoints)) {
        status = sl_restart(&options, named->name, &training->checkpoints, &config.common);
    } else if (status == SL_OK && !options.answered) {
        status = transformer_take_base(&job, command, &config, &options, &error);
        if (status == SL_OK)
            status = transformer_take_model(&job, &config, &options, command == TRANSFORMER_EXPORT, &error);
        if (status == SL_OK) status = transformer_take_adapters(&job, &config, &error);
        if (status == SL_OK) status = transformer_choose_weights(&job, command, &config, &options, &error);
        if (status == SL_OK) status = sl_search_prepare(&config.search, &config.common, &options, &error);
        training->plans = config.search.plan != SL_PLAN_NO;
        /* the default, fsdp, would be refused */
        if (training->exact && !sl_option_given(&options, "fsdp")) training->fsdp = false;
        if (status == SL_OK) status = start(&job, command, &config, &error);
        status = sl_options_finish(&options, status, &error);
        if (status == SL_OK && job.evaluated)
            transformer_warn_of_source(&job); /* after a success only: an error is a single line */
    }
    transformer_finish(&job);
    sl_options_free(&options);
    return status;
}

int main(int argc, char **argv) { return sl_commands_main("transformer", commands, argc, argv); }
