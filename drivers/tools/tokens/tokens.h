/* tokens.h - commands of the driver tokens. */
#ifndef SL_DRIVERS_TOOLS_TOKENS_TOKENS_H
#define SL_DRIVERS_TOOLS_TOKENS_TOKENS_H

#include <stdio.h>

#include "drivers/common/options.h"
#include "layers/formats/tokenizers/tokenizer.h"

enum { TOKENS_THREADS = 64 }; /* limit */

struct tokens_config {
    const char *tokenizer, *pattern;
    bool special, lines, json;
    const char *data, *save, *text_key;
    int shard_tokens, threads;
    int document_token; /* -1: the end-of-text token */
};

/* Commands; each returns a status. They read stdin, or --data. */
int tokens_encode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error);
int tokens_decode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error);
int tokens_make_shards(const struct tokens_config *config, const struct sl_tokenizer *tokenizer,
                       struct sl_error *error);
int tokens_print_text(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error);

#endif
