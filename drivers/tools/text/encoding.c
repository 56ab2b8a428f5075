/* encoding.c - encodes a text's documents, file by file. */
#include "drivers/tools/text/encoding.h"

#include <stdlib.h>

#include "drivers/common/checkpoints.h"

int sl_document_encode(struct sl_encoder *encoder, const struct sl_document *document, const char *key, bool special,
                       struct sl_token_list *list, struct sl_error *error) {
    const char *text;
    char *owned;
    size_t bytes;
    SL_TRY(sl_document_text(document, key, &text, &bytes, &owned, error));
    const int status = sl_encode(encoder, text, bytes, special, list, error);
    free(owned);
    return status;
}

/* ---- kinds of files ---- */

void sl_text_tell_kind(const char *option, const struct sl_tokens *tokens, bool lines) {
    if (tokens->directory || tokens->given || !sl_tokens_are_bytes(tokens)) return;
    const struct sl_token_file *file = &tokens->file[0];
    const char *kind = sl_contents_kind(&file->contents, file->path);
    if (!kind || (lines && sl_contents_are_lines(file->path))) return;
    sl_remark("%s %s: each byte is taken as text, though by its beginning or its name this is %s", option, file->path,
              kind);
}

int sl_text_tell_line(const char *path, struct sl_error *error) {
    struct sl_token_file file = {.path = (char *)path};
    struct sl_document_lines lines = {.file = &file};
    struct sl_document document;
    struct sl_error other = {0};
    json_t *object = NULL;
    if (!sl_contents_are_lines(path) || sl_document_lines_open(&file, &other)) return error->status;
    if (sl_document_next_line(&lines, &document) && sl_document_object(&document, &object, &other)) *error = other;
    json_decref(object);
    sl_contents_close(&file.contents);
    return error->status;
}

/* ---- separators of documents ---- */

int sl_text_find_end(const struct sl_tokenizer *tokenizer, int given, int32_t *end, struct sl_error *error) {
    size_t bytes;
    *end = given < 0 ? sl_token_end(tokenizer) : given;
    if (given < 0 || sl_token_bytes(tokenizer, given, &bytes)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--document-token %d: the tokenizer has no such token: it has %d", given,
                        sl_tokenizer_vocabulary(tokenizer));
}

int sl_text_refuse_joined(const char *path, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: more than one document, and the tokenizer names no token that ends a text, which must "
                        "stand between them: name it by --document-token N",
                        path);
}

/* ---- a text ---- */

/* State of one walk over the files. */
struct walk {
    const struct sl_text_encoding *encoding;
    const char *path;
    struct sl_encoder *encoder;
    int64_t documents;
};

static int add_document(struct walk *walk, const struct sl_document *document, struct sl_token_list *list,
                        struct sl_error *error) {
    const struct sl_text_encoding *encoding = walk->encoding;
    if (encoding->end < 0 && walk->documents) return sl_text_refuse_joined(walk->path, error);
    if (encoding->end >= 0 && !sl_token_list_add(list, encoding->end))
        return sl_error_set(error, SL_FAILED, "no memory for a text's tokens");
    walk->documents++;
    return sl_document_encode(walk->encoder, document, encoding->key, encoding->special, list, error);
}

static int encode_file(void *arg, const struct sl_token_file *file, int32_t **encoded, int64_t *count,
                       struct sl_error *error) {
    struct walk *walk = arg;
    struct sl_document_lines lines = {.file = file};
    struct sl_document document;
    struct sl_token_list list = {0};
    int status = SL_OK;
    while (status == SL_OK && sl_document_next(&lines, &document)) status = add_document(walk, &document, &list, error);
    *encoded = list.token;
    *count = status == SL_OK ? (int64_t)list.count : 0;
    return status;
}

int sl_text_encode(struct sl_tokens *tokens, const struct sl_text_encoding *encoding, const char *path,
                   double validation, int sequence, int64_t *documents, struct sl_error *error) {
    struct walk walk = {.encoding = encoding, .path = path};
    const int vocabulary = sl_tokenizer_vocabulary(encoding->tokenizer);
    SL_TRY(sl_encoder_open(&walk.encoder, encoding->tokenizer, error));
    const int status = sl_tokens_encode(tokens, path, validation, sequence, vocabulary, encode_file, &walk, error);
    sl_encoder_close(walk.encoder);
    *documents = walk.documents;
    return status;
}
