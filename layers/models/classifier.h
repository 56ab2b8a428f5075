/* classifier.h - the notebook's model: input_dense, residual MLP blocks over the pipeline, output_norm, output_dense.
 */
#ifndef SL_LAYERS_MODELS_CLASSIFIER_H
#define SL_LAYERS_MODELS_CLASSIFIER_H

#include "layers/training/model.h"
#include "layers/models/recomputation.h"

SL_BEGIN_C

struct sl_classifier {
    int inputs, hidden, expansion, classes, layers;
    double dropout;
    int recomputation; /* enum sl_recomputation: of blocks, selective: up to their last product */
    bool fsdp;         /* kernels are sharded over the axis "data", too */
};

/* For sl_pipeline_options: which dim of which parameter is sharded over which axis, and the axes over which modules
 * communicate. */
const struct sl_rule *sl_classifier_rules(const struct sl_classifier *classifier);
const char *const *sl_classifier_axes(const struct sl_classifier *classifier);

/* Builds the part of MODEL that RANK of SCHEDULE holds: stage s of S has the layers s * layers / S, rounded down, to
 * the next stage's first. Free with sl_model_free. */
int sl_classifier_build(const struct sl_classifier *classifier, const struct sl_schedule *schedule, int rank,
                        struct sl_model *model, struct sl_error *error);

/* Parameters of the whole model: really, and as the notebook counts them (each rank's copy of the masked layers). */
size_t sl_classifier_parameters(const struct sl_classifier *classifier);
size_t sl_classifier_parameters_stacked(const struct sl_classifier *classifier, int ranks);

/* Gives every parameter of RANK the notebook's key, by the module paths of the looping or of the plain pipeline. LOOPS
 * and LAYERS are the rank's stages and a stage's layers. */
void sl_classifier_flax_parameters(struct sl_parameters *parameters, uint64_t seed, bool looping, int rank, int loops,
                                   int layers);

/* The notebook's stream of dropout keys at one coordinate. The caller fills in the first four lines, open the rest. */
struct sl_classifier_keys {
    bool looping;            /* module paths of the looping pipeline, otherwise of the plain one */
    int data, model;         /* sizes of the mesh's axes */
    int data_index, rank;    /* this coordinate's */
    int layers, iterations;  /* of a stage; of the forward pass */
    struct sl_key training;  /* split once a step */
    uint32_t path, pipeline; /* words of the paths of a block's dropout and of the pipeline */
};

void sl_classifier_flax_open(struct sl_classifier_keys *keys, uint64_t seed);
/* Advances by one step and writes this step's dropout keys [iterations][layers]. */
void sl_classifier_flax_step(struct sl_classifier_keys *keys, struct sl_key *key);

SL_END_C
#endif
