/* adopt.h - a run knows itself: a checkpoint tells the options of its run, and whoever goes on with it takes them over,
 * so that nobody has to give them again.
 *
 * A run notes each option that is kept as "option.NAME", with its value as a command line would give it, beside
 * "program" and, where it has read some, "data" (drivers/common/identity.h). A checkpoint without such notes tells the
 * settings that it has: the model's sizes, the seed and the optimizer. docs/checkpoints_format.md describes them. */
#ifndef SL_DRIVERS_COMMON_ADOPT_H
#define SL_DRIVERS_COMMON_ADOPT_H

#include "layers/storage/draft.h"
#include "layers/storage/store.h"

struct sl_options;

/* What an option is to a run, and so what becomes of it where another run begins with the checkpoint. */
enum sl_option_keep {
    SL_NOT_KEPT,
    SL_KEPT_SIZE,  /* the model's sizes: taken over with its values; another value is refused */
    SL_KEPT_MODEL, /* the model's: taken over with its values; may be another one */
    SL_KEPT_DATA,  /* what it was trained on: also for an evaluation */
    SL_KEPT_RUN,   /* how it was trained: only for --resume, as all that follow; a line tells of another value */
    SL_KEPT_FREE,  /* layouts, which change results within rounding, and what is shown: may be another one */
    SL_KEPT_STATE, /* what the state of the run belongs to: another value is refused */
};

/* What was taken over. Zero-initialize. */
struct sl_adoption {
    bool resumes;           /* by --resume, not by --params */
    char file[SL_MAX_PATH]; /* the checkpoint; "": there was none, or nothing in it */
    struct sl_store notes;  /* its notes; texts of options lie here */
    char overrides[512];    /* "--lr 0.01 overrides 0.001": what --resume goes on with in place of the run's own */
};

/* After the command line was read: takes over what the checkpoint of --resume or --params tells, except options that
 * were given. SL_BAD_INPUT where the checkpoint cannot be read, an option contradicts it, or one of its texts is not a
 * value of its option. */
int sl_adopt(struct sl_options *options, struct sl_error *error);
/* The same from the notes in options->adoption, which came from its file. */
int sl_adopt_notes(struct sl_options *options, struct sl_error *error);

/* Notes in STORE the program and all options that are kept, with the values that they have now, unless STORE has a note
 * of them. Files are named by their absolute paths. */
int sl_describe_options(const struct sl_options *options, struct sl_store *store, struct sl_error *error);
/* Notes before that a VALUE which the run has found for a default. */
int sl_describe_option(struct sl_store *store, const char *name, const char *value, struct sl_error *error);

/* The value that option NAME has now, in TEXT [SL_OPTION_TEXT_SIZE] or where it lies, as sl_option_print tells it;
 * NULL: there is no such option. */
const char *sl_option_value(const struct sl_options *options, const char *name, char *text);
/* The file that option NAME gives; NULL: none. */
const char *sl_option_file(const struct sl_options *options, const char *name);
bool sl_option_given(const struct sl_options *options, const char *name);

#endif
