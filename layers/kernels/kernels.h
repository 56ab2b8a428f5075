/* kernels.h - everything that is not a matrix product: one source (kernels.c), built once per CPU level, or for
 * devices.
 *
 * Arrays are dense, row-major float32, in memory that the device reaches (spmd/device/device.h). Shapes are given as
 * [rows, cols]. No kernel allocates; each has finished when it returns. */
#ifndef SL_LAYERS_KERNELS_KERNELS_H
#define SL_LAYERS_KERNELS_KERNELS_H

#include "layers/kernels/attention/attention.h"
#include "layers/kernels/attention/attention_latent.h"
#include "layers/kernels/dropout.h"
#include "layers/kernels/expert.h"
#include "layers/kernels/operands/operands.h"
#include "layers/kernels/rows/norms.h"
#include "layers/kernels/sequence.h"
#include "spmd/random.h"

SL_BEGIN_C

/* Hashes by places (spmd/base/places.h), made in an optimizer's pass of what it reads and makes. */
struct sl_pass_hash {
    /* How many elements of the pass from FIRST on have their keys together, at least one: KEYS. */
    size_t (*keys)(const struct sl_pass_hash *hash, size_t first, const uint32_t **keys);
    /* Of COUNT such elements from FIRST on: the sums of each one's key times its gradient, and its new value, as words.
     */
    void (*add)(const struct sl_pass_hash *hash, size_t first, size_t count, uint64_t gradients, uint64_t values);
};

/* Where the elements of an array lie in another one, of which it is a part: in rows of GROUP runs of RUN elements,
 * whose places (spmd/base/places.h) follow each other. The first run begins at place FIRST, the next ones of its row
 * STEP apart, and rows STRIDE apart. The array begins behind SKIPPED elements of its first row; with these it has fewer
 * than 2^32. */
struct sl_hash_places {
    uint64_t first, step, stride;
    uint32_t run, group, skipped; /* the first two at least 1 */
};

/* One AdamW step (optax's order of operations): m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * p -= lr (m / correction1 / (sqrt(v / correction2) + epsilon) + decay p), g being the gradient times gradient_scale.
 */
struct sl_adamw_step {
    float learning_rate, beta1, beta2, epsilon, decay;
    float rest1, rest2;             /* 1 - beta, rounded once */
    float correction1, correction2; /* 1 - beta^t */
    float gradient_scale;
    bool shared; /* other cores read the values next, as well: they are written past the caches, where that can be */
    const struct sl_pass_hash *hash; /* NULL: there is none, as always where the table does not hash */
};

enum { SL_SUM_ROOM = 1024 }; /* doubles: sums of the parts of an array that is added up on devices */
enum { SL_HASH_SUMS = 128 }; /* into so many sums a hash is divided that is made on devices */

/* Random numbers (draws.c). */
struct sl_draws {
    /* The N random words of KEY in JAX's layout. */
    void (*words)(struct sl_key key, uint32_t n, uint32_t *words);
    /* The same of COUNT keys, NEXT apart: words [count, n]. */
    void (*words_each)(size_t count, const struct sl_key *keys, size_t next, uint32_t n, uint32_t *words);
    /* words [rows, cols], whose rows begin STRIDE apart, that depend on global position alone: word (r, c) is half c &
     * 1 of the hash of (first_row + r, (first_col + c) / 2). */
    void (*words_global)(struct sl_key key, uint32_t first_row, uint32_t rows, uint32_t first_col, uint32_t cols,
                         size_t stride, uint32_t *words);
    /* values [n] = scale * (standard normal truncated to (-2, 2)), made of words [n]. The two may be the same array. */
    void (*truncated_normal)(uint32_t n, const uint32_t *words, float scale, float *values);
    /* values [n] = standard normal, made of words [n]. The two may be the same array. */
    void (*normal)(uint32_t n, const uint32_t *words, float *values);
};

struct sl_kernels {
    const char *name;   /* the CPU level, "x86-64-v2" to "x86-64-v4", or the device's kind */
    bool hashes;        /* adamw does: on the host */
    bool whole_norms;   /* norms of whole rows take one pass, which also reads bf16 (rows/norms.h): on devices */
    bool draws_dropout; /* dropout draws its words itself, by dropout.h: on devices */
    /* Sums over rows are those of so many slices of the rows, added in their order; 1 but on GPUs, where many rows of
     * few columns are divided before that, too (rows/slices_internal.h). */
    int slices;
    const struct sl_sequence_kernels *sequence;
    const struct sl_published_kernels *published;
    const struct sl_draws *draws;
    const struct sl_attention_kernels *attention;
    const struct sl_latent_kernels *latent;
    const struct sl_expert_kernels *experts;
    const struct sl_operand_kernels *operands;
    const struct sl_dropout_kernels *dropouts;
    const struct sl_norm_kernels *norms;

    /* y [n] = value */
    void (*fill)(size_t n, float value, float *y);
    /* y [n] += x [n] */
    void (*add)(size_t n, const float *x, float *y);
    /* y [n] = what bf16 keeps of x [n] + y [n]; stored [n] = the same as bf16, unless STORED is NULL */
    void (*add_settled)(size_t n, const float *x, float *y, uint16_t *stored);
    /* y [n] = x [n] as bf16, to the nearest, ties to even; a NaN stays one */
    void (*round_bf16)(size_t n, const float *x, uint16_t *y);
    /* The same where other cores read y next, as well: it is written past the caches, where that can be. */
    void (*share_bf16)(size_t n, const float *x, uint16_t *y);
    /* y [n] = x [n], which is bf16 */
    void (*widen_bf16)(size_t n, const uint16_t *x, float *y);
    /* x [n] becomes what bf16 keeps of it; y [n] = the same as bf16, unless Y is NULL */
    void (*settle_bf16)(size_t n, float *x, uint16_t *y);
    /* *sum += the sum over x [n] of x^2. Room [SL_SUM_ROOM]. */
    void (*sum_of_squares)(size_t n, const float *x, double *room, double *sum);
    /* *bits = the larger one of *bits and the bits of the largest of the absolute values of x [n]. Bits compare as the
     * numbers do; those of a NaN are larger than all others. Room [SL_SUM_ROOM]. */
    void (*largest_bits)(size_t n, const float *x, double *room, int32_t *bits);
    /* For each of x [n] the square of x scale, which is below 1, rounded down to a multiple of 2^-63: sums [2] += its
     * multiples of 2^-31 and, less than 2^32 of them, those of 2^-63. No order changes that. n < 2^32. Room
     * [SL_SUM_ROOM]. */
    void (*add_squares)(size_t n, const float *x, double scale, double *room, uint64_t *sums);
    /* SUMS [SL_HASH_SUMS], which together grow by the part of a hash by places that X [n] makes, modulo 2^64: floats,
     * or bf16 where HALF, each as the float that it is. Keys [SL_PLACES]: low of struct sl_places, aligned to 16 bytes.
     * Which of them grow by how much is another matter on each device; their sum is the same. */
    void (*add_hash)(size_t n, const void *x, bool half, const struct sl_hash_places *places, const uint32_t *keys,
                     uint64_t *sums);
    /* hashes [count] = what sums [count, SL_HASH_SUMS] add up to, modulo 2^64 */
    void (*add_up_hashes)(size_t count, const uint64_t *sums, uint64_t *hashes);
    /* sums [cols] (+)= column sums of x [rows, cols], rows added in ascending order, slice by slice */
    void (*column_sums)(size_t rows, size_t cols, const float *x, bool accumulate, float *sums);
    /* sums [parts, cols] = the same of each part of x [parts, rows, cols]. HALF: x is bf16. */
    void (*part_sums)(size_t parts, size_t rows, size_t cols, const void *x, bool half, bool accumulate, float *sums);
    /* sums [rows] of x [rows, cols], of 1, 2, 4, ... columns: of neighbours, then of neighbouring sums, which stand in
     * x's place. SUMS is not X. */
    void (*row_trees)(size_t rows, size_t cols, float *x, float *sums);

    /* Of logits [rows, classes] and labels [rows] below classes; a row with label -1 is left out. dlogits = (softmax -
     * onehot) * weight. losses [rows, 2]: a row's loss, and 1 if its largest logit (the first of equals) is the
     * label's, else 0. */
    void (*softmax_cross_entropy)(size_t rows, size_t classes, const float *logits, const int32_t *labels, float weight,
                                  float *dlogits, float *losses);
    /* sums[0] += the losses of rows that have a label, sums[1] += the ones, sums[2] += these rows. */
    void (*add_losses)(size_t rows, const int32_t *labels, const float *losses, double *sums);

    /* Of outputs and targets [rows, columns]. The loss of a row is the mean of (output - target)^2 over its columns;
     * gradient = 2 (output - target) / columns * weight. sums[0] += sum of the losses; sums[2] += rows. Room
     * [SL_SUM_ROOM]. */
    void (*mean_squared_error)(size_t rows, size_t columns, const float *outputs, const float *targets, float weight,
                               float *gradient, double *room, double *sums);

    /* All [n], value and moments updated in place; rounded = the new values as bf16, unless ROUNDED is NULL, as it is
     * where STEP says that they are shared. The gradient is gradient + addend, unless ADDEND is NULL. */
    void (*adamw)(size_t n, const struct sl_adamw_step *step, const float *gradient, const float *addend, float *value,
                  uint16_t *rounded, float *first_moment, float *second_moment);
};

extern const struct sl_draws sl_draws_v2, sl_draws_v3, sl_draws_v4, sl_draws_device;
extern const struct sl_kernels sl_kernels_v2, sl_kernels_v3, sl_kernels_v4; /* in builds for the CPU */
extern const struct sl_kernels sl_kernels_device;                           /* in builds for devices */

/* The table to compute with: that of this CPU's highest level, or the devices'. */
const struct sl_kernels *sl_kernels_select(void);

/* Table number I of those that can run here, the best first; NULL after the last. */
const struct sl_kernels *sl_kernels_available(int i);

SL_END_C
#endif
