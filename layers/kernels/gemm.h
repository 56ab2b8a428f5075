/* gemm.h - matrix products behind one table: plan once, execute often.
 *
 *     C[m, n] = op(A) op(B)  (+ bias[n])  (+ X[m, n])  or  C += op(A) op(B)
 * op(A) is [m, k]: A is stored as [m, k], or as [k, m] when transposed. op(B) is [k, n]: B is stored as [k, n], or as
 * [n, k] when transposed. All arrays are row-major, and dense but where a plan says otherwise (sl_gemm_plan_columns). A
 * and B are float (SL_F32) or bf16 in uint16_t (SL_BF16); sums are always float. On one CPU the same plan gives the
 * same bits for the same operands. */
#ifndef SL_LAYERS_KERNELS_GEMM_H
#define SL_LAYERS_KERNELS_GEMM_H

#include "spmd/base/bf16.h"
#include "spmd/base/dtype.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* What a product does besides: it adds a bias, or leaves the sums of B's columns, too, which are a bias's gradient
 * where B is that of a layer's result. Or it leaves gelu (in its tanh form) of itself, with a bias or without, or
 * itself times gelu's slope: of bf16 alone. */
enum sl_epilogue {
    SL_EPILOGUE_NONE,
    SL_EPILOGUE_BIAS,
    SL_EPILOGUE_SUMS,
    SL_EPILOGUE_GELU,
    SL_EPILOGUE_BIAS_GELU,
    SL_EPILOGUE_SLOPE
};

struct sl_gemm_backend;

struct sl_gemm {
    enum sl_dtype dtype; /* of A and B */
    int m, n, k;
    bool transpose_a, transpose_b;
    enum sl_epilogue epilogue;
    const struct sl_gemm_backend *backend;
    void *state;            /* the backend's plan */
    int a_stride, c_stride; /* elements from a row of A as it is stored, or of C, to the next; 0: dense */
};

/* The arrays of COUNT products that share B: A is [count][m, k], C is [count][m, n], and every row has the bits that it
 * has in a product of its own. A must not be transposed, unless COUNT is 1. A, B and what C may be are those that the
 * plan's backend takes, as the functions below tell; a plan that has strides has them of A, C and X. */
struct sl_gemm_arrays {
    int count;           /* at least 1 */
    struct sl_rows a, b; /* of the plan's type; bf16 beside a plan for floats where sl_gemm_widens */
    bool packed;         /* B is a copy by sl_gemm_pack */
    struct sl_rows bias; /* [n], of C's type; read only if the plan has that epilogue */
    struct sl_rows x;    /* [count][m, n], of C's type: is added. C itself: that is added to, never together with a
                            bias, rounding or a copy. Another array: where sl_gemm_adds. At is NULL: nothing is added */
    struct sl_rows gelu; /* [count][m, n] bf16: the product and the bias, of which C is gelu; or what SLOPE reads */
    struct sl_out c;     /* floats; rounded or with a copy, where sl_gemm_settles; bf16, where sl_gemm_leaves_bf16 */
    float *sums;         /* [n]: the sums of the columns of B [k, n], in an order of the backend's; with
                            SL_EPILOGUE_SUMS */
};

struct sl_gemm_backend {
    const char *name;
    const char *missing;                    /* NULL, or the CMake setting that builds it: "SL_ONEDNN=ON" */
    bool on_device;                         /* operands lie in the device's memory (sl_device.reaches) */
    bool takes_columns;                     /* sl_gemm_plan_columns */
    bool settles, adds, leaves_bf16;        /* sl_gemm_settles, sl_gemm_adds, sl_gemm_leaves_bf16 */
    bool sums, sums_floats;                 /* sl_gemm_sums: of bf16; of floats, too */
    bool (*supports)(enum sl_dtype dtype);  /* whether it can multiply DTYPE on this CPU; NULL: always */
    bool (*has_tiles)(enum sl_dtype dtype); /* whether it multiplies DTYPE by a CPU's matrix unit; NULL: it does not */
    int (*plan)(struct sl_gemm *gemm, struct sl_error *error);
    int (*execute)(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue);
    /* sl_gemm_widens, of a product of floats that is not planned yet; NULL: never. */
    bool (*widens)(const struct sl_gemm *gemm);
    /* sl_gemm_packs, of a product that is not planned yet, and sl_gemm_pack; NULL: never. */
    bool (*packs)(const struct sl_gemm *gemm, enum sl_dtype weights);
    void (*pack)(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue);
    void (*release)(struct sl_gemm *gemm);
    /* Which version of a library it is, and which of the CPU's instructions it uses, into TEXT; NULL: its name says
     * all.
     */
    void (*describe)(char *text, size_t size);
};

extern const struct sl_gemm_backend sl_gemm_cpu;     /* chooses the fastest of the CPU's backends by shape and dtype */
extern const struct sl_gemm_backend sl_gemm_onednn;  /* oneDNN, which generates code for the CPU at hand */
extern const struct sl_gemm_backend sl_gemm_blocked; /* few_rows.c over copied blocks, where oneDNN has no code */
extern const struct sl_gemm_backend sl_gemm_cublas;  /* NVIDIA's cuBLASLt */
extern const struct sl_gemm_backend sl_gemm_cublas_tf32; /* the same, floats rounded to TF32's 10 bits of mantissa */
extern const struct sl_gemm_backend sl_gemm_reference;   /* plain loops: the oracle, and visible to the sanitizers */

/* The backend called NAME; the build's default if NAME is NULL. NULL with a line in ERROR if there is no such one. */
const struct sl_gemm_backend *sl_gemm_find(const char *name, struct sl_error *error);

/* Whether BACKEND is in this build and can multiply DTYPE on this CPU. */
bool sl_gemm_supports(const struct sl_gemm_backend *backend, enum sl_dtype dtype);

/* What multiplies: BACKEND's name, or what it says of itself: "oneDNN 3.0.0, ISA e7". */
void sl_gemm_describe(const struct sl_gemm_backend *backend, char *text, size_t size);

/* Plans products of these shapes. Release with sl_gemm_release. */
int sl_gemm_plan(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n, int k,
                 bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, struct sl_error *error);
/* The same where A, or C, is some columns of a wider array: from each of its rows as it is stored to the next are
 * A_STRIDE, or C_STRIDE, elements; 0: it is dense. Products that share B follow each other as their rows do, and what
 * is added to C lies as C does. For a BACKEND that takes columns, and without gelu. Not on CPUs, which copy what they
 * multiply into blocks of their own. */
int sl_gemm_plan_columns(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n,
                         int k, bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, int a_stride,
                         int c_stride, struct sl_error *error);
/* Computes what ARRAYS say. On a device with queues the product is enqueued on QUEUE (NULL: on the calling thread's
 * queue). On CPUs QUEUE is NULL, or the calling thread's struct sl_crew, which helps, and does not change a bit. */
int sl_gemm_execute(const struct sl_gemm *gemm, struct sl_gemm_arrays arrays, void *queue);
/* COUNT products of operands of GEMM's type that leave floats: C = A B + BIAS, which may be NULL; or C += A B, if it
 * ACCUMULATES. */
struct sl_gemm_arrays sl_gemm_floats(const struct sl_gemm *gemm, int count, const void *a, const void *b,
                                     const float *bias, bool accumulate, float *c);
/* Whether C may be rounded floats, with a copy in bf16 or without: in the pass that stores the sums or adds the bias,
 * or while the sums of a product are near. */
static inline bool sl_gemm_settles(const struct sl_gemm_backend *backend) { return backend->settles; }
/* Whether BACKEND adds another array than C to a product as that ends. Not on CPUs, whose caches have what a sum then
 * reads. */
static inline bool sl_gemm_adds(const struct sl_gemm_backend *backend) { return backend->adds; }
/* Whether C of a plan for bf16 may be bf16, with gelu or its slope, too: rounded once, when the bias and X have been
 * added; but gelu may read the product before it is rounded. Not on CPUs. */
static inline bool sl_gemm_leaves_bf16(const struct sl_gemm_backend *backend) { return backend->leaves_bf16; }
/* Whether products of floats of these shapes take a B that lies as bf16, and a transposed A, too: they widen it as they
 * read it, with the bits that they have for those floats. */
bool sl_gemm_widens(const struct sl_gemm_backend *backend, int m, int n, int k, bool transpose_a, bool transpose_b,
                    enum sl_epilogue epilogue);
/* Whether products of M rows, and of fewer, planned for operands of DTYPE and a B [k, n] that lies as WEIGHTS, are
 * faster by a copy of B that sl_gemm_pack makes. They have the bits that they have from B itself. */
bool sl_gemm_packs(const struct sl_gemm_backend *backend, enum sl_dtype dtype, enum sl_dtype weights, int m, int n,
                   int k);
/* PACKED, as many bytes as B, becomes such a copy for plans with GEMM's n and k, of any rows. It is good for the same
 * QUEUE. */
void sl_gemm_pack(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue);
/* Whether BACKEND plans products of DTYPE with SL_EPILOGUE_SUMS: for bf16, and for floats where it rounds these to TF32
 * anyway, for it may add them up so. B must not be transposed. */
bool sl_gemm_sums(const struct sl_gemm_backend *backend, enum sl_dtype dtype);
void sl_gemm_release(struct sl_gemm *gemm);

SL_END_C
#endif
