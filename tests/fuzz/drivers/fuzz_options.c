/* fuzz_options.c - command lines, and files with options: a table with every kind of option.
 *
 * The first byte chooses whether each further line is an argument, or all of them are the contents of an @FILE; and
 * whether other words than options are allowed. */
#include <math.h>

#include "drivers/common/option_values.h"
#include "drivers/common/options.h"
#include "tests/fuzz/fuzz.h"

struct config {
    bool flag, on;
    int count, choice, way, list;
    uint64_t seed;
    double share;
    const char *text;
};

#define FIELD(name) offsetof(struct config, name)
static const struct sl_option table[] = {
    {"flag", SL_OPTION_FLAG, FIELD(flag), .help = "a flag"},
    {"on", SL_OPTION_SWITCH, FIELD(on), .help = "a switch"},
    {"count", SL_OPTION_INTEGER, FIELD(count), .min = -5, .max = 1000000, .help = "an integer", .alias = "number"},
    {"seed", SL_OPTION_SEED, FIELD(seed), .help = "a seed"},
    {"share", SL_OPTION_REAL, FIELD(share), .min = -1, .max = 1e9, .below = true, .help = "a number"},
    {"text", SL_OPTION_TEXT, FIELD(text), .value = "TEXT", .help = "a text"},
    {"list", SL_OPTION_LIST, FIELD(list), .value = "one|two|three", .help = "a list"},
    {"choice", SL_OPTION_CHOICE, FIELD(choice), .value = "one|two|three", .help = "a choice"},
    {"way", SL_OPTION_CHOICE, FIELD(way), .value = "no|one|two", .plain = "one", .help = "a choice, or none"},
    {0},
};

enum { ARGUMENTS = 256 };

/* Parses into CONFIG. An error must be printed as one line. */
static bool parse(struct config *config, struct sl_options *options, bool words, int argc, char **argv) {
    char *line = NULL;
    size_t length = 0;
    *config = (struct config){.on = true, .share = 0.5};
    *options = (struct sl_options){
        .program = "fuzz", .summary = "A table of every kind.", .section = SL_SECTIONS({"All", table, config})};
    if (words) options->operands = (struct sl_operands){.name = "WORD", .help = "any word"};
    FILE *const out = stdout, *const err = stderr, *const memory = open_memstream(&line, &length);
    FUZZ_PROMISE(memory, "memory");
    stdout = fuzz_nowhere();
    stderr = memory;
    const int status = sl_options_parse(options, argc, argv);
    stdout = out;
    stderr = err;
    fclose(memory);
    FUZZ_PROMISE(status == SL_OK || status == SL_BAD_INPUT, "status %d", status);
    FUZZ_PROMISE(status ? length > 7 && !memcmp(line, "fuzz: ", 6) : !length, "printed: %s", line);
    for (size_t i = 0; i < length; i++)
        FUZZ_PROMISE(i == length - 1 ? line[i] == '\n' : (unsigned char)line[i] >= ' ', "byte %02x: %s",
                     (unsigned char)line[i], line);
    free(line);
    return status == SL_OK && !options->answered;
}

/* Checks that a command line with CONFIG's values gives the same CONFIG. */
static void say_again(const struct config *config) {
    static const char *const choice[] = {"one", "two", "three"}, *const way[] = {"no", "one", "two"};
    char count[32], seed[32], share[48], list[32], *text = NULL;
    snprintf(count, sizeof count, "--count=%d", config->count);
    snprintf(seed, sizeof seed, "--seed=%llu", (unsigned long long)config->seed);
    snprintf(share, sizeof share, "--share=%.17g", config->share);
    char *argv[] = {"fuzz",
                    count,
                    seed,
                    share,
                    "--list",
                    sl_option_print_list(&table[6], config->list, list, sizeof list),
                    "--choice",
                    (char *)choice[config->choice],
                    config->on ? "--on" : "--no-on",
                    "--way",
                    (char *)way[config->way],
                    config->flag ? "--flag" : "--on",
                    NULL,
                    NULL};
    int argc = 12;
    if (!config->flag) argv[11] = argv[8];
    if (config->text) {
        text = malloc(strlen(config->text) + 8);
        FUZZ_PROMISE(text, "memory");
        sprintf(text, "--text=%s", config->text);
        argv[argc++] = text;
    }
    struct config again;
    struct sl_options options;
    FUZZ_PROMISE(parse(&again, &options, false, argc, argv), "refused");
    FUZZ_PROMISE(again.flag == config->flag && again.on == config->on && again.count == config->count &&
                     again.choice == config->choice && again.way == config->way && again.list == config->list &&
                     again.seed == config->seed && again.share == config->share,
                 "another value");
    FUZZ_PROMISE(!config->text == !again.text && (!again.text || !strcmp(again.text, config->text)), "another text");
    sl_options_free(&options);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *argv[ARGUMENTS + 1] = {"fuzz"}, file[80];
    int argc = 1;
    /* Only this one file is there to be read. */
    if (size < 1 || memmem(data, size, "@/", 2) || memmem(data, size, "@.", 2)) return 0;
    char *text = fuzz_text(data + 1, size - 1), *rest = text;
    if (data[0] % 2) {
        for (char *line; argc < ARGUMENTS && (line = strsep(&rest, "\n"));) argv[argc++] = line;
    } else {
        snprintf(file, sizeof file, "@%s", fuzz_file(0, data + 1, size - 1));
        argv[argc++] = file;
    }
    struct config config;
    struct sl_options options;
    if (parse(&config, &options, data[0] & 2, argc, argv)) {
        FUZZ_PROMISE(config.count >= -5 && config.count <= 1000000, "%d", config.count);
        FUZZ_PROMISE(config.choice >= 0 && config.choice <= 2, "%d", config.choice);
        FUZZ_PROMISE(config.list >= 0 && config.list <= 7, "%d", config.list);
        FUZZ_PROMISE(isfinite(config.share) && config.share >= -1 && config.share < 1e9, "%g", config.share);
        FUZZ_PROMISE(!config.text || *config.text, "an empty text");
        say_again(&config);
    }
    sl_options_free(&options);
    free(text);
    return 0;
}
