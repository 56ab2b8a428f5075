/* prompts.c - prompts, and the numbers of samples. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/formats/stores/safetensors.h"

/* ---- options ---- */

#define FIELD(name) offsetof(struct transformer_config, name)

const struct sl_option transformer_generation_table[] = {
    {"prompt", SL_OPTION_TEXT, FIELD(prompt), .value = "TEXT", .keep = SL_KEPT_FREE, .unless = "prompt-tokens|prompts",
     .read = "sample-every|@generate&!interactive", .help = "text to continue"},
    {"prompt-tokens", SL_OPTION_TEXT, FIELD(prompt_tokens), .value = "N,N,...", .keep = SL_KEPT_FREE,
     .unless = "prompt|prompts", .read = "sample-every|@generate&!interactive",
     .help = "tokens to continue, as numbers"},
    {"prompts", SL_OPTION_TEXT, FIELD(prompts), .value = "FILE", .path = SL_PATH_TEXT, .keep = SL_KEPT_FREE,
     .unless = "prompt|prompt-tokens", .read = "sample-every|@generate&!interactive",
     .help = "texts to continue: each line of FILE is one"},
    {"logits", SL_OPTION_TEXT, FIELD(logits), .value = "FILE", .path = SL_PATH_REPLACED,
     .read = "@generate&!interactive",
     .help = "write to FILE the logits that follow each token of the first sample but the last (safetensors, [tokens, "
             "vocabulary]); prompts then go through the model a token at a time"},
    {"length", SL_OPTION_INTEGER, FIELD(length), .min = 0, .max = 1 << 20, .keep = SL_KEPT_FREE,
     .read = "sample-every|@generate", .help = "tokens of a sample, including the prompt; 0: --sequence"},
    {"samples", SL_OPTION_INTEGER, FIELD(samples), .min = 1, .max = 4096, .keep = SL_KEPT_FREE,
     .read = "sample-every|@generate&!interactive",
     .help = "number of samples of each prompt; the replicas share all samples"},
    {"groups", SL_OPTION_INTEGER, FIELD(groups), .min = 0, .max = 4096, .keep = SL_KEPT_FREE, .unless = "samples|mesh",
     .read = "sample-every|@generate&!interactive",
     .help = "groups of a replica's samples, at most one for each sample; while one group's tokens are chosen, others "
             "are computed; 0: one for each coordinate of the axis pipe"},
    {"in-flight", SL_OPTION_INTEGER, FIELD(in_flight), .min = 0, .max = 1 << 20, .keep = SL_KEPT_FREE,
     .read = "sample-every|@generate&!interactive",
     .help = "samples of a replica that are computed at the same time, each with caches; when one ends, the next "
             "begins; 0: all"},
    {"temperature", SL_OPTION_REAL, FIELD(temperature), .min = 0, .max = 1e6, .keep = SL_KEPT_FREE,
     .read = "sample-every|@generate", .help = "number by which logits are divided; 0: always choose the largest"},
    {"sample-top-k", SL_OPTION_INTEGER, FIELD(top_k), .min = 0, .max = 1 << 24, .keep = SL_KEPT_FREE,
     .read = "sample-every&temperature|@generate&temperature",
     .help = "choose among the N largest logits; 0: among all"},
    {"sample-top-p", SL_OPTION_REAL, FIELD(top_p), .min = 0, .max = 1, .keep = SL_KEPT_FREE,
     .read = "sample-every&temperature|@generate&temperature",
     .help = "choose among the most likely tokens with a total probability of X"},
    {"threads", SL_OPTION_INTEGER, FIELD(threads), .min = 0, .max = SL_CREW_MOST, .keep = SL_KEPT_FREE,
     .read = "sample-every|evaluate-every|@generate",
     .help = "threads of each coordinate for the products and attention of its samples; 0: the cores of a coordinate "
             "on this machine (on a device 1)"},
    {"kernel-copies", SL_OPTION_SWITCH, FIELD(copies), .keep = SL_KEPT_FREE, .read = "@generate",
     .help = "on CPUs, if a coordinate decodes at most 32 samples in a pass, read kernels from copies in the cores' "
             "order: decoding is faster, and kernels take twice the memory"},
    {"cache", SL_OPTION_CHOICE, FIELD(cache), .value = "latent|expanded", .keep = SL_KEPT_FREE,
     .read = "attention=mla&sample-every|attention=mla&@generate",
     .help = "the data stored for earlier tokens: the latent and the shared rotary key, or the keys and values of all "
             "heads"},
    {0},
};

/* ---- numbers of samples ---- */

int transformer_samples(const struct transformer_job *job) { return job->prompts.count * job->config->samples; }

int transformer_own_samples(const struct transformer_job *job) {
    return (transformer_samples(job) + job->job.data - 1) / job->job.data;
}

int transformer_in_flight(const struct transformer_job *job) {
    const int own = transformer_own_samples(job), most = job->config->in_flight;
    return most && most < own ? most : own;
}

enum sl_cache_form transformer_cache(const struct transformer_job *job) {
    return job->adapters ? SL_CACHE_EXPANDED : (enum sl_cache_form)job->config->cache;
}

int transformer_groups(const struct transformer_job *job) {
    const int groups = job->config->groups;
    return groups ? groups : sl_generation_groups(&job->job.schedule, transformer_in_flight(job));
}

int transformer_prompt_of(const struct transformer_job *job, int number) {
    const int prompt = number / job->config->samples;
    return prompt < job->prompts.count ? prompt : job->prompts.count - 1;
}

int transformer_longest_prompt(const struct transformer_job *job) {
    int longest = 0;
    for (int i = 0; i < job->prompts.count; i++) {
        const int length = sl_prompt_length(&job->prompts, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* ---- reading ---- */

static int read_tokens(struct transformer_job *job, const char *text, struct sl_error *error) {
    int32_t *tokens = calloc(strlen(text) + 1, sizeof *tokens);
    size_t count = 0;
    int status = tokens ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for the prompt");
    while (status == SL_OK && *text) {
        char *end;
        const long token = strtol(text, &end, 10);
        if (end == text || token < 0 || token >= job->model.vocabulary || (*end && *end != ',') || (*end && !end[1]))
            status = sl_error_set(error, SL_BAD_INPUT,
                                  "--prompt-tokens: at \"%.20s\": numbers from 0 to %d with commas between are allowed",
                                  text, job->model.vocabulary - 1);
        tokens[count++] = (int32_t)token;
        text = *end ? end + 1 : end;
    }
    if (status == SL_OK) status = sl_prompts_add(&job->prompts, tokens, count, error);
    free(tokens);
    return status;
}

static int read_prompts(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const int vocabulary = job->model.vocabulary;
    if (!!config->prompt + !!config->prompt_tokens + !!config->prompts > 1)
        return sl_error_set(error, SL_BAD_INPUT, "--prompt, --prompt-tokens and --prompts: one of them is allowed");
    if (config->prompts) return sl_prompts_read(&job->prompts, config->prompts, vocabulary, error);
    if (config->prompt_tokens) return read_tokens(job, config->prompt_tokens, error);
    if (config->prompt)
        return sl_prompts_add_text(&job->prompts, "--prompt", config->prompt, strlen(config->prompt), vocabulary,
                                   error);
    if (job->command == TRANSFORMER_GENERATE)
        return sl_prompts_add_text(&job->prompts, "--prompt", "\n", 1, vocabulary, error);
    return sl_prompts_add(&job->prompts, &(int32_t){'\n' % vocabulary}, 1, error);
}

/* ---- checks ---- */

static int check_lengths(const struct transformer_job *job, struct sl_error *error) {
    for (int i = 0; i < job->prompts.count; i++) {
        const int length = sl_prompt_length(&job->prompts, i);
        if (length <= job->length) continue;
        if (job->config->prompts)
            return sl_error_set(error, SL_BAD_INPUT, "--length %d: the prompt in line %d has %d tokens already",
                                job->length, i + 1, length);
        return sl_error_set(error, SL_BAD_INPUT, "--length %d: the prompt has %d tokens already", job->length, length);
    }
    return SL_OK;
}

int transformer_check_samples(const struct transformer_job *job, struct sl_error *error) {
    enum { MOST = 1 << 24 };
    const struct transformer_config *config = job->config;
    const bool samples = job->command == TRANSFORMER_GENERATE || config->sample_every;
    if (samples && (double)job->prompts.count * config->samples > MOST)
        return sl_error_set(error, SL_BAD_INPUT, "--samples %d of %d prompts: at most %d samples are possible",
                            config->samples, job->prompts.count, MOST);
    const int in_flight = samples ? transformer_in_flight(job) : 0;
    if (!samples || config->groups <= in_flight) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--groups %d: a replica has %d sample%s %s, and at most as many groups",
                        config->groups, in_flight, in_flight == 1 ? "" : "s",
                        config->in_flight ? "in flight" : "to make");
}

static int open_template(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const int template = config->chat_template;
    const bool none = template == TRANSFORMER_NO_TEMPLATE ||
                      (template == SL_CHAT_BY_TOKENIZER && (!job->tokenizer || !sl_chat_has_template(job->tokenizer)));
    if (none && config->system)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--system: there is no template of chats to write it by: give "
                            "--chat-template, or write it as the first line");
    if (none) return job->tokenizer ? sl_encoder_open(&job->talk.encoder, job->tokenizer, error) : SL_OK;
    if (config->stop)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--stop: answers end where the template of chats says so: leave it "
                            "out, or give --chat-template none");
    job->talk.written = true;
    return sl_chat_writer_open(&job->talk.writer, job->tokenizer, (enum sl_chat_template) template, error);
}

/* Prepares a conversation. The generator's prompt may be any token: it is not read. */
static int prepare_talk(struct transformer_job *job, struct sl_error *error) {
    if (!job->config->interactive) return SL_OK;
    if (!transformer_shows_text(job))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--interactive: the text of the model's %d tokens is unknown: give "
                            "--tokenizer",
                            job->model.vocabulary);
    SL_TRY(open_template(job, error));
    return sl_prompts_add(&job->prompts, &(int32_t){0}, 1, error);
}

int transformer_read_prompts(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_sampling sampling = {config->temperature, config->top_k, config->top_p};
    if (job->command == TRANSFORMER_EVALUATE || job->command == TRANSFORMER_EXPORT) return SL_OK;
    SL_TRY(transformer_know_tokens(job, error));
    if (job->command == TRANSFORMER_GENERATE) SL_TRY(prepare_talk(job, error));
    if (job->config->interactive) return sl_sampling_check(&sampling, error);
    SL_TRY(read_prompts(job, error));
    SL_TRY(transformer_encode_prompts(job, error));
    if (job->command == TRANSFORMER_GENERATE && config->logits) SL_TRY(sl_safetensors_can_write(config->logits, error));
    if (job->command == TRANSFORMER_GENERATE) SL_TRY(check_lengths(job, error));
    SL_TRY(transformer_check_samples(job, error));
    return sl_sampling_check(&sampling, error);
}
