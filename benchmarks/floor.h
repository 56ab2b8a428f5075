/* floor.h - the least time that this machine needs for a training step.
 *
 * The step's matrix products (forward, input gradients but the first layer's, weight gradients) at the best rate that
 * the library reaches on any of their shapes, with a thread a core, of floats or of bf16; then AdamW's traffic for one
 * replica, 28 bytes a parameter, at the memory's bandwidth. Both rates are the best of all measurements. On GPUs the
 * rates are one GPU's, times as many as the mesh uses, and each product is measured by itself as well: the time of all
 * products one after another is the bound that the library alone sets. */
#ifndef SL_BENCHMARKS_FLOOR_H
#define SL_BENCHMARKS_FLOOR_H

#include "benchmarks/measure.h"
#include "layers/models/classifier.h"

struct sl_product {
    int m, n, k;
    bool transpose_a, transpose_b;
    double count;            /* in a step */
    double flops_per_second; /* the best so far */
};

enum { SL_MAX_PRODUCTS = 40 };

struct sl_floor {
    const struct sl_cores *cores;
    int devices;             /* that compute: 0 where the cores do */
    enum sl_dtype precision; /* of products' operands */
    const struct sl_gemm_backend *backend;
    int products;
    struct sl_product product[SL_MAX_PRODUCTS]; /* the different ones */
    struct sl_gemm gemm[SL_MAX_PRODUCTS];
    double flops, parameters; /* of a step */
    double seconds;           /* for which each shape is measured */
    char *operands;           /* [cores][operand_bytes]; on a device [operand_bytes] */
    size_t operand_bytes;
    const struct sl_gemm *measured;
    struct sl_stream stream;
    double flops_per_second, bytes_per_second; /* the best so far */
};

/* First the job is told, into a floor that is zeroed but for cores, devices, precision, backend and seconds.
 *
 * What LAYERS dense layers of IN x OUT do for BATCH rows in microbatches of ROWS, with weight-gradient products over
 * LOCAL rows. */
void sl_floor_add_dense(struct sl_floor *floor, int layers, int in, int out, int batch, int local, int rows,
                        bool input_gradient);
/* The classifier's step: BATCH rows over DATA replicas, ROWS a microbatch; one weight-gradient product a replica. */
void sl_floor_add_classifier(struct sl_floor *floor, const struct sl_classifier *classifier, int batch, int data,
                             int rows);
/* Then memory is taken; close it also after a failure. */
int sl_floor_open(struct sl_floor *floor, struct sl_error *error);
/* One measurement, with a thread on every core, or on the calling thread's device: nothing else should run. */
int sl_floor_measure(struct sl_floor *floor, struct sl_error *error);
void sl_floor_close(struct sl_floor *floor);

double sl_floor_products_ms(const struct sl_floor *floor);
/* Each product at its own best rate: what the library alone would take. */
double sl_floor_library_ms(const struct sl_floor *floor);
double sl_floor_optimizer_ms(const struct sl_floor *floor);

#endif
