/* memory_report.c - gathers and prints planned and allocated memory. */
#include "drivers/memory/memory_report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/metrics.h"
#include "spmd/set.h"
#include "layers/training/exchange.h"
#include "spmd/device/device.h"
#include "spmd/base/hash.h"

/* ---- gathering ---- */

static bool same_process(const struct sl_memory *one, const struct sl_memory *other) {
    return one->host == other->host && one->process == other->process;
}

/* Whether a coordinate is the first of its process. */
static bool is_first(const struct sl_memory *memory, int coordinate) {
    for (int c = 0; c < coordinate; c++)
        if (same_process(&memory[c], &memory[coordinate])) return false;
    return true;
}

static uint64_t host_of_this(void) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return sl_hash(name, strlen(name));
}

/* If coordinates are processes, coordinate 0 sends the array to all others. */
static int share(struct sl_spmd *self, struct sl_memory *memory) {
    struct sl_group world;
    _Static_assert(sizeof *memory % sizeof(int32_t) == 0, "sent as words");
    SL_TRY(sl_gather_records(self, memory, sizeof *memory));
    if (!self->engine->table->apart) return SL_OK;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_broadcast(self, &world, SL_I32, memory, memory,
                        (size_t)self->mesh->size * sizeof *memory / sizeof(int32_t), 0));
    return sl_group_close(self, &world);
}

/* Whether this coordinate reads the limits: one per process. */
static bool looks(const struct sl_spmd *self) { return self->coordinate == 0 || self->engine->table->apart; }

int sl_memory_gather_planned(struct sl_spmd *self, const struct sl_budget *planned, struct sl_memory *memory) {
    struct sl_memory *own = &memory[self->coordinate];
    *own = (struct sl_memory){
        .planned = *planned, .device = self->device, .host = host_of_this(), .process = (uint64_t)getpid()};
    own->looked = looks(self) || sl_device.memory;
    if (own->looked) own->limits = sl_limits_now();
    return share(self, memory);
}

/* Returns host memory of the process's coordinates; a device's memory is not the process's. */
static double held_here(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate) {
    double held = 0;
    for (int c = 0; c < mesh->size && !sl_device.memory; c++)
        if (same_process(&memory[c], &memory[coordinate])) held += (double)sl_budget_total(&memory[c].held);
    return held;
}

int sl_memory_gather_held(struct sl_spmd *self, struct sl_memory *memory) {
    struct sl_memory *own = &memory[self->coordinate];
    own->held = self->held;
    SL_TRY(share(self, memory));
    if (looks(self)) own->resides = sl_process_memory_now(held_here(memory, self->mesh, self->coordinate));
    return share(self, memory);
}

double sl_memory_besides(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate) {
    int coordinates = 0;
    double planned = 0;
    for (int c = coordinate; c < mesh->size; c++) {
        if (!same_process(&memory[c], &memory[coordinate])) continue;
        coordinates++;
        planned += sl_device.memory ? 0 : (double)sl_budget_total(&memory[c].planned);
    }
    return is_first(memory, coordinate) ? sl_process_besides(coordinates, planned) : 0;
}

/* ---- tables ---- */

static const char *const title[SL_MEMORY_CATEGORIES] = {
    "parameters", "gradients", "optimizer", "kept",      "recomputed", "workspace",
    "hand-over",  "caches",    "batch",     "offloaded", "runtime",
};

/* Columns and rows of a table. */
struct budgets {
    const struct sl_memory *memory;
    bool held;
};

static const struct sl_budget *budget_of(const struct budgets *budgets, int c) {
    return budgets->held ? &budgets->memory[c].held : &budgets->memory[c].planned;
}

static bool same_budget(const void *arg, int a, int b) {
    return !memcmp(budget_of(arg, a), budget_of(arg, b), sizeof(struct sl_budget));
}

/* Prints the table, without categories that are 0 for all coordinates. */
static void print_table(FILE *stream, const struct sl_memory *memory, const struct sl_mesh *mesh, bool held) {
    struct sl_column column[SL_MEMORY_CATEGORIES + 2] = {
        {held ? "MB" : "MB a coordinate needs", mesh->axes > 2 ? -38 : -28}};
    struct sl_budget most = {0};
    struct sl_table table;
    int columns = 1;
    for (int c = 0; c < mesh->size; c++) sl_budget_join(&most, held ? &memory[c].held : &memory[c].planned);
    for (int i = 0; i < SL_MEMORY_CATEGORIES; i++)
        if (most.bytes[i]) column[columns++] = (struct sl_column){title[i], 10};
    column[columns++] = (struct sl_column){"total", 10};
    sl_table_begin(&table, stream, columns, column);
    uint64_t told[sl_set_words(mesh->size)];
    struct budgets budgets = {memory, held};
    memset(told, 0, sizeof told);
    for (int c = 0; c < mesh->size; c++) {
        const struct sl_budget *budget = budget_of(&budgets, c);
        char name[128];
        if (!sl_row_of(mesh, c, same_budget, &budgets, told, name, sizeof name)) continue;
        sl_table_cell(&table, "%s%s", held ? "held by " : "", name);
        for (int i = 0; i < SL_MEMORY_CATEGORIES; i++)
            if (most.bytes[i]) sl_table_cell(&table, "%.2f", (double)budget->bytes[i] / 1e6);
        sl_table_cell(&table, "%.2f", (double)sl_budget_total(budget) / 1e6);
    }
}

static double state_of(const struct sl_budget *budget) {
    return (double)(sl_budget_total(budget) - sl_budget_activations(budget));
}

static json_t *add_categories(json_t *object, const struct sl_budget *budget) {
    for (int i = 0; object && i < SL_MEMORY_CATEGORIES; i++)
        json_object_set_new(object, sl_memory_name[i], json_integer((json_int_t)budget->bytes[i]));
    if (object) json_object_set_new(object, "total", json_integer((json_int_t)sl_budget_total(budget)));
    return object;
}

int sl_memory_print(const struct sl_memory *memory, const struct sl_mesh *mesh, const char *run, bool json,
                    struct sl_error *error) {
    if (run && !json) printf("%s\n", run);
    if (!json) print_table(stdout, memory, mesh, false);
    for (int c = 0; c < mesh->size && json; c++) {
        const struct sl_budget *budget = &memory[c].planned;
        json_t *object = json_pack("{si sI sI sI}", "coordinate", c, "state_bytes", (json_int_t)state_of(budget),
                                   "activation_bytes", (json_int_t)sl_budget_activations(budget), "besides",
                                   (json_int_t)sl_memory_besides(memory, mesh, c));
        if (run && object) json_object_set_new(object, "run", json_string(run));
        SL_TRY(sl_json_print(stdout, "stdout", add_categories(object, budget), error));
    }
    return SL_OK;
}

/* ---- the end of a run ---- */

char *sl_budget_describe(const struct sl_budget *budget, char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < SL_MEMORY_CATEGORIES && used < size; i++) {
        if (budget->bytes[i] < 50000) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %.1f", used ? ", " : "", title[i],
                                 (double)budget->bytes[i] / 1e6);
    }
    return text;
}

static void print_process(FILE *stream, const struct sl_process_memory *process, double held) {
    fprintf(stream, "%.1f MB in RAM: coordinates %.1f", process->resident / 1e6, held / 1e6);
    for (int i = 0; i < SL_PROCESS_PARTS; i++)
        if (process->part[i] >= 5e4) fprintf(stream, ", %s %.1f", sl_process_part_name[i], process->part[i] / 1e6);
    fprintf(stream, ", rest %.1f\n", process->unexplained / 1e6);
}

static int fullest(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    int most = 0;
    for (int c = 1; c < mesh->size; c++)
        if (sl_budget_total(&memory[c].held) > sl_budget_total(&memory[most].held)) most = c;
    return most;
}

void sl_memory_print_end(FILE *stream, const struct sl_memory *memory, const struct sl_mesh *mesh, bool full) {
    const int most = fullest(memory, mesh);
    const struct sl_budget *held = &memory[most].held;
    char parts[SL_BUDGET_TEXT];
    if (!full) {
        fprintf(stream, "memory of %s: %.1f MB (%s)\n", mesh->size > 1 ? "the fullest coordinate" : "the coordinate",
                (double)sl_budget_total(held) / 1e6, sl_budget_describe(held, parts, sizeof parts));
        return;
    }
    print_table(stream, memory, mesh, true);
    for (int c = 0; c < mesh->size; c++) {
        if (!is_first(memory, c) || memory[c].resides.resident <= 0) continue;
        fprintf(stream, "process of coordinate %d: ", c);
        print_process(stream, &memory[c].resides, held_here(memory, mesh, c));
    }
}

/* ---- JSON ---- */

json_t *sl_memory_json(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    json_t *list = json_array();
    for (int c = 0; list && c < mesh->size; c++) {
        const struct sl_budget *budget = &memory[c].planned;
        const uint64_t *bytes = budget->bytes;
        json_t *object =
            json_pack("{si sI sI sI sI}", "coordinate", c, "parameters", (json_int_t)bytes[SL_MEMORY_PARAMETERS],
                      "gradients", (json_int_t)bytes[SL_MEMORY_GRADIENTS], "optimizer",
                      (json_int_t)bytes[SL_MEMORY_OPTIMIZER], "activations", (json_int_t)sl_budget_activations(budget));
        json_array_append_new(list, add_categories(object, budget));
    }
    return list;
}

static json_t *json_process(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate) {
    const struct sl_process_memory *process = &memory[coordinate].resides;
    json_t *object = json_object(), *coordinates = json_array();
    for (int c = 0; c < mesh->size; c++)
        if (same_process(&memory[c], &memory[coordinate])) json_array_append_new(coordinates, json_integer(c));
    json_object_set_new(object, "coordinates", coordinates);
    json_object_set_new(object, "resident", json_integer((json_int_t)process->resident));
    json_object_set_new(object, "held", json_integer((json_int_t)held_here(memory, mesh, coordinate)));
    for (int i = 0; i < SL_PROCESS_PARTS; i++)
        json_object_set_new(object, sl_process_part_name[i], json_integer((json_int_t)process->part[i]));
    json_object_set_new(object, "unexplained", json_integer((json_int_t)process->unexplained));
    return object;
}

json_t *sl_memory_json_processes(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    json_t *list = json_array();
    for (int c = 0; list && c < mesh->size; c++)
        if (is_first(memory, c) && memory[c].resides.resident > 0)
            json_array_append_new(list, json_process(memory, mesh, c));
    return list;
}

double sl_memory_most(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    double most = 0;
    for (int c = 0; c < mesh->size; c++) {
        const double total = (double)sl_budget_total(&memory[c].planned);
        if (total > most) most = total;
    }
    return most;
}
