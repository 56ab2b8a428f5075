/* model.c - spreads a model's layers over stages. */
#include "layers/training/model.h"

#include <stdlib.h>

int sl_model_open(struct sl_model *model, const struct sl_schedule *schedule, int rank, int layers, int first, int last,
                  struct sl_error *error) {
    const int stages = sl_schedule_stages(schedule) - first - last, loops = schedule->loops;
    *model = (struct sl_model){0};
    if (layers < stages)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers: each of the %d stages (%d ranks x %d loops) needs one",
                            layers, stages, schedule->ranks, stages / schedule->ranks);
    *model = (struct sl_model){
        .loops = loops,
        .layers = (layers + stages - 1) / stages,
        .stage = calloc((size_t)loops, sizeof *model->stage),
        .first_layer = calloc((size_t)loops, sizeof *model->first_layer),
    };
    if (!model->stage || !model->first_layer) return sl_error_set(error, SL_FAILED, "no memory for the model");
    for (int l = 0; l < loops; l++) {
        const int stage = sl_schedule_stage(schedule, rank, l) - first;
        model->first_layer[l] = sl_model_first_layer(layers, stages, stage < 0 ? 0 : stage > stages ? stages : stage);
    }
    return SL_OK;
}

void sl_model_free(struct sl_model *model) {
    for (int l = 0; model->stage && l < model->loops; l++) sl_module_free(model->stage[l]);
    free(model->stage);
    free(model->first_layer);
    sl_module_free(model->loss);
    *model = (struct sl_model){0};
}
