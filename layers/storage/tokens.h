/* tokens.h - text to train on, as tokens in mapped files, cut into samples whose order is a function of their number.
 *
 * What a path holds is found out by content:
 *  - a directory: its regular files (no links), sorted by name, one after another, a token a byte;
 *  - a file: a token a byte;
 *  - a token shard as llm.c writes them, 256 words of header (magic 20240520, version 1, number of tokens) and GPT-2's
 *    tokens of 16 bits each; or a directory whose *.bin are all such shards, one after another, its other files left
 *    out;
 *  - a safetensors file with an I32 tensor "tokens" [rows, sequence + 1]: row i mod rows is sample i, unshuffled, in
 *    training and in evaluation alike.
 *
 * All others are streams. The end of a stream is for evaluation: windows of sequence + 1 tokens, each beginning with
 * the token that the one before ends with, in order, from the first again after the last. The rest is for training:
 * sample k is of epoch k / windows, and an epoch takes each of its windows once, in an order and from a first token in
 * [0, sequence) that the seed and the epoch draw. So the number of samples taken is all that a resumed run needs, and
 * who fetches which rows makes no difference.
 *
 * Files may not shrink while they are open: reading what is gone ends the process (SIGBUS). */
#ifndef SL_LAYERS_STORAGE_TOKENS_H
#define SL_LAYERS_STORAGE_TOKENS_H

#include "layers/storage/safetensors.h"

SL_BEGIN_C

enum sl_token_kind { SL_TOKENS_BYTES, SL_TOKENS_SHARDS, SL_TOKENS_ROWS };

struct sl_token_file {
    char *path;
    void *map; /* NULL: empty, or read into the store */
    size_t bytes;
    const void *tokens; /* of 1 byte (bytes), 2 (shards) or 4 (rows) */
    int64_t first;      /* the stream's token that the file begins with */
};

/* To be read by all; VOCABULARY may be set. */
struct sl_tokens {
    enum sl_token_kind kind;
    int vocabulary; /* tokens from there on are refused: 256 (bytes), 50257 (shards), or the largest token + 1 (rows)
                       until it is set to the model's */
    int64_t count, training; /* tokens; the first of them are for training */
    int columns;             /* of rows; else 0 */
    int files;
    struct sl_token_file *file;
    struct sl_store store; /* the rows */
};

/* Opens PATH; VALIDATION is the share that is for evaluation, 0 to 1, of which rows take no notice. SL_BAD_INPUT for
 * what cannot be read, is malformed, or has no window of SEQUENCE in a part with a share: training takes
 * 2 * SEQUENCE tokens, evaluation SEQUENCE + 1. */
int sl_tokens_open(struct sl_tokens *tokens, const char *path, double validation, int sequence, struct sl_error *error);
/* Also after a failure. */
void sl_tokens_close(struct sl_tokens *tokens);

/* Windows in an epoch of the training part, in the evaluation part, or rows. */
int64_t sl_tokens_windows(const struct sl_tokens *tokens, bool evaluation, int sequence);

/* Window number I of [0, WINDOWS) in the order of (SEED, EPOCH): a bijection in I. */
int64_t sl_tokens_shuffle(uint64_t seed, int64_t epoch, int64_t windows, int64_t i);

/* Writes samples [FIRST, FIRST + ROWS) as inputs [rows, sequence] and labels [rows, sequence], the tokens after them;
 * either may be NULL. SL_BAD_INPUT names the file and the place of a token that is not in the vocabulary. */
int sl_tokens_fetch(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t first, int64_t rows,
                    int sequence, int32_t *inputs, int32_t *labels, struct sl_error *error);

SL_END_C
#endif
