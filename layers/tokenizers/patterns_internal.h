/* patterns_internal.h - how text is divided into words, before bytes merge within each of them: by a regular
 * expression, which PCRE2 matches. A new pattern is a row of the table in patterns.c. */
#ifndef SL_LAYERS_TOKENIZERS_PATTERNS_INTERNAL_H
#define SL_LAYERS_TOKENIZERS_PATTERNS_INTERNAL_H

#include "spmd/base/error.h"

struct sl_pattern {
    const char *name;       /* "gpt2" */
    const char *alias;      /* as GGUF files call it, with | between names and at both ends */
    const char *source;     /* as tokenizer.json has it in a Split; NULL: it is not written there */
    const char *expression; /* the same for PCRE2; SPACE stands for the characters that Unicode calls white space */
    bool nfc;               /* text is normalized: what ranks do not say */
    /* Of ranks, which do not say them: the special tokens behind them, up to NULL, then SERIES of them, whose name has
     * a number from FIRST on. */
    const char *special[16], *series;
    int first, count;
};

/* NULL: there is none of this name, or none with this source. */
const struct sl_pattern *sl_pattern_named(const char *name);
const struct sl_pattern *sl_pattern_aliased(const char *alias, size_t bytes);
const struct sl_pattern *sl_pattern_of(const char *source);
/* All names with ", " between. Returns TEXT. */
char *sl_pattern_names(char text[120]);

/* A pattern that was compiled; threads may share it. */
struct sl_words;
int sl_words_compile(struct sl_words **words, const struct sl_pattern *pattern, struct sl_error *error);
void sl_words_free(struct sl_words *words);

/* What a thread needs to match. NULL without memory. */
struct sl_matcher;
struct sl_matcher *sl_matcher_new(const struct sl_words *words);
void sl_matcher_free(struct sl_matcher *matcher);
/* Bytes of the word that begins at AT in BYTES bytes of TEXT, which is UTF-8: at least 1. */
size_t sl_matcher_next(struct sl_matcher *matcher, const char *text, size_t bytes, size_t at);

#endif
