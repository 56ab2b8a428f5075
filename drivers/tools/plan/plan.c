/* plan.c - plans a training job: memory per device, costs of pipelines, traffic, and places of replicas on nodes. */
#include "drivers/tools/plan/plan.h"

#include <string.h>

#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/training/choices/schedule_choice.h"

enum section { ALL, MEMORY, DATA, PIPELINE, TENSOR, COMMUNICATION, REPLICAS, CALLS, SEARCH, SECTIONS };
enum format { TABLE, SVG, HTML, CSV, JSON };

struct config {
    struct plan_job job;
    const char *output;
    int section, format;
    bool json;
};

#define FIELD(name) offsetof(struct config, name)
#define JOB(name) offsetof(struct config, job.name)
/* Condition for options read by these sections of tables, but not by a drawing or a schedule's own table. */
#define TOLD(sections) "section=all/" sections "&format=table/json"

static const struct sl_option output_table[] = {
    {"section", SL_OPTION_CHOICE, FIELD(section),
     .value = "all|memory|data|pipeline|tensor|communication|replicas|calls|search", .help = "the part of the plan"},
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "table|svg|html|csv|json",
     .help = "format of the output: tables; a drawing of one pipeline, or of the first four (svg); an HTML page of it "
             "that zooms and describes each box; one pipeline's table in PyTorch's CSV format; a JSON object a line"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "short for --format json"},
    {"output", SL_OPTION_TEXT, FIELD(output), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "print to FILE instead of stdout; the name's ending chooses the format: .svg, .html, .csv, .json"},
    {0},
};

static const struct sl_option layout_table[] = {
    {"data", SL_OPTION_INTEGER, JOB(data), .min = 1, .max = 65536,
     .read = TOLD("memory/data/communication/replicas/search"), .help = "replicas of the model"},
    {"stages", SL_OPTION_INTEGER, JOB(stages), .min = 1, .max = 4096,
     .read = "section=all/memory/pipeline/communication/replicas/search", .help = "ranks of the pipeline"},
    {"tensor", SL_OPTION_INTEGER, JOB(tensor), .min = 1, .max = 65536,
     .read = TOLD("memory/tensor/communication/replicas/search"), .help = "devices that share each layer"},
    {"context", SL_OPTION_INTEGER, JOB(context), .min = 1, .max = 4096,
     .read = "section=memory/search&format=table/json", .help = "devices that share each sequence"},
    {"recompute", SL_OPTION_SWITCH, JOB(recompute),
     .read = "section=all/memory/pipeline/communication/replicas/search&!format=csv",
     .help = "save only the input of each layer, and compute the rest again in backward"},
    {"zero", SL_OPTION_INTEGER, JOB(zero), .min = 0, .max = 3, .read = TOLD("memory/communication/replicas/search"),
     .help =
         "the states that are sharded over the replicas: 1: the optimizer's; 2: gradients, too; 3: parameters, too"},
    {"offload", SL_OPTION_SWITCH, JOB(offload), .read = TOLD("memory/search"),
     .help = "store optimizer states in the host's memory"},
    {0},
};

static struct sl_option_word pipeline_word(int i) {
    static const char *const others[] = {"inference", "all", NULL};
    int count = 0;
    while (sl_schedule_word(count).name) count++;
    return i < count ? sl_schedule_word(i) : (struct sl_option_word){.name = others[i - count]};
}

static const struct sl_option pipeline_table[] = {
    {"pipeline", SL_OPTION_TEXT, JOB(pipeline), .value = "NAME",
     .read = "section=all/memory/pipeline/communication/replicas/search", .word = pipeline_word,
     .help = "order of the pipeline's work: sequential, grouped, interleaved, inference, one of the schedules below, "
             "or all, which is the first four (default: all)"},
    {"loops", SL_OPTION_INTEGER, JOB(loops), .min = 1, .max = 4096, .read = "section=all/memory/pipeline/search",
     .help = "stages a rank (default: as many as the pipeline needs)"},
    {"microbatches", SL_OPTION_INTEGER, JOB(microbatches), .min = 1, .max = 65536,
     .read = "section=all/memory/data/pipeline/communication/replicas/search",
     .help = "microbatches of a replica whose gradients are added up before an update"},
    {"forward", SL_OPTION_REAL, JOB(forward), .min = 0, .max = 1e9, .read = "section=all/pipeline&!format=csv",
     .help = "ms that a microbatch takes forward through all layers of a rank"},
    {"backward", SL_OPTION_REAL, JOB(backward), .min = 0, .max = 1e9, .read = "section=all/pipeline&!format=csv",
     .help = "ms of a microbatch's backward through all layers of a rank"},
    {"exchange", SL_OPTION_REAL, JOB(exchange), .min = 0, .max = 1e9, .read = "section=all/pipeline&!format=csv",
     .help = "ms of an exchange of states between two ranks"},
    {"stage-times", SL_OPTION_TEXT, JOB(stage_times), .value = "X,X,...", .read = "section=all/pipeline&!format=csv",
     .help = "factors of the ranks' times, for unbalanced stages"},
    {0},
};

static const struct sl_option model_table[] = {
    {"layers", SL_OPTION_INTEGER, JOB(layers), .min = 1, .max = 65536, .alias = "layers-per-block",
     .read = "section=all/memory/data/pipeline/communication/replicas/search", .help = "layers of the transformer"},
    {"hidden", SL_OPTION_INTEGER, JOB(hidden), .min = 1, .max = 1048576, .alias = "model-dimension",
     .read = TOLD("memory/data/pipeline/tensor/communication/replicas/search"), .help = "columns of a token's state"},
    {"expansion", SL_OPTION_INTEGER, JOB(expansion), .min = 1, .max = 64,
     .read = TOLD("memory/data/tensor/communication/replicas/search"),
     .help = "columns inside the MLP, as a multiple of hidden"},
    {"heads", SL_OPTION_INTEGER, JOB(heads), .min = 1, .max = 65536, .alias = "n-heads",
     .read = TOLD("memory/tensor/communication/replicas/search"), .help = "attention heads"},
    {"vocabulary", SL_OPTION_INTEGER, JOB(vocabulary), .min = 1, .max = 16777216, .alias = "vocab-size",
     .read = TOLD("memory/data/tensor/communication/replicas/search"), .help = "rows of the embedding"},
    {"sequence", SL_OPTION_INTEGER, JOB(sequence), .min = 1, .max = 16777216,
     .read = TOLD("memory/data/pipeline/communication/replicas/search"), .help = "tokens of a sample"},
    {"microbatch-size", SL_OPTION_INTEGER, JOB(microbatch_size), .min = 1, .max = 1048576,
     .read = TOLD("memory/data/pipeline/communication/replicas/search"), .help = "samples of a microbatch"},
    {"parameters", SL_OPTION_REAL, JOB(parameters), .min = 0, .max = 1e18,
     .read = TOLD("memory/data/communication/replicas/search"),
     .help = "parameters of a model of any kind; its layers, columns and heads, unless given, are those of a "
             "transformer of that size; 0: count the parameters of the transformer"},
    {"precision", SL_OPTION_CHOICE, JOB(precision), .value = "f32|bf16|mixed",
     .read = TOLD("memory/data/pipeline/tensor/communication/replicas/search"),
     .help = "type of all stored data; mixed: bf16, with values, gradients and optimizer states in f32"},
    {"optimizer", SL_OPTION_CHOICE, JOB(optimizer), .value = "sgd|momentum|adam", .read = TOLD("memory/search"),
     .help = "optimizer with no, one or two states a parameter"},
    {0},
};

static const struct sl_option device_table[] = {
    {"capacity", SL_OPTION_REAL, JOB(capacity), .min = 0, .max = 1e9, .read = TOLD("memory/search"),
     .help = "memory of a device in GiB; 0: unknown"},
    {"code", SL_OPTION_REAL, JOB(code), .min = 0, .max = 1e9, .read = TOLD("memory/search"),
     .help = "GiB of --capacity for the program itself"},
    {"node", SL_OPTION_INTEGER, JOB(node), .min = 1, .max = 1048576, .read = TOLD("replicas/calls/search"),
     .help = "devices of a node"},
    {"fast", SL_OPTION_REAL, JOB(fast), .min = 0.001, .max = 1e9, .read = TOLD("replicas/search"),
     .help = "GB/s that a device sends within a node"},
    {"slow", SL_OPTION_REAL, JOB(slow), .min = 0.001, .max = 1e9, .read = TOLD("replicas/search"),
     .help = "GB/s between nodes"},
    {"teraflops", SL_OPTION_REAL, JOB(teraflops), .min = 0.001, .max = 1e9, .read = TOLD("search"),
     .help = "floating-point operations a second that a device reaches, in 10^12"},
    {0},
};

static const struct sl_brief brief = {
    "layers hidden heads vocabulary sequence microbatch-size parameters precision data stages tensor recompute zero "
    "pipeline microbatches capacity node fast slow teraflops section format json output",
    (const char *const[]){"--section memory --parameters 7e9",
                          "--section pipeline --pipeline interleaved-1f1b --loops 2",
                          "--section search --data 4 --stages 4 --tensor 4", NULL}};

static const struct config defaults = {.job = {.stages = 4,
                                               .microbatches = 8,
                                               .forward = 1,
                                               .backward = 2,
                                               .layers = 96,
                                               .hidden = 12288,
                                               .expansion = 4,
                                               .heads = 96,
                                               .vocabulary = 51200,
                                               .sequence = 2048,
                                               .microbatch_size = 1,
                                               .precision = PLAN_MIXED,
                                               .optimizer = PLAN_ADAM,
                                               .capacity = 80,
                                               .fast = 300,
                                               .slow = 25,
                                               .teraflops = 100,
                                               .data = 2,
                                               .tensor = 8,
                                               .context = 1,
                                               .zero = 1,
                                               .node = 8}};

/* Checks conditions beyond the options' ranges. */
static int check_job(const struct plan_job *job, struct sl_error *error) {
    const struct {
        const char *name;
        long long size;
    } split[] = {{"attention heads", job->heads},
                 {"rows of the perceptron's middle", (long long)job->expansion * job->hidden}};
    for (int i = 0; i < 2; i++) {
        if (split[i].size % job->tensor)
            return sl_error_set(error, SL_BAD_INPUT, "--tensor: %lld %s do not divide by %d devices", split[i].size,
                                split[i].name, job->tensor);
    }
    if (job->stages > job->layers)
        return sl_error_set(error, SL_BAD_INPUT, "--stages: %d stages, but only %d layers", job->stages, job->layers);
    const double devices = (double)job->data * job->stages * job->tensor * job->context;
    if (devices > 1 << 20)
        return sl_error_set(error, SL_BAD_INPUT, "--data, --stages, --tensor, --context: %.0f devices; allowed are %d",
                            devices, 1 << 20);
    struct plan_pipeline pipeline;
    const int status = plan_pipeline_make(&pipeline, job, job->pipeline ? job->pipeline : "inference", error);
    plan_pipeline_free(&pipeline);
    return status;
}

/* Checks sizes that the trainer would refuse, for the sections that call it, before they print. */
static int check_trained(const struct plan_job *job, struct sl_error *error) {
    const double samples = (double)job->microbatch_size * job->microbatches;
    if (job->hidden % job->heads)
        return sl_error_set(error, SL_BAD_INPUT, "--heads: %d columns (--hidden) do not divide into %d heads",
                            job->hidden, job->heads);
    if (job->context > 1 && job->sequence % (2 * job->context))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--context: %d tokens (--sequence) do not divide into 2 blocks for each of %d devices",
                            job->sequence, job->context);
    if (samples * job->sequence > INT32_MAX)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--microbatches, --microbatch-size, --sequence: a replica's batch of %.0f tokens; at most "
                            "%d are possible",
                            samples * job->sequence, INT32_MAX);
    if (samples * job->data > INT32_MAX)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--microbatches, --microbatch-size, --data: a batch of %.0f samples; at most %d are "
                            "possible",
                            samples * job->data, INT32_MAX);
    return SL_OK;
}

static void settle(const struct sl_options *options) {
    struct config *config = options->own;
    plan_shape(&config->job, sl_option_given(options, "layers"), sl_option_given(options, "hidden"),
               sl_option_given(options, "heads"));
}

static int print_sections(const struct config *config, const struct sl_output *output, struct sl_error *error) {
    static plan_section *const section[SECTIONS] = {[MEMORY] = plan_print_memory,
                                                    [DATA] = plan_print_data,
                                                    [PIPELINE] = plan_print_pipelines,
                                                    [TENSOR] = plan_print_tensor,
                                                    [COMMUNICATION] = plan_print_communication,
                                                    [REPLICAS] = plan_print_replicas,
                                                    [CALLS] = plan_print_calls,
                                                    [SEARCH] = plan_print_search};
    struct plan_rows rows = {.output = output, .json = config->format == JSON};
    int printed = 0;
    for (int i = ALL + 1; i < SECTIONS; i++) {
        if (config->section != ALL && config->section != i) continue;
        if (printed++) plan_rows_note(&rows, "\n");
        SL_TRY(section[i](&rows, &config->job, error));
    }
    return SL_OK;
}

static int run(struct config *config, struct sl_error *error) {
    struct sl_output output;
    if (config->job.pipeline && !strcmp(config->job.pipeline, "all")) config->job.pipeline = NULL;
    const char *const format =
        (const char *[]){[SVG] = "svg", [HTML] = "html", [CSV] = "csv", [JSON] = NULL}[config->format];
    if (format && config->section != ALL && config->section != PIPELINE)
        return sl_error_set(error, SL_BAD_INPUT, "--format: %s is for pipelines, and no other section", format);
    if (config->format == CSV && !config->job.pipeline)
        return sl_error_set(error, SL_BAD_INPUT, "--format csv is for one pipeline: --pipeline says which");
    const bool trains = config->section == ALL || config->section == MEMORY || config->section == SEARCH;
    SL_TRY(check_job(&config->job, error));
    if (trains && (config->format == TABLE || config->format == JSON)) SL_TRY(check_trained(&config->job, error));
    SL_TRY(sl_output_open(&output, config->output, error));
    int status;
    if (config->format == SVG || config->format == HTML)
        status = plan_draw(&output, &config->job, config->format == HTML, error);
    else if (config->format == CSV)
        status = plan_write_csv(&output, &config->job, error);
    else
        status = print_sections(config, &output, error);
    return sl_output_close(&output, status, error);
}

static bool is_command(int argc, char **argv, const char *name) { return argc > 1 && !strcmp(argv[1], name); }

int main(int argc, char **argv) {
    if (is_command(argc, argv, "memory") || is_command(argc, argv, "search")) return plan_by_driver(argc, argv);
    if (is_command(argc, argv, "measure")) return plan_measure(argc - 1, argv + 1);
    struct config config = defaults;
    struct sl_options options = {
        .program = "plan",
        .summary = "Plans the training of a transformer on many devices: memory, batches, pipelines, tensor-parallel "
                   "layers, communication, replicas on nodes, counts of calls, and a search over layouts. Memory and "
                   "search call the "
                   "code that trains: bytes are those of transformer train --dry-run where each device is a process "
                   "(--engine mpi), times those of its --plan search on devices without other costs; the other "
                   "sections explain by formulas. plan measure measures this machine; plan memory --driver NAME and "
                   "plan search --driver NAME plan a real run, with measured rates.",
        .section = SL_SECTIONS({"Model", model_table, &config}, {"Layout", layout_table, &config},
                               {"Pipeline", pipeline_table, &config}, {"Devices", device_table, &config},
                               {"Output", output_table, &config}),
        .words = {"Schedules", sl_schedule_word},
        .brief = brief,
        .own = &config,
        .settle = settle,
    };
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, run(&config, &error), &error);
    }
    sl_options_free(&options);
    return status;
}
