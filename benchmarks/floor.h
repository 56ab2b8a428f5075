/* floor.h - the least time that this machine needs for a training step of a classifier.
 *
 * The step's matrix products (forward, input gradients but the first layer's, weight gradients) at the best rate that
 * the library reaches on any of their shapes, with a thread a core, of floats or of bf16; then AdamW's traffic for one
 * replica, 28 bytes a parameter, at the memory's bandwidth. Both rates are the best of all measurements. */
#ifndef SL_BENCHMARKS_FLOOR_H
#define SL_BENCHMARKS_FLOOR_H

#include "benchmarks/measure.h"
#include "layers/classifier.h"

struct sl_product {
    int m, n, k;
    bool transpose_a, transpose_b;
};

enum { SL_MAX_PRODUCTS = 16 };

struct sl_floor {
    const struct sl_cores *cores;
    enum sl_dtype precision; /* of products' operands */
    int products;
    struct sl_product product[SL_MAX_PRODUCTS]; /* the different ones */
    struct sl_gemm gemm[SL_MAX_PRODUCTS];
    double flops, parameters; /* of a step */
    double seconds;           /* for which each shape is measured */
    char *operands;           /* [cores][operand_bytes] */
    size_t operand_bytes;
    const struct sl_gemm *measured;
    struct sl_stream stream;
    double flops_per_second, bytes_per_second; /* the best so far */
};

/* BATCH rows over DATA replicas, ROWS a microbatch; one weight-gradient product a replica. Zero-initialize FLOOR; close
 * it also after a failure. */
int sl_floor_open(struct sl_floor *floor, const struct sl_cores *cores, const struct sl_classifier *classifier,
                  enum sl_dtype precision, int batch, int data, int rows, double seconds, struct sl_error *error);
/* One measurement, with a thread on every core: nothing else should run. */
int sl_floor_measure(struct sl_floor *floor, struct sl_error *error);
void sl_floor_close(struct sl_floor *floor);

double sl_floor_products_ms(const struct sl_floor *floor);
double sl_floor_optimizer_ms(const struct sl_floor *floor);

#endif
