/* transformer_modules.h - the modules of a transformer. Their channels are sharded over one axis ("tensor"), and their
 * kernels may also be sharded over another ("data": FSDP, ZeRO's third stage).
 *
 * Between modules a coordinate has x [rows, columns / tensor] for all tokens of a microbatch: one of the equal,
 * contiguous shares of the columns. If the columns consist of several segments, it has such a share of each segment
 * ([kv|q]: a share of kv, then a share of q). All numbers of columns below are those of the whole row; planning fails
 * with SL_BAD_INPUT if they do not divide. The rules of the plan say which axis shards which dim of a parameter
 * (layers/modules/parameters/rules.h). An axis that the mesh lacks does not shard.
 *
 * The gradients that W leaves are complete over the tensor axis, and those of FSDP's kernels are also summed over data:
 * these must be left out when gradients are summed over data. Constructors behave as those in modules.h. */
#ifndef SL_LAYERS_MODULES_TRANSFORMER_MODULES_H
#define SL_LAYERS_MODULES_TRANSFORMER_MODULES_H

#include "layers/modules/modules.h"

SL_BEGIN_C

/* Adapters of low rank beside dense layers (Hu et al., "LoRA", 2021): y = x kernel + bias + scale (x A) B, with
 * parameters NAME.lora_a.kernel [IN, rank], random, and NAME.lora_b.kernel [rank, OUT], zeros. A is sharded as the
 * kernel's rows, B as the columns of y; neither over data. */
struct sl_lora {
    int rank;     /* 0: there are none */
    double alpha; /* the scale is alpha / rank; 0: alpha is twice the rank */
};
float sl_lora_scale(int rank, double alpha);
/* The end of the names of their parameters, after the layer's name and a dot: a pattern, for sl_parameters.adapters. */
extern const char sl_lora_parameters[];

/* The mesh of a module, and the axis that shards its channels. */
struct sl_channels {
    const struct sl_mesh *mesh;
    const char *axis;           /* shards the channels: "tensor"; must outlive the modules */
    const struct sl_lora *lora; /* sl_sharded_dense and the three like it have adapters; NULL: they have none */
    int pieces; /* in which sl_sharded_dense scatters and gathers a microbatch's rows, beside products; 0 counts as 1 */
};

/* y = x kernel + bias; kernel [IN, OUT] lecun-normal, bias [OUT] zeros. Each coordinate multiplies its columns of x by
 * its rows of the kernel. The products of all coordinates are summed and scattered over the columns of y
 * (psum_scatter); backward gathers dy. If a rule shards the kernel's columns, they are gathered just before each
 * product, in the precision of products, and the kernel's gradient is scattered (psum_scatter) as soon as it has been
 * computed. SEGMENTS_IN and SEGMENTS_OUT (at least 1) are the numbers of segments of x's and of y's columns. */
struct sl_module *sl_sharded_dense(const char *name, int in, int out, int segments_in, int segments_out,
                                   const struct sl_channels *channels);
/* Y [IN, own columns of y], of a sharded_dense of one segment of x: all rows of these columns of the kernel, whichever
 * coordinates have them. Collective over those that share the kernel. Call it only if there were caches, or no FSDP in
 * bf16, when the module was planned. */
int sl_sharded_dense_columns(const struct sl_module *module, struct sl_context *context, float *y);
/* As sl_sharded_dense, but every coordinate along the axis has all columns of y (psum). Each is given its own summand
 * of dy; backward adds these up. */
struct sl_module *sl_summed_dense(const char *name, int in, int out, int segments_in,
                                  const struct sl_channels *channels);

/* Both without a bias and without segments. */
struct sl_module *sl_sharded_product(const char *name, int in, int out, const struct sl_channels *channels);
struct sl_module *sl_summed_product(const char *name, int in, int out, const struct sl_channels *channels);

/* y = x / sqrt(mean of x^2 over the whole row + 1e-6) gamma + beta; gamma ones, beta zeros [COLUMNS]. */
struct sl_module *sl_rms_norm(const char *name, int columns, const struct sl_channels *channels);

/* The same with another epsilon, without beta unless it SHIFTS, and of x less its mean over the whole row if it
 * CENTERS: which is a layer norm. */
struct sl_norm_kind {
    bool centers, shifts;
    double epsilon;
};
struct sl_module *sl_sharded_norm(const char *name, int columns, const struct sl_norm_kind *kind,
                                  const struct sl_channels *channels);
/* y = x less its mean over the whole row. */
struct sl_module *sl_sharded_center(int columns, const struct sl_channels *channels);

/* y = gelu(x) as its erf has it. COLUMNS are those that a coordinate has. */
struct sl_module *sl_erf_gelu(int columns);

/* Dropout whose random words follow from (global row, column of the whole row): it drops the same elements in every
 * layout. */
struct sl_module *sl_sharded_dropout(int columns, double rate, const struct sl_channels *channels);

/* Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024), with rotary positions applied before the split into
 * heads. With C = dimension and L = latent, its parameters are NAME.down [C, 2L] to [kv latent | q latent], NAME.kv_up
 * [L, 2C] to [k | v], NAME.q_up [L, C], NAME.out [C, C] and, if rope > 0, NAME.k_rope [2L, rope], which all heads
 * share, and NAME.q_rope [2L, rope * heads]. A coordinate has whole heads, as the sums of kv_up are scattered within k
 * and within v; so the number of heads must divide by the axis's size. Position t rotates pair i of D columns by the
 * angle (t + 1) 10000^(-2i/D). */
struct sl_mla {
    int dimension, heads, latent, rope;
    int positions;  /* the longest sequence */
    double dropout; /* rate of dropout on what attention adds to the residual */
};
struct sl_module *sl_mla(const char *name, const struct sl_mla *shape, const struct sl_channels *channels);

/* Rotary positions: position t, counted from 0, turns pair i of WIDTH columns by the angle t base^(-2i / WIDTH). Llama
 * 3 stretches slow turns: those with a wave of more than original / low positions take FACTOR times as long, those with
 * one of less than original / high stay as they are, and between them it goes from one to the other. */
struct sl_rotary {
    bool pairs; /* pair i is columns 2i and 2i + 1; otherwise i and i + WIDTH / 2 */
    double base;
    double factor, low, high, original; /* factor 0: nothing is stretched */
    const float *divisors; /* [WIDTH / 2] what the pairs' rates are divided by; NULL: 1. They must outlive modules. */
    double amplitude;      /* rotated queries and keys are multiplied by it; 0: 1 */
};

/* By what the rate of pair PAIR of WIDTH columns is divided, in all. */
double sl_rotary_divisor(const struct sl_rotary *rotary, int pair, int width);

/* Attention whose query heads share heads of keys and values, in groups of equally many (Ainslie et al., "GQA", 2023).
 * With C = dimension its parameters are NAME.q [C, heads * width], NAME.k and NAME.v [C, key_heads * width], NAME.out
 * [heads * width, C], and with head norms NAME.q_norm and NAME.k_norm, each with a scale [width]: before rotation a
 * head is divided by its root mean square. The number of heads must divide by the axis's size. If that of key heads
 * does so, too, each coordinate has its own ones; otherwise each computes all of them, and reads those that its query
 * heads share. */
struct sl_gqa {
    int dimension, heads, key_heads, width;
    bool biases, out_bias; /* of q, k and v; of out */
    bool head_norms;
    double epsilon; /* of these */
    bool rotates;
    struct sl_rotary rotary;
    int window;     /* tokens that one attends to at most, itself among them; 0: all before it */
    int positions;  /* the longest sequence */
    double dropout; /* rate of dropout on what attention adds to the residual */
};
struct sl_module *sl_gqa(const char *name, const struct sl_gqa *shape, const struct sl_channels *channels);
/* For its children. y = x / sqrt(mean of x^2 over a head's columns + EPSILON) NAME.scale [width], head by head, of the
 * HEADS that this coordinate has. */
struct sl_module *sl_head_norm(const char *name, int heads, int width, double epsilon,
                               const struct sl_channels *channels);

/* y = (silu(x gate) * (x up)) down: an MLP with INSIDE columns inside, and parameters NAME.gate, NAME.up and NAME.down.
 */
struct sl_module *sl_gated_mlp(const char *name, int dimension, int inside, bool biases,
                               const struct sl_channels *channels);

/* As sl_sharded_dense without segments, but each of EXPERTS has a kernel and a bias of its own: kernel [EXPERTS, IN,
 * OUT] and bias [EXPERTS, OUT], sharded over AXIS by experts. The rows of x are those of this coordinate's experts:
 * first all rows of one expert, then as many of the next. They are all the rows that go to these experts, so gradients
 * are complete over AXIS as well. AXIS must outlive the module. */
struct sl_module *sl_expert_dense(const char *name, int experts, const char *axis, int in, int out,
                                  const struct sl_channels *channels);

/* A mixture of experts (Shazeer et al. 2017; Lepikhin et al., "GShard", 2020) in place of an MLP. A router scores the
 * experts for each token: the probabilities are softmax(x kernel). The token goes to the `choices` experts with the
 * largest probabilities, and its y is the weighted sum of their outputs; the weights are these probabilities divided by
 * their sum. With one choice the weight is the probability itself (Fedus et al., "Switch", 2021). Parameters:
 * NAME.router.kernel [C, experts], NAME.experts.{up,down}, NAME.shared.{up,down}.
 *
 * Experts are sharded over `axis`, whose coordinates have different tokens: rows travel to their experts and back
 * (all_to_all). For each sequence of T tokens an expert has capacity * T * choices / experts slots, rounded up, and at
 * most T. The tokens of a sequence get slots in their order; a token that finds no slot left goes without that expert.
 * So whether a token is dropped depends only on its sequence up to that token. If there are caches, for
 * generation, nothing is dropped.
 *
 * The load-balance loss of a sequence is experts * sum over experts of (share of choices) * (mean probability); it is 1
 * if all experts are used alike. It is added to metrics->auxiliary once for each token, and its mean over tokens,
 * multiplied by BALANCE, contributes to the gradient. */
struct sl_experts {
    int dimension, inside; /* columns of the model, and inside an expert */
    int experts, choices;  /* number of experts, and how many of them a token goes to */
    int shared;            /* columns inside an MLP beside the experts that all tokens pass; 0: there is none */
    double capacity;       /* factor of the number of slots; 0: nothing is dropped */
    double balance;        /* weight of the load-balance loss */
    const char *axis;      /* shards the experts: "data"; must outlive the module */
};
struct sl_module *sl_experts(const char *name, const struct sl_experts *shape, const struct sl_channels *channels);

/* How the token table "embedding" [vocabulary, dimension] is used. The embedding and the logits share it
 * (sl_plan_parameter_tied), unless the head has a table of its own, "head" of the same shape. If the rules shard its
 * rows (vocabulary-parallel), each coordinate looks up and multiplies with its own rows. */
struct sl_vocabulary {
    int size, dimension;
    bool parallel;     /* the table's rows are sharded over the channels' axis */
    int chunk;         /* classes of which sl_token_head makes logits at a time; 0: up to 4096, by the size alone */
    bool keeps_logits; /* from forward to W, in place of making them again; no bit depends on it */
    int shards,
        shard; /* the ranks of a pipeline share the table's rows, and this is rank `shard`; 0 shards: one does */
    const char *stages; /* the axis of these ranks */
    bool own_head;      /* the head's table is "head" */
    bool copied;        /* each rank of a pipeline has the whole head's table */
    bool halves;        /* the storage is bf16: x and rows of the table are handed over so by shares of the head */
};
/* Whether stages can share the table: they have whole chunks, so that what is added up does not depend on how many
 * there are. */
bool sl_vocabulary_divides(const struct sl_vocabulary *vocabulary);
/* y = the table's rows of the tokens in the context's batch. x has one column, which nobody reads. Where stages share
 * the table, each adds its own rows to x, and the first one, shard 0, begins. Each coordinate
 * looks up its share of each sequence, then an all_to_all exchanges shares of sequences for shares of channels. If
 * sequences do not divide, every coordinate looks up all tokens and keeps its channels. Vocabulary-parallel: the sums
 * of all coordinates' lookups are scattered over channels. */
struct sl_module *sl_token_embedding(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
/* y = x + the rows of a table "positions" [ROWS, DIMENSION] that the tokens' positions choose, counted from 0. */
struct sl_module *sl_learned_positions(int rows, int dimension, const struct sl_channels *channels);
/* The loss of a language model: softmax cross entropy of logits = x table^T. It takes x [rows, own channels], and
 * forward gives dx; its W is the table's gradient. Logits are made of a chunk of classes at a time: there is no array
 * of [rows, vocabulary] unless one chunk has all classes, or the logits are kept.
 *
 * Shares of channels are exchanged for shares of sequences, so that each coordinate does its tokens with all classes.
 * If sequences do not divide, each does all tokens. Vocabulary-parallel: all tokens, with its own classes. Each token
 * adds to loss, hits and rows once for each coordinate along the axis, as if every coordinate had counted it.
 *
 * In prefill and decode it gives the whole logits of the last token of each sequence, the same on all coordinates: y
 * [sequences, vocabulary]. The module's `out` is then vocabulary / tokens of a sequence, rounded up. */
struct sl_module *sl_token_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* The same head, spread over the ranks of a pipeline, each of which has vocabulary->shards'th of the table's rows: its
 * share is a stage (layers/modules/sequence/token_spread.c). sl_spread_begin follows the model's last layer,
 * sl_spread_loss is the loss; both are given shard 0. Bits are those of sl_token_head. These modules hand over
 * sl_spread_columns columns. */
struct sl_module *sl_spread_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_spread_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_spread_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
int sl_spread_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* The same head with the whole table on each of PARTS ranks of a pipeline, of which PART does its PARTS'th of each
 * microbatch's tokens: its share is a stage (layers/modules/sequence/token_rows.c). sl_rows_begin follows the model's
 * last layer, sl_rows_loss is the loss. Losses and gradients are added up in another order than by sl_token_head. These
 * modules hand over sl_rows_columns columns. */
struct sl_module *sl_rows_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
struct sl_module *sl_rows_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels, int parts,
                               int part);
struct sl_module *sl_rows_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
int sl_rows_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);

/* Runs INNER's forward again before its backward, so that only x is kept between the two. Takes ownership of INNER. */
struct sl_module *sl_recompute(struct sl_module *inner);

SL_END_C
#endif
