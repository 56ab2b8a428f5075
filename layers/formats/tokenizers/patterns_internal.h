/* patterns_internal.h - divides text into words, within which bytes merge, by regular expressions of PCRE2. To add a
 * pattern, add a row to the table in patterns.c. */
#ifndef SL_LAYERS_FORMATS_TOKENIZERS_PATTERNS_INTERNAL_H
#define SL_LAYERS_FORMATS_TOKENIZERS_PATTERNS_INTERNAL_H

#include "spmd/base/error.h"

struct sl_pattern {
    const char *name;       /* "gpt2" */
    const char *alias;      /* names in GGUF files, with between names and at both ends */
    const char *source;     /* source in a Split of tokenizer.json; NULL: not written there */
    const char *expression; /* the same for PCRE2, with white space as Unicode defines it */
    bool nfc;               /* whether text is normalized; files of ranks do not have this */
    /* Special tokens after the ranks, which files of ranks do not have: names up to NULL, then COUNT tokens named by
     * SERIES with a number from FIRST on. */
    const char *special[16], *series;
    int first, count;
};

/* The pattern with this name, alias or source; NULL: there is none. */
const struct sl_pattern *sl_pattern_named(const char *name);
const struct sl_pattern *sl_pattern_aliased(const char *alias, size_t bytes);
const struct sl_pattern *sl_pattern_of(const char *source);
/* Writes all names, separated by ", ". Returns TEXT. */
char *sl_pattern_names(char text[120]);

/* A compiled pattern; threads may share it. */
struct sl_words;
int sl_words_compile(struct sl_words **words, const struct sl_pattern *pattern, struct sl_error *error);
void sl_words_free(struct sl_words *words);

/* A thread's state for matching. sl_matcher_new returns NULL if memory is short. */
struct sl_matcher;
struct sl_matcher *sl_matcher_new(const struct sl_words *words);
void sl_matcher_free(struct sl_matcher *matcher);
/* Bytes of the word at AT in BYTES bytes of TEXT, which is UTF-8: at least 1. */
size_t sl_matcher_next(struct sl_matcher *matcher, const char *text, size_t bytes, size_t at);

#endif
