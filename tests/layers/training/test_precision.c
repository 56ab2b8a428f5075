/* test_precision.c - training with bf16 products, and with bf16 saved activations and messages: the same bits in every
 * layout, values rounded after each change, gradients that differ from float gradients by rounding. And modules that
 * round their sequence's saved arrays themselves give the bits of separate passes. */
#include <math.h>

#include "tests/rigs/rounding.h"
#include "tests/rigs/trainer_rig.h"

#include "layers/modules/modules.h"
#include "layers/modules/transformer_modules.h"

enum { STEPS = MAX_STEPS, LAYERS = 4, LAYOUTS = 5 };

static const struct layout {
    const char *mesh, *schedule;
    int loops;
} layouts[LAYOUTS] = {
    {"data=%d,model=1", "gpipe", 1},      {"data=%d,model=2", "gpipe", 1},      {"data=%d,model=4", "gpipe", 1},
    {"data=%d,model=2", "looped-bfs", 2}, {"data=%d,model=1", "looped-bfs", 4},
};

/* The mesh's name goes to MESH[64]. */
static struct job make_job(const struct layout *layout, int data, char *mesh) {
    snprintf(mesh, 64, layout->mesh, data);
    return (struct job){.mesh = mesh,
                        .schedule = layout->schedule,
                        .loops = layout->loops,
                        .layers = LAYERS,
                        .microbatches = 4,
                        .group = 2,
                        .steps = STEPS,
                        .zero = true,
                        .overlap = true,
                        .precision = SL_BF16};
}

static void expect_same(const struct job *a, const struct job *b) {
    if (memcmp(a->loss, b->loss, sizeof a->loss) || a->evaluated != b->evaluated)
        fail_msg("%s on %s: loss %.9g, %.9g at the end, not %.9g, %.9g", b->schedule, b->mesh, b->loss[STEPS - 1],
                 b->evaluated, a->loss[STEPS - 1], a->evaluated);
    expect_same_store(&a->values, &b->values);
}

static void expect_the_same_in_all_layouts(enum sl_dtype precision, enum sl_dtype storage) {
    for (int data = 1; data <= 3; data++) {
        struct job first;
        char mesh[LAYOUTS][64];
        for (int i = 0; i < LAYOUTS; i++) {
            struct job job = make_job(&layouts[i], data, mesh[i]);
            job.dropout = 0.2;
            job.precision = precision;
            job.storage = storage;
            job.zero = i != 1; /* moves work and changes nothing, as in floats */
            job.overlap = i != 2;
            run_job(&job);
            if (i == 0) {
                first = job;
                continue;
            }
            expect_same(&first, &job);
            expect_same_store(&first.gradients, &job.gradients);
            free_job(&job);
        }
        assert_true(first.loss[STEPS - 1] < first.loss[0]);
        free_job(&first);
    }
}

static void layouts_give_the_same_bits(void **state) {
    (void)state;
    expect_the_same_in_all_layouts(SL_BF16, SL_F32);
}

static void so_they_do_where_storage_is_bf16(void **state) {
    (void)state;
    expect_the_same_in_all_layouts(SL_F32, SL_BF16);
    expect_the_same_in_all_layouts(SL_BF16, SL_BF16);
}

/* ---- values are rounded whenever they have changed ---- */

static int take_no_steps(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    (void)self, (void)job, (void)trainer;
    return SL_OK;
}

/* Loaded values give the bits of initialized ones, at the start and after the last step. */
static void check_handing_over(const struct layout *layout, int data, bool zero) {
    char mesh[64];
    struct job untouched = make_job(layout, data, mesh), trained = untouched, again = untouched, evaluated = untouched;
    untouched.steps = 0;
    run_job(&untouched);
    trained.zero = again.zero = zero;
    run_job(&trained);
    again.from = &untouched.values;
    run_job(&again);
    expect_same(&trained, &again);
    evaluated.from = &trained.values;
    evaluated.train = take_no_steps;
    run_job(&evaluated);
    if (evaluated.evaluated != trained.evaluated)
        fail_msg("%s on %s: handed over, the values give loss %.9g, not %.9g", layout->schedule, mesh,
                 evaluated.evaluated, trained.evaluated);
    free_job(&untouched);
    free_job(&trained);
    free_job(&again);
    free_job(&evaluated);
}

static void values_that_are_handed_over_give_the_same_bits(void **state) {
    (void)state;
    for (int data = 1; data <= 3; data++)
        for (int i = 0; i < LAYOUTS; i++) check_handing_over(&layouts[i], data, data != 3);
}

/* ---- against floats ---- */

/* For rounding_error: an operand's relative error is up to 2^-8, and 2^-8 / sqrt(3) in the mean of squares; a product's
 * is below 2^-8, because errors of its two operands, and of its terms, are independent. So are errors of products in a
 * row. With only the storage in bf16, a product has one rounded operand, the kernel: a third of a rounding. */

/* Allows as many roundings as ROUNDINGS products in forward have. */
static void expect_rounding_alone(enum sl_dtype precision, enum sl_dtype storage, double roundings) {
    char mesh[64];
    struct job rounded = make_job(&layouts[3], 2, mesh), floats = rounded;
    rounded.steps = floats.steps = 1;
    rounded.precision = precision;
    rounded.storage = storage;
    floats.precision = SL_F32;
    run_job(&rounded);
    run_job(&floats);
    const double difference = fabs(rounded.loss[0] - floats.loss[0]) / floats.loss[0];
    assert_true(difference > 0 && difference <= rounding_error(roundings));
    for (int i = 0; i < floats.gradients.count; i++) {
        const struct sl_tensor *tensor = &floats.gradients.tensor[i];
        const double error = norm_of_difference(tensor, same_tensor(&rounded.gradients, tensor));
        const double relative = error / norm_of_difference(tensor, NULL);
        /* Forward and back again, and the weight gradient's own product. */
        if (!(relative > 0 && relative <= rounding_error(2 * roundings + 1)))
            fail_msg("%s: the gradient differs by %g of its norm", tensor->name, relative);
    }
    free_job(&rounded);
    free_job(&floats);
}

static void gradients_differ_by_rounding_alone(void **state) {
    (void)state;
    enum { PRODUCTS = 2 * LAYERS + 2, BETWEEN_MODULES = 4 * LAYERS + 3 };
    expect_rounding_alone(SL_BF16, SL_F32, PRODUCTS);
    expect_rounding_alone(SL_F32, SL_BF16, PRODUCTS / 3.0 + BETWEEN_MODULES);
    expect_rounding_alone(SL_BF16, SL_BF16, PRODUCTS + BETWEEN_MODULES);
}

/* ---- a module with its own rounding ---- */

/* Variants of gelu between products. */
struct between {
    bool apart;      /* a sequence of its own, with rounding passes around it */
    bool dense;      /* the products read float rows */
    bool recomputes; /* gelu runs again before backward */
};

static int build_between(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    enum { WIDE = 150 }; /* more than a piece, and no whole number of vectors */
    const struct between *between = job->user;
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor", .pieces = 1};
    struct sl_module *gelu = sl_gelu(WIDE);
    if (between->apart) gelu = sl_sequential("", 1, &gelu);
    struct sl_module *const child[] = {
        between->dense ? sl_dense("up", INPUTS, WIDE) : sl_sharded_dense("up", INPUTS, WIDE, 1, 1, &channels), gelu,
        between->dense ? sl_dense("down", WIDE, CLASSES) : sl_sharded_dense("down", WIDE, CLASSES, 1, 1, &channels)};
    SL_TRY(sl_model_open(model, &job->table, sl_axis_index(self, "model"), (struct sl_layers){.count = 1}, 0, 0,
                         &self->error));
    struct sl_module *all = sl_sequential("", 3, child);
    model->stage[0] = between->recomputes ? sl_recompute(all) : all;
    model->loss = sl_softmax_cross_entropy(CLASSES);
    return SL_OK;
}

static void gelu_between_products_rounds_as_passes_do(void **state) {
    (void)state;
    for (int i = 0; i < 32; i++) {
        struct between between = {.dense = i & 1, .recomputes = i & 8}, apart = between;
        apart.apart = true;
        char mesh[64];
        struct job job = make_job(&layouts[0], 1 + (i >> 2 & 1), mesh);
        job.build = build_between;
        job.precision = i & 2 ? SL_BF16 : SL_F32;
        job.storage = SL_BF16;
        job.group = i & 4 ? 2 : 1;
        job.fuse = i & 16 ? 2 : 0;
        job.user = &between;
        struct job passes = job;
        passes.user = &apart;
        run_job(&job);
        run_job(&passes);
        assert_true(job.loss[STEPS - 1] < job.loss[0]);
        expect_same(&job, &passes);
        expect_same_store(&job.gradients, &passes.gradients);
        free_job(&job);
        free_job(&passes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_give_the_same_bits),
        cmocka_unit_test(so_they_do_where_storage_is_bf16),
        cmocka_unit_test(values_that_are_handed_over_give_the_same_bits),
        cmocka_unit_test(gradients_differ_by_rounding_alone),
        cmocka_unit_test(gelu_between_products_rounds_as_passes_do),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
