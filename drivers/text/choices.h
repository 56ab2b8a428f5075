/* choices.h - questions with several answers to choose from: a line of JSON each,
 *
 *     {"prompt": "The capital of France is", "choices": ["Paris", "Rome"], "answer": 0}
 *
 * in which "context" may stand for "prompt". A question becomes a sample for each of its choices: the prompt, what
 * stands between, the choice; the choice's tokens are scored. */
#ifndef SL_DRIVERS_TEXT_CHOICES_H
#define SL_DRIVERS_TEXT_CHOICES_H

#include "drivers/text/samples.h"

struct sl_question {
    long long line; /* of the file */
    int choices, answer;
    int64_t first; /* the sample of its first choice */
};

/* Zero-initialize; free with sl_choices_free. */
struct sl_choices {
    struct sl_samples samples;
    int64_t count;
    struct sl_question *question; /* [count] */
    size_t room;                  /* for how many questions there is room */
    double *bytes;                /* [samples]: of each choice, as it stands in the file */
    int64_t shortened;            /* samples whose beginnings were left out */
};

/* How questions become tokens. */
struct sl_choice_text {
    const struct sl_tokenizer *tokenizer; /* NULL: a token is a byte */
    const char *between;                  /* a prompt and a choice */
    bool special;                         /* what is spelled as a special token is one */
    int sequence;                         /* a sample has at most so many inputs: longer prompts lose their beginning */
    int vocabulary;                       /* of the model: tokens are below; 0: all are allowed */
};

/* Reads the questions of PATH, packed by gzip or not. The white space that ends a prompt belongs to what follows it, as
 * words' tokens begin with a blank. The tokens that are scored are those from the first one on that the prompt alone
 * does not have. Before an empty prompt stands the token that ends a text, or else begins one, or else is a newline.
 * SL_BAD_INPUT names the line that is no question. Free also after a failure. */
int sl_choices_read(struct sl_choices *choices, const char *path, const struct sl_choice_text *text,
                    struct sl_error *error);
void sl_choices_free(struct sl_choices *choices);

#endif
