/* options.c - the transformer's command lines, and what follows from them. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "spmd/schedule/registry.h"

#define FIELD(name) offsetof(struct transformer_config, name)

enum { MOST = 65536, MOST_LAYERS = 4096, MOST_BATCH = 1 << 20 };
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_TF32 };

static const struct sl_option model_table[] = {
    {"model-dimension", SL_OPTION_INTEGER, FIELD(model_dimension), .min = 1, .max = MOST, .help = "channels"},
    {"n-heads", SL_OPTION_INTEGER, FIELD(heads), .min = 1, .max = 1024, .help = "of attention"},
    {"blocks", SL_OPTION_INTEGER, FIELD(blocks), .min = 1, .max = MOST_LAYERS, .help = "of layers"},
    {"layers-per-block", SL_OPTION_INTEGER, FIELD(layers_per_block), .min = 1, .max = MOST_LAYERS,
     .help = "all but the last of a block have rotary positions"},
    {"sequence", SL_OPTION_INTEGER, FIELD(sequence), .min = 1, .max = 1 << 20, .help = "tokens of a sample"},
    {"latent-dim", SL_OPTION_INTEGER, FIELD(latent), .min = 1, .max = MOST,
     .help = "columns of the latent that keys and values are made of, and of the queries'"},
    {"rope-dim", SL_OPTION_INTEGER, FIELD(rope), .min = 0, .max = MOST,
     .help = "columns of the rotary key that all heads share, and of each head's rotary query; 0: none"},
    {"vocab-size", SL_OPTION_INTEGER, FIELD(vocabulary), .min = 0, .max = 1 << 24, .help = "tokens; 0: the data's"},
    {"dropout", SL_OPTION_REAL, FIELD(dropout), .min = 0, .max = 1, .below = true,
     .help = "rate, of what attention and MLP add to the residual"},
    {"fsdp", SL_OPTION_SWITCH, FIELD(fsdp), .help = "shard kernels over the data axis, too"},
    {"vocabulary-parallel", SL_OPTION_SWITCH, FIELD(vocabulary_parallel),
     .help = "shard the token table, the logits and the loss by tokens over the tensor axis"},
    {"experts", SL_OPTION_INTEGER, FIELD(experts), .min = 0, .max = 4096,
     .help = "MLPs in place of each one, sharded over the data axis, of which a token goes to some; 0: one for all"},
    {"top-k", SL_OPTION_INTEGER, FIELD(choices), .min = 1, .max = 4096, .help = "experts that a token goes to"},
    {"shared-experts", SL_OPTION_INTEGER, FIELD(shared_experts), .min = 0, .max = 1024,
     .help = "experts beside them, as one MLP, that all tokens go to"},
    {"expert-dim", SL_OPTION_INTEGER, FIELD(expert_dimension), .min = 0, .max = 4 * MOST,
     .help = "columns inside an expert; 0: four times the channels"},
    {"capacity", SL_OPTION_REAL, FIELD(capacity), .min = 0, .max = 1e6,
     .help = "tokens of a sequence that an expert takes at most, as a multiple of an even share; 0: all"},
    {"balance", SL_OPTION_REAL, FIELD(balance), .min = 0, .max = 1e6,
     .help = "weight of the loss that makes shares even"},
    {"precision", SL_OPTION_CHOICE, FIELD(precision), .value = "f32|bf16|tf32",
     .help = "operands of matrix products; sums, parameters and all else are floats"},
    {0},
};

static const struct sl_option data_table[] = {
    {"data", SL_OPTION_TEXT, FIELD(data), .value = "PATH",
     .help =
         "a text file or a directory of them, a token a byte; token shards of llm.c (a file, or a directory of *.bin); "
         "or a safetensors file with an i32 tensor \"tokens\" [rows, sequence + 1]; by default the tokens in "
         "--params where there are any, else the licenses that Debian installs"},
    {"validation", SL_OPTION_REAL, FIELD(validation), .min = 0, .max = 1, .below = true,
     .help = "share of a text, at its end, that is for evaluation alone"},
    {"batch", SL_OPTION_INTEGER, FIELD(batch), .min = 1, .max = MOST_BATCH, .help = "sequences a step"},
    {"evaluate-batches", SL_OPTION_INTEGER, FIELD(evaluate_batches), .min = 1, .max = 1e6,
     .help = "batches that an evaluation takes the mean of"},
    {0},
};

static const struct sl_option pipeline_table[] = {
    {"schedule", SL_OPTION_TEXT, FIELD(schedule), .value = "NAME", .help = "of the pipeline, one of those below"},
    {"loops", SL_OPTION_INTEGER, FIELD(loops), .min = 0, .max = MOST_LAYERS,
     .help = "stages a coordinate of the pipe axis; 0: the least that the schedule has"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 0, .max = 4096,
     .help = "parts of a replica's sequences; 0: of about 256 tokens, and in a pipeline two a rank at least"},
    {0},
};

static const struct sl_option training_table[] = {
    {"accumulate", SL_OPTION_INTEGER, FIELD(accumulate), .min = 1, .max = 4096,
     .help = "passes through the pipeline a step, whose gradients are added up"},
    {"recompute", SL_OPTION_CHOICE, FIELD(recompute), .value = "none|selective|full",
     .help = "what is computed again for backward rather than kept: nothing, attention, or whole layers"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = 4096,
     .help = "microbatches of one weight-gradient product; 0: all, or 1 where something is recomputed"},
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6,
     .help = "learning rate of AdamW, at its highest"},
    {"warmup", SL_OPTION_INTEGER, FIELD(warmup), .min = 0, .max = 1e9, .help = "steps over which it rises to that"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(lr_schedule), .value = "constant|cosine",
     .help = "then it stays, or falls along half a cosine until the last step"},
    {"min-lr", SL_OPTION_REAL, FIELD(least_rate), .min = 0, .max = 1e6, .help = "to which the cosine falls"},
    {"clip", SL_OPTION_REAL, FIELD(clip), .min = 0, .max = 1e30,
     .help = "largest norm of all gradients together; 0: any"},
    {"weight-decay", SL_OPTION_REAL, FIELD(decay), .min = 0, .max = 1e6, .help = "of AdamW, for all parameters"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0, .max = 1,
     .help = "1: shard the optimizer's state over the data axis, also of what is not sharded itself"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {"check-replicas", SL_OPTION_FLAG, FIELD(check_replicas),
     .help = "compare hashes of what several coordinates hold after each step"},
    {"evaluate-every", SL_OPTION_INTEGER, FIELD(evaluate_every), .min = 0, .max = 1e9,
     .help = "steps between evaluations; 0: none"},
    {"sample-every", SL_OPTION_INTEGER, FIELD(sample_every), .min = 0, .max = 1e9,
     .help = "steps between samples; 0: none"},
    {"metrics", SL_OPTION_TEXT, FIELD(metrics), .value = "FILE", .help = "write JSON lines to FILE"},
    {"gradients", SL_OPTION_TEXT, FIELD(gradients), .value = "FILE",
     .help = "write the last step's gradients to FILE (safetensors)"},
    {"profile", SL_OPTION_FLAG, FIELD(profile), .help = "tell at the end where each coordinate's time went"},
    {"dry-run", SL_OPTION_FLAG, FIELD(dry_run), .help = "tell what memory each coordinate takes, and do nothing else"},
    {0},
};

static const struct sl_option parameter_table[] = {
    {"params", SL_OPTION_TEXT, FIELD(params), .value = "FILE",
     .help =
         "begin with the values in FILE (safetensors, checkpoints too), by their names; or in the latest checkpoint "
         "of a directory"},
    {"show-shardings", SL_OPTION_FLAG, FIELD(show_shardings),
     .help = "tell how each parameter is sharded, and do nothing else"},
    {0},
};

static const struct sl_option generation_table[] = {
    {"prompt", SL_OPTION_TEXT, FIELD(prompt), .value = "TEXT", .help = "whose bytes are the first tokens"},
    {"prompt-tokens", SL_OPTION_TEXT, FIELD(prompt_tokens), .value = "N,N,...", .help = "the first tokens as numbers"},
    {"length", SL_OPTION_INTEGER, FIELD(length), .min = 0, .max = 1 << 20,
     .help = "tokens in the end, the prompt's included; 0: the sequence's"},
    {"samples", SL_OPTION_INTEGER, FIELD(samples), .min = 1, .max = 4096,
     .help = "how many; replicas share them, and what does not divide is rounded up"},
    {"temperature", SL_OPTION_REAL, FIELD(temperature), .min = 0, .max = 1e6,
     .help = "divides the logits; 0: always the largest"},
    {"sample-top-k", SL_OPTION_INTEGER, FIELD(top_k), .min = 0, .max = 1 << 24,
     .help = "choose among the k largest logits; 0: all"},
    {"sample-top-p", SL_OPTION_REAL, FIELD(top_p), .min = 0, .max = 1,
     .help = "choose among the likeliest that have this probability together"},
    {0},
};

struct transformer_config transformer_defaults(enum transformer_command command) {
    struct transformer_config config = {
        .common = sl_common_defaults(100),
        .model_dimension = 256,
        .heads = 8,
        .blocks = 2,
        .layers_per_block = 3,
        .sequence = 256,
        .latent = 64,
        .rope = 16,
        .fsdp = command != TRANSFORMER_GENERATE, /* it would gather all kernels for every token */
        .choices = 2,
        .capacity = 1.25,
        .balance = 0.01,
        .validation = 0.1,
        .batch = 8,
        .accumulate = 1,
        .schedule = "1f1b",
        .zero = 1,
        .overlap = true,
        .learning_rate = 1e-3,
        .decay = 1e-4,
        .evaluate_batches = 8,
        .samples = 1,
        .temperature = command == TRANSFORMER_TRAIN ? 0.8 : 1.0,
        .top_p = 1.0,
    };
    config.common.mesh = "data=2,pipe=2,tensor=2";
    return config;
}

void transformer_sections(enum transformer_command command, struct transformer_config *config,
                          struct sl_option_section *section) {
    *section++ = (struct sl_option_section){"Mesh", sl_mesh_table, &config->common};
    *section++ = (struct sl_option_section){"Run", sl_common_table, &config->common};
    *section++ = (struct sl_option_section){"Model", model_table, config};
    *section++ = (struct sl_option_section){"Parameters", parameter_table, config};
    if (command != TRANSFORMER_GENERATE) {
        *section++ = (struct sl_option_section){"Pipeline", pipeline_table, config};
        *section++ = (struct sl_option_section){"Data", data_table, config};
    }
    if (command == TRANSFORMER_TRAIN) {
        *section++ = (struct sl_option_section){"Training", training_table, config};
        *section++ = (struct sl_option_section){"Checkpoints", sl_checkpoint_table, &config->checkpoints};
    }
    if (command != TRANSFORMER_EVALUATE)
        *section++ = (struct sl_option_section){"Generation", generation_table, config};
    *section = (struct sl_option_section){0};
}

/* ---- preparing ---- */

static const char default_data[] = "/usr/share/common-licenses";

static int read_axes(struct transformer_job *job, struct sl_error *error) {
    for (int a = 0; a < job->mesh.axes; a++) {
        const char *name = job->mesh.axis[a].name;
        if (strcmp(name, sl_data_axis) && strcmp(name, sl_pipe_axis) && strcmp(name, sl_tensor_axis))
            return sl_error_set(error, SL_BAD_INPUT, "mesh axis \"%s\": the transformer's axes are data, pipe, tensor",
                                name);
    }
    for (int i = 0; i < 3; i++) { /* an axis that was left out is one of size 1 */
        const char *name = (const char *[]){sl_data_axis, sl_pipe_axis, sl_tensor_axis}[i];
        if (sl_mesh_find_axis(&job->mesh, name) >= 0) continue;
        struct sl_axis *axis = &job->mesh.axis[job->mesh.axes++];
        *axis = (struct sl_axis){.size = 1};
        strcpy(axis->name, name);
    }
    job->data = sl_mesh_axis_size(&job->mesh, sl_data_axis);
    job->pipe = sl_mesh_axis_size(&job->mesh, sl_pipe_axis);
    job->tensor = sl_mesh_axis_size(&job->mesh, sl_tensor_axis);
    return SL_OK;
}

static int largest_divisor(int number, int most) {
    int divisor = most < number ? most : number;
    while (number % divisor) divisor--;
    return divisor;
}

/* Enough for a pipeline, where there is one; and so many that what a microbatch leaves stays in a core's cache. */
static int most_microbatches(const struct transformer_job *job, int sequences) {
    enum { TOKENS = 256 }; /* at least, of a microbatch */
    const long long parts = (long long)sequences * job->config->sequence / TOKENS;
    const int enough = job->pipe > 1 ? 2 * job->pipe : 1;
    return parts > enough ? (int)(parts < sequences ? parts : sequences) : enough;
}

static int split_batch(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    if (job->command == TRANSFORMER_GENERATE) {
        job->local = job->rows = job->microbatches = job->wgrad_group = 1; /* of a pipeline that will not run */
        return SL_OK;
    }
    const int parts = job->data * config->accumulate;
    if (config->batch % parts)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--batch %d: sequences do not divide over data=%d and %d passes (--accumulate)",
                            config->batch, job->data, config->accumulate);
    const int sequences = config->batch / parts;
    job->local = config->batch / job->data;
    job->microbatches = config->microbatches;
    if (!job->microbatches) job->microbatches = largest_divisor(sequences, most_microbatches(job, sequences));
    if (sequences % job->microbatches)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--microbatches %d: a replica's %d sequences a pass (--batch %d over data=%d, "
                            "--accumulate %d) do not divide into so many",
                            job->microbatches, sequences, config->batch, job->data, config->accumulate);
    job->rows = sequences / job->microbatches * config->sequence;
    const bool keeps = job->model.recomputation == SL_RECOMPUTE_NONE;
    job->wgrad_group = config->wgrad_group ? config->wgrad_group : keeps ? job->microbatches : 1;
    if (job->microbatches % job->wgrad_group)
        return sl_error_set(error, SL_BAD_INPUT, "--wgrad-group %d: %d microbatches do not divide into such groups",
                            job->wgrad_group, job->microbatches);
    return SL_OK;
}

static int make_schedule(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_schedule_kind *kind = sl_schedule_find(config->schedule, error);
    if (!kind) return SL_BAD_INPUT;
    const int loops = config->loops ? config->loops : kind->least_loops;
    const int layers = config->blocks * config->layers_per_block;
    SL_TRY(sl_schedule_generate(&job->schedule, kind, job->pipe, loops, job->microbatches, error));
    if (layers < sl_schedule_stages(&job->schedule))
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d layers: each of the %d stages (pipe=%d, loops %d) needs at least one", layers,
                            sl_schedule_stages(&job->schedule), job->pipe, loops);
    SL_TRY(sl_schedule_lower(&job->schedule, error));
    return sl_schedule_slots(&job->schedule, SL_PIPELINE_FEWEST_SLOTS, &job->slots, error);
}

static int open_data(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *path = config->data ? config->data : default_data;
    if (job->command == TRANSFORMER_GENERATE) return SL_OK;
    if (!config->data && config->params && sl_store_find(&job->params, "tokens")) path = config->params;
    SL_TRY(sl_tokens_open(&job->tokens, path, config->validation, config->sequence, error));
    if (!job->model.vocabulary) job->model.vocabulary = job->tokens.vocabulary;
    job->tokens.vocabulary = job->model.vocabulary;
    return SL_OK;
}

static int read_prompt_tokens(struct transformer_job *job, const char *text, struct sl_error *error) {
    job->prompt = calloc(strlen(text) + 1, sizeof *job->prompt);
    if (!job->prompt) return sl_error_set(error, SL_FAILED, "no memory for the prompt");
    while (*text) {
        char *end;
        const long token = strtol(text, &end, 10);
        if (end == text || token < 0 || token >= job->model.vocabulary || (*end && *end != ',') || (*end && !end[1]))
            return sl_error_set(error, SL_BAD_INPUT,
                                "--prompt-tokens: at \"%.20s\": numbers from 0 to %d with commas between are allowed",
                                text, job->model.vocabulary - 1);
        job->prompt[job->prompt_length++] = (int32_t)token;
        text = *end ? end + 1 : end;
    }
    return SL_OK;
}

static int read_prompt(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *text = config->prompt ? config->prompt : "\n";
    if (job->command == TRANSFORMER_EVALUATE) return SL_OK;
    if (config->prompt_tokens) {
        SL_TRY(read_prompt_tokens(job, config->prompt_tokens, error));
    } else {
        job->prompt_length = (int)strlen(text);
        job->prompt = calloc((size_t)job->prompt_length, sizeof *job->prompt);
        if (!job->prompt) return sl_error_set(error, SL_FAILED, "no memory for the prompt");
        for (int i = 0; i < job->prompt_length; i++) {
            job->prompt[i] = (unsigned char)text[i];
            if (job->prompt[i] >= job->model.vocabulary && (config->prompt || job->command == TRANSFORMER_GENERATE))
                return sl_error_set(error, SL_BAD_INPUT, "--prompt: byte %d at place %d, the vocabulary has %d tokens",
                                    job->prompt[i], i, job->model.vocabulary);
            job->prompt[i] %= job->model.vocabulary;
        }
    }
    job->length = config->length ? config->length : config->sequence;
    if (job->length < job->prompt_length && job->command == TRANSFORMER_GENERATE)
        return sl_error_set(error, SL_BAD_INPUT, "--length %d: the prompt has %d tokens already", job->length,
                            job->prompt_length);
    const struct sl_sampling sampling = {config->temperature, config->top_k, config->top_p};
    return sl_sampling_check(&sampling, error);
}

static int find_products(struct transformer_job *job, struct sl_error *error) {
    const int precision = job->config->precision;
    job->precision = precision == PRECISION_BF16 ? SL_BF16 : SL_F32;
    job->gemm = sl_gemm_find(precision == PRECISION_TF32 ? "cublas-tf32" : NULL, error);
    if (!job->gemm) return SL_BAD_INPUT;
    if (sl_gemm_supports(job->gemm, job->precision)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--precision: %s has no products of that kind here", job->gemm->name);
}

static int read_params(struct transformer_job *job, const char *path, struct sl_error *error) {
    char file[SL_MAX_PATH];
    SL_TRY(sl_checkpoints_find(path, file, error));
    return sl_safetensors_map(&job->params, file, error);
}

static int prepare_checkpoints(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_transformer *m = &job->model;
    struct sl_setting *next = job->checkpoints.setting;
    job->checkpoints.options = config->checkpoints;
    job->checkpoints.seed = config->common.seed;
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
    if (config->checkpoints.resume && config->params)
        return sl_error_set(error, SL_BAD_INPUT, "--resume and --params: both give the values to begin with");
    return sl_checkpoints_check(&config->checkpoints, error);
}

int transformer_prepare(struct transformer_job *job, enum transformer_command command,
                        const struct transformer_config *config, const struct sl_mesh *mesh, struct sl_error *error) {
    job->command = command;
    job->config = config;
    job->mesh = *mesh;
    job->model = (struct sl_transformer){
        .vocabulary = config->vocabulary,
        .dimension = config->model_dimension,
        .heads = config->heads,
        .blocks = config->blocks,
        .layers_per_block = config->layers_per_block,
        .latent = config->latent,
        .rope = config->rope,
        .positions = config->sequence > config->length ? config->sequence : config->length,
        .dropout = config->dropout,
        .recomputation = config->recompute,
        .fsdp = config->fsdp,
        .vocabulary_parallel = config->vocabulary_parallel,
        .experts = config->experts,
        .choices = config->choices,
        .shared_experts = config->shared_experts,
        .expert_dimension = config->expert_dimension ? config->expert_dimension : 4 * config->model_dimension,
        .capacity = config->capacity,
        .balance = config->balance};
    SL_TRY(read_axes(job, error));
    if (config->params) SL_TRY(read_params(job, config->params, error));
    SL_TRY(open_data(job, error));
    if (!job->model.vocabulary) job->model.vocabulary = 256;
    SL_TRY(sl_transformer_check(&job->model, &job->mesh, error));
    SL_TRY(find_products(job, error));
    SL_TRY(split_batch(job, error));
    SL_TRY(make_schedule(job, error));
    SL_TRY(read_prompt(job, error));
    SL_TRY(prepare_checkpoints(job, error));
    job->ms = calloc((size_t)config->common.steps + 1, sizeof *job->ms);
    return job->ms ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for %d steps' times", config->common.steps);
}

void transformer_finish(struct transformer_job *job) {
    sl_tokens_close(&job->tokens);
    sl_store_free(&job->params);
    sl_store_free(&job->gradients);
    sl_schedule_free(&job->schedule);
    free(job->prompt);
    free(job->ms);
}
