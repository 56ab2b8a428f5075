/* documents.c - walks over files and lines. */
#include "drivers/text/documents.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    const size_t count = strlen(text), length = strlen(end);
    return count >= length && !strcmp(text + count - length, end);
}

static bool is_blank(const char *bytes, size_t count) {
    while (count && strchr(" \t\r", *bytes) && *bytes) bytes++, count--;
    return !count;
}

/* The next line that is not blank. */
static bool next_line(struct sl_document_lines *lines, struct sl_document *document) {
    const struct sl_token_file *file = lines->file;
    while (lines->at < file->contents.count) {
        const char *begin = (const char *)file->contents.bytes + lines->at;
        const size_t left = file->contents.count - lines->at;
        const char *newline = memchr(begin, '\n', left);
        const size_t count = newline ? (size_t)(newline - begin) : left;
        *document = (struct sl_document){begin, count, file->path, ++lines->line};
        lines->at += count + (newline != NULL);
        if (!is_blank(begin, count)) return true;
    }
    return false;
}

bool sl_document_next(struct sl_document_lines *lines, struct sl_document *document) {
    const struct sl_token_file *file = lines->file;
    if (ends_with(file->path, ".jsonl") || ends_with(file->path, ".jsonl.gz")) return next_line(lines, document);
    if (lines->at == file->contents.count) return false;
    *document = (struct sl_document){file->contents.bytes, file->contents.count, file->path, 0};
    lines->at = file->contents.count;
    return true;
}

int sl_document_text(const struct sl_document *document, const char *key, const char **text, size_t *bytes,
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
