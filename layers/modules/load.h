/* load.h - the work of a step, counted during planning, so that a machine's rates can predict its time
 * (drivers/tools/machine/machine.h).
 *
 * A module's plan function declares its work with the functions below; they count if plan->load is set. Counts are per
 * microbatch and loop, in three parts: forward, I, and W. Products are listed with their shapes, because small products
 * are slower than large ones; other work is summed. */
#ifndef SL_LAYERS_MODULES_LOAD_H
#define SL_LAYERS_MODULES_LOAD_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/base/error.h"
#include "spmd/engine.h"

SL_BEGIN_C

struct sl_plan;

enum sl_load_part { SL_LOAD_FORWARD, SL_LOAD_INPUT, SL_LOAD_WEIGHT, SL_LOAD_PARTS };

/* Kinds of kernels by their cost per element. */
enum sl_load_kernel {
    SL_LOAD_MOVES,   /* floats read or written by memory-bound kernels: adds, copies, sums */
    SL_LOAD_NORMS,   /* elements of normalized rows; a backward counts them twice */
    SL_LOAD_GELU,    /* elements of an activation, forward or backward */
    SL_LOAD_SOFTMAX, /* logits of the loss */
    SL_LOAD_DROPOUT, /* random words */
    SL_LOAD_KERNELS
};

/* C [m, n] = A [m, k] B [k, n]. */
struct sl_load_product {
    enum sl_dtype type; /* type of the operands */
    int m, n, k;
    bool a_transposed, b_transposed; /* layout in memory */
    double count;                    /* per microbatch; less than 1 if several microbatches share a product */
};

struct sl_load_call {
    enum sl_operation operation;
    char axes[16]; /* axes of its group */
    int members;
    double bytes; /* bytes per member of the input or output, whichever is larger */
    double count; /* calls per microbatch */
};

struct sl_load_work {
    struct sl_load_product *product;
    struct sl_load_call *call;
    int products, product_capacity, calls, call_capacity;
    double floats[SL_LOAD_KERNELS];
    double attention; /* multiply-adds of attention's products */
    double kernels;   /* number of kernel calls */
};

struct sl_load_loop {
    struct sl_load_work part[SL_LOAD_PARTS];
    double gathered; /* bytes of whole kernels gathered over data by each UNSHARD */
};

/* Work of one coordinate. */
struct sl_load {
    int loops;
    struct sl_load_loop *loop; /* [loops]; the last stage's loop includes the loss */
    double handed;             /* bytes per microbatch sent by a stage to the next */
    bool failed;               /* no memory for counting */
    /* State while counting: */
    bool again;    /* count forward's work in I, too, which runs it again */
    double repeat; /* repetitions of the products planned next */
};

/* Opens a load for LOOPS loops. Returns SL_FAILED, without a message, if there is no memory. Free with
 * sl_load_close. */
int sl_load_open(struct sl_load *load, int loops);
void sl_load_close(struct sl_load *load);

/* For plan functions, after they have declared their parameters: if all parameters are frozen, W is not counted. Counts
 * are per microbatch. */
void sl_load_product(const struct sl_plan *plan, enum sl_load_part part, const struct sl_load_product *product);
void sl_load_floats(const struct sl_plan *plan, enum sl_load_part part, enum sl_load_kernel kernel, double floats);
void sl_load_attention(const struct sl_plan *plan, enum sl_load_part part, double multiply_adds);
/* Counts a collective call over AXES; nothing if the coordinate is alone there. BYTES are per microbatch, in COUNT
 * calls. */
void sl_load_call(const struct sl_plan *plan, enum sl_load_part part, enum sl_operation operation, const char *axes,
                  double bytes, double count);
/* Sets how many times per microbatch the products planned next are computed. */
void sl_load_repeat(const struct sl_plan *plan, double times);

SL_END_C
#endif
