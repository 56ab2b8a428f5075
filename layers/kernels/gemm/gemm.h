/* gemm.h - matrix products behind one table: plan once, execute often.
 *
 *     C[m, n] = op(A) op(B)  (+ bias[n])  (+ X[m, n])  or  C += op(A) op(B)
 * op(A) is [m, k]: A is stored as [m, k], or as [k, m] when transposed. op(B) is [k, n]: B is stored as [k, n], or as
 * [n, k] when transposed. All arrays are row-major, and dense unless a plan has strides (sl_gemm_plan_columns). A and B
 * are float (SL_F32) or bf16 in uint16_t (SL_BF16); sums are always float. On one CPU the same plan gives the same bits
 * for the same operands. */
#ifndef SL_LAYERS_KERNELS_GEMM_GEMM_H
#define SL_LAYERS_KERNELS_GEMM_GEMM_H

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/numbers/dtype.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Second task of a product: BIAS adds a bias. SUMS also writes the column sums of B; if B is the gradient of a layer's
 * output, they are the gradient of its bias. GELU and BIAS_GELU apply gelu (tanh form) to the product, or to product
 * plus bias; SLOPE multiplies the product by gelu's slope; these three are for bf16 only. */
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
    int a_stride, c_stride; /* elements from one row of A as stored, or of C, to the next; 0: dense */
};

/* Arrays of COUNT products that share B: A is [count][m, k], C is [count][m, n]; each row has the same bits as in a
 * product of its own. A must not be transposed, unless COUNT is 1. The functions below return which forms of A, B and C
 * a backend supports. A plan's strides apply to A, C and X. */
struct sl_gemm_arrays {
    int count;           /* at least 1 */
    struct sl_rows a, b; /* of the plan's type; or bf16 in a plan for floats, if sl_gemm_widens */
    bool packed;         /* B is a copy by sl_gemm_pack */
    struct sl_rows bias; /* [n], of C's type; read only if the plan has a bias epilogue */
    struct sl_rows x; /* [count][m, n], of C's type: added to the product. If X is C, the product is added to C, without
                         bias, rounding or copy. Another array: only if sl_gemm_adds. At is NULL: nothing is added */
    struct sl_rows gelu; /* [count][m, n] bf16: output of GELU (product plus bias, before gelu), or input of SLOPE */
    struct sl_out c;     /* floats; rounded or with a copy, if sl_gemm_settles; bf16, if sl_gemm_leaves_bf16 */
    float *sums;         /* [n]: column sums of B [k, n], in the backend's order; with SL_EPILOGUE_SUMS */
};

struct sl_gemm_backend {
    const char *name;
    const char *missing;             /* NULL; or, if not built, the CMake setting that builds it: "SL_ONEDNN=ON" */
    bool on_device;                  /* operands are in the device's memory (sl_device.reaches) */
    bool takes_columns;              /* supports sl_gemm_plan_columns */
    bool settles, adds, leaves_bf16; /* sl_gemm_settles, sl_gemm_adds, sl_gemm_leaves_bf16 */
    bool sums, sums_floats;          /* sl_gemm_sums: for bf16; for floats, too */
    bool (*supports)(enum sl_dtype dtype);  /* whether it can multiply DTYPE on this CPU; NULL: always */
    bool (*has_tiles)(enum sl_dtype dtype); /* whether it multiplies DTYPE with a CPU's matrix unit; NULL: no */
    int (*plan)(struct sl_gemm *gemm, struct sl_error *error);
    int (*execute)(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue);
    /* Implements sl_gemm_widens, for a product of floats before it is planned; NULL: never. */
    bool (*widens)(const struct sl_gemm *gemm);
    /* Implement sl_gemm_packs, for a product before it is planned, and sl_gemm_pack; NULL: never. */
    bool (*packs)(const struct sl_gemm *gemm, enum sl_dtype weights);
    void (*pack)(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue);
    void (*release)(struct sl_gemm *gemm);
    /* Writes the library's version and the instruction set it uses into TEXT; NULL: the name suffices. */
    void (*describe)(char *text, size_t size);
};

extern const struct sl_gemm_backend sl_gemm_cpu;     /* chooses the fastest CPU backend by shape and dtype */
extern const struct sl_gemm_backend sl_gemm_onednn;  /* oneDNN, which generates code for this CPU */
extern const struct sl_gemm_backend sl_gemm_blocked; /* few_rows.c over copied blocks, for shapes without oneDNN code */
extern const struct sl_gemm_backend sl_gemm_cublas;  /* NVIDIA's cuBLASLt */
extern const struct sl_gemm_backend sl_gemm_cublas_tf32; /* cuBLASLt, floats rounded to TF32's 10 bits of mantissa */
extern const struct sl_gemm_backend sl_gemm_reference;   /* plain loops: the oracle, and visible to sanitizers */

/* Returns the backend called NAME, or the build's default if NAME is NULL. Returns NULL with a line in ERROR if there
 * is no such backend. */
const struct sl_gemm_backend *sl_gemm_find(const char *name, struct sl_error *error);

/* Returns whether BACKEND is in this build and can multiply DTYPE on this CPU. */
bool sl_gemm_supports(const struct sl_gemm_backend *backend, enum sl_dtype dtype);

/* Writes BACKEND's name, or its own description, such as "oneDNN 3.0.0, ISA e7", into TEXT. */
void sl_gemm_describe(const struct sl_gemm_backend *backend, char *text, size_t size);

/* Plans products of these shapes. Release the plan with sl_gemm_release. */
int sl_gemm_plan(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n, int k,
                 bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, struct sl_error *error);
/* sl_gemm_plan for an A or C that is some columns of a wider array: A_STRIDE, or C_STRIDE, is the number of elements
 * from one stored row to the next; 0: dense. Products that share B follow each other at the same stride, and X has C's
 * stride. Only for a BACKEND that takes columns, and without gelu. CPU backends do not: they copy operands into blocks
 * of their own. */
int sl_gemm_plan_columns(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n,
                         int k, bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, int a_stride,
                         int c_stride, struct sl_error *error);
/* Computes ARRAYS by the plan. On a device with queues the product is enqueued on QUEUE (NULL: the calling thread's
 * queue). On CPUs QUEUE is NULL, or the calling thread's struct sl_crew, which helps and does not change the bits. */
int sl_gemm_execute(const struct sl_gemm *gemm, struct sl_gemm_arrays arrays, void *queue);
/* Returns arrays for COUNT products of operands of GEMM's type with results in floats: C = A B + BIAS, which may be
 * NULL; or C += A B, if ACCUMULATE. */
struct sl_gemm_arrays sl_gemm_floats(const struct sl_gemm *gemm, int count, const void *a, const void *b,
                                     const float *bias, bool accumulate, float *c);
/* Returns whether C may be rounded floats, with or without a bf16 copy: rounded in the pass that stores the sums or
 * adds the bias, or while the sums of a product are in cache. */
static inline bool sl_gemm_settles(const struct sl_gemm_backend *backend) { return backend->settles; }
/* Returns whether BACKEND can add an array other than C at the end of a product. CPU backends do not: a separate sum
 * finds the product in the caches. */
static inline bool sl_gemm_adds(const struct sl_gemm_backend *backend) { return backend->adds; }
/* Returns whether a plan for bf16 may write C as bf16, also with gelu or its slope. The result is rounded once, after
 * bias and X are added; gelu may read the unrounded product. CPU backends do not. */
static inline bool sl_gemm_leaves_bf16(const struct sl_gemm_backend *backend) { return backend->leaves_bf16; }
/* Returns whether products of floats of these shapes accept a bf16 B, and a bf16 transposed A, too: they widen it while
 * reading, with the same bits as for float operands. */
bool sl_gemm_widens(const struct sl_gemm_backend *backend, int m, int n, int k, bool transpose_a, bool transpose_b,
                    enum sl_epilogue epilogue);
/* Returns whether a copy of B by sl_gemm_pack speeds up products of at most M rows, planned for operands of DTYPE and a
 * B [k, n] of type WEIGHTS. The bits are the same as from B itself. */
bool sl_gemm_packs(const struct sl_gemm_backend *backend, enum sl_dtype dtype, enum sl_dtype weights, int m, int n,
                   int k);
/* Writes this copy of B into PACKED, as many bytes as B, for plans with GEMM's n and k and any m. Use it with the same
 * QUEUE only. */
void sl_gemm_pack(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue);
/* Returns whether BACKEND plans products of DTYPE with SL_EPILOGUE_SUMS: bf16, and floats if it rounds them to TF32
 * anyway, because it may round them in the sums, too. B must not be transposed. */
bool sl_gemm_sums(const struct sl_gemm_backend *backend, enum sl_dtype dtype);
void sl_gemm_release(struct sl_gemm *gemm);

SL_END_C
#endif
