/* model.h - a coordinate's part of a model: the stages of its rank, one for each loop. */
#ifndef SL_LAYERS_TRAINING_MODEL_H
#define SL_LAYERS_TRAINING_MODEL_H

#include "layers/modules/module.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

struct sl_trainer_options;

/* Holders of tied parameters. */
enum sl_tied {
    SL_TIED_ENDS,   /* the ranks of the first and the last stage hold the same ones */
    SL_TIED_SHARDS, /* sharded over the ranks; each rank uses its shard in the first loop and the last */
    SL_TIED_RANKS   /* all ranks hold the same ones */
};

/* The stages of a rank, as built by the classifier, the transformer or a user. A stage takes as many columns as the
 * stage before it outputs. All stages but the last output equally many, unless `handed` is set. The loss takes the
 * columns of the last stage. The builder frees the modules, after their pipeline has been closed. */
struct sl_model {
    int loops;
    struct sl_module **stage; /* [loops]; modules before the first layer or after the last one are part of a stage */
    struct sl_module *loss;   /* follows the last stage; NULL on other ranks */
    int handed;               /* columns of the widest rows sent between stages; 0: all stages send equally many */
    enum sl_tied tied;
    int layers;      /* the most layers of a stage: the number of dropout keys in flax's order */
    int *first_half; /* [loops] halves of layers before each stage; NULL: 2 * stage * layers */
};

/* Layers of a model over the stages of a pipeline. */
struct sl_layers {
    int count;           /* of the model */
    const int *of_stage; /* [stages] layers of each stage, which add up to count; NULL: as equal as possible */
    bool halves; /* of_stage counts halves of layers: a stage may end inside a layer, and the next one begin there */
};

/* Halves of layers before stage STAGE of STAGES. */
static inline int sl_model_first_half(struct sl_layers layers, int stages, int stage) {
    int first = 0;
    if (!layers.of_stage) return 2 * (int)((long long)stage * layers.count / stages);
    for (int s = 0; s < stage; s++) first += layers.of_stage[s];
    return layers.halves ? first : 2 * first;
}

/* Number of the first layer of stage STAGE of STAGES; the stage may begin with that layer's second half. */
static inline int sl_model_first_layer(struct sl_layers layers, int stages, int stage) {
    return sl_model_first_half(layers, stages, stage) / 2;
}

/* Allocates a model with the stages of RANK and spreads LAYERS over all stages except the FIRST first and the LAST last
 * ones, which have no layers. The caller then sets stage and loss. SL_BAD_INPUT if a stage would have no layer, or if
 * numbers do not add up; SL_FAILED if memory is short. */
int sl_model_open(struct sl_model *model, const struct sl_schedule *schedule, int rank, struct sl_layers layers,
                  int first, int last, struct sl_error *error);
/* Checks the first BEGIN and the last END stages, which have no layers. SL_BAD_INPUT unless they are on the ranks in
 * ascending order, one on each: shares of a softmax begin on the first rank. */
int sl_model_check_ends(const struct sl_schedule *schedule, int begin, int end, struct sl_error *error);
/* The two ranks with shared parameters, in the order of their stages: the ranks of the first and the last stage, which
 * share tied parameters; with two copies of the model, the two ranks with RANK's parts of it. */
void sl_model_ends(const struct sl_schedule *schedule, int rank, int ends[2]);
/* Opens PARAMETERS for MODEL. If it saves memory with --zero 2, child layers of sequential stages become parts of their
 * own, numbered after the loops, so that their gradients are complete one after another. Sets layer_sums of PARAMETERS
 * and of the pipeline's OPTIONS. SL_FAILED if memory is short. */
int sl_model_open_parameters(struct sl_spmd *self, struct sl_trainer_options *options, struct sl_model *model,
                             struct sl_parameters *parameters);
/* Assigns the rooms of gradients to the ranges of PARAMETERS: loops, and layers with parts of their own, use rooms one
 * after another. Call it after planning. SL_FAILED if memory is short. */
int sl_model_plan_rooms(struct sl_spmd *self, const struct sl_trainer_options *options, const struct sl_model *model,
                        struct sl_parameters *parameters);
/* Frees the model and its modules. May be called after sl_model_open has failed. */
void sl_model_free(struct sl_model *model);

SL_END_C
#endif
