/* sides.c - a run's journal: the files of all coordinates, and their entries of a step. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/diff/journals.h"

/* ---- files ---- */

/* Makes room for one more file. */
static int take_file(struct sl_journal_side *side, struct sl_error *error) {
    const size_t count = (size_t)side->files + 1;
    struct sl_journal_file *file = realloc(side->file, count * sizeof *file);
    if (file) side->file = file;
    int **number = realloc(side->number, count * sizeof *number);
    if (number) side->number = number;
    if (!file || !number) return sl_error_set(error, SL_FAILED, "no memory to compare");
    file[side->files] = (struct sl_journal_file){0};
    number[side->files++] = NULL;
    return SL_OK;
}

static int open_files(struct sl_journal_side *side, struct sl_error *error) {
    char path[SL_MAX_PATH];
    side->mesh.size = 1; /* until the first file is read */
    for (int c = 0; c < side->mesh.size; c++) {
        SL_TRY(take_file(side, error));
        struct sl_journal_file *file = &side->file[c];
        SL_TRY(sl_journal_name(side->directory, c, path, error));
        SL_TRY(sl_journal_file_open(file, path, error));
        if (c == 0 && sl_mesh_parse(&side->mesh, file->mesh, NULL))
            return sl_error_set(error, SL_BAD_INPUT, "%s: not a journal's file: its mesh is \"%.80s\"", path,
                                file->mesh);
        if (file->coordinate != c || strcmp(file->mesh, side->file[0].mesh) != 0)
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: coordinate %d of the mesh %.80s, where coordinate %d of %.80s is looked for", path,
                                file->coordinate, file->mesh, c, side->file[0].mesh);
    }
    return SL_OK;
}

/* ---- tensors of both journals ---- */

static size_t text_length(const struct sl_journals *js) {
    enum { SHAPE = SL_MAX_DIMS * 21 + 4 };
    size_t length = 1;
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < js->side[s].mesh.size; c++)
            for (int i = 0; i < js->side[s].file[c].tensors; i++)
                length += strlen(js->side[s].file[c].tensor[i].name) + SHAPE;
    return length;
}

static size_t print_tensor(const struct sl_journal_tensor *tensor, char *text) {
    size_t used = (size_t)sprintf(text, "%s [", tensor->name);
    for (int d = 0; d < tensor->dims; d++)
        used += (size_t)sprintf(text + used, "%s%zu", d ? "," : "", tensor->shape[d]);
    return used + (size_t)sprintf(text + used, "]");
}

/* A tensor of a file, while the list is made. */
struct mention {
    const char *name;
    int side, coordinate, tensor, stage;
};

static int compare_names(const void *a, const void *b) {
    const struct mention *one = a, *other = b;
    const int order = strcmp(one->name, other->name);
    if (order) return order;
    if (one->side != other->side) return one->side - other->side;
    return one->coordinate - other->coordinate;
}

/* Orders names by their stages and their positions in the coordinates' lists: the model's order. */
static int compare_stages(const void *a, const void *b) {
    const struct mention *one = a, *other = b;
    if (one->side != other->side) return one->side - other->side;
    if (one->stage != other->stage) return one->stage - other->stage;
    if (one->tensor != other->tensor) return one->tensor - other->tensor;
    return one->coordinate - other->coordinate;
}

static int list_mentions(struct sl_journals *js, struct mention *mention) {
    char *text = js->text;
    int count = 0;
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < js->side[s].mesh.size; c++)
            for (int i = 0; i < js->side[s].file[c].tensors; i++) {
                const struct sl_journal_tensor *tensor = &js->side[s].file[c].tensor[i];
                mention[count++] = (struct mention){text, s, c, i, tensor->stage};
                text += print_tensor(tensor, text) + 1;
            }
    return count;
}

/* Gives all mentions of a name one number: the rank of its first mention in the order of stages. */
static void number_names(struct sl_journals *js, struct mention *sorted, const struct mention *first, int count,
                         int firsts) {
    for (int n = 0; n < firsts; n++) {
        js->name[n] = (struct sl_journal_name){.name = first[n].name, .stage = first[n].stage};
        struct mention key = {.name = first[n].name, .side = -1};
        int low = 0, high = count;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (compare_names(&sorted[middle], &key) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        for (int i = low; i < count && !strcmp(sorted[i].name, first[n].name); i++) {
            js->side[sorted[i].side].number[sorted[i].coordinate][sorted[i].tensor] = n;
            js->name[n].in[sorted[i].side] = true;
        }
    }
    js->names = firsts;
}

static int list_names(struct sl_journals *js, struct sl_error *error) {
    size_t all = 1;
    bool memory = true;
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < js->side[s].mesh.size; c++) {
            const size_t tensors = (size_t)js->side[s].file[c].tensors;
            all += tensors;
            js->side[s].number[c] = calloc(tensors + 1, sizeof *js->side[s].number[c]);
            memory = memory && js->side[s].number[c];
        }
    struct mention *sorted = calloc(all, sizeof *sorted), *first = calloc(all, sizeof *first);
    js->name = calloc(all, sizeof *js->name);
    js->text = malloc(text_length(js));
    if (memory && sorted && first && js->name && js->text) {
        const int count = list_mentions(js, sorted);
        int firsts = 0;
        qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
        for (int i = 0; i < count; i++)
            if (!i || strcmp(sorted[i].name, sorted[i - 1].name) != 0) first[firsts++] = sorted[i];
        qsort(first, (size_t)firsts, sizeof *first, compare_stages);
        number_names(js, sorted, first, count, firsts);
    }
    free(sorted);
    free(first);
    return js->names || all == 1 ? SL_OK : sl_error_set(error, SL_FAILED, "no memory to compare");
}

/* ---- how to compare ---- */

static bool same_part(const struct sl_journal_file *a, const struct sl_journal_file *b) {
    bool same = a->stages == b->stages && a->microbatches == b->microbatches && a->passes == b->passes &&
                a->rows == b->rows && a->tensors == b->tensors && !strcmp(a->mesh, b->mesh) &&
                !strcmp(a->data_axis, b->data_axis) && !strcmp(a->stage_axis, b->stage_axis);
    for (int s = 0; same && s < a->stages; s++) same = a->half[s] == b->half[s];
    for (int i = 0; same && i < a->tensors; i++)
        same = a->tensor[i].elements == b->tensor[i].elements && a->tensor[i].stage == b->tensor[i].stage;
    return same;
}

static bool are_aligned(const struct sl_journals *js) {
    const struct sl_journal_side *a = &js->side[0], *b = &js->side[1];
    bool same = a->mesh.size == b->mesh.size;
    for (int c = 0; same && c < a->mesh.size; c++) {
        same = same_part(&a->file[c], &b->file[c]);
        for (int i = 0; same && i < a->file[c].tensors; i++) same = a->number[c][i] == b->number[c][i];
    }
    return same;
}

static void add_reason(struct sl_journals *js, const char *what, const char *a, const char *b) {
    if (!strcmp(a, b) || js->reasons == SL_JOURNAL_REASONS) return;
    snprintf(js->reason[js->reasons++], SL_JOURNAL_TEXT, "%s: %.60s | %.60s", what, a, b);
}

static void add_numbers(struct sl_journals *js, const char *what, int a, int b) {
    char one[16], other[16];
    snprintf(one, sizeof one, "%d", a);
    snprintf(other, sizeof other, "%d", b);
    add_reason(js, what, one, other);
}

static const char *text_of(const struct sl_journal_file *file, const char *object, const char *key) {
    const char *text = json_string_value(json_object_get(json_object_get(file->head, object), key));
    return text ? text : "unknown";
}

/* Finds differences that change the order of sums, or the instructions. */
static void find_reasons(struct sl_journals *js) {
    static const char *const texts[][2] = {{"layout", "precision"}, {"layout", "storage"},   {"machine", "device"},
                                           {"machine", "cpu"},      {"machine", "products"}, {"notes", "option.fsdp"}};
    const struct sl_journal_side *a = &js->side[0], *b = &js->side[1];
    const struct sl_journal_file *one = &a->file[0], *other = &b->file[0];
    for (int s = 0; s < 2; s++) {
        const struct sl_mesh *mesh = &js->side[s].mesh;
        for (int x = 0; x < mesh->axes; x++) {
            const char *name = mesh->axis[x].name;
            if (!strcmp(name, js->side[s].file[0].stage_axis)) continue;
            if (s == 1 && sl_mesh_find_axis(&a->mesh, name) >= 0) continue;
            add_numbers(js, name, sl_mesh_axis_size(&a->mesh, name), sl_mesh_axis_size(&b->mesh, name));
        }
    }
    add_numbers(js, "rows of a microbatch", one->rows, other->rows);
    add_numbers(js, "microbatches", one->microbatches, other->microbatches);
    add_numbers(js, "passes", one->passes, other->passes);
    add_numbers(js, "microbatches in a weight gradient", one->wgrad_group, other->wgrad_group);
    add_numbers(js, "sums of a layer's gradient over data", one->layer_sums, other->layer_sums);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        add_reason(js, strncmp(texts[i][1], "option.", 7) ? texts[i][1] : texts[i][1] + 7,
                   text_of(one, texts[i][0], texts[i][1]), text_of(other, texts[i][0], texts[i][1]));
}

int sl_journals_open(struct sl_journals *js, const char *a, const char *b, struct sl_error *error) {
    int common = 0;
    js->side[0].directory = a;
    js->side[1].directory = b;
    for (int s = 0; s < 2; s++) SL_TRY(open_files(&js->side[s], error));
    SL_TRY(list_names(js, error));
    for (int n = 0; n < js->names; n++) common += js->name[n].in[0] && js->name[n].in[1];
    if (!common) return sl_error_set(error, SL_BAD_INPUT, "%.200s and %.200s have no tensor in common", a, b);
    js->aligned = are_aligned(js);
    const char *exact = text_of(&js->side[0].file[0], "notes", "option.exact");
    js->exact = strcmp(exact, "unknown") != 0 && !strcmp(exact, text_of(&js->side[1].file[0], "notes", "option.exact"));
    find_reasons(js);
    return SL_OK;
}

void sl_journals_close(struct sl_journals *js) {
    for (int s = 0; s < 2; s++) {
        struct sl_journal_side *side = &js->side[s];
        for (int c = 0; side->file && c < side->files; c++) sl_journal_file_close(&side->file[c]);
        for (int c = 0; side->number && c < side->files; c++) free(side->number[c]);
        free(side->file);
        free(side->number);
        free(side->entry);
    }
    free(js->name);
    free(js->text);
    *js = (struct sl_journals){0};
}

/* ---- a step ---- */

/* Whether coordinate C has distinct rows: coordinates along axes other than data and stages have the same rows. */
static bool stands_for_rows(const struct sl_journal_side *side, int c) {
    const struct sl_journal_file *file = &side->file[c];
    for (int a = 0; a < side->mesh.axes; a++) {
        const char *name = side->mesh.axis[a].name;
        if (!sl_axes_have(file->data_axis, name) && strcmp(name, file->stage_axis) != 0 &&
            sl_mesh_index(&side->mesh, c, a) > 0)
            return false;
    }
    return true;
}

/* Whether stages differ in their layers. */
static bool layers_ascend(const struct sl_journal_file *file) {
    for (int s = 1; s < file->stages; s++)
        if (file->half[s] <= file->half[s - 1]) return false;
    return true;
}

/* Places rows in the order of computation; in the backward later stages come first. */
static bool place_rows(const struct sl_journals *js, const struct sl_journal_side *side, int c,
                       struct sl_journal_entry *entry, int stage) {
    const struct sl_journal_file *file = &side->file[c];
    const bool backward = entry->kind == SL_JOURNAL_ROW_GRADIENT;
    if (js->aligned) {
        entry->place = backward ? -stage : stage;
        return true;
    }
    if (!stands_for_rows(side, c) || !layers_ascend(file)) return false;
    entry->microbatch = entry->coordinate = -1;
    if (backward)
        entry->place = -file->half[stage];
    else
        entry->place = stage == file->stages - 1 ? INT_MAX : file->half[stage + 1];
    return true;
}

/* Converts RECORD of coordinate C to an entry; returns false if it is not counted. */
static bool place_record(const struct sl_journals *js, const struct sl_journal_side *side, int c,
                         const struct sl_journal_record *record, struct sl_journal_entry *entry) {
    *entry = (struct sl_journal_entry){.kind = (int)record->kind,
                                       .microbatch = record->microbatch,
                                       .coordinate = c,
                                       .stage = record->item,
                                       .hash = record->hash};
    if (record->kind == SL_JOURNAL_LOSS || record->kind == SL_JOURNAL_NORM) {
        entry->stage = entry->microbatch = -1;
        return c == 0; /* all coordinates have the same */
    }
    if (record->kind != SL_JOURNAL_GRADIENT && record->kind != SL_JOURNAL_VALUE)
        return place_rows(js, side, c, entry, record->item);
    const int number = side->number[c][record->item];
    entry->place = number;
    entry->microbatch = -1;
    entry->stage = side->file[c].tensor[record->item].stage;
    if (!js->name[number].in[0] || !js->name[number].in[1]) return false;
    if (js->aligned) return true;
    entry->coordinate = entry->stage = -1;
    return side->file[c].tensor[record->item].counts;
}

static int compare_entries(const void *a, const void *b) {
    const struct sl_journal_entry *one = a, *other = b;
    if (one->kind != other->kind) return one->kind - other->kind;
    if (one->microbatch != other->microbatch) return one->microbatch - other->microbatch;
    if (one->place != other->place) return one->place < other->place ? -1 : 1;
    return one->coordinate - other->coordinate;
}

static int add_entry(struct sl_journal_side *side, const struct sl_journal_entry *entry, struct sl_error *error) {
    if (side->entries == side->capacity) {
        const int capacity = side->capacity ? 2 * side->capacity : 256;
        struct sl_journal_entry *grown = realloc(side->entry, (size_t)capacity * sizeof *grown);
        if (!grown || capacity > INT_MAX / 2) return sl_error_set(error, SL_FAILED, "no memory to compare a step");
        side->entry = grown;
        side->capacity = capacity;
    }
    side->entry[side->entries++] = *entry;
    return SL_OK;
}

/* Sums the hashes of equal entries. */
static void add_up(struct sl_journal_side *side) {
    int kept = 0;
    for (int i = 0; i < side->entries; i++) {
        if (kept && !compare_entries(&side->entry[kept - 1], &side->entry[i]))
            side->entry[kept - 1].hash += side->entry[i].hash;
        else
            side->entry[kept++] = side->entry[i];
    }
    side->entries = kept;
}

static int list_entries(struct sl_journals *js, struct sl_journal_side *side, struct sl_error *error) {
    side->entries = 0;
    side->loss = (double)NAN;
    for (int c = 0; c < side->mesh.size; c++) {
        const struct sl_journal_file *file = &side->file[c];
        for (int i = 0; i < file->count; i++) {
            struct sl_journal_entry entry;
            if (file->record[i].kind == SL_JOURNAL_LOSS) memcpy(&side->loss, &file->record[i].hash, sizeof side->loss);
            if (place_record(js, side, c, &file->record[i], &entry)) SL_TRY(add_entry(side, &entry, error));
        }
    }
    qsort(side->entry, (size_t)side->entries, sizeof *side->entry, compare_entries);
    add_up(side);
    return SL_OK;
}

/* Reads the next step. A killed run may have fewer steps at some coordinates: it ends with the last step common to
 * all. */
int sl_journal_side_next(struct sl_journals *js, struct sl_journal_side *side, struct sl_error *error) {
    side->more = true;
    for (int c = 0; c < side->mesh.size && side->more; c++) {
        struct sl_journal_file *file = &side->file[c];
        SL_TRY(sl_journal_next(file, &side->more, error));
        if (side->more && file->step != side->file[0].step)
            return sl_error_set(error, SL_BAD_INPUT, "%s: damaged: step %" PRId64 " follows, where %s has %" PRId64,
                                file->path, file->step, side->file[0].path, side->file[0].step);
    }
    if (!side->more) return SL_OK;
    side->step = side->file[0].step;
    return list_entries(js, side, error);
}
