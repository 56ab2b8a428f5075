/* shardloop.c - the command `shardloop NAME ...`: becomes the program shardloop-NAME in the same folder, or, in a
 * build folder, NAME. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "drivers/command_line/become.h"
#include "drivers/command_line/wrap.h"
#include "drivers/command_line/suggest.h"
#include "drivers/command_line/help_format.h"

static const struct command {
    const char *name, *summary;
} commands[] = {
#include <commands.h> /* drivers/CMakeLists.txt writes it */
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* Prints a manual page, or completions for fish. */
static void explain_otherwise(enum sl_help_format format) {
    if (format == SL_HELP_MAN) {
        sl_roff_begin("shardloop", "trains neural networks on meshes of devices", SL_VERSION);
        puts(".SH SYNOPSIS\n.B shardloop\n.I COMMAND\n.RI [ ARGUMENT ]...\n.SH COMMANDS");
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (format == SL_HELP_FISH) {
            printf("complete -c shardloop -f -n __fish_use_subcommand -a %s -d ", commands[i].name);
            sl_print_quoted(commands[i].summary);
            putchar('\n');
        } else if (format == SL_HELP_MAN) {
            printf(".TP\n.BR shardloop\\-%s (1)\n", commands[i].name);
            sl_print_roff(commands[i].summary);
            putchar('\n');
        }
    }
    if (format == SL_HELP_MAN)
        puts(".SH OPTIONS\n.TP\n.B \\-\\-help\nlist the commands\n.TP\n.B \\-\\-version\ntell the version");
}

static int explain(void) {
    const enum sl_help_format format = sl_help_format();
    if (format != SL_HELP_TEXT) return explain_otherwise(format), SL_OK;
    printf("Usage: shardloop COMMAND [ARGUMENT]...\n"
           "Trains neural networks on meshes of devices. The commands:\n\n");
    for (int i = 0; i < COMMANDS; i++) {
        sl_print_wrapped(commands[i].summary, printf("  %s", commands[i].name), 20);
        putchar('\n');
    }
    printf("\nshardloop COMMAND --help explains the arguments of each, shardloop --version\n"
           "tells the version.\n");
    if (!fflush(stdout) && !ferror(stdout)) return SL_OK;
    fprintf(stderr, "shardloop: stdout: %s\n", strerror(errno));
    return SL_FAILED;
}

/* Reports that WORD is not a command. */
static int refuse(const char *word) {
    struct sl_error error = {.status = SL_BAD_INPUT};
    struct sl_nearest nearest = sl_nearest_to(word, strlen(word));
    for (int i = 0; i < COMMANDS; i++) sl_nearest_try(&nearest, commands[i].name, strlen(commands[i].name));
    snprintf(error.message, sizeof error.message, "\"%.60s\": no such command (--help lists them)", word);
    sl_suggest(&nearest, "", &error);
    fprintf(stderr, "shardloop: %s\n", error.message);
    return error.status;
}

int main(int argc, char **argv) {
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return explain();
    if (!strcmp(argv[1], "--version")) return puts("shardloop " SL_VERSION) < 0 ? SL_FAILED : SL_OK;
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char called[PATH_MAX];
            const char *name = strrchr(argv[0], '/');
            const bool own =
                !strcmp(name ? name + 1 : argv[0], "shardloop"); /* not called through a link with another name */
            snprintf(called, sizeof called, "%s %s", own ? argv[0] : "shardloop", argv[1]);
            return sl_become(commands[i].name, called, argv + 1);
        }
    return refuse(argv[1]);
}
