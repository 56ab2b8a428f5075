/* adapters.c - LoRA adapters: their options, and values of a run that has trained them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/transformer/transformer.h"
#include "layers/models/adapters.h"
#include "layers/training/exchange.h"

#define FIELD(name) offsetof(struct transformer_config, name)

enum { MOST_RANK = 65536, MOST_ALPHA = 1000000 };

const struct sl_option transformer_adapter_table[] = {
    {"lora-rank", SL_OPTION_INTEGER, FIELD(lora_rank), .min = 0, .max = MOST_RANK, .keep = SL_KEPT_STATE,
     .read = "!adapters",
     .help = "train only adapters of rank R beside dense layers: their output becomes x W + (x A) B ALPHA/R; A begins "
             "with random values, B with zeros, and all else is frozen; 0: no adapters"},
    {"lora-alpha", SL_OPTION_REAL, FIELD(lora_alpha), .min = 0, .max = MOST_ALPHA, .keep = SL_KEPT_STATE,
     .read = "lora-rank&!adapters", .help = "ALPHA of the adapters; 0: twice the rank"},
    {"lora-modules", SL_OPTION_TEXT, FIELD(lora_modules), .value = "PATTERN,...", .keep = SL_KEPT_STATE,
     .read = "lora-rank&!adapters",
     .help = "the layers with adapters, by shell patterns of their names, such as \"*.q,*.v\" (default: all dense "
             "layers of attention and MLPs, but not experts)"},
    {"save-adapters", SL_OPTION_TEXT, FIELD(save_adapters), .value = "DIR", .path = SL_PATH_SAVED, .keep = SL_KEPT_FREE,
     .read = "lora-rank|adapters", .help = "write the adapters after the last step, as PEFT opens them"},
    {"save-frozen", SL_OPTION_SWITCH, FIELD(save_frozen), .keep = SL_KEPT_FREE,
     .read = "save&lora-rank|save&adapters|save&resume",
     .help = "save all values in checkpoints; --no-save-frozen: only those of adapters, with the path and hashes of "
             "the model in --model or --params, which is read again"},
    {0},
};

const struct sl_option transformer_given_adapter_table[] = {
    {"adapters", SL_OPTION_TEXT, FIELD(adapters), .value = "DIR", .path = SL_PATH_PUBLISHED,
     .read = "model&!resume|params&!resume",
     .help = "adapters of low rank as PEFT saves them, adapter_config.json and adapter_model.safetensors, for the "
             "model of --model or --params"},
    {0},
};

/* Writes the patterns of adapter parameters for layers such as "*.q,*.v". */
static int write_patterns(struct transformer_job *job, struct sl_error *error) {
    const char *list = job->config->lora_modules ? job->config->lora_modules : "*";
    const size_t each = strlen(sl_lora_parameters) + 2;
    char pattern[SL_MAX_PATTERN], *to;
    size_t size = strlen(list) + 1;
    for (int i = 0; sl_pattern_at(list, i, pattern); i++) size += each;
    to = job->adapters = malloc(size);
    if (!to) return sl_error_set(error, SL_FAILED, "no memory for the adapters' patterns");
    for (int i = 0; sl_pattern_at(list, i, pattern); i++)
        to += snprintf(to, size - (size_t)(to - job->adapters), "%s%s.%s", i ? "," : "", pattern, sl_lora_parameters);
    return SL_OK;
}

/* Refuses patterns that match only experts and their router, which have no adapters. */
static int check_experts(const struct transformer_job *job, struct sl_error *error) {
    static const char *const without[] = {"up", "down"};
    const char *list = job->config->lora_modules;
    char pattern[SL_MAX_PATTERN], whole[SL_MAX_PATTERN + 32], name[80];
    for (int i = 0; job->model.experts && list && sl_pattern_at(list, i, pattern); i++) {
        snprintf(whole, sizeof whole, "%s.%s", pattern, sl_lora_parameters);
        if (sl_transformer_adapters(&job->model, whole) > 0) continue;
        for (int n = 0; n < 2; n++) {
            snprintf(name, sizeof name, "blocks.0.layers.0.moe.experts.%s.lora_a.kernel", without[n]);
            if (sl_patterns_match(whole, name))
                return sl_error_set(error, SL_BAD_INPUT,
                                    "--lora-modules: \"%s\" names experts, which have no adapters: attention, and the "
                                    "MLP of --shared-experts, can have some",
                                    pattern);
        }
    }
    return SL_OK;
}

/* ---- PEFT files ---- */

/* Finds the published family of a model given by options. */
static int find_family(const struct transformer_job *job, const struct transformer_config *config, const char *option,
                       const struct sl_published_family **family, struct sl_error *error) {
    const struct sl_transformer model = {.attention = config->attention,
                                         .layers_per_block = config->layers_per_block,
                                         .rope = config->rope,
                                         .rotary = {.pairs = config->rope_pairs},
                                         .head_norms = config->head_norms,
                                         .window = config->window,
                                         .mlp = config->mlp,
                                         .norm = config->norm,
                                         .biases = config->biases,
                                         .learned_positions = config->learned_positions,
                                         .experts = config->experts};
    const char *why = "";
    *family = job->publishes ? job->published.family : sl_published_family_of(&model, &why);
    if (*family) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--%s: no published family has %s: PEFT has no names for its layers",
                        option, why);
}

int transformer_take_adapters(struct transformer_job *job, struct transformer_config *config, struct sl_error *error) {
    const struct sl_published_family *family;
    const struct sl_transformer sizes = {.blocks = config->blocks};
    if (!config->adapters) return SL_OK;
    if (job->base)
        return sl_error_set(error, SL_BAD_INPUT, "--adapters: %s has adapters already",
                            config->common.command->adoption.file);
    SL_TRY(find_family(job, config, "adapters", &family, error));
    SL_TRY(sl_peft_read(&job->peft, config->adapters, family, &sizes, error));
    config->lora_rank = job->peft.rank;
    config->lora_alpha = job->peft.alpha;
    config->lora_modules = job->peft.modules;
    return SL_OK;
}

int transformer_load_adapters(struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    if (!job->peft.rank) return SL_OK;
    if (job->base) SL_TRY(sl_checkpoint_verify(worker->self, worker->trainer, &job->peft.values));
    return sl_import(worker->self, sl_trainer_world(worker->trainer), sl_trainer_parameters(worker->trainer),
                     SL_ADAPTERS, &job->peft.values);
}

int transformer_save_adapters(struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    const struct transformer_config *config = job->config;
    const struct sl_published_family *family;
    struct sl_spmd *self = worker->self;
    struct sl_peft peft = {.rank = config->lora_rank,
                           .alpha = config->lora_alpha > 0 ? config->lora_alpha : 2.0 * config->lora_rank};
    if (!config->save_adapters) return SL_OK;
    int status = sl_export(self, sl_trainer_world(worker->trainer), sl_trainer_parameters(worker->trainer), SL_ADAPTERS,
                           1.0f, &peft.values);
    if (status == SL_OK && self->coordinate == 0)
        status = find_family(job, config, "save-adapters", &family, &self->error);
    if (status == SL_OK && self->coordinate == 0)
        status = sl_peft_write(&peft, config->save_adapters, family, &job->model, config->model, &self->error);
    sl_peft_free(&peft);
    return status;
}

/* Checks, before the run, that there are adapters to write and a folder for them. */
static int check_save(const struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_published_family *family;
    struct stat file;
    if (!config->save_adapters) return SL_OK;
    if (!config->common.steps && !config->epochs)
        return sl_error_set(error, SL_BAD_INPUT, "--save-adapters: no steps, so no adapters");
    SL_TRY(find_family(job, config, "save-adapters", &family, error));
    if (!mkdir(config->save_adapters, 0777) ||
        (errno == EEXIST && !stat(config->save_adapters, &file) && S_ISDIR(file.st_mode)))
        return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--save-adapters %s: cannot be made: %s", config->save_adapters,
                        errno == EEXIST ? "it is no directory" : strerror(errno));
}

int transformer_prepare_adapters(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    SL_TRY(check_save(job, error));
    job->model.lora = (struct sl_lora){.rank = config->lora_rank, .alpha = config->lora_alpha};
    if (!config->lora_rank) return SL_OK;
    SL_TRY(check_experts(job, error));
    return write_patterns(job, error);
}

int transformer_merge_adapters(struct transformer_job *job, struct sl_error *error) {
    if (!sl_adapters_are_in(&job->params)) return SL_OK;
    const char *text = sl_store_note(&job->params, "option.lora-alpha");
    char *end = NULL;
    const double alpha = text ? strtod(text, &end) : -1;
    if (!text || end == text || *end || !(alpha >= 0 && alpha <= MOST_ALPHA))
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: it has adapters, and its option.lora-alpha is %.40s, not a number up to %d",
                            job->params.path, text ? text : "missing", MOST_ALPHA);
    return sl_adapters_merge(&job->params, alpha, error);
}
