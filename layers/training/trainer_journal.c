/* trainer_journal.c - opens a journal with the data of a training run. */
#include <stdlib.h>

#include "layers/training/trainer.h"

/* Writes FIRST [loops]: the first layer of each of this rank's stages, in halves of layers. */
static void list_layers(const struct sl_schedule *schedule, int rank, const struct sl_model *model, int *first) {
    for (int l = 0; l < schedule->loops; l++)
        first[l] = model->first_half
                       ? model->first_half[l]
                       : 2 * sl_schedule_position(schedule, sl_schedule_stage(schedule, rank, l)) * model->layers;
}

void sl_trainer_plan_journal(struct sl_trainer *trainer, struct sl_budget *budget) {
    const struct sl_journal_run run = {.parameters = sl_trainer_parameters(trainer),
                                       .schedule = sl_trainer_options_of(trainer)->pipeline.schedule,
                                       .passes = sl_trainer_passes(trainer)};
    sl_journal_plan_bytes(&run, budget);
}

int sl_trainer_open_journal(struct sl_trainer *trainer, const struct sl_model *model,
                            const struct sl_journal_options *options, struct sl_journal **journal) {
    struct sl_spmd *self = sl_trainer_self(trainer);
    const struct sl_trainer_options *of = sl_trainer_options_of(trainer);
    const struct sl_pipeline_options *pipeline = &of->pipeline;
    int *first = calloc((size_t)pipeline->schedule->loops, sizeof *first);
    const char *context = pipeline->context_axis;
    const struct sl_cut cut = {.parts = context ? sl_axis_size(self, context) : 1,
                               .part = context ? sl_axis_index(self, context) : 0};
    const struct sl_journal_run run = {.world = sl_trainer_world(trainer),
                                       .parameters = sl_trainer_parameters(trainer),
                                       .schedule = pipeline->schedule,
                                       .stage_axis = pipeline->axis,
                                       .data_axis = of->data_axis,
                                       .first_half = first,
                                       .rows = pipeline->rows,
                                       .sequence = pipeline->sequence,
                                       .cut = cut,
                                       .passes = sl_trainer_passes(trainer),
                                       .wgrad_group = pipeline->wgrad_group,
                                       .precision = pipeline->precision,
                                       .storage = pipeline->storage,
                                       .products = pipeline->gemm->name,
                                       .steps = sl_trainer_steps(trainer)};
    *journal = NULL;
    if (!first) return sl_fail(self, SL_FAILED, "no memory for a journal");
    list_layers(pipeline->schedule, sl_axis_index(self, pipeline->axis), model, first);
    const int status = sl_journal_open(journal, self, &run, options);
    free(first);
    if (status == SL_OK) sl_trainer_set_journal(trainer, *journal);
    return status;
}
