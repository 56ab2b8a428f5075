/* options.c - the transformer's command lines, and values derived from them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/identity.h"
#include "drivers/training/choices/schedule_choice.h"
#include "drivers/transformer/transformer.h"
#include "layers/formats/tokens/token_format.h"
#include "spmd/device/device.h"

#define FIELD(name) offsetof(struct transformer_config, name)
enum { MOST = 65536, MOST_LAYERS = 4096 };
const struct sl_option transformer_model_table[] = {
    {"model-dimension", SL_OPTION_INTEGER, FIELD(model_dimension), .min = 1, .max = MOST, .keep = SL_KEPT_SIZE,
     .help = "columns of a token's state (channels)"},
    {"n-heads", SL_OPTION_INTEGER, FIELD(heads), .min = 1, .max = 1024, .alias = "heads", .keep = SL_KEPT_SIZE,
     .help = "number of attention heads"},
    {"blocks", SL_OPTION_INTEGER, FIELD(blocks), .min = 1, .max = MOST_LAYERS, .keep = SL_KEPT_SIZE,
     .help = "number of blocks of layers"},
    {"layers-per-block", SL_OPTION_INTEGER, FIELD(layers_per_block), .min = 1, .max = MOST_LAYERS, .keep = SL_KEPT_SIZE,
     .help = "layers of a block; with attention mla all except the last have rotary positions"},
    {"sequence", SL_OPTION_INTEGER, FIELD(sequence), .min = 1, .max = 1 << 20, .keep = SL_KEPT_MODEL,
     .help = "tokens of a sample"},
    {"rope-dim", SL_OPTION_INTEGER, FIELD(rope), .min = 0, .max = MOST, .keep = SL_KEPT_SIZE,
     .help = "columns with rotary positions; 0: none. mla: of each head's query, and of the key that all heads share; "
             "gqa: all columns of a head, unless 0"},
    {"attention", SL_OPTION_CHOICE, FIELD(attention), .value = "mla|gqa", .keep = SL_KEPT_SIZE,
     .help = "latent attention (mla), or groups of query heads that share a head of keys and values (gqa)"},
    {"kv-heads", SL_OPTION_INTEGER, FIELD(key_heads), .min = 0, .max = 1024, .keep = SL_KEPT_SIZE,
     .read = "attention=gqa", .help = "gqa: number of heads of keys and values; 0: as many as of queries"},
    {"head-dim", SL_OPTION_INTEGER, FIELD(head_width), .min = 0, .max = 4096, .keep = SL_KEPT_SIZE,
     .read = "attention=gqa", .help = "gqa: columns of a head; 0: the channels divided by the heads"},
    {"window", SL_OPTION_INTEGER, FIELD(window), .min = 0, .max = 1 << 24, .keep = SL_KEPT_SIZE,
     .read = "attention=gqa",
     .help = "gqa: a token attends to the last N tokens including itself; 0: to all before it"},
    {"qk-norm", SL_OPTION_SWITCH, FIELD(head_norms), .keep = SL_KEPT_SIZE, .read = "attention=gqa",
     .help = "gqa: normalize each head of queries and keys"},
    {"rope-base", SL_OPTION_REAL, FIELD(rope_base), .min = 1, .max = 1e12, .keep = SL_KEPT_SIZE,
     .read = "attention=gqa&rope-dim", .help = "gqa: base of the rotations' angles"},
    {"rope-pairs", SL_OPTION_CHOICE, FIELD(rope_pairs), .value = "halves|adjacent", .keep = SL_KEPT_SIZE,
     .read = "attention=gqa&rope-dim",
     .help = "gqa: the two columns of a head that rotate together: one of each half, or neighbours"},
    {"rope-scaling", SL_OPTION_TEXT, FIELD(rope_scaling), .value = "FACTOR,LOW,HIGH,LENGTH", .keep = SL_KEPT_SIZE,
     .read = "attention=gqa&rope-dim",
     .help = "gqa: rotations with fewer than LOW turns in LENGTH tokens become FACTOR times slower, as in Llama 3; "
             "those with more than HIGH turns do not change"},
    {"rope-divisors", SL_OPTION_TEXT, FIELD(rope_divisors), .value = "N,N,...", .keep = SL_KEPT_SIZE,
     .read = "attention=gqa&rope-dim", .help = "gqa: divisors of the rotation rates of a head's pairs of columns"},
    {"rope-amplitude", SL_OPTION_REAL, FIELD(rope_amplitude), .min = 1e-6, .max = 1e6, .keep = SL_KEPT_SIZE,
     .read = "attention=gqa&rope-dim", .help = "gqa: factor of rotated queries and keys, as in YaRN"},
    {"mlp", SL_OPTION_CHOICE, FIELD(mlp), .value = &SL_MLPS(SL_MLP_NAME)[1], .keep = SL_KEPT_SIZE,
     .help = "activation in an MLP: gelu (tanh form), silu (gates columns beside it), or erf-gelu"},
    {"mlp-dim", SL_OPTION_INTEGER, FIELD(mlp_dimension), .min = 0, .max = 16 * MOST, .keep = SL_KEPT_SIZE,
     .read = "!experts", .help = "columns inside an MLP; 0: four times --model-dimension"},
    {"norm", SL_OPTION_CHOICE, FIELD(norm), .value = "rms|layer", .keep = SL_KEPT_SIZE,
     .help = "normalization of rows: rms divides by the root mean square; layer also subtracts the mean"},
    {"norm-epsilon", SL_OPTION_REAL, FIELD(norm_epsilon), .min = 1e-12, .max = 1, .keep = SL_KEPT_SIZE,
     .help = "number added to a row's mean square"},
    {"biases", SL_OPTION_CHOICE, FIELD(biases), .keep = SL_KEPT_SIZE, .read = "attention=gqa",
     .value = "all|qkv|none|out|attention|mlp|qkv-mlp|out-mlp|products",
     .help = "gqa: layers with biases: all, where RMS norms also have shifts; qkv (queries, keys and values); none; "
             "out (the product after attention); attention (all of it); mlp; combinations; products (all, but no "
             "shifts of norms)"},
    {"vocab-size", SL_OPTION_INTEGER, FIELD(vocabulary), .min = 0, .max = 1 << 24, .keep = SL_KEPT_SIZE,
     .help = "number of different tokens; 0: as in the data"},
    {"learned-positions", SL_OPTION_INTEGER, FIELD(learned_positions), .min = 0, .max = 1 << 20, .keep = SL_KEPT_SIZE,
     .help = "rows of a table that is indexed by position and added to the embedding; 0: none"},
    {"untied-head", SL_OPTION_SWITCH, FIELD(untied_head), .keep = SL_KEPT_SIZE,
     .help = "use a separate token table for the logits"},
    {"context", SL_OPTION_INTEGER, FIELD(context), .min = 0, .max = 1 << 24, .keep = SL_KEPT_MODEL,
     .read = "save|interactive|@export",
     .help = "the longest sequence of the model, as stated in exported files; 0: --sequence"},
    {0},
};

/* Options of models that no published family has. */
const struct sl_option transformer_own_table[] = {
    {"latent-dim", SL_OPTION_INTEGER, FIELD(latent), .min = 1, .max = MOST, .keep = SL_KEPT_SIZE,
     .read = "attention=mla", .help = "columns of the latent for keys and values, and of the latent for queries"},
    {"vocabulary-parallel", SL_OPTION_SWITCH, FIELD(vocabulary_parallel), .keep = SL_KEPT_FREE,
     .help = "shard the token table, the logits and the loss over the tensor axis by tokens of the vocabulary"},
    {"experts", SL_OPTION_INTEGER, FIELD(experts), .min = 0, .max = 4096, .keep = SL_KEPT_SIZE,
     .help = "replace each MLP by a mixture of N experts, sharded over data and context; 0: no experts"},
    {"top-k", SL_OPTION_INTEGER, FIELD(choices), .min = 1, .max = 4096, .keep = SL_KEPT_SIZE, .read = "experts",
     .help = "experts that each token is sent to"},
    {"shared-experts", SL_OPTION_INTEGER, FIELD(shared_experts), .min = 0, .max = 1024, .keep = SL_KEPT_SIZE,
     .read = "experts", .help = "experts that take every token in addition, computed as one MLP"},
    {"expert-dim", SL_OPTION_INTEGER, FIELD(expert_dimension), .min = 0, .max = 4 * MOST, .keep = SL_KEPT_SIZE,
     .read = "experts", .help = "columns inside an expert; 0: four times the channels"},
    {"capacity", SL_OPTION_REAL, FIELD(capacity), .min = 0, .max = 1e6, .keep = SL_KEPT_MODEL,
     .read = "experts&@train|experts&@evaluate",
     .help = "most tokens of a sequence for one expert, as a multiple of an even share; 0: no limit"},
    {0},
};

const struct sl_option transformer_loss_table[] = {
    {"dropout", SL_OPTION_REAL, FIELD(dropout), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_RUN,
     .help = "dropout rate of the values that attention and MLP add to the residual"},
    {"balance", SL_OPTION_REAL, FIELD(balance), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN, .read = "experts",
     .help = "weight of the loss for balanced load of experts"},
    {0},
};

const struct sl_option transformer_schedule_table[] = {
    {"schedule", SL_OPTION_TEXT, FIELD(training.schedule), .value = "NAME", .keep = SL_KEPT_FREE,
     .read = "!schedule-file", .word = sl_schedule_word,
     .help = "order of the pipeline's work: one of the schedules below"},
    {"loops", SL_OPTION_INTEGER, FIELD(training.loops), .min = 0, .max = MOST_LAYERS, .keep = SL_KEPT_FREE,
     .unless = "schedule|schedule-file|mesh", .read = "!schedule-file",
     .help = "stages of each rank of the pipeline; 0: the fewest that the schedule allows"},
    {"stage-layers", SL_OPTION_TEXT, FIELD(training.stage_layers), .value = "N,N,...", .keep = SL_KEPT_FREE,
     .unless = "schedule|schedule-file|mesh|loops",
     .help = "layers of each stage, in the pipeline's order; 1.5 ends or begins with half a layer, attention or MLP "
             "(default: numbers that differ by at most one)"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(training.microbatches), .min = 0, .max = 4096, .keep = SL_KEPT_FREE,
     .unless = "mesh|schedule-file", .read = "!choices&!schedule-file",
     .help = "parts of a replica's sequences in a pass; 0: parts of about 256 tokens (on GPUs 8192), at least two for "
             "each rank of a pipeline; with --exact up to 8 for each leaf, over all passes"},
    {"spread-head", SL_OPTION_CHOICE, FIELD(spread_head), .value = "no|vocabulary|rows|batch", .plain = "vocabulary",
     .keep = SL_KEPT_FREE,
     .help = "spread the logits over the ranks of the pipeline. vocabulary (the value if none is given): each rank has "
             "a part of the token table, in two loops beside those of --loops; rows: the whole table and a part of "
             "each microbatch's rows, in one loop; batch: as rows, and the lookup of a part of the microbatches in "
             "another loop (schedule rotating-inputs)"},
    {"tensor-pieces", SL_OPTION_INTEGER, FIELD(tensor_pieces), .min = 1, .max = 64, .keep = SL_KEPT_FREE,
     .read = "mesh=+tensor|plan",
     .help = "with an axis tensor, pieces of a microbatch's rows; some are multiplied while others are sent"},
    {"tensor-layout", SL_OPTION_CHOICE, FIELD(tensor_layout), .value = "columns|rows", .keep = SL_KEPT_FREE,
     .read = "mesh=+tensor|plan", .unless = "mesh",
     .help = "with an axis tensor, what each coordinate has between the products of blocks: columns: some columns of "
             "all rows, each product's sums are scattered over columns; rows: all columns of some rows of each "
             "sequence, which are gathered before a block's first product and scattered after its last (Megatron's "
             "sequence parallelism). Checkpoints do not depend on it"},
    {"keep-logits", SL_OPTION_SWITCH, FIELD(keep_logits), .keep = SL_KEPT_FREE,
     .help = "with more than 4096 tokens, save the logits until the table's gradient instead of computing them again"},
    {0},
};

const struct sl_option transformer_sample_table[] = {
    {"evaluate-every", SL_OPTION_INTEGER, FIELD(evaluate_every), .min = 0, .max = 1e9, .keep = SL_KEPT_FREE,
     .help = "evaluate after every N steps; 0: never"},
    {"sample-every", SL_OPTION_INTEGER, FIELD(sample_every), .min = 0, .max = 1e9, .keep = SL_KEPT_FREE,
     .help = "print samples after every N steps; 0: never"},
    {0},
};

const struct sl_option transformer_speed_table[] = {
    {"measure-peak", SL_OPTION_FLAG, FIELD(measure_peak),
     .help = "measure the peak rate of matrix products, which mfu relates to, instead of reading this machine's rate "
             "from ~/.cache/shardloop"},
    {0},
};

const struct sl_option transformer_parameter_table[] = {
    {"params", SL_OPTION_TEXT, FIELD(params), .value = "FILE", .path = SL_PATH_CHECKPOINT,
     .help = "begin with the parameters in FILE: safetensors, or a checkpoint; in a directory, its latest checkpoint"},
    {"model", SL_OPTION_TEXT, FIELD(model), .value = "PATH", .path = SL_PATH_PUBLISHED,
     .help = "begin with a published model, and use its sizes: a folder in Hugging Face's format, or a GGUF file, of a "
             "Llama, Mistral, Qwen 2, Qwen 3 or GPT-2; --sequence is the number of tokens in a sample"},
    {"weights", SL_OPTION_CHOICE, FIELD(weights), .value = "file|integers|storage", .keep = SL_KEPT_FREE,
     .read = "model&!params&!@export",
     .help = "type in memory of a GGUF file's quantized weights that are not trained: file: blocks as in the mapped "
             "file, which products widen; integers: the same blocks, and products round their other operand to bytes, "
             "which is faster (not in training); storage: that of --storage (default: file, unless --storage, "
             "--precision, --fsdp, --exact, --spread-head or --save-frozen need floats)"},
    {"tokenizer", SL_OPTION_TEXT, FIELD(tokenizer), .value = "PATH", .path = SL_PATH_PUBLISHED, .keep = SL_KEPT_MODEL,
     .help = "convert between text and tokens: a tokenizer.json, a folder that has one, a GGUF file, or a "
             "SentencePiece model (default: that of --model; without one a token is a byte)"},
    {0},
};

struct transformer_config transformer_defaults(enum transformer_command command) {
    struct transformer_config config = {
        .common = sl_common_defaults(100),
        .training = sl_training_defaults(),
        .model_dimension = 256,
        .heads = 8,
        .blocks = 2,
        .layers_per_block = 3,
        .sequence = 256,
        .latent = 64,
        .rope = 16,
        .rope_base = 10000,
        .tensor_pieces = 1,
        .rope_amplitude = 1,
        .norm_epsilon = 1e-6,
        .choices = 2,
        .capacity = 1.25,
        .balance = 0.01,
        .data = transformer_default_data,
        .text_key = "text",
        .between = " ",
        .special = true,
        .save_frozen = true,
        .document_token = -1,
        .pack = true,
        .ends = true,
        .copies = true,
        .validation = 0.1,
        .evaluate_batches = 8,
        .samples = 1,
        .answer = 512,
        .temperature = command == TRANSFORMER_TRAIN ? 0.8 : 1.0,
        .top_p = 1.0,
        .file_megabytes = 4000,
    };
    config.common.mesh = "data=2,pipe=2,tensor=2";
    config.training.schedule = "1f1b";
    config.training.batch = 8;
    config.training.fsdp = transformer_reads_data(command); /* otherwise all kernels would be gathered for every
                                                             * token */
    return config;
}

/* ---- preparing ---- */

static int describe_given_tokens(struct transformer_job *job, struct sl_error *error) {
    char *path = realpath(job->params.path, NULL);
    const int status = path ? sl_describe_option(&job->training.notes, "data", path, error) : SL_OK;
    free(path);
    return status;
}

/* Writes the notes for checkpoints, with values found in the data. */
static int describe_run(struct transformer_job *job, const struct sl_signature *data, struct sl_error *error) {
    struct sl_store *notes = &job->training.notes;
    char vocabulary[16], steps[24];
    snprintf(vocabulary, sizeof vocabulary, "%d", job->model.vocabulary);
    snprintf(steps, sizeof steps, "%lld", (long long)job->training.steps);
    SL_TRY(sl_describe_option(notes, "vocab-size", vocabulary, error));
    SL_TRY(sl_describe_option(notes, "steps", steps, error));
    if (transformer_takes_given_tokens(job)) SL_TRY(describe_given_tokens(job, error));
    SL_TRY(transformer_describe_base(job, error));
    return sl_training_describe(&job->training, job->config->common.command, data, error);
}

/* Notes the data's identity for checkpoints, or reports that a checkpoint was trained on other data. */
static int identify_data(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    struct sl_signature data = {0};
    struct sl_signature_entry entry;
    size_t at = 0;
    int status = sl_sign_tokens(&data, "data", &job->tokens, error);
    if (status == SL_OK) status = sl_sign_tokens(&data, "eval-data", &job->eval_tokens, error);
    if (status == SL_OK && job->command == TRANSFORMER_TRAIN) status = describe_run(job, &data, error);
    while (status == SL_OK && job->command == TRANSFORMER_EVALUATE && sl_speaks(engine) &&
           sl_signature_next(data.bytes, data.size, &at, &entry))
        sl_checkpoints_compare_data(job->config->common.command, entry.key, entry.text);
    sl_signature_free(&data);
    return status;
}

/* Returns the number of steps that takes each sample as often as --epochs says. */
static int64_t count_steps(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    const int64_t batch = config->training.batch;
    const int64_t samples =
        job->chats.samples.count ? job->chat_training : sl_tokens_windows(&job->tokens, false, config->sequence);
    return config->epochs ? (config->epochs * samples + batch - 1) / batch : config->common.steps;
}

static int prepare_training(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_transformer *m = &job->model;
    struct sl_training *training = &job->training;
    struct sl_setting *next = training->setting;
    training->type = &transformer_training;
    training->job = &job->job;
    training->report.json = training->json = config->common.json;
    training->steps = count_steps(job);
    training->checkpoints.evaluate_every = config->evaluate_every;
    training->rate = sl_training_rate(&config->training, training->steps);
    training->from = config->params ? &job->params : NULL;
    training->heading.parameters = sl_transformer_parameters(m);
    if (m->attention == SL_ATTENTION_LATENT)
        training->heading.remark = "latent attention, which no published family has: --attention gqa has theirs";
    training->heading.adapters = sl_transformer_adapters(m, job->adapters);
    if (job->chats.samples.count)
        snprintf(training->heading.data, sizeof training->heading.data, "%lld conversations for training",
                 (long long)job->chat_conversations);
    if (job->tokens.format)
        snprintf(training->heading.data, sizeof training->heading.data, "%s, %lld tokens for training",
                 job->tokens.format->name, (long long)job->tokens.training);
    *next++ = sl_setting_text("model", "transformer");
    *next++ = sl_setting_number("model-dimension", m->dimension);
    *next++ = sl_setting_number("n-heads", m->heads);
    *next++ = sl_setting_number("blocks", m->blocks);
    *next++ = sl_setting_number("layers-per-block", m->layers_per_block);
    *next++ = sl_setting_number("latent-dim", m->latent);
    *next++ = sl_setting_number("rope-dim", m->rope);
    *next++ = sl_setting_number("vocab-size", m->vocabulary);
    *next++ = sl_setting_number("sequence", config->sequence);
    *next++ = sl_setting_number("experts", m->experts);
    *next++ = sl_setting_number("top-k", m->experts ? m->choices : 0);
    *next++ = sl_setting_number("shared-experts", m->experts ? m->shared_experts : 0);
    *next++ = sl_setting_number("expert-dim", m->experts ? m->expert_dimension : 0);
    if (!config->training.checkpoints.resume || !config->params || job->base) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--resume and --params: both give the values to begin with");
}

static int open_params(struct transformer_job *job, struct sl_error *error) {
    SL_TRY(sl_checkpoints_map(&job->params, job->config->params, job->speaks, error));
    const char *model = sl_store_note(&job->params, "config.model");
    if (!model || !strcmp(model, "transformer")) return transformer_merge_adapters(job, error);
    return sl_error_set(error, SL_BAD_INPUT, "%s: model is %.40s in the checkpoint, and transformer here",
                        job->params.path, model);
}

/* Opens the tokenizer; data that are texts have opened it already. Without one, samples are printed as numbers, and
 * bytes are unknown. */
static int open_tokenizer(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const bool shows = job->command == TRANSFORMER_GENERATE || config->sample_every;
    if (job->command == TRANSFORMER_EXPORT || (job->command == TRANSFORMER_TRAIN && !shows)) return SL_OK;
    const bool needed = sl_option_given(config->common.command, "tokenizer") ||
                        (shows && (config->prompt || config->prompts)) ||
                        (job->command == TRANSFORMER_GENERATE && !config->prompt_tokens);
    return transformer_open_tokenizer(job, needed, error);
}

/* Fills in the job and the model as far as options say. */
static void begin(struct transformer_job *job, enum transformer_command command,
                  const struct transformer_config *config) {
    job->command = command;
    job->config = config;
    job->length = config->length        ? config->length
                  : config->interactive ? transformer_context(config)
                                        : config->sequence;
    job->job = (struct sl_job){.type = &transformer_job_type,
                               .options = &config->training,
                               .own = job,
                               .seed = config->common.seed,
                               .sequence = transformer_reads_data(command) ? config->sequence : 1,
                               .forward_only = command != TRANSFORMER_TRAIN,
                               .pieces = config->tensor_pieces,
                               .local = 1,
                               .pass = 1};
    job->model = (struct sl_transformer){
        .vocabulary = config->vocabulary,
        .dimension = config->model_dimension,
        .heads = config->heads,
        .blocks = config->blocks,
        .layers_per_block = config->layers_per_block,
        .latent = config->latent,
        .rope = config->rope,
        .attention = config->attention,
        .key_heads = config->key_heads,
        .head_width = config->head_width,
        .head_norms = config->head_norms,
        .window = config->window,
        .rotary = {.pairs = config->rope_pairs, .base = config->rope_base, .amplitude = config->rope_amplitude},
        .mlp = config->mlp,
        .inside = config->mlp_dimension,
        .norm = config->norm,
        .epsilon = config->norm_epsilon,
        .biases = config->biases,
        .positions = config->sequence > job->length ? config->sequence : job->length,
        .dropout = config->dropout,
        .recomputation = config->training.recompute,
        .fsdp = config->training.fsdp,
        .learned_positions = config->learned_positions,
        .untied_head = config->untied_head,
        .vocabulary_parallel = config->vocabulary_parallel,
        .keep_logits = config->keep_logits,
        .tensor_pieces = config->tensor_pieces,
        .tensor_layout = config->tensor_layout,
        .experts = config->experts,
        .choices = config->choices,
        .shared_experts = config->shared_experts,
        .expert_dimension = config->expert_dimension ? config->expert_dimension : 4 * config->model_dimension,
        .capacity = config->capacity,
        .balance = config->balance};
}

int transformer_prepare(struct transformer_job *job, enum transformer_command command,
                        const struct transformer_config *config, const struct sl_mesh *mesh,
                        const struct sl_engine *engine, struct sl_error *error) {
    job->speaks = sl_speaks(engine);
    begin(job, command, config);
    SL_TRY(transformer_read_rotary(job, error));
    SL_TRY(transformer_prepare_adapters(job, error));
    SL_TRY(transformer_check_context(job, mesh, error));
    if (!transformer_reads_data(command)) job->job.sequence = transformer_shortest_sequence(mesh);
    if (job->model.positions < job->job.sequence) job->model.positions = job->job.sequence;
    SL_TRY(transformer_check_layout(job, mesh, error));
    SL_TRY(sl_job_open(&job->job, mesh, engine, error));
    SL_TRY(sl_training_take_notes(&job->training, mesh, error));
    if (config->params) SL_TRY(open_params(job, error));
    SL_TRY(transformer_check_base(job, error));
    SL_TRY(transformer_open_data(job, error));
    if (!job->model.vocabulary) job->model.vocabulary = 256;
    SL_TRY(sl_transformer_check(&job->model, &job->job.mesh, error));
    SL_TRY(transformer_fit(job, error));
    SL_TRY(open_tokenizer(job, error));
    SL_TRY(transformer_read_prompts(job, error));
    SL_TRY(transformer_check_memory(job, engine, error));
    SL_TRY(prepare_training(job, error));
    return identify_data(job, engine, error);
}

int transformer_plan_on_paper(struct transformer_job *job, enum transformer_command command,
                              const struct transformer_config *config, const struct sl_mesh *mesh,
                              const struct sl_engine *like, struct sl_error *error) {
    begin(job, command, config);
    job->document = -1;
    SL_TRY(transformer_read_rotary(job, error));
    SL_TRY(sl_job_open(&job->job, mesh, like, error));
    SL_TRY(sl_transformer_check(&job->model, &job->job.mesh, error));
    job->job.sizes_only = true;
    return transformer_fit(job, error);
}

int transformer_sign(const struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    struct sl_signature *signature = &config->common.command->signature;
    SL_TRY(sl_sign_file(signature, "--params", job->params.path, error));
    SL_TRY(sl_sign_file(signature, "--model", config->model, error));
    SL_TRY(sl_sign_file(signature, "--prompts", config->prompts, error));
    SL_TRY(sl_sign_file(signature, "--choices", config->questions, error));
    SL_TRY(sl_sign_file(signature, "--chat", config->chat, error));
    SL_TRY(sl_sign_file(signature, "--schedule-file", config->training.schedule_file, error));
    SL_TRY(sl_job_sign(&job->job, signature, error));
    SL_TRY(sl_sign_tokens(signature, "data", &job->tokens, error));
    return sl_sign_tokens(signature, "eval-data", &job->eval_tokens, error);
}

void transformer_finish(struct transformer_job *job) {
    sl_tokens_close(&job->tokens);
    sl_tokens_close(&job->eval_tokens);
    sl_store_free(&job->params);
    sl_training_close(&job->training);
    sl_job_close(&job->job);
    sl_prompts_free(&job->prompts);
    transformer_close_stream(job);
    sl_choices_free(&job->choices);
    sl_chats_free(&job->chats);
    free(job->choice_scores);
    sl_store_free(&job->exported);
    transformer_close_talk(job);
    transformer_close_model(job);
    free(job->divisors);
    free(job->adapters);
    sl_peft_free(&job->peft);
    free(job->rope_divisors);
}
