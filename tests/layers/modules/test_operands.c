/* test_operands.c - what a sequence keeps for products of bf16 on a device alone, it keeps as bf16: with the bits of
 * floats that the products round themselves. On CPUs it keeps floats. */
#include "tests/rigs/module_rig.h"

#include "layers/modules/transformer_modules.h"

enum { COLUMNS = 24, INSIDE = 40 };

static const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
static const struct sl_channels channels = {&mesh, "tensor", NULL};

/* HIDDEN: a sequence of its own is around it, whose parent does not know what it reads. */
static struct sl_module *whole(struct sl_module *module, bool hidden) {
    return hidden ? sl_sequential("", 1, &module) : module;
}

static struct sl_module *silu_block(bool hidden) {
    struct sl_module *const part[] = {sl_layer_norm("norm", COLUMNS), whole(sl_dense("up", COLUMNS, INSIDE), hidden),
                                      sl_silu_dropout(INSIDE, 0.25), whole(sl_dense("down", INSIDE, COLUMNS), hidden)};
    return sl_residual(sl_sequential("block", 4, part));
}

static struct sl_module *sharded(const char *name, int in, int out, bool biased) {
    return biased ? sl_sharded_dense(name, in, out, 1, 1, &channels) : sl_sharded_product(name, in, out, &channels);
}

static struct sl_module *gelu_block_of(bool biased, bool hidden) {
    struct sl_module *const part[] = {sl_rms_norm("norm", COLUMNS, &channels),
                                      whole(sharded("up", COLUMNS, INSIDE, biased), hidden), sl_gelu(INSIDE),
                                      whole(sharded("down", INSIDE, COLUMNS, biased), hidden)};
    return sl_residual(sl_sequential("block", 4, part));
}
static struct sl_module *gelu_block(bool hidden) { return gelu_block_of(false, hidden); }
static struct sl_module *biased_block(bool hidden) { return gelu_block_of(true, hidden); }

/* Types that write floats, which the sequence rounds; and products in turn. */
static struct sl_module *others(bool hidden) {
    struct sl_module *const part[] = {sl_dropout(COLUMNS, 0.25),
                                      whole(sl_dense("first", COLUMNS, INSIDE), hidden),
                                      sl_residual(sl_rms_norm("norm", INSIDE, &channels)),
                                      whole(sl_dense("second", INSIDE, INSIDE), hidden),
                                      whole(sl_dense("third", INSIDE, INSIDE), hidden),
                                      sl_erf_gelu(INSIDE),
                                      whole(sl_dense("last", INSIDE, COLUMNS), hidden)};
    return sl_sequential("others", 7, part);
}

static struct sl_module *(*const subjects[])(bool hidden) = {silu_block, gelu_block, biased_block, others};

static void run(struct rig *rig, struct sl_module *module, int group) {
    open_rig_in(rig, SL_BF16, module, ROWS, MICROBATCHES, group);
    forward(rig);
    backward(rig);
    weigh(rig, false);
}

static void expect_same(const struct rig *a, const struct rig *b) {
    const size_t all = (size_t)MICROBATCHES;
    assert_memory_equal(a->y, b->y, all * a->outputs * sizeof(float));
    assert_memory_equal(a->dx, b->dx, all * a->inputs * sizeof(float));
    assert_int_equal(a->parameters.count, b->parameters.count);
    for (int i = 0; i < a->parameters.count; i++)
        assert_memory_equal(sl_parameter_gradient(&a->parameters, i), sl_parameter_gradient(&b->parameters, i),
                            a->parameters.list[i].count * sizeof(float));
}

static void operands_have_the_bits_of_floats_that_are_rounded(void **state) {
    (void)state;
    const bool on_device = sl_gemm_find(NULL, NULL)->on_device;
    for (size_t s = 0; s < sizeof subjects / sizeof *subjects; s++) {
        for (int group = 1; group <= MICROBATCHES; group *= 2) {
            struct rig rig, plain;
            run(&rig, subjects[s](false), group);
            run(&plain, subjects[s](true), group);
            expect_same(&plain, &rig);
            if (on_device)
                assert_true(rig.stash.elements < plain.stash.elements);
            else
                assert_int_equal(rig.stash.elements, plain.stash.elements);
            close_rig(&rig);
            close_rig(&plain);
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(operands_have_the_bits_of_floats_that_are_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
