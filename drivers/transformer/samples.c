/* samples.c - prints what was generated. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

/* What is no UTF-8 is lost in the text; the tokens have it. */
static json_t *json_text(const struct transformer_job *job, const int32_t *tokens) {
    size_t count = 0;
    char *bytes = transformer_text_of(job, tokens, &count), *text = malloc(3 * count + 1);
    json_t *string = NULL;
    if (bytes && text) string = json_stringn(text, sl_utf8_of_bytes((uint8_t *)bytes, count, text));
    free(bytes);
    free(text);
    return string;
}

static int print_json(struct transformer_job *job, int64_t step, int number, const int32_t *tokens, bool text,
                      struct sl_error *error) {
    json_t *list = json_array(), *object = json_object();
    for (int i = 0; list && i < job->length; i++) json_array_append_new(list, json_integer(tokens[i]));
    if (step != NO_STEP) json_object_set_new(object, "step", json_integer(step));
    if (job->config->prompts) json_object_set_new(object, "prompt", json_integer(transformer_prompt_of(job, number)));
    json_object_set_new(object, "sample", json_integer(number));
    json_object_set_new(object, "tokens", list);
    if (text) json_object_set_new(object, "text", json_text(job, tokens));
    return sl_report_print(&job->training.report, object, error);
}

/* Each line begins with MARGIN. */
static int print_text(const struct transformer_job *job, const int32_t *tokens, const char *margin,
                      struct sl_error *error) {
    size_t count = 0;
    char *bytes = transformer_text_of(job, tokens, &count);
    if (!bytes) return sl_error_set(error, SL_FAILED, "no memory for a sample's text");
    const uint8_t *line = (uint8_t *)bytes, *end = line + count;
    while (line <= end) {
        const uint8_t *newline = memchr(line, '\n', (size_t)(end - line)), *next = newline ? newline : end;
        fputs(margin, stdout);
        sl_print_bytes(stdout, line, (size_t)(next - line));
        putchar('\n');
        line = next + 1;
    }
    free(bytes);
    return SL_OK;
}

static void print_numbers(const struct transformer_job *job, const int32_t *tokens, const char *margin) {
    fputs(margin, stdout);
    for (int i = 0; i < job->length; i++) printf(i ? " %d" : "%d", tokens[i]);
    printf("\n");
}

/* In a training samples stand between rows of numbers. */
static int print_sample(const struct transformer_job *job, int64_t step, int number, const int32_t *tokens, bool text,
                        struct sl_error *error) {
    const bool several = transformer_samples(job) > 1;
    const char *margin = step == NO_STEP ? "" : "    ";
    if (step != NO_STEP)
        printf("after step %" PRId64 ": sample", step);
    else if (several)
        printf("---- sample");
    if (several) printf(" %d", number);
    if (several && job->config->prompts) printf(" of prompt %d", transformer_prompt_of(job, number));
    if (several || step != NO_STEP) putchar('\n');
    if (text) return print_text(job, tokens, margin, error);
    print_numbers(job, tokens, margin);
    return SL_OK;
}

int transformer_print_samples(struct transformer_job *job, int64_t step, const int32_t *tokens,
                              struct sl_error *error) {
    const bool text = job->tokenizer || job->model.vocabulary <= 256, json = job->config->common.json;
    for (int s = 0; s < transformer_samples(job); s++, tokens += job->length)
        SL_TRY(json ? print_json(job, step, s, tokens, text, error) : print_sample(job, step, s, tokens, text, error));
    fflush(stdout);
    return SL_OK;
}
