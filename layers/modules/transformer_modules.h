/* transformer_modules.h - the modules of a transformer. Their channels are sharded over one axis ("tensor"), and their
 * kernels may also be sharded over another ("data": FSDP, ZeRO's third stage).
 *
 * Between modules a coordinate has x [rows, columns / tensor] for all tokens of a microbatch: one of the equal,
 * contiguous shares of the columns. If the columns consist of several segments, it has such a share of each segment
 * ([kv|q]: a share of kv, then a share of q). All numbers of columns below count the whole row; if the axis's size does
 * not divide them, planning fails with SL_BAD_INPUT. The rules of the plan choose the axis that shards each dim of a
 * parameter (layers/modules/parameters/rules.h). An axis missing in the mesh does not shard.
 *
 * W writes gradients that are complete over the tensor axis; gradients of FSDP's kernels are also summed over data, so
 * the data-parallel sum must skip them. Constructors behave as in modules.h. */
#ifndef SL_LAYERS_MODULES_TRANSFORMER_MODULES_H
#define SL_LAYERS_MODULES_TRANSFORMER_MODULES_H

#include "layers/modules/modules.h"

SL_BEGIN_C

/* Low-rank adapters beside dense layers (Hu et al., "LoRA", 2021): y = x kernel + bias + scale (x A) B, with parameters
 * NAME.lora_a.kernel [IN, rank], random, and NAME.lora_b.kernel [rank, OUT], zeros. A is sharded like the kernel's
 * rows, B like the columns of y; neither over data. */
struct sl_lora {
    int rank;     /* 0: no adapters */
    double alpha; /* the scale is alpha / rank; 0: alpha is twice the rank */
};
float sl_lora_scale(int rank, double alpha);
/* The end of the names of adapters' parameters, after the layer's name and a dot, as a pattern for
 * sl_parameters.adapters. */
extern const char sl_lora_parameters[];

/* Layout of arrays between modules over the channels' axis. Either layout has the same number of elements on each
 * coordinate, so modules that work on elements, such as residual connections, do not know it. */
enum sl_tensor_layout {
    SL_TENSOR_COLUMNS, /* [rows, columns / size]: a share of the columns of all rows */
    SL_TENSOR_ROWS     /* [rows / size, columns]: a share of the rows of each sequence (Korthikanti et al., "Reducing
                          activation recomputation in large transformer models", 2022) */
};

/* Mesh of a module, and the axis of its channels. */
struct sl_channels {
    const struct sl_mesh *mesh;
    const char *axis;           /* shards the channels: "tensor"; must outlive the modules */
    const struct sl_lora *lora; /* adapters of sl_sharded_dense and the three constructors like it; NULL: none */
    int pieces; /* number of pieces in which sl_sharded_dense scatters and gathers a microbatch's rows, in parallel with
                   products; 0 counts as 1 */
    int layout; /* enum sl_tensor_layout */
};
/* Whether a coordinate has a share of the rows. */
static inline bool sl_channels_by_rows(const struct sl_channels *channels) {
    return channels->layout == SL_TENSOR_ROWS && sl_mesh_axis_size(channels->mesh, channels->axis) > 1;
}

/* y = x kernel + bias; kernel [IN, OUT] lecun-normal, bias [OUT] zeros. Each coordinate multiplies its columns of x by
 * its rows of the kernel. The products of all coordinates are summed and scattered over the columns of y
 * (psum_scatter); backward gathers dy. If a rule shards the kernel's columns, they are gathered just before each
 * product, in the precision of products, and the kernel's gradient is scattered (psum_scatter) as soon as it has been
 * computed. SEGMENTS_IN and SEGMENTS_OUT (at least 1) are the numbers of segments of x's and of y's columns. */
struct sl_module *sl_sharded_dense(const char *name, int in, int out, int segments_in, int segments_out,
                                   const struct sl_channels *channels);
/* Writes Y [IN, own columns of y] of a sharded_dense with one segment of x: all rows of the kernel's columns, gathered
 * from the coordinates that have them. Collective over the coordinates that share the kernel. Call it only if there
 * were caches, or no FSDP in bf16, when the module was planned. */
int sl_sharded_dense_columns(const struct sl_module *module, struct sl_context *context, float *y);
/* With BY_COLUMNS, a sharded_dense without adapters and with one segment of x computes no products: its parent does, by
 * sl_sharded_dense_columns. In I the parent passes the gradients KERNEL [IN, own columns of y] and BIAS [own columns]
 * of each of the call's microbatches to sl_sharded_dense_give, which is collective, then calls backward_input; W adds
 * these gradients. Call it before the module is planned. */
void sl_sharded_dense_by_columns(struct sl_module *module, bool by_columns);
int sl_sharded_dense_give(const struct sl_module *module, struct sl_context *context, size_t microbatch,
                          const float *kernel, const float *bias);
/* As sl_sharded_dense, but every coordinate along the axis has all columns of y (psum). Each receives its own summand
 * of dy; backward sums them. */
struct sl_module *sl_summed_dense(const char *name, int in, int out, int segments_in,
                                  const struct sl_channels *channels);

/* sl_sharded_dense and sl_summed_dense without a bias and without segments. */
struct sl_module *sl_sharded_product(const char *name, int in, int out, const struct sl_channels *channels);
struct sl_module *sl_summed_product(const char *name, int in, int out, const struct sl_channels *channels);

/* The first and the last products of a block, IN and OUT columns of the whole layer, with a bias if BIASED. By columns
 * they are sl_sharded_dense. By rows they are those of Megatron (Shoeybi et al. 2019) inside sl_gathered_rows: the
 * first reads whole rows and has shards of its kernel's columns, each of SEGMENTS_OUT segments separately; the last has
 * shards of its kernel's rows, and its sums are scattered over the rows of each sequence. Parameters have the same
 * names and shapes in both. */
struct sl_module *sl_first_dense(const char *name, int in, int out, int segments_out, bool biased,
                                 const struct sl_channels *channels);
struct sl_module *sl_last_dense(const char *name, int in, int out, bool biased, const struct sl_channels *channels);

/* By rows: INNER with the rows of all coordinates as its x; INNER's y is this coordinate's share. By columns: INNER
 * itself. Forward gathers x, backward scatters the sum of dx, and W gathers x again, so only the share is saved.
 * INNER's x must be read by W alone. Takes ownership of INNER. */
struct sl_module *sl_gathered_rows(struct sl_module *inner, const struct sl_channels *channels);
/* By rows: INNER, which takes whole rows, for this coordinate's rows alone; W sums its gradients over the coordinates.
 * By columns: INNER itself. Takes ownership of INNER, whose parameters are not sharded. */
struct sl_module *sl_own_rows(struct sl_module *inner, const struct sl_channels *channels);
/* The same for all rows, of which each coordinate has a summand of dy and dx. */
struct sl_module *sl_summed_gradients(struct sl_module *inner, const struct sl_channels *channels);
/* By rows: y = the rows of all coordinates, COLUMNS of each; backward sums dy over them, and scatters it. */
struct sl_module *sl_all_rows(int columns, const struct sl_channels *channels);

/* y = x / sqrt(mean of x^2 over the whole row + 1e-6) gamma + beta; gamma ones, beta zeros [COLUMNS]. */
struct sl_module *sl_rms_norm(const char *name, int columns, const struct sl_channels *channels);

/* sl_rms_norm with another epsilon. If it CENTERS, it is a layer norm: it subtracts from x the mean over the whole row.
 * Only if it SHIFTS does it have beta. */
struct sl_norm_kind {
    bool centers, shifts;
    double epsilon;
};
struct sl_module *sl_sharded_norm(const char *name, int columns, const struct sl_norm_kind *kind,
                                  const struct sl_channels *channels);
/* y = x minus its mean over the whole row. */
struct sl_module *sl_sharded_center(int columns, const struct sl_channels *channels);

/* y = gelu(x), exact (erf). COLUMNS are the columns of one coordinate. */
struct sl_module *sl_erf_gelu(int columns);

/* Dropout with random words from (global row, column of the whole row): it drops the same elements in every layout. */
struct sl_module *sl_sharded_dropout(int columns, double rate, const struct sl_channels *channels);

/* Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024), with rotary positions applied before the split into
 * heads. With C = dimension and L = latent, its parameters are NAME.down [C, 2L] to [kv latent | q latent], NAME.kv_up
 * [L, 2C] to [k | v], NAME.q_up [L, C], NAME.out [C, C] and, if rope > 0, NAME.k_rope [2L, rope], shared by all heads,
 * and NAME.q_rope [2L, rope * heads]. A coordinate has whole heads, because the sums of kv_up are scattered within k
 * and within v; so the axis's size must divide the number of heads. Position t rotates pair i of D columns by the angle
 * (t + 1) 10000^(-2i/D). */
struct sl_mla {
    int dimension, heads, latent, rope;
    int positions;  /* length of the longest sequence */
    double dropout; /* dropout rate of attention's output, before the residual sum */
};
struct sl_module *sl_mla(const char *name, const struct sl_mla *shape, const struct sl_channels *channels);

/* Rotary positions: position t, counted from 0, rotates pair i of WIDTH columns by the angle t base^(-2i / WIDTH).
 * Llama 3 slows down slow rotations: waves longer than original / low positions become FACTOR times as long, waves
 * shorter than original / high do not change, and waves between them change gradually. */
struct sl_rotary {
    bool pairs; /* pair i is columns 2i and 2i + 1; otherwise i and i + WIDTH / 2 */
    double base;
    double factor, low, high, original; /* factor 0: no change */
    const float *divisors; /* [WIDTH / 2] divisors of the pairs' rates, which must outlive modules; NULL: 1 */
    double amplitude;      /* factor of rotated queries and keys; 0 counts as 1 */
};

/* Total divisor of the rate of pair PAIR of WIDTH columns. */
double sl_rotary_divisor(const struct sl_rotary *rotary, int pair, int width);

/* Attention with equal groups of query heads that share heads of keys and values (Ainslie et al., "GQA", 2023). With C
 * = dimension its parameters are NAME.q [C, heads * width], NAME.k and NAME.v [C, key_heads * width], NAME.out [heads *
 * width, C], and with head norms NAME.q_norm and NAME.k_norm, each with a scale [width]: before rotation a head is
 * divided by its root mean square. The axis's size must divide the number of heads. If it also divides the number of
 * key heads, each coordinate has its own key heads; otherwise each computes all of them, and reads the heads shared by
 * its query heads. */
struct sl_gqa {
    int dimension, heads, key_heads, width;
    bool biases, out_bias; /* biases of q, k and v; bias of out */
    bool head_norms;
    double epsilon; /* epsilon of the head norms */
    bool rotates;
    struct sl_rotary rotary;
    int window;     /* largest number of tokens that a token attends to, itself included; 0: all before it */
    int positions;  /* length of the longest sequence */
    double dropout; /* dropout rate of attention's output, before the residual sum */
};
struct sl_module *sl_gqa(const char *name, const struct sl_gqa *shape, const struct sl_channels *channels);
/* Child of sl_gqa. y = x / sqrt(mean of x^2 over a head's columns + EPSILON) NAME.scale [width], head by head, for this
 * coordinate's HEADS. */
struct sl_module *sl_head_norm(const char *name, int heads, int width, double epsilon,
                               const struct sl_channels *channels);

/* y = (silu(x gate) * (x up)) down: an MLP with INSIDE columns inside, and parameters NAME.gate, NAME.up and
 * NAME.down. */
struct sl_module *sl_gated_mlp(const char *name, int dimension, int inside, bool biases,
                               const struct sl_channels *channels);

/* As sl_sharded_dense without segments, but each of EXPERTS has a kernel and a bias of its own: kernel [EXPERTS, IN,
 * OUT] and bias [EXPERTS, OUT], sharded over AXIS by experts. The rows of x belong to this coordinate's experts: first
 * all rows of one expert, then as many of the next. They are all rows of these experts, so gradients are complete over
 * AXIS as well. AXIS must outlive the module. */
struct sl_module *sl_expert_dense(const char *name, int experts, const char *axis, int in, int out,
                                  const struct sl_channels *channels);

/* A mixture of experts (Shazeer et al. 2017; Lepikhin et al., "GShard", 2020) in place of an MLP. A router scores the
 * experts for each token: the probabilities are softmax(x kernel). The token goes to the `choices` experts with the
 * largest probabilities, and its y is the weighted sum of their outputs; the weights are these probabilities divided by
 * their sum. With one choice the weight is the probability itself (Fedus et al., "Switch", 2021). Parameters:
 * NAME.router.kernel [C, experts], NAME.experts.{up,down}, NAME.shared.{up,down}.
 *
 * Experts are sharded over `axes`, whose coordinates have different tokens: rows travel to their experts and back
 * (all_to_all; over the axis of divided sequences, psum_scatter and all_gather). For each sequence of T tokens an
 * expert has capacity * T * choices / experts slots, rounded up, and at most T. The tokens of a sequence get slots in
 * their order; a token without a free slot skips that expert. Dropping a token thus depends only on its sequence up to
 * that token. With caches, in generation, no token is dropped.
 *
 * The load-balance loss of a sequence is experts * sum over experts of (share of choices) * (mean probability); it is 1
 * if all experts are used alike. It is added to metrics->auxiliary once for each token, and its mean over tokens,
 * multiplied by BALANCE, contributes to the gradient. */
struct sl_experts {
    int dimension, inside; /* columns of the model, and inside an expert */
    int experts, choices;  /* number of experts; experts per token */
    int shared;            /* columns inside a shared MLP for all tokens, beside the experts; 0: no shared MLP */
    double capacity;       /* factor of the number of slots; 0: no token is dropped */
    double balance;        /* weight of the load-balance loss */
    const char *axes; /* shard the experts: "data", or "data,context" if sequences may be divided over the latter; must
                         outlive the module */
    const char *axis; /* of these, the one along which coordinates have different sequences */
};
struct sl_module *sl_experts(const char *name, const struct sl_experts *shape, const struct sl_channels *channels);

/* Use of the token table "embedding" [vocabulary, dimension]. The embedding and the logits share it
 * (sl_plan_parameter_tied), unless the head has a table of its own, "head" of the same shape. If the rules shard its
 * rows (vocabulary-parallel), each coordinate looks up and multiplies with its own rows. */
struct sl_vocabulary {
    int size, dimension;
    bool parallel;       /* the table's rows are sharded over the channels' axis */
    int chunk;           /* classes per chunk of logits in sl_token_head; 0: up to 4096, depending on the size alone */
    bool keeps_logits;   /* saves logits from forward to W, instead of computing them again; bits are the same */
    int shards, shard;   /* number of pipeline ranks that share the table's rows, and this rank's index; 0 shards: one
                            rank has them all */
    const char *stages;  /* axis of these ranks */
    int lookers, looker; /* number of ranks with the whole table that share the microbatches for the lookup, each with
                            consecutive ones, and this rank's index; 0 lookers: one rank looks up all */
    int microbatches;    /* of a step, if ranks share them */
    bool own_head;       /* the head's table is "head" */
    bool copied;         /* each rank of a pipeline has the whole head's table */
    bool halves;         /* the storage is bf16: shares of the head send x and rows of the table as bf16 */
};
/* Returns whether stages can share the table: they have whole chunks, so sums do not depend on the number of stages. */
bool sl_vocabulary_divides(const struct sl_vocabulary *vocabulary);
/* y = the table's rows of the tokens in the context's batch. x has one column, which is not read. If stages share the
 * table, each adds its own rows to x, beginning with shard 0. If ranks share the microbatches, a rank writes x to y for
 * another rank's microbatch; the first rank, which has no x, writes zeros. Each coordinate looks up its share of each
 * sequence, then an all_to_all exchanges shares of sequences for shares of channels. If sequences do not divide, every
 * coordinate looks up all tokens and uses its channels. Vocabulary-parallel: the sums of all coordinates' lookups are
 * scattered over channels. */
struct sl_module *sl_token_embedding(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
/* y = x + rows of a table "positions" [ROWS, DIMENSION], chosen by the tokens' positions, counted from 0. */
struct sl_module *sl_learned_positions(int rows, int dimension, const struct sl_channels *channels);
/* Loss of a language model: softmax cross entropy of logits = x table^T. It takes x [rows, own channels], and forward
 * writes dx; its W computes the table's gradient. Logits are computed a chunk of classes at a time: an array of [rows,
 * vocabulary] exists only if one chunk has all classes, or if the logits are saved.
 *
 * Shares of channels are exchanged for shares of sequences, so each coordinate computes its tokens with all classes. If
 * sequences do not divide, each coordinate computes all tokens. Vocabulary-parallel: all tokens, with its own classes.
 * Each token adds to loss, hits and rows once for each coordinate along the axis, as if every coordinate had counted
 * it.
 *
 * In prefill and decode it writes the whole logits of the last token of each sequence, the same on all coordinates: y
 * [sequences, vocabulary]. The module's `out` is then vocabulary / tokens of a sequence, rounded up. */
struct sl_module *sl_token_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* The same head, spread over the ranks of a pipeline: each rank has 1 / vocabulary->shards of the table's rows, and its
 * share is a stage (layers/modules/sequence/token_spread.c). sl_spread_begin follows the model's last layer,
 * sl_spread_loss is the loss; both get shard 0. Bits are the same as in sl_token_head. These modules send
 * sl_spread_columns columns to the next stage. */
struct sl_module *sl_spread_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_spread_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_spread_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
int sl_spread_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* The same head with the whole table on each of PARTS ranks of a pipeline. Rank PART computes 1 / PARTS of each
 * microbatch's tokens, and its share is a stage (layers/modules/sequence/token_rows.c). sl_rows_begin follows the
 * model's last layer, sl_rows_loss is the loss. The order of sums in losses and gradients differs from sl_token_head.
 * These modules send sl_rows_columns columns to the next stage. */
struct sl_module *sl_rows_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_rows_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels, int parts,
                               int part);
struct sl_module *sl_rows_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
int sl_rows_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* Saves only x between forward and backward, and runs INNER's forward again before its backward. Takes ownership of
 * INNER. */
struct sl_module *sl_recompute(struct sl_module *inner);

SL_END_C
#endif
