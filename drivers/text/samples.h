/* samples.h - sequences of tokens, of which some are scored. */
#ifndef SL_DRIVERS_TEXT_SAMPLES_H
#define SL_DRIVERS_TEXT_SAMPLES_H

#include "layers/tokenizers/tokenizer.h"

/* Zero-initialize; free with sl_samples_free. */
struct sl_samples {
    int64_t count;
    size_t *end, room;                   /* [count]: where in the lists a sample ends; and for how many there is room */
    struct sl_token_list inputs, labels; /* of all samples; label -1: what follows the input is not scored */
    struct sl_token_list places;         /* of each input, in the text that it was added with */
    int64_t scored;                      /* labels that are */
    int longest;                         /* inputs of the longest sample */
};

/* Adds the sample of COUNT tokens, of which those from number FROM on are scored; FROM is 1 or more. Where it has more
 * than SEQUENCE inputs, its beginning is left out; so SEQUENCE must have room for all that are scored. SL_FAILED
 * without memory. */
int sl_samples_add(struct sl_samples *samples, const int32_t *token, size_t count, size_t from, int sequence,
                   struct sl_error *error);

/* The same of a sample whose tokens have marks [count]: those with 1 are scored, those with 0 are not. It has all of
 * its COUNT tokens. */
int sl_samples_add_marked(struct sl_samples *samples, const int32_t *token, const int32_t *mark, size_t count,
                          struct sl_error *error);

/* Samples [FIRST, END) become fewer: those that follow each other share one while it has at most SEQUENCE inputs.
 * Returns what END is then. */
int64_t sl_samples_pack(struct sl_samples *samples, int64_t first, int64_t end, int sequence);

/* Labels of sample I that are scored. */
int64_t sl_samples_scored(const struct sl_samples *samples, int64_t i);

/* Writes samples [FIRST, FIRST + ROWS): inputs, labels and, unless NULL, places [rows, sequence]. Samples past the
 * last, and what a short one lacks, get inputs 0, labels -1 and places 0. */
void sl_samples_fetch(const struct sl_samples *samples, int64_t first, int64_t rows, int sequence, int32_t *inputs,
                      int32_t *labels, int32_t *places);

void sl_samples_free(struct sl_samples *samples);

#endif
