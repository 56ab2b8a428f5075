/* experiment.h - the classifier on a mesh, as described by options; shared by looping_pipeline and loss_equality. */
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

/* Options of the model and the batch. The macros are rows for a driver's options of schedules; BEHIND is the offset
 * of the classifier's options in the driver's struct. */
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

/* Call it before unread options are refused: with --exact the number of microbatches is computed from the batch,
 * unless the command line or a checkpoint sets it. */
void classifier_settle(struct classifier_options *model, const struct sl_options *options);

/* Returns the notebook's model, batch and optimizer. */
struct classifier_options classifier_defaults(void);

/* Everything decided before a mesh is started. */
struct classifier_experiment {
    struct sl_job job;
    struct classifier_options options; /* of this run */
    struct sl_classifier classifier;
    const struct classifier_dataset *dataset;
    bool flax, looping; /* random numbers in flax's order; in the order of the looping pipeline */
    char no_flax[120];  /* why they are not in flax's order if the user chose neither; otherwise "" */
};

/* Prepares the experiment. OPTIONS' schedule is single, plain, looping, or the name of a schedule, unless a schedule
 * file is given. SL_BAD_INPUT names the numbers that do not fit. */
int classifier_experiment_prepare(struct classifier_experiment *experiment, const struct sl_mesh *mesh,
                                  const struct sl_engine *engine, const struct classifier_options *options,
                                  const struct classifier_dataset *dataset, uint64_t seed, struct sl_error *error);
/* Returns SL_BAD_INPUT if the run needs more memory than this machine has; call it before the data are drawn. */
int classifier_experiment_check_memory(const struct classifier_experiment *experiment, const struct sl_engine *engine,
                                       struct sl_error *error);
void classifier_experiment_free(struct classifier_experiment *experiment);

/* A coordinate's own state while a program runs (sl_worker.own). */
struct classifier_worker {
    struct sl_classifier_keys keys;
    struct sl_key *layer_key; /* of this step, in flax's order */
    int first_row;            /* this coordinate's first row of the batch */
    float *inputs;            /* [local rows, inputs] on the first stage, otherwise NULL */
    int32_t *labels;          /* [local rows] on the last stage, otherwise NULL */
    uint32_t *order;          /* [training examples] of this epoch; NULL until needed */
};

/* Fetches the coordinate's rows of batch number BATCH of EXAMPLES in ORDER (NULL: in memory order), as far as its
 * stages read them. They are valid until the next call. */
struct sl_batch classifier_fetch(struct sl_worker *worker, const struct classifier_examples *examples,
                                 const uint32_t *order, int64_t batch);
/* Computes the sums over all test examples. */
int classifier_test(struct sl_worker *worker, struct sl_metrics *sums);

#endif
