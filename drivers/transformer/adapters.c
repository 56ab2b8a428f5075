/* adapters.c - adapters of low rank: the options that train them, and values of a run that has trained some. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/models/adapters.h"

#define FIELD(name) offsetof(struct transformer_config, name)

enum { MOST_RANK = 65536, MOST_ALPHA = 1000000 };

const struct sl_option transformer_adapter_table[] = {
    {"lora-rank", SL_OPTION_INTEGER, FIELD(lora_rank), .min = 0, .max = MOST_RANK, .keep = SL_KEPT_STATE,
     .help = "train only adapters of rank R beside dense layers: their output becomes x W + (x A) B ALPHA/R, where A "
             "begins with random values and B with zeros; all else stays as it is; 0: no adapters"},
    {"lora-alpha", SL_OPTION_REAL, FIELD(lora_alpha), .min = 0, .max = MOST_ALPHA, .keep = SL_KEPT_STATE,
     .read = "lora-rank", .help = "ALPHA of the adapters; 0: twice the rank"},
    {"lora-modules", SL_OPTION_TEXT, FIELD(lora_modules), .value = "PATTERN,...", .keep = SL_KEPT_STATE,
     .read = "lora-rank",
     .help = "the layers with adapters, by patterns of their names as a shell has them, such as \"*.q,*.v\" (default: "
             "all dense layers of attention and MLPs, but not experts)"},
    {0},
};

/* "*.q,*.v" becomes the patterns of what adapters of such layers have. */
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

/* Experts and their router have no adapters: whoever asks for these alone is told so. */
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

int transformer_prepare_adapters(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
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
