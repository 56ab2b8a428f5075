/* print.c - prints the first difference of two journals, for people and as JSON. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "drivers/tools/diff/journals.h"

enum { NAME = 300 };

static const struct {
    const char *key, *one, *many;
} kinds[SL_JOURNAL_KINDS] = {
    [SL_JOURNAL_ROWS] = {"rows", "rows that a stage gives", "arrays of rows"},
    [SL_JOURNAL_LOSS] = {"loss", "the loss", "losses"},
    [SL_JOURNAL_ROW_GRADIENT] = {"row gradients", "gradients of rows that a stage is given", "gradients of rows"},
    [SL_JOURNAL_GRADIENT] = {"gradient", "the gradient", "gradients"},
    [SL_JOURNAL_NORM] = {"norm", "the norm of all gradients", "norms"},
    [SL_JOURNAL_VALUE] = {"value", "the values after the step", "values"},
};

/* ---- the differing array ---- */

static bool is_of_tensor(const struct sl_journal_entry *entry) {
    return entry->kind == SL_JOURNAL_GRADIENT || entry->kind == SL_JOURNAL_VALUE;
}

static bool is_of_rows(const struct sl_journal_entry *entry) {
    return entry->kind == SL_JOURNAL_ROWS || entry->kind == SL_JOURNAL_ROW_GRADIENT;
}

/* Writes the module of a parameter: NAME without its last part; "" if there is none. */
static void module_of(const char *name, char module[NAME]) {
    snprintf(module, NAME, "%s", name);
    char *dot = strrchr(module, '.');
    *(dot ? dot : module) = 0;
}

/* Writes the tensor's name without its shape; returns false if the array is not a tensor. */
static bool tensor_of(const struct sl_journals *js, char name[NAME]) {
    if (!is_of_tensor(&js->at)) return false;
    snprintf(name, NAME, "%s", js->name[js->at.place].name);
    *strrchr(name, ' ') = 0;
    return true;
}

/* Writes the modules that may cause the difference: the tensor's module, or the modules of the stage, "FIRST to
 * LAST"; returns false if unknown. */
static bool modules_of(const struct sl_journals *js, char modules[2 * NAME + 8]) {
    char name[NAME], first[NAME] = "", last[NAME] = "";
    *modules = 0;
    if (tensor_of(js, name)) {
        module_of(name, modules);
        return *modules;
    }
    if (!is_of_rows(&js->at) || js->at.coordinate < 0) return false;
    const struct sl_journal_file *file = &js->side[0].file[js->at.coordinate];
    for (int i = 0; i < file->tensors; i++) {
        if (file->tensor[i].stage != js->at.stage) continue;
        module_of(file->tensor[i].name, last);
        if (!*last)
            snprintf(last, sizeof last, "%.*s", NAME - 1, file->tensor[i].name); /* it belongs to the same module */
        if (!*first) memcpy(first, last, sizeof first);
    }
    if (*first)
        snprintf(modules, 2 * NAME + 8, "%s%s%s", first, strcmp(first, last) ? " to " : "",
                 strcmp(first, last) ? last : "");
    return *modules;
}

/* Writes "the rows that stage 0 gives to stage 1". */
static void describe(const struct sl_journals *js, char *text, size_t size) {
    const struct sl_journal_entry *at = &js->at;
    const struct sl_journal_file *file = &js->side[0].file[at->coordinate > 0 ? at->coordinate : 0];
    char name[NAME];
    if (tensor_of(js, name))
        snprintf(text, size, at->kind == SL_JOURNAL_GRADIENT ? "the gradient of %s" : "the values of %s", name);
    else if (!is_of_rows(at))
        snprintf(text, size, "%s", kinds[at->kind].one);
    else if (at->coordinate < 0 && at->kind == SL_JOURNAL_ROWS && at->place == INT_MAX)
        snprintf(text, size, "the rows that the last layer gives");
    else if (at->coordinate < 0)
        snprintf(text, size, "%s %slayer %d",
                 at->kind == SL_JOURNAL_ROWS ? "the rows that are given to"
                                             : "the gradient of the rows that are given to",
                 abs(at->place) % 2 ? "the second half of " : "", abs(at->place) / 2);
    else if (at->kind == SL_JOURNAL_ROW_GRADIENT)
        snprintf(text, size, "the gradient of the rows that stage %d gives to stage %d", at->stage, at->stage - 1);
    else if (at->stage == file->stages - 1)
        snprintf(text, size, "the rows that stage %d gives to the loss", at->stage);
    else
        snprintf(text, size, "the rows that stage %d gives to stage %d", at->stage, at->stage + 1);
}

/* Returns the next differing note of the first coordinates, in A's order, then those only in B. */
static const char *next_note(const struct sl_journals *js, void **at, int *side, const char *note[2]) {
    json_t *notes[2];
    for (int s = 0; s < 2; s++) notes[s] = json_object_get(js->side[s].file[0].head, "notes");
    for (; *side < 2; ++*side, *at = NULL) {
        json_t *own = notes[*side];
        for (*at = *at ? json_object_iter_next(own, *at) : json_object_iter(own); *at;
             *at = json_object_iter_next(own, *at)) {
            const char *key = json_object_iter_key(*at);
            for (int s = 0; s < 2; s++) note[s] = json_string_value(json_object_get(notes[s], key));
            if (*side == 1 && note[0]) continue;
            if (!note[0] || !note[1] || strcmp(note[0], note[1]) != 0) return key;
        }
    }
    return NULL;
}

static const char *verdict_of(const struct sl_journals *js) {
    if (!js->parted) return "equal";
    if (!js->reasons) return "different";
    return sl_journals_agree(js) ? "not comparable bit for bit, and the losses agree"
                                 : "not comparable bit for bit, and the losses differ";
}

/* ---- text ---- */

static void print_side(FILE *stream, const struct sl_journal_side *side, char name) {
    const json_t *machine = json_object_get(side->file[0].head, "machine");
    const char *engine = json_string_value(json_object_get(machine, "engine"));
    fprintf(stream, "%c: %s, %s, %d stages, engine %s\n", name, side->directory, side->file[0].mesh,
            side->file[0].stages, engine ? engine : "unknown");
}

static void print_place(FILE *stream, const struct sl_journals *js) {
    const struct sl_journal_entry *at = &js->at;
    char text[2 * NAME + 8], where[SL_JOURNAL_TEXT];
    describe(js, text, sizeof text);
    fprintf(stream, "first difference: %s step %" PRId64,
            js->step < 0 || (at->kind == SL_JOURNAL_VALUE) ? "after" : "in", js->step);
    if (js->step < 0) fprintf(stream, ", which is before the first");
    if (at->microbatch >= 0) fprintf(stream, ", microbatch %d", at->microbatch);
    fprintf(stream, ": %s\n", text);
    if (at->coordinate >= 0 && (is_of_rows(at) || is_of_tensor(at)))
        fprintf(stream, "at coordinate %s, stage %d\n",
                sl_mesh_describe(&js->side[0].mesh, at->coordinate, where, sizeof where), at->stage);
    if (modules_of(js, text)) fprintf(stream, "%s %s\n", is_of_rows(at) ? "made by" : "of", text);
}

static void print_counts(FILE *stream, const struct sl_journals *js) {
    int told = 0;
    for (int kind = 1; kind < SL_JOURNAL_KINDS; kind++) {
        if (!js->compared[kind] || kind == SL_JOURNAL_LOSS || kind == SL_JOURNAL_NORM) continue;
        fprintf(stream, "%s%d of %d %s", told++ ? ", " : "in that step differ ", js->differ[kind], js->compared[kind],
                kinds[kind].many);
    }
    if (told) fputc('\n', stream);
    if (!isnan(js->loss[0]) && !isnan(js->loss[1]))
        fprintf(stream, "its loss: %.9g | %.9g\n", js->loss[0], js->loss[1]);
}

void sl_journals_print(FILE *stream, const struct sl_journals *js) {
    void *at = NULL;
    int side = 0;
    const char *note[2];
    for (int s = 0; s < 2; s++) print_side(stream, &js->side[s], (char)('A' + s));
    for (const char *key; (key = next_note(js, &at, &side, note));) {
        const bool option = !strncmp(key, "option.", 7);
        fprintf(stream, "%s%s: %s | %s\n", option ? "--" : "", option ? key + 7 : key, note[0] ? note[0] : "not noted",
                note[1] ? note[1] : "not noted");
    }
    fputc('\n', stream);
    if (js->parted) print_place(stream, js);
    if (js->parted) print_counts(stream, js);
    if (js->largest > 0)
        fprintf(stream, "losses: %.3g apart at most, relatively, in step %" PRId64 "\n", js->largest, js->largest_at);
    if (js->parted && js->reasons) {
        fprintf(stream, "such runs need not have the same bits:\n");
        for (int r = 0; r < js->reasons; r++) fprintf(stream, "  %s\n", js->reason[r]);
    }
    if (js->first < 0 && js->last < 0)
        fprintf(stream, "only the values before the first step are in both: %s\n", verdict_of(js));
    else
        fprintf(stream, "steps %" PRId64 " to %" PRId64 ": %s\n", js->first < 0 ? 0 : js->first, js->last,
                verdict_of(js));
}

/* ---- JSON ---- */

static json_t *number_or_null(long long number) { return number < 0 ? json_null() : json_integer(number); }

static void add_place(json_t *object, const struct sl_journals *js) {
    const struct sl_journal_entry *at = &js->at;
    char tensor[NAME], modules[2 * NAME + 8];
    const bool parted = js->parted, has_tensor = parted && tensor_of(js, tensor);
    const bool has_modules = parted && modules_of(js, modules);
    json_t *differ = json_object();
    json_object_set_new(object, "step", parted ? json_integer(js->step) : json_null());
    json_object_set_new(object, "what", parted ? json_string(kinds[at->kind].key) : json_null());
    json_object_set_new(object, "microbatch", parted ? number_or_null(at->microbatch) : json_null());
    json_object_set_new(object, "stage", parted ? number_or_null(at->stage) : json_null());
    json_object_set_new(object, "module", has_modules ? json_string(modules) : json_null());
    json_object_set_new(object, "tensor", has_tensor ? json_string(tensor) : json_null());
    json_object_set_new(object, "coordinate", parted ? number_or_null(at->coordinate) : json_null());
    for (int kind = 1; parted && kind < SL_JOURNAL_KINDS; kind++)
        if (js->compared[kind])
            json_object_set_new(differ, kinds[kind].key, json_pack("[i, i]", js->differ[kind], js->compared[kind]));
    json_object_set_new(object, "differ", differ);
}

json_t *sl_journals_json(const struct sl_journals *js) {
    json_t *reasons = json_array(), *notes = json_object();
    void *at = NULL;
    int side = 0;
    const char *note[2];
    for (int r = 0; r < js->reasons; r++) json_array_append_new(reasons, json_string(js->reason[r]));
    for (const char *key; (key = next_note(js, &at, &side, note));)
        json_object_set_new(notes, key, json_pack("[s?, s?]", note[0], note[1]));
    json_t *object = json_pack("{s:s, s:s, s:b, s:b, s:b, s:o, s:I, s:I, s:I}", "a", js->side[0].directory, "b",
                               js->side[1].directory, "equal", !js->parted, "agree", sl_journals_agree(js),
                               "comparable", !js->reasons, "reasons", reasons, "steps", (json_int_t)js->steps, "first",
                               (json_int_t)js->first, "last", (json_int_t)js->last);
    if (!object) return NULL;
    add_place(object, js);
    json_object_set_new(object, "loss_a", js->parted ? sl_json_real(js->loss[0]) : json_null());
    json_object_set_new(object, "loss_b", js->parted ? sl_json_real(js->loss[1]) : json_null());
    json_object_set_new(object, "loss_difference", sl_json_real(js->largest));
    json_object_set_new(object, "notes", notes);
    return object;
}
