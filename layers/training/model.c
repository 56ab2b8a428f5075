/* model.c - spreads a model's layers over stages, and finds rooms for their gradients. */
#include "layers/training/model.h"

#include <stdlib.h>

#include "layers/modules/modules.h"
#include "layers/training/trainer.h"

/* The most layers of a stage; 0 if a stage has none or the numbers do not add up. */
static int most_layers(struct sl_layers layers, int stages) {
    const int all = layers.halves ? 2 * layers.count : layers.count;
    int most = 0, sum = 0;
    if (!layers.of_stage) return layers.count < stages ? 0 : (layers.count + stages - 1) / stages;
    for (int s = 0; s < stages; s++) {
        const int count = layers.of_stage[s];
        if (count < 1 || count > all - sum) return 0;
        sum += count;
        if (count > most) most = count;
    }
    if (layers.halves) most = most / 2 + 1;
    return sum == all ? most : 0;
}

int sl_model_open(struct sl_model *model, const struct sl_schedule *schedule, int rank, struct sl_layers layers,
                  int first, int last, struct sl_error *error) {
    const int stages = sl_schedule_depth(schedule) - first - last, loops = schedule->loops;
    const int most = most_layers(layers, stages);
    *model = (struct sl_model){0};
    if (!most && layers.of_stage)
        return sl_error_set(error, SL_BAD_INPUT, "the layers of %d stages do not add up to %d", stages, layers.count);
    if (!most)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers: each of the %d stages (%d ranks x %d loops) needs one",
                            layers.count, stages, schedule->ranks, loops / schedule->copies);
    *model = (struct sl_model){
        .loops = loops,
        .layers = most,
        .stage = calloc((size_t)loops, sizeof *model->stage),
        .first_half = calloc((size_t)loops, sizeof *model->first_half),
    };
    if (!model->stage || !model->first_half) return sl_error_set(error, SL_FAILED, "no memory for the model");
    for (int l = 0; l < loops; l++) {
        const int stage = sl_schedule_position(schedule, sl_schedule_stage(schedule, rank, l)) - first;
        model->first_half[l] = sl_model_first_half(layers, stages, stage < 0 ? 0 : stage > stages ? stages : stage);
    }
    return SL_OK;
}

int sl_model_check_ends(const struct sl_schedule *schedule, int begin, int end, struct sl_error *error) {
    const int stages = sl_schedule_depth(schedule);
    for (int s = 0; s < stages; s++) {
        const int rank = s < begin ? s : s - (stages - end), found = sl_schedule_rank_of(schedule, s);
        if (rank >= 0 && rank != found)
            return sl_error_set(error, SL_BAD_INPUT,
                                "schedule %s: a spread head needs stage %d on rank %d, and it is on rank %d: choose a "
                                "looped or interleaved schedule, or rotating-inputs",
                                schedule->name, s, rank, found);
    }
    return SL_OK;
}

void sl_model_ends(const struct sl_schedule *schedule, int rank, int ends[2]) {
    int first = 0, last = sl_schedule_stages(schedule) - 1;
    if (schedule->copies > 1) {
        const int own = sl_schedule_stage(schedule, rank, 0), twin = sl_schedule_twin(schedule, own);
        first = own < twin ? own : twin;
        last = own < twin ? twin : own;
    }
    ends[0] = sl_schedule_rank_of(schedule, first);
    ends[1] = sl_schedule_rank_of(schedule, last);
}

/* Makes the layer in MODULE, which may wrap it, a part of its own with number PART; 0: not a part. DEEP: also each
 * layer of a recomputed block, numbered from PART on. Returns the number of parts. */
static int part_layers_in(struct sl_module *module, int part, bool deep) {
    int parts = 0;
    if (module->is_layer) module->part = part;
    if (module->is_layer) return part > 0;
    if (module->children != 1 && !(deep && sl_is_sequential(module))) return 0;
    for (int i = 0; i < module->children; i++) parts += part_layers_in(module->child[i], part ? part + parts : 0, deep);
    return parts;
}

/* Makes each layer of a sequential stage a part of its own, numbered after the loops; without APART, resets this.
 * Returns the number of parts. */
static int part_layers(struct sl_model *model, bool apart, bool deep) {
    int parts = 0;
    for (int l = 0; l < model->loops; l++) {
        struct sl_module *stage = model->stage[l];
        for (int i = 0; sl_is_sequential(stage) && i < stage->children; i++)
            parts += part_layers_in(stage->child[i], apart ? model->loops + parts : 0, deep);
    }
    return parts;
}

/* Whether whole gradients can be freed early: not if they accumulate over passes, or over two copies of the model, nor
 * if they take turns in memory. */
static bool frees_gradients(const struct sl_spmd *self, const struct sl_trainer_options *options) {
    const int data = sl_axis_size(self, options->data_axis);
    const bool one_pass = options->accumulate <= 1 && (!options->exact || options->exact == data);
    const bool copied = options->pipeline.schedule->copies > 1; /* two ranks' gradients are added up at the end */
    return options->zero > 1 && data > 1 && one_pass && !copied && !options->offload_weights &&
           !options->pipeline.forward_only;
}

/* Finds *DUE, the number of microbatches in one sum of a layer's gradient: all, or the microbatches of the groups whose
 * W runs after one action. Returns false if memory is short. */
static bool find_due(struct sl_spmd *self, const struct sl_pipeline_options *pipeline, int *due) {
    const struct sl_schedule *schedule = pipeline->schedule;
    const int group = pipeline->wgrad_group, run = sl_schedule_run(schedule, SL_BACKWARD);
    bool at_once;
    if (!sl_schedule_weights_at_once(schedule, sl_axis_index(self, pipeline->axis), group, &at_once)) return false;
    *due = at_once ? schedule->microbatches : run % group ? group : run;
    return true;
}

/* Layers complete their gradients one after another and, unless bits must not depend on the layout, in several sums
 * over data, which are added up. Offloaded activations are read one group at a time, and so is a recomputed block: its
 * layers take turns in each group. With FSDP, little remains of a layer's gradient. */
int sl_model_open_parameters(struct sl_spmd *self, struct sl_trainer_options *options, struct sl_model *model,
                             struct sl_parameters *parameters) {
    struct sl_pipeline_options *pipeline = &options->pipeline;
    const int microbatches = pipeline->schedule->microbatches, data = sl_axis_size(self, options->data_axis);
    int due = microbatches;
    if (pipeline->schedule->copies > 1 && (options->exact || options->offload_weights || pipeline->schedule->sharded))
        return sl_fail(
            self, SL_BAD_INPUT,
            "schedule %s holds the model twice: parameters are not sharded over data then, nor offloaded, nor "
            "sums exact",
            pipeline->schedule->name);
    bool apart = frees_gradients(self, options) && !pipeline->schedule->sharded;
    if (apart && !find_due(self, pipeline, &due)) return sl_fail(self, SL_FAILED, "no memory to train");
    if (pipeline->offload_activations && due != pipeline->wgrad_group) apart = false;
    if (options->exact && due != microbatches) apart = false;
    const bool deep = due == pipeline->wgrad_group;
    int layers = part_layers(model, apart, deep);
    if (layers * (data - 1) <= data)
        layers = part_layers(model, false, deep); /* a room and all shares take no less memory */
    if (sl_parameters_open(parameters, model->loops + layers)) return sl_fail(self, SL_FAILED, "no memory to train");
    pipeline->layer_sums = parameters->layer_sums = layers ? microbatches / due : 0;
    return SL_OK;
}

/* Whether the layer with number PART of PARAMETERS shares its room with others: not if parameters are sharded over data
 * and there are several sums, because little memory would be freed, and much sent. */
static bool uses_room(const struct sl_parameters *parameters, int part) {
    const struct sl_range *own = &parameters->range[part], *sharded = own + parameters->loops;
    if (parameters->layer_sums > 1 && sharded->used > own->used) return false;
    return own->written == SL_WRITTEN_BY_INPUT || own->written == SL_WRITTEN_BY_WEIGHT;
}

/* Layers use one room, one after another; its number follows those of the loops' rooms. */
int sl_model_plan_rooms(struct sl_spmd *self, const struct sl_trainer_options *options, const struct sl_model *model,
                        struct sl_parameters *parameters) {
    const struct sl_pipeline_options *pipeline = &options->pipeline;
    struct sl_range *const range = parameters->range;
    if (!frees_gradients(self, options)) return SL_OK;
    for (int part = model->loops; part < parameters->loops; part++)
        if (uses_room(parameters, part)) range[part].room = model->loops + 1;
    int *room = malloc((size_t)model->loops * sizeof *room);
    const bool planned = room && sl_schedule_gradient_rooms(pipeline->schedule, sl_axis_index(self, pipeline->axis),
                                                            pipeline->wgrad_group, room);
    for (int l = 0; l < model->loops && planned; l++) range[l].room = room[l];
    free(room);
    return planned ? SL_OK : sl_fail(self, SL_FAILED, "no memory to train");
}

void sl_model_free(struct sl_model *model) {
    for (int l = 0; model->stage && l < model->loops; l++) sl_module_free(model->stage[l]);
    free(model->stage);
    free(model->first_half);
    sl_module_free(model->loss);
    *model = (struct sl_model){0};
}
