/* test_gradients.c - the scale of gradients, which does not show with AdamW: exported gradients are of the mean loss
 * over all rows, and the optimizer gets the same. */
#include <math.h>

#include "tests/rigs/trainer_rig.h"

/* One step, without dropout, on MESH. */
static struct job one_step(const char *mesh, const struct sl_optimizer_options *optimizer) {
    return (struct job){.mesh = mesh,
                        .schedule = "looped-bfs",
                        .loops = 2,
                        .layers = 4,
                        .microbatches = 4,
                        .group = 2,
                        .steps = 1,
                        .optimizer = optimizer};
}

static const char *const meshes[] = {"data=1,model=2", "data=2,model=2", "data=3,model=2", "data=4,model=2"};

static double norm(size_t count, const float *x) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static void expect_near_store(const struct sl_store *expected, const struct sl_store *given) {
    assert_int_equal(expected->count, given->count);
    for (int i = 0; i < expected->count; i++) {
        const struct sl_tensor *tensor = &expected->tensor[i];
        const size_t count = sl_array_elements(&tensor->array);
        const float *want = tensor->array.data, *got = same_tensor(given, tensor);
        double squares = 0;
        for (size_t k = 0; k < count; k++) squares += ((double)got[k] - want[k]) * ((double)got[k] - want[k]);
        const double difference = sqrt(squares) / norm(count, want);
        if (!(difference <= 1e-5)) fail_msg("gradient of %s: relative difference %g", tensor->name, difference);
    }
}

/* A learning rate of 0 does not change the values. */
static void data_sizes_give_the_same_gradients(void **state) {
    (void)state;
    const struct sl_optimizer_options still = sl_adamw_defaults(0);
    struct job first = {0};
    for (int i = 0; i < 16; i++) {
        struct job job = one_step(meshes[i / 4], &still);
        job.zero = i & 1;
        job.overlap = i & 2;
        run_job(&job);
        assert_true(fabs(job.evaluated - job.loss[0]) <= 1e-6 * job.loss[0]);
        if (i == 0) {
            first = job;
            continue;
        }
        expect_near_store(&first.gradients, &job.gradients);
        expect_same_store(&first.values, &job.values);
        free_job(&job);
    }
    free_job(&first);
}

/* values + distance * gradients */
static struct sl_store moved(const struct job *job, float distance) {
    struct sl_store store = {0};
    for (int i = 0; i < job->values.count; i++) {
        const struct sl_tensor *tensor = &job->values.tensor[i];
        const float *value = tensor->array.data, *gradient = same_tensor(&job->gradients, tensor);
        struct sl_tensor *to = sl_store_add(&store, tensor->name, SL_F32, tensor->array.dims, tensor->array.shape);
        assert_non_null(to);
        float *moved = to->array.data;
        for (size_t k = 0; k < sl_array_elements(&tensor->array); k++) moved[k] = value[k] + distance * gradient[k];
    }
    return store;
}

/* The loss at values + DISTANCE * gradients of JOB. */
static double loss_at(const struct job *job, float distance) {
    struct sl_store from = moved(job, distance);
    struct job there = one_step(job->mesh, job->optimizer);
    there.from = &from;
    run_job(&there);
    const double loss = there.loss[0];
    free_job(&there);
    sl_store_free(&from);
    return loss;
}

/* Along the gradient the loss rises by the gradient's square. */
static void gradients_are_the_slope_of_the_loss(void **state) {
    (void)state;
    const struct sl_optimizer_options still = sl_adamw_defaults(0);
    const float distance = 1e-2f;
    for (int i = 0; i < 6; i++) {
        struct job job = one_step(meshes[i / 2], &still);
        job.zero = i & 1;
        run_job(&job);
        assert_true(loss_at(&job, 0) == job.loss[0]); /* it takes the given values over */
        const double slope = (loss_at(&job, distance) - loss_at(&job, -distance)) / (2 * (double)distance);
        double square = 0;
        for (int t = 0; t < job.gradients.count; t++) {
            const struct sl_array *array = &job.gradients.tensor[t].array;
            square += pow(norm(sl_array_elements(array), array->data), 2);
        }
        if (!(fabs(slope - square) <= 1e-2 * square))
            fail_msg("on %s: the loss rises by %g, the gradient's square is %g", job.mesh, slope, square);
        free_job(&job);
    }
}

/* With epsilon as large as 1, the first update is about proportional to the gradient, so its scale shows: m = g, v =
 * g^2 after their corrections. */
static void the_optimizer_gets_the_exported_gradients(void **state) {
    (void)state;
    const struct sl_optimizer_options still = sl_adamw_defaults(0);
    struct sl_optimizer_options optimizer = sl_adamw_defaults(0.5f);
    optimizer.epsilon = 1;
    optimizer.decay = 0.1f;
    for (int i = 0; i < 12; i++) {
        struct job before = one_step(meshes[i / 4], &still), after = one_step(meshes[i / 4], &optimizer);
        before.zero = after.zero = i & 1;
        before.overlap = after.overlap = i & 2;
        run_job(&before);
        run_job(&after);
        for (int t = 0; t < before.values.count; t++) {
            const struct sl_tensor *tensor = &before.values.tensor[t];
            const size_t count = sl_array_elements(&tensor->array);
            const float *value = tensor->array.data, *gradient = same_tensor(&before.gradients, tensor),
                        *given = same_tensor(&after.values, tensor);
            double difference = 0, moved = 0;
            for (size_t k = 0; k < count; k++) {
                const double g = gradient[k], update = -0.5 * (g / (fabs(g) + 1) + (double)optimizer.decay * value[k]);
                difference += pow(given[k] - (value[k] + update), 2);
                moved += update * update;
            }
            if (!(sqrt(difference) <= 1e-4 * sqrt(moved)))
                fail_msg("%s on %s: differs by %g of its update of %g", tensor->name, after.mesh, sqrt(difference),
                         sqrt(moved));
        }
        free_job(&before);
        free_job(&after);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_sizes_give_the_same_gradients),
        cmocka_unit_test(gradients_are_the_slope_of_the_loss),
        cmocka_unit_test(the_optimizer_gets_the_exported_gradients),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
