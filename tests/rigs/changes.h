/* changes.h - a sound file and a table of changes to its text, each with the expected error message. */
#ifndef SL_TESTS_RIGS_CHANGES_H
#define SL_TESTS_RIGS_CHANGES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/base/error.h"

/* Replaces the first FROM by TO. The error's message must then contain LINE; if LINE is NULL, the file must be read
 * without error. */
struct change {
    const char *from, *to, *line;
};

/* TEXT with the change, to be freed. */
static inline char *changed(const char *text, const struct change *change) {
    const char *at = strstr(text, change->from);
    if (!at) fail_msg("\"%s\" is not in the file", change->from);
    const size_t before = (size_t)(at - text), from = strlen(change->from), to = strlen(change->to);
    char *made = malloc(strlen(text) + to + 1);
    assert_non_null(made);
    memcpy(made, text, before);
    memcpy(made + before, change->to, to);
    strcpy(made + before + to, at + from);
    return made;
}

static inline void write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* The whole file and a zero, to be freed. */
static inline char *read_text(const char *path) {
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST);
    FILE *file = fopen(path, "rb");
    assert_true(text && file);
    assert_in_range(fread(text, 1, MOST - 1, file), 1, MOST - 2);
    fclose(file);
    return text;
}

/* Fails unless STATUS and ERROR report bad input with LINE in the message; if LINE is NULL, unless STATUS is 0.
 * Failures print WHAT, the name of the case. */
static inline void expect_line(const char *what, int status, const struct sl_error *error, const char *line) {
    if (!line && status) fail_msg("%.200s: %s", what, error->message);
    if (!line) return;
    if (status != SL_BAD_INPUT || error->status != SL_BAD_INPUT)
        fail_msg("%.200s: status %d: %s", what, status, error->message);
    if (!strstr(error->message, line)) fail_msg("%.200s: \"%s\" is not in: %s", what, line, error->message);
}

/* Writes TEXT to PATH with one change at a time, and calls TRY(ARG), which reads the file. */
static inline void expect_changes(const char *path, const char *text, const struct change *change, size_t count,
                                  int (*try)(const char *path, void *arg, struct sl_error *error), void *arg) {
    for (size_t i = 0; i < count; i++) {
        struct sl_error error = {0};
        char *made = changed(text, &change[i]);
        write_file(path, made, strlen(made));
        free(made);
        const int status = try(path, arg, &error);
        expect_line(change[i].to, status, &error, change[i].line);
    }
}
#define EXPECT_CHANGES(path, text, change, try, arg)                                                                   \
    expect_changes(path, text, change, sizeof(change) / sizeof *(change), try, arg)

#endif
