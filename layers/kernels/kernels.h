/* kernels.h - everything that is not a matrix product: one source (kernels.c), built once per CPU level, or for
 * devices.
 *
 * Arrays are dense, row-major float32, in memory that the device reaches (spmd/device/device.h). Shapes are given as
 * [rows, cols]. No kernel allocates. On the CPU the work is done when a call returns; on devices it is enqueued on the
 * thread's queue. */
#ifndef SL_LAYERS_KERNELS_KERNELS_H
#define SL_LAYERS_KERNELS_KERNELS_H

#include "layers/kernels/attention/attention.h"
#include "layers/kernels/attention/attention_latent.h"
#include "layers/kernels/expert.h"
#include "layers/kernels/operands/operands.h"
#include "layers/kernels/norms/norms.h"
#include "layers/kernels/sequence.h"
#include "spmd/random.h"

SL_BEGIN_C

/* Hashes by places (spmd/base/places.h) of the gradients and the new values in an optimizer's pass. */
struct sl_pass_hash {
    /* Sets *KEYS to the keys of the next elements of the pass, from FIRST on, and returns their number, at least one.
     */
    size_t (*keys)(const struct sl_pass_hash *hash, size_t first, const uint32_t **keys);
    /* Adds the sums over COUNT such elements from FIRST on: of key times gradient, and of key times new value, each as
     * its bits. */
    void (*add)(const struct sl_pass_hash *hash, size_t first, size_t count, uint64_t gradients, uint64_t values);
};

/* Places (spmd/base/places.h) of an array's elements in a larger array that contains it. A row has GROUP runs; a run
 * has RUN elements, at consecutive places. The first run begins at place FIRST, the next runs of its row STEP apart,
 * rows STRIDE apart. The array begins SKIPPED elements after the start of its first row; together with these it has
 * fewer than 2^32 elements. */
struct sl_hash_places {
    uint64_t first, step, stride;
    uint32_t run, group, skipped; /* run and group are at least 1 */
};

/* One AdamW step (optax's order of operations): m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * p -= lr (m / correction1 / (sqrt(v / correction2) + epsilon) + decay p), with g = gradient * gradient_scale. */
struct sl_adamw_step {
    float learning_rate, beta1, beta2, epsilon, decay;
    float rest1, rest2;             /* 1 - beta, rounded once */
    float correction1, correction2; /* 1 - beta^t */
    float gradient_scale;
    bool shared;                     /* other cores read the values next: write them past the caches, if the CPU can */
    const struct sl_pass_hash *hash; /* NULL: no hash, as in every step by a table without hashes */
};

enum { SL_SUM_ROOM = 1024 }; /* doubles: partial sums of an array added up by a device */
enum { SL_HASH_SUMS = 128 }; /* partial sums of a hash computed by a device */

/* Random numbers (draws.c). */
struct sl_draws {
    /* Writes the N random words of KEY in JAX's layout. */
    void (*words)(struct sl_key key, uint32_t n, uint32_t *words);
    /* Writes words [count, n]: the N words of each of COUNT keys, which lie NEXT apart. */
    void (*words_each)(size_t count, const struct sl_key *keys, size_t next, uint32_t n, uint32_t *words);
    /* Writes words [rows, cols], with rows STRIDE apart, that depend on the global position only: word (r, c) is half c
     * & 1 of the hash of (first_row + r, (first_col + c) / 2). */
    void (*words_global)(struct sl_key key, uint32_t first_row, uint32_t rows, uint32_t first_col, uint32_t cols,
                         size_t stride, uint32_t *words);
    /* values [n] = scale * (standard normal truncated to (-2, 2)), from words [n]. VALUES may be WORDS. */
    void (*truncated_normal)(uint32_t n, const uint32_t *words, float scale, float *values);
    /* values [n] = standard normal, from words [n]. VALUES may be WORDS. */
    void (*normal)(uint32_t n, const uint32_t *words, float *values);
};

struct sl_kernels {
    const char *name;   /* the CPU level, "x86-64-v2" to "x86-64-v4", or the device's kind */
    bool hashes;        /* adamw computes hashes: on hosts */
    bool whole_norms;   /* norms of whole rows take one pass, which also reads bf16 (norms/norms.h): on devices */
    bool draws_dropout; /* dropout draws its own words: on devices */
    /* Sums over rows are computed for this many slices of the rows, then added in the slices' order; 1 except on GPUs.
     * GPUs first divide many rows of few columns into stripes (loops/slices_internal.h). */
    int slices;
    const struct sl_sequence_kernels *sequence;
    const struct sl_published_kernels *published;
    const struct sl_draws *draws;
    const struct sl_attention_kernels *attention;
    const struct sl_latent_kernels *latent;
    const struct sl_expert_kernels *experts;
    const struct sl_operand_kernels *operands;
    const struct sl_norm_kernels *norms;

    /* y [n] = value */
    void (*fill)(size_t n, float value, float *y);
    /* y [n] += x [n] */
    void (*add)(size_t n, const float *x, float *y);
    /* y [n] = x [n] + y [n], rounded to bf16; stored [n] = the same values as bf16, unless STORED is NULL */
    void (*add_settled)(size_t n, const float *x, float *y, uint16_t *stored);
    /* y [n] = x [n] as bf16, rounded to the nearest, ties to even; a NaN remains a NaN */
    void (*round_bf16)(size_t n, const float *x, uint16_t *y);
    /* round_bf16 for a y that other cores read next: writes it past the caches, if the CPU can. */
    void (*share_bf16)(size_t n, const float *x, uint16_t *y);
    /* y [n] = x [n], from bf16 to float32 */
    void (*widen_bf16)(size_t n, const uint16_t *x, float *y);
    /* Rounds x [n] to bf16 in place; y [n] = the same values as bf16, unless Y is NULL */
    void (*settle_bf16)(size_t n, float *x, uint16_t *y);
    /* *sum += the sum over x [n] of x^2. Room [SL_SUM_ROOM]. */
    void (*sum_of_squares)(size_t n, const float *x, double *room, double *sum);
    /* *bits = the maximum of *bits and the bits of the largest absolute value in x [n]. Bits compare as the numbers do;
     * a NaN's bits are larger than all others. Room [SL_SUM_ROOM]. */
    void (*largest_bits)(size_t n, const float *x, double *room, int32_t *bits);
    /* Adds (x scale)^2 for x [n], with x scale below 1, each rounded down to a multiple of 2^-63. sums[0] counts
     * multiples of 2^-31; sums[1], always below 2^32, counts the remaining multiples of 2^-63. The result does not
     * depend on the order. n < 2^32. Room [SL_SUM_ROOM]. */
    void (*add_squares)(size_t n, const float *x, double scale, double *room, uint64_t *sums);
    /* Adds the hash by places of X [n] to SUMS [SL_HASH_SUMS], modulo 2^64. X is float32, or bf16 if HALF, which is
     * hashed as the same values in float32. Keys [SL_PLACES]: low of struct sl_places, aligned to 16 bytes. Devices
     * distribute the hash over SUMS differently; the total is the same. */
    void (*add_hash)(size_t n, const void *x, bool half, const struct sl_hash_places *places, const uint32_t *keys,
                     uint64_t *sums);
    /* hashes [count] = totals of each row of sums [count, SL_HASH_SUMS], modulo 2^64 */
    void (*add_up_hashes)(size_t count, const uint64_t *sums, uint64_t *hashes);
    /* sums [cols] (+)= column sums of x [rows, cols]; rows are added in ascending order, slice by slice */
    void (*column_sums)(size_t rows, size_t cols, const float *x, bool accumulate, float *sums);
    /* sums [parts, cols] (+)= column sums of each part of x [parts, rows, cols]. HALF: x is bf16. */
    void (*part_sums)(size_t parts, size_t rows, size_t cols, const void *x, bool half, bool accumulate, float *sums);
    /* sums [rows] = row sums of x [rows, cols], with 1, 2, 4, ... columns: adds neighbours, then neighbouring sums, and
     * overwrites x. SUMS must not be X. */
    void (*row_trees)(size_t rows, size_t cols, float *x, float *sums);

    /* Softmax cross entropy of logits [rows, classes] with labels [rows] below classes. dlogits = (softmax - onehot) *
     * weight, or zeros in rows with label -1, which add_losses skips. losses [rows, 2]: the loss of a row, and 1 if its
     * largest logit (the first of equals) is the label's, else 0. */
    void (*softmax_cross_entropy)(size_t rows, size_t classes, const float *logits, const int32_t *labels, float weight,
                                  float *dlogits, float *losses);
    /* sums[0] += losses of labelled rows, sums[1] += their second column (correct rows), sums[2] += number of labelled
     * rows. */
    void (*add_losses)(size_t rows, const int32_t *labels, const float *losses, double *sums);

    /* Mean squared error of outputs and targets [rows, columns]. A row's loss is the mean of (output - target)^2 over
     * its columns; gradient = 2 (output - target) / columns * weight. sums[0] += sum of the losses; sums[2] += rows.
     * Room [SL_SUM_ROOM]. */
    void (*mean_squared_error)(size_t rows, size_t columns, const float *outputs, const float *targets, float weight,
                               float *gradient, double *room, double *sums);

    /* Updates value and moments in place; all arrays are [n]. rounded = the new values as bf16, unless ROUNDED is NULL;
     * it is NULL if STEP's values are shared. The gradient is gradient + addend, unless ADDEND is NULL. */
    void (*adamw)(size_t n, const struct sl_adamw_step *step, const float *gradient, const float *addend, float *value,
                  uint16_t *rounded, float *first_moment, float *second_moment);
};

extern const struct sl_draws sl_draws_v2, sl_draws_v3, sl_draws_v4, sl_draws_device;
extern const struct sl_kernels sl_kernels_v2, sl_kernels_v3, sl_kernels_v4; /* in builds for the CPU */
extern const struct sl_kernels sl_kernels_device;                           /* in builds for devices */

/* Returns the table to compute with: of this CPU's highest level, or of the devices. */
const struct sl_kernels *sl_kernels_select(void);

/* Returns table I of this machine's tables, best first; NULL after the last. */
const struct sl_kernels *sl_kernels_available(int i);

SL_END_C
#endif
