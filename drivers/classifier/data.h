/* data.h - training data: random examples as in the notebook, or Fashion-MNIST from its IDX files. */
#ifndef SL_DRIVERS_CLASSIFIER_DATA_H
#define SL_DRIVERS_CLASSIFIER_DATA_H

#include "spmd/base/error.h"
#include "spmd/signature.h"

/* Examples in memory, shared by all coordinates of a process. Exactly one of VALUES and PIXELS is set. */
struct classifier_examples {
    uint32_t count;
    float *values;   /* [count, columns] */
    uint8_t *pixels; /* [count, columns] */
    int32_t *labels; /* [count] */
};

struct classifier_dataset {
    bool shuffled; /* each epoch has an order of its own; random examples are one batch, repeated in every step */
    uint32_t columns, classes;
    struct classifier_examples train, test; /* random examples have no test part */
    float of_pixel[256];                    /* input value of each pixel value */
};

/* Opens SPEC: "random", BATCH examples (at most 2^20) of 784 inputs, drawn later; or "fashion-mnist:DIR", the four
 * IDX files in DIR, optionally compressed by gzip; "fashion-mnist" alone means Debian's folder. Free with
 * classifier_dataset_close, also after a failure. */
int classifier_dataset_open(struct classifier_dataset *dataset, const char *spec, uint32_t batch,
                            struct sl_error *error);
/* Draws random examples: normally distributed inputs and labels below 10, as the notebook draws them from SEED. Does
 * nothing to other data sets. */
int classifier_dataset_draw(struct classifier_dataset *dataset, uint64_t seed, struct sl_error *error);
void classifier_dataset_close(struct classifier_dataset *dataset);

/* Adds "data" to the signature of a run: the sizes and contents of a data set read from files. Random examples
 * depend only on options. */
int classifier_dataset_sign(const struct classifier_dataset *dataset, struct sl_signature *signature,
                            struct sl_error *error);

/* Writes the order [train.count] of the training examples in EPOCH: a permutation determined by SEED and EPOCH, the
 * identity if the data set is not shuffled. */
void classifier_dataset_epoch_order(const struct classifier_dataset *dataset, uint64_t seed, uint32_t epoch,
                                    uint32_t *order);

/* Copies rows FIRST to FIRST + ROWS - 1 of EXAMPLES in ORDER (NULL: in memory order) into inputs [rows, columns] and
 * labels [rows], either of which may be NULL. Rows past the last example get zeros and label -1, which losses
 * ignore. */
void classifier_dataset_fetch(const struct classifier_dataset *dataset, const struct classifier_examples *examples,
                              const uint32_t *order, uint32_t first, uint32_t rows, float *inputs, int32_t *labels);

#endif
