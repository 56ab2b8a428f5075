/* load.h - the work of a step, counted while it is planned: so that a machine's rates can tell how long it will take
 * (drivers/machine/machine.h).
 *
 * A module that computes says so where it plans, with the functions below; planning calls them whether somebody counts
 * (plan->load) or nobody does. What is counted is the work of one microbatch, loop by loop, in three parts: a forward,
 * I, and W. Products keep their shapes, because small ones are slower than large ones; all else is added up. */
#ifndef SL_LAYERS_MODULES_LOAD_H
#define SL_LAYERS_MODULES_LOAD_H

#include "spmd/base/dtype.h"
#include "spmd/base/error.h"
#include "spmd/engine.h"

SL_BEGIN_C

struct sl_plan;

enum sl_load_part { SL_LOAD_FORWARD, SL_LOAD_INPUT, SL_LOAD_WEIGHT, SL_LOAD_PARTS };

/* Kinds of kernels, by what an element costs. */
enum sl_load_kernel {
    SL_LOAD_MOVES,   /* floats that are read or written, where memory is the limit: adds, copies, sums */
    SL_LOAD_NORMS,   /* elements of rows that are normalized; a backward counts them twice */
    SL_LOAD_GELU,    /* elements of an activation, forward or backward */
    SL_LOAD_SOFTMAX, /* logits of the loss */
    SL_LOAD_DROPOUT, /* random words */
    SL_LOAD_KERNELS
};

/* C [m, n] = A [m, k] B [k, n]. */
struct sl_load_product {
    enum sl_dtype type; /* of the operands */
    int m, n, k;
    bool a_transposed, b_transposed; /* how they lie in memory */
    double count;                    /* a microbatch; less than 1 where several share one */
};

struct sl_load_call {
    enum sl_operation operation;
    char axes[16]; /* of its group */
    int members;
    double bytes; /* that each member has of the larger of input and output */
    double count; /* a microbatch */
};

struct sl_load_work {
    struct sl_load_product *product;
    struct sl_load_call *call;
    int products, product_capacity, calls, call_capacity;
    double floats[SL_LOAD_KERNELS];
    double attention; /* multiply-adds of attention's products */
    double kernels;   /* calls of kernels */
};

struct sl_load_loop {
    struct sl_load_work part[SL_LOAD_PARTS];
    double gathered; /* bytes of whole kernels that each UNSHARD gathers over data */
};

/* Of one coordinate. */
struct sl_load {
    int loops;
    struct sl_load_loop *loop; /* [loops]; the last stage's has the loss, too */
    double handed;             /* bytes of a microbatch that a stage hands over */
    bool failed;               /* there was no memory to count */
    /* While it is counted. */
    bool again;    /* what forward does, I does once more */
    double repeat; /* how often the products that are planned next are computed */
};

/* Prepares for a coordinate of LOOPS. SL_FAILED, without a message, if there is no memory. Free with sl_load_close. */
int sl_load_open(struct sl_load *load, int loops);
void sl_load_close(struct sl_load *load);

/* For modules that plan, after they have declared their parameters: where all of them are frozen, W is not counted.
 * COUNT is a microbatch's. */
void sl_load_product(const struct sl_plan *plan, enum sl_load_part part, const struct sl_load_product *product);
void sl_load_floats(const struct sl_plan *plan, enum sl_load_part part, enum sl_load_kernel kernel, double floats);
void sl_load_attention(const struct sl_plan *plan, enum sl_load_part part, double multiply_adds);
/* A collective call over AXES; nothing where the coordinate is alone there. BYTES are a microbatch's, in COUNT calls.
 */
void sl_load_call(const struct sl_plan *plan, enum sl_load_part part, enum sl_operation operation, const char *axes,
                  double bytes, double count);
/* The products that are planned next are computed so many times a microbatch. */
void sl_load_repeat(const struct sl_plan *plan, double times);

SL_END_C
#endif
