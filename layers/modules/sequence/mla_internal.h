/* mla_internal.h - what the files of latent attention share: mla.c computes and trains it, mla_latents.c has the latent
 * and its gradient, mla_caches.c attends to what caches keep. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_MLA_INTERNAL_H
#define SL_LAYERS_MODULES_SEQUENCE_MLA_INTERNAL_H

#include "layers/modules/kept.h"
#include "layers/modules/sequence/cached.h"
#include "layers/modules/transformer_modules.h"

enum { DOWN, KV_UP, Q_UP, OUT, K_ROPE, Q_ROPE, CHILDREN }; /* the last two only where there is rope */

/* What lies between the children: [rows, columns], but for LOGSUM [heads, rows]. */
enum tensor {
    LATENT,    /* down's [kv | q], */
    KV_LATENT, /* and each alone */
    Q_LATENT,
    KEYS_VALUES, /* [k | v] */
    QUERIES,
    ROTATED_KEYS,
    ROTATED_QUERIES,
    OUTPUT, /* attention's */
    LOGSUM,
    D_LATENT, /* gradients; that of ROTATED_KEYS is a share of a sum over the coordinates */
    D_KEYS_VALUES,
    D_QUERIES,
    D_ROTATED_KEYS,
    D_ROTATED_QUERIES,
    D_OUTPUT,   /* in PART's room */
    PART,       /* what one child adds to D_LATENT */
    ALL_LATENT, /* with caches: the kv latent's columns of all coordinates */
    TENSORS
};

struct mla {
    struct sl_module module;
    struct sl_mla shape;
    const char *axis; /* over which heads are sharded */
    int group;
    /* A coordinate's own. */
    size_t heads, columns, latent;  /* of q, k and v each; of kv and q latent each */
    size_t rope, rotated;           /* columns of k_rope, and of q_rope */
    enum sl_dtype precision;        /* of products' operands */
    bool reads_stored;              /* forward's attention reads what is kept, without its floats */
    struct sl_rope *keys, *queries; /* NULL without rotary positions */
    struct sl_kept kept[TENSORS];
    int leaves;                /* that have a part of the shared keys' gradient each; 0 or 1: there is one */
    struct sl_place leaf_keys; /* [leaves, rows, rope]: these parts */
    struct sl_place scratch;   /* of attention: backward's, or over latents */
    struct sl_place kernel;    /* kv_up's columns, before they become a table */
    int keys_cache, values_cache, rotated_keys_cache; /* numbers of caches: expanded, */
    int latents_cache, table_cache; /* or latent: [latent | rotated key], and kv_up as kernels read it */
    struct sl_gemm expansion;       /* of a chunk of cached latents, where a pass expands them */
    struct sl_place widened, latents, rotated_keys, bias; /* the chunk's operands, */
    struct sl_place others, others_logsum;                /* and what attention gives of it */
};

static inline const struct mla *sl_mla_of(const struct sl_module *module) { return (const struct mla *)module; }

static inline float *sl_mla_at(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_values(context, &sl_mla_of(module)->kept[tensor]);
}
static inline struct sl_settled sl_mla_settled(const struct sl_module *module, const struct sl_context *context,
                                               enum tensor tensor) {
    return sl_kept_settled(context, &sl_mla_of(module)->kept[tensor]);
}
/* Where attention writes TENSOR; NULL: only as it is settled. */
static inline float *sl_mla_floats(const struct sl_module *module, const struct sl_context *context,
                                   enum tensor tensor) {
    return sl_kept_floats(context, &sl_mla_of(module)->kept[tensor]);
}
/* TENSOR has been written. */
static inline void sl_mla_keep(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    sl_keep(context, &sl_mla_of(module)->kept[tensor]);
}

/* What each child reads, and the gradient of what it writes; the module's own x and dy at the ends. */
extern const enum tensor sl_mla_input[CHILDREN], sl_mla_gradient[CHILDREN];

/* Child I's I, whose gradient has been written; X is the module's own. */
int sl_mla_backward_input(const struct sl_module *module, struct sl_context *context, int i, const float *x, float *dx);

/* Down has been planned: with what stride kv_up and q_up may read their parts of the latent, and leave their gradients;
 * 0: they are to have copies. */
int sl_mla_latent_stride(const struct mla *mla, const struct sl_plan *plan);
/* Plans LATENT and its parts; all children have been planned. */
int sl_mla_plan_latents(struct mla *mla, struct sl_plan *plan);
/* Makes the parts of LATENT [rows, 2 * latent], where they are copies. */
void sl_mla_cut(const struct sl_module *module, const struct sl_context *context, const float *latent);
/* Writes D_LATENT: what kv_up and q_up give goes side by side; the other two read all of the latent. */
int sl_mla_latent_gradient(const struct sl_module *module, struct sl_context *context);

struct sl_attention sl_mla_attention(const struct mla *mla, int rows, int sequence);
/* Writes OUTPUT, left as LEFT says, and LOGSUM of the call's own keys and values. */
void sl_mla_attend(const struct sl_module *module, struct sl_context *context, struct sl_settled left);

/* Plans the caches, in the form that they have been given. */
int sl_mla_plan_caches(struct mla *mla, struct sl_plan *plan);
/* Cached tokens whose keys and values a pass over sequences of SEQUENCE tokens makes at a time: a power of two, so that
 * the parts of a prompt before it divide into such chunks; 0 where attending to the latents themselves takes less time.
 */
static inline int sl_mla_chunk(int sequence) {
    enum { FEWEST = 64, MOST = 1024 };
    int chunk = FEWEST;
    while (chunk < MOST && 2 * chunk <= sequence) chunk *= 2;
    return sequence < FEWEST ? 0 : chunk;
}
/* Whether a pass over sequences of SEQUENCE tokens from POSITION on attends to latents, and so needs no KEYS_VALUES. */
static inline bool sl_mla_absorbs(const struct sl_caches *caches, int sequence, int position) {
    const int chunk = sl_mla_chunk(sequence);
    if (!caches || caches->form != SL_CACHE_LATENT) return false;
    return position == 0 ? sequence == 1 : !chunk || position % chunk;
}
/* Adds the call's tokens to the caches, and writes OUTPUT of all that are then there. */
int sl_mla_attend_caches(const struct sl_module *module, struct sl_context *context);

#endif
