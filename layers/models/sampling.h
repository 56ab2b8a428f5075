/* sampling.h - chooses the next token from logits, and prints bytes as readable text. */
#ifndef SL_LAYERS_MODELS_SAMPLING_H
#define SL_LAYERS_MODELS_SAMPLING_H

#include <stdio.h>

#include "spmd/base/error.h"
#include "spmd/random.h"

SL_BEGIN_C

struct sl_sampling {
    double temperature; /* divisor of the logits; 0: choose the largest logit, the first among equal ones */
    int top_k;          /* number of largest logits to keep, the first among equal ones; 0: all */
    double top_p; /* of these, the largest are kept until their probabilities sum up to top_p, at least one; 1: all */
};

/* SL_BAD_INPUT if a number is out of its range; the error names it. */
int sl_sampling_check(const struct sl_sampling *sampling, struct sl_error *error);

/* Working memory of sl_sample_token. Each thread needs its own. */
struct sl_sampling_room {
    double *weight; /* [classes] */
    int32_t *heap;  /* [classes] */
};

/* Returns false if memory is short. Free with sl_sampling_room_close. */
bool sl_sampling_room_open(struct sl_sampling_room *room, int classes);
void sl_sampling_room_close(struct sl_sampling_room *room);

/* Draws a token. The probabilities of the kept tokens are laid side by side on [0, 1), in the order of the tokens;
 * KEY's uniform number selects one. Logits of +infinity share the whole probability. -1 if a logit is NaN or if all are
 * -infinity. Allocates nothing. ROOM, opened for at least CLASSES, may be NULL if the temperature is 0. */
int32_t sl_sample_token(const struct sl_sampling *sampling, int classes, const float *logits, struct sl_key key,
                        struct sl_sampling_room *room);

/* Prints BYTES as readable text: printable UTF-8, newlines and tabs as they are, any other byte as \xNN. */
void sl_print_bytes(FILE *stream, const uint8_t *bytes, size_t count);

/* Writes BYTES as UTF-8 to TEXT, which has room for three bytes each: characters as they are, including control
 * characters, and U+FFFD for each byte that is part of none. Returns TEXT's bytes. */
size_t sl_utf8_of_bytes(const uint8_t *bytes, size_t count, char *text);

SL_END_C
#endif
