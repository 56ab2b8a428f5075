/* generate.h - continues sequences token by token, under any layout. Passes over the prompt fill the caches; then there
 * is one pass for each token.
 *
 * Each replica of the model continues its own sequences, which go through the pipeline in groups. Stages do not meet
 * between two tokens: the last one chooses a group's tokens and sends them to the first, which begins the group's next
 * pass, while other groups are under way. A sequence that has ended leaves its place in the caches to the next one that
 * waits.
 *
 * Passes follow from the numbers of tokens alone, so all stages and replicas go through the same ones. Where sequences
 * may end sooner, all tell each other now and then which have: a few tokens are made in vain, and no two stages meet
 * for each. Prompts of one length fill the caches group by group. Where lengths differ, a prompt fills the caches by
 * itself in parts of SL_PROMPT_PART tokens, and the rest of it goes along with the tokens that its group generates. */
#ifndef SL_LAYERS_MODELS_GENERATE_H
#define SL_LAYERS_MODELS_GENERATE_H

#include "layers/models/latency.h"
#include "layers/models/sampling.h"
#include "layers/models/transformer.h"
#include "layers/training/pipeline.h"

SL_BEGIN_C

/* Tokens of a part of a prompt, where prompts have several lengths. */
enum { SL_PROMPT_PART = 32 };

struct sl_generation {
    const struct sl_transformer *transformer;
    const struct sl_schedule *schedule; /* the parameters lie on its stages */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;
    enum sl_dtype storage; /* of caches, of what stages hand over, and of what goes from layer to layer; SL_BF16 only if
                              the parameters' first plan had it */
    int sequences;         /* sequences of each replica */
    int in_flight;         /* of them, those that are under way at the same time and have caches; 0: all */
    int groups;            /* in which they go through the pipeline, at most in_flight; 0: sl_generation_groups */
    int prompt, length;    /* tokens of the prompts, at least 1; tokens in the end, at most transformer->positions */
    const int *prompts;    /* NULL, or tokens of each prompt [replicas][sequences], in place of PROMPT */
    enum sl_cache_form cache;
    /* Whether kernels are read as they lie, also where the parameters never train, passes decode so few sequences, and
     * reading copies of them, which take as much memory again, would be faster. They change no bit. */
    bool unpacked;
    /* Threads of each coordinate, where CPUs compute: more than one share products and attention. 0: one. They change
     * no bit. */
    int threads;
    struct sl_sampling sampling;
    const int32_t *never; /* [nevers] tokens that are not drawn, whatever their logits are */
    int nevers;
    uint64_t seed;
    /* Whether a sequence ends with the last of its COUNT tokens, of which the first PROMPT were given. Whoever has the
     * last stage asks, once for each token that is chosen, and all of them must get the same answer. NULL: at LENGTH
     * alone. */
    bool (*ends)(void *arg, const int32_t *tokens, int prompt, int count);
    /* Tells whoever has the first stage of each token, as soon as it is there: TOKENS [position] of SEQUENCE. What
     * comes after the end of a sequence is told, too, until all know of the end. NULL: nobody wants to know. */
    void (*told)(void *arg, int sequence, const int32_t *tokens, int position);
    /* A conversation: there is one sequence, the same in all replicas, and each run goes on with it: struct
     * sl_generated says from where. Here the prompt has 1 token, and `ends` is needed. */
    bool converses;
    /* With converses: whether the run is to end before its time. Coordinates are asked now and then, and one that says
     * so is enough. NULL: this one never does. */
    bool (*stops)(void *arg);
    void *arg;       /* of all three */
    bool logits;     /* those of the first sequence are wanted: struct sl_generated */
    bool sizes_only; /* the generator will never run: it tells of bytes */
};

/* Groups of IN_FLIGHT sequences over the stages of SCHEDULE, where nobody says how many: one a rank, so that each has
 * work; where a rank has several stages, it walks over all of them in a pass, and other groups would wait. */
int sl_generation_groups(const struct sl_schedule *schedule, int in_flight);

struct sl_generator; /* opaque; one a coordinate */

/* Opens a generator over PARAMETERS, which a trainer or another owner has laid out and which must outlive it.
 * Collective over the mesh. SL_BAD_INPUT if the numbers of tokens are out of range, SL_FAILED if there is no memory.
 * Free with sl_generator_close, also after a failure. */
int sl_generator_open(struct sl_generator **generator, struct sl_spmd *self, const struct sl_generation *generation,
                      struct sl_parameters *parameters);
void sl_generator_close(struct sl_generator *generator);
/* Bytes that opening has taken, or with sizes_only would take, including the caches: all together, and added to BUDGET
 * by category. */
size_t sl_generator_bytes(const struct sl_generator *generator);
void sl_generator_plan_bytes(const struct sl_generator *generator, struct sl_budget *budget);

struct sl_generated {
    int32_t *tokens; /* [sequences, length]: the caller writes the prompts, sl_generator_run the other tokens */
    int *lengths;    /* [sequences]: tokens that each has in the end; what lies behind them means nothing. May be NULL
                        where they end at LENGTH alone */
    /* With converses, given: the first PROMPT tokens are there, of which runs before have put the first KEPT into the
     * caches, and MOST is how many there will be at most. KEPT is below PROMPT, and below what the last run left. */
    int prompt, kept, most;
    float *logits; /* of the first sequence [length - 1, vocabulary], what follows each token; all coordinates of a
                      replica get them. NULL unless they are wanted */
    /* Of this replica, as its last stage saw it: the first passes of all groups, with their tokens in; then all others,
     * with the tokens that they chose. */
    double prefill_ms, prefill_tokens, decode_ms, decode_tokens;
    double p50_ms, p99_ms; /* of a sequence's tokens but the first, the time since the one before; NaN without any */
};

/* Continues the sequences. Collective over the mesh. All coordinates of a replica get the same tokens. The random
 * number of sequence s of replica r follows from the seed, its number r * sequences + s and the position alone.
 * SL_FAILED if logits are not finite. */
int sl_generator_run(struct sl_generator *generator, struct sl_generated *generated);

SL_END_C
#endif
