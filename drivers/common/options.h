/* options.h - command lines as tables: one entry an option, one struct that they fill in.
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
 * What the struct holds beforehand are the defaults, and --help prints them. */
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
    SL_OPTION_SEED,     /* uint64_t, all of them */
    SL_OPTION_REAL,     /* double from min to max, finite; a NAN beforehand is no default */
    SL_OPTION_TEXT,     /* const char *, not empty; lives until sl_options_free */
    SL_OPTION_CHOICE,   /* int: position in the list `value` */
    SL_OPTION_LIST,     /* int: a bit for each word of the list `value`, of which some are given with commas between */
};

enum { SL_MOST_OPTIONS = 192 }; /* of a driver, a switch counting twice */

/* A name that an option takes, as --help explains it. */
struct sl_option_word {
    const char *name; /* NULL: there are no more */
    const char *help;
    const char *source; /* printed in parentheses; may be NULL */
};

struct sl_option {
    const char *name; /* without "--"; NULL ends a table */
    enum sl_option_kind kind;
    size_t target; /* offset in the section's struct */
    double min, max;
    bool below;        /* REAL: max itself is not allowed */
    const char *value; /* CHOICE and LIST: "single|plain|looping"; TEXT: what --help calls it, "FILE" */
    const char *plain; /* CHOICE: what --name alone and "yes" stand for, while --no-name is "no", the first in the list;
                          NULL: a choice must be named */
    const char *help;
    struct sl_option_word (*word)(int i); /* TEXT: the names that it takes, which shells complete; NULL: not known */
    enum sl_path_use path;                /* TEXT: what becomes of the file that it names */
    const char *zero;                     /* INTEGER: a word for 0, beside numbers from min; NULL: none */
    const char *prefix;                   /* TEXT: it names a file only where it begins so, behind that */
    const char *alias;                    /* another name, taken as a whole word only; NULL: none */
    enum sl_option_keep keep;
    const char *read; /* by which choices it is read, such as "experts", "!chat", "attention=gqa&rope-dim",
                         "sample-every|@generate"; NULL: by all. Given and not read it is refused. NAME: that option has
                         a value other than no, none and 0; NAME=A/B: one of these values, patterns as a shell has them;
                         @NAME: this is the command of that name; ! before one of these: it is not so */
    const char
        *unless; /* "steps|mesh": not taken from a checkpoint where one of these is given another value than there */
};

/* Sections stand in one order in all drivers, and so do their options; tests/docs/manual.sh compares them. */
struct sl_option_section {
    const char *title;             /* in --help; NULL: these are taken from a checkpoint, and cannot be given */
    const struct sl_option *table; /* NULL ends the sections */
    void *target;
};

/* A list of sections that lasts as long as the block it is written in: SL_SECTIONS({title, table, target}, ...). */
#define SL_SECTIONS(...)                                                                                               \
    (const struct sl_option_section[]) { __VA_ARGS__, {0} }

struct sl_option_words {
    const char *title;                    /* in --help; NULL: there is no such list */
    struct sl_option_word (*word)(int i); /* the I-th, from 0 */
};

/* --help of a driver that has more options than a screen shows. */
struct sl_brief {
    const char *options;         /* the names of those that most runs need, with blanks between; NULL: it tells all */
    const char *const *examples; /* what comes behind the program's name; NULL after the last */
};

struct sl_options {
    const char *program, *summary;           /* sl_options_parse completes the program's name: sl_program_prefix */
    const struct sl_option_section *section; /* up to one without a table */
    struct sl_operands operands;
    struct sl_option_words words;    /* after the sections */
    struct sl_option_words notation; /* after those: what signs in the output mean */
    struct sl_brief brief;
    const char *const *engine;                        /* its name as the options say; NULL: there is no such option */
    void *own;                                        /* the driver's */
    void (*settle)(const struct sl_options *options); /* fills in defaults that follow from other options, before it is
                                                         checked which are read; NULL: there are none */
    bool answered;     /* set once --help or --version has been printed: nothing is left to do */
    const char *topic; /* behind --help: "all", or a section; NULL: nothing */
    struct sl_arguments arguments;
    int givens;
    const struct sl_option *given[SL_MOST_OPTIONS]; /* on the command line, each once */
    enum sl_option_keep params;                     /* --params takes these and the kinds before them */
    struct sl_adoption adoption;
    struct sl_signature signature; /* of all options, once they are parsed; more may be added */
    struct sl_waits *waits;        /* who waits for whom, where that is told in JSON; NULL: it is not */
    char called[64];               /* `program` is here, once they are parsed */
};

/* Fills the sections' structs in from ARGV, a later option overriding an earlier one; @FILE stands for the words in
 * FILE. All files that it names are checked (sl_paths_check). SL_BAD_INPUT: one line on stderr has said what was wrong
 * and what is allowed. */
int sl_options_parse(struct sl_options *options, int argc, char **argv);

/* Reads TEXT as the command line does, and a flag or switch from "yes" or "no". False, and nothing
 * changes, where it is not allowed. */
bool sl_option_read(const struct sl_option *option, const char *text, void *target);
/* Where in TEXT, an option's value, the name of a file begins; NULL: it names none. */
const char *sl_option_path(const struct sl_option *option, const char *text);

/* Frees the arguments, and so the texts in the sections' structs, and the signature. */
void sl_options_free(struct sl_options *options);

/* Prints --help in the form that is asked for (drivers/command_line/help_format.h). The usual text is what `brief`
 * says, or, by `topic`, all or one section. SL_BAD_INPUT where there is no such section. */
int sl_help_print(const struct sl_options *options, struct sl_error *error);

/* Prints "PROGRAM: MESSAGE" on stderr, in one of several processes, and returns the error's status, for main to return.
 */
int sl_options_report(const struct sl_options *options, const struct sl_error *error);
/* The last thing that main does: flushes stdout, after a failure, too, and reports what has failed. STATUS is that of
 * what the driver did; returns the exit status. */
int sl_options_finish(const struct sl_options *options, int status, struct sl_error *error);

/* What every driver that runs on a mesh understands. */
struct sl_common_options {
    const char *mesh, *engine;
    double timeout;
    bool checked, show_placement, json;
    uint64_t seed;
    int steps;
    struct sl_options *command; /* the whole command line, for processes to compare and checkpoints to tell */
};

extern const struct sl_option sl_mesh_table[];   /* mesh and engine */
extern const struct sl_option sl_common_table[]; /* and what those that train have in common */
extern const struct sl_option sl_query_table[];  /* those that run a model and do not train it */
extern const struct sl_option sl_print_table[];  /* how a command that neither trains nor draws numbers tells things */

/* The notebook's mesh, and the engine local. By their addresses a driver knows that the user gave none. */
extern const char sl_default_mesh[], sl_default_engine[];

/* The notebook's mesh and seed on the local engine; the number of steps is the driver's. */
struct sl_common_options sl_common_defaults(int steps);

/* Prints, for --json, the last object of a run that has ended with VERDICT because somebody waited in vain: who waits
 * for whom. Nothing where it has ended otherwise. */
void sl_common_print_waits(const struct sl_options *options, const struct sl_error *verdict);

/* Reads the mesh and opens the engine that COMMON names. What another process prints (sl_speaks) goes nowhere here. */
int sl_common_open(const struct sl_common_options *common, struct sl_mesh *mesh, struct sl_engine *engine,
                   struct sl_error *error);

#endif
