/* memory_report.c - gathers and prints what was planned. */
#include "drivers/training/memory_report.h"

#include <math.h>

#include "drivers/common/metrics.h"
#include "layers/training/exchange.h"

int sl_memory_gather(const struct sl_worker *worker, struct sl_memory *memory) {
    size_t state, activations; /* the state in parts, below */
    sl_trainer_bytes(worker->trainer, &state, &activations);
    const struct sl_parameter_bytes bytes = sl_parameters_each_bytes(sl_trainer_parameters(worker->trainer));
    memory[worker->self->coordinate] =
        (struct sl_memory){(double)bytes.values, (double)bytes.gradients, (double)bytes.states, (double)activations};
    return sl_gather_records(worker->self, memory, sizeof *memory);
}

static double state_of(const struct sl_memory *memory) {
    return memory->parameters + memory->gradients + memory->optimizer;
}

int sl_memory_report(const struct sl_memory *memory, const struct sl_mesh *mesh, bool json, struct sl_error *error) {
    const struct sl_column column[] = {
        {"coordinate", mesh->axes > 2 ? -36 : -28}, {"parameters, optimizer", 22}, {"activations", 14}};
    struct sl_table table;
    if (!json) sl_table_begin(&table, stdout, 3, column);
    for (int c = 0; c < mesh->size; c++) {
        if (json) {
            SL_TRY(
                sl_json_print(stdout, "stdout",
                              json_pack("{si sI sI}", "coordinate", c, "state_bytes", (json_int_t)state_of(&memory[c]),
                                        "activation_bytes", (json_int_t)memory[c].activations),
                              error));
            continue;
        }
        char name[128];
        sl_table_cell(&table, "%s", sl_mesh_describe(mesh, c, name, sizeof name));
        sl_table_cell(&table, "%.2f MB", state_of(&memory[c]) / 1e6);
        sl_table_cell(&table, "%.2f MB", memory[c].activations / 1e6);
    }
    return SL_OK;
}

json_t *sl_memory_json(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    json_t *list = json_array();
    for (int c = 0; list && c < mesh->size; c++)
        json_array_append_new(
            list, json_pack("{si sI sI sI sI}", "coordinate", c, "parameters", (json_int_t)memory[c].parameters,
                            "gradients", (json_int_t)memory[c].gradients, "optimizer", (json_int_t)memory[c].optimizer,
                            "activations", (json_int_t)memory[c].activations));
    return list;
}

double sl_memory_most(const struct sl_memory *memory, const struct sl_mesh *mesh) {
    double most = 0;
    for (int c = 0; c < mesh->size; c++) most = fmax(most, state_of(&memory[c]) + memory[c].activations);
    return most;
}
