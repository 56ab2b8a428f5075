/* commands.c - finds the command, prints the help of all, or reports an unknown name. */
#include "drivers/common/commands.h"

#include <stdio.h>
#include <string.h>

#include "drivers/command_line/arguments.h"
#include "drivers/command_line/wrap.h"
#include "drivers/command_line/streams.h"
#include "drivers/common/options.h"
#include "drivers/command_line/suggest.h"

/* Writes all names, separated by BETWEEN. */
static const char *list(const struct sl_command *table, const char *between, char text[200]) {
    *text = 0;
    for (const struct sl_command *c = table; c->name; c++)
        snprintf(text + strlen(text), 200 - strlen(text), "%s%s", c == table ? "" : between, c->name);
    return text;
}

static int explain(const char *driver, const struct sl_command *table) {
    struct sl_error error;
    char names[200];
    const char *const prefix = sl_program_prefix();
    if (sl_manual_print_commands(driver, table)) return sl_stdout_finish(&error);
    printf("Usage: %s%s %s [OPTION]...\n", prefix, driver, list(table, "|", names));
    for (; table->name; table++) {
        sl_print_wrapped(table->summary, printf("  %s", table->name), 12);
        putchar('\n');
    }
    printf("%s%s COMMAND --help tells a command's options.\n", prefix, driver);
    const int status = sl_stdout_finish(&error);
    if (status) fprintf(stderr, "%s%s: %s\n", prefix, driver, error.message);
    return status;
}

static int refuse(const char *driver, const struct sl_command *table, const char *name) {
    struct sl_error error;
    char names[200];
    list(table, ", ", names);
    if (!name) {
        sl_error_set(&error, SL_BAD_INPUT, "no command: choose one of %s", names);
    } else {
        struct sl_nearest nearest = sl_nearest_to(name, strlen(name));
        for (; table->name; table++) sl_nearest_try(&nearest, table->name, strlen(table->name));
        sl_error_set(&error, SL_BAD_INPUT, "there is no \"%.60s\": choose one of %s", name, names);
        sl_suggest(&nearest, "", &error);
    }
    fprintf(stderr, "%s%s: %s\n", sl_program_prefix(), driver, error.message);
    return error.status;
}

int sl_commands_main(const char *driver, const struct sl_command *table, int argc, char **argv) {
    sl_streams_begin();
    for (const struct sl_command *c = table; argc > 1 && c->name; c++)
        if (!strcmp(argv[1], c->name)) return c->run(c, c->program, argc - 1, argv + 1);
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) return explain(driver, table);
    if (argc > 1 && !strcmp(argv[1], "--version")) return table->run(table, driver, argc, argv);
    return refuse(driver, table, argc > 1 ? argv[1] : NULL);
}
