/* transformer.h - a transformer. Its layers are divided over a pipeline, its channels over
 * "tensor", and its kernels over "data":
 *
 *     embedding [+ positions], blocks x layers_per_block x { x + attention(norm1(x)); x + mlp(norm2(x)) }, norm, logits
 * = x embedding^T or x head^T
 *
 * Parameters are called blocks.B.layers.L.{norm1,norm2,mla.*,mlp.*}, norm.*, embedding, positions, head; gqa.* takes
 * the place of mla.* where attention is not latent, and with experts, moe.* that of mlp.*. With latent attention the
 * last layer of each block has no rotary positions. A stage consists of consecutive layers. */
#ifndef SL_LAYERS_MODELS_TRANSFORMER_H
#define SL_LAYERS_MODELS_TRANSFORMER_H

#include "layers/training/model.h"
#include "layers/models/recomputation.h"
#include "layers/modules/transformer_modules.h"

SL_BEGIN_C

/* Whether the ranks of a pipeline share the head, and what they divide. */
enum sl_spread_head {
    SL_SPREAD_NOTHING,
    SL_SPREAD_VOCABULARY, /* the token table is sharded over pipe: a schedule's first loop looks up, the last is the
                             head */
    SL_SPREAD_ROWS /* each rank has the whole table, and its share of each microbatch's tokens: in the last loop */
};
/* Loops of a schedule that have no layers then. */
static inline int sl_spread_loops(int spread) { return spread == SL_SPREAD_VOCABULARY ? 2 : spread == SL_SPREAD_ROWS; }

/* What differs between families of models: 0 is this one's own. */
enum sl_attention_kind { SL_ATTENTION_LATENT, SL_ATTENTION_GROUPED };
enum sl_mlp_kind { SL_MLP_GELU, SL_MLP_GATED_SILU, SL_MLP_ERF_GELU };
enum sl_norm_family { SL_NORM_RMS, SL_NORM_LAYER }; /* a layer norm always shifts */
/* Which products have biases. ALL: RMS norms shift, too. ATTENTION is QKV and OUT; PRODUCTS are these and the MLP's. */
enum sl_biases {
    SL_BIASES_ALL,
    SL_BIASES_QKV,
    SL_BIASES_NONE,
    SL_BIASES_OUT,
    SL_BIASES_ATTENTION,
    SL_BIASES_MLP,
    SL_BIASES_QKV_MLP,
    SL_BIASES_OUT_MLP,
    SL_BIASES_PRODUCTS
};
/* The products: of queries, keys and values; behind attention; of an MLP. */
bool sl_biases_qkv(int biases);
bool sl_biases_out(int biases);
bool sl_biases_mlp(int biases);
/* The one without shifts of norms. */
int sl_biases_of(bool qkv, bool out, bool mlp);

struct sl_transformer {
    int vocabulary, dimension, heads, blocks, layers_per_block;
    int attention;            /* enum sl_attention_kind */
    int latent, rope;         /* columns of each latent; columns of the shared rotary key */
    int key_heads;            /* grouped attention: heads of keys and values; 0: as many as of queries; */
    int head_width;           /* columns of a head; 0: dimension / heads; */
    bool head_norms;          /* heads of queries and keys are normalized; */
    int window;               /* tokens that one attends to at most, itself among them; 0: all before it; */
    struct sl_rotary rotary;  /* positions of all columns of a head, unless rope is 0; base 0: 10000 */
    int mlp, inside;          /* enum sl_mlp_kind; columns inside; 0: four times the dimension */
    int norm;                 /* enum sl_norm_family */
    double epsilon;           /* of norms; 0: 1e-6 */
    int biases;               /* enum sl_biases */
    int positions;            /* the longest sequence */
    int learned_positions;    /* rows of a table of positions, which are added to the embedding; 0: none */
    double dropout;           /* rate of dropout on what attention and MLP add to the residual */
    int recomputation;        /* enum sl_recomputation; selective: attention */
    bool fsdp;                /* kernels are also sharded over data */
    bool untied_head;         /* the head has a token table of its own */
    bool vocabulary_parallel; /* the token table's rows are sharded over tensor */
    int tensor_pieces;        /* in which rows move over tensor, beside their products; 0: 1 */
    int spread_head;          /* enum sl_spread_head; */
    bool halves;              /* its shares hand over x as bf16: for a pipeline of that storage */
    const int *stage_layers;  /* [stages but a spread head's] layers of each; NULL: as equally many as can be */
    bool stage_halves;        /* stage_layers counts halves of layers: attention, and MLP */
    int chunk;                /* classes of which the head makes logits at a time; 0: sl_token_head chooses */
    bool keep_logits;         /* of all chunks, from forward to W, in place of making them again */
    int experts; /* number of experts in place of each MLP, sharded over data (transformer_modules.h); 0: MLPs */
    int choices; /* number of experts that a token goes to */
    int expert_dimension;     /* columns inside an expert */
    int shared_experts;       /* all tokens pass an MLP as wide as this many experts */
    double capacity, balance; /* factor of the number of slots; weight of the load-balance loss */
    struct sl_lora lora; /* adapters beside all dense layers but experts, or those that sl_parameters.adapters names */
};

/* What the model has where a field is 0: heads of keys and values, columns of a head, columns inside an MLP, and what
 * norms add to the variance. */
int sl_transformer_key_heads(const struct sl_transformer *transformer);
int sl_transformer_head_width(const struct sl_transformer *transformer);
int sl_transformer_inside(const struct sl_transformer *transformer);
double sl_transformer_epsilon(const struct sl_transformer *transformer);

/* The axes of samples, of stages and of channels. */
extern const char sl_data_axis[], sl_pipe_axis[], sl_tensor_axis[]; /* "data", "pipe", "tensor" */
/* For sl_pipeline_options.group_axes. */
extern const char *const sl_transformer_axes[];

/* The rules that say which dim of which parameter is sharded over which axis. The list is static. */
const struct sl_rule *sl_transformer_rules(const struct sl_transformer *transformer);

/* SL_BAD_INPUT if numbers do not fit each other or MESH; the line names them. */
int sl_transformer_check(const struct sl_transformer *transformer, const struct sl_mesh *mesh, struct sl_error *error);

/* Builds the part of MODEL that RANK of SCHEDULE holds. Stage s of S has the layers
 * from s * layers / S, rounded down, up to the next stage's first, unless stage_layers says how many; where a stage
 * ends with half a layer, the residual stream between attention and MLP is handed over. A spread head's loops have none
 * and do not count. SL_BAD_INPUT as sl_model_open, SL_FAILED if there is no memory. Free with sl_model_free, also after
 * a failure. */
int sl_transformer_build(const struct sl_transformer *transformer, const struct sl_mesh *mesh,
                         const struct sl_schedule *schedule, int rank, struct sl_model *model, struct sl_error *error);

/* The number of parameters of the whole model without adapters, which may be more than a size_t can count; tied
 * parameters count once. */
double sl_transformer_parameters(const struct sl_transformer *transformer);
/* The number of parameters of its adapters: of all, or of those of which PATTERNS (sl_parameters.adapters) has the
 * names. */
double sl_transformer_adapters(const struct sl_transformer *transformer, const char *patterns);
/* Floating-point operations of a training step for each token, in sequences of SEQUENCE tokens: those of forward, and
 * twice as many in backward, once of products beside which adapters train in place of them. Counted are the products
 * with the parameters that a token meets, and attention as far as it is causal; adapters' own products are 6 more
 * operations for each of sl_transformer_adapters. */
double sl_transformer_flops(const struct sl_transformer *transformer, int sequence);

SL_END_C
#endif
