/* cards.c - prints notes of checkpoints, the most wanted first. */
#include "drivers/tools/diff/cards.h"

#include <stdlib.h>
#include <string.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/metrics.h"
#include "layers/formats/stores/safetensors.h"

static const char *note(const struct sl_store *file, const char *key) {
    const char *text = sl_store_note(file, key);
    return text ? text : "-";
}

/* Counts the parameters, and the bytes of all tensors; the optimizer's state has names of its own and is not counted
 * as parameters. */
static void count(const struct sl_store *file, double *parameters, double *bytes) {
    *parameters = *bytes = 0;
    for (int i = 0; i < file->count; i++) {
        const struct sl_tensor *tensor = &file->tensor[i];
        const double elements = (double)sl_array_elements(&tensor->array);
        *bytes += elements * (double)sl_dtype_size(tensor->array.dtype);
        if (strncmp(tensor->name, "optimizer.", 10) != 0) *parameters += elements;
    }
}

static int map(struct sl_store *file, const char *path, struct sl_error *error) {
    int version;
    SL_TRY(sl_checkpoint_map(file, path, &version, error));
    if (version) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.200s: no checkpoint, but values from elsewhere", path);
}

/* ---- a directory ---- */

static int list_one(const char *path, bool json, struct sl_table *table, const struct sl_output *output,
                    struct sl_error *error) {
    struct sl_store file = {0};
    double parameters, bytes;
    int status = map(&file, path, error);
    if (status == SL_OK) count(&file, &parameters, &bytes);
    if (status == SL_OK && json) {
        status = sl_json_print(output->stream, output->name,
                               json_pack("{ss sI sI sI ss ss ss ss}", "file", path, "step",
                                         (json_int_t)sl_checkpoint_step_of(path), "bytes", (json_int_t)bytes,
                                         "parameters", (json_int_t)parameters, "model", note(&file, "config.model"),
                                         "mesh", note(&file, "option.mesh"), "batch", note(&file, "option.batch"),
                                         "data", note(&file, "option.data")),
                               error);
    } else if (status == SL_OK) {
        sl_table_cell(table, "%lld", (long long)sl_checkpoint_step_of(path));
        sl_table_cell(table, "%.1f", bytes / 1e6);
        sl_table_cell(table, "%.0f", parameters);
        sl_table_cell(table, "%s", note(&file, "config.model"));
        sl_table_cell(table, "%s", note(&file, "option.mesh"));
        sl_table_cell(table, "%s", note(&file, "option.batch"));
    }
    sl_store_free(&file);
    return status;
}

int sl_cards_list(const char *directory, bool json, const struct sl_output *output, struct sl_error *error) {
    static const struct sl_column column[] = {{"step", 8},   {"MB", 10},   {"parameters", 12},
                                              {"model", 12}, {"mesh", 24}, {"batch", 8}};
    char path[SL_MAX_PATH], older[SL_MAX_PATH];
    struct sl_table table = {0};
    SL_TRY(sl_checkpoint_latest(directory, path, NULL, error));
    if (!json) sl_table_begin(&table, output->stream, sizeof column / sizeof *column, column);
    SL_TRY(list_one(path, json, &table, output, error));
    while (sl_checkpoint_older(path, older)) {
        memcpy(path, older, sizeof path);
        SL_TRY(list_one(path, json, &table, output, error));
    }
    return SL_OK;
}

/* ---- a model's card ---- */

/* Prints the notes with keys that begin with PREFIX, under TITLE. */
static void print_notes(FILE *stream, const struct sl_store *file, const char *title, const char *prefix) {
    const size_t length = strlen(prefix);
    fprintf(stream, "\n## %s\n\n", title);
    for (int i = 0; i < file->notes; i++)
        if (!strncmp(file->note[i].key, prefix, length))
            fprintf(stream, "- %s: %s\n", file->note[i].key + length, file->note[i].text);
}

static json_t *json_notes(const struct sl_store *file, const char *prefix) {
    json_t *object = json_object();
    for (int i = 0; i < file->notes; i++)
        if (!strncmp(file->note[i].key, prefix, strlen(prefix)))
            json_object_set_new(object, file->note[i].key + strlen(prefix), json_string(file->note[i].text));
    return object;
}

static int describe(const struct sl_store *file, const char *path, bool json, const struct sl_output *output,
                    struct sl_error *error) {
    double parameters, bytes;
    FILE *stream = output->stream;
    count(file, &parameters, &bytes);
    if (json)
        return sl_json_print(stream, output->name,
                             json_pack("{ss ss sI ss ss ss ss so so}", "file", path, "model",
                                       note(file, "config.model"), "parameters", (json_int_t)parameters, "steps",
                                       note(file, "step"), "samples", note(file, "samples"), "optimizer",
                                       note(file, "optimizer"), "data", note(file, "data"), "sizes",
                                       json_notes(file, "config."), "options", json_notes(file, "option.")),
                             error);
    fprintf(stream, "# %s, %.0f parameters\n\n%s\n", note(file, "config.model"), parameters, path);
    fprintf(stream, "\n- steps: %s, of %s samples in all\n- optimizer: %s\n- seed: %s\n- data: %s\n",
            note(file, "step"), note(file, "samples"), note(file, "optimizer"), note(file, "seed"), note(file, "data"));
    print_notes(stream, file, "What it is", "config.");
    print_notes(stream, file, "How it was trained", "option.");
    return SL_OK;
}

int sl_cards_describe(const char *path, bool json, const struct sl_output *output, struct sl_error *error) {
    char found[SL_MAX_PATH];
    struct sl_store file = {0};
    SL_TRY(sl_checkpoints_find(path, true, found, error));
    int status = map(&file, found, error);
    if (status == SL_OK) status = describe(&file, found, json, output, error);
    sl_store_free(&file);
    return status;
}
