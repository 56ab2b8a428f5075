/* generate.h - generates text: continues sequences token by token, under any layout. Passes over the prompt fill the KV
 * caches; then each token takes one pass.
 *
 * Each replica of the model continues its own sequences, which go through the pipeline in groups. Stages do not
 * synchronize between two tokens: the last stage chooses a group's tokens and sends them to the first, which begins the
 * group's next pass, while other groups are under way. When a sequence ends, the next waiting one takes its place in
 * the caches.
 *
 * Passes depend only on the numbers of tokens, so all stages and replicas make the same passes. If sequences may end
 * early, coordinates exchange their ends only now and then: a few tokens are computed in vain, but stages need not
 * synchronize for each token. Prompts of one length fill the caches group by group. If lengths differ, each prompt
 * fills the caches alone, in parts of SL_PROMPT_PART tokens, and the rest of it is processed along with the tokens that
 * its group generates. */
#ifndef SL_LAYERS_MODELS_GENERATE_H
#define SL_LAYERS_MODELS_GENERATE_H

#include "layers/models/latency.h"
#include "layers/models/sampling.h"
#include "layers/models/transformer.h"
#include "layers/training/pipeline.h"

SL_BEGIN_C

/* Tokens per part of a prompt, if prompts have several lengths. */
enum { SL_PROMPT_PART = 32 };

struct sl_generation {
    const struct sl_transformer *transformer;
    const struct sl_schedule *schedule; /* the schedule whose stages hold the parameters */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;
    enum sl_dtype storage; /* type of caches, messages between stages, and rows between layers; SL_BF16 only if the
                              parameters' first plan had it */
    int sequences;         /* sequences of each replica */
    int in_flight;         /* sequences under way at the same time, which have caches; 0: all */
    int groups;            /* groups of sequences in the pipeline, at most in_flight; 0: sl_generation_groups */
    int prompt, length;    /* tokens: of prompts, at least 1; in the end, at most transformer->positions */
    const int *prompts;    /* NULL, or tokens of each prompt [replicas][sequences], instead of PROMPT */
    enum sl_cache_form cache;
    /* Do not copy kernels into a faster layout. By default they are copied if the parameters never train and passes
     * decode few sequences; the copies take as much memory again. Bits do not change. */
    bool unpacked;
    /* Threads of each coordinate on CPUs; they share products and attention. 0: one. Bits do not change. */
    int threads;
    struct sl_sampling sampling;
    const int32_t *never; /* [nevers] tokens that are never drawn, whatever their logits are */
    int nevers;
    uint64_t seed;
    /* Returns whether a sequence ends after COUNT tokens, of which PROMPT were given. Called once for each chosen token
     * by all coordinates with the last stage; they must return the same. NULL: sequences end only at LENGTH. */
    bool (*ends)(void *arg, const int32_t *tokens, int prompt, int count);
    /* Reports each token TOKENS [position] of SEQUENCE as soon as it is known, on coordinates with the first stage.
     * Tokens after the end of a sequence are also reported until all coordinates know of the end. NULL: not
     * reported. */
    void (*told)(void *arg, int sequence, const int32_t *tokens, int position);
    /* Conversation mode: there is one sequence, the same in all replicas, and each run continues it from the state in
     * struct sl_generated. Set prompt to 1; `ends` is required. */
    bool converses;
    /* With converses: returns whether to end the run early. Coordinates call it now and then; one that returns true is
     * enough. NULL: never. */
    bool (*stops)(void *arg);
    void *arg;       /* argument of ends, told and stops */
    bool logits;     /* whether to return the logits of the first sequence in struct sl_generated */
    bool sizes_only; /* the generator only reports its bytes, and never runs */
};

/* Default number of groups of IN_FLIGHT sequences for SCHEDULE: one per rank, so that each rank has work. If a rank has
 * several stages, 1: a pass walks over all of them, and other groups would wait. */
int sl_generation_groups(const struct sl_schedule *schedule, int in_flight);

struct sl_generator; /* opaque; one per coordinate */

/* Opens a generator over PARAMETERS, which are laid out by their owner, such as a trainer, and must outlive it.
 * Collective over the mesh. SL_BAD_INPUT if the numbers of tokens are out of range, SL_FAILED if memory is short. Free
 * with sl_generator_close, also after a failure. */
int sl_generator_open(struct sl_generator **generator, struct sl_spmd *self, const struct sl_generation *generation,
                      struct sl_parameters *parameters);
void sl_generator_close(struct sl_generator *generator);
/* Bytes that opening has allocated, or with sizes_only would allocate, including the caches. The total, or added to
 * BUDGET by category. */
size_t sl_generator_bytes(const struct sl_generator *generator);
void sl_generator_plan_bytes(const struct sl_generator *generator, struct sl_budget *budget);

struct sl_generated {
    int32_t *tokens; /* [sequences, length]: the caller writes the prompts, sl_generator_run the other tokens */
    int *lengths;    /* [sequences]: tokens of each sequence in the end; tokens after that are undefined. May be NULL if
                        sequences end only at LENGTH */
    /* With converses, set by the caller: prompt: tokens in TOKENS; kept: how many of them earlier runs have put into
     * the caches; most: limit of the tokens in the end. kept is below prompt, and below the number of tokens after the
     * last run. */
    int prompt, kept, most;
    float *logits; /* logits of the first sequence [length - 1, vocabulary], after each token, on all coordinates of a
                      replica; NULL unless requested */
    /* Times and tokens of this replica, measured at its last stage: prefill is the first pass of all groups, with the
     * prompts' tokens; decode is all other passes, with the chosen tokens. */
    double prefill_ms, prefill_tokens, decode_ms, decode_tokens;
    double p50_ms, p99_ms; /* time between consecutive tokens of a sequence, without its first; NaN if there are none */
};

/* Continues the sequences. Collective over the mesh. All coordinates of a replica receive the same tokens. Random
 * numbers of sequence s of replica r depend only on the seed, the number r * sequences + s and the position. SL_FAILED
 * if logits are not finite. */
int sl_generator_run(struct sl_generator *generator, struct sl_generated *generated);

SL_END_C
#endif
