/* samples.h - sequences of tokens, some of which are scored. */
#ifndef SL_DRIVERS_TOOLS_TEXT_SAMPLES_H
#define SL_DRIVERS_TOOLS_TEXT_SAMPLES_H

#include "layers/formats/tokenizers/tokenizer.h"

/* Zero-initialize; free with sl_samples_free. */
struct sl_samples {
    int64_t count;
    size_t *end, room;                   /* [count]: end of each sample in the lists; and number of samples that fit */
    struct sl_token_list inputs, labels; /* of all samples; label -1: the token after the input is not scored */
    struct sl_token_list places;         /* position of each input in its original text */
    int64_t scored;                      /* number of scored labels */
    int longest;                         /* inputs of the longest sample */
};

/* Adds a sample of COUNT tokens; tokens from index FROM on, at least 1, are scored. If it has more than SEQUENCE
 * inputs, its beginning is cut; SEQUENCE must have room for all scored tokens. SL_FAILED without memory. */
int sl_samples_add(struct sl_samples *samples, const int32_t *token, size_t count, size_t from, int sequence,
                   struct sl_error *error);

/* Adds a sample of all COUNT tokens, with marks [count]: 1 for scored tokens, 0 for others. */
int sl_samples_add_marked(struct sl_samples *samples, const int32_t *token, const int32_t *mark, size_t count,
                          struct sl_error *error);

/* Packs samples [FIRST, END): consecutive samples are joined while they have at most SEQUENCE inputs together.
 * Returns the new END. */
int64_t sl_samples_pack(struct sl_samples *samples, int64_t first, int64_t end, int sequence);

/* Returns the number of scored labels in sample I. */
int64_t sl_samples_scored(const struct sl_samples *samples, int64_t i);

/* Writes samples [FIRST, FIRST + ROWS): inputs, labels and, unless NULL, places [rows, sequence]. Padding, and rows
 * past the last sample, have inputs 0, labels -1 and places 0. */
void sl_samples_fetch(const struct sl_samples *samples, int64_t first, int64_t rows, int sequence, int32_t *inputs,
                      int32_t *labels, int32_t *places);

void sl_samples_free(struct sl_samples *samples);

#endif
