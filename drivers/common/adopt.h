/* adopt.h - options stored in a checkpoint: a run that resumes from it takes them over, so users need not repeat
 * them.
 *
 * A run writes each option with a `keep` other than SL_NOT_KEPT as a note "option.NAME", with its value in
 * command-line syntax, besides "program" and, if it has read data, "data" (drivers/common/identity.h). In a
 * checkpoint without such notes the settings are used: the model's sizes, the seed and the optimizer.
 * docs/checkpoints/format.md describes them. */
#ifndef SL_DRIVERS_COMMON_ADOPT_H
#define SL_DRIVERS_COMMON_ADOPT_H

#include "layers/formats/files/draft.h"
#include "layers/formats/stores/store.h"

struct sl_options;

/* The role of an option in a run. It decides how the option's value in a checkpoint is used by a later run. */
enum sl_option_keep {
    SL_NOT_KEPT,
    SL_KEPT_SIZE,  /* a size of the model: taken over with its values; another value is refused */
    SL_KEPT_MODEL, /* of the model: taken over with its values; another value is allowed */
    SL_KEPT_DATA,  /* training data: taken over for an evaluation, too */
    SL_KEPT_RUN,   /* training: only for --resume, as all that follow; another value is reported */
    SL_KEPT_FREE,  /* layouts, which change results within rounding, and output: another value is allowed */
    SL_KEPT_STATE, /* identity of the run's state: another value is refused */
};

/* Options taken over from a checkpoint. Zero-initialize. */
struct sl_adoption {
    bool resumes;           /* by --resume, not by --params */
    char file[SL_MAX_PATH]; /* path of the checkpoint; "": none was given, or it has no notes */
    struct sl_store notes;  /* its notes, which own the texts of options taken over */
    char overrides[512];    /* "--lr 0.01 overrides 0.001": changes against the resumed run, for a message */
};

/* Call it after the command line was read. Takes over the options in the checkpoint of --resume or --params, except
 * options given on the command line. Returns SL_BAD_INPUT if the checkpoint cannot be read, a given option
 * contradicts it, or one of its texts is not a value of its option. */
int sl_adopt(struct sl_options *options, struct sl_error *error);
/* As sl_adopt, from the notes in options->adoption, which were read from its file. */
int sl_adopt_notes(struct sl_options *options, struct sl_error *error);

/* Writes notes to STORE: the program and the current values of all kept options, unless STORE already has the note.
 * Files have absolute paths. */
int sl_describe_options(const struct sl_options *options, struct sl_store *store, struct sl_error *error);
/* Writes one note, before sl_describe_options: VALUE is a default that the run has determined. */
int sl_describe_option(struct sl_store *store, const char *name, const char *value, struct sl_error *error);

#endif
