/* model.h - a coordinate's part of a model: the stages of its rank, one for each loop. */
#ifndef SL_LAYERS_TRAINING_MODEL_H
#define SL_LAYERS_TRAINING_MODEL_H

#include "layers/modules/module.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* What the classifier, the transformer or a user builds for its rank. Widths are those of the modules: each stage takes
 * as many columns as the one before it gives, and all but the last give equally many; the loss takes those of the last.
 * Modules are the builder's to free, after the pipeline that uses them has been closed. */
struct sl_model {
    int loops;
    struct sl_module **stage; /* [loops]: what comes before the first layer, or after the last, is part of a stage */
    struct sl_module *loss;   /* after the last stage; NULL on other ranks */
    int layers;               /* most layers of a stage: keys it draws for dropout in flax's order */
    int *first_layer;         /* [loops]: the number in the model of the stage's first layer; NULL: stage * layers */
};

/* The first of the LAYERS of a model that STAGE of STAGES has; stages differ by one layer at most. */
static inline int sl_model_first_layer(int layers, int stages, int stage) {
    return (int)((long long)stage * layers / stages);
}

/* Makes room for the stages of RANK, among which LAYERS are spread as above: all but stage and loss are filled in.
 * SL_BAD_INPUT: there are fewer layers than stages. */
int sl_model_open(struct sl_model *model, const struct sl_schedule *schedule, int rank, int layers,
                  struct sl_error *error);
/* Frees the modules, too; also of a model that was opened in vain. */
void sl_model_free(struct sl_model *model);

SL_END_C
#endif
