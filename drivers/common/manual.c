/* manual.c - a driver's own page of the manual, and what shells complete, from its option tables. */
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/completion.h"
#include "drivers/common/commands.h"
#include "drivers/common/option_values.h"

/* "shardloop-transformer-train"; returns TEXT. */
static const char *page_of(const char *program, char text[80]) {
    snprintf(text, 80, "shardloop-%s", program);
    for (char *letter = text; *letter; letter++)
        if (*letter == ' ') *letter = '-';
    return text;
}

/* A paragraph under the request before it. */
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
    for (const struct sl_option_section *section = options->section; section->table; section++) {
        if (!section->title) continue;
        print_title(".SS", section->title);
        for (const struct sl_option *option = section->table; option->name; option++)
            print_option(option, (const char *)section->target + option->target);
    }
    puts(".SS Other\n.TP\n.I @FILE\nthe options that FILE holds, separated by white space; # begins a comment\n"
         ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint a summary of this and exit\n"
         ".TP\n\\fB\\-\\-version\\fR\nprint the version and exit");
    print_words(&options->words);
    print_words(&options->notation);
    print_end();
}

/* ---- completion ---- */

/* The names that OPTION takes, with | between; NULL: they are not known, or there are too many. */
static const char *join_names(const struct sl_option *option, char *text, size_t size) {
    struct sl_option_word word;
    size_t used = 0;
    for (int i = 0; option->word && used < size && (word = option->word(i)).name; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "|" : "", word.name);
    return used && used < size ? text : NULL;
}

static void complete(const char *program, const struct sl_options *options, enum sl_help_format format) {
    sl_completion_begin(program, format);
    for (const struct sl_option_section *section = options->section; section->table; section++) {
        for (const struct sl_option *option = section->table; option->name; option++) {
            char names[1024];
            const bool chosen = option->kind == SL_OPTION_CHOICE || option->kind == SL_OPTION_LIST;
            const struct sl_completed completed = {
                .name = option->name,
                .help = option->help,
                .negated = sl_option_has_negation(option),
                .value = sl_option_takes_value(option) ? sl_option_value_name(option) : NULL,
                .choices = chosen ? option->value : join_names(option, names, sizeof names),
                .file = option->path != SL_PATH_NONE,
                .folder = option->path == SL_PATH_SAVED};
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

/* ---- in place of --help ---- */

bool sl_manual_print(const struct sl_options *options) {
    const enum sl_help_format format = sl_help_format();
    const char *const program = options->program + strlen(sl_program_prefix());
    if (format == SL_HELP_TEXT) return false;
    if (format == SL_HELP_MAN)
        print_page(program, options);
    else
        complete(program, options, format);
    return true;
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
