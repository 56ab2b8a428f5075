/* driver.c - `plan memory` and `plan search` with --driver: the driver plans itself, with the code that runs it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/command_line/arguments.h"
#include "drivers/command_line/become.h"
#include "drivers/command_line/called.h"
#include "drivers/tools/plan/plan.h"

/* Drivers that plan themselves, with their training command. */
static const struct driver {
    const char *name, *command;
} drivers[] = {{"transformer", "train"}, {"looping_pipeline", NULL}};
enum { DRIVERS = sizeof drivers / sizeof *drivers };

static const struct driver *find(const char *name) {
    for (int i = 0; i < DRIVERS; i++)
        if (!strcmp(drivers[i].name, name)) return &drivers[i];
    return NULL;
}

/* Returns the value of OPTION ("--driver") at argv[*i], and moves *i to its last word; NULL: another word. */
static const char *value_of(char **argv, int argc, int *i, const char *option) {
    const size_t length = strlen(option);
    if (strncmp(argv[*i], option, length) != 0) return NULL;
    if (argv[*i][length] == '=') return argv[*i] + length + 1;
    return !argv[*i][length] && *i + 1 < argc ? argv[++*i] : NULL;
}

static int explain(const char *command) {
    printf("Usage: %splan %s --driver transformer|looping_pipeline [OPTION]...\n", sl_program_prefix(), command);
    puts(!strcmp(command, "memory")
             ? "Prints the memory of each coordinate of that run, byte for byte, by purpose.\n"
               "The options are the driver's own."
             : "Predicts all layouts of that run on --devices, and prints the ten best. The options are the\n"
               "driver's own, among them --devices, --memory and --machine; a given option stays as it is.\n"
               "--save FILE writes those of the best, for the driver to be started with @FILE.");
    return SL_OK;
}

static int refuse(const char *command, const char *name) {
    fprintf(stderr, "%splan: %s: --driver %.60s: choose transformer or looping_pipeline\n", sl_program_prefix(),
            command, name ? name : "is missing");
    return SL_BAD_INPUT;
}

static int without_memory(const char *command) {
    fprintf(stderr, "%splan %s: no memory for the options\n", sl_program_prefix(), command);
    return SL_FAILED;
}

int plan_by_driver(int argc, char **argv) {
    enum { MOST_ADDED = 4 };
    const bool searches = !strcmp(argv[1], "search");
    char **word = calloc((size_t)argc + MOST_ADDED, sizeof *word);
    const char *name = NULL, *value;
    char called[PATH_MAX];
    int count = 2; /* the program and its command */
    if (!word) return without_memory(argv[1]);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            free(word);
            return explain(argv[1]);
        }
        if ((value = value_of(argv, argc, &i, "--driver")))
            name = value;
        else if (searches && !strncmp(argv[i], "--save", 6) && (argv[i][6] == '=' || !argv[i][6]) && i + 1 <= argc) {
            if (asprintf(&word[count++], "--save-options%s", argv[i] + 6) < 0) return without_memory(argv[1]);
        } else
            word[count++] = argv[i];
    }
    const struct driver *driver = name ? find(name) : NULL;
    if (!driver) {
        free(word);
        return refuse(argv[1], name);
    }
    word[count++] = searches ? "--plan=search" : "--dry-run";
    word[1] = (char *)driver->command;
    return sl_become(driver->name, sl_program_beside(driver->name, called, sizeof called),
                     driver->command ? word : word + 1);
}
