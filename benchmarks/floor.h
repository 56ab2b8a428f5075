/* floor.h - the least time that this machine needs for a training step.
 *
 * The step's matrix products (forward, input gradients but the first layer's, weight gradients) at the best rate that
 * any of their shapes reaches with a thread a core, of floats or of bf16, with the rows of a microbatch or with those
 * of a replica's whole batch, and the weight gradients with those of a step's groups; then AdamW's traffic for one
 * replica, 28 bytes a parameter, at the memory's bandwidth. Each shape is multiplied by the library and by what the
 * step itself uses, and the better one counts: so the floor stays where it is when our kernels become slower, and sinks
 * when they become faster than the library. Of each measurement both rates are known, and the best of all.
 *
 * Beside the floor stands the theory: the same flops at the rate that multiply-adds have by themselves (fma.h), on all
 * cores at once.
 *
 * On GPUs the rates are one GPU's, times as many as the mesh uses, and each product is measured by itself as well: the
 * time of all products one after another is the bound that the library alone sets. */
#ifndef SL_BENCHMARKS_FLOOR_H
#define SL_BENCHMARKS_FLOOR_H

#include "benchmarks/rates/fma.h"
#include "benchmarks/measure.h"
#include "layers/models/classifier.h"

struct sl_product {
    int m, n, k;
    bool transpose_a, transpose_b;
    double count;                     /* in a step; 0 for those that a step could have had */
    double flops_per_second;          /* the best so far */
    const struct sl_gemm_backend *by; /* who reached it */
};

enum { SL_MAX_PRODUCTS = 80, SL_FLOOR_BACKENDS = 2 };

struct sl_floor_rates {
    double flops, bytes, read; /* a second: of products, of the memory, of reading alone */
};

struct sl_floor {
    const struct sl_cores *cores;
    int devices;             /* that compute: 0 where the cores do */
    enum sl_dtype precision; /* of products' operands */
    const struct sl_gemm_backend *backend;
    int products;
    struct sl_product product[SL_MAX_PRODUCTS];              /* the different ones */
    struct sl_gemm gemm[SL_MAX_PRODUCTS][SL_FLOOR_BACKENDS]; /* by backend, and by the library where that is another */
    double flops, parameters;                                /* of a step */
    double read_bytes; /* what a step reads, and reading is measured with; 0: the parameters as floats */
    double seconds;    /* for which each shape is measured */
    char *operands;    /* [cores][operand_bytes]; on a device [operand_bytes] */
    size_t operand_bytes;
    const struct sl_gemm *measured;
    struct sl_stream stream;
    const struct sl_fma_loop *fma;    /* NULL on devices */
    struct sl_floor_rates best, last; /* of all measurements; of the last one */
    double fma_per_second, least_fma; /* multiply-adds by themselves: the best so far, and the least */
};

/* First the job is told, into a floor that is zeroed but for cores, devices, precision, backend and seconds.
 *
 * What LAYERS dense layers of IN x OUT do for BATCH rows, of which a replica has LOCAL, in microbatches of ROWS, with
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

/* The product that reached the best rate. */
const struct sl_product *sl_floor_best(const struct sl_floor *floor);
double sl_floor_products_ms(const struct sl_floor *floor);
/* Each product at its own best rate: what the library alone would take. */
double sl_floor_library_ms(const struct sl_floor *floor);
double sl_floor_optimizer_ms(const struct sl_floor *floor);
/* A training step's products and optimizer at these RATES. */
double sl_floor_step_ms(const struct sl_floor *floor, struct sl_floor_rates rates);
/* FLOPS at the rate of multiply-adds; 0 where that is no bound: on devices, and where the CPU has faster instructions
 * for products than those of its vectors. */
double sl_floor_theory_ms(const struct sl_floor *floor, double flops);

/* The fields of the JSON object that tell what the floor is made of. */
void sl_floor_print(const struct sl_floor *floor);

#endif
