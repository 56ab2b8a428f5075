/* products.h - the three matrix products of a module with a kernel: y = x kernel, dx = dy kernel^T, dkernel = x^T dy.
 *
 * In bf16 the operands are rounded first, unless they have been kept so. The owner of the parameters rounds the kernel
 * each time its values change (sl_parameters_round); x and dy are rounded here. What the storage has as bf16, kernels,
 * and x and dy in W, products of floats read as it lies where they can (sl_gemm_widens); else it is widened for them.
 */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_products {
    /* Forward has no backend where it multiplies by a kernel's blocks. */
    struct sl_gemm forward, input_gradient, weight_gradient;
    struct sl_gemm gelu, slope;     /* forward and the input gradient, with a gelu's part */
    bool leaves_gelu, leaves_slope; /* where these are planned */
    struct sl_place bias;           /* [out]: rounded, where nobody else has it so */
    enum sl_dtype kernel; /* the type in which the kernel lies in memory, or is gathered; SL_QUANTIZED: it is given as a
                             struct sl_blocks [out, in] */
    /* In the workspace: room for x and dy of the product with the most rows in the operands' type, where that may be
     * another than theirs. */
    struct sl_place x, dy;
    struct sl_place widened; /* [in, out] floats: the kernel, where it lies as bf16 and the operands are floats; or,
                                [out, in], in blocks and there is a backward pass */
    int leaves;              /* as in the shape, 1 at least */
    /* The product reads the kernel as it lies, or x and dy of W: */
    bool widens_forward, widens_input, widens_weight;
    bool takes_floats; /* that of W reads floats alone, although the storage is bf16: the module should set the same */
    bool sums;         /* W's product leaves the sums of dy over its rows: the gradient of a bias */
    struct sl_place added; /* [out]: those that are added to others */
    int x_stride; /* elements from a row of x, and of dx, to the next, where these are columns of wider ones; 0: dense
                   */
    int packed;   /* the cache of the kernel's copy by which few rows are multiplied (sl_gemm_pack); -1: none */
};

struct sl_products_shape {
    enum sl_dtype precision;
    int in, out;               /* columns of x and of y; the kernel is stored as [in, out], */
    bool transposed;           /* or, if set, as [out, in] */
    int rows;                  /* rows of x and y in the forward product, of dy and dx in the input gradient's */
    int wgrad_rows;            /* rows of x and dy in the weight gradient's product */
    enum sl_epilogue epilogue; /* what the forward product adds to its result */
    bool float_kernel;         /* the kernel stays float in every storage */
    bool own_kernel;           /* forward's kernel is the whole of a parameter, and stays the same while caches do */
    bool kept;                 /* W is given x and dy as they are kept */
    bool gelu_follows, gelu_precedes; /* the products should do a gelu's part, too, where the backend can */
    int x_stride;                     /* x and dx should be read and left with this stride, where the backend can */
    bool biased;                      /* W should leave the bias's gradient, too, where the backend can */
    /* Into so many leaves the rows divide, each of which has products of its own: forward's and the input gradient's
     * one after another, as microbatches have them; the weight gradient's, by calls for its rows. 0: 1 */
    int leaves;
};

/* Plans the forward product and, unless plan->forward_only, the two backward products; none of them if
 * plan->sizes_only. Frees what an earlier call planned. Free with sl_products_release. */
int sl_products_plan(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape);
void sl_products_release(struct sl_products *products);

/* The values of MODULE's parameter 0 as products->kernel. */
const void *sl_products_kernel(const struct sl_products *products, const struct sl_module *module,
                               const struct sl_context *context);
/* N elements of a KERNEL as products->kernel, in the type that the products read: at products->widened, where it stays
 * until the next call for these products, if that is another type. */
const void *sl_products_weights(const struct sl_products *products, const struct sl_context *context, size_t n,
                                const void *kernel);
/* X [n] in the type that the products read. bf16 values are written at ROOM, which is products->x or products->dy. */
const void *sl_products_operand(const struct sl_products *products, const struct sl_context *context,
                                const struct sl_place *room, size_t n, const float *x);
/* Where a kernel that writes an operand writes it as bf16, too: ROOM, as above; NULL where the products read floats. */
uint16_t *sl_products_room(const struct sl_products *products, const struct sl_context *context,
                           const struct sl_place *room);
/* The same for MODULE's dy in I, at products->dy. A W that follows does not round it again. */
const void *sl_products_input_operand(const struct sl_products *products, const struct sl_module *module,
                                      struct sl_context *context, size_t n, const float *dy);
/* The same for x or dy of W, X [n] as it is kept; as it lies, where the weight gradient's product reads it so. */
const void *sl_products_kept(const struct sl_products *products, const struct sl_context *context,
                             const struct sl_place *room, size_t n, const float *x);
/* The same for x of MODULE's W, which may be given an operand. */
const void *sl_products_input(const struct sl_products *products, const struct sl_module *module,
                              const struct sl_context *context, size_t n, const float *x);
/* The same for dy of W, which has followed MODULE's I if it may: then it is not kept, but what I has read. */
const void *sl_products_gradient(const struct sl_products *products, const struct sl_module *module,
                                 const struct sl_context *context, size_t n, const float *dy);
/* MODULE says what its products do with what its parent keeps: they may leave bf16 alone; and read x and dy as
 * operands, where PLAN's products read them so: dy, where no bias needs its sums. ADDS_UP: the forward product is but a
 * summand of y, of coordinates or leaves. WHOLE: the input gradient's is all of dx. */
void sl_products_offer(const struct sl_products *products, struct sl_module *module, const struct sl_plan *plan,
                       bool biased, bool adds_up, bool whole);
/* sl_gemm_execute, whose time the profile counts as a product's. */
int sl_products_multiply(struct sl_context *context, const struct sl_gemm *gemm, struct sl_gemm_arrays arrays);
/* C [rows, out] = A [rows, in] KERNEL^T, + BIAS [out] unless NULL. */
void sl_products_by_blocks(struct sl_context *context, const struct sl_blocks *kernel, size_t rows, const float *a,
                           const float *bias, float *c);
/* C = A KERNEL, plus BIAS if it has that epilogue, by the forward product of COUNT microbatches; KERNEL is as
 * products->kernel. Where the product can leave C as RESULT says, it does; RESULT may be NULL. */
int sl_products_forward(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                        const void *kernel, const float *bias, float *c, struct sl_result *result);
/* C (+)= A KERNEL^T by the input gradient's product of COUNT microbatches; KERNEL and RESULT as above, which must not
 * go together with ACCUMULATE. */
int sl_products_input_gradient(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                               const void *kernel, bool accumulate, float *c, struct sl_result *result);
/* C (+)= A^T B, which sl_products_kept has given, by the weight gradient's product; of a leaf, if there are several.
 * Where products->sums, BIAS [out], a gradient in the context's way, is or gets the sums of B's columns; else it may be
 * NULL. */
int sl_products_weight_gradient(struct sl_context *context, const struct sl_products *products, const void *a,
                                const void *b, bool accumulate, float *c, float *bias);

SL_END_C
#endif
