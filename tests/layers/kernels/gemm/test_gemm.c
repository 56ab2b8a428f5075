/* test_gemm.c - matrix products of floats and of bf16 against a naive one in double, for every backend in the build. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/gemm.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/device/device.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct way {
    const struct sl_gemm_backend *backend;
    enum sl_dtype dtype;
} ways[] = {
    {&sl_gemm_cpu, SL_F32},       {&sl_gemm_cpu, SL_BF16},        {&sl_gemm_onednn, SL_F32},
    {&sl_gemm_onednn, SL_BF16},   {&sl_gemm_blocked, SL_F32},     {&sl_gemm_blocked, SL_BF16},
    {&sl_gemm_reference, SL_F32}, {&sl_gemm_reference, SL_BF16},  {&sl_gemm_cublas, SL_F32},
    {&sl_gemm_cublas, SL_BF16},   {&sl_gemm_cublas_tf32, SL_F32}, {&sl_gemm_cublas_tf32, SL_BF16},
};
enum { WAYS = sizeof ways / sizeof *ways, VECTOR = 16 /* bytes */ };
static bool devices_alone; /* "few": other presets test the host's products in less time */

static bool possible(struct way way) {
    return sl_gemm_supports(way.backend, way.dtype) && (way.backend->on_device || !devices_alone);
}

/* Returns the relative error of a rounded operand: for TF32 half a unit in the tenth bit behind the point, else 0. */
static double rounding(struct way way) {
    return way.backend == &sl_gemm_cublas_tf32 && way.dtype == SL_F32 ? 0x1p-11 : 0.0;
}

/* An operand: its elements, and as the product takes them. */
struct operand {
    float *value;
    void *data;
    size_t bytes;
};

struct product {
    struct sl_gemm gemm;
    struct operand a, b;
    float *bias, *before; /* before: C's contents if the product is added to it */
};

static void set_element(struct operand *operand, enum sl_dtype dtype, size_t i, float value) {
    if (dtype == SL_BF16) {
        ((uint16_t *)operand->data)[i] = (uint16_t)(sl_bits_of_float(value) >> 16); /* towards zero */
        operand->value[i] = sl_float_of_bf16(((uint16_t *)operand->data)[i]);
    } else {
        ((float *)operand->data)[i] = operand->value[i] = value;
    }
}

static struct operand make_operand(struct numbers *numbers, enum sl_dtype dtype, size_t count) {
    const size_t size = sl_dtype_size(dtype);
    struct operand operand = {random_floats(numbers, count, -1.0f, 1.0f), array_of(count, size), count * size};
    for (size_t i = 0; i < count; i++) set_element(&operand, dtype, i, operand.value[i]);
    return operand;
}

static void make_product(struct product *product, struct numbers *numbers, struct way way, int m, int n, int k,
                         bool transpose_a, bool transpose_b, bool bias) {
    struct sl_error error;
    const int status = sl_gemm_plan(&product->gemm, way.backend, way.dtype, m, n, k, transpose_a, transpose_b,
                                    bias ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, &error);
    if (status) fail_msg("%s: %s", way.backend->name, error.message);
    product->a = make_operand(numbers, way.dtype, (size_t)m * k);
    product->b = make_operand(numbers, way.dtype, (size_t)k * n);
    product->bias = random_floats(numbers, (size_t)n, -1.0f, 1.0f);
    product->before = random_floats(numbers, (size_t)m * n, -1.0f, 1.0f);
}

static void free_product(struct product *product) {
    sl_gemm_release(&product->gemm);
    free(product->a.value);
    free(product->a.data);
    free(product->b.value);
    free(product->b.data);
    free(product->bias);
    free(product->before);
}

static size_t elements_of(const struct product *product) { return (size_t)product->gemm.m * product->gemm.n; }

/* Returns whether the backend multiplies in device memory that is not the host's. */
static bool apart(const struct sl_gemm_backend *backend) { return backend->on_device && !sl_device.shares_memory; }

/* Copies DATA to memory of the backend, BY bytes behind the returned address. Exactly as long, for sanitizers. */
static char *place(const struct product *product, const void *data, size_t bytes, size_t by) {
    char *memory = apart(product->gemm.backend) ? sl_device.take(bytes + by) : malloc(bytes + by);
    if (!memory) abort(); /* in any thread */
    if (apart(product->gemm.backend))
        sl_device.copy(memory + by, data, bytes);
    else
        memcpy(memory + by, data, bytes);
    return memory;
}

static void give(const struct product *product, void *memory) {
    (apart(product->gemm.backend) ? sl_device.give : free)(memory);
}

/* Computes C, with operands so many bytes behind an aligned address. */
static int execute_at(const struct product *product, bool accumulate, float *c, size_t a_by, size_t b_by, size_t c_by) {
    const struct sl_gemm *gemm = &product->gemm;
    const size_t bytes = elements_of(product) * sizeof *c;
    char *a = place(product, product->a.data, product->a.bytes, a_by);
    char *b = place(product, product->b.data, product->b.bytes, b_by);
    void *bias = place(product, product->bias, (size_t)gemm->n * sizeof(float), 0);
    char *result = place(product, product->before, bytes, c_by);
    void *to = result + c_by;
    int status = sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a + a_by, b + b_by, bias, accumulate, to), NULL);
    if (apart(product->gemm.backend))
        sl_device.copy(c, result + c_by, bytes);
    else
        memcpy(c, result + c_by, bytes);
    if (!status) status = sl_device.settle(NULL);
    give(product, a);
    give(product, b);
    give(product, bias);
    give(product, result);
    return status;
}

static void execute(const struct product *product, bool accumulate, float *c) {
    assert_int_equal(execute_at(product, accumulate, c, 0, 0, 0), SL_OK);
}

/* Whatever the order of its k + 1 additions, a sum in float errs by less than (k + 2) 2^-24 times the sum of
 * magnitudes. Products of two bf16 are exact in float. */
static void expect_product(const struct product *product, bool accumulate, const float *c) {
    const struct sl_gemm *gemm = &product->gemm;
    const double lost = 2 * rounding((struct way){gemm->backend, gemm->dtype}); /* of two operands */
    char what[120];
    snprintf(what, sizeof what, "%s%s m %d n %d k %d transposes %d %d bias %d accumulate %d", gemm->backend->name,
             gemm->dtype == SL_BF16 ? " bf16" : "", gemm->m, gemm->n, gemm->k, gemm->transpose_a, gemm->transpose_b,
             gemm->epilogue, accumulate);
    for (int i = 0; i < gemm->m; i++) {
        for (int j = 0; j < gemm->n; j++) {
            const size_t at = (size_t)i * gemm->n + j;
            double sum = gemm->epilogue == SL_EPILOGUE_BIAS ? product->bias[j] : accumulate ? product->before[at] : 0;
            double magnitude = fabs(sum);
            for (int l = 0; l < gemm->k; l++) {
                const double a = product->a.value[gemm->transpose_a ? l * gemm->m + i : i * gemm->k + l];
                const double b = product->b.value[gemm->transpose_b ? j * gemm->k + l : l * gemm->n + j];
                sum += a * b;
                magnitude += fabs(a * b);
            }
            expect_close(what, at, c[at], sum, 0.0, magnitude * ((gemm->k + 2) * 0x1p-24 + lost));
        }
    }
}

static void check(struct numbers *numbers, struct way way, int m, int n, int k) {
    for (int transposes = 0; transposes < 4; transposes++) {
        for (int variant = 0; variant < 3; variant++) { /* plain, accumulate, bias */
            const bool accumulate = variant == 1, bias = variant == 2;
            struct product product;
            make_product(&product, numbers, way, m, n, k, transposes & 1, transposes & 2, bias);
            float *c = floats(elements_of(&product));
            execute(&product, accumulate, c);
            expect_product(&product, accumulate, c);
            free(c);
            free_product(&product);
        }
    }
}

static void equals_the_naive_product(void **state) {
    (void)state;
    const int shapes[][3] = {{1, 1, 1},   {1, 5, 3},      {5, 1, 3},      {3, 5, 1},     {2, 33, 17},
                             {8, 64, 64}, {15, 10, 7},    {16, 33, 31},   {17, 48, 65},  {33, 7, 10},
                             {64, 64, 8}, {100, 130, 70}, {13, 48, 33},   {9, 33, 1040}, {32, 80, 48},
                             {9, 64, 2},  {17, 96, 34},   {10, 33, 1120}, {70, 140, 131}};
    struct numbers numbers = {1};
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w])) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check(&numbers, ways[w], shapes[s][0], shapes[s][1], shapes[s][2]);
        for (int random = 0; random < 20; random++) {
            const int m = 1 + (int)(next_word(&numbers) % 40), n = 1 + (int)(next_word(&numbers) % 40);
            check(&numbers, ways[w], m, n, 1 + (int)(next_word(&numbers) % 40));
        }
    }
}

/* Padding columns and rows of a vector or a block do not mix with the others. */
static void infinities_stay_in_their_row(void **state) {
    (void)state;
    enum { M = 12, N = 40, K = 20, ROW = 5, COLUMN = 7 };
    struct numbers numbers = {5};
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w])) continue;
        for (int transposes = 0; transposes < 4; transposes++) {
            struct product product;
            make_product(&product, &numbers, ways[w], M, N, K, transposes & 1, transposes & 2, false);
            set_element(&product.a, ways[w].dtype, transposes & 1 ? COLUMN * M + ROW : ROW * K + COLUMN, INFINITY);
            float *c = floats(M * N);
            execute(&product, false, c);
            for (int i = 0; i < M * N; i++) assert_int_equal(!isfinite(c[i]), i / N == ROW);
            free(c);
            free_product(&product);
        }
    }
}

/* The products of a step: forward, input gradient, weight gradient. */
static const struct {
    int m, n, k;
    bool transpose_a, transpose_b, bias;
} step_products[] = {{8, 128, 96, false, false, true},   {8, 96, 128, false, true, false},
                     {32, 96, 128, false, true, false},  {96, 128, 32, true, false, false},
                     {128, 96, 256, false, true, false}, {64, 384, 128, false, false, true}};
enum { STEP_PRODUCTS = sizeof step_products / sizeof *step_products };

static void make_step_product(struct product *product, struct numbers *numbers, struct way way, int i) {
    make_product(product, numbers, way, step_products[i].m, step_products[i].n, step_products[i].k,
                 step_products[i].transpose_a, step_products[i].transpose_b, step_products[i].bias);
}

/* A device may use another kernel for unaligned operands: the product is the same, but not its bits. */
static void same_bits_wherever_operands_lie(void **state) {
    (void)state;
    struct numbers numbers = {2};
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w])) continue;
        for (int i = 0; i < 2 * STEP_PRODUCTS; i++) {
            struct product product;
            make_step_product(&product, &numbers, ways[w], i / 2);
            const bool accumulate = i % 2 && !product.gemm.epilogue;
            const size_t bytes = elements_of(&product) * sizeof(float), size = sl_dtype_size(ways[w].dtype);
            float *c = floats(elements_of(&product)), *again = floats(elements_of(&product));
            execute(&product, accumulate, c);
            expect_product(&product, accumulate, c);
            for (size_t by = 0; by < 16; by += 5) {
                const size_t a_by = by, b_by = 3 * by % 16, c_by = 15 - by;
                execute_at(&product, accumulate, again, a_by * size, b_by * size, c_by * sizeof *c);
                if (apart(ways[w].backend)) expect_product(&product, accumulate, again);
                if (apart(ways[w].backend))
                    execute_at(&product, accumulate, again, a_by * VECTOR, b_by * VECTOR, c_by * VECTOR);
                assert_memory_equal(again, c, bytes);
            }
            free(again);
            free(c);
            free_product(&product);
        }
    }
}

enum { THREADS = 4, REPEATS = 25 };

struct repeater {
    pthread_t thread;
    const struct product *product;
    float *expected, *c;
    int different;
};

static void *repeat(void *argument) {
    struct repeater *repeater = argument;
    for (int i = 0; i < (devices_alone ? 5 : REPEATS); i++)
        if (execute_at(repeater->product, false, repeater->c, 0, 0, 0) ||
            memcmp(repeater->c, repeater->expected, elements_of(repeater->product) * sizeof(float)))
            repeater->different++;
    sl_device.close();
    return NULL;
}

static void one_plan_serves_many_threads(void **state) {
    (void)state;
    struct numbers numbers = {3};
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w])) continue;
        for (int i = 0; i < STEP_PRODUCTS; i++) {
            struct product product;
            make_step_product(&product, &numbers, ways[w], i);
            const size_t count = elements_of(&product);
            float *expected = floats(count);
            execute(&product, false, expected);
            struct repeater repeaters[THREADS];
            for (int t = 0; t < THREADS; t++) {
                repeaters[t] = (struct repeater){.product = &product, .expected = expected, .c = floats(count)};
                assert_int_equal(pthread_create(&repeaters[t].thread, NULL, repeat, &repeaters[t]), 0);
            }
            for (int t = 0; t < THREADS; t++) {
                pthread_join(repeaters[t].thread, NULL);
                assert_int_equal(repeaters[t].different, 0);
                free(repeaters[t].c);
            }
            free(expected);
            free_product(&product);
        }
    }
}

static int threads_of_this_process(void) {
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    int threads = 0;
    for (const struct dirent *entry; (entry = readdir(tasks));) threads += entry->d_name[0] != '.';
    closedir(tasks);
    return threads;
}

/* A coordinate is one thread: a library that starts threads would compete with the other coordinates for the cores. */
static void computes_in_the_calling_thread(void **state) {
    (void)state;
    struct numbers numbers = {4};
    const int before = threads_of_this_process();
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w]) || apart(ways[w].backend)) continue;
        for (int transposes = 0; transposes < 3; transposes++) {
            struct product product;
            make_product(&product, &numbers, ways[w], 256, 256, 256, transposes & 1, transposes & 2, false);
            float *c = floats(elements_of(&product));
            execute(&product, false, c);
            assert_int_equal(threads_of_this_process(), before);
            free(c);
            free_product(&product);
        }
    }
}

/* Products of COUNT microbatches at once have the bits of single ones. PRODUCT's A and C are of all of them. */
static void expect_same_rows(const struct product *product, int count, bool accumulate) {
    const size_t part = (size_t)count, row = product->a.bytes / part, each = elements_of(product) / part;
    const size_t bytes = elements_of(product) * sizeof(float);
    const char *a = product->a.data, *b = product->b.data;
    float *all = memcpy(malloc(bytes), product->before, bytes), *one = memcpy(malloc(bytes), product->before, bytes);
    struct sl_gemm gemm;
    assert_int_equal(sl_gemm_plan(&gemm, product->gemm.backend, product->gemm.dtype, product->gemm.m / count,
                                  product->gemm.n, product->gemm.k, false, product->gemm.transpose_b,
                                  product->gemm.epilogue, NULL),
                     SL_OK);
    struct sl_gemm_arrays arrays = sl_gemm_floats(&gemm, count, a, b, product->bias, accumulate, all);
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    for (size_t i = 0; i < part; i++) {
        arrays = sl_gemm_floats(&gemm, 1, a + i * row, b, product->bias, accumulate, one + i * each);
        assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    }
    assert_memory_equal(all, one, bytes);
    sl_gemm_release(&gemm);
    free(all);
    free(one);
}

static void microbatches_at_once_have_the_same_bits(void **state) {
    (void)state;
    static const int shapes[][4] = {{3, 8, 48, 96},  {4, 1, 64, 33},   {2, 64, 96, 800},  {3, 20, 50, 40},
                                    {5, 12, 64, 32}, {2, 32, 832, 48}, {3, 50, 832, 323}, {2, 300, 16, 40}};
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w]) || apart(ways[w].backend)) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (int form = 0; form < 4; form++) { /* C = A B + bias, C += A B, and both with B^T */
                const int *shape = shapes[s], count = shape[0];
                const bool accumulate = form & 1, transposed = form & 2;
                struct product product;
                struct numbers numbers = {11};
                make_product(&product, &numbers, ways[w], count * shape[1], shape[2], shape[3], false, transposed,
                             !accumulate);
                expect_same_rows(&product, count, accumulate);
                free_product(&product);
            }
        }
    }
}

/* C is in memory that the host reads after it has waited for the queue: the backend must report its work there. */
static void settling_waits_for_products(void **state) {
    (void)state;
    enum { N = 64, ROUNDS = 20 };
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w]) || !apart(ways[w].backend)) continue;
        struct product product;
        struct numbers numbers = {7};
        make_product(&product, &numbers, ways[w], N, N, N, false, false, false);
        char *a = place(&product, product.a.data, product.a.bytes, 0);
        char *b = place(&product, product.b.data, product.b.bytes, 0);
        setenv("SHARDLOOP_MEMORY", "managed", 1);
        float *c = sl_device.take(N * N * sizeof *c);
        unsetenv("SHARDLOOP_MEMORY");
        assert_non_null(c);
        for (int i = 0; i < ROUNDS; i++) {
            const struct sl_gemm_arrays arrays = sl_gemm_floats(&product.gemm, 1, a, b, NULL, false, c);
            memset(c, 0, N * N * sizeof *c);
            assert_int_equal(sl_gemm_execute(&product.gemm, arrays, NULL), SL_OK);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            expect_product(&product, false, c);
        }
        give(&product, a);
        give(&product, b);
        give(&product, c);
        free_product(&product);
    }
}

/* 1 + 2^-12 has more bits than tensor cores take. */
static void tf32_is_less_exact(void **state) {
    (void)state;
    enum { N = 64 };
    for (int w = 0; w < WAYS; w++) {
        if (!possible(ways[w]) || ways[w].dtype != SL_F32) continue;
        struct product product;
        struct numbers numbers = {6};
        make_product(&product, &numbers, ways[w], N, N, N, false, false, false);
        for (int i = 0; i < N * N; i++) set_element(&product.a, SL_F32, i, 1.0f + 0x1p-12f);
        for (int i = 0; i < N * N; i++) set_element(&product.b, SL_F32, i, 1.0f);
        float *c = floats(N * N);
        execute(&product, false, c);
        const double lost = rounding(ways[w]) > 0.0 ? N * 0x1p-12 : 0.0;
        expect_close(ways[w].backend->name, 0, c[0], N + N * 0x1p-12 - lost, 0.0, N * 0x1p-16);
        free(c);
        free_product(&product);
    }
}

static void finds_backends_by_name(void **state) {
    (void)state;
    struct sl_error error = {0};
    assert_ptr_equal(sl_gemm_find("reference", &error), &sl_gemm_reference);
    const struct sl_gemm_backend *found = sl_gemm_find("onednn", &error);
    assert_int_equal(sl_gemm_find("cublas", NULL) != NULL, !sl_gemm_cublas.missing);
    if (sl_gemm_onednn.missing) {
        assert_null(found);
        assert_int_equal(error.status, SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "-DSL_ONEDNN=ON"));
    } else {
        assert_ptr_equal(found, &sl_gemm_onednn);
    }
    assert_null(sl_gemm_find("blas", &error));
    assert_int_equal(error.status, SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "\"blas\""));
    assert_non_null(strstr(error.message, "cpu, onednn, blocked, reference"));
}

static void has_a_default(void **state) {
    (void)state;
    assert_string_equal(sl_gemm_find(NULL, NULL)->name, SL_GEMM_DEFAULT);
}

static void multiplies_bf16_on_every_cpu(void **state) {
    (void)state;
    assert_true(sl_gemm_supports(&sl_gemm_cpu, SL_BF16));
    assert_true(sl_gemm_supports(&sl_gemm_blocked, SL_BF16));
    assert_true(sl_gemm_supports(&sl_gemm_reference, SL_BF16));
}

static void refuses_what_the_backend_does_not_support(void **state) {
    (void)state;
    struct sl_gemm gemm;
    struct sl_error error = {0};
    assert_int_equal(sl_gemm_plan(&gemm, &sl_gemm_cpu, SL_I32, 3, 4, 5, false, false, SL_EPILOGUE_NONE, &error),
                     SL_BAD_INPUT);
    assert_string_equal(error.message, "there are no matrix products of i32 by \"cpu\" on this CPU");
    sl_gemm_release(&gemm);
    const int status = sl_gemm_plan(&gemm, &sl_gemm_onednn, SL_BF16, 3, 4, 5, false, false, SL_EPILOGUE_NONE, &error);
    assert_int_equal(status, sl_gemm_supports(&sl_gemm_onednn, SL_BF16) ? SL_OK : SL_BAD_INPUT);
    if (status) assert_string_equal(error.message, "there are no matrix products of bf16 by \"onednn\" on this CPU");
    sl_gemm_release(&gemm);
}

static void refuses_empty_products(void **state) {
    (void)state;
    struct sl_gemm gemm;
    struct sl_error error = {0};
    assert_int_equal(sl_gemm_plan(&gemm, &sl_gemm_reference, SL_F32, 3, 0, 5, false, false, SL_EPILOGUE_NONE, &error),
                     SL_BAD_INPUT);
    assert_string_equal(error.message, "matrix product with m = 3, n = 0, k = 5: all must be at least 1");
    sl_gemm_release(&gemm); /* allowed after a failed plan */
}

int main(int argc, char **argv) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    devices_alone = argc > 1 && !strcmp(argv[1], "few") && !getenv("SL_TEST_LONG");
    if (sl_gemm_onednn.missing)
        printf("# oneDNN was left out of this build: it is not tested\n");
    else if (!sl_gemm_supports(&sl_gemm_onednn, SL_BF16))
        printf("# oneDNN has no bf16 on this CPU: it is tested with floats only\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_in_the_calling_thread),
        cmocka_unit_test(equals_the_naive_product),
        cmocka_unit_test(same_bits_wherever_operands_lie),
        cmocka_unit_test(one_plan_serves_many_threads),
        cmocka_unit_test(finds_backends_by_name),
        cmocka_unit_test(has_a_default),
        cmocka_unit_test(refuses_empty_products),
        cmocka_unit_test(infinities_stay_in_their_row),
        cmocka_unit_test(settling_waits_for_products),
        cmocka_unit_test(tf32_is_less_exact),
        cmocka_unit_test(microbatches_at_once_have_the_same_bits),
        cmocka_unit_test(multiplies_bf16_on_every_cpu),
        cmocka_unit_test(refuses_what_the_backend_does_not_support),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
