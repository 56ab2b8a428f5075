/* gemm.h - matrix products behind one table: plan once, execute often.
 *
 *     C[m, n] = op(A) op(B)  (+ bias[n])  or  C += op(A) op(B)
 * op(A) is [m, k]: A is stored [m, k], or [k, m] when transposed; op(B) is [k, n]: B is [k, n], or [n, k]. Row-major,
 * dense. A and B are float (SL_F32), or bf16 as uint16_t (SL_BF16); sums, C and bias are float either way. The same
 * plan gives the same bits for the same operands on one CPU. */
#ifndef SL_LAYERS_KERNELS_GEMM_H
#define SL_LAYERS_KERNELS_GEMM_H

#include "spmd/base/error.h"

SL_BEGIN_C

enum sl_epilogue { SL_EPILOGUE_NONE, SL_EPILOGUE_BIAS };

struct sl_gemm_backend;

struct sl_gemm {
    enum sl_dtype dtype; /* of A and B */
    int m, n, k;
    bool transpose_a, transpose_b;
    enum sl_epilogue epilogue;
    const struct sl_gemm_backend *backend;
    void *state; /* the backend's plan */
};

struct sl_gemm_backend {
    const char *name;
    const char *missing;                   /* NULL, or the setting of CMake's that builds it: "SL_ONEDNN=ON" */
    bool on_device;                        /* operands lie where sl_device.reaches, not in the host's memory */
    bool (*supports)(enum sl_dtype dtype); /* on this CPU; NULL: every one */
    int (*plan)(struct sl_gemm *gemm, struct sl_error *error);
    int (*execute)(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                   float *c, void *queue);
    void (*release)(struct sl_gemm *gemm);
};

extern const struct sl_gemm_backend sl_gemm_cpu;     /* the fastest of what follows, by shape and dtype */
extern const struct sl_gemm_backend sl_gemm_onednn;  /* generates code for the CPU it meets */
extern const struct sl_gemm_backend sl_gemm_blocked; /* copied blocks and few_rows.c: for what the library has not */
extern const struct sl_gemm_backend sl_gemm_cublas;  /* NVIDIA's library */
extern const struct sl_gemm_backend sl_gemm_cublas_tf32; /* of floats as its tensor cores take them: 10 bits */
extern const struct sl_gemm_backend sl_gemm_reference;   /* plain loops: the oracle, and what the sanitizers can see */

/* The backend called NAME, or the build's default where NAME is NULL. */
const struct sl_gemm_backend *sl_gemm_find(const char *name, struct sl_error *error);

/* BACKEND is in the build and can multiply DTYPE on this CPU. */
bool sl_gemm_supports(const struct sl_gemm_backend *backend, enum sl_dtype dtype);

int sl_gemm_plan(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n, int k,
                 bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, struct sl_error *error);
/* BIAS is read where the plan has that epilogue; ACCUMULATE adds to C (never together with a bias). On a device with
 * queues the product is enqueued on QUEUE, or on the calling thread's where QUEUE is NULL. */
int sl_gemm_execute(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                    float *c, void *queue);
void sl_gemm_release(struct sl_gemm *gemm);

SL_END_C
#endif
