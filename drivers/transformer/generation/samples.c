/* samples.c - prints generated samples. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

/* A sample to print. */
struct sample {
    int64_t step; /* or NO_STEP */
    int number, length;
    const int32_t *tokens;
};

/* Returns the sample's text. Samples of a training have their full length. */
static char *text_of(const struct transformer_job *job, const struct sample *sample, size_t *count) {
    struct transformer_ending ending = {.job = job, .turn = -1};
    const int prompt = sl_prompt_length(&job->prompts, transformer_prompt_of(job, sample->number));
    if (sample->step == NO_STEP) transformer_open_ending(&ending, job);
    return transformer_shown_text(&ending, sample->tokens, prompt, sample->length, count);
}

/* Returns the text as JSON. Bytes that are not UTF-8 are replaced; the tokens have them. */
static json_t *json_text(const struct transformer_job *job, const struct sample *sample) {
    size_t count = 0;
    char *bytes = text_of(job, sample, &count), *text = malloc(3 * count + 1);
    json_t *string = NULL;
    if (bytes && text) string = json_stringn(text, sl_utf8_of_bytes((uint8_t *)bytes, count, text));
    free(bytes);
    free(text);
    return string;
}

static int print_json(struct transformer_job *job, const struct sample *sample, struct sl_error *error) {
    json_t *list = json_array(), *object = json_object();
    for (int i = 0; list && i < sample->length; i++) json_array_append_new(list, json_integer(sample->tokens[i]));
    if (sample->step != NO_STEP) json_object_set_new(object, "step", json_integer(sample->step));
    if (job->config->prompts)
        json_object_set_new(object, "prompt", json_integer(transformer_prompt_of(job, sample->number)));
    json_object_set_new(object, "sample", json_integer(sample->number));
    json_object_set_new(object, "tokens", list);
    if (transformer_shows_text(job)) json_object_set_new(object, "text", json_text(job, sample));
    return sl_report_print(&job->training.report, object, error);
}

/* Prints the text, each line after MARGIN. */
static int print_text(const struct transformer_job *job, const struct sample *sample, const char *margin,
                      struct sl_error *error) {
    size_t count = 0;
    char *bytes = text_of(job, sample, &count);
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

static void print_numbers(const struct sample *sample, const char *margin) {
    fputs(margin, stdout);
    for (int i = 0; i < sample->length; i++) printf(i ? " %d" : "%d", sample->tokens[i]);
    printf("\n");
}

/* Prints a sample; during a training, between rows of numbers. */
static int print_sample(const struct transformer_job *job, const struct sample *sample, struct sl_error *error) {
    const bool several = transformer_samples(job) > 1, trains = sample->step != NO_STEP;
    const char *margin = trains ? "    " : "";
    if (trains)
        printf("after step %" PRId64 ": sample", sample->step);
    else if (several)
        printf("---- sample");
    if (several) printf(" %d", sample->number);
    if (several && job->config->prompts) printf(" of prompt %d", transformer_prompt_of(job, sample->number));
    if (several || trains) putchar('\n');
    if (transformer_shows_text(job)) return print_text(job, sample, margin, error);
    print_numbers(sample, margin);
    return SL_OK;
}

int transformer_print_samples(struct transformer_job *job, int64_t step, const int32_t *tokens, const int *lengths,
                              struct sl_error *error) {
    for (int s = 0; s < transformer_samples(job); s++) {
        const struct sample sample = {step, s, lengths[s], tokens + (size_t)s * (size_t)job->length};
        SL_TRY(job->config->common.json ? print_json(job, &sample, error) : print_sample(job, &sample, error));
    }
    fflush(stdout);
    return SL_OK;
}
