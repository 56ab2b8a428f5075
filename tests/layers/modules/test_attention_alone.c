/* test_attention_alone.c - modules with attention that reads and writes bf16 only, as on tensor cores, which a CPU
 * emulates lane by lane (tests/layers/kernels/attention/attention_of_gpus.c): the same bits as with attention that
 * reads and writes floats, for each storage. The build redirects all calls of sl_kernels_select to this file. */
#include "tests/rigs/module_rig.h"

#include <math.h>

#include "layers/modules/transformer_modules.h"
#include "layers/kernels/kernels.h"

enum { COLUMNS = 64, HEADS = 2, LATENT = 32, SEQUENCE = 24, SEQUENCES = 2 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};

/* ---- kernels ---- */

static struct sl_kernels kernels;
static struct sl_attention_kernels attention;
static bool alone;       /* kernels may report that they store bf16 only */
static int q, o, d_o, d; /* calls that read bf16, or write bf16 only */

static bool stores_alone(const struct sl_attention *shape) {
    return alone && sl_attention_kernels_device.stores_alone(shape);
}

static void see_forward(const struct sl_attention *shape, const void *queries, const void *q_rope, const void *k,
                        const void *v, const void *k_rope, struct sl_out to, float *logsum) {
    q += shape->stored_q == SL_BF16 && shape->keys == SL_BF16;
    o += !sl_out_floats(to);
    sl_attention_kernels_device.forward(shape, queries, q_rope, k, v, k_rope, to, logsum);
}

static void see_backward(const struct sl_attention *shape, const void *queries, const void *q_rope, const void *k,
                         const void *v, const void *k_rope, const void *from, const float *logsum, const void *dy,
                         struct sl_out dq, float *dq_rope, struct sl_out dk, struct sl_out dv, float *dk_rope,
                         void *scratch) {
    d_o += shape->stored_d_o == SL_BF16;
    d += !sl_out_floats(dq) + !sl_out_floats(dk) + !sl_out_floats(dv);
    sl_attention_kernels_device.backward(shape, queries, q_rope, k, v, k_rope, from, logsum, dy, dq, dq_rope, dk, dv,
                                         dk_rope, scratch);
}

const struct sl_kernels *__real_sl_kernels_select(void);
const struct sl_kernels *__wrap_sl_kernels_select(void);

const struct sl_kernels *__wrap_sl_kernels_select(void) {
    kernels = *__real_sl_kernels_select();
    attention = sl_attention_kernels_device;
    attention.stores_alone = stores_alone;
    attention.forward = see_forward;
    attention.backward = see_backward;
    kernels.attention = &attention;
    return &kernels;
}

/* ---- products ---- */

static int left; /* products that wrote bf16 only */

/* Returns A's rows as the product reads them, copied from wider rows if A's columns are some of them. */
static uint16_t *dense_rows(const struct sl_gemm *gemm, int count, const void *a) {
    const size_t rows = (size_t)(gemm->transpose_a ? gemm->k : count * gemm->m);
    const size_t columns = (size_t)(gemm->transpose_a ? gemm->m : gemm->k);
    const size_t stride = gemm->a_stride ? (size_t)gemm->a_stride : columns;
    uint16_t *dense = array_of(rows * columns, sizeof *dense);
    for (size_t r = 0; r < rows; r++)
        memcpy(dense + r * columns, (const uint16_t *)a + r * stride, columns * sizeof *dense);
    return dense;
}

static int multiply_dense(const struct sl_gemm *gemm, struct sl_gemm_arrays arrays, void *queue) {
    uint16_t *dense = dense_rows(gemm, arrays.count, arrays.a.at);
    arrays.a.at = dense;
    const int status = sl_gemm_reference.execute(gemm, &arrays, queue);
    free(dense);
    return status;
}

/* Writes bf16 as GPUs' products do, from a product that writes floats. */
static int leave_bf16(const struct sl_gemm *gemm, struct sl_gemm_arrays arrays, void *queue) {
    const uint16_t *bias = arrays.bias.at, *x = arrays.x.at;
    const size_t n = (size_t)arrays.count * (size_t)gemm->m * (size_t)gemm->n, columns = (size_t)gemm->n;
    const size_t stride = gemm->c_stride ? (size_t)gemm->c_stride : columns;
    float *sums = floats(n), *added = floats(columns);
    uint16_t *c = arrays.c.rows.at;
    for (size_t i = 0; bias && i < columns; i++) added[i] = sl_float_of_bf16(bias[i]);
    arrays.bias = sl_rows_f32(added);
    arrays.x.at = NULL;
    arrays.c = sl_out_f32(sums);
    const int status = multiply_dense(gemm, arrays, queue);
    left++;
    for (size_t i = 0; i < n; i++)
        c[i / columns * stride + i % columns] = sl_bf16_of_float(sums[i] + (x ? sl_float_of_bf16(x[i]) : 0.0f));
    free(sums);
    free(added);
    return status;
}

/* Multiplies, with the sums of B's columns if the plan has them. */
static int multiply_columns(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    const size_t n = (size_t)gemm->n, all = gemm->epilogue == SL_EPILOGUE_SUMS ? (size_t)gemm->k * n : 0;
    const uint16_t *b = arrays->b.at;
    if (arrays->c.rows.type == SL_BF16) return leave_bf16(gemm, *arrays, queue);
    assert_int_equal(gemm->c_stride, 0); /* only bf16 has one */
    if (all) memset(arrays->sums, 0, n * sizeof *arrays->sums);
    for (size_t i = 0; i < all; i++) arrays->sums[i % n] += sl_float_of_bf16(b[i]);
    return multiply_dense(gemm, *arrays, queue);
}

/* ---- modules ---- */

static struct sl_module *make(int number) {
    static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};
    const double dropout = number == 4 ? 0.2 : 0;
    const struct sl_mla latent = {COLUMNS, HEADS, LATENT, number == 1 ? 16 : 0, SEQUENCE, dropout};
    const struct sl_gqa grouped = {.dimension = COLUMNS,
                                   .heads = HEADS,
                                   .key_heads = 1,
                                   .width = COLUMNS / HEADS,
                                   .positions = SEQUENCE,
                                   .biases = number == 2,
                                   .rotates = number == 3,
                                   .rotary = {.base = 10000}};
    return number < 2 || number == 4 ? sl_mla("mla", &latent, &channels) : sl_gqa("gqa", &grouped, &channels);
}

/* Returns the gradients of parameters that are not frozen. */
static float *gradients_of(const struct rig *rig, size_t *n) {
    size_t all = 0, at = 0;
    for (int i = 0; i < rig->parameters.count; i++) all += rig->parameters.list[i].count;
    float *gradients = floats(all);
    for (int i = 0; i < rig->parameters.count; i++) {
        const struct sl_parameter *parameter = &rig->parameters.list[i];
        if (parameter->frozen) continue;
        memcpy(gradients + at, sl_parameter_gradient(&rig->parameters, i), parameter->count * sizeof *gradients);
        at += parameter->count;
    }
    *n = at;
    return gradients;
}

static const char *frozen; /* name patterns of parameters; NULL: none */

/* Runs one step of module NUMBER. Its biases are rounded to bf16, as products with bf16 results read them. */
static struct rig run(int number, const struct sl_gemm_backend *gemm, enum sl_dtype storage, bool follow, bool stores) {
    struct rig rig;
    struct sl_parameters parameters = {.frozen = frozen};
    const struct sl_plan like = {.parameters = &parameters,
                                 .precision = SL_BF16,
                                 .storage = storage,
                                 .gemm = gemm,
                                 .rows = SEQUENCES * SEQUENCE,
                                 .sequence = SEQUENCE,
                                 .wgrad_group = 1,
                                 .weights_follow = follow,
                                 .nobody_waits = follow,
                                 .has_dx = true};
    alone = stores;
    q = o = d_o = d = left = 0;
    open_rig_like(&rig, &like, make(number), 1);
    rig.context.storage = storage;
    for (int i = 0; i < rig.parameters.count; i++) {
        float *values = sl_parameter_value(&rig.parameters, i);
        const size_t n = rig.parameters.list[i].count;
        for (size_t at = 0; at < n; at++) values[at] *= 0.125f; /* with large scores gradients are all but 0 */
        release_array(settle(values, n));
    }
    assert_int_equal(sl_parameters_round_all(&rig.parameters, NULL),
                     SL_OK); /* frozen parameters have a range of their own */
    uint16_t *halves[] = {settle(rig.x, rig.inputs), settle(rig.dy, rig.outputs)};
    const struct sl_given floats = sl_given_f32(rig.x), given = sl_given_f32(rig.dy);
    const struct sl_given x = storage == SL_BF16 ? sl_given_bf16(halves[0]) : floats;
    const struct sl_given dy = storage == SL_BF16 ? sl_given_bf16(halves[1]) : given;
    assert_int_equal(rig.module->type->forward(rig.module, &rig.context, floats, SL_INTO(rig.y)), SL_OK);
    assert_int_equal(sl_module_backward_input(rig.module, &rig.context, x, given, SL_INTO(rig.dx)), SL_OK);
    assert_int_equal(sl_module_backward_weight(rig.module, &rig.context, x, dy), SL_OK);
    release_array(halves[0]);
    release_array(halves[1]);
    return rig;
}

static void expect_same(const char *what, size_t n, const float *x, const float *want, double most) {
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        error += (x[i] - want[i]) * (double)(x[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (!(size > 0.0) || !(sqrt(error / size) <= most)) fail_msg("%s: %g of %g", what, sqrt(error), sqrt(size));
}

/* Compares attention with and without floats. FROM_PRODUCT: the result's gradient is a product's bf16, so the o that it
 * is multiplied by is rounded, too. With float storage, that gradient and o stay floats. */
static void check(int number, const struct sl_gemm_backend *gemm, enum sl_dtype storage, bool follow) {
    struct rig with = run(number, gemm, storage, follow, true);
    const int seen[] = {q, o, d_o, d, left};
    struct rig without = run(number, gemm, storage, follow, false);
    const bool rotates = number == 3, stored = storage == SL_BF16, from_product = stored && gemm->leaves_bf16;
    const double most = from_product ? 0x1p-6 : 0.0;
    size_t n, same;
    float *gradients = gradients_of(&with, &n), *want = gradients_of(&without, &same);
    assert_true(q == 0 && o == 0 && d_o == 0 && d == 0);
    assert_int_equal(seen[0], 1);
    assert_int_equal(seen[1], stored);
    assert_int_equal(seen[2], from_product);
    assert_int_equal(seen[3], rotates ? 1 : 3);
    if (gemm->leaves_bf16) assert_true(seen[4] > left);
    assert_int_equal(n, same);
    expect_same("y", with.outputs, with.y, without.y, 0.0);
    expect_same("dx", with.inputs, with.dx, without.dx, most);
    expect_same("gradients", n, gradients, want, most);
    free(gradients);
    free(want);
    close_rig(&with);
    close_rig(&without);
}

static void check_all(const struct sl_gemm_backend *gemm) {
    frozen = NULL;
    for (int i = 0; i < 20; i++) check(i / 4, gemm, i % 2 ? SL_BF16 : SL_F32, i / 2 % 2);
}

/* Returns a backend with products that write biases' gradients, so all gradients may be operands. */
static struct sl_gemm_backend summing(void) {
    struct sl_gemm_backend gemm = sl_gemm_reference;
    gemm.execute = multiply_columns;
    gemm.sums = true;
    return gemm;
}

static void attention_without_floats_has_the_same_bits(void **state) {
    (void)state;
    const struct sl_gemm_backend gemm = summing();
    check_all(&gemm);
}

static struct sl_gemm_backend leaving_bf16(void) {
    struct sl_gemm_backend gemm = summing();
    gemm.leaves_bf16 = true;
    gemm.settles = false;
    return gemm;
}

static void so_has_that_between_products_that_leave_bf16(void **state) {
    (void)state;
    const struct sl_gemm_backend gemm = leaving_bf16();
    check_all(&gemm);
}

/* The products that read columns, kv_up and q_up, as bits: products with frozen kernels read copies. */
static const char *const others_are_frozen[] = {"*.kv_up.kernel,*.q_up.kernel", "*.q_up.kernel", "*.kv_up.kernel",
                                                NULL};

/* Parts of a latent that products read as columns, and their gradients, written as columns or copied. */
static void check_latents(const struct sl_gemm_backend *gemm, enum sl_dtype storage, bool follow, int takers) {
    struct sl_gemm_backend copying = *gemm;
    copying.takes_columns = false;
    frozen = others_are_frozen[takers];
    struct rig with = run(0, gemm, storage, follow, true), without = run(0, &copying, storage, follow, true);
    size_t n, same;
    float *gradients = gradients_of(&with, &n), *want = gradients_of(&without, &same);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(with.module->child[1 + i]->x_stride > 0, takers >> i & 1);
        assert_int_equal(without.module->child[1 + i]->x_stride, 0);
    }
    assert_int_equal(n, same);
    expect_same("y", with.outputs, with.y, without.y, 0.0);
    expect_same("dx", with.inputs, with.dx, without.dx, 0.0);
    expect_same("gradients", n, gradients, want, 0.0);
    free(gradients);
    free(want);
    close_rig(&with);
    close_rig(&without);
}

static void columns_of_latents_have_the_bits_of_copies(void **state) {
    (void)state;
    struct sl_gemm_backend gemm = leaving_bf16();
    gemm.takes_columns = true;
    for (int i = 0; i < 16; i++) check_latents(&gemm, i % 2 ? SL_BF16 : SL_F32, i / 2 % 2, i / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_of_latents_have_the_bits_of_copies),
        cmocka_unit_test(attention_without_floats_has_the_same_bits),
        cmocka_unit_test(so_has_that_between_products_that_leave_bf16),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
