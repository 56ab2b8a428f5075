/* classifier.h - the notebook's model: input_dense, residual MLP blocks over the pipeline, output_norm,
 * output_dense. */
#ifndef SL_LAYERS_MODELS_CLASSIFIER_H
#define SL_LAYERS_MODELS_CLASSIFIER_H

#include "layers/training/model.h"
#include "layers/models/recomputation.h"

SL_BEGIN_C

struct sl_classifier {
    int inputs, hidden, expansion, classes, layers;
    double dropout;
    int recomputation;       /* enum sl_recomputation, of blocks; selective: all but their last product */
    const int *stage_layers; /* [stages] how many each stage has; NULL: as equally many as can be */
    bool fsdp;               /* kernels are also sharded over the axis "data" */
    bool exact;              /* the bits are those with fsdp, whose layers add up biases' gradients by microbatch */
};

/* For sl_pipeline_options.rules: which dim of which parameter is sharded over which axis. The list is static; NULL
 * without fsdp. */
const struct sl_rule *sl_classifier_rules(const struct sl_classifier *classifier);
/* For sl_pipeline_options.group_axes: the axes over which modules communicate. The list is static; NULL without fsdp.
 */
const char *const *sl_classifier_axes(const struct sl_classifier *classifier);

/* Builds the part of MODEL that RANK of SCHEDULE holds. Without stage_layers stage s of S has the layers from
 * s * layers / S, rounded down, up to the next stage's first. SL_BAD_INPUT as sl_model_open, SL_FAILED if there is no
 * memory.
 * Free with sl_model_free, also after a failure. */
int sl_classifier_build(const struct sl_classifier *classifier, const struct sl_schedule *schedule, int rank,
                        struct sl_model *model, struct sl_error *error);

/* The number of parameters of the whole model. */
size_t sl_classifier_parameters(const struct sl_classifier *classifier);
/* The same as the notebook counts it: each of RANKS ranks has a copy of the masked layers, too. */
size_t sl_classifier_parameters_stacked(const struct sl_classifier *classifier, int ranks);

/* Gives every parameter of RANK the key that it has in the notebook, by the module paths of the looping or of the plain
 * pipeline. LOOPS is the number of the rank's stages, LAYERS that of a stage's layers. */
void sl_classifier_flax_parameters(struct sl_parameters *parameters, uint64_t seed, bool looping, int rank, int loops,
                                   int layers);

/* The notebook's stream of dropout keys at one coordinate. The caller fills in the fields up to `iterations`;
 * sl_classifier_flax_open fills in the others. */
struct sl_classifier_keys {
    bool looping;            /* module paths of the looping pipeline; otherwise those of the plain one */
    int data, model;         /* sizes of the mesh's axes */
    int data_index, rank;    /* this coordinate's index along data, and its rank */
    int layers, iterations;  /* layers of a stage; iterations of the forward pass */
    struct sl_key training;  /* split once in each step */
    uint32_t path, pipeline; /* words of the module paths of a block's dropout and of the pipeline */
};

/* Begins the stream of SEED. */
void sl_classifier_flax_open(struct sl_classifier_keys *keys, uint64_t seed);
/* Advances by one step and writes the step's dropout keys: KEY [iterations][layers]. */
void sl_classifier_flax_step(struct sl_classifier_keys *keys, struct sl_key *key);

SL_END_C
#endif
