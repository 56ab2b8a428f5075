/* text.c - converts shards of tokens back to documents. */
#include <stdlib.h>

#include "drivers/common/metrics.h"
#include "drivers/tools/text/encoding.h"
#include "drivers/tools/tokens/tokens.h"
#include "layers/formats/tokens/tokens.h"

enum { WINDOW = 4096 };

struct printing {
    const struct tokens_config *config;
    const struct sl_tokenizer *tokenizer;
    int32_t end;                   /* token before each document; -1: none */
    struct sl_token_list document; /* its tokens so far */
    bool begun;                    /* a document has begun */
};

/* Prints a document's text; without --json it ends with a newline, its own or an added one. */
static int print_document(struct printing *p, struct sl_error *error) {
    char *text;
    size_t bytes;
    int status = SL_OK;
    if (!p->begun) return SL_OK;
    SL_TRY(sl_decode(p->tokenizer, p->document.token, p->document.count, &text, &bytes, error));
    p->document.count = 0;
    if (p->config->json) {
        json_t *value = json_stringn(text, bytes);
        status =
            value ? sl_json_print(stdout, "stdout", json_pack("{s:o}", p->config->text_key, value), error)
                  : sl_error_set(error, SL_FAILED, "a document is no UTF-8, which JSON needs: print it without --json");
    } else {
        fwrite(text, 1, bytes, stdout);
        if (!bytes || text[bytes - 1] != '\n') putchar('\n');
        if (ferror(stdout)) status = sl_error_set(error, SL_FAILED, "stdout: could not be written");
    }
    free(text);
    return status;
}

static int take_token(struct printing *p, int32_t token, struct sl_error *error) {
    if (token == p->end) {
        SL_TRY(print_document(p, error));
        p->begun = true;
        return SL_OK;
    }
    p->begun = true;
    return sl_token_list_add(&p->document, token) ? SL_OK
                                                  : sl_error_set(error, SL_FAILED, "no memory for a document's tokens");
}

/* Prints all tokens; in a window the first token is an input, and the others are labels. */
static int print_all(struct printing *p, const struct sl_tokens *tokens, struct sl_error *error) {
    int32_t inputs[WINDOW], labels[WINDOW];
    for (int64_t window = 0; window < sl_tokens_windows(tokens, true, WINDOW); window++) {
        SL_TRY(sl_tokens_fetch(tokens, true, 0, window, 1, WINDOW, inputs, labels, error));
        if (!window) SL_TRY(take_token(p, inputs[0], error));
        for (int i = 0; i < WINDOW && labels[i] >= 0; i++) SL_TRY(take_token(p, labels[i], error));
    }
    return print_document(p, error);
}

int tokens_print_text(const struct tokens_config *config, const struct sl_tokenizer *tokenizer,
                      struct sl_error *error) {
    struct printing printing = {.config = config, .tokenizer = tokenizer};
    struct sl_tokens tokens;
    if (!config->data) return sl_error_set(error, SL_BAD_INPUT, "--data is missing: name the shards to read");
    SL_TRY(sl_text_find_end(tokenizer, config->document_token, &printing.end, error));
    SL_TRY(sl_tokens_open_whole(&tokens, config->data, NULL, WINDOW, error));
    tokens.vocabulary = sl_tokenizer_vocabulary(tokenizer);
    int status = SL_OK;
    if (sl_tokens_are_bytes(&tokens) || tokens.columns)
        status = sl_error_set(error, SL_BAD_INPUT, "--data %s: no shards of tokens", config->data);
    if (!status) status = print_all(&printing, &tokens, error);
    sl_token_list_free(&printing.document);
    sl_tokens_close(&tokens);
    return status;
}
