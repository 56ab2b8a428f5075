/* optimizer.h - the table of optimizers, and how they update flat storage.
 *
 * An optimizer is a row of the table: a name, the names of the tensors that it keeps beside each value (its state), and
 * a function that updates a run of elements. No other code knows what state there is: it is allocated, sharded (ZeRO),
 * saved and compared under the row's names.
 *
 * A new optimizer needs a file optimizer_NAME.c, which defines a row; the row's name in the table of optimizer.c; and
 * the file in layers/kernels/kernels.cmake. Its loops stand under SL_ELEMENTWISE (spmd/device/offload.h), so that the
 * same source runs on CPUs and on devices.
 *
 * An optimizer of one's own needs no change of the library: a row of one's own, which need not be in the table, is
 * given as the method. Its name and update are enough:
 *
 *     static const struct sl_optimizer signs = {.name = "signs", .update = follow_signs};
 *     options.optimizer = sl_optimizer_defaults(&signs, 1e-3f);
 *     options.optimizer.arg = &mine;      (handed on to follow_signs as options->arg)
 *
 * State that it declares is sharded, saved and resumed as that of the others, under the row's name: a checkpoint of
 * another name is refused. */
#ifndef SL_LAYERS_TRAINING_OPTIMIZER_H
#define SL_LAYERS_TRAINING_OPTIMIZER_H

#include "layers/modules/parameters/parameters.h"
#include "layers/modules/parameters/rules.h"
#include "layers/journal/prints.h"

SL_BEGIN_C

struct sl_optimizer;

/* An optimizer and its settings. The row's `settings` say which of the fields from beta1 on it uses. */
struct sl_optimizer_options {
    const struct sl_optimizer *method; /* a row of the table or of one's own; must outlive the trainer */
    void *arg;                         /* for a row of one's own: the library hands it on and does not look at it */
    float learning_rate;
    float decay;                        /* weight decay */
    const struct sl_decay_rule *decays; /* which parameters have weight decay; NULL: all; must outlive the trainer */
    /* Factors of moving means; double, because 1 - beta is computed before it is rounded to float. */
    double beta1, beta2;
    float epsilon;
    bool exact; /* adamw: compute 1 - beta^step in double; otherwise in float, as optax does */
    float momentum;
    bool nesterov;
};

/* Consecutive elements that are updated alike. GRADIENT, VALUE and STATE are in device memory. */
struct sl_optimizer_run {
    size_t count;
    const float *gradient;             /* [count], still to be multiplied by gradient_scale */
    const float *addend;               /* [count]: the gradient is gradient + addend. NULL: it is gradient */
    float *value;                      /* [count], updated in place */
    uint16_t *rounded;                 /* [count]: the new values as bf16; NULL: they are not wanted yet */
    float *state[SL_OPTIMIZER_STATES]; /* [count] each, in the row's order, updated in place; zeros before the first
                                          step */
    float gradient_scale;
    bool shared;  /* other coordinates read the values from here, and may be on cores that share no cache */
    float decay;  /* weight decay of these elements: 0 if the parameters have none */
    int64_t step; /* counts from 1 */
    const struct sl_pass_hash *hash; /* made of gradients and new values, as kernels->adamw does; NULL: none is */
};

struct sl_optimizer {
    const char *name, *help; /* what it is called in checkpoints; help may be NULL */
    /* Names of the state tensors, at most 20 characters each, all different; NULL after the last. */
    const char *state[SL_OPTIMIZER_STATES + 1];
    /* Names of the fields of sl_optimizer_options that it uses, "beta1"; NULL after the last. */
    const char *settings[8];
    struct sl_optimizer_options defaults; /* default values of the settings and of decay */
    bool adds;   /* its update heeds addend, which saves a pass over the gradients; otherwise addend is always NULL */
    bool rounds; /* its update writes rounded, which saves a pass over the values; otherwise rounded is always NULL */
    bool hashes; /* its update makes hash, which saves a pass over both; otherwise hash is always NULL */
    /* How many of the state tensors OPTIONS need. NULL: all of them. */
    int (*states)(const struct sl_optimizer_options *options);
    /* SL_BAD_INPUT if settings do not fit each other. NULL: they always do. */
    int (*check)(const struct sl_optimizer_options *options, struct sl_error *error);
    /* Updates the values and the state of RUN. */
    void (*update)(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run);
};

/* The row called NAME; NULL if there is none, with an error that lists the names there are. */
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

/* SL_BAD_INPUT if a setting is out of its range or does not fit the others; the line names it. */
int sl_optimizer_check(const struct sl_optimizer_options *options, struct sl_error *error);
/* How many state tensors OPTIONS need. */
int sl_optimizer_states(const struct sl_optimizer_options *options);

/* Whether an update of RANGE rounds its values to bf16, too, so that sl_parameters_round need not. */
bool sl_optimizer_rounds(const struct sl_optimizer_options *options, const struct sl_parameters *parameters, int range);

/* Updates the elements [shard, shard + shard_count) of RANGE with the gradients multiplied by GRADIENT_SCALE. STEP
 * counts from 1. SL_BAD_INPUT if PARAMETERS hold less state than the optimizer keeps; SL_FAILED only if state is far
 * and a file gives or takes less. */
int sl_optimizer_update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                        struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                        struct sl_error *error);
/* The same, with hashes of the gradients and of the new values in PRINTS; NULL: there are none. */
int sl_optimizer_update_hashed(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                               struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                               struct sl_prints *prints, struct sl_error *error);
/* The same with the sum of the MEMBERS gradients GRADIENT[i] [count of the range], in their order, of host memory. The
 * sum is made while the optimizer uses it, and is stored nowhere. */
int sl_optimizer_update_sum(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                            struct sl_parameters *parameters, int range, int64_t step, float gradient_scale,
                            int members, const float *const *gradient, struct sl_prints *prints,
                            struct sl_error *error);

SL_END_C
#endif
