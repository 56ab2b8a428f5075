/* choices.h - questions with several answers to choose from: a line of JSON each,
 *
 *     {"prompt": "The capital of France is", "choices": ["Paris", "Rome"], "answer": 0}
 *
 * with "context" as another name of "prompt". A question becomes a sample per choice: the prompt, the text between, the
 * choice; the choice's tokens are scored. */
#ifndef SL_DRIVERS_TOOLS_TEXT_CHOICES_H
#define SL_DRIVERS_TOOLS_TEXT_CHOICES_H

#include "drivers/tools/text/samples.h"

struct sl_question {
    long long line; /* of the file */
    int choices, answer;
    int64_t first; /* index of the sample of its first choice */
};

/* Zero-initialize; free with sl_choices_free. */
struct sl_choices {
    struct sl_samples samples;
    int64_t count;
    struct sl_question *question; /* [count] */
    size_t room;                  /* number of questions that fit */
    double *bytes;                /* [samples]: bytes of each choice in the file */
    int64_t shortened;            /* number of samples with a cut beginning */
};

/* How questions are encoded. */
struct sl_choice_text {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    const char *between;                  /* text between a prompt and a choice */
    bool special;                         /* spellings of special tokens are encoded as these tokens */
    int sequence;                         /* most inputs of a sample: longer prompts are cut at the beginning */
    int vocabulary;                       /* of the model: larger tokens are refused; 0: all are allowed */
};

/* Reads the questions of PATH, optionally compressed by gzip. White space at the end of a prompt is encoded with the
 * text after it, since tokens of words begin with a blank. Scored are the tokens from the first one on that differs
 * from the prompt's own encoding. An empty prompt is preceded by the end-of-text token, or else by the token that
 * begins one, or else by a newline. SL_BAD_INPUT names an invalid line. Free also after a failure. */
int sl_choices_read(struct sl_choices *choices, const char *path, const struct sl_choice_text *text,
                    struct sl_error *error);
void sl_choices_free(struct sl_choices *choices);

#endif
