/* model.c - spreads a model's layers over stages. */
#include "layers/training/model.h"

#include <stdlib.h>

/* The most layers of a stage; 0 where one has none, or where they do not add up. */
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
    const int stages = sl_schedule_stages(schedule) - first - last, loops = schedule->loops;
    const int most = most_layers(layers, stages);
    *model = (struct sl_model){0};
    if (!most && layers.of_stage)
        return sl_error_set(error, SL_BAD_INPUT, "the layers of %d stages do not add up to %d", stages, layers.count);
    if (!most)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers: each of the %d stages (%d ranks x %d loops) needs one",
                            layers.count, stages, schedule->ranks, stages / schedule->ranks);
    *model = (struct sl_model){
        .loops = loops,
        .layers = most,
        .stage = calloc((size_t)loops, sizeof *model->stage),
        .first_half = calloc((size_t)loops, sizeof *model->first_half),
    };
    if (!model->stage || !model->first_half) return sl_error_set(error, SL_FAILED, "no memory for the model");
    for (int l = 0; l < loops; l++) {
        const int stage = sl_schedule_stage(schedule, rank, l) - first;
        model->first_half[l] = sl_model_first_half(layers, stages, stage < 0 ? 0 : stage > stages ? stages : stage);
    }
    return SL_OK;
}

void sl_model_free(struct sl_model *model) {
    for (int l = 0; model->stage && l < model->loops; l++) sl_module_free(model->stage[l]);
    free(model->stage);
    free(model->first_half);
    sl_module_free(model->loss);
    *model = (struct sl_model){0};
}
