/* test_rewrite.c - fusions (layers/modules/parents/rewrite.h): with each rule and without it, modules compute the same;
 * parameters have the same names and order, and dropouts draw the same words. */
#include "tests/rigs/module_rig.h"

#include "layers/modules/parents/rewrite.h"
#include "layers/modules/transformer_modules.h"

enum { COLUMNS = 24, INSIDE = 40 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};

static int gelus; /* products that have computed a gelu, or its slope */
static int sums;  /* passes that have only added */

/* ---- products with bf16 results, as on GPUs, by the plain loops ---- */

static float *widened(struct sl_rows x, size_t n) {
    float *floats = device_array(n, sizeof *floats);
    if (x.at && x.type == SL_BF16) sl_kernels_select()->widen_bf16(n, x.at, floats);
    return floats;
}

static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    const struct sl_kernels *kernels = sl_kernels_select();
    const size_t n = (size_t)gemm->n, count = (size_t)arrays->count * (size_t)gemm->m * n;
    const bool biased = gemm->epilogue == SL_EPILOGUE_BIAS || gemm->epilogue == SL_EPILOGUE_BIAS_GELU;
    if (arrays->c.rows.type == SL_F32 && gemm->epilogue < SL_EPILOGUE_GELU)
        return sl_gemm_reference.execute(gemm, arrays, queue);
    struct sl_gemm plain = *gemm;
    struct sl_gemm_arrays floats = *arrays;
    float *c = device_array(count, sizeof *c), *bias = widened(arrays->bias, n), *x = widened(arrays->x, count);
    uint16_t *to = sl_out_halves(arrays->c);
    plain.epilogue = biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE;
    floats.bias = sl_rows_f32(bias);
    floats.x = sl_rows_f32(arrays->x.at ? x : NULL);
    floats.c = sl_out_f32(c);
    sl_gemm_reference.execute(&plain, &floats, queue);
    gelus += gemm->epilogue >= SL_EPILOGUE_GELU;
    if (gemm->epilogue == SL_EPILOGUE_SLOPE) {
        kernels->sequence->gelu_backward(count, arrays->gelu, sl_rows_f32(c), sl_out_bf16(to));
    } else if (gemm->epilogue >= SL_EPILOGUE_GELU) {
        kernels->round_bf16(count, c, arrays->gelu.at);
        kernels->sequence->gelu_forward(count, arrays->gelu, NULL, sl_out_bf16(to));
    } else {
        kernels->round_bf16(count, c, to);
    }
    release_array(c);
    release_array(bias);
    release_array(x);
    return SL_OK;
}

static struct sl_gemm_backend products(void) {
    struct sl_gemm_backend backend = sl_gemm_reference;
    backend.execute = execute;
    backend.settles = false;
    backend.leaves_bf16 = true;
    backend.widens = NULL;
    return backend;
}

/* ---- runs ---- */

static void see_add(size_t n, const float *x, float *y) {
    sums++;
    sl_kernels_select()->add(n, x, y);
}

struct job {
    struct sl_module *(*make)(void);
    enum sl_dtype precision, storage;
    bool no_rewrite;
    const char *frozen; /* parameters; NULL: none */
};

static void run(struct rig *rig, const struct sl_gemm_backend *gemm, const struct job *job) {
    struct sl_kernels kernels = *sl_kernels_select();
    struct sl_parameters frozen = {.frozen = job->frozen};
    const struct sl_plan like = {.gemm = gemm,
                                 .parameters = &frozen,
                                 .precision = job->precision,
                                 .storage = job->storage,
                                 .no_rewrite = job->no_rewrite,
                                 .rows = ROWS,
                                 .wgrad_group = 1,
                                 .has_dx = true};
    kernels.add = see_add;
    gelus = sums = 0;
    open_rig_like(rig, &like, job->make(), 1);
    for (int i = 0; i < rig->parameters.count; i++) /* products with bf16 results read biases as bf16 */
        release_array(settle(sl_parameter_value(&rig->parameters, i), rig->parameters.list[i].count));
    sl_parameters_round(&rig->parameters, rig->context.kernels, 0);
    uint16_t *x = settle(rig->x, rig->inputs), *dy = settle(rig->dy, rig->outputs);
    rig->context.kernels = &kernels;
    rig->context.storage = job->storage;
    assert_int_equal(sl_module_forward(rig->module, &rig->context, sl_given_f32(rig->x), SL_INTO(rig->y)), SL_OK);
    const struct sl_given given = sl_given_f32(rig->dy);
    const struct sl_given saved_x = job->storage == SL_F32 ? sl_given_f32(rig->x) : sl_given_bf16(x);
    const struct sl_given saved_dy = job->storage == SL_F32 ? given : sl_given_bf16(dy);
    assert_int_equal(sl_module_backward_input(rig->module, &rig->context, saved_x, given, SL_INTO(rig->dx)), SL_OK);
    assert_int_equal(sl_module_backward_weight(rig->module, &rig->context, saved_x, saved_dy), SL_OK);
    sl_device.settle(NULL);
    rig->context.kernels = sl_kernels_select();
    release_array(x);
    release_array(dy);
}

/* Expects the same numbers, to the bit or, if a few are rounded at other places, within bf16's error. */
static void expect_alike(const char *what, const float *a, const float *b, size_t count, bool exact) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i]));
    for (size_t i = 0; i < count; i++) expect_close(what, i, b[i], a[i], 0, exact ? 0 : 0x1p-6 * largest);
}

static void expect_same(struct rig *a, struct rig *b, bool exact) {
    expect_alike("y", a->y, b->y, a->outputs, exact);
    expect_alike("dx", a->dx, b->dx, a->inputs, exact);
    assert_int_equal(a->parameters.count, b->parameters.count);
    for (int i = 0; i < a->parameters.count; i++) {
        assert_string_equal(a->parameters.list[i].name, b->parameters.list[i].name);
        expect_alike(a->parameters.list[i].name, sl_parameter_gradient(&a->parameters, i),
                     sl_parameter_gradient(&b->parameters, i), a->parameters.list[i].count, exact);
    }
    close_rig(a);
    close_rig(b);
}

/* ---- products around a gelu ---- */

static struct sl_module *mlp_of(bool biased) {
    struct sl_module *const part[] = {biased ? sl_sharded_dense("up", COLUMNS, INSIDE, 1, 1, &channels)
                                             : sl_sharded_product("up", COLUMNS, INSIDE, &channels),
                                      sl_gelu(INSIDE),
                                      biased ? sl_sharded_dense("down", INSIDE, COLUMNS, 1, 1, &channels)
                                             : sl_sharded_product("down", INSIDE, COLUMNS, &channels),
                                      sl_dropout(COLUMNS, 0.25)};
    return sl_sequential("mlp", 4, part);
}
static struct sl_module *mlp(void) { return mlp_of(false); }
static struct sl_module *biased_mlp(void) { return mlp_of(true); }

static void products_compute_the_gelu_between_them(void **state) {
    const struct sl_gemm_backend gemm = products();
    (void)state;
    for (int i = 0; i < 4; i++) {
        const enum sl_dtype storage = i % 2 ? SL_BF16 : SL_F32;
        const struct job with = {i < 2 ? mlp : biased_mlp, SL_BF16, storage, false, NULL};
        const bool holds = storage == SL_BF16 || i < 2; /* a bias sums floats of dy if its product does not */
        struct job without = with;
        struct rig rig, plain;
        without.no_rewrite = true;
        run(&rig, &gemm, &with);
        assert_int_equal(gelus, holds ? 2 : 0);
        assert_int_equal(rig.module->children, holds ? 2 : 4);
        run(&plain, &gemm, &without);
        assert_int_equal(gelus, 0);
        assert_int_equal(plain.module->children, 4);
        assert_true(storage == SL_BF16 || rig.stash.elements <= plain.stash.elements);
        expect_same(&plain, &rig, storage == SL_BF16);
    }
}

/* Cases without a fusion: with a frozen kernel no x is saved for a W; products of floats, and backends without bf16
 * results, write no bf16. */
static void other_products_do_not(void **state) {
    const struct sl_gemm_backend gemm = products();
    const struct job floats = {mlp, SL_F32, SL_F32, false, NULL}, rounded = {mlp, SL_BF16, SL_F32, false, NULL};
    const struct job frozen = {mlp, SL_BF16, SL_BF16, false, "mlp.down.kernel"};
    struct rig rig;
    (void)state;
    run(&rig, &gemm, &frozen);
    assert_int_equal(rig.module->children, 4);
    close_rig(&rig);
    run(&rig, &gemm, &floats);
    assert_int_equal(rig.module->children, 4);
    close_rig(&rig);
    run(&rig, &sl_gemm_reference, &rounded);
    assert_int_equal(rig.module->children, 4);
    close_rig(&rig);
}

static void replaced_children_come_back(void **state) {
    const struct sl_gemm_backend gemm = products();
    const struct job job = {mlp, SL_BF16, SL_BF16, false, NULL};
    struct rig rig;
    (void)state;
    run(&rig, &gemm, &job);
    struct sl_module *module = rig.module, *const up = module->child[0]->child[0], *const dropout = module->child[1];
    sl_rewrite_undo(module);
    assert_int_equal(module->children, 4);
    assert_ptr_equal(module->child[0], up);
    assert_true(sl_is_gelu(module->child[1]));
    assert_ptr_equal(module->child[3], dropout);
    sl_rewrite_undo(module);
    assert_int_equal(module->children, 4);
    close_rig(&rig);
}

/* ---- residual connections ---- */

static struct sl_module *block(void) {
    struct sl_module *const part[] = {sl_layer_norm("norm", COLUMNS), sl_dense("dense", COLUMNS, COLUMNS)};
    return sl_residual(sl_sequential("", 2, part));
}

static void ends_of_a_residual_connection_add(void **state) {
    const struct job with = {block, SL_F32, SL_F32, false, NULL}, without = {block, SL_F32, SL_F32, true, NULL};
    struct rig rig, plain;
    (void)state;
    run(&rig, &sl_gemm_reference, &with);
    assert_int_equal(sums, 0);
    run(&plain, &sl_gemm_reference, &without);
    assert_int_equal(sums, 2);
    expect_same(&plain, &rig, false);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_compute_the_gelu_between_them), cmocka_unit_test(other_products_do_not),
        cmocka_unit_test(replaced_children_come_back), cmocka_unit_test(ends_of_a_residual_connection_add)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
