/* transformer.h - a transformer. Layers are divided over a pipeline, channels over "tensor", sequences over "context",
 * and kernels over "data", or over "data" and "context":
 *
 *     embedding [+ positions], blocks x layers_per_block x { x + attention(norm1(x)); x + mlp(norm2(x)) }, norm,
 *     logits = x embedding^T or x head^T
 *
 * Parameters are called blocks.B.layers.L.{norm1,norm2,mla.*,mlp.*}, norm.*, embedding, positions, head; with grouped
 * attention, gqa.* replaces mla.*; with experts, moe.* replaces mlp.*. With latent attention the last layer of each
 * block has no rotary positions. A stage consists of consecutive layers. */
#ifndef SL_LAYERS_MODELS_TRANSFORMER_H
#define SL_LAYERS_MODELS_TRANSFORMER_H

#include "layers/training/model.h"
#include "layers/models/recomputation.h"
#include "layers/modules/transformer_modules.h"

SL_BEGIN_C

/* How the ranks of a pipeline share the head. */
enum sl_spread_head {
    SL_SPREAD_NOTHING,
    SL_SPREAD_VOCABULARY, /* the token table is sharded over pipe: a schedule's first loop looks up, the last is the
                             head */
    SL_SPREAD_ROWS, /* each rank has the whole table, and computes its share of each microbatch's tokens in the last
                       loop */
    SL_SPREAD_BATCH /* so it does, and in the first loop it looks up its share of the microbatches, which go on to the
                       first layers */
};
/* Loops of a schedule without layers, with a spread head. */
static inline int sl_spread_loops(int spread) {
    return spread == SL_SPREAD_NOTHING ? 0 : spread == SL_SPREAD_ROWS ? 1 : 2;
}

/* Modules differing between families of models; 0 is this model's own choice. */
enum sl_attention_kind { SL_ATTENTION_LATENT, SL_ATTENTION_GROUPED };
/* Functions inside an MLP: the constant, the name as a value of --mlp, and the module between the two products; silu
 * gates columns beside it (sl_gated_mlp) instead. */
#define SL_MLPS(ROW) ROW(GELU, "gelu", sl_gelu) ROW(GATED_SILU, "silu", NULL) ROW(ERF_GELU, "erf-gelu", sl_erf_gelu)
#define SL_MLP_KIND(kind, name, module) SL_MLP_##kind,
#define SL_MLP_NAME(kind, name, module) "|" name
enum sl_mlp_kind { SL_MLPS(SL_MLP_KIND) };
enum sl_norm_family { SL_NORM_RMS, SL_NORM_LAYER }; /* a layer norm always shifts */
/* Products with biases. ALL: RMS norms shift, too. ATTENTION is QKV and OUT; PRODUCTS are these and the MLP's. */
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
/* Whether products have biases: of queries, keys and values; after attention; of an MLP. */
bool sl_biases_qkv(int biases);
bool sl_biases_out(int biases);
bool sl_biases_mlp(int biases);
/* The matching enum sl_biases, without shifts of norms. */
int sl_biases_of(bool qkv, bool out, bool mlp);

struct sl_transformer {
    int vocabulary, dimension, heads, blocks, layers_per_block;
    int attention;            /* enum sl_attention_kind */
    int latent, rope;         /* columns of each latent; columns of the shared rotary key */
    int key_heads;            /* grouped attention: heads of keys and values; 0: as many as of queries */
    int head_width;           /* columns of a head; 0: dimension / heads */
    bool head_norms;          /* whether heads of queries and keys are normalized */
    int window;               /* tokens that a token attends to at most, including itself; 0: no limit */
    struct sl_rotary rotary;  /* positions of all columns of a head, unless rope is 0; base 0: 10000 */
    int mlp, inside;          /* enum sl_mlp_kind; columns inside the MLP; 0: four times the dimension */
    int norm;                 /* enum sl_norm_family */
    double epsilon;           /* epsilon of norms; 0: 1e-6 */
    int biases;               /* enum sl_biases */
    int positions;            /* the longest sequence */
    int learned_positions;    /* rows of a table of positions, added to the embedding; 0: none */
    double dropout;           /* rate of dropout on the outputs of attention and MLP */
    int recomputation;        /* enum sl_recomputation; selective: attention */
    bool fsdp;                /* whether kernels are also sharded over data */
    bool untied_head;         /* whether the head has a token table of its own */
    bool vocabulary_parallel; /* whether the token table's rows are sharded over tensor */
    int tensor_layout;        /* enum sl_tensor_layout */
    int tensor_pieces;        /* pieces in which rows are sent over tensor, beside their products; 0: 1 */
    int spread_head;          /* enum sl_spread_head */
    bool halves;              /* whether a spread head's shares send x as bf16, for a pipeline with bf16 storage */
    const int *stage_layers;  /* [stages, a spread head's excluded] layers of each; NULL: as equal as possible */
    bool stage_halves;        /* whether stage_layers counts halves of layers: attention, and MLP */
    int chunk;                /* classes per chunk of logits in the head; 0: sl_token_head chooses */
    bool keep_logits;         /* save logits of all chunks until W, instead of recomputing them */
    int experts;              /* experts instead of each MLP, sharded over replicas (transformer_modules.h); 0: MLPs */
    int choices;              /* experts per token */
    int expert_dimension;     /* columns inside an expert */
    int shared_experts;       /* width of an MLP for all tokens, in experts */
    double capacity, balance; /* factor of the number of slots; weight of the load-balance loss */
    struct sl_lora lora;      /* adapters of all dense layers but experts, or of those in sl_parameters.adapters */
};

/* Values with defaults for fields of 0: heads of keys and values, columns of a head, columns inside an MLP, and epsilon
 * of norms. */
int sl_transformer_key_heads(const struct sl_transformer *transformer);
int sl_transformer_head_width(const struct sl_transformer *transformer);
int sl_transformer_inside(const struct sl_transformer *transformer);
double sl_transformer_epsilon(const struct sl_transformer *transformer);

/* Axes of samples, stages, channels, and blocks of sequences. */
extern const char sl_data_axis[], sl_pipe_axis[], sl_tensor_axis[]; /* "data", "pipe", "tensor" */
extern const char sl_context_axis[];                                /* "context" */
/* Whether MESH divides sequences. */
static inline bool sl_transformer_divides(const struct sl_mesh *mesh) {
    return sl_mesh_axis_size(mesh, sl_context_axis) > 1;
}
/* Whether coordinates of MESH have shares of the rows between products. */
static inline bool sl_transformer_by_rows(const struct sl_transformer *transformer, const struct sl_mesh *mesh) {
    return transformer->tensor_layout == SL_TENSOR_ROWS && sl_mesh_axis_size(mesh, sl_tensor_axis) > 1;
}
/* Axes along which coordinates have the same parameters and other rows: "data", or "data,context". */
extern const char sl_replica_axes[];
static inline const char *sl_transformer_replicas(const struct sl_mesh *mesh) {
    return sl_transformer_divides(mesh) ? sl_replica_axes : sl_data_axis;
}
/* Axes for sl_pipeline_options.group_axes. The list is static. */
static inline const char *const *sl_transformer_axes(const struct sl_mesh *mesh) {
    static const char *const axes[2][5] = {{sl_tensor_axis, sl_data_axis, NULL},
                                           {sl_tensor_axis, sl_replica_axes, sl_context_axis, sl_data_axis, NULL}};
    return axes[sl_transformer_divides(mesh)];
}

/* Rules for sharding: dims of parameters, and their axes. The list is static. */
const struct sl_rule *sl_transformer_rules(const struct sl_transformer *transformer, const struct sl_mesh *mesh);

/* SL_BAD_INPUT if numbers do not fit each other or MESH; the error names them. */
int sl_transformer_check(const struct sl_transformer *transformer, const struct sl_mesh *mesh, struct sl_error *error);

/* Builds RANK's part of MODEL for SCHEDULE. Without stage_layers, stage s of S has the layers from s * layers / S,
 * rounded down, up to the next stage's first. If a stage ends with half a layer, it sends the residual stream between
 * attention and MLP. A spread head's loops have no layers and are not counted. SL_BAD_INPUT as sl_model_open, SL_FAILED
 * if memory is short. Free with sl_model_free, also after a failure. */
int sl_transformer_build(const struct sl_transformer *transformer, const struct sl_mesh *mesh,
                         const struct sl_schedule *schedule, int rank, struct sl_model *model, struct sl_error *error);

/* Number of parameters of the whole model without adapters, as a double because it may exceed a size_t; tied parameters
 * count once. */
double sl_transformer_parameters(const struct sl_transformer *transformer);
/* Number of parameters of all adapters, or of those with names in PATTERNS (sl_parameters.adapters). */
double sl_transformer_adapters(const struct sl_transformer *transformer, const char *patterns);
/* Floating-point operations per token of a training step, in sequences of SEQUENCE tokens: those of forward, and twice
 * as many in backward, but only once as many for products whose kernels do not train because adapters do. Includes the
 * products with parameters used by a token, and causal attention; adapters' own products are 6 more operations for each
 * of sl_transformer_adapters. */
double sl_transformer_flops(const struct sl_transformer *transformer, int sequence);

SL_END_C
#endif
