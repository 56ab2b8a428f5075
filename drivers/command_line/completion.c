/* completion.c - prints completions for bash, zsh and fish. */
#include "drivers/command_line/completion.h"

#include <stdio.h>
#include <string.h>

/* Prints the choices with BETWEEN between them. */
static void print_choices(const struct sl_completed *option, char between) {
    for (const char *letter = option->choices; *letter; letter++) putchar(*letter == '|' ? between : *letter);
}

/* ---- bash ---- */

/* Words: --name, --name= for any value, --name=a|b for choices, --name=:files, --name=:folders. */
static void print_for_bash(const struct sl_completed *option) {
    if (option->negated) printf(" --no-%s", option->name);
    printf(" --%s", option->name);
    if (!option->value) return;
    putchar('=');
    if (option->choices)
        print_choices(option, '|');
    else if (option->file || option->folder)
        fputs(option->folder ? ":folders" : ":files", stdout);
}

/* ---- zsh ---- */

/* Prints TEXT for the inside of single quotes, with brackets and colons escaped: they would end a part of a
 * specification. */
static void print_for_arguments(const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) putchar('\\');
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
}

static void print_value_for_zsh(const struct sl_completed *option) {
    putchar(':');
    print_for_arguments(option->choices ? option->name : option->value);
    putchar(':');
    if (option->choices) {
        putchar('(');
        print_choices(option, ' ');
        putchar(')');
    } else if (option->file || option->folder) {
        fputs(option->folder ? "_files -/" : "_files", stdout);
    }
}

static void print_for_zsh(const struct sl_completed *option) {
    for (int negated = 0; negated <= option->negated; negated++) {
        printf("            '--%s%s%s[", negated ? "no-" : "", option->name, option->value && !negated ? "=" : "");
        print_for_arguments(option->help);
        putchar(']');
        if (option->value && !negated) print_value_for_zsh(option);
        puts("'");
    }
}

/* ---- fish ---- */

/* Prints the beginnings of lines for "shardloop NAME COMMAND" and for "shardloop-NAME COMMAND". */
static void begin_fish(const char *program, bool front) {
    const char *const command = strchr(program, ' ');
    const int length = command ? (int)(command - program) : (int)strlen(program);
    if (front)
        printf("complete -c shardloop -n '__fish_seen_subcommand_from %.*s%s%s'", length, program,
               command ? "; and __fish_seen_subcommand_from" : "", command ? command : "");
    else if (command)
        printf("complete -c shardloop-%.*s -n '__fish_seen_subcommand_from%s'", length, program, command);
    else
        printf("complete -c shardloop-%s", program);
}

static void print_for_fish(const char *program, const struct sl_completed *option) {
    for (int front = 0; front < 2; front++) {
        if (option->negated) {
            begin_fish(program, front);
            printf(" -l no-%s\n", option->name);
        }
        begin_fish(program, front);
        printf(" -l %s", option->name);
        if (option->value) fputs(option->file || option->folder ? " -r" : " -x", stdout);
        if (option->choices) {
            fputs(" -a '", stdout);
            print_choices(option, ' ');
            putchar('\'');
        }
        fputs(" -d ", stdout);
        sl_print_quoted(option->help);
        putchar('\n');
    }
}

/* ---- programs ---- */

void sl_completion_begin(const char *program, enum sl_help_format format) {
    if (format == SL_HELP_BASH) printf("_shardloop_words['%s']='--help --version", program);
    if (format == SL_HELP_ZSH) printf("        '%s') specifications=(\n", program);
}

void sl_completion_option(const char *program, const struct sl_completed *option, enum sl_help_format format) {
    if (format == SL_HELP_BASH) print_for_bash(option);
    if (format == SL_HELP_ZSH) print_for_zsh(option);
    if (format == SL_HELP_FISH) print_for_fish(program, option);
}

void sl_completion_end(enum sl_help_format format) {
    if (format == SL_HELP_BASH) puts("'");
    if (format == SL_HELP_ZSH)
        puts("            '--help[print this and exit]' '--version[print the version and exit]'\n"
             "            '*:file:_files') ;;");
}

void sl_completion_begin_commands(const char *driver, enum sl_help_format format) {
    if (format == SL_HELP_BASH) printf("_shardloop_words['%s']='--help --version'\n", driver);
    if (format == SL_HELP_ZSH) printf("        '%s') specifications=('1:command:(", driver);
}

void sl_completion_command(const char *driver, const char *name, const char *summary, enum sl_help_format format) {
    if (format == SL_HELP_ZSH) printf("%s ", name);
    if (format == SL_HELP_COMMANDS) puts(name);
    for (int front = 0; format == SL_HELP_FISH && front < 2; front++) {
        begin_fish(driver, front);
        printf(" -f -a %s -d ", name);
        sl_print_quoted(summary);
        putchar('\n');
    }
}

void sl_completion_end_commands(enum sl_help_format format) {
    if (format == SL_HELP_ZSH) puts(")') ;;");
}
