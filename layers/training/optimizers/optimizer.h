/* optimizer.h - the table of optimizers, and how they update flat storage.
 *
 * An optimizer is a row of the table: a name, the names of its state tensors (one element per value), and a function to
 * update a run of elements. Other code does not depend on the meaning of the state: it allocates, shards (ZeRO), saves
 * and compares the tensors under the row's names.
 *
 * A new optimizer needs a file optimizer_NAME.c with a row, the row's name in the table of optimizer.c, and the file's
 * name in layers/kernels/kernels.cmake. Mark its loops with SL_ELEMENTWISE (spmd/device/offload.h), so that the same
 * source runs on CPUs and on devices.
 *
 * A user's optimizer needs no change of the library: pass its row, which need not be in the table, as the method. A
 * name and an update function are enough:
 *
 *     static const struct sl_optimizer signs = {.name = "signs", .update = follow_signs};
 *     options.optimizer = sl_optimizer_defaults(&signs, 1e-3f);
 *     options.optimizer.arg = &mine;      (passed to follow_signs as options->arg)
 *
 * The state of such a row is sharded, saved and resumed like the state of the table's optimizers, under the row's name.
 * A checkpoint of another optimizer is refused. */
#ifndef SL_LAYERS_TRAINING_OPTIMIZERS_OPTIMIZER_H
#define SL_LAYERS_TRAINING_OPTIMIZERS_OPTIMIZER_H

#include "layers/modules/parameters/parameters.h"
#include "layers/modules/parameters/rules.h"
#include "layers/records/journal/prints.h"

SL_BEGIN_C

struct sl_optimizer;

/* An optimizer and its settings. The row's `settings` name the fields from beta1 on that it uses. */
struct sl_optimizer_options {
    const struct sl_optimizer *method; /* a row of the table or the user's; must outlive the trainer */
    void *arg;                         /* for a user's row: passed on unchanged */
    float learning_rate;
    float decay;                        /* weight decay */
    const struct sl_decay_rule *decays; /* parameters with weight decay; NULL: all; must outlive the trainer */
    /* Factors of moving means; double, because 1 - beta is computed before rounding to float. */
    double beta1, beta2;
    float epsilon;
    bool exact; /* adamw: compute 1 - beta^step in double; otherwise in float, as optax does */
    float momentum;
    bool nesterov;
};

/* Consecutive elements with the same settings. GRADIENT, VALUE and STATE are in device memory. */
struct sl_optimizer_run {
    size_t count;
    const float *gradient;             /* [count], not yet multiplied by gradient_scale */
    const float *addend;               /* [count]: the gradient is gradient + addend; NULL: it is gradient */
    float *value;                      /* [count], updated in place */
    uint16_t *rounded;                 /* [count]: receives the new values as bf16; NULL: not needed yet */
    float *state[SL_OPTIMIZER_STATES]; /* [count] each, in the row's order, updated in place; zeros before the first
                                          step */
    float gradient_scale;
    bool shared;                     /* other coordinates read these values, possibly on cores that share no cache */
    float decay;                     /* weight decay of these elements: 0 if the parameters have none */
    int64_t step;                    /* counts from 1 */
    const struct sl_pass_hash *hash; /* hash of gradients and new values, computed as kernels->adamw does; NULL: none */
};

struct sl_optimizer {
    const char *name, *help; /* name: also in checkpoints; help may be NULL */
    /* Names of the state tensors, at most 20 characters each, all different; NULL after the last. */
    const char *state[SL_OPTIMIZER_STATES + 1];
    /* Names of the used fields of sl_optimizer_options, such as "beta1"; NULL after the last. */
    const char *settings[8];
    struct sl_optimizer_options defaults; /* default values of the settings and of decay */
    bool adds;   /* whether update reads addend, which saves a pass over the gradients; if not, addend is always NULL */
    bool rounds; /* whether update writes rounded, which saves a pass over the values; if not, rounded is always NULL */
    bool hashes; /* whether update computes hash, which saves a pass over both; if not, hash is always NULL */
    /* Number of state tensors for OPTIONS. NULL: all of them. */
    int (*states)(const struct sl_optimizer_options *options);
    /* Returns SL_BAD_INPUT if settings do not fit each other. NULL: they always do. */
    int (*check)(const struct sl_optimizer_options *options, struct sl_error *error);
    /* Updates the values and the state of RUN. */
    void (*update)(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run);
};

/* Row called NAME; NULL if there is none, with an error listing all names. */
const struct sl_optimizer *sl_optimizer_find(const char *name, struct sl_error *error);
/* Row number I; NULL after the last. */
const struct sl_optimizer *sl_optimizer_at(int i);
/* Whether METHOD uses the setting called NAME. */
bool sl_optimizer_uses(const struct sl_optimizer *method, const char *name);

/* METHOD with its default settings and LEARNING_RATE. */
struct sl_optimizer_options sl_optimizer_defaults(const struct sl_optimizer *method, float learning_rate);
/* AdamW with optax.adamw's defaults: beta1 0.9, beta2 0.999, epsilon 1e-8, decay 1e-4. */
struct sl_optimizer_options sl_adamw_defaults(float learning_rate);
/* Plain SGD with torch.optim.SGD's defaults: momentum 0, no decay. */
struct sl_optimizer_options sl_sgd_defaults(float learning_rate);

/* SL_BAD_INPUT if a setting is out of its range or does not fit the others; the error names it. */
int sl_optimizer_check(const struct sl_optimizer_options *options, struct sl_error *error);
/* Number of state tensors for OPTIONS. */
int sl_optimizer_states(const struct sl_optimizer_options *options);

/* Whether an update of RANGE also rounds its values to bf16, so that sl_parameters_round need not. */
bool sl_optimizer_rounds(const struct sl_optimizer_options *options, const struct sl_parameters *parameters, int range);

/* Updates the elements [shard, shard + shard_count) of RANGE with the gradients multiplied by GRADIENT_SCALE. STEP
 * counts from 1. SL_BAD_INPUT if PARAMETERS have fewer state tensors than the optimizer needs; SL_FAILED only if
 * reading or writing offloaded state fails. */
int sl_optimizer_update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                        struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                        struct sl_error *error);
/* As sl_optimizer_update, with hashes of gradients and new values in PRINTS; NULL: none. */
int sl_optimizer_update_hashed(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                               struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                               struct sl_prints *prints, struct sl_error *error);
/* As sl_optimizer_update_hashed, with the sum, in order, of MEMBERS gradients GRADIENT[i] [count of the range] in host
 * memory. The sum is computed piece by piece during the update, and is not stored. */
int sl_optimizer_update_sum(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                            struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                            int members, const float *const *gradient, struct sl_prints *prints,
                            struct sl_error *error);

SL_END_C
#endif
