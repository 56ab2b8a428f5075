/* documents.h - the documents of a path: its files, or the lines of those that have JSON lines. */
#ifndef SL_DRIVERS_TOKENS_DOCUMENTS_H
#define SL_DRIVERS_TOKENS_DOCUMENTS_H

#include "layers/storage/tokens.h"

struct tokens_document {
    const char *bytes; /* as they lie in the file */
    size_t count;
    const char *path; /* of the file */
    long long line;   /* a line of JSON, whose number this is; 0: the document is the file */
};

/* Zero-initialize; free with tokens_documents_close. */
struct tokens_documents {
    struct sl_tokens data;
    int file;  /* that comes next */
    size_t at; /* in it */
    long long line;
    size_t total; /* bytes of all files, unpacked */
};

/* Opens the text PATH: a file, or a directory and the files below it, packed by gzip or not. Files called *.jsonl, or
 * *.jsonl.gz, have a document a line. SL_BAD_INPUT where PATH has no text. */
int tokens_documents_open(struct tokens_documents *documents, const char *path, struct sl_error *error);
void tokens_documents_close(struct tokens_documents *documents);
/* False: there are no more. Empty files and lines of blanks alone are passed over. */
bool tokens_documents_next(struct tokens_documents *documents, struct tokens_document *document);

/* The text of DOCUMENT: what it is, or the string under KEY of its object. *OWNED is to be freed afterwards.
 * SL_BAD_INPUT names the line that has none. */
int tokens_document_text(const struct tokens_document *document, const char *key, const char **text, size_t *bytes,
                         char **owned, struct sl_error *error);

#endif
