/* products.h - the three matrix products of a module with a kernel: y = x kernel, dx = dy kernel^T, dkernel = x^T dy.
 *
 * bf16 products need rounded operands. The owner of the parameters rounds the kernel each time its values change
 * (sl_parameters_round); x and dy are rounded here, unless they have been saved as bf16. If the storage is bf16,
 * kernels, and x and dy in W, are bf16; float32 products read them directly if they can (sl_gemm_widens), otherwise
 * they are widened. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H
#define SL_LAYERS_MODULES_FEEDFORWARD_PRODUCTS_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_products {
    /* Forward has no backend if it multiplies by a kernel's blocks. */
    struct sl_gemm forward, input_gradient, weight_gradient;
    struct sl_gemm gelu, slope; /* forward and the input gradient, fused with a gelu's part */
    struct sl_place bias;       /* [out]: bf16 copy of the bias, if the parameters have none */
    enum sl_dtype kernel; /* type of the kernel in memory, or as gathered; SL_QUANTIZED: a struct sl_blocks [out, in] */
    /* Workspace for x and dy of the product with the most rows in the operands' type, if x and dy may have another
     * type. */
    struct sl_place x, dy;
    struct sl_place widened; /* [in, out] floats: the kernel, if it is bf16 and the operands are floats; [out, in] for
                                blocks with a backward pass */
    struct sl_place rounded; /* x of the forward product, rounded for integer products with blocks */
    int leaves;              /* as in the shape, at least 1 */
    /* The product reads the stored bf16 directly: the kernel, or x and dy of W. */
    bool widens_forward, widens_input, widens_weight;
    bool takes_floats; /* W's product reads only floats, although the storage is bf16: the module should set the same */
    bool sums;         /* W's product also writes the sums of dy over its rows: the gradient of a bias */
    struct sl_place added; /* [out]: such sums, to be added to the gradient */
    int x_stride;          /* elements between rows of x, and of dx, if they are columns of wider rows; 0: dense */
    int packed;            /* cache of the kernel's copy for products of few rows (sl_gemm_pack); -1: none */
};

struct sl_products_shape {
    enum sl_dtype precision;
    int in, out;     /* columns of x and of y; the kernel is stored as [in, out] */
    bool transposed; /* the kernel is stored as [out, in] */
    int rows;        /* rows of x and y in the forward product, of dy and dx in the input gradient's product */
    int wgrad_rows;  /* rows of x and dy in the weight gradient's product */
    enum sl_epilogue epilogue; /* operation fused into the forward product */
    bool float_kernel;         /* the kernel is float32 in every storage */
    bool own_kernel;           /* forward's kernel is a whole parameter, and does not change while caches exist */
    bool kept;                 /* W receives x and dy in their saved types */
    int x_stride;              /* x and dx should have this stride, if the backend can */
    bool biased;               /* W should compute the bias's gradient, too, if the backend can */
    /* Number of leaves that divide the rows, each with products of its own: forward's and the input gradient's run one
     * after another, as for microbatches; the weight gradient's is called for each leaf's rows. 0 counts as 1 */
    int leaves;
};

/* Plans the forward product and, unless plan->forward_only, the two backward products; none of them if
 * plan->sizes_only. Frees an earlier call's plans. Free with sl_products_release. */
int sl_products_plan(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape);
void sl_products_release(struct sl_products *products);

/* Returns whether planned products can be fused with a gelu's part. */
bool sl_products_fuse_gelus(const struct sl_products *products, const struct sl_plan *plan);
/* Plan fused products: forward with a gelu behind it, or the input gradient with the slope of a gelu before it. A call
 * chooses its product by struct sl_result's gelu. */
int sl_products_plan_gelu(struct sl_products *products, struct sl_plan *plan);
int sl_products_plan_slope(struct sl_products *products, struct sl_plan *plan);

/* Values of MODULE's parameter 0, in the type products->kernel. */
const void *sl_products_kernel(const struct sl_products *products, const struct sl_module *module,
                               const struct sl_context *context);
/* N elements of a KERNEL, of type products->kernel, in the type read by the products. If this is another type, they are
 * at products->widened until the next call for these products. */
const void *sl_products_weights(const struct sl_products *products, const struct sl_context *context, size_t n,
                                const void *kernel);
/* Returns X [n] in the type read by the products. If X does not have it, its values are written to ROOM, which is
 * products->x or products->dy. */
const void *sl_products_operand(const struct sl_products *products, const struct sl_context *context,
                                const struct sl_place *room, size_t n, struct sl_given x);
/* Returns ROOM's address, where a kernel may write the bf16 copy of an operand; NULL if the products read floats. */
uint16_t *sl_products_room(const struct sl_products *products, const struct sl_context *context,
                           const struct sl_place *room);
/* Sets MODULE's uses: its products may write only bf16, and may read x and dy as operands saved by the parent. dy is
 * not such an operand if a bias needs its sums. ADDS_UP: the forward product is only a summand of y, over coordinates
 * or leaves. WHOLE: the input gradient's product is all of dx. */
void sl_products_offer(const struct sl_products *products, struct sl_module *module, const struct sl_plan *plan,
                       bool biased, bool adds_up, bool whole);
/* Calls sl_gemm_execute; the profile counts its time as products. */
int sl_products_multiply(struct sl_context *context, const struct sl_gemm *gemm, struct sl_gemm_arrays arrays);
/* Plans ROOM for sl_products_by_blocks, if the planned module's parameter 0 needs it there. */
void sl_products_plan_blocks(struct sl_plan *plan, size_t rows, size_t in, struct sl_place *room);
/* C [rows, out] = A [rows, in] KERNEL^T, + BIAS [out] unless NULL. */
void sl_products_by_blocks(struct sl_context *context, const struct sl_blocks *kernel, const struct sl_place *room,
                           size_t rows, const float *a, const float *bias, float *c);
/* C = A KERNEL, plus BIAS if it has that epilogue, by the forward product of COUNT microbatches; KERNEL has the type
 * products->kernel. Writes C in the form that the caller needs, and adds its summand, if the product can. */
int sl_products_forward(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                        const void *kernel, const float *bias, struct sl_result *c);
/* C (+)= A KERNEL^T by the input gradient's product of COUNT microbatches; KERNEL and C as above. If ACCUMULATE is
 * set, C is floats. */
int sl_products_input_gradient(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                               const void *kernel, bool accumulate, struct sl_result *c);
/* C (+)= A^T B by the weight gradient's product. A and B are from the functions above; if there are several leaves,
 * they are the rows of one leaf. If products->sums, the sums of B's columns are written to BIAS [out], a gradient, or
 * added to it if the context accumulates; otherwise BIAS may be NULL. */
int sl_products_weight_gradient(struct sl_context *context, const struct sl_products *products, const void *a,
                                const void *b, bool accumulate, float *c, float *bias);

SL_END_C
#endif
