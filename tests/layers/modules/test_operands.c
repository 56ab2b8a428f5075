/* test_operands.c - arrays that modules save only for bf16 products are saved as bf16 on a device: with the same bits
 * as if products round saved floats themselves. On CPUs modules save floats. */
#include "tests/rigs/module_rig.h"

#include "layers/modules/transformer_modules.h"

enum { COLUMNS = 24, INSIDE = 40, HEADS = 2, KEY_HEADS = 1, WIDTH = 12, LATENT = 10, ROPE = 4, SEQUENCE = ROWS };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};

static struct sl_module *silu_block(void) {
    struct sl_module *const part[] = {sl_layer_norm("norm", COLUMNS), sl_dense("up", COLUMNS, INSIDE),
                                      sl_silu_dropout(INSIDE, 0.25), sl_dense("down", INSIDE, COLUMNS)};
    return sl_residual(sl_sequential("block", 4, part));
}

static struct sl_module *sharded(const char *name, int in, int out, bool biased) {
    return biased ? sl_sharded_dense(name, in, out, 1, 1, &channels) : sl_sharded_product(name, in, out, &channels);
}

static struct sl_module *norm(void) { return sl_rms_norm("norm", COLUMNS, &channels); }

static struct sl_module *gelu_mlp(bool biased) {
    struct sl_module *const part[] = {sharded("up", COLUMNS, INSIDE, biased), sl_gelu(INSIDE),
                                      sharded("down", INSIDE, COLUMNS, biased)};
    return sl_sequential("mlp", 3, part);
}

/* Sequences within sequences, with products at their ends. */
static struct sl_module *gelu_block_of(bool biased) {
    struct sl_module *const part[] = {norm(), gelu_mlp(biased), sl_dropout(COLUMNS, 0.25)};
    return sl_residual(sl_sequential("block", 3, part));
}
static struct sl_module *gelu_block(void) { return gelu_block_of(false); }
static struct sl_module *biased_block(void) { return gelu_block_of(true); }

/* A sequence of products and, between them, modules that write floats, which the sequence rounds. */
static struct sl_module *others(void) {
    struct sl_module *const part[] = {sl_dropout(COLUMNS, 0.25),
                                      sl_dense("first", COLUMNS, INSIDE),
                                      sl_residual(sl_rms_norm("norm", INSIDE, &channels)),
                                      sl_dense("second", INSIDE, INSIDE),
                                      sl_dense("third", INSIDE, INSIDE),
                                      sl_erf_gelu(INSIDE),
                                      sl_dense("last", INSIDE, COLUMNS)};
    return sl_sequential("others", 7, part);
}

static struct sl_module *gated_block(void) {
    return sl_residual(
        sl_sequential("", 2, (struct sl_module *[]){norm(), sl_gated_mlp("mlp", COLUMNS, INSIDE, true, &channels)}));
}

static struct sl_module *latent_of(int rope, double dropout) {
    const struct sl_mla shape = {COLUMNS, HEADS, LATENT, rope, SEQUENCE, dropout};
    return sl_residual(sl_sequential("", 2, (struct sl_module *[]){norm(), sl_mla("mla", &shape, &channels)}));
}
static struct sl_module *latent(void) { return latent_of(0, 0.0); }
static struct sl_module *rotated_latent(void) { return latent_of(ROPE, 0.25); }

static struct sl_module *grouped_of(bool rotates, bool head_norms, bool biases) {
    const struct sl_gqa shape = {.dimension = COLUMNS,
                                 .heads = HEADS,
                                 .key_heads = KEY_HEADS,
                                 .width = WIDTH,
                                 .biases = biases,
                                 .out_bias = biases,
                                 .head_norms = head_norms,
                                 .epsilon = 1e-6,
                                 .rotates = rotates,
                                 .rotary = {.base = 10000},
                                 .positions = SEQUENCE};
    return sl_residual(sl_sequential("", 2, (struct sl_module *[]){norm(), sl_gqa("gqa", &shape, &channels)}));
}
static struct sl_module *grouped(void) { return grouped_of(false, false, true); }
static struct sl_module *rotated_grouped(void) { return grouped_of(true, false, false); }
static struct sl_module *normed_grouped(void) { return grouped_of(true, true, true); }

static struct sl_module *layer(void) {
    return sl_sequential("", 2, (struct sl_module *[]){latent_of(ROPE, 0.0), silu_block()});
}

/* OPERANDS: number of modules whose x the parent saves as bf16, the type in which products read it. ATTENDS:
 * attention's output is saved as floats, too. FUSES: a device's products may compute a gelu, with x and bias in bf16.
 */
static const struct subject {
    const char *name;
    struct sl_module *(*make)(void);
    int operands;
    bool attends, fuses;
} subjects[] = {
    {"silu_block", silu_block, 2, false, false},
    {"gelu_block", gelu_block, 3, false, true},
    {"biased_block", biased_block, 3, false, true},
    {"others", others, 4, false, false},
    {"gated_block", gated_block, 4, false, false},
    {"latent", latent, 5, true, false},
    {"rotated_latent", rotated_latent, 8, true, false},
    {"grouped", grouped, 5, true, false},
    {"rotated_grouped", rotated_grouped, 5, true, false},
    {"normed_grouped", normed_grouped, 7, true, false},
    {"layer", layer, 9, true, false},
};

/* Rounds biases to bf16, because products with bf16 results read them so. */
static void round_biases(struct rig *rig) {
    for (int i = 0; i < rig->parameters.count; i++)
        release_array(settle(sl_parameter_value(&rig->parameters, i), rig->parameters.list[i].count));
    sl_parameters_round(&rig->parameters, rig->context.kernels, 0);
}

/* Calls W once for the groups of all microbatches. */
static void weigh_at_once(struct rig *rig) {
    const struct sl_module *module = rig->module;
    set_microbatch(rig, 0);
    rig->context.accumulate = false;
    rig->context.microbatches = rig->microbatches;
    rig->context.rows *= rig->microbatches;
    assert_int_equal(sl_module_backward_weight(module, &rig->context, sl_given_f32(rig->x), sl_given_f32(rig->dy)),
                     SL_OK);
    rig->context.rows /= rig->microbatches;
    rig->context.microbatches = 0;
    sl_device.settle(NULL);
}

static void run(struct rig *rig, const struct subject *subject, const struct sl_gemm_backend *gemm, int group,
                bool weights_follow, bool at_once) {
    const struct sl_plan like = {.gemm = gemm,
                                 .precision = SL_BF16,
                                 .rows = 2 * ROWS,
                                 .sequence = SEQUENCE,
                                 .wgrad_group = group,
                                 .has_dx = true,
                                 .weights_follow = weights_follow,
                                 .nobody_waits = weights_follow};
    open_rig_like(rig, &like, subject->make(), MICROBATCHES);
    if (sl_gemm_leaves_bf16(gemm)) round_biases(rig);
    forward(rig);
    backward(rig);
    if (at_once)
        weigh_at_once(rig);
    else
        weigh(rig, false);
}

static int operands_of(const struct sl_module *module) {
    int count = sl_reads_operand(&module->x);
    for (int i = 0; i < module->children; i++) count += operands_of(module->child[i]);
    return count;
}

/* Expects the same bits or, if a few numbers are rounded in between, differences within bf16's error of the largest. */
static void expect_alike(const char *what, const float *a, const float *b, size_t count, bool fuses) {
    double largest = 0;
    if (!fuses) assert_memory_equal(a, b, count * sizeof *a);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i]));
    for (size_t i = 0; i < count; i++) expect_close(what, i, b[i], a[i], 0, 0x1p-6 * largest);
}

static void expect_same(const struct rig *a, const struct rig *b, bool fuses) {
    const size_t all = (size_t)MICROBATCHES;
    expect_alike("y", a->y, b->y, all * a->outputs, fuses);
    expect_alike("dx", a->dx, b->dx, all * a->inputs, fuses);
    assert_int_equal(a->parameters.count, b->parameters.count);
    for (int i = 0; i < a->parameters.count; i++)
        expect_alike(a->parameters.list[i].name, sl_parameter_gradient(&a->parameters, i),
                     sl_parameter_gradient(&b->parameters, i), a->parameters.list[i].count, fuses);
}

/* Compares products by GEMM with the same products in a plan that does not know that a device has them. */
static void expect_operands_of(const struct sl_gemm_backend *gemm, const struct subject *subject, int group,
                               bool weights_follow) {
    struct sl_gemm_backend rounding = *gemm;
    const bool on_device = rounding.on_device;
    struct rig rig, plain;
    rounding.on_device = false;
    run(&rig, subject, gemm, group, weights_follow, false);
    run(&plain, subject, &rounding, group, weights_follow, false);
    expect_same(&plain, &rig, subject->fuses && sl_gemm_leaves_bf16(gemm));
    assert_int_equal(operands_of(plain.module), 0);
    const int fused = subject->fuses && sl_gemm_leaves_bf16(gemm); /* the module that owns gelu and products, too */
    if (operands_of(rig.module) != (on_device ? subject->operands + fused : 0))
        fail_msg("%s keeps %d operands", subject->name, operands_of(rig.module));
    if (on_device ? rig.stash.elements >= plain.stash.elements && !subject->attends
                  : rig.stash.elements != plain.stash.elements)
        fail_msg("%s keeps %zu floats, and %zu without operands", subject->name, rig.stash.elements,
                 plain.stash.elements);
    close_rig(&rig);
    close_rig(&plain);
}

/* Products that run on devices and on CPUs save operands on CPUs, too. */
static void expect_operands(const struct subject *subject, int group, bool weights_follow) {
    const struct sl_gemm_backend *own = sl_gemm_find(NULL, NULL);
    expect_operands_of(own, subject, group, weights_follow);
    if (!own->on_device) expect_operands_of(sl_gemm_find("reference", NULL), subject, group, weights_follow);
}

static void operands_have_the_bits_of_floats_that_are_rounded(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (int group = 1; group <= MICROBATCHES; group *= 2) expect_operands(&subjects[s], group, false);
}

static void so_have_those_that_weights_read_at_once(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) expect_operands(&subjects[s], 1, true);
}

/* A W of several groups steps over the rows of each array in that array's type. */
static void so_have_groups_that_are_weighed_at_once(void **state) {
    const struct sl_gemm_backend *gemm = sl_gemm_find("reference", NULL);
    (void)state;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++)
        for (int group = 1; group <= MICROBATCHES / 2; group *= 2) {
            struct rig alone, together;
            run(&alone, &subjects[s], gemm, group, false, false);
            run(&together, &subjects[s], gemm, group, false, true);
            expect_same(&alone, &together, false);
            close_rig(&alone);
            close_rig(&together);
        }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(operands_have_the_bits_of_floats_that_are_rounded),
                                       cmocka_unit_test(so_have_those_that_weights_read_at_once),
                                       cmocka_unit_test(so_have_groups_that_are_weighed_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
