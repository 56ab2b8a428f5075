/* operands.h - operands of products, with known values, and all backends. */
#ifndef SL_TESTS_RIGS_OPERANDS_H
#define SL_TESTS_RIGS_OPERANDS_H

#include "layers/kernels/gemm/gemm.h"
#include "tests/rigs/numbers.h"

static const struct sl_gemm_backend *const backends[] = {&sl_gemm_cpu,       &sl_gemm_onednn, &sl_gemm_blocked,
                                                         &sl_gemm_reference, &sl_gemm_cublas, &sl_gemm_cublas_tf32};
enum { BACKENDS = sizeof backends / sizeof *backends };

/* value: the numbers as the product reads them; memory: a device allocation; data: the numbers in it, BY elements
 * behind an aligned address. */
struct operand {
    float *value;
    char *memory;
    void *data;
};

/* HALVES: values are exact in bf16, and so in TF32, even if they are stored as floats. */
static inline struct operand make_operand(struct numbers *numbers, enum sl_dtype dtype, bool halves, size_t count,
                                          size_t by) {
    const size_t size = sl_dtype_size(dtype);
    struct operand operand = {array_of(count, sizeof(float)), sl_device.take((count + by) * size), NULL};
    uint16_t *half = array_of(count, sizeof *half);
    assert_non_null(operand.memory);
    operand.data = operand.memory + by * size;
    for (size_t i = 0; i < count; i++) {
        const float number = next_float(numbers, -1.0f, 1.0f);
        half[i] = sl_bf16_of_float(number);
        operand.value[i] = halves || dtype == SL_BF16 ? sl_float_of_bf16(half[i]) : number;
    }
    sl_device.copy(operand.data, dtype == SL_BF16 ? (void *)half : operand.value, count * size);
    free(half);
    return operand;
}

static inline void free_operand(struct operand *operand) {
    sl_device.give(operand->memory);
    free(operand->value);
}

#endif
