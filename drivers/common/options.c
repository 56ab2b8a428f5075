/* options.c - command lines as tables. */
#include "drivers/common/options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/identity.h"
#include "drivers/common/option_reads.h"
#include "drivers/common/option_values.h"
#include "drivers/common/output.h"
#include "drivers/command_line/launch.h"
#include "drivers/command_line/streams.h"
#include "drivers/command_line/suggest.h"
#include "spmd/base/cpu_level.h"

enum {
    MAX_NAMES = SL_MOST_OPTIONS,
    NAME_SIZE = 40,
    FIRST_VALUE = 256, /* of struct option's val: larger than any character */
    HELP = MAX_NAMES,
    VERSION,
};

/* A name on the command line: an option, or the negation of a switch. */
struct name {
    const struct sl_option *option;
    void *target;
    bool negated;
    char text[NAME_SIZE]; /* "--name" */
};

struct parser {
    struct sl_operands *operands;
    int count;
    struct name name[MAX_NAMES];
    struct option list[MAX_NAMES + 3]; /* for getopt_long; val - FIRST_VALUE is the index in name */
};

static void add_name(struct parser *parser, const struct sl_option *option, void *target, bool negated) {
    if (parser->count == MAX_NAMES) abort(); /* the option tables exceed the limit above */
    struct name *name = &parser->name[parser->count];
    *name = (struct name){.option = option, .target = (char *)target + option->target, .negated = negated};
    snprintf(name->text, sizeof name->text, "--%s%s", negated ? "no-" : "", option->name);
    const int argument = negated || !sl_option_takes_value(option) ? no_argument
                         : option->plain                           ? optional_argument
                                                                   : required_argument;
    parser->list[parser->count] = (struct option){name->text + 2, argument, NULL, FIRST_VALUE + parser->count};
    parser->count++;
}

static void collect_names(struct parser *parser, struct sl_options *options) {
    *parser = (struct parser){.operands = &options->operands};
    for (const struct sl_option_section *section = options->section; section->table; section++) {
        if (!section->title) continue;
        for (const struct sl_option *option = section->table; option->name; option++) {
            add_name(parser, option, section->target, false);
            if (sl_option_has_negation(option)) add_name(parser, option, section->target, true);
        }
    }
    parser->list[parser->count] = (struct option){"help", optional_argument, NULL, FIRST_VALUE + HELP};
    parser->list[parser->count + 1] = (struct option){"version", no_argument, NULL, FIRST_VALUE + VERSION};
}

/* Returns the option with the first LENGTH letters of WORD as its alias; NULL: none. */
static const struct name *find_alias(const struct parser *parser, const char *word, size_t length) {
    for (int i = 0; i < parser->count; i++) {
        const char *const alias = parser->name[i].option->alias;
        if (alias && strlen(alias) == length && !memcmp(alias, word, length)) return &parser->name[i];
    }
    return NULL;
}

/* Replaces aliases, with or without a value, by the option's name. Only complete words count: as extra names for
 * getopt_long, aliases would make abbreviations ambiguous. */
static int rename_aliases(const struct parser *parser, struct sl_arguments *arguments, struct sl_error *error) {
    for (int i = 1; i < arguments->count && strcmp(arguments->word[i], "--") != 0; i++) {
        char **const word = &arguments->word[i], *renamed;
        const size_t length = strncmp(*word, "--", 2) ? 0 : strcspn(*word + 2, "=");
        const struct name *name = length ? find_alias(parser, *word + 2, length) : NULL;
        if (!name) continue;
        if (asprintf(&renamed, "%s%s", name->text, *word + 2 + length) < 0)
            return sl_error_set(error, SL_FAILED, "out of memory");
        free(*word);
        *word = renamed;
    }
    return SL_OK;
}

/* Whether WORD is the value of an option with an optional value. If the program takes no operands, it cannot be
 * anything else. */
static bool is_value(const struct parser *parser, const struct name *name, const char *word) {
    int choice;
    if (!name->option->plain || name->negated || *word == '-') return false;
    return !parser->operands->name || sl_option_read(name->option, word, &choice);
}

/* Joins optional values to their options. */
static int join_values(const struct parser *parser, struct sl_arguments *arguments, struct sl_error *error) {
    for (int i = 1; i + 1 < arguments->count && strcmp(arguments->word[i], "--") != 0; i++) {
        char **const word = &arguments->word[i], *joined;
        for (int n = 0; n < parser->count; n++) {
            const struct name *name = &parser->name[n];
            if (strcmp(*word, name->text) != 0 || !is_value(parser, name, word[1])) continue;
            if (asprintf(&joined, "%s=%s", name->text, word[1]) < 0)
                return sl_error_set(error, SL_FAILED, "out of memory");
            free(word[0]);
            free(word[1]);
            word[0] = joined;
            arguments->count--;
            memmove(word + 1, word + 2, (size_t)(arguments->count - i) * sizeof *word);
            break;
        }
    }
    return SL_OK;
}

/* ---- parsing ---- */

/* Whether ENTRY's name begins with the name in ARGUMENT ("--NAME" or "--NAME=VALUE"). */
static bool begins_as(const struct option *entry, const char *argument) {
    return !strncmp(entry->name, argument + 2, strcspn(argument + 2, "="));
}

/* Reports that ARGUMENT abbreviates several names. */
static int refuse_ambiguous(const struct parser *parser, const char *argument, struct sl_error *error) {
    enum { MOST = 8 };
    char names[MOST * (NAME_SIZE + 2) + 8] = "";
    int count = 0;
    for (const struct option *entry = parser->list; entry->name && count <= MOST; entry++) {
        if (!begins_as(entry, argument)) continue;
        const size_t used = strlen(names);
        if (count++ == MOST)
            snprintf(names + used, sizeof names - used, ", ...");
        else
            snprintf(names + used, sizeof names - used, "%s--%s", used ? ", " : "", entry->name);
    }
    return sl_error_set(error, SL_BAD_INPUT, "%.80s: short for more than one option: %s", argument, names);
}

/* Reports that ARGUMENT is not an option or an abbreviation of one. */
static int refuse_unknown(const struct parser *parser, const char *argument, struct sl_error *error) {
    const char *const word = argument + strspn(argument, "-");
    struct sl_nearest nearest = sl_nearest_to(word, strcspn(word, "="));
    for (const struct option *entry = parser->list; entry->name; entry++)
        sl_nearest_try(&nearest, entry->name, strlen(entry->name));
    for (int i = 0; i < parser->count; i++) {
        const char *const alias = parser->name[i].option->alias;
        if (alias) sl_nearest_try(&nearest, alias, strlen(alias));
    }
    sl_error_set(error, SL_BAD_INPUT, "%.80s: no such option%s", argument, *nearest.name ? "" : " (--help lists them)");
    return sl_suggest(&nearest, "--", error);
}

/* Reports the mistake in ARGUMENT, which getopt_long refused with OPTOPT. */
static int refuse(const struct parser *parser, const char *argument, struct sl_error *error) {
    if (optopt >= FIRST_VALUE) return sl_error_set(error, SL_BAD_INPUT, "%.80s: takes no value", argument);
    int matches = 0;
    for (const struct option *entry = parser->list; entry->name && !optopt; entry++)
        matches += begins_as(entry, argument);
    return (matches > 1 ? refuse_ambiguous : refuse_unknown)(parser, argument, error);
}

/* Sets NAME's target to VALUE from getopt_long; APART: it was a separate argument. */
static int apply(const struct name *name, const char *value, bool apart, struct sl_error *error) {
    char allowed[256];
    if (sl_option_takes_value(name->option)) sl_option_allowed(name->option, allowed, sizeof allowed);
    if (name->option->plain && !value) value = name->negated ? "no" : name->option->plain;
    if (apart && (!value || !strncmp(value, "--", 2))) {
        return sl_error_set(error, SL_BAD_INPUT, "%s: needs a value: %s", name->text, allowed);
    }
    if (!sl_option_read(name->option,
                        sl_option_takes_value(name->option) ? value
                        : name->negated                     ? "no"
                                                            : "yes",
                        name->target)) {
        sl_error_set(error, SL_BAD_INPUT, "%s: \"%.80s\" is not %s", name->text, value, allowed);
        return name->option->kind == SL_OPTION_CHOICE ? sl_option_suggest(name->option, value, error) : error->status;
    }
    return SL_OK;
}

static void note_given(struct sl_options *options, const struct sl_option *option) {
    for (int i = 0; i < options->givens; i++)
        if (options->given[i] == option) return;
    options->given[options->givens++] = option;
}

/* Returns the topic of --help: JOINED to it, or the next word if that is not an option. NULL: none. */
static const char *topic_at(const struct sl_arguments *arguments, const char *joined) {
    const char *const next = optind < arguments->count ? arguments->word[optind] : "-";
    return joined ? joined : *next == '-' ? NULL : next;
}

/* Walks the arguments, and sets targets if SET. Returns HELP or VERSION if one was given, otherwise -1. Continues
 * after a mistake, because the engine may still follow: it decides which of several processes reports the mistake. */
static int walk(const struct parser *parser, struct sl_options *options, bool set, struct sl_error *error) {
    const struct sl_arguments *arguments = &options->arguments;
    int found;
    struct sl_error first = {0};
    optind = 0; /* restarts getopt_long */
    opterr = 0;
    for (int at = 1; (found = getopt_long(arguments->count, arguments->word, "-:h", parser->list, NULL)) != -1;
         at = optind) {
        const char *const argument = arguments->word[at]; /* its value may be the next argument */
        const int position = found == 'h' ? HELP : (found == ':' ? optopt : found) - FIRST_VALUE;
        if (position == HELP) options->topic = topic_at(arguments, found == 'h' ? NULL : optarg);
        if (position >= HELP) return position;
        if (!set) {
            if (found == '?' || found == ':') break;
        } else if (found == '?') {
            refuse(parser, argument, error);
        } else if (found == 1) {
            sl_operands_take(parser->operands, optarg, error);
        } else {
            const char *const value = found == ':' ? NULL : optarg;
            apply(&parser->name[position], value, found == ':' || value == arguments->word[optind - 1], error);
            note_given(options, parser->name[position].option);
        }
        if (error->status && !first.status) first = *error;
    }
    for (int i = optind; set && i < arguments->count && !error->status; i++)
        sl_operands_take(parser->operands, arguments->word[i], error);
    if (first.status) *error = first;
    return -1;
}

/* Returns the use of an option's file. A model or a tokenizer named in a checkpoint may be missing until it is
 * opened. */
static enum sl_path_use path_use(const struct sl_options *options, const struct sl_option *option) {
    const bool gone = option->path == SL_PATH_PUBLISHED && !sl_option_given(options, option->name);
    return gone ? SL_PATH_DATA : option->path;
}

static int check_paths(const struct parser *parser, const struct sl_options *options, struct sl_error *error) {
    const struct sl_arguments *arguments = &options->arguments;
    const struct sl_operands *operands = parser->operands;
    struct sl_path *path = calloc((size_t)(parser->count + arguments->files + operands->count) + 1, sizeof *path);
    if (!path) return sl_error_set(error, SL_FAILED, "out of memory");
    int count = 0;
    for (int i = 0; i < arguments->files; i++)
        path[count++] = (struct sl_path){"@FILE", arguments->file[i], SL_PATH_ARGUMENTS};
    for (int i = 0; i < parser->count; i++) {
        const struct name *name = &parser->name[i];
        if (name->option->path == SL_PATH_NONE) continue;
        const char *named = sl_option_path(name->option, *(const char **)name->target);
        if (!named) continue;
        path[count++] = (struct sl_path){name->text, named, path_use(options, name->option)};
    }
    for (int i = 0; i < operands->count; i++) {
        const char *word = operands->word[i];
        path[count++] =
            (struct sl_path){operands->name, operands->path_of ? operands->path_of(word) : word, operands->path};
    }
    const int status = sl_paths_check(path, count, error);
    free(path);
    return status;
}

static struct sl_launch_engine engine_of(const struct sl_options *options) {
    const char *const name = options->engine ? *options->engine : NULL;
    return (struct sl_launch_engine){.name = name, .asked = name != sl_default_engine};
}

int sl_options_parse(struct sl_options *options, int argc, char **argv) {
    struct sl_error error = {0};
    snprintf(options->called, sizeof options->called, "%s%s", sl_program_prefix(), options->program);
    options->program = options->called;
    sl_streams_begin();
    if (sl_arguments_expand(&options->arguments, argc, argv, &error)) return sl_options_report(options, &error);
    struct parser parser;
    collect_names(&parser, options);
    if (rename_aliases(&parser, &options->arguments, &error) || join_values(&parser, &options->arguments, &error))
        return sl_options_report(options, &error);
    /* If --help comes before any mistake, it is answered while the defaults are still in place. */
    const int question = walk(&parser, options, false, &error);
    if (question == HELP) sl_help_print(options, &error);
    if (question == VERSION) printf("%s (shardloop) %s\n", options->program, SL_VERSION);
    options->answered = question >= 0;
    if (options->answered) {
        if (!error.status) sl_stdout_finish(&error);
    } else {
        walk(&parser, options, true, &error);
        if (!error.status) sl_cpu_level_check(&error);
        if (!error.status) sl_launch_check(options->program, engine_of(options), &error);
        if (!error.status) check_paths(&parser, options, &error);
        if (!error.status) sl_adopt(options, &error);
        if (!error.status && *options->adoption.file) check_paths(&parser, options, &error);
        if (!error.status) sl_output_format(options, &error);
        if (!error.status && options->settle) options->settle(options);
        if (!error.status) sl_options_check_read(options, &error);
        if (!error.status) sl_options_sign(&options->signature, options->section, &error);
    }
    return error.status ? sl_options_report(options, &error) : SL_OK;
}

void sl_options_free(struct sl_options *options) {
    free(options->operands.word);
    free(options->waits);
    sl_arguments_free(&options->arguments);
    sl_signature_free(&options->signature);
    sl_store_free(&options->adoption.notes);
}

int sl_options_report(const struct sl_options *options, const struct sl_error *error) {
    sl_launch_report(options->program, engine_of(options), error);
    return error->status;
}

int sl_options_finish(const struct sl_options *options, int status, struct sl_error *error) {
    if (status == SL_OK) {
        status = sl_stdout_finish(error);
        if (status) sl_options_report(options, error);
        return status;
    }
    fflush(stdout);
    sl_options_report(options, error); /* first: a launcher that ends the run may not read a long object any more */
    sl_common_print_waits(options, error);
    sl_stdout_finish(NULL);
    return status;
}
