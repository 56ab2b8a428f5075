/* generate.h - continues sequences token by token, under any layout. One pass over the prompt fills the caches; then
 * there is one pass for each token.
 *
 * Each replica of the model continues its own sequences. The coordinates that have the last stage all choose the same
 * token, and send it to the other stages. */
#ifndef SL_LAYERS_MODELS_GENERATE_H
#define SL_LAYERS_MODELS_GENERATE_H

#include "layers/models/sampling.h"
#include "layers/models/transformer.h"
#include "layers/training/pipeline.h"

SL_BEGIN_C

struct sl_generation {
    const struct sl_transformer *transformer;
    const struct sl_schedule *schedule; /* the parameters lie on its stages */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;
    enum sl_dtype storage; /* of caches, of what stages hand over, and of what goes from layer to layer; SL_BF16 only if
                              the parameters' first plan had it */
    int sequences;         /* sequences of each replica */
    int prompt, length;    /* tokens of the prompt, at least 1; tokens in the end, at most transformer->positions */
    enum sl_cache_form cache;
    /* Threads of each coordinate, where CPUs compute: more than one read the weights of a single sequence together. 0:
     * one. They change no bit. */
    int threads;
    struct sl_sampling sampling;
    uint64_t seed;
    bool sizes_only; /* the generator will never run: it tells of bytes */
};

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
    double prefill_ms, decode_ms; /* of the prompt; of all tokens after the first new one */
    /* NULL, or is called with TOKENS [sequences] as soon as they are chosen. */
    void (*chosen)(void *arg, int position, const int32_t *tokens);
    void *arg;
};

/* Continues the sequences. Collective over the mesh. All coordinates of a replica get the same tokens. The random
 * number of sequence s of replica r follows from the seed, its number r * sequences + s and the position alone.
 * SL_FAILED if logits are not finite. */
int sl_generator_run(struct sl_generator *generator, struct sl_generated *generated);

SL_END_C
#endif
