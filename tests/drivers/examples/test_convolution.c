/* test_convolution.c - the example's layers, and its network over meshes: stages that hand over different widths, and
 * images whose lines are sharded. */
#include "tests/rigs/numbers.h"
#include "tests/rigs/run_on.h"

#include "drivers/examples/convolution_network.h"

/* ---- layers ---- */

/* A convolution is linear in x and in its kernel, so that differences have no error but rounding. */
static void the_gradients_of_a_convolution_are_those_of_differences(void **state) {
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        const struct sl_gradient_check check = {.rows = 2, .microbatches = 4, .wgrad_group = 2, .step = 0.5f};
        struct sl_module *conv = conv3x3("conv", 3, 4, channels, 2);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        assert_non_null(conv);
        if (sl_gradient_check(conv, &check, &sl_gemm_reference, &difference, worst, &error))
            fail_msg("%s", error.message);
        if (!(difference < 1e-4)) fail_msg("%d channels: %s differs by %g", channels, worst, difference);
        sl_module_free(conv);
    }
}

/* Two lines of six points: the largest of a window is below zero, there twice, and there four times. */
static void a_pool_gives_its_gradient_to_the_first_largest_point(void **state) {
    static const float x[] = {-1, -2, 1, 3, 4, 4, -3, -4, 3, 2, 4, 4}, dy[] = {5, 7, 9};
    static const float wanted[] = {0, 0, 0, 7, 9, 0, 0, 0, 0, 0, 0, 0};
    struct sl_module *pool = pool2x2(2, 6, 1);
    struct sl_context context = {.rows = 1};
    float *at = device_array(12, sizeof *at), *y = device_array(3, sizeof *y), *dx = device_array(12, sizeof *dx);
    float *given = device_array(3, sizeof *given);
    (void)state;
    assert_non_null(pool);
    sl_device.copy(at, x, sizeof x);
    sl_device.copy(given, dy, sizeof dy);
    assert_int_equal(pool->type->forward(pool, &context, at, y), SL_OK);
    assert_int_equal(pool->type->backward_input(pool, &context, at, given, dx), SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    assert_true(y[0] == 0 && y[1] == 3 && y[2] == 4);
    assert_memory_equal(dx, wanted, sizeof wanted);
    release_array(at);
    release_array(y);
    release_array(dx);
    release_array(given);
    sl_module_free(pool);
}

/* ---- the network ---- */

static struct images images;

static void train(struct network_run *run, const char *mesh, int steps) {
    struct sl_mesh parsed;
    struct sl_error error = {0};
    *run = (struct network_run){.train = images, .steps = steps};
    assert_int_equal(sl_mesh_parse(&parsed, mesh, &error), SL_OK);
    const int ranks = sl_mesh_axis_size(&parsed, "pipe");
    if (sl_schedule_make(&run->schedule, "1f1b", ranks, 1, MICROBATCHES, &error) ||
        sl_schedule_lower(&run->schedule, &error) ||
        run_on((struct test_run){.mesh = mesh, .checked = true, .arg = run}, network_program, &error))
        fail_msg("%s: %s", mesh, error.message);
    sl_schedule_free(&run->schedule);
}

static const float *gradient(const struct network_run *run, const struct sl_tensor *like) {
    const struct sl_tensor *tensor = sl_store_find(&run->gradients, like->name);
    if (!tensor) fail_msg("there is no gradient of %s", like->name);
    assert_int_equal(sl_array_elements(&tensor->array), sl_array_elements(&like->array));
    return tensor->array.data;
}

/* The norm of the difference over that of the gradient. */
static double difference_of(const float *a, const float *b, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* Stages take the same microbatches, in the same order, with slots as wide as the widest: no sum changes. */
static void stages_of_different_widths_give_the_same_bits(void **state) {
    static const char *const mesh[] = {"pipe=2", "pipe=3"};
    struct network_run single, run;
    (void)state;
    train(&single, "pipe=1", MOST_STEPS);
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        train(&run, mesh[m], MOST_STEPS);
        if (has_results()) {
            assert_memory_equal(run.loss, single.loss, sizeof run.loss);
            assert_int_equal(run.gradients.count, 6);
            for (int i = 0; i < run.gradients.count; i++) {
                const struct sl_tensor *tensor = &single.gradients.tensor[i];
                assert_memory_equal(gradient(&run, tensor), tensor->array.data,
                                    sl_array_elements(&tensor->array) * sizeof(float));
            }
        }
        sl_store_free(&run.gradients);
    }
    sl_store_free(&single.gradients);
}

/* Bands and replicas give the sums over an image's points, and those over a batch, another order. What a gradient sums
 * are at most n = 128 * 32 * 32 summands. Rounding moves a sum like a random walk, by sqrt(n) * 2^-24 of the summands'
 * size (Higham and Mary 2019), in each of the two orders. */
static void bands_and_replicas_change_only_rounding(void **state) {
    static const char *const mesh[] = {"rows=2", "rows=4", "rows=8", "data=2,pipe=2,rows=2", "data=1,pipe=3,rows=2"};
    const double bound = 2 * sqrt((double)BATCH * IMAGE * IMAGE) * 0x1p-24;
    struct network_run single, run;
    (void)state;
    train(&single, "data=1,pipe=1,rows=1", 1);
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        train(&run, mesh[m], 1);
        if (has_results()) {
            const double change = fabs(run.loss[0] / single.loss[0] - 1);
            if (!(change <= bound)) fail_msg("%s: the loss changes by %g, more than %g", mesh[m], change, bound);
            assert_int_equal(run.gradients.count, 6);
            for (int i = 0; i < run.gradients.count; i++) {
                const struct sl_tensor *tensor = &single.gradients.tensor[i];
                const double d =
                    difference_of(gradient(&run, tensor), tensor->array.data, sl_array_elements(&tensor->array));
                if (!(d <= bound)) fail_msg("%s: %s changes by %g, more than %g", mesh[m], tensor->name, d, bound);
            }
        }
        sl_store_free(&run.gradients);
    }
    sl_store_free(&single.gradients);
}

static void a_mesh_that_does_not_fit_is_refused(void **state) {
    static const char *const mesh[] = {"rows=16", "data=3", "pipe=4"};
    (void)state;
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        struct network_run run = {.train = images, .steps = 1};
        struct sl_mesh parsed;
        struct sl_error error = {0};
        assert_int_equal(sl_mesh_parse(&parsed, mesh[m], &error), SL_OK);
        assert_int_equal(
            sl_schedule_make(&run.schedule, "1f1b", sl_mesh_axis_size(&parsed, "pipe"), 1, MICROBATCHES, &error),
            SL_OK);
        assert_int_equal(sl_schedule_lower(&run.schedule, &error), SL_OK);
        if (parsed.size <= 8 || shares_memory()) { /* there are eight processes */
            assert_int_equal(run_on((struct test_run){.mesh = mesh[m], .arg = &run}, network_program, &error),
                             SL_BAD_INPUT);
            if (has_results()) assert_non_null(strstr(error.message, "data must be 1, 2, 4, 8 or 16, pipe at most 3"));
        }
        sl_schedule_free(&run.schedule);
    }
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradients_of_a_convolution_are_those_of_differences),
        cmocka_unit_test(a_pool_gives_its_gradient_to_the_first_largest_point),
        cmocka_unit_test(stages_of_different_widths_give_the_same_bits),
        cmocka_unit_test(bands_and_replicas_change_only_rounding),
        cmocka_unit_test(a_mesh_that_does_not_fit_is_refused),
    };
    begin_tests(argc, argv);
    if (images_draw(&images, MOST_STEPS * BATCH)) return SL_FAILED;
    const int failed = cmocka_run_group_tests_name("convolution", tests, NULL, NULL);
    images_free(&images);
    return failed;
}
