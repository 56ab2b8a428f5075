/* documents.h - the documents of a text: its files, or the lines of those that have JSON lines. */
#ifndef SL_DRIVERS_TEXT_DOCUMENTS_H
#define SL_DRIVERS_TEXT_DOCUMENTS_H

#include <jansson.h>

#include "layers/storage/tokens.h"

struct sl_document {
    const char *bytes; /* as they lie in the file */
    size_t count;
    const char *path; /* of the file */
    long long line;   /* a line of JSON, whose number this is; 0: the document is the file */
};

/* The documents of a file, in order. Zero-initialize; FILE is the caller's. */
struct sl_document_lines {
    const struct sl_token_file *file;
    size_t at; /* bytes that are done */
    long long line;
};

/* Of a file with lines of JSON (sl_contents_are_lines) each line is a document; any other is one as a whole. False:
 * there are no more. Empty files and lines of blanks alone are passed over. */
bool sl_document_next(struct sl_document_lines *lines, struct sl_document *document);
/* The same of a file that has JSON lines, whatever it is called. */
bool sl_document_next_line(struct sl_document_lines *lines, struct sl_document *document);

/* The object of JSON that a line is, for the caller to free, also after a failure. SL_BAD_INPUT names the line that is
 * none. */
int sl_document_object(const struct sl_document *document, json_t **object, struct sl_error *error);
/* The text of DOCUMENT: what it is, or the string under KEY of its object. *OWNED is to be freed afterwards.
 * SL_BAD_INPUT names the line that has none. */
int sl_document_text(const struct sl_document *document, const char *key, const char **text, size_t *bytes,
                     char **owned, struct sl_error *error);

/* Reads all of FILE->path, a regular file or a pipe, which gzip or zstd may have packed. Free with sl_contents_close,
 * also after a failure. */
int sl_document_lines_open(struct sl_token_file *file, struct sl_error *error);

#endif
