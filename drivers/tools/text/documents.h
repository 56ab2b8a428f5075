/* documents.h - the documents of a text: its files, or the lines of JSON Lines files. */
#ifndef SL_DRIVERS_TOOLS_TEXT_DOCUMENTS_H
#define SL_DRIVERS_TOOLS_TEXT_DOCUMENTS_H

#include <jansson.h>

#include "layers/formats/tokens/tokens.h"

struct sl_document {
    const char *bytes; /* as in the file */
    size_t count;
    const char *path; /* of the file */
    long long line;   /* number of its line of JSON; 0: the document is the whole file */
};

/* Iterator over the documents of a file, in order. Zero-initialize; FILE is the caller's. */
struct sl_document_lines {
    const struct sl_token_file *file;
    size_t at; /* bytes processed */
    long long line;
};

/* Finds the next document. In a JSON Lines file (sl_contents_are_lines) each line is a document; any other file is
 * one document. Returns false after the last. Skips empty files and blank lines. */
bool sl_document_next(struct sl_document_lines *lines, struct sl_document *document);
/* The same for a JSON Lines file of any name. */
bool sl_document_next_line(struct sl_document_lines *lines, struct sl_document *document);

/* Parses the line's JSON object; the caller frees it, also after a failure. SL_BAD_INPUT names a line without an
 * object. */
int sl_document_object(const struct sl_document *document, json_t **object, struct sl_error *error);
/* Returns in TEXT the document itself, or the string under KEY of its object. The caller frees *OWNED. SL_BAD_INPUT
 * names a line without such a string. */
int sl_document_text(const struct sl_document *document, const char *key, const char **text, size_t *bytes,
                     char **owned, struct sl_error *error);

/* Reads all of FILE->path, a regular file or a pipe, optionally compressed by gzip or zstd. Free with
 * sl_contents_close, also after a failure. */
int sl_document_lines_open(struct sl_token_file *file, struct sl_error *error);

#endif
