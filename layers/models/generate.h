/* generate.h - continues sequences token by token, under any layout: the prompt in one pass that fills the caches, then
 * a pass a token.
 *
 * Each replica of the model continues sequences of its own. The coordinates with the last stage choose a token, all the
 * same one, and tell it to the other stages. */
#ifndef SL_LAYERS_MODELS_GENERATE_H
#define SL_LAYERS_MODELS_GENERATE_H

#include "layers/models/sampling.h"
#include "layers/models/transformer.h"
#include "layers/training/pipeline.h"

SL_BEGIN_C

struct sl_generation {
    const struct sl_transformer *transformer;
    const struct sl_schedule *schedule; /* on whose stages the parameters lie */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;
    int sequences;      /* of a replica */
    int prompt, length; /* tokens given, at least 1; and in the end, at most transformer->positions */
    struct sl_sampling sampling;
    uint64_t seed;
};

struct sl_generator; /* opaque; one a coordinate */

/* Collective over the mesh. PARAMETERS have been laid out by whoever trains or holds them, and outlive the generator.
 */
int sl_generator_open(struct sl_generator **generator, struct sl_spmd *self, const struct sl_generation *generation,
                      struct sl_parameters *parameters);
void sl_generator_close(struct sl_generator *generator);
/* Bytes that opening has taken, caches included. */
size_t sl_generator_bytes(const struct sl_generator *generator);

struct sl_generated {
    int32_t *tokens;              /* [sequences, length]: the prompts are given in their places, the rest filled in */
    double prefill_ms, decode_ms; /* of all tokens after the first new one */
    void (*chosen)(void *arg, int position, const int32_t *tokens); /* NULL, or told TOKENS [sequences] as they come */
    void *arg;
};

/* Collective over the mesh. All coordinates of a replica get the same tokens. Sequence s of replica r draws by its
 * number r * sequences + s and the position alone. */
int sl_generator_run(struct sl_generator *generator, struct sl_generated *generated);

SL_END_C
#endif
