/* options.h - command lines as tables: one row per option, one struct for their values.
 *
 *     struct config { int layers; const char *metrics; } config = {.layers = 8};
 *     static const struct sl_option table[] = {
 *         {"layers", SL_OPTION_INTEGER, offsetof(struct config, layers), .min = 1, .max = 512, .help = "MLP blocks"},
 *         {"metrics", SL_OPTION_TEXT, offsetof(struct config, metrics), .value = "FILE", .path = SL_PATH_STREAM,
 *          .help = "write JSON lines"},
 *         {0}};
 *     struct sl_options options = {.program = "looping_pipeline", .summary = "Trains the classifier.",
 *                                  .section = SL_SECTIONS({"Model", table, &config})};
 *     const int status = sl_options_parse(&options, argc, argv);
 *     if (status || options.answered) return status;
 *
 * The struct's initial values are the defaults; --help prints them. */
#ifndef SL_DRIVERS_COMMON_OPTIONS_H
#define SL_DRIVERS_COMMON_OPTIONS_H

#include "drivers/command_line/arguments.h"
#include "drivers/command_line/operands.h"
#include "drivers/command_line/paths.h"
#include "drivers/common/adopt.h"
#include "spmd/signature.h"
#include "spmd/spmd.h"

enum sl_option_kind {
    SL_OPTION_FLAG = 1, /* bool: --name sets it */
    SL_OPTION_SWITCH,   /* bool: --name sets it, --no-name clears it */
    SL_OPTION_INTEGER,  /* int from min to max */
    SL_OPTION_SEED,     /* uint64_t, any value */
    SL_OPTION_REAL,     /* double from min to max, finite; NAN as the initial value: no default */
    SL_OPTION_TEXT,     /* const char *, not empty; valid until sl_options_free */
    SL_OPTION_CHOICE,   /* int: position in the list `value` */
    SL_OPTION_LIST,     /* int: one bit per word of the list `value`; words are given with commas between */
};

enum { SL_MOST_OPTIONS = 192 }; /* per driver; a switch counts twice */

/* An allowed name of an option, as --help explains it. */
struct sl_option_word {
    const char *name; /* NULL ends the words */
    const char *help;
    const char *source; /* printed in parentheses; may be NULL */
};

struct sl_option {
    const char *name; /* without "--"; NULL ends a table */
    enum sl_option_kind kind;
    size_t target; /* offset in the section's struct */
    double min, max;
    bool below;        /* REAL: max itself is not allowed */
    const char *value; /* CHOICE and LIST: "single|plain|looping"; TEXT: name of the value in --help, "FILE" */
    const char *plain; /* CHOICE: the value for --name alone and for "yes"; --no-name is then "no", the first in the
                        * list; NULL: a choice must be named */
    const char *help;
    struct sl_option_word (*word)(int i); /* TEXT: its allowed names, for completion; NULL: not known */
    enum sl_path_use path;                /* TEXT: use of the named file */
    const char *zero;                     /* INTEGER: a word for 0, besides numbers from min; NULL: none */
    const char *prefix;                   /* TEXT: the value names a file only if it begins with this prefix; the
                                           * name follows it */
    const char *alias;                    /* another name, accepted only in full; NULL: none */
    enum sl_option_keep keep;
    const char *read; /* condition under which the option is read, such as "experts", "!chat",
                       * "attention=gqa&rope-dim", "sample-every|@generate"; NULL: always. If given but not read, it
                       * is refused. NAME: option NAME has a value other than no, none and 0; NAME=A/B: one of these
                       * values, as shell patterns; mesh=+AXIS: the mesh has several coordinates along AXIS; @NAME: the
                       * command is NAME; ! negates */
    const char
        *unless; /* "steps|mesh": not taken from a checkpoint if one of these is given with another value than there */
};

/* Sections and options have the same order in all drivers; tests/docs/manual.sh compares them. */
struct sl_option_section {
    const char *title;             /* in --help; NULL: its options come from a checkpoint and cannot be given */
    const struct sl_option *table; /* NULL ends the sections */
    void *target;
};

/* A list of sections, valid in the enclosing block: SL_SECTIONS({title, table, target}, ...). */
#define SL_SECTIONS(...)                                                                                               \
    (const struct sl_option_section[]) { __VA_ARGS__, {0} }

struct sl_option_words {
    const char *title;                    /* in --help; NULL: no such list */
    struct sl_option_word (*word)(int i); /* returns word I, from 0 */
};

/* Short --help of a driver whose options do not fit on a screen. */
struct sl_brief {
    const char *options;         /* names of the options most runs need, separated by blanks; NULL: --help prints all */
    const char *const *examples; /* arguments after the program's name; NULL after the last */
};

struct sl_options {
    const char *program, *summary;           /* sl_options_parse adds the prefix to the program's name:
                                              * sl_program_prefix */
    const struct sl_option_section *section; /* the list ends with a section without a table */
    struct sl_operands operands;
    struct sl_option_words words;    /* printed after the sections */
    struct sl_option_words notation; /* printed after `words`: meaning of signs in the output */
    struct sl_brief brief;
    const char *const *engine;                        /* engine's name as given by an option; NULL: no such option */
    void *own;                                        /* the driver's */
    void (*settle)(const struct sl_options *options); /* fills in defaults that depend on other options, before
                                                       * unread options are refused; NULL: none */
    bool answered;     /* set after --help or --version was printed: nothing is left to do */
    const char *topic; /* argument of --help: "all", or a section; NULL: none */
    struct sl_arguments arguments;
    int givens;
    const struct sl_option *given[SL_MOST_OPTIONS]; /* options given on the command line, each once */
    enum sl_option_keep params;                     /* --params takes over these and the kinds before them */
    struct sl_adoption adoption;
    struct sl_signature signature; /* of all options, after parsing; callers may add more */
    struct sl_waits *waits;        /* waiting coordinates, if reported in JSON; NULL: not reported */
    char called[64];               /* storage of `program` after parsing */
};

/* Fills in the sections' structs from ARGV; later options override earlier ones; @FILE is replaced by the words in
 * FILE. Checks all files named on the command line (sl_paths_check). Returns SL_BAD_INPUT after one line on stderr
 * with the mistake and the allowed values. */
int sl_options_parse(struct sl_options *options, int argc, char **argv);

/* Reads TEXT in command-line syntax; a flag or switch from "yes" or "no". Returns false and changes nothing if TEXT
 * is not allowed. */
bool sl_option_read(const struct sl_option *option, const char *text, void *target);
enum { SL_OPTION_TEXT_SIZE = 200 };
/* Returns the value at TARGET, in TEXT or as the stored string; an empty value is "none", "nan" or "". */
const char *sl_option_print(const struct sl_option *option, const void *target, char text[SL_OPTION_TEXT_SIZE]);
/* Returns the start of the file name in TEXT, an option's value; NULL: it names no file. */
const char *sl_option_path(const struct sl_option *option, const char *text);

/* Returns the current value of option NAME as sl_option_print does, in TEXT [SL_OPTION_TEXT_SIZE] or as a stored
 * string; NULL: no such option. */
const char *sl_option_value(const struct sl_options *options, const char *name, char *text);
/* Returns the file that option NAME gives; NULL: none. */
const char *sl_option_file(const struct sl_options *options, const char *name);
bool sl_option_given(const struct sl_options *options, const char *name);

/* Frees the signature and the arguments, including the texts in the sections' structs. */
void sl_options_free(struct sl_options *options);

/* Prints --help in the selected form (drivers/command_line/help_format.h). The usual text form prints `brief`, or,
 * by `topic`, all options or one section. Returns SL_BAD_INPUT if there is no such section. */
int sl_help_print(const struct sl_options *options, struct sl_error *error);

/* Prints "PROGRAM: MESSAGE" on stderr, in only one of several processes, and returns the error's status, for main to
 * return. */
int sl_options_report(const struct sl_options *options, const struct sl_error *error);
/* Call it last in main: flushes stdout, also after a failure, and reports the error. STATUS is the driver's result;
 * returns the exit status. */
int sl_options_finish(const struct sl_options *options, int status, struct sl_error *error);

/* Options common to all drivers that run on a mesh. */
struct sl_common_options {
    const char *mesh, *engine;
    double timeout;
    bool checked, show_placement, json;
    uint64_t seed;
    int steps;
    struct sl_options *command; /* the whole command line, to compare processes and to write into checkpoints */
};

extern const struct sl_option sl_mesh_table[];   /* mesh and engine */
extern const struct sl_option sl_common_table[]; /* and options common to training drivers */
extern const struct sl_option sl_query_table[];  /* for drivers that run a model but do not train it */
extern const struct sl_option sl_print_table[];  /* output options of a command that neither trains nor draws random
                                                  * numbers */

/* The notebook's mesh, and the engine local. A driver compares addresses to see if the user gave one. */
extern const char sl_default_mesh[], sl_default_engine[];

/* Returns the notebook's mesh and seed on the local engine, and the driver's number of STEPS. */
struct sl_common_options sl_common_defaults(int steps);

/* If the run has ended with VERDICT because a coordinate waited in vain, prints the last object for --json: the
 * waiting coordinates and their peers. Otherwise prints nothing. */
void sl_common_print_waits(const struct sl_options *options, const struct sl_error *verdict);

/* Reads the mesh and opens the engine of COMMON. In processes that do not speak (sl_speaks), stdout is discarded. */
int sl_common_open(const struct sl_common_options *common, struct sl_mesh *mesh, struct sl_engine *engine,
                   struct sl_error *error);

#endif
