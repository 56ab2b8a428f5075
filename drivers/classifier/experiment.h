/* experiment.h - the classifier on a mesh, as the options describe it: what looping_pipeline and loss_equality share.
 */
#ifndef SL_DRIVERS_CLASSIFIER_EXPERIMENT_H
#define SL_DRIVERS_CLASSIFIER_EXPERIMENT_H

#include "drivers/classifier/data.h"
#include "drivers/common/options.h"
#include "layers/models/classifier.h"
#include "layers/training/trainer.h"

enum classifier_rng { CLASSIFIER_RNG_DEFAULT = -1, CLASSIFIER_RNG_FLAX, CLASSIFIER_RNG_GLOBAL };

enum sl_product_precision { SL_PRODUCTS_F32, SL_PRODUCTS_BF16, SL_PRODUCTS_TF32 };

struct classifier_options {
    int layers, loops; /* loops 0: one layer a stage */
    int hidden, expansion, microbatches, batch;
    double dropout, learning_rate;
    int rng;         /* enum classifier_rng */
    int precision;   /* enum sl_product_precision */
    int wgrad_group; /* 0: all microbatches */
    int zero;
    bool overlap;
};

extern const struct sl_option classifier_table[];

/* The notebook's model, batch and optimizer. */
struct classifier_options classifier_defaults(void);

/* Everything that is decided before a mesh is started. */
struct classifier_experiment {
    struct sl_mesh mesh;
    struct sl_classifier classifier;
    struct sl_schedule schedule; /* lowered and proven */
    int slots;                   /* of a channel, with which the schedule is proven */
    int data, model;             /* sizes of the axes */
    int batch, local_rows, rows; /* rows of the batch, of a coordinate, of a microbatch */
    int wgrad_group;             /* microbatches of one weight-gradient product */
    bool flax, looping;          /* random numbers in flax's order; of the looping pipeline */
    bool zero, overlap;
    enum sl_dtype precision; /* of products' operands */
    const struct sl_gemm_backend *gemm;
    double learning_rate;
    uint64_t seed;
};

/* SCHEDULE is single, plain, looping, or the name of a schedule; unless FILE (a table in CSV, which then says how many
 * microbatches there are) is given. INPUTS and CLASSES are the data's. SL_BAD_INPUT names the numbers that do not fit.
 */
int classifier_experiment_prepare(struct classifier_experiment *experiment, const struct sl_mesh *mesh,
                                  const struct classifier_options *options, const char *schedule, const char *file,
                                  int inputs, int classes, uint64_t seed, struct sl_error *error);
/* SL_BAD_INPUT where the run's memory is more than this machine has. */
int classifier_experiment_check_memory(const struct classifier_experiment *experiment, struct sl_error *error);
void classifier_experiment_free(struct classifier_experiment *experiment);

/* One coordinate's part while a program runs. */
struct classifier_worker {
    const struct classifier_experiment *experiment;
    struct sl_model model;
    struct sl_trainer *trainer;
    struct sl_classifier_keys keys;
    struct sl_key *layer_key; /* this step's, in flax's order */
    int first_row, rows;      /* this coordinate's rows of the batch */
    float *inputs;            /* [rows, inputs] where the first stage is, otherwise NULL */
    int32_t *labels;          /* [rows] where the last stage is, otherwise NULL */
};

/* Plans the coordinate's part; classifier_worker_open takes its memory and fills in the values (FROM's, where given).
 */
int classifier_worker_plan(struct classifier_worker *worker, struct sl_spmd *self,
                           const struct classifier_experiment *experiment);
int classifier_worker_open(struct classifier_worker *worker, struct sl_spmd *self, const struct sl_store *from);
void classifier_worker_close(struct classifier_worker *worker);

/* Fetches the coordinate's rows of batch number BATCH of EXAMPLES in ORDER (NULL: as they lie), as far as it reads
 * them. They last until the next call. */
struct sl_batch classifier_worker_fetch(struct classifier_worker *worker, const struct classifier_dataset *dataset,
                                        const struct classifier_examples *examples, const uint32_t *order,
                                        int64_t batch);

#endif
