/* sampling.h - chooses the next token from logits, and shows bytes to people. */
#ifndef SL_LAYERS_MODELS_SAMPLING_H
#define SL_LAYERS_MODELS_SAMPLING_H

#include <stdio.h>

#include "spmd/base/error.h"
#include "spmd/random.h"

SL_BEGIN_C

struct sl_sampling {
    double temperature; /* logits are divided by it; 0: the largest logit, the first of equals */
    int top_k;          /* keeps the largest logits, of equals the first ones; 0: all */
    double top_p;       /* of those keeps the largest until their probabilities reach it, at least one; 1: all */
};

/* SL_BAD_INPUT where a number is out of its range. */
int sl_sampling_check(const struct sl_sampling *sampling, struct sl_error *error);

/* What sl_sample_token works in: a room a thread. */
struct sl_sampling_room {
    double *weight; /* [classes] */
    int32_t *heap;  /* [classes] */
};

/* False without memory. */
bool sl_sampling_room_open(struct sl_sampling_room *room, int classes);
void sl_sampling_room_close(struct sl_sampling_room *room);

/* The token that KEY's uniform number falls on where the probabilities of the tokens that are kept lie side by side on
 * [0, 1), in the order of the tokens. Nothing is allocated. Infinite logits share the probability; -1 where a logit is
 * NaN or all are -infinity. ROOM, opened for CLASSES at least, may be NULL where the temperature is 0. */
int32_t sl_sample_token(const struct sl_sampling *sampling, int classes, const float *logits, struct sl_key key,
                        struct sl_sampling_room *room);

/* Prints BYTES for people: printable UTF-8 and newlines as they are, any other byte as \xNN. */
void sl_print_bytes(FILE *stream, const uint8_t *bytes, size_t count);

SL_END_C
#endif
