/* prompts.h - texts to continue, as lists of tokens. */
#ifndef SL_LAYERS_FORMATS_TOKENS_PROMPTS_H
#define SL_LAYERS_FORMATS_TOKENS_PROMPTS_H

#include <stdint.h>

#include "spmd/base/error.h"

SL_BEGIN_C

enum { SL_MOST_PROMPTS = 1 << 20 };

/* Zero-initialize; free with sl_prompts_free, also after a failure. */
struct sl_prompts {
    int count, room;
    int *end;        /* [count]: number of tokens up to the end of each prompt */
    int32_t *tokens; /* of all prompts, one after another */
    size_t tokens_room;
};

static inline int sl_prompt_first(const struct sl_prompts *prompts, int i) { return i ? prompts->end[i - 1] : 0; }
static inline int sl_prompt_length(const struct sl_prompts *prompts, int i) {
    return prompts->end[i] - sl_prompt_first(prompts, i);
}
static inline const int32_t *sl_prompt_tokens(const struct sl_prompts *prompts, int i) {
    return prompts->tokens + sl_prompt_first(prompts, i);
}

/* Adds a prompt of COUNT TOKENS. SL_FAILED if memory is short; SL_BAD_INPUT if there are too many prompts or tokens. */
int sl_prompts_add(struct sl_prompts *prompts, const int32_t *tokens, size_t count, struct sl_error *error);
/* Adds a prompt of the bytes of TEXT. SL_BAD_INPUT if a byte is not below VOCABULARY; the error begins with WHERE, the
 * text's origin. */
int sl_prompts_add_text(struct sl_prompts *prompts, const char *where, const char *text, size_t count, int vocabulary,
                        struct sl_error *error);
/* Adds each line of the file PATH, without its newline, as a prompt; bytes are tokens. SL_BAD_INPUT if the file cannot
 * be read, has no line, or an empty one, or a byte not below VOCABULARY. */
int sl_prompts_read(struct sl_prompts *prompts, const char *path, int vocabulary, struct sl_error *error);
void sl_prompts_free(struct sl_prompts *prompts);

SL_END_C
#endif
