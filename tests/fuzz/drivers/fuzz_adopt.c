/* fuzz_adopt.c - options that a run adopts from a checkpoint's notes: any keys and texts, beside a command line that
 * sets some of the options. The first byte of the input chooses these options, and whether the run is resumed; each
 * further line is a note, KEY=TEXT. */
#include <math.h>

#include "drivers/common/options.h"
#include "tests/fuzz/fuzz.h"

struct config {
    bool on;
    int size, steps, choice;
    uint64_t seed;
    double rate;
    const char *data, *text;
};

#define FIELD(name) offsetof(struct config, name)
static const struct sl_option table[] = {
    {"size", SL_OPTION_INTEGER, FIELD(size), .min = 1, .max = 1000, .keep = SL_KEPT_SIZE, .help = "an integer"},
    {"on", SL_OPTION_SWITCH, FIELD(on), .keep = SL_KEPT_MODEL, .help = "a switch"},
    {"data", SL_OPTION_TEXT, FIELD(data), .value = "PATH", .prefix = "of:", .path = SL_PATH_DATA, .keep = SL_KEPT_DATA,
     .help = "a file"},
    {"rate", SL_OPTION_REAL, FIELD(rate), .min = -1, .max = 1e9, .below = true, .keep = SL_KEPT_RUN,
     .help = "a number"},
    {"steps", SL_OPTION_INTEGER, FIELD(steps), .min = 0, .max = 1e9, .keep = SL_KEPT_RUN, .help = "an integer"},
    {"lr-schedule", SL_OPTION_CHOICE, FIELD(choice), .value = "constant|cosine", .keep = SL_KEPT_RUN,
     .help = "a choice"},
    {"text", SL_OPTION_TEXT, FIELD(text), .value = "TEXT", .keep = SL_KEPT_FREE, .unless = "steps|rate",
     .help = "a text"},
    {"seed", SL_OPTION_SEED, FIELD(seed), .keep = SL_KEPT_STATE, .help = "a seed"},
    {0},
};

enum { RESUMES = 1, GIVEN = 7 }; /* bits of the first byte */

static void check_values(const struct config *config) {
    FUZZ_PROMISE(config->size >= 1 && config->size <= 1000, "%d", config->size);
    FUZZ_PROMISE(config->steps >= 0 && config->steps <= 1000000000, "%d", config->steps);
    FUZZ_PROMISE(config->choice == -1 || config->choice == 0 || config->choice == 1, "%d", config->choice);
    FUZZ_PROMISE(isfinite(config->rate) && config->rate >= -1 && config->rate < 1e9, "%g", config->rate);
    FUZZ_PROMISE(!config->text || *config->text, "an empty text");
}

/* Describes the adopted options as notes again and adopts these, which must override none. */
static void tell_again(struct sl_options *options) {
    struct sl_store notes = {0};
    struct sl_error error = {0};
    FUZZ_PROMISE(!sl_describe_options(options, &notes, &error), "%s", error.message);
    sl_store_free(&options->adoption.notes);
    options->adoption.notes = notes;
    *options->adoption.overrides = 0;
    FUZZ_PROMISE(!sl_adopt_notes(options, &error) || strstr(error.message, "not UTF-8"), "%s", error.message);
    FUZZ_PROMISE(!*options->adoption.overrides, "%s", options->adoption.overrides);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config config = {.size = 3, .steps = 10, .choice = -1, .rate = 0.5};
    static char *const given[GIVEN] = {"--size=4",     "--on",    "--rate=0.25", "--steps=20", "--lr-schedule=cosine",
                                       "--text=given", "--seed=5"};
    char *argv[GIVEN + 2] = {"fuzz"};
    int argc = 1;
    struct sl_options options = {.program = "fuzz", .section = SL_SECTIONS({"All", table, &config})};
    struct sl_error error = {0};
    if (size < 1) return 0;
    for (int i = 0; i < GIVEN; i++)
        if (data[0] >> (i + 1) & 1) argv[argc++] = given[i];
    FUZZ_PROMISE(!sl_options_parse(&options, argc, argv), "refused");
    char *const text = fuzz_text(data + 1, size - 1), *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *const key = strsep(&line, "=");
        if (line) FUZZ_PROMISE(!sl_store_set_note(&options.adoption.notes, key, line), "memory");
    }
    options.adoption.resumes = data[0] & RESUMES;
    strcpy(options.adoption.file, "checkpoint");
    const int status = sl_adopt_notes(&options, &error);
    if (status) fuzz_refused(status, &error);
    check_values(&config);
    FUZZ_PROMISE(memchr(options.adoption.overrides, 0, sizeof options.adoption.overrides), "the line ends");
    if (!status) {
        char *const kept = config.text ? strdup(config.text) : NULL, *const path =
                                                                         config.data ? strdup(config.data) : NULL;
        config.text = kept; /* they lay in the notes */
        config.data = path;
        tell_again(&options);
        free(kept);
        free(path);
    }
    sl_options_free(&options);
    free(text);
    return 0;
}
