/* head.c - the head of a journal's file, which describes the run. */
#include <stdlib.h>

#include "layers/records/journal/head_internal.h"
#include "spmd/device/device.h"

static int no_memory(struct sl_spmd *self) { return sl_fail(self, SL_FAILED, "no memory for a journal"); }

/* Gathers the first half of a layer of each stage [stages]; each rank knows only its own. */
static int gather_halves(struct sl_spmd *self, const struct sl_journal_run *run, int *half) {
    const int rank = sl_axis_index(self, run->stage_axis), loops = run->schedule->loops, size = run->world->size;
    int32_t *own = calloc(2 * (size_t)loops, sizeof *own); /* stage and half */
    int32_t *all = calloc(2 * (size_t)loops * (size_t)size, sizeof *all);
    int status = own && all ? SL_OK : no_memory(self);
    for (int l = 0; status == SL_OK && l < loops; l++) {
        own[2 * l] = sl_schedule_stage(run->schedule, rank, l);
        own[2 * l + 1] = run->first_half[l];
    }
    if (status == SL_OK) status = sl_all_gather(self, run->world, SL_I32, own, all, 2 * (size_t)loops);
    for (int i = 0; status == SL_OK && i < loops * size; i++) half[all[2 * i]] = all[2 * i + 1];
    free(own);
    free(all);
    return status;
}

static json_t *layout_of(const struct sl_spmd *self, const struct sl_journal_run *run, const int *half) {
    const int stages = sl_schedule_stages(run->schedule);
    const int sums = run->parameters->layer_sums;
    char mesh[SL_MAX_AXES * (SL_AXIS_NAME + 8)];
    json_t *layers = json_array();
    for (int s = 0; s < stages; s++)
        json_array_append_new(layers, half[s] % 2 ? json_real(half[s] / 2.0) : json_integer(half[s] / 2));
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:s}", "mesh",
                     sl_mesh_print(self->mesh, mesh, sizeof mesh), "data_axis", run->data_axis, "stage_axis",
                     run->stage_axis, "stages", stages, "layers", layers, "microbatches", run->schedule->microbatches,
                     "rows", run->rows, "passes", run->passes, "wgrad_group", run->wgrad_group, "layer_sums",
                     sums > 1 ? sums : 1, "precision", sl_dtypes[run->precision].label, "storage",
                     sl_dtypes[run->storage].label);
}

static json_t *machine_of(const struct sl_spmd *self, const struct sl_journal_run *run) {
    return json_pack("{s:s, s:s, s:s, s:s}", "engine", self->engine->table->name, "device", sl_device.name, "cpu",
                     sl_kernels_select()->name, "products", run->products);
}

/* Stage of a parameter; for tied parameters, which two stages use, this coordinate's first one. */
static int stage_of(const struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_parameter *parameter) {
    const int rank = sl_axis_index(self, run->stage_axis);
    return sl_schedule_stage(run->schedule, rank, run->parameters->range[parameter->loop].loop);
}

static json_t *tensors_of(const struct sl_spmd *self, const struct sl_journal_run *run,
                          const struct sl_prints *prints) {
    json_t *list = json_array();
    for (int i = 0; i < run->parameters->count; i++) {
        const struct sl_parameter *parameter = &run->parameters->list[i];
        json_t *shape = json_array();
        for (int d = 0; d < parameter->dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)parameter->shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:o, s:i, s:I, s:b}", "name", parameter->name, "shape", shape,
                                              "stage", stage_of(self, run, parameter), "elements",
                                              (json_int_t)sl_prints_elements(prints, i), "counts",
                                              sl_prints_count(prints, i)));
    }
    return list;
}

static json_t *notes_of(const struct sl_store *notes) {
    json_t *object = json_object();
    for (int i = 0; notes && i < notes->notes; i++)
        json_object_set_new(object, notes->note[i].key, json_string(notes->note[i].text));
    return object;
}

int sl_journal_head(json_t **head, struct sl_spmd *self, const struct sl_journal_run *run,
                    const struct sl_prints *prints, const struct sl_store *notes) {
    int *half = calloc((size_t)sl_schedule_stages(run->schedule), sizeof *half);
    *head = NULL;
    if (!half) return no_memory(self);
    const int status = gather_halves(self, run, half);
    if (status == SL_OK)
        *head = json_pack("{s:i, s:i, s:o, s:o, s:o, s:o}", "shardloop.journal", SL_JOURNAL_VERSION, "coordinate",
                          self->coordinate, "layout", layout_of(self, run, half), "machine", machine_of(self, run),
                          "tensors", tensors_of(self, run, prints), "notes", notes_of(notes));
    free(half);
    return status || *head ? status : no_memory(self);
}

bool sl_journal_same_layout(const json_t *one, const json_t *other) {
    static const char *const parts[] = {"coordinate", "layout", "tensors"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!json_equal(json_object_get(one, parts[i]), json_object_get(other, parts[i]))) return false;
    return true;
}
