/* documents.c - iterates over files and lines. */
#include "drivers/tools/text/documents.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/file.h"

static bool is_blank(const char *bytes, size_t count) {
    while (count && strchr(" \t\r", *bytes) && *bytes) bytes++, count--;
    return !count;
}

bool sl_document_next_line(struct sl_document_lines *lines, struct sl_document *document) {
    const struct sl_token_file *file = lines->file;
    if (!lines->at) lines->at = sl_contents_mark(&file->contents);
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
    if (sl_contents_are_lines(file->path)) return sl_document_next_line(lines, document);
    if (lines->at == file->contents.count) return false;
    *document = (struct sl_document){file->contents.bytes, file->contents.count, file->path, 0};
    lines->at = file->contents.count;
    return true;
}

/* Reports why a line has no JSON object. */
static int refuse_line(const struct sl_document *document, const char *why, struct sl_error *error) {
    const char *rest = document->bytes, *end = rest + document->count;
    while (rest < end && strchr(" \t\r", *rest) && *rest) rest++;
    const char first = rest < end ? *rest++ : 0;
    while (rest < end && strchr(" \t\r", *rest) && *rest) rest++;
    if (rest == end && (first == '{' || first == '['))
        why = "its JSON goes on in the next line: each line must be an object of its own";
    else if (first == '[')
        why = "an array of JSON: each line must be an object of its own";
    return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: %s", document->path, document->line, why);
}

int sl_document_object(const struct sl_document *document, json_t **object, struct sl_error *error) {
    json_error_t wrong = {.text = "no object of JSON"};
    *object = json_loadb(document->bytes, document->count, JSON_ALLOW_NUL, &wrong);
    return json_is_object(*object) ? SL_OK : refuse_line(document, wrong.text, error);
}

int sl_document_text(const struct sl_document *document, const char *key, const char **text, size_t *bytes,
                     char **owned, struct sl_error *error) {
    json_t *object;
    *owned = NULL;
    *text = document->bytes;
    *bytes = document->count;
    if (!document->line) return SL_OK;
    int status = sl_document_object(document, &object, error);
    const json_t *value = json_object_get(object, key);
    if (!status && !json_is_string(value))
        status = sl_error_set(error, SL_BAD_INPUT,
                              "%s: line %lld: no text under the key \"%s\": --text-key KEY names another",
                              document->path, document->line, key);
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

/* ---- a JSON Lines file ---- */

/* Doubles the room for bytes if it is full. */
static bool grow(struct sl_contents *contents, size_t *room) {
    if (contents->count < *room) return true;
    *room = *room ? 2 * *room : SL_MOST_COPIED;
    void *bytes = realloc(contents->bytes, *room);
    if (bytes) contents->bytes = bytes;
    return bytes != NULL;
}

static int read_all(struct sl_contents *contents, FILE *stream, const char *path, struct sl_error *error) {
    size_t room = 0, got = 1;
    while (got) {
        if (contents->count >= sl_tokens_most_unpacked)
            return sl_error_set(error, SL_BAD_INPUT, "%s: more than %zu bytes", path, sl_tokens_most_unpacked);
        if (!grow(contents, &room)) return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
        got = fread((char *)contents->bytes + contents->count, 1, room - contents->count, stream);
        contents->count += got;
    }
    if (!ferror(stream)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
}

int sl_document_lines_open(struct sl_token_file *file, struct sl_error *error) {
    const char *reason;
    FILE *stream = sl_file_read(file->path, SL_FILE_REGULAR | SL_FILE_PIPE, &reason);
    if (!stream) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", file->path, reason);
    const int status = read_all(&file->contents, stream, file->path, error);
    fclose(stream);
    if (status || !sl_contents_are_packed(&file->contents)) return status;
    return sl_contents_unpack(&file->contents, file->path, sl_tokens_most_unpacked, error);
}
