/* experiment.h - the classifier on a mesh, as the options describe it: what looping_pipeline and loss_equality share.
 */
#ifndef SL_DRIVERS_CLASSIFIER_EXPERIMENT_H
#define SL_DRIVERS_CLASSIFIER_EXPERIMENT_H

#include "drivers/classifier/data.h"
#include "drivers/training/job.h"
#include "layers/models/classifier.h"

enum classifier_rng { CLASSIFIER_RNG_DEFAULT = -1, CLASSIFIER_RNG_FLAX, CLASSIFIER_RNG_GLOBAL };

struct classifier_options {
    int layers, hidden, expansion;
    double dropout;
    int rng; /* enum classifier_rng */
    struct sl_training_options training;
};

enum { CLASSIFIER_MAX_LAYERS = 4096 };

/* What the model is, and a batch. Then rows for a driver's options of schedules, in whose struct the classifier's
 * options are so far behind the begin. */
extern const struct sl_option classifier_table[];
#define CLASSIFIER_LOOPS(behind)                                                                                       \
    {"loops",                                                                                                          \
     SL_OPTION_INTEGER,                                                                                                \
     (behind) + offsetof(struct classifier_options, training.loops),                                                   \
     .min = 0,                                                                                                         \
     .max = CLASSIFIER_MAX_LAYERS,                                                                                     \
     .keep = SL_KEPT_FREE,                                                                                             \
     .read = "!schedule-file",                                                                                         \
     .unless = "schedule|schedule-file|mesh",                                                                          \
     .help = "stages of each rank of the pipeline; 0: one layer a stage"}
#define CLASSIFIER_MICROBATCHES(behind)                                                                                \
    {"microbatches",                                                                                                   \
     SL_OPTION_INTEGER,                                                                                                \
     (behind) + offsetof(struct classifier_options, training.microbatches),                                            \
     .min = 1,                                                                                                         \
     .max = 4096,                                                                                                      \
     .keep = SL_KEPT_FREE,                                                                                             \
     .read = "!schedule-file",                                                                                         \
     .unless = "accumulate",                                                                                           \
     .help = "parts into which a replica's rows of a pass are divided; with --exact, where it is not given, up to 8 "  \
             "of a leaf, over all passes"}

/* Before it is checked which options are read: with --exact the number of microbatches follows from the batch, unless
 * the command line or a checkpoint gives it. */
void classifier_settle(struct classifier_options *model, const struct sl_options *options);

/* The notebook's model, batch and optimizer. */
struct classifier_options classifier_defaults(void);

/* Everything that is decided before a mesh is started. */
struct classifier_experiment {
    struct sl_job job;
    struct classifier_options options; /* of this run */
    struct sl_classifier classifier;
    const struct classifier_dataset *dataset;
    bool flax, looping; /* random numbers in flax's order; of the looping pipeline */
    char no_flax[120];  /* why they are not, where nobody asked for either; "": they are, or somebody did */
};

/* OPTIONS' schedule is single, plain, looping, or the name of a schedule; unless a file is given. SL_BAD_INPUT names
 * the numbers that do not fit. */
int classifier_experiment_prepare(struct classifier_experiment *experiment, const struct sl_mesh *mesh,
                                  const struct sl_engine *engine, const struct classifier_options *options,
                                  const struct classifier_dataset *dataset, uint64_t seed, struct sl_error *error);
/* SL_BAD_INPUT where the run's memory is more than this machine has; asked before the data are drawn. */
int classifier_experiment_check_memory(const struct classifier_experiment *experiment, const struct sl_engine *engine,
                                       struct sl_error *error);
void classifier_experiment_free(struct classifier_experiment *experiment);

/* What a coordinate has of its own (sl_worker.own) while a program runs. */
struct classifier_worker {
    struct sl_classifier_keys keys;
    struct sl_key *layer_key; /* this step's, in flax's order */
    int first_row;            /* this coordinate's first row of the batch */
    float *inputs;            /* [local rows, inputs] where the first stage is, otherwise NULL */
    int32_t *labels;          /* [local rows] where the last stage is, otherwise NULL */
    uint32_t *order;          /* [training examples] of this epoch; NULL until somebody needs it */
};

/* Fetches the coordinate's rows of batch number BATCH of EXAMPLES in ORDER (NULL: as they lie), as far as it reads
 * them. They last until the next call. */
struct sl_batch classifier_fetch(struct sl_worker *worker, const struct classifier_examples *examples,
                                 const uint32_t *order, int64_t batch);
/* Sums over all test examples. */
int classifier_test(struct sl_worker *worker, struct sl_metrics *sums);

#endif
