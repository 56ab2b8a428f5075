/* fuzz_documents.c - texts with a document per line. Documents lie in the file, in order, with only blanks between
 * them; a line's text is no longer than the line; otherwise a line is refused with one message. */
#include "drivers/tools/text/documents.h"
#include "tests/fuzz/fuzz.h"

static void read_text(const struct sl_document *document) {
    struct sl_error error = {0};
    const char *text;
    char *owned;
    size_t bytes;
    const int status = sl_document_text(document, "text", &text, &bytes, &owned, &error);
    if (status)
        fuzz_refused(status, &error);
    else
        FUZZ_PROMISE(bytes <= document->count && (document->line ? text == owned : !owned), "%zu bytes", bytes);
    free(owned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_token_file file = {.path = "a.jsonl", .contents = {.bytes = (void *)data, .count = size}};
    struct sl_document_lines lines = {.file = &file};
    struct sl_document document;
    const uint8_t *at = data;
    long long line = 0;
    while (sl_document_next(&lines, &document)) {
        for (; at < (const uint8_t *)document.bytes; at++)
            FUZZ_PROMISE(strchr(" \t\r\n", *at) && *at, "byte %02x", *at);
        at += document.count;
        FUZZ_PROMISE(document.line > line && at <= data + size, "line %lld", document.line);
        line = document.line;
        read_text(&document);
    }
    for (; at < data + size; at++) FUZZ_PROMISE(strchr(" \t\r\n", *at) && *at, "byte %02x", *at);
    file.path = "a.txt";
    lines = (struct sl_document_lines){.file = &file};
    FUZZ_PROMISE(sl_document_next(&lines, &document) == (size > 0), "%zu bytes", size);
    if (size) FUZZ_PROMISE(document.count == size && !sl_document_next(&lines, &document), "%zu bytes", size);
    return 0;
}
