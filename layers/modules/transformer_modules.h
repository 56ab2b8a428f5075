/* transformer_modules.h - the modules of a transformer whose channels are sharded over an axis ("tensor"), and whose
 * kernels over another one ("data": FSDP, ZeRO's third stage).
 *
 * Between modules a coordinate has x [rows, columns / tensor] of a microbatch's tokens: equal, contiguous shares of the
 * columns, or of each of their segments where they have several ([kv|q]: a share of kv, then one of q). All columns
 * below are the whole's, and where they do not divide, planning says so (SL_BAD_INPUT). Which axis shards which dim of
 * a parameter say the rules of the plan (layers/modules/rules.h); a mesh without the axis does not shard.
 *
 * Gradients that W leaves are complete over the tensor axis, and those of FSDP's kernels are sums over data as well;
 * whoever reduces gradients over data leaves these out. Constructors behave as those in modules.h. */
#ifndef SL_LAYERS_MODULES_TRANSFORMER_MODULES_H
#define SL_LAYERS_MODULES_TRANSFORMER_MODULES_H

#include "layers/modules/modules.h"

SL_BEGIN_C

/* Where a module lives: the mesh, and the axis of its channels. */
struct sl_channels {
    const struct sl_mesh *mesh;
    const char *axis; /* "tensor"; outlives the modules */
};

/* y = x kernel + bias, kernel [IN, OUT] lecun-normal, bias [OUT] zeros. Each coordinate multiplies its columns of x by
 * its rows of the kernel; what all make is added up and scattered over the columns of y (psum_scatter); backward
 * gathers dy. A kernel whose columns a rule shards is gathered just before each product, in the precision of products,
 * and its gradient is scattered (psum_scatter) as soon as it has been made. SEGMENTS_IN, SEGMENTS_OUT (at least 1): of
 * columns of x and y. */
struct sl_module *sl_sharded_dense(const char *name, int in, int out, int segments_in, int segments_out,
                                   const struct sl_channels *channels);
/* The same, but all coordinates along the axis have all of y (psum), and each its share of the sum dy. */
struct sl_module *sl_summed_dense(const char *name, int in, int out, int segments_in,
                                  const struct sl_channels *channels);

/* y = x / sqrt(mean of x^2 over the whole row + 1e-6) gamma + beta; gamma ones, beta zeros [COLUMNS]. */
struct sl_module *sl_rms_norm(const char *name, int columns, const struct sl_channels *channels);

/* The tanh form; COLUMNS are a coordinate's own. */
struct sl_module *sl_gelu(int columns);

/* Drops by (global row, column of the whole row): the same elements in every layout. */
struct sl_module *sl_sharded_dropout(int columns, double rate, const struct sl_channels *channels);

/* Multi-head latent attention (DeepSeek-V2, 2024) with rotary positions applied before the split into heads: parameters
 * NAME.down [C, 2L] to [kv latent | q latent], NAME.kv_up [L, 2C] to [k | v], NAME.q_up [L, C], NAME.out [C, C], and,
 * where rope > 0, NAME.k_rope [2L, rope], shared by all heads, and NAME.q_rope [2L, rope * heads]. A coordinate has
 * whole heads, since kv_up's sums are scattered within k and within v: heads divide by the axis's size. Position t
 * rotates pair i of D columns by (t + 1) 10000^(-2i/D). */
struct sl_mla {
    int dimension, heads, latent, rope;
    int positions;  /* at most */
    double dropout; /* of what it adds to the residual */
};
struct sl_module *sl_mla(const char *name, const struct sl_mla *shape, const struct sl_channels *channels);

/* The same as sl_sharded_dense without segments, but with a kernel and a bias for each of EXPERTS, kernel [experts, IN,
 * OUT] and bias [experts, OUT], which are sharded over AXIS. Rows are those of a coordinate's experts, as many for
 * each, one expert's after another's: all that come to them, and so gradients are complete over AXIS, too. AXIS
 * outlives the module. */
struct sl_module *sl_expert_dense(const char *name, int experts, const char *axis, int in, int out,
                                  const struct sl_channels *channels);

/* A mixture of experts (Shazeer et al. 2017; Lepikhin et al., "GShard", 2020) in place of an MLP: a router scores the
 * experts for each token, and the token's row is a sum over those of the largest probabilities (softmax of x kernel),
 * weighted by these as shares of their sum; the only one, by its probability (Fedus et al., "Switch", 2021). Parameters
 * NAME.router.kernel [C, experts], NAME.experts.{up,down}, NAME.shared.{up,down}.
 *
 * Experts are sharded over AXIS, whose coordinates have other tokens: rows travel to their experts and back
 * (all_to_all). An expert has so many slots for each sequence of T tokens: capacity * T * choices / experts, rounded
 * up, at most T; slots are given to a sequence's tokens in their order, and who finds none left goes without that
 * expert. So what is dropped depends on the sequence alone, and of it on what comes before a token. Where there are
 * caches, to generate, nothing is dropped.
 *
 * The load-balance loss of a sequence is experts * sum over experts of (share of choices) * (mean probability), 1 where
 * all are alike; metrics->auxiliary gets it once a token, and the gradient BALANCE times its mean over tokens. */
struct sl_experts {
    int dimension, inside; /* columns: of the model, inside an expert */
    int experts, choices;  /* and how many of them a token goes to */
    int shared;            /* columns inside an MLP that all tokens pass beside them; 0: none */
    double capacity;       /* factor; 0: nothing is dropped */
    double balance;        /* weight of the load-balance loss */
    const char *axis;      /* "data"; outlives the module */
};
struct sl_module *sl_experts(const char *name, const struct sl_experts *shape, const struct sl_channels *channels);

/* How the token table "embedding" [vocabulary, dimension] is used; its two ends are tied (sl_plan_parameter_tied).
 * Where the rules shard its rows (vocabulary-parallel), each coordinate looks up and multiplies with its own. */
struct sl_vocabulary {
    int size, dimension;
    bool parallel; /* the table's rows are sharded over the channels' axis */
};
/* Tokens of the context's batch to y: its x has one column that nobody reads. Each coordinate looks up its share of
 * each sequence, then sequence becomes channels (all_to_all); where that does not divide, all look up all tokens and
 * keep their channels; parallel: sums of lookups are scattered over channels. */
struct sl_module *sl_token_embedding(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
/* logits = x table^T. Channels become sequence again, so that each coordinate has all logits of its share of the tokens
 * [rows / tensor, vocabulary], or, where that does not divide or in prefill and decode, all logits of all tokens;
 * parallel: [rows, vocabulary / tensor]. In prefill and decode only each sequence's last token counts, and its logits
 * are whole everywhere: [sequences, vocabulary]. Its out is floats a row of the largest of these that the plan makes:
 * vocabulary / tensor rounded up, or the vocabulary. */
struct sl_module *sl_tied_logits(const struct sl_vocabulary *vocabulary, int sequence,
                                 const struct sl_channels *channels);
/* Softmax cross entropy over what tied logits leave. Loss, hits and rows count each token once a coordinate along the
 * axis, as modules whose peers have the same rows do. In prefill and decode the loss only hands the logits on (y = x).
 */
struct sl_module *sl_token_loss(const struct sl_vocabulary *vocabulary, int sequence,
                                const struct sl_channels *channels);

/* INNER's forward runs again before its backward: between the two only x is kept. Takes ownership of INNER. */
struct sl_module *sl_recompute(struct sl_module *inner);

SL_END_C
#endif
