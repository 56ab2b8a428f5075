/* floor.h - the least time that this machine needs for a training step.
 *
 * The floor is the time of the step's matrix products (forward, input gradients except the first layer's, weight
 * gradients) at the best rate that any of their shapes reaches with a thread per core, of floats or of bf16, with the
 * rows of a microbatch or of a replica's whole batch, and the weight gradients with the rows of a step's groups; plus
 * AdamW's traffic for one replica, 28 bytes a parameter, at the memory's bandwidth. Each shape is multiplied by the
 * library and by the step's own backend, and the better one counts: so the floor does not change if our kernels become
 * slower, and sinks if they become faster than the library. Both rates of each measurement are saved, and the best of
 * all.
 *
 * The theory stands beside the floor: the same flops at the rate of multiply-adds without memory (fma.h), on all cores
 * at once.
 *
 * On GPUs the rates are one GPU's, times the number of GPUs of the mesh, and each product is measured by itself as
 * well: the time of all products one after another is the bound that the library alone sets. */
#ifndef SL_BENCHMARKS_FLOOR_H
#define SL_BENCHMARKS_FLOOR_H

#include "benchmarks/rates/fma.h"
#include "benchmarks/measure.h"
#include "layers/models/classifier.h"

struct sl_product {
    int m, n, k;
    bool transpose_a, transpose_b;
    double count;                     /* in a step; 0 for shapes that a step could have had */
    double flops_per_second;          /* the best so far */
    const struct sl_gemm_backend *by; /* backend that reached it */
};

enum { SL_MAX_PRODUCTS = 80, SL_FLOOR_BACKENDS = 2 };

struct sl_floor_rates {
    double flops, bytes, read; /* a second: of products, of the memory, of reading alone */
};

struct sl_floor {
    const struct sl_cores *cores;
    int devices;             /* GPUs that compute; 0: the cores compute */
    enum sl_dtype precision; /* of products' operands */
    const struct sl_gemm_backend *backend;
    int products;
    struct sl_product product[SL_MAX_PRODUCTS];              /* the different ones */
    struct sl_gemm gemm[SL_MAX_PRODUCTS][SL_FLOOR_BACKENDS]; /* by backend, and by the library if that is another */
    double flops, parameters;                                /* of a step */
    double read_bytes; /* bytes that a step reads, with reading's own bandwidth; 0: the parameters as floats */
    double seconds;    /* of the measurement of each shape */
    char *operands;    /* [cores][operand_bytes]; on a device [operand_bytes] */
    size_t operand_bytes;
    const struct sl_gemm *measured;
    struct sl_stream stream;
    const struct sl_fma_loop *fma;    /* NULL on devices */
    struct sl_floor_rates best, last; /* of all measurements; of the last one */
    double fma_per_second, least_fma; /* multiply-adds by themselves: the best so far, and the least */
};

/* Add a job's products to a floor, which is zeroed except for cores, devices, precision, backend and seconds.
 *
 * LAYERS dense layers of IN x OUT for BATCH rows, LOCAL of them a replica's, in microbatches of ROWS, with
 * weight-gradient products over GROUP rows. */
void sl_floor_add_dense(struct sl_floor *floor, int layers, int in, int out, int batch, int local, int rows, int group,
                        bool input_gradient);
/* The classifier's step: BATCH rows over DATA replicas, ROWS a microbatch; one weight-gradient product a replica. */
void sl_floor_add_classifier(struct sl_floor *floor, const struct sl_classifier *classifier, int batch, int data,
                             int rows);
/* Then memory is taken; close it also after a failure. */
int sl_floor_open(struct sl_floor *floor, struct sl_error *error);
/* One measurement, with a thread on every core, or on the calling thread's device: nothing else should run. */
int sl_floor_measure(struct sl_floor *floor, struct sl_error *error);
void sl_floor_close(struct sl_floor *floor);

/* Returns the product with the best rate. */
const struct sl_product *sl_floor_best(const struct sl_floor *floor);
double sl_floor_products_ms(const struct sl_floor *floor);
/* Returns the time of all products, each at its own best rate: the library's bound. */
double sl_floor_library_ms(const struct sl_floor *floor);
double sl_floor_optimizer_ms(const struct sl_floor *floor);
/* Returns the time of a training step's products and optimizer at these RATES. */
double sl_floor_step_ms(const struct sl_floor *floor, struct sl_floor_rates rates);
/* Returns the time of FLOPS at the rate of multiply-adds; 0 if that is no bound: on devices, and on a CPU with faster
 * instructions for products than its vectors' multiply-adds. */
double sl_floor_theory_ms(const struct sl_floor *floor, double flops);

/* Prints the floor's parts as fields of the JSON object. */
void sl_floor_print(const struct sl_floor *floor);

#endif
