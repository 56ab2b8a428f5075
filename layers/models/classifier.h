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
    int recomputation;       /* enum sl_recomputation, of blocks; selective: all products but the last */
    const int *stage_layers; /* [stages] layers of each stage; NULL: as equal as possible */
    bool fsdp;               /* whether kernels are also sharded over the axis "data" */
    bool exact;              /* bits as with fsdp, whose layers add up biases' gradients by microbatch */
};

/* Rules for sl_pipeline_options.rules: sharded dims of parameters, and their axes. The list is static; NULL without
 * fsdp. */
const struct sl_rule *sl_classifier_rules(const struct sl_classifier *classifier);
/* Axes for sl_pipeline_options.group_axes, over which modules communicate. The list is static; NULL without fsdp. */
const char *const *sl_classifier_axes(const struct sl_classifier *classifier);

/* Builds RANK's part of MODEL for SCHEDULE. Without stage_layers, stage s of S has the layers from s * layers / S,
 * rounded down, up to the next stage's first. SL_BAD_INPUT as sl_model_open, SL_FAILED if memory is short. Free with
 * sl_model_free, also after a failure. */
int sl_classifier_build(const struct sl_classifier *classifier, const struct sl_schedule *schedule, int rank,
                        struct sl_model *model, struct sl_error *error);

/* Number of parameters of the whole model. */
size_t sl_classifier_parameters(const struct sl_classifier *classifier);
/* Number of parameters as the notebook counts them: each of RANKS ranks also has a copy of the masked layers. */
size_t sl_classifier_parameters_stacked(const struct sl_classifier *classifier, int ranks);

/* Sets every parameter's key on RANK to its key in the notebook, by the module paths of the looping or the plain
 * pipeline. LOOPS: the rank's stages; LAYERS: layers of a stage. */
void sl_classifier_flax_parameters(struct sl_parameters *parameters, uint64_t seed, bool looping, int rank, int loops,
                                   int layers);

/* The notebook's stream of dropout keys at one coordinate. The caller sets the fields up to `iterations`;
 * sl_classifier_flax_open sets the others. */
struct sl_classifier_keys {
    bool looping;            /* module paths of the looping pipeline; if false, of the plain one */
    int data, model;         /* sizes of the mesh's axes */
    int data_index, rank;    /* this coordinate's index along data, and its rank */
    int layers, iterations;  /* layers of a stage; iterations of the forward pass */
    struct sl_key training;  /* split once in each step */
    uint32_t path, pipeline; /* words (sl_flax_path) of a block's dropout and of the pipeline */
};

/* Begins the stream of SEED. */
void sl_classifier_flax_open(struct sl_classifier_keys *keys, uint64_t seed);
/* Advances by one step and writes the step's dropout keys: KEY [iterations][layers]. */
void sl_classifier_flax_step(struct sl_classifier_keys *keys, struct sl_key *key);

SL_END_C
#endif
