/* transformer.h - a transformer with latent attention, its layers over a pipeline, its channels over "tensor", its
 * kernels over "data":
 *
 *     embedding, blocks x layers_per_block x { x + mla(norm1(x)); x + mlp(norm2(x)) }, norm, logits = x embedding^T
 *
 * Parameters are called blocks.B.layers.L.{norm1,norm2,mla.*,mlp.*}, norm.*, embedding; with experts, moe.* in place of
 * mlp.*. The last layer of each block has no rotary positions. A stage is a number of layers. */
#ifndef SL_LAYERS_MODELS_TRANSFORMER_H
#define SL_LAYERS_MODELS_TRANSFORMER_H

#include "layers/training/model.h"
#include "layers/models/recomputation.h"

SL_BEGIN_C

struct sl_transformer {
    int vocabulary, dimension, heads, blocks, layers_per_block;
    int latent, rope;         /* columns of each latent; of the shared rotary key */
    int positions;            /* at most */
    double dropout;           /* of what attention and MLP add to the residual */
    int recomputation;        /* enum sl_recomputation; selective: attention */
    bool fsdp;                /* kernels are sharded over data, too */
    bool vocabulary_parallel; /* the table's rows are sharded over tensor */
    int experts;          /* in place of each MLP, sharded over data (layers/modules/transformer_modules.h); 0: MLPs */
    int choices;          /* experts that a token goes to */
    int expert_dimension; /* columns inside an expert */
    int shared_experts;   /* so many experts' columns for all tokens */
    double capacity, balance; /* factor; weight of the load-balance loss */
};

/* The axes that it knows: of samples, of stages, of channels. */
extern const char sl_data_axis[], sl_pipe_axis[], sl_tensor_axis[]; /* "data", "pipe", "tensor" */
/* For sl_pipeline_options.module_axes. */
extern const char *const sl_transformer_axes[];

/* Which dim of which parameter is sharded over which axis. */
const struct sl_rule *sl_transformer_rules(const struct sl_transformer *transformer);

/* SL_BAD_INPUT names the numbers that do not fit each other, or MESH. */
int sl_transformer_check(const struct sl_transformer *transformer, const struct sl_mesh *mesh, struct sl_error *error);

/* Builds the part of MODEL that RANK of SCHEDULE holds, for sequences of SEQUENCE tokens: stage s of S has the layers
 * s * layers / S, rounded down, to the next stage's first. Free with sl_model_free. */
int sl_transformer_build(const struct sl_transformer *transformer, const struct sl_mesh *mesh,
                         const struct sl_schedule *schedule, int rank, int sequence, struct sl_model *model,
                         struct sl_error *error);

/* Of the whole model, tied ones once. */
size_t sl_transformer_parameters(const struct sl_transformer *transformer);
/* Floating-point operations of a training step a token, in sequences of SEQUENCE: forward, and twice that in backward;
 * products of parameters that a token meets and of attention, as far as it is causal. */
double sl_transformer_flops(const struct sl_transformer *transformer, int sequence);

SL_END_C
#endif
