/* option_values.c - values of options: parsing, allowed ranges, printing. */
#include "drivers/common/option_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/command_line/suggest.h"

char *sl_option_range(const struct sl_option *option, char *text, size_t size) {
    text[0] = 0;
    if (option->kind == SL_OPTION_INTEGER) snprintf(text, size, "%.0f to %.0f", option->min, option->max);
    if (option->kind == SL_OPTION_SEED) snprintf(text, size, "0 to %llu", (unsigned long long)UINT64_MAX);
    if (option->kind == SL_OPTION_REAL) {
        snprintf(text, size, "%g to %s%g", option->min, option->below ? "below " : "", option->max);
    }
    return text;
}

char *sl_option_allowed(const struct sl_option *option, char *text, size_t size) {
    char range[64];
    sl_option_range(option, range, sizeof range);
    if (*range) {
        snprintf(text, size, "%s from %s%s%s", option->kind == SL_OPTION_REAL ? "a number" : "an integer", range,
                 option->zero ? ", or " : "", option->zero ? option->zero : "");
    } else {
        const bool chosen = option->kind == SL_OPTION_CHOICE, list = option->kind == SL_OPTION_LIST;
        snprintf(text, size, "%s%s", chosen ? "one of " : list ? "none or a list of " : "", option->value);
    }
    return text;
}

bool sl_option_read_digits(const char **text, int *number) {
    const size_t digits = strspn(*text, "0123456789");
    if (digits < 1 || digits > 9) return false;
    *number = atoi(*text);
    *text += digits;
    return true;
}

static bool read_integer(const struct sl_option *option, const char *text, int *target) {
    if (option->zero && !strcmp(text, option->zero)) return *target = 0, true;
    const size_t digits = strspn(text + (*text == '-'), "0123456789");
    if (digits == 0 || digits > 15 || text[(*text == '-') + digits]) return false;
    const long long value = strtoll(text, NULL, 10);
    if (value < option->min || value > option->max) return false;
    *target = (int)value;
    return true;
}

static bool read_seed(const char *text, uint64_t *target) {
    uint64_t value = 0;
    if (!*text) return false;
    for (; *text; text++) {
        const unsigned digit = (unsigned char)*text - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) return false;
        value = 10 * value + digit;
    }
    *target = value;
    return true;
}

static bool read_real(const struct sl_option *option, const char *text, double *target) {
    /* Only decimals: strtod would also read nan, inf, hexadecimal digits and leading blanks. */
    if (!*text || text[strspn(text, "0123456789.eE+-")]) return false;
    char *end;
    const double value = strtod(text, &end);
    if (*end || !isfinite(value)) return false;
    if (value < option->min || value > option->max || (option->below && value == option->max)) return false;
    *target = value;
    return true;
}

static bool read_choice(const struct sl_option *option, const char *text, int *target) {
    const char *choice = option->value;
    if (option->plain && !strcmp(text, "yes")) text = option->plain;
    for (int i = 0;; i++) {
        const size_t length = sl_option_choice_length(choice);
        if (strlen(text) == length && !memcmp(text, choice, length)) {
            *target = i;
            return true;
        }
        if (!choice[length]) return false;
        choice += length + 1;
    }
}

/* Reads words separated by commas, each once. */
static bool read_list(const struct sl_option *option, const char *text, int *target) {
    int bits = 0;
    if (strcmp(text, "none") != 0) {
        for (const char *word = text;; word++) {
            char one[64];
            int position;
            const int length = (int)strcspn(word, ",");
            if (snprintf(one, sizeof one, "%.*s", length, word) >= (int)sizeof one) return false;
            if (!read_choice(option, one, &position) || bits & 1 << position) return false;
            bits |= 1 << position;
            word += length;
            if (!*word) break;
        }
    }
    *target = bits;
    return true;
}

char *sl_option_print_list(const struct sl_option *option, int bits, char *text, size_t size) {
    const char *word = option->value;
    snprintf(text, size, "%s", bits ? "" : "none");
    for (; bits; bits >>= 1) {
        const size_t length = sl_option_choice_length(word), before = strlen(text);
        if (bits & 1) snprintf(text + before, size - before, "%s%.*s", before ? "," : "", (int)length, word);
        word += length + 1;
    }
    return text;
}

int sl_option_suggest(const struct sl_option *option, const char *text, struct sl_error *error) {
    struct sl_nearest nearest = sl_nearest_to(text, strlen(text));
    for (const char *choice = option->value; *choice; choice += *choice == '|') {
        const size_t length = sl_option_choice_length(choice);
        sl_nearest_try(&nearest, choice, length);
        choice += length;
    }
    return sl_suggest(&nearest, "", error);
}

static bool read_flag(const char *text, bool *target) {
    const bool yes = !strcmp(text, "yes");
    if (!yes && strcmp(text, "no") != 0) return false;
    *target = yes;
    return true;
}

bool sl_option_read(const struct sl_option *option, const char *text, void *target) {
    switch (option->kind) {
    case SL_OPTION_FLAG:
    case SL_OPTION_SWITCH:
        return read_flag(text, target);
    case SL_OPTION_INTEGER:
        return read_integer(option, text, target);
    case SL_OPTION_SEED:
        return read_seed(text, target);
    case SL_OPTION_REAL:
        return read_real(option, text, target);
    case SL_OPTION_CHOICE:
        return read_choice(option, text, target);
    case SL_OPTION_LIST:
        return read_list(option, text, target);
    case SL_OPTION_TEXT:
        if (*text) *(const char **)target = text;
        return *text != 0;
    }
    return false;
}

char *sl_option_default(const struct sl_option *option, const void *target, char *text, size_t size) {
    text[0] = 0;
    switch (option->kind) {
    case SL_OPTION_FLAG:
        break;
    case SL_OPTION_SWITCH:
        snprintf(text, size, "default --%s%s", *(bool *)target ? "" : "no-", option->name);
        break;
    case SL_OPTION_INTEGER:
        if (*(int *)target >= option->min) snprintf(text, size, "default %d", *(int *)target);
        break;
    case SL_OPTION_SEED:
        snprintf(text, size, "default %llu", (unsigned long long)*(uint64_t *)target);
        break;
    case SL_OPTION_REAL:
        if (!isnan(*(double *)target)) snprintf(text, size, "default %g", *(double *)target);
        break;
    case SL_OPTION_TEXT:
        if (*(const char **)target) snprintf(text, size, "default %s", *(const char **)target);
        break;
    case SL_OPTION_LIST:
        snprintf(text, size, "default ");
        sl_option_print_list(option, *(int *)target, text + strlen(text), size - strlen(text));
        break;
    case SL_OPTION_CHOICE: {
        const char *choice = option->value;
        for (int i = 0; i < *(int *)target; i++) choice += sl_option_choice_length(choice) + 1;
        if (*(int *)target >= 0) snprintf(text, size, "default %.*s", (int)sl_option_choice_length(choice), choice);
        break;
    }
    }
    return text;
}

char *sl_option_note(const struct sl_option *option, const void *target, char *text, size_t size) {
    char range[64], initial[128], alias[64] = "";
    sl_option_range(option, range, sizeof range);
    sl_option_default(option, target, initial, sizeof initial);
    if (option->alias) snprintf(alias, sizeof alias, "also --%s", option->alias);
    const char *const part[] = {range, initial, alias};
    *text = 0;
    for (int i = 0; i < 3; i++) {
        const size_t used = strlen(text);
        if (*part[i]) snprintf(text + used, size - used, "%s%s", used ? "; " : "", part[i]);
    }
    return text;
}

const char *sl_option_value_name(const struct sl_option *option) {
    static const char *const name[] = {[SL_OPTION_INTEGER] = "N", [SL_OPTION_SEED] = "N", [SL_OPTION_REAL] = "X"};
    return option->value ? option->value : name[option->kind];
}

/* Prints VALUE with the fewest digits that read back as VALUE. */
static void print_real(double value, char text[SL_OPTION_TEXT_SIZE]) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, SL_OPTION_TEXT_SIZE, "%.*g", digits, value);
        if (isnan(value) || strtod(text, NULL) == value) return;
    }
}

static void print_choice(const char *choice, int position, char text[SL_OPTION_TEXT_SIZE]) {
    for (int i = 0; i < position; i++) choice += strcspn(choice, "|") + 1;
    snprintf(text, SL_OPTION_TEXT_SIZE, "%.*s", position < 0 ? 0 : (int)strcspn(choice, "|"), choice);
}

const char *sl_option_print(const struct sl_option *option, const void *target, char text[SL_OPTION_TEXT_SIZE]) {
    switch (option->kind) {
    case SL_OPTION_FLAG:
    case SL_OPTION_SWITCH:
        return *(const bool *)target ? "yes" : "no";
    case SL_OPTION_INTEGER:
        if (option->zero && !*(const int *)target) return option->zero;
        snprintf(text, SL_OPTION_TEXT_SIZE, "%d", *(const int *)target);
        break;
    case SL_OPTION_SEED:
        snprintf(text, SL_OPTION_TEXT_SIZE, "%" PRIu64, *(const uint64_t *)target);
        break;
    case SL_OPTION_REAL:
        print_real(*(const double *)target, text);
        break;
    case SL_OPTION_CHOICE:
        print_choice(option->value, *(const int *)target, text);
        break;
    case SL_OPTION_LIST:
        sl_option_print_list(option, *(const int *)target, text, SL_OPTION_TEXT_SIZE);
        break;
    default: /* texts, and paths as texts */
        return *(const char *const *)target ? *(const char *const *)target : "none";
    }
    return text;
}

/* ---- a driver's options by name ---- */

struct sl_option_entry sl_option_next(const struct sl_options *options, struct sl_option_place *at) {
    for (const struct sl_option_section *section; (section = &options->section[at->section])->table; at->section++) {
        const struct sl_option *option = &section->table[at->option++];
        if (option->name) return (struct sl_option_entry){option, (char *)section->target + option->target};
        at->option = 0;
    }
    return (struct sl_option_entry){0};
}

struct sl_option_entry sl_option_find(const struct sl_options *options, const char *name) {
    struct sl_option_place at = {0};
    struct sl_option_entry entry;
    while ((entry = sl_option_next(options, &at)).option && strcmp(entry.option->name, name) != 0) continue;
    return entry;
}

bool sl_option_given(const struct sl_options *options, const char *name) {
    for (int i = 0; i < options->givens; i++)
        if (!strcmp(options->given[i]->name, name)) return true;
    return false;
}

const char *sl_option_value(const struct sl_options *options, const char *name, char *text) {
    const struct sl_option_entry entry = sl_option_find(options, name);
    return entry.option ? sl_option_print(entry.option, entry.target, text) : NULL;
}

const char *sl_option_file(const struct sl_options *options, const char *name) {
    const struct sl_option_entry entry = sl_option_find(options, name);
    return entry.option ? *(const char *const *)entry.target : NULL;
}

const char *sl_option_path(const struct sl_option *option, const char *text) {
    if (option->path == SL_PATH_NONE) return NULL;
    const size_t prefix = option->prefix ? strlen(option->prefix) : 0;
    if (!text || (prefix && strncmp(text, option->prefix, prefix) != 0)) return NULL;
    return text[prefix] ? text + prefix : NULL;
}
