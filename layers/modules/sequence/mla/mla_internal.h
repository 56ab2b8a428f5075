/* mla_internal.h - declarations shared by the files of latent attention: mla.c computes and trains it, mla_latents.c
 * has the latent and its gradient, mla_caches.c attends to cached tokens, mla_attend.c to the call's own. For divided
 * sequences, mla_context.c computes keys and values of all tokens from their latents. mla_operands.c has what these two
 * multiply in place of kv_up. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_MLA_MLA_INTERNAL_H
#define SL_LAYERS_MODULES_SEQUENCE_MLA_MLA_INTERNAL_H

#include "layers/modules/kept.h"
#include "layers/modules/sequence/cached.h"
#include "layers/modules/sequence/context.h"
#include "layers/modules/transformer_modules.h"

enum { DOWN, KV_UP, Q_UP, OUT, K_ROPE, Q_ROPE, CHILDREN }; /* the last two exist only with rope */

/* Arrays between the children: [rows, columns], except LOGSUM [heads, rows]. */
enum tensor {
    LATENT,    /* y of down: [kv | q] */
    KV_LATENT, /* its halves */
    Q_LATENT,
    KEYS_VALUES, /* [k | v] */
    QUERIES,
    ROTATED_KEYS,
    ROTATED_QUERIES,
    OUTPUT, /* output of attention */
    LOGSUM,
    D_LATENT, /* gradients; D_ROTATED_KEYS is a share of a sum over the coordinates */
    D_KEYS_VALUES,
    D_QUERIES,
    D_ROTATED_KEYS,
    D_ROTATED_QUERIES,
    D_OUTPUT,   /* in the memory of PART */
    PART,       /* one child's summand of D_LATENT */
    ALL_LATENT, /* with caches, or by_latents: kv latent columns of all coordinates along the axis */
    TENSORS
};

struct mla {
    struct sl_module module;
    struct sl_mla shape;
    const char *axis;   /* axis of the heads */
    int group;          /* that shares the latents' columns and kv_up's rows; -1: none */
    bool whole_latents; /* latents have all columns on each coordinate (tensor layout rows) */
    /* Sizes on this coordinate: */
    size_t heads, columns, latent;  /* columns: of each of q, k and v; latent: columns of each of kv and q latent */
    size_t rope, rotated;           /* columns of k_rope and of q_rope */
    enum sl_dtype precision;        /* type of products' operands */
    bool reads_stored;              /* forward's attention reads only the bf16 copies */
    struct sl_rope *keys, *queries; /* NULL without rotary positions */
    struct sl_kept kept[TENSORS];
    int leaves;                /* leaves with a separate part of the shared keys' gradient; 0 or 1: one gradient */
    struct sl_place leaf_keys; /* [leaves, rows, rope]: these parts */
    struct sl_place scratch;   /* scratch memory of attention: of backward, or of attention to latents */
    struct sl_place kernel;    /* kv_up's columns of own heads */
    struct sl_cached expanded; /* caches of the expanded form; merges attention to latents, too, if they are divided */
    /* Cache numbers of the latent form: [latent | rotated key], and kv_up in the kernels' layout. */
    int latents_cache, table_cache;
    struct sl_gemm expansion;                             /* product expanding latents: a chunk's, or all tokens' */
    struct sl_place widened, latents, rotated_keys, bias; /* the chunk's operands */
    struct sl_place others, others_logsum;                /* attention's results for the chunk */
    struct sl_context_keys context;                       /* of divided sequences */
    bool by_latents;            /* all tokens' latents are gathered, and their keys and values computed from them */
    struct sl_context_keys all; /* if so, array 0: latents of all tokens */
    struct sl_gemm latent_gradient, kernel_gradient;
    struct sl_place d_kernel, d_bias;
    struct sl_place rounded[3]; /* operands of bf16 products: all tokens' latents, the kernel, all gradients */
};

static inline const struct mla *sl_mla_of(const struct sl_module *module) { return (const struct mla *)module; }

static inline float *sl_mla_at(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_values(context, &sl_mla_of(module)->kept[tensor]);
}
/* TENSOR as a kernel must write it. */
static inline struct sl_out sl_mla_out(const struct sl_module *module, const struct sl_context *context,
                                       enum tensor tensor) {
    return sl_kept_out(context, &sl_mla_of(module)->kept[tensor]);
}
/* Rounds and stores TENSOR after it is written. */
static inline void sl_mla_keep(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    sl_keep(context, &sl_mla_of(module)->kept[tensor]);
}

/* Tensor read by each child, and gradient tensor of its y; at the ends, the module's own x and dy. */
extern const enum tensor sl_mla_input[CHILDREN], sl_mla_gradient[CHILDREN];

/* TENSOR in its saved type. */
struct sl_given sl_mla_stored(const struct sl_module *module, const struct sl_context *context, enum tensor tensor);
/* Child I's x in its saved type; X is the module's own. */
struct sl_given sl_mla_input_of(const struct sl_module *module, const struct sl_context *context, int i,
                                struct sl_given x);
/* Calls child I's backward_input, after its gradient has been written; X is the module's own. */
int sl_mla_backward_input(const struct sl_module *module, struct sl_context *context, int i, struct sl_given x,
                          struct sl_result *dx);

/* Stride with which kv_up and q_up may read their columns of the latent and write their gradients; 0: they need copies.
 * Down must be planned. */
int sl_mla_latent_stride(const struct mla *mla, const struct sl_plan *plan);
/* Plans LATENT and its halves; all children must be planned. */
int sl_mla_plan_latents(struct mla *mla, struct sl_plan *plan);
/* Copies the halves of LATENT [rows, 2 * latent], if they are separate arrays. */
void sl_mla_cut(const struct sl_module *module, const struct sl_context *context, const float *latent);
/* Writes D_LATENT: gradients from kv_up and q_up go side by side; the other two children read the whole latent, and
 * their gradients are added. */
int sl_mla_latent_gradient(const struct sl_module *module, struct sl_context *context);

struct sl_attention sl_mla_attention(const struct mla *mla, int rows, int sequence);
/* Writes O, which is OUTPUT in a form, and LOGSUM, from the call's own keys and values. */
int sl_mla_attend(const struct sl_module *module, struct sl_context *context, struct sl_out o);

/* Whether latents are gathered, which must be known before the children are planned. */
int sl_mla_choose_latents(struct mla *mla, const struct sl_plan *plan);
/* Plans products and moves if latents are gathered; mla->context must be planned. */
int sl_mla_plan_context(struct mla *mla, struct sl_plan *plan);
/* If latents are gathered, computes keys and values of all tokens from LATENTS, this coordinate's KV_LATENT. */
int sl_mla_expand(const struct sl_module *module, struct sl_context *context, const float *latents);
/* Writes the gradient of KV_LATENT to DX, and gives those of its parameters to kv_up, after attention's backward. */
int sl_mla_expand_backward(const struct sl_module *module, struct sl_context *context, float *dx);

/* Sets *ALL to the columns of KV_LATENT, of which LATENTS are this coordinate's, of all coordinates along the axis. */
int sl_mla_all_latents(const struct sl_module *module, struct sl_context *context, const float *latents,
                       const float **all);
/* Bias of this coordinate's keys or, with VALUES, of its values. */
const float *sl_mla_bias(const struct sl_module *module, const struct sl_context *context, bool values);
/* Writes mla->kernel and mla->bias, the operands of the expansion. */
int sl_mla_take_columns(const struct sl_module *module, struct sl_context *context);

/* Plans the caches, in the form requested by plan->caches. */
int sl_mla_plan_caches(struct mla *mla, struct sl_plan *plan);
/* Number of cached tokens that a pass over sequences of SEQUENCE tokens expands to keys and values at a time: a power
 * of two, so chunks divide the parts of a prompt before it; 0 if attending to the latents themselves takes less
 * time. */
static inline int sl_mla_chunk(int sequence) {
    enum { FEWEST = 64, MOST = 1024 };
    int chunk = FEWEST;
    while (chunk < MOST && 2 * chunk <= sequence) chunk *= 2;
    return sequence < FEWEST ? 0 : chunk;
}
/* Returns whether a pass over sequences of SEQUENCE tokens from POSITION on attends to latents, and so needs no
 * KEYS_VALUES. */
static inline bool sl_mla_absorbs(const struct sl_caches *caches, int sequence, int position) {
    const int chunk = sl_mla_chunk(sequence);
    if (!caches || caches->form != SL_CACHE_LATENT) return false;
    if (caches->parts > 1) return true; /* each coordinate attends to its own cached tokens alone */
    return position == 0 ? sequence == 1 : !chunk || position % chunk;
}
/* Adds the call's tokens to the caches, and writes OUTPUT from all cached tokens. */
int sl_mla_attend_caches(const struct sl_module *module, struct sl_context *context);

#endif
