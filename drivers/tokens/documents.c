/* documents.c - walks over files and lines. */
#include "drivers/tokens/documents.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int tokens_documents_open(struct tokens_documents *d, const char *path, struct sl_error *error) {
    *d = (struct tokens_documents){0};
    SL_TRY(sl_tokens_open_whole(&d->data, path, 1, error));
    if (!sl_tokens_are_bytes(&d->data))
        return sl_error_set(error, SL_BAD_INPUT, "%s: these are tokens already, and no text", path);
    d->total = (size_t)d->data.count;
    return SL_OK;
}

void tokens_documents_close(struct tokens_documents *d) { sl_tokens_close(&d->data); }

static bool ends_with(const char *text, const char *end) {
    const size_t count = strlen(text), length = strlen(end);
    return count >= length && !strcmp(text + count - length, end);
}

static bool is_blank(const char *bytes, size_t count) {
    while (count && strchr(" \t\r", *bytes) && *bytes) bytes++, count--;
    return !count;
}

/* The next line of FILE that is not blank. */
static bool next_line(struct tokens_documents *d, const struct sl_token_file *file, struct tokens_document *document) {
    while (d->at < file->contents.count) {
        const char *begin = (const char *)file->contents.bytes + d->at;
        const size_t left = file->contents.count - d->at;
        const char *newline = memchr(begin, '\n', left);
        const size_t count = newline ? (size_t)(newline - begin) : left;
        *document = (struct tokens_document){begin, count, file->path, ++d->line};
        d->at += count + (newline != NULL);
        if (!is_blank(begin, count)) return true;
    }
    return false;
}

bool tokens_documents_next(struct tokens_documents *d, struct tokens_document *document) {
    for (; d->file < d->data.files; d->file++, d->at = 0, d->line = 0) {
        const struct sl_token_file *file = &d->data.file[d->file];
        if (ends_with(file->path, ".jsonl") || ends_with(file->path, ".jsonl.gz")) {
            if (next_line(d, file, document)) return true;
        } else if (file->contents.count) {
            *document = (struct tokens_document){file->contents.bytes, file->contents.count, file->path, 0};
            d->file++;
            return true;
        }
    }
    return false;
}

int tokens_document_text(const struct tokens_document *document, const char *key, const char **text, size_t *bytes,
                         char **owned, struct sl_error *error) {
    json_error_t wrong;
    *owned = NULL;
    *text = document->bytes;
    *bytes = document->count;
    if (!document->line) return SL_OK;
    json_t *object = json_loadb(document->bytes, document->count, JSON_ALLOW_NUL, &wrong);
    const json_t *value = json_object_get(object, key);
    int status = SL_OK;
    if (!object)
        status = sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: %s", document->path, document->line, wrong.text);
    else if (!json_is_string(value))
        status = sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: no text under the key \"%s\"", document->path,
                              document->line, key);
    if (!status) {
        *bytes = json_string_length(value);
        *text = *owned = malloc(*bytes + 1);
        if (*owned) memcpy(*owned, json_string_value(value), *bytes + 1);
        if (!*owned)
            status = sl_error_set(error, SL_FAILED, "%s: line %lld: out of memory", document->path, document->line);
    }
    json_decref(object);
    return status;
}
