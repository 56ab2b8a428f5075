/* tokens.h - the commands of the driver tokens. */
#ifndef SL_DRIVERS_TOKENS_TOKENS_H
#define SL_DRIVERS_TOKENS_TOKENS_H

#include <stdio.h>

#include "drivers/common/options.h"
#include "layers/tokenizers/tokenizer.h"

struct tokens_config {
    const char *tokenizer, *pattern;
    bool special, lines;
};

/* --tokenizer and --pattern; --special and --lines. */
extern const struct sl_option tokens_tokenizer_table[], tokens_text_table[];

/* From IN to OUT. */
int tokens_encode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, FILE *in, FILE *out,
                  struct sl_error *error);
int tokens_decode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, FILE *in, FILE *out,
                  struct sl_error *error);

#endif
