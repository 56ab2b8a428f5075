/* adopt.c - stores options in a checkpoint's notes, and takes them over. */
#include "drivers/common/adopt.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/identity.h"
#include "drivers/common/option_values.h"
#include "layers/records/snapshot/protection_folder.h"

static const char program_key[] = "program";
enum { KEY = 160 };

/* ---- writing notes ---- */

/* Writes the program's name without its prefix or folder: "transformer" for "transformer train". */
static void name_program(const struct sl_options *options, char name[KEY]) {
    const char *program = options->program + (options->program == options->called ? strlen(sl_program_prefix()) : 0);
    snprintf(name, KEY, "%.*s", (int)strcspn(program, " "), program);
}

/* Returns the value as written in a checkpoint, with an absolute path so that it holds in any directory; the caller
 * frees it. NULL: no value, or no memory; the latter sets *FAILED. */
static char *print_kept(const struct sl_option *option, const void *target, bool *failed) {
    char text[SL_OPTION_TEXT_SIZE];
    const bool none = option->kind == SL_OPTION_TEXT ? !*(const char *const *)target
                      : option->kind == SL_OPTION_CHOICE
                          ? *(const int *)target < 0
                          : option->kind == SL_OPTION_REAL && *(const double *)target != *(const double *)target;
    if (none) return NULL;
    const char *value = sl_option_print(option, target, text), *path = sl_option_path(option, value);
    char *absolute = path ? realpath(path, NULL) : NULL, *kept = NULL;
    if (!absolute)
        kept = strdup(value);
    else if (asprintf(&kept, "%.*s%s", (int)(path - value), value, absolute) < 0)
        kept = NULL;
    free(absolute);
    *failed |= !kept;
    return kept;
}

int sl_describe_option(struct sl_store *store, const char *name, const char *value, struct sl_error *error) {
    char key[KEY];
    snprintf(key, sizeof key, "option.%s", name);
    if (sl_store_note(store, key)) return SL_OK;
    /* Notes are UTF-8, but a file's name may have other bytes. It is then stored as "", which is not a value of any
     * option, so a resumed run asks the user for it. */
    json_t *utf8 = json_string(value);
    const int status = sl_store_set_note(store, key, utf8 ? value : "");
    json_decref(utf8);
    return status ? sl_error_set(error, SL_FAILED, "no memory to describe the run") : SL_OK;
}

int sl_describe_options(const struct sl_options *options, struct sl_store *store, struct sl_error *error) {
    char program[KEY];
    struct sl_option_place at = {0};
    bool failed = false;
    name_program(options, program);
    failed = sl_store_set_note(store, program_key, program) != SL_OK;
    for (struct sl_option_entry entry; (entry = sl_option_next(options, &at)).option;) {
        if (!entry.option->keep) continue;
        char *value = print_kept(entry.option, entry.target, &failed);
        const int status = value ? sl_describe_option(store, entry.option->name, value, error) : SL_OK;
        free(value);
        SL_TRY(status);
    }
    return failed ? sl_error_set(error, SL_FAILED, "no memory to describe the run") : SL_OK;
}

/* ---- taking options over ---- */

/* Returns the stored text of OPTION; NULL: none. ITSELF: it was stored as an option. Otherwise it is a setting,
 * which may not be a valid value: a model without experts has the setting of 0 experts. */
static const char *find_text(const struct sl_store *notes, const struct sl_option *option, bool *itself) {
    char key[KEY];
    snprintf(key, sizeof key, "option.%s", option->name);
    const char *text = sl_store_note(notes, key);
    *itself = text;
    if (text) return text;
    snprintf(key, sizeof key, "config.%s", option->name);
    if (option->keep <= SL_KEPT_MODEL) return sl_store_note(notes, key);
    return option->keep == SL_KEPT_STATE ? sl_store_note(notes, option->name) : NULL;
}

static int refuse_text(const struct sl_adoption *adoption, const char *name, const char *text, struct sl_error *error) {
    if (*text)
        return sl_error_set(error, SL_BAD_INPUT, "%s: --%s is \"%.80s\" in the checkpoint, which is none of its values",
                            adoption->file, name, text);
    return sl_error_set(error, SL_BAD_INPUT,
                        "%s: --%s of the run is not in the checkpoint, for it was not UTF-8: give it", adoption->file,
                        name);
}

/* Whether option NAME was given with another value than the checkpoint's. */
static bool is_changed(const struct sl_options *options, const char *name) {
    const struct sl_option_entry entry = sl_option_find(options, name);
    bool itself, failed = false;
    if (!entry.option || !sl_option_given(options, name)) return false;
    const char *there = find_text(&options->adoption.notes, entry.option, &itself);
    char *here = print_kept(entry.option, entry.target, &failed);
    const bool same = here && there && !strcmp(here, there);
    free(here);
    return !same;
}

/* Whether one of the options NAMES, "steps|mesh", was changed. */
static bool one_changed(const struct sl_options *options, const char *names) {
    char name[KEY];
    for (; names && *names; names += strspn(names, "|")) {
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (is_changed(options, name)) return true;
        names += length;
    }
    return false;
}

static int take(struct sl_options *options, const struct sl_option_entry *entry, struct sl_error *error) {
    const struct sl_option *option = entry->option;
    bool itself;
    const char *text = find_text(&options->adoption.notes, option, &itself);
    if (!text || sl_option_given(options, option->name) || one_changed(options, option->unless)) return SL_OK;
    if (sl_option_read(option, text, entry->target)) return SL_OK;
    return itself ? refuse_text(&options->adoption, option->name, text, error) : SL_OK;
}

/* Whether the learning rate depends on the run's number of steps. */
static bool rate_falls(const struct sl_options *options) {
    char text[SL_OPTION_TEXT_SIZE];
    const struct sl_option_entry rate = sl_option_find(options, "lr-schedule");
    return rate.option && !strcmp(sl_option_print(rate.option, rate.target, text), "cosine");
}

/* Whether a changed OPTION is reported. A run with more steps or epochs is the same run unless its learning rate
 * depends on their number. */
static bool is_told(const struct sl_options *options, const struct sl_option *option) {
    if (!options->adoption.resumes || option->keep == SL_KEPT_FREE) return false;
    const bool length = !strcmp(option->name, "steps") || !strcmp(option->name, "epochs");
    return !length || rate_falls(options);
}

/* Compares an option given by the user with the checkpoint: another value is refused or reported. */
static int compare(struct sl_options *options, const struct sl_option_entry *entry, struct sl_error *error) {
    struct sl_adoption *adoption = &options->adoption;
    const struct sl_option *option = entry->option;
    bool itself, failed = false;
    const char *there = find_text(&adoption->notes, option, &itself);
    char *here = print_kept(option, entry->target, &failed);
    const size_t used = strlen(adoption->overrides);
    if (failed) return sl_error_set(error, SL_FAILED, "no memory to compare --%s", option->name);
    const bool refused = itself && (option->keep == SL_KEPT_SIZE || option->keep == SL_KEPT_STATE);
    if (here && (!there || strcmp(here, there) != 0)) {
        if (there && refused)
            sl_error_set(error, SL_BAD_INPUT, "%s: %s is %.80s in the checkpoint, and %.80s here", adoption->file,
                         option->name, there, here);
        else if (is_told(options, option) && (itself || sl_store_note(&adoption->notes, program_key)))
            snprintf(adoption->overrides + used, sizeof adoption->overrides - used, "%s--%s %s overrides %s",
                     used ? ", " : "", option->name, here, there && *there ? there : "what it was");
    }
    free(here);
    return error->status;
}

/* Whether the checkpoint is from this driver. Options of another driver's checkpoint are not taken over; the run
 * itself refuses it. */
static bool is_ours(const struct sl_options *options) {
    const char *program = sl_store_note(&options->adoption.notes, program_key);
    char name[KEY];
    name_program(options, name);
    return !program || !strcmp(program, name);
}

int sl_adopt_notes(struct sl_options *options, struct sl_error *error) {
    const enum sl_option_keep most = options->adoption.resumes ? SL_KEPT_STATE
                                     : options->params         ? options->params
                                                               : SL_KEPT_MODEL;
    struct sl_option_entry entry;
    if (!is_ours(options)) return SL_OK;
    for (struct sl_option_place at = {0}; (entry = sl_option_next(options, &at)).option;)
        if (entry.option->keep && entry.option->keep <= most) SL_TRY(take(options, &entry, error));
    for (struct sl_option_place at = {0}; (entry = sl_option_next(options, &at)).option;)
        if (entry.option->keep && entry.option->keep <= most && sl_option_given(options, entry.option->name))
            SL_TRY(compare(options, &entry, error));
    return SL_OK;
}

/* Copies the checkpoint's notes, without its data. */
static int read_notes(struct sl_adoption *adoption, struct sl_error *error) {
    struct sl_store file = {0};
    int version;
    int status = sl_checkpoint_map(&file, adoption->file, &version, error);
    for (int i = 0; i < file.notes && status == SL_OK && version; i++)
        if (sl_store_set_note(&adoption->notes, file.note[i].key, file.note[i].text))
            status = sl_error_set(error, SL_FAILED, "%s: no memory for its notes", adoption->file);
    if (status == SL_OK && !version) *adoption->file = 0; /* not a checkpoint: values from another source */
    sl_store_free(&file);
    return status;
}

int sl_adopt(struct sl_options *options, struct sl_error *error) {
    struct sl_adoption *adoption = &options->adoption;
    const char *resumed = sl_option_file(options, "resume"),
               *path = resumed ? resumed : sl_option_file(options, "params");
    const char *save = sl_option_file(options, "save");
    char notes[SL_MAX_PATH];
    if (!path) return SL_OK;
    adoption->resumes = resumed;
    if (resumed && save && sl_protection_is_elsewhere(resumed, save, notes)) path = notes;
    SL_TRY(sl_checkpoints_find(path, false, adoption->file, error));
    SL_TRY(read_notes(adoption, error));
    return *adoption->file ? sl_adopt_notes(options, error) : SL_OK;
}
