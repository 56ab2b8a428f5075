/* test_classifier.c - the classifier's initial values: the notebook's if its keys are chosen (tests/data/training.json
 * has data of its kernels), otherwise the same in every layout. */
#include <math.h>

#include <jansson.h>

#include "tests/rigs/trainer_rig.h"

/* The notebook's. */
static const struct sl_classifier shape = {.inputs = 784, .hidden = 512, .expansion = 1, .classes = 10};
enum { LAYERS = 8 };

static void notebooks_keys(struct sl_parameters *parameters, const struct job *job, const struct sl_model *model,
                           int rank) {
    sl_classifier_flax_parameters(parameters, 42, job->loops > 1, rank, model->loops, model->layers);
}

static struct job notebook(bool looping) {
    return (struct job){.mesh = "data=2,model=4",
                        .schedule = looping ? "looped-bfs" : "gpipe",
                        .loops = looping ? 2 : 1,
                        .layers = LAYERS,
                        .microbatches = 8,
                        .group = 8,
                        .zero = true,
                        .shape = &shape,
                        .keys = notebooks_keys};
}

/* Two units in the last place: the logarithm in the inverse error function may differ by as much. */
static void expect_values(const char *name, const json_t *expected, const float *given) {
    assert_int_equal(json_array_size(expected), 4);
    for (size_t i = 0; i < 4; i++) {
        const float want = (float)json_number_value(json_array_get(expected, i));
        const double unit = (double)nextafterf(fabsf(want), INFINITY) - fabs((double)want);
        if (!(fabs((double)given[i] - want) <= 2 * unit))
            fail_msg("%s: %.9g instead of %.9g", name, (double)given[i], (double)want);
    }
}

static void expect_kernel(const json_t *fact, const struct sl_store *store) {
    const char *name = json_string_value(json_object_get(fact, "name"));
    const json_t *dims = json_object_get(fact, "shape");
    const struct sl_tensor *tensor = sl_store_find(store, name);
    if (!tensor) fail_msg("there is no %s", name);
    assert_int_equal(tensor->array.dims, json_array_size(dims));
    for (int d = 0; d < tensor->array.dims; d++)
        assert_int_equal(tensor->array.shape[d], json_integer_value(json_array_get(dims, (size_t)d)));
    const size_t count = sl_array_elements(&tensor->array);
    const float *value = tensor->array.data;
    expect_values(name, json_object_get(fact, "first4"), value);
    expect_values(name, json_object_get(fact, "last4"), value + count - 4);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)value[i];
        squares += (double)value[i] * (double)value[i];
    }
    const double l2 = json_number_value(json_object_get(fact, "l2"));
    assert_true(fabs(sqrt(squares) - l2) <= 1e-6 * l2);
    if (!(fabs(sum - json_number_value(json_object_get(fact, "sum"))) <= 1e-6 * l2))
        fail_msg("%s: sum %.9g instead of %.9g", name, sum, json_number_value(json_object_get(fact, "sum")));
}

/* Biases begin with zeros, scales of layer norms with ones. */
static void expect_vectors(const struct sl_store *store) {
    int vectors = 0;
    for (int i = 0; i < store->count; i++) {
        const struct sl_tensor *tensor = &store->tensor[i];
        if (tensor->array.dims != 1) continue;
        const float *value = tensor->array.data, want = strstr(tensor->name, ".scale") ? 1 : 0;
        for (size_t k = 0; k < tensor->array.shape[0]; k++)
            if (value[k] != want) fail_msg("%s: %g instead of %g", tensor->name, (double)value[k], (double)want);
        vectors++;
    }
    assert_int_equal(vectors, 4 * LAYERS + 4);
}

static void kernels_are_the_notebooks(bool looping) {
    json_t *facts = json_load_file(SL_TEST_DATA "/training.json", 0, NULL);
    struct job job = notebook(looping);
    size_t i;
    json_t *fact;
    int kernels = 0;
    assert_non_null(facts);
    run_job(&job);
    json_array_foreach(facts, i, fact) {
        if (strcmp(json_string_value(json_object_get(fact, "kind")), looping ? "looping" : "plain") != 0) continue;
        expect_kernel(fact, &job.values);
        kernels++;
    }
    assert_int_equal(kernels, 2 * LAYERS + 2);
    expect_vectors(&job.values);
    assert_int_equal(job.values.count, kernels + 4 * LAYERS + 4);
    free_job(&job);
    json_decref(facts);
}

static void looping_kernels_are_the_notebooks(void **state) {
    (void)state;
    kernels_are_the_notebooks(true);
}

static void plain_kernels_are_the_notebooks(void **state) {
    (void)state;
    kernels_are_the_notebooks(false);
}

static void parameters_are_counted(void **state) {
    (void)state;
    struct sl_classifier classifier = shape;
    classifier.layers = LAYERS;
    assert_int_equal(sl_classifier_parameters(&classifier), 4618762);
    assert_int_equal(sl_classifier_parameters_stacked(&classifier, 4), 5842984);
    assert_int_equal(sl_classifier_parameters_stacked(&classifier, 1), 4618762);
}

static size_t elements(const struct sl_store *store) {
    size_t sum = 0;
    for (int i = 0; i < store->count; i++) sum += sl_array_elements(&store->tensor[i].array);
    return sum;
}

/* No two kernels share numbers. */
static void expect_distinct(const struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        for (int k = 0; k < i; k++) {
            const struct sl_array *a = &store->tensor[i].array, *b = &store->tensor[k].array;
            if (a->dims == 2 && b->dims == 2 && !memcmp(a->data, b->data, 4 * sizeof(float)))
                fail_msg("%s begins as %s", store->tensor[i].name, store->tensor[k].name);
        }
    }
}

/* Without the notebook's keys. */
static void every_layout_begins_with_the_same_values(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        int loops;
    } layout[] = {{"data=1,model=1", 1}, {"data=1,model=1", 8}, {"data=3,model=1", 4}, {"data=1,model=2", 1},
                  {"data=2,model=2", 2}, {"model=2,data=4", 4}, {"data=2,model=4", 2}, {"data=1,model=8", 1}};
    static const struct sl_classifier other = {.inputs = 13, .hidden = 24, .expansion = 3, .classes = 7};
    struct sl_classifier whole = other;
    struct job first = {0};
    whole.layers = LAYERS;
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        struct job job = {.mesh = layout[i].mesh,
                          .schedule = layout[i].loops == 1 ? "gpipe" : "looped-bfs",
                          .loops = layout[i].loops,
                          .layers = LAYERS,
                          .microbatches = 4,
                          .group = 4,
                          .zero = i % 2,
                          .shape = &other};
        run_job(&job);
        if (i == 0) {
            first = job;
            continue;
        }
        expect_same_store(&first.values, &job.values);
        free_job(&job);
    }
    assert_int_equal(elements(&first.values), sl_classifier_parameters(&whole));
    expect_distinct(&first.values);
    expect_vectors(&first.values);
    free_job(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looping_kernels_are_the_notebooks),
        cmocka_unit_test(plain_kernels_are_the_notebooks),
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(every_layout_begins_with_the_same_values),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
