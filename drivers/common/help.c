/* help.c - prints a driver's --help, its manual page and its completions, from its option tables. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/called.h"
#include "drivers/command_line/completion.h"
#include "drivers/command_line/suggest.h"
#include "drivers/command_line/wrap.h"
#include "drivers/common/commands.h"
#include "drivers/common/option_values.h"

enum { INDENT = 28 };

/* ---- parts of --help ---- */

/* A part with a title: options, or explained words. */
struct part {
    const char *title;
    const struct sl_option_section *section; /* NULL: a list of words */
    const struct sl_option_words *words;
};

/* Fills in part I, from 0; returns false after the last. */
static bool part_at(const struct sl_options *options, int i, struct part *part) {
    const struct sl_option_words *const words[] = {&options->words, &options->notation};
    for (const struct sl_option_section *section = options->section; section->table; section++) {
        *part = (struct part){section->title, section, NULL};
        if (section->title && i-- == 0) return true;
    }
    for (int w = 0; w < 2; w++) {
        *part = (struct part){words[w]->title, NULL, words[w]};
        if (words[w]->title && i-- == 0) return true;
    }
    return false;
}

/* Writes a title as an argument of --help: "latents-experts" for "Latents, experts". */
static const char *topic_of(const char *title, char text[40]) {
    char *end = text;
    for (; *title && end < text + 39; title++) {
        const bool letter = isalnum((unsigned char)*title);
        if (letter || (end > text && end[-1] != '-')) *end++ = letter ? (char)tolower((unsigned char)*title) : '-';
    }
    *end = 0;
    return text;
}

/* Prints the explanation of a name, which ends at column AT, with NOTE in parentheses. */
static void print_explanation(const char *text, const char *note, int at) {
    char aside[304];
    if (at > INDENT - 2) {
        putchar('\n');
        at = 0;
    }
    at = sl_print_wrapped(text, at, INDENT);
    snprintf(aside, sizeof aside, "(%s)", note);
    if (*note) sl_print_wrapped(aside, at, INDENT);
    putchar('\n');
}

/* Prints a space and VALUE from column AT on; a long list of choices continues on the next line. Returns the column
 * after it. */
static int print_value_name(const char *value, int at) {
    at += printf(" ");
    while (*value) {
        const size_t length = sl_option_choice_length(value), all = length + (value[length] == '|');
        if (at + (int)all > SL_HELP_COLUMNS) at = printf("\n%*s", 6, "") - 1;
        at += printf("%.*s", (int)all, value);
        value += all;
    }
    return at;
}

/* Prints the option's name; returns the column after it. */
static int print_name(const struct sl_option *option) {
    const int at = printf("  --%s%s", sl_option_has_negation(option) ? "[no-]" : "", option->name);
    return sl_option_takes_value(option) ? print_value_name(sl_option_value_name(option), at) : at;
}

static void print_part(const struct part *part) {
    struct sl_option_word word;
    char note[300];
    printf("%s:\n", part->title);
    for (const struct sl_option *option = part->section ? part->section->table : NULL; option && option->name; option++)
        print_explanation(option->help,
                          sl_option_note(option, (char *)part->section->target + option->target, note, sizeof note),
                          print_name(option));
    for (int i = 0; part->words && (word = part->words->word(i)).name; i++)
        print_explanation(word.help, word.source ? word.source : "", printf("  %s", word.name));
}

/* ---- --help ---- */

static const char exit_status[] = "\nExit status: 0 done, 1 the experiment's own check failed, 2 bad input,\n"
                                  "3 run-time failure.\n";

static void print_usage(const struct sl_options *options) {
    const struct sl_operands *operands = &options->operands;
    printf("Usage: %s [OPTION]... %s%s[@FILE]...\n", options->program, operands->name ? operands->name : "",
           operands->name ? "... " : "");
    sl_print_wrapped(options->summary, 0, 0);
    putchar('\n');
    if (!operands->name) return;
    printf("\nArguments:\n");
    print_explanation(operands->help, "", printf("  %s", operands->name));
}

static void print_all(const struct sl_options *options) {
    struct part part;
    print_usage(options);
    for (int i = 0; part_at(options, i, &part); i++) {
        putchar('\n');
        print_part(&part);
    }
    printf("\nOther:\n"
           "  @FILE                     the options that FILE holds, separated by white\n"
           "                            space; # begins a comment\n"
           "  -h, --help [all|SECTION]  print this, or one of its sections, and exit\n"
           "  --version                 print the version and exit\n%s",
           exit_status);
}

static bool is_listed(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strcspn(at, " ") == length && !memcmp(at, name, length)) return true;
    return false;
}

/* Returns the length of HELP's first clause: up to a colon, semicolon or full stop outside parentheses. */
static int first_clause(const char *help) {
    int at = 0, open = 0;
    for (; help[at]; at++) {
        open += (help[at] == '(') - (help[at] == ')');
        if (!open && (help[at] == ':' || help[at] == ';' || !strncmp(help + at, ". ", 2))) break;
    }
    return at;
}

/* If NOTE is "default 0", adds the meaning of 0 from HELP. */
static void explain_zero(const char *help, char *note, size_t size) {
    static const char zero[] = "; 0: ";
    const char *const said = strstr(help, zero);
    if (!said || strcmp(note, "default 0") != 0) return;
    const char *const meaning = said + sizeof zero - 1;
    snprintf(note, size, "default 0: %.*s", (int)strcspn(meaning, ";."), meaning);
}

/* Prints the options listed in NAMES, each with the first clause of its help and its default; returns the number of
 * all options. */
static int print_listed(const struct sl_options *options, const char *names) {
    struct part part;
    int count = 0;
    for (int i = 0; part_at(options, i, &part) && part.section; i++) {
        for (const struct sl_option *option = part.section->table; option->name; option++, count++) {
            char note[128], first[256];
            if (!is_listed(names, option->name)) continue;
            snprintf(first, sizeof first, "%.*s", first_clause(option->help), option->help);
            sl_option_default(option, (char *)part.section->target + option->target, note, sizeof note);
            explain_zero(option->help, note, sizeof note);
            print_explanation(first, note, print_name(option));
        }
    }
    return count;
}

/* Prints a command line to paste, with a backslash before each line break. */
static void print_example(const char *program, const char *words) {
    int at = printf("  %s", program);
    for (size_t length; *words; words += length + strspn(words + length, " ")) {
        length = strcspn(words, " ");
        if (at + 1 + (int)length > SL_HELP_COLUMNS - 2) at = printf(" \\\n     ") - 3;
        at += printf(" %.*s", (int)length, words);
    }
    putchar('\n');
}

static void print_brief(const struct sl_options *options) {
    char program[300], text[1200], topic[40];
    struct part part;
    print_usage(options);
    printf("\nExamples:\n");
    for (const char *const *example = options->brief.examples; *example; example++)
        print_example(sl_program_called(options->program, program, sizeof program), *example);
    printf("\nOptions that most runs need:\n");
    const int count = print_listed(options, options->brief.options);
    snprintf(text, sizeof text, "--help all tells all %d options, --help SECTION those of", count);
    for (int i = 0; part_at(options, i, &part); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s", i ? "," : "", topic_of(part.title, topic));
    putchar('\n');
    sl_print_wrapped(text, 0, 0);
    printf(".\n%s", exit_status);
}

static int refuse_topic(const struct sl_options *options, struct sl_error *error) {
    struct sl_nearest nearest = sl_nearest_to(options->topic, strlen(options->topic));
    struct part part;
    char topic[40];
    sl_error_set(error, SL_BAD_INPUT, "--help: there is no section \"%.60s\": choose one of all", options->topic);
    for (int i = 0; part_at(options, i, &part); i++) {
        const size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, ", %s", topic_of(part.title, topic));
        sl_nearest_try(&nearest, topic, strlen(topic));
    }
    return sl_suggest(&nearest, "", error);
}

static int print_topic(const struct sl_options *options, struct sl_error *error) {
    char topic[40], asked[40];
    struct part part;
    topic_of(options->topic, asked);
    for (int i = 0; part_at(options, i, &part); i++) {
        if (strcmp(topic_of(part.title, topic), asked) != 0) continue;
        print_part(&part);
        return SL_OK;
    }
    return refuse_topic(options, error);
}

/* ---- a manual page ---- */

/* Writes "shardloop-transformer-train"; returns TEXT. */
static const char *page_of(const char *program, char text[80]) {
    snprintf(text, 80, "shardloop-%s", program);
    for (char *letter = text; *letter; letter++)
        if (*letter == ' ') *letter = '-';
    return text;
}

/* Prints a paragraph below the preceding request. */
static void print_text(const char *text, const char *note) {
    sl_print_roff(text);
    if (*note) {
        fputs(" (", stdout);
        sl_print_roff(note);
        putchar(')');
    }
    putchar('\n');
}

static void print_option(const struct sl_option *option, const void *target) {
    char note[300];
    printf(".TP\n\\fB\\-\\-%s", sl_option_has_negation(option) ? "[no\\-]" : "");
    sl_print_roff(option->name);
    fputs("\\fR", stdout);
    if (sl_option_takes_value(option)) {
        fputs(option->plain ? "[=\\fI" : " \\fI", stdout);
        sl_print_roff(sl_option_value_name(option));
        fputs(option->plain ? "\\fR]" : "\\fR", stdout);
    }
    putchar('\n');
    print_text(option->help, sl_option_note(option, target, note, sizeof note));
}

static void print_title(const char *request, const char *title) {
    printf("%s \"", request);
    sl_print_roff(title);
    puts("\"");
}

static void print_words(const struct sl_option_words *words) {
    struct sl_option_word word;
    if (!words->title) return;
    print_title(".SH", words->title);
    for (int i = 0; (word = words->word(i)).name; i++) {
        fputs(".TP\n.B ", stdout);
        sl_print_roff(word.name);
        putchar('\n');
        print_text(word.help, word.source ? word.source : "");
    }
}

static void print_end(void) {
    puts(".SH \"EXIT STATUS\"\n"
         "0 done, 1 the experiment's own check failed, 2 bad input, 3 run\\-time failure.\n"
         ".SH \"SEE ALSO\"\n.BR shardloop (1)");
}

static void print_page(const char *program, const struct sl_options *options) {
    char page[80];
    struct part part;
    const struct sl_operands *operands = &options->operands;
    sl_roff_begin(page_of(program, page), options->summary, SL_VERSION);
    printf(".SH SYNOPSIS\n.B shardloop %s\n.RI [ OPTION ]...\n", program);
    if (operands->name) printf(".IR %s ...\n", operands->name);
    puts(".RI [ @FILE ]...\n.SH DESCRIPTION");
    print_text(options->summary, "");
    if (operands->name) {
        printf(".SH ARGUMENTS\n.TP\n.I %s\n", operands->name);
        print_text(operands->help, "");
    }
    puts(".SH OPTIONS");
    for (int i = 0; part_at(options, i, &part) && part.section; i++) {
        print_title(".SS", part.title);
        for (const struct sl_option *option = part.section->table; option->name; option++)
            print_option(option, (const char *)part.section->target + option->target);
    }
    puts(".SS Other\n.TP\n.I @FILE\nthe options that FILE holds, separated by white space; # begins a comment\n"
         ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR [all|\\fISECTION\\fR]\nprint a summary of this, all of it, or one of "
         "its sections, and exit\n"
         ".TP\n\\fB\\-\\-version\\fR\nprint the version and exit");
    print_words(&options->words);
    print_words(&options->notation);
    print_end();
}

/* ---- completion ---- */

/* Returns the names allowed for OPTION, separated by |; NULL: not known, or too many. */
static const char *join_names(const struct sl_option *option, char *text, size_t size) {
    struct sl_option_word word;
    size_t used = 0;
    for (int i = 0; option->word && used < size && (word = option->word(i)).name; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "|" : "", word.name);
    return used && used < size ? text : NULL;
}

static bool is_folder(enum sl_path_use use) {
    return use == SL_PATH_SAVED || use == SL_PATH_JOURNAL || use == SL_PATH_EVENTS;
}

static void complete(const char *program, const struct sl_options *options, enum sl_help_format format) {
    struct part part;
    sl_completion_begin(program, format);
    for (int i = 0; part_at(options, i, &part) && part.section; i++) {
        for (const struct sl_option *option = part.section->table; option->name; option++) {
            char names[1024];
            const bool chosen = option->kind == SL_OPTION_CHOICE || option->kind == SL_OPTION_LIST;
            const struct sl_completed completed = {
                .name = option->name,
                .help = option->help,
                .negated = sl_option_has_negation(option),
                .value = sl_option_takes_value(option) ? sl_option_value_name(option) : NULL,
                .choices = chosen ? option->value : join_names(option, names, sizeof names),
                .file = option->path != SL_PATH_NONE,
                .folder = is_folder(option->path)};
            sl_completion_option(program, &completed, format);
        }
    }
    sl_completion_end(format);
}

static void complete_commands(const char *driver, const struct sl_command *table, enum sl_help_format format) {
    sl_completion_begin_commands(driver, format);
    for (; table->name; table++) sl_completion_command(driver, table->name, table->summary, format);
    sl_completion_end_commands(format);
}

/* ---- all forms of --help ---- */

int sl_help_print(const struct sl_options *options, struct sl_error *error) {
    const enum sl_help_format format = sl_help_format();
    const char *const program = options->program + strlen(sl_program_prefix()), *const topic = options->topic;
    if (format == SL_HELP_MAN)
        print_page(program, options);
    else if (format != SL_HELP_TEXT)
        complete(program, options, format);
    else if (topic ? !strcmp(topic, "all") : !options->brief.options)
        print_all(options);
    else if (topic)
        return print_topic(options, error);
    else
        print_brief(options);
    return SL_OK;
}

bool sl_manual_print_commands(const char *driver, const struct sl_command *table) {
    const enum sl_help_format format = sl_help_format();
    char page[80];
    if (format == SL_HELP_TEXT) return false;
    if (format != SL_HELP_MAN) return complete_commands(driver, table, format), true;
    sl_roff_begin(page_of(driver, page), table->summary, SL_VERSION);
    printf(".SH SYNOPSIS\n.B shardloop %s\n.I COMMAND\n.RI [ OPTION ]...\n.SH COMMANDS\n", driver);
    for (; table->name; table++) {
        fputs(".TP\n.BR ", stdout);
        sl_print_roff(page_of(table->program, page));
        puts(" (1)");
        print_text(table->summary, "");
    }
    print_end();
    return true;
}
