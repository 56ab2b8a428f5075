/* model.h - a coordinate's part of a model: the stages of its rank, one for each loop. */
#ifndef SL_LAYERS_TRAINING_MODEL_H
#define SL_LAYERS_TRAINING_MODEL_H

#include "layers/modules/module.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

struct sl_trainer_options;

/* Who has tied parameters. */
enum sl_tied {
    SL_TIED_ENDS,   /* the ranks of the first and the last stage have the same ones */
    SL_TIED_SHARDS, /* they are sharded over the ranks, each of which uses its own in the first loop and the last */
    SL_TIED_RANKS   /* all ranks have the same ones */
};

/* The stages that the classifier, the transformer or a user builds for a rank. A stage takes as many columns as the
 * stage before it gives. All stages but the last give equally many, unless `handed` is set. The loss takes the columns
 * of the last stage. The builder frees the modules after the pipeline that uses them has been closed. */
struct sl_model {
    int loops;
    struct sl_module **stage; /* [loops]; what comes before the first layer or after the last one is part of a stage */
    struct sl_module *loss;   /* follows the last stage; NULL on other ranks */
    int handed;               /* columns of the widest rows that stages hand over; 0: all hand over equally many */
    enum sl_tied tied;
    int layers;      /* the most layers that a stage has: so many keys are drawn for dropout in flax's order */
    int *first_half; /* [loops] halves of layers before each stage; NULL: 2 * stage * layers */
};

/* Layers of a model over the stages of a pipeline. */
struct sl_layers {
    int count;           /* of the model */
    const int *of_stage; /* [stages] their numbers, which add up to it; NULL: numbers that differ by at most one */
    bool halves;         /* of_stage counts halves of layers: a stage may end, and the next begin, inside a layer */
};

/* How many halves of layers are before stage STAGE of STAGES. */
static inline int sl_model_first_half(struct sl_layers layers, int stages, int stage) {
    int first = 0;
    if (!layers.of_stage) return 2 * (int)((long long)stage * layers.count / stages);
    for (int s = 0; s < stage; s++) first += layers.of_stage[s];
    return layers.halves ? first : 2 * first;
}

/* The number of the first layer of stage STAGE of STAGES, which may be that layer's second half. */
static inline int sl_model_first_layer(struct sl_layers layers, int stages, int stage) {
    return sl_model_first_half(layers, stages, stage) / 2;
}

/* Allocates a model with the stages of RANK, over which LAYERS are spread as above, but for the FIRST and
 * the LAST stages, which have none; the caller then fills in stage and loss. SL_BAD_INPUT if a stage would have no
 * layer, or numbers do not add up; SL_FAILED if there is no memory. */
int sl_model_open(struct sl_model *model, const struct sl_schedule *schedule, int rank, struct sl_layers layers,
                  int first, int last, struct sl_error *error);
/* The ranks that share parameters with RANK, in their stages' order: those of the first and the last stage, which tied
 * ones are shared by; where there are two copies of the model, the two that have the same parts of it. */
void sl_model_ends(const struct sl_schedule *schedule, int rank, int ends[2]);
/* Opens PARAMETERS for MODEL. Layers that are children of sequential stages become parts of them, numbered behind the
 * loops, where their gradients are complete one after another and so take less memory with --zero 2. Sets layer_sums of
 * PARAMETERS and of the pipeline's OPTIONS. SL_FAILED if there is no memory. */
int sl_model_open_parameters(struct sl_spmd *self, struct sl_trainer_options *options, struct sl_model *model,
                             struct sl_parameters *parameters);
/* After planning: gives the ranges of PARAMETERS the rooms in which loops, and such layers, compute their gradients one
 * after another. SL_FAILED if there is no memory. */
int sl_model_plan_rooms(struct sl_spmd *self, const struct sl_trainer_options *options, const struct sl_model *model,
                        struct sl_parameters *parameters);
/* Frees the model and its modules. May be called after sl_model_open has failed. */
void sl_model_free(struct sl_model *model);

SL_END_C
#endif
