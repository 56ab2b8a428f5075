/* diff.c - compares two checkpoints: differing values, settings and options, and their distances; or two journals:
 * the first difference of the runs. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/metrics.h"
#include "drivers/common/options.h"
#include "drivers/common/output.h"
#include "drivers/tools/diff/cards.h"
#include "drivers/tools/diff/journals.h"
#include "layers/formats/stores/safetensors.h"

enum { POSITION = 160 }; /* characters of a tensor's shape, or of an element's position */

struct config {
    bool all, json, list, describe;
};

#define FIELD(name) offsetof(struct config, name)

static const struct sl_option table[] = {
    {"list", SL_OPTION_FLAG, FIELD(list),
     .help = "in place of a comparison: the checkpoints in the directory A, a line each, with their steps, bytes, "
             "model and run"},
    {"describe", SL_OPTION_FLAG, FIELD(describe), .read = "!list",
     .help = "in place of a comparison: describe the model in checkpoint A, and its training"},
    {"all", SL_OPTION_FLAG, FIELD(all), .read = "!list&!describe", .help = "list the tensors that are equal, too"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "print one object of JSON"},
    {0},
};

/* A name, and its tensors in both files; NULL: none. */
struct row {
    struct sl_tensor *tensor[2];
    bool comparable; /* both have it, with the same shape */
    size_t differ;   /* number of values with different bits; with two dtypes, of different numbers */
    double largest, relative;
    size_t largest_at, relative_at;
    double norm; /* of the difference, relative to the larger of the two tensors' norms */
};

struct comparison {
    const struct config *config;
    struct sl_store store[2];
    int rows, equal, differing, alone[2];
    struct row *row;
    bool settings_differ; /* at least one setting that must not change in a resumed run differs */
};

/* ---- values ---- */

static bool is_equal(const struct row *row) {
    return row->comparable && !row->differ && row->tensor[0]->array.dtype == row->tensor[1]->array.dtype;
}

static bool same_shape(const struct sl_array *a, const struct sl_array *b) {
    return a->dims == b->dims && !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape);
}

/* Returns the distance: 0 for two NaNs, otherwise infinite instead of NaN. */
static double distance(double x, double y) {
    if (x == y || (isnan(x) && isnan(y))) return 0;
    return isfinite(x - y) ? fabs(x - y) : (double)INFINITY;
}

static void compare_values(struct row *row) {
    const struct sl_array *a = &row->tensor[0]->array, *b = &row->tensor[1]->array;
    const size_t count = sl_array_elements(a), size = sl_dtype_size(a->dtype);
    const bool same_dtype = a->dtype == b->dtype;
    const char *const bits[] = {a->data, b->data};
    double squares[] = {0, 0}, apart = 0;
    if (same_dtype && (!count || !memcmp(bits[0], bits[1], count * size))) return;
    for (size_t i = 0; i < count; i++) {
        const double x = sl_load_float(a->dtype, bits[0], i), y = sl_load_float(b->dtype, bits[1], i);
        const double difference = distance(x, y), larger = fmax(fabs(x), fabs(y));
        const double relative = isinf(difference) ? difference : larger > 0 ? difference / larger : 0;
        row->differ += same_dtype ? memcmp(bits[0] + i * size, bits[1] + i * size, size) != 0 : x != y;
        squares[0] += x * x;
        squares[1] += y * y;
        apart += difference * difference;
        if (difference > row->largest) row->largest = difference, row->largest_at = i;
        if (relative > row->relative) row->relative = relative, row->relative_at = i;
    }
    if (apart > 0) row->norm = isinf(apart) ? apart : sqrt(apart / fmax(squares[0], squares[1]));
}

/* Loads both tensors; a tensor stored in parts is assembled. */
static int hold_both(struct row *row, struct sl_error *error) {
    for (int side = 0; side < 2; side++)
        if (sl_tensor_hold(row->tensor[side]))
            return sl_error_set(error, SL_FAILED, "no memory to compare %s", row->tensor[side]->name);
    return SL_OK;
}

/* Both stores are sorted by name. */
static int compare_tensors(struct comparison *c, struct sl_error *error) {
    const struct sl_store *a = &c->store[0], *b = &c->store[1];
    c->row = calloc((size_t)a->count + (size_t)b->count + 1, sizeof *c->row);
    if (!c->row) return sl_error_set(error, SL_FAILED, "no memory to compare");
    for (int i = 0, j = 0; i < a->count || j < b->count;) {
        struct row *row = &c->row[c->rows++];
        const int order = i == a->count ? 1 : j == b->count ? -1 : strcmp(a->tensor[i].name, b->tensor[j].name);
        if (order <= 0) row->tensor[0] = &a->tensor[i++];
        if (order >= 0) row->tensor[1] = &b->tensor[j++];
        row->comparable = order == 0 && same_shape(&row->tensor[0]->array, &row->tensor[1]->array);
        if (row->comparable) SL_TRY(hold_both(row, error));
        if (row->comparable) compare_values(row);
        for (int side = 0; side < 2; side++)
            if (row->tensor[side]) sl_tensor_let_go(row->tensor[side]);
        c->equal += is_equal(row);
        c->differing += order == 0 && !is_equal(row);
        c->alone[0] += order < 0;
        c->alone[1] += order > 0;
        sl_store_relax(a);
        sl_store_relax(b);
    }
    return SL_OK;
}

/* ---- notes ---- */

/* Whether a note is a setting of the resumed run: with another value the same parameters would be trained
 * differently. */
static bool is_setting(const char *key) {
    static const char *const settings[] = {"step", "samples", "seed", "optimizer"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!strcmp(key, settings[i])) return true;
    return !strncmp(key, "config.", 7);
}

/* Whether a difference is reported. Checksums depend on all other data. A checkpoint of adapters alone has a
 * checksum for each value that it leaves out. */
static bool is_told(const struct sl_store *a, const struct sl_store *b, const char *key) {
    const char *mine = sl_store_note(a, key), *theirs = sl_store_note(b, key);
    if ((!mine || !theirs) && !strncmp(key, "base.", 5)) return false;
    return strcmp(key, "shardloop.xxh3") != 0 && (!mine || !theirs || strcmp(mine, theirs) != 0);
}

/* Returns the next differing note, in the order of A's notes, then notes only in B. *AT begins at 0. NULL: no more. */
static const char *next_note(const struct comparison *c, int *at) {
    const struct sl_store *a = &c->store[0], *b = &c->store[1];
    while (*at < a->notes + b->notes) {
        const int i = (*at)++;
        const char *key = i < a->notes ? a->note[i].key : b->note[i - a->notes].key;
        if ((i < a->notes || !sl_store_note(a, key)) && is_told(a, b, key)) return key;
    }
    return NULL;
}

static void compare_settings(struct comparison *c) {
    int at = 0;
    for (const char *key; (key = next_note(c, &at));) c->settings_differ |= is_setting(key);
}

static bool differs(const struct comparison *c) { return c->equal < c->rows || c->settings_differ; }

/* ---- text ---- */

static const char *print_shape(const struct sl_array *array, char text[POSITION]) {
    int used = snprintf(text, POSITION, "%s [", sl_dtypes[array->dtype].label);
    for (int d = 0; d < array->dims; d++)
        used += snprintf(text + used, POSITION - (size_t)used, "%s%zu", d ? "," : "", array->shape[d]);
    snprintf(text + used, POSITION - (size_t)used, "]");
    return text;
}

/* Computes the INDEX [dims] of element I. */
static void place_of(const struct sl_array *array, size_t i, size_t index[SL_MAX_DIMS]) {
    for (int d = array->dims - 1; d >= 0; d--) {
        index[d] = i % array->shape[d];
        i /= array->shape[d];
    }
}

static const char *print_place(const struct sl_array *array, double value, size_t i, char text[POSITION]) {
    size_t index[SL_MAX_DIMS];
    int used = snprintf(text, POSITION, "%.3g at [", value);
    place_of(array, i, index);
    for (int d = 0; d < array->dims; d++)
        used += snprintf(text + used, POSITION - (size_t)used, "%s%zu", d ? "," : "", index[d]);
    snprintf(text + used, POSITION - (size_t)used, "]");
    return text;
}

static void print_row(FILE *file, const struct row *row, int width) {
    const struct sl_array *array = &row->tensor[0]->array;
    char parts[40], largest[POSITION], relative[POSITION];
    if (!row->comparable || array->dtype != row->tensor[1]->array.dtype)
        fprintf(file, "%-*s  %s | %s\n", width, row->tensor[0]->name, print_shape(array, largest),
                print_shape(&row->tensor[1]->array, relative));
    if (!row->comparable) return;
    snprintf(parts, sizeof parts, "%zu of %zu", row->differ, sl_array_elements(array));
    fprintf(file, "%-*s  %-*s", width, row->tensor[0]->name, row->differ ? 19 : 0, parts);
    if (row->differ)
        fprintf(file, "  %-24s  %-24s  %.3g", print_place(array, row->largest, row->largest_at, largest),
                print_place(array, row->relative, row->relative_at, relative), row->norm);
    fputc('\n', file);
}

static void print_rows(FILE *file, const struct comparison *c) {
    int width = 6, listed = 0;
    for (int i = 0; i < c->rows; i++) {
        const struct row *row = &c->row[i];
        if (!row->tensor[0] || !row->tensor[1] || (is_equal(row) && !c->config->all)) continue;
        const int length = (int)strlen(row->tensor[0]->name);
        width = length > width ? length : width;
        listed++;
    }
    if (listed)
        fprintf(file, "\n%-*s  %-19s  %-24s  %-24s  %s\n", width, "tensor", "values that differ", "largest difference",
                "relative", "of the norm");
    for (int i = 0; listed && i < c->rows; i++) {
        const struct row *row = &c->row[i];
        if (row->tensor[0] && row->tensor[1] && (!is_equal(row) || c->config->all)) print_row(file, row, width);
    }
    for (int side = 0; side < 2; side++) {
        char shape[POSITION];
        if (c->alone[side]) fprintf(file, "\nonly in %c\n", "AB"[side]);
        for (int i = 0; i < c->rows; i++)
            if (!c->row[i].tensor[!side])
                fprintf(file, "%s  %s\n", c->row[i].tensor[side]->name,
                        print_shape(&c->row[i].tensor[side]->array, shape));
    }
}

static void print_notes(FILE *file, const struct comparison *c) {
    int at = 0;
    for (const char *key; (key = next_note(c, &at));) {
        const char *note[] = {sl_store_note(&c->store[0], key), sl_store_note(&c->store[1], key)};
        const bool option = !strncmp(key, "option.", 7);
        fprintf(file, "%s%s: %s | %s\n", option ? "--" : "", option ? key + 7 : key, note[0] ? note[0] : "not noted",
                note[1] ? note[1] : "not noted");
    }
}

static void print_text(FILE *file, const struct comparison *c) {
    for (int side = 0; side < 2; side++) {
        const struct sl_store *store = &c->store[side];
        const char *step = sl_store_note(store, "step");
        fprintf(file, "%c: %s%s%s\n", side ? 'B' : 'A', store->path, step ? ", step " : "", step ? step : "");
    }
    print_notes(file, c);
    print_rows(file, c);
    fprintf(file, "\n%d tensors are equal, %d differ, %d are only in A, %d only in B: %s\n", c->equal, c->differing,
            c->alone[0], c->alone[1], differs(c) ? "different" : "equal");
}

/* ---- JSON ---- */

static json_t *json_sizes(int dims, const size_t *size) {
    json_t *list = json_array();
    for (int d = 0; d < dims; d++) json_array_append_new(list, json_integer((json_int_t)size[d]));
    return list;
}

static json_t *json_tensor(const struct sl_tensor *tensor) {
    if (!tensor) return json_null();
    return json_pack("{s:s, s:o}", "dtype", sl_dtypes[tensor->array.dtype].label, "shape",
                     json_sizes(tensor->array.dims, tensor->array.shape));
}

static json_t *json_place(const struct sl_array *array, size_t i) {
    size_t index[SL_MAX_DIMS];
    place_of(array, i, index);
    return json_sizes(array->dims, index);
}

static json_t *json_row(const struct row *row) {
    const struct sl_tensor *tensor = row->tensor[0] ? row->tensor[0] : row->tensor[1];
    json_t *object = json_pack("{s:s, s:o, s:o, s:b}", "name", tensor->name, "a", json_tensor(row->tensor[0]), "b",
                               json_tensor(row->tensor[1]), "equal", is_equal(row));
    if (!row->comparable) return object;
    json_object_set_new(object, "values", json_integer((json_int_t)sl_array_elements(&tensor->array)));
    json_object_set_new(object, "differ", json_integer((json_int_t)row->differ));
    if (!row->differ) return object;
    json_object_set_new(object, "largest", sl_json_real(row->largest));
    json_object_set_new(object, "largest_at", json_place(&tensor->array, row->largest_at));
    json_object_set_new(object, "relative", sl_json_real(row->relative));
    json_object_set_new(object, "relative_at", json_place(&tensor->array, row->relative_at));
    json_object_set_new(object, "norm", sl_json_real(row->norm));
    return object;
}

static int print_json(FILE *file, const struct comparison *c, struct sl_error *error) {
    json_t *notes = json_object(), *tensors = json_array();
    int at = 0;
    for (const char *key; (key = next_note(c, &at));)
        json_object_set_new(notes, key,
                            json_pack("[s?, s?]", sl_store_note(&c->store[0], key), sl_store_note(&c->store[1], key)));
    for (int i = 0; i < c->rows; i++)
        if (!is_equal(&c->row[i]) || c->config->all) json_array_append_new(tensors, json_row(&c->row[i]));
    json_t *object =
        json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:o, s:o}", "a", c->store[0].path, "b", c->store[1].path,
                  "equal", !differs(c), "tensors_equal", c->equal, "tensors_differing", c->differing, "only_in_a",
                  c->alone[0], "only_in_b", c->alone[1], "notes", notes, "tensors", tensors);
    return sl_json_print(file, "stdout", object, error);
}

/* ---- the run ---- */

/* Compares journals. AGREE: whether the runs are the same. */
static int compare_journals(const struct config *config, const struct sl_operands *operands, bool *agree,
                            struct sl_error *error) {
    struct sl_journals journals = {0};
    struct sl_output output = {0};
    int status = sl_journals_open(&journals, operands->word[0], operands->word[1], error);
    if (status == SL_OK) status = sl_journals_compare(&journals, error);
    if (status == SL_OK) status = sl_output_open(&output, NULL, error);
    if (status == SL_OK && config->json)
        status = sl_json_print(output.stream, "stdout", sl_journals_json(&journals), error);
    else if (status == SL_OK)
        sl_journals_print(output.stream, &journals);
    status = sl_output_close(&output, status, error);
    *agree = sl_journals_agree(&journals);
    sl_journals_close(&journals);
    return status;
}

/* Checks the kinds of the operands; *JOURNALS: they are journals. */
static int check_operands(const struct sl_operands *operands, bool *journals, struct sl_error *error) {
    if (operands->count != 2)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d arguments: two checkpoints, or two journals, are compared, A and B (see --help)",
                            operands->count);
    const bool one = sl_journal_is_there(operands->word[0]), other = sl_journal_is_there(operands->word[1]);
    *journals = one && other;
    if (one == other) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.200s is a journal, and %.200s is none: two of a kind are compared",
                        operands->word[other], operands->word[one]);
}

/* Prints the description of one side. */
static int tell(const struct config *config, const struct sl_operands *operands, struct sl_error *error) {
    struct sl_output output = {0};
    if (operands->count != 1)
        return sl_error_set(error, SL_BAD_INPUT, "--%s: %d arguments: it is told of one (see --help)",
                            config->list ? "list" : "describe", operands->count);
    SL_TRY(sl_output_open(&output, NULL, error));
    const int status =
        (config->list ? sl_cards_list : sl_cards_describe)(operands->word[0], config->json, &output, error);
    return sl_output_close(&output, status, error);
}

static int run(struct comparison *c, const struct sl_operands *operands, struct sl_error *error) {
    struct sl_output output = {0};
    if (c->config->list || c->config->describe) return tell(c->config, operands, error);
    bool journals = false;
    SL_TRY(check_operands(operands, &journals, error));
    if (journals) {
        bool agree = false;
        if (c->config->all)
            return sl_error_set(error, SL_BAD_INPUT, "--all: is read only for checkpoints, whose tensors it lists");
        SL_TRY(compare_journals(c->config, operands, &agree, error));
        c->settings_differ = !agree;
        return SL_OK;
    }
    for (int side = 0; side < 2; side++) {
        SL_TRY(sl_checkpoints_map(&c->store[side], operands->word[side], true, error));
        SL_TRY(sl_safetensors_verify(&c->store[side], NULL, NULL, error));
    }
    compare_settings(c);
    SL_TRY(compare_tensors(c, error));
    SL_TRY(sl_output_open(&output, NULL, error));
    int status = SL_OK;
    if (c->config->json)
        status = print_json(output.stream, c, error);
    else
        print_text(output.stream, c);
    return sl_output_close(&output, status, error);
}

int main(int argc, char **argv) {
    struct config config = {0};
    struct sl_options options = {
        .program = "diff",
        .summary = "Compares two checkpoints, or two other safetensors files, such as gradients: which values, "
                   "settings and options differ, and by how much. The exit status is 1 if values or settings do. "
                   "Also compares two journals (directories of --journal): prints the first step in which the runs "
                   "differ, and the first value. The exit status is 1 if there is one.",
        .section = SL_SECTIONS({"Output", table, &config}),
        .operands = {.name = "CHECKPOINT",
                     .help = "two checkpoints A and B, or one with --list or --describe; a checkpoint is a file, or a "
                             "directory, whose latest checkpoint is taken; or two journals: their directories",
                     .path = SL_PATH_CHECKPOINT},
    };
    struct comparison comparison = {.config = &config};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, run(&comparison, &options.operands, &error), &error);
        if (status == SL_OK && differs(&comparison)) status = SL_CHECK_FAILED;
    }
    for (int side = 0; side < 2; side++) sl_store_free(&comparison.store[side]);
    free(comparison.row);
    sl_options_free(&options);
    return status;
}
