/* option_reads.c - evaluates the conditions under which options are read.
 *
 * A condition is evaluated from left to right: alternatives separated by |, each of terms separated by &. */
#include "drivers/common/option_reads.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "drivers/common/identity.h"
#include "spmd/mesh.h"

enum { NAME = 64, MOST_TEXT = 400 };

/* "!attention=gqa/mla" */
struct term {
    bool negated;
    char name[NAME];    /* of an option, or of a command */
    bool command;       /* the name is a command's */
    const char *values; /* separated by /; NULL: any value but off */
    size_t length;      /* of `values` */
};

/* Reads the term at *TEXT, and moves *TEXT to the character after it: &, | or the end. */
static struct term next_term(const char **text) {
    struct term term = {0};
    const char *at = *text;
    if (*at == '!') term.negated = true, at++;
    if (*at == '@') term.command = true, at++;
    const size_t length = strcspn(at, "=&|");
    snprintf(term.name, sizeof term.name, "%.*s", (int)length, at);
    at += length;
    if (*at == '=') {
        term.values = ++at;
        term.length = strcspn(at, "&|");
        at += term.length;
    }
    *text = at;
    return term;
}

/* ---- evaluation ---- */

/* Whether NAME is the program's last word: "train" of "transformer train", "schedule" of "schedule". */
static bool is_command(const struct sl_options *options, const char *name) {
    const char *last = strrchr(options->program, ' ');
    return !strcmp(last ? last + 1 : options->program + strlen(sl_program_prefix()), name);
}

static bool is_on(const char *value) {
    static const char *const off[] = {"", "no", "none", "0", "nan", NULL};
    for (int i = 0; off[i]; i++)
        if (!strcmp(value, off[i])) return false;
    return true;
}

/* Whether MESH has several coordinates along AXIS. A text that is no mesh is refused elsewhere. */
static bool divides(const char *mesh, const char *axis) {
    struct sl_mesh parsed;
    struct sl_error error = {0};
    return sl_mesh_parse(&parsed, mesh, &error) || sl_mesh_axis_size(&parsed, axis) > 1;
}

static bool is_among(const char *value, const struct term *term) {
    char one[NAME];
    for (const char *at = term->values, *end = at + term->length; at < end; at += *at == '/') {
        const size_t rest = (size_t)(end - at), word = strcspn(at, "/"), length = word < rest ? word : rest;
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (*one == '+' ? divides(value, one + 1) : !fnmatch(one, value, 0)) return true;
        at += length;
    }
    return false;
}

static bool holds(const struct sl_options *options, const struct term *term) {
    char text[SL_OPTION_TEXT_SIZE];
    if (term->command) return is_command(options, term->name) != term->negated;
    const char *const value = sl_option_value(options, term->name, text);
    const bool found = value && (term->values ? is_among(value, term) : is_on(value));
    return found != term->negated;
}

static bool is_read(const struct sl_options *options, const char *condition) {
    bool all = true;
    for (const char *at = condition;; at++) {
        const struct term term = next_term(&at);
        all = all && holds(options, &term);
        if (*at != '&' && all) return true;
        if (!*at) return false;
        if (*at == '|') all = true;
    }
}

/* ---- messages ---- */

/* "with --attention gqa", "without --chat", "by generate" */
static int tell_term(const struct term *term, char *text, size_t size) {
    if (term->command) return snprintf(text, size, "%s %s", term->negated ? "not by" : "by", term->name);
    int used = snprintf(text, size, "%s --%s", term->negated ? "without" : "with", term->name);
    if (term->length && *term->values == '+' && (size_t)used < size)
        return used +
               snprintf(text + used, size - (size_t)used, " %.*s=2 or more", (int)term->length - 1, term->values + 1);
    for (size_t i = 0; i < term->length && (size_t)used < size; i++) {
        const char one[] = {term->values[i], 0}, *const before = i ? "" : " ";
        const char *const word = *one == '/' ? " or " : *one != '*' ? one : i ? "..." : "";
        used += snprintf(text + used, size - (size_t)used, "%s%s", before, word);
    }
    return used;
}

/* Writes the false terms of the alternative at *AT to TEXT, and moves *AT behind it. If this command lacks one of the
 * options, writes nothing. If a term is for another command, leaves out the terms after it. */
static void tell_alternative(const struct sl_options *options, const char **at, char *text, size_t size) {
    size_t used = 0;
    bool other = false, possible = true;
    for (;; ++*at) {
        char value[SL_OPTION_TEXT_SIZE];
        const struct term term = next_term(at);
        if (!holds(options, &term) && !other && used < size) {
            possible &= term.command || sl_option_value(options, term.name, value);
            if (used) used += (size_t)snprintf(text + used, size - used, " and ");
            if (used < size) used += (size_t)tell_term(&term, text + used, size - used);
            other = term.command;
        }
        if (**at != '&') break;
    }
    if (!possible) *text = 0;
}

static void tell(const struct sl_options *options, const char *condition, char text[MOST_TEXT]) {
    size_t used = 0;
    for (const char *at = condition; used < MOST_TEXT; at++) {
        char one[MOST_TEXT] = "";
        tell_alternative(options, &at, one, sizeof one);
        if (*one && !strstr(text, one))
            used += (size_t)snprintf(text + used, MOST_TEXT - used, "%s%s", used ? ", or " : "", one);
        if (!*at) return;
    }
}

int sl_options_check_read(const struct sl_options *options, struct sl_error *error) {
    if (sl_option_given(options, "replay")) return SL_OK;
    for (int i = 0; i < options->givens; i++) {
        const struct sl_option *option = options->given[i];
        char choices[MOST_TEXT] = "";
        if (!option->read || is_read(options, option->read)) continue;
        tell(options, option->read, choices);
        return sl_error_set(error, SL_BAD_INPUT, "--%s: is read only %s", option->name, choices);
    }
    return SL_OK;
}
