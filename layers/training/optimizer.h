/* optimizer.h - the table of optimizers, and what they do to flat storage.
 *
 * An optimizer is a row: a name, the names of the tensors that it keeps beside each value (its state), and a function
 * that updates a run of elements. Nobody else knows what state there is: it is taken, sharded (ZeRO), saved and
 * compared under the row's names.
 *
 * A new optimizer is a file optimizer_NAME.c, which defines a row; the row's name in optimizer.c's table; and the file
 * in layers/kernels/kernels.cmake. Loops stand under SL_ELEMENTWISE (spmd/device/offload.h), so that the one source
 * runs on CPUs and on devices. */
#ifndef SL_LAYERS_TRAINING_OPTIMIZER_H
#define SL_LAYERS_TRAINING_OPTIMIZER_H

#include "layers/modules/parameters.h"
#include "layers/modules/rules.h"

SL_BEGIN_C

struct sl_optimizer;

/* An optimizer and its settings. A row says in `settings` which of those from beta1 on it uses. */
struct sl_optimizer_options {
    const struct sl_optimizer *method;
    float learning_rate;
    float decay;                        /* weight decay */
    const struct sl_decay_rule *decays; /* which parameters have weight decay; NULL: all; outlives the trainer */
    double beta1, beta2; /* of moving means; double, as 1 - beta is taken before it is rounded to float */
    float epsilon;
    bool exact; /* adamw: 1 - beta^step is computed in double, otherwise in float, as optax does */
    float momentum;
    bool nesterov;
};

/* Elements one after another that are updated alike. GRADIENT, VALUE and STATE are in the device's memory. */
struct sl_optimizer_run {
    size_t count;
    const float *gradient;             /* [count], each of which is to be multiplied with gradient_scale first */
    float *value;                      /* [count], updated in place, and so is */
    float *state[SL_OPTIMIZER_STATES]; /* [count] each, in the row's order; zeros before the first step */
    float gradient_scale;
    float decay;  /* weight decay here: 0 where the parameters have none */
    int64_t step; /* counts from 1 */
};

struct sl_optimizer {
    const char *name, *help;
    const char *state[SL_OPTIMIZER_STATES + 1]; /* NULL after the last; 20 characters at most */
    const char *settings[8];                    /* fields of sl_optimizer_options, "beta1"; NULL after the last */
    struct sl_optimizer_options defaults;       /* of the settings and of decay */
    /* How many of the state tensors OPTIONS need; NULL: all of them. */
    int (*states)(const struct sl_optimizer_options *options);
    /* SL_BAD_INPUT where settings do not fit each other; NULL: they always do. */
    int (*check)(const struct sl_optimizer_options *options, struct sl_error *error);
    void (*update)(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run);
};

/* The row called NAME; NULL with the error set, which lists the names there are. */
const struct sl_optimizer *sl_optimizer_find(const char *name, struct sl_error *error);
/* Row number I; NULL after the last. */
const struct sl_optimizer *sl_optimizer_at(int i);
/* Whether METHOD uses the setting called NAME. */
bool sl_optimizer_uses(const struct sl_optimizer *method, const char *name);

/* METHOD with its defaults. */
struct sl_optimizer_options sl_optimizer_defaults(const struct sl_optimizer *method, float learning_rate);
/* AdamW with optax.adamw's defaults: beta1 0.9, beta2 0.999, epsilon 1e-8, decay 1e-4. */
struct sl_optimizer_options sl_adamw_defaults(float learning_rate);
/* Plain SGD with torch.optim.SGD's defaults: momentum 0, no decay. */
struct sl_optimizer_options sl_sgd_defaults(float learning_rate);

/* SL_BAD_INPUT names a setting that is out of its range, or that the others do not fit. */
int sl_optimizer_check(const struct sl_optimizer_options *options, struct sl_error *error);
/* How many state tensors OPTIONS need. */
int sl_optimizer_states(const struct sl_optimizer_options *options);

/* Updates RANGE's shard [shard, shard + shard_count) of the values from the gradients times GRADIENT_SCALE. STEP counts
 * from 1. */
void sl_optimizer_update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                         struct sl_parameters *parameters, int range, int64_t step, float gradient_scale);

SL_END_C
#endif
