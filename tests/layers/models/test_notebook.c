/* test_notebook.c - the drivers against the notebook's numbers: tests/data/notebook.json has the losses of JAX, flax
 * and optax for many settings. Run as: test_notebook DIRECTORY_OF_DRIVERS [all|small]; small leaves out cases that take
 * minutes under a sanitizer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static const char *drivers;
static bool small;

/* Options of a case, as all drivers take them. */
static void options_of(const json_t *item, char *text, size_t size) {
    snprintf(text, size,
             "--layers %lld --hidden %lld --expansion %lld --mesh data=%lld,model=%lld --microbatches %lld "
             "--batch %lld --dropout %.17g --seed %lld --lr %.17g --json",
             json_integer_value(json_object_get(item, "layers")), json_integer_value(json_object_get(item, "hidden")),
             json_integer_value(json_object_get(item, "expansion")), json_integer_value(json_object_get(item, "data")),
             json_integer_value(json_object_get(item, "model")),
             json_integer_value(json_object_get(item, "microbatches")),
             json_integer_value(json_object_get(item, "batch")), json_number_value(json_object_get(item, "dropout")),
             json_integer_value(json_object_get(item, "seed")), json_number_value(json_object_get(item, "lr")));
}

static bool chosen(const json_t *item, const char *kind) {
    const long long weight =
        json_integer_value(json_object_get(item, "layers")) * json_integer_value(json_object_get(item, "hidden"));
    return !strcmp(json_string_value(json_object_get(item, "kind")), kind) && (!small || weight <= 1024);
}

/* Calls CHECK for the cases of KIND. There must be LEAST or more. */
static void for_each_case(const char *kind, size_t least, void (*check)(const json_t *item, const char *options)) {
    json_t *cases = json_load_file(SL_TEST_DATA "/notebook.json", 0, NULL);
    size_t i, checked = 0;
    json_t *item;
    assert_non_null(cases);
    json_array_foreach(cases, i, item) {
        char options[512];
        if (!chosen(item, kind)) continue;
        options_of(item, options, sizeof options);
        check(item, options);
        checked++;
    }
    assert_true(checked >= least);
    json_decref(cases);
}

static double relative(double value, double expected) { return fabs(value - expected) / fabs(expected); }

/* Runs COMMAND and calls LINE for each JSON object it prints; returns its exit status. */
static int run(const char *command, void (*line)(const json_t *object, void *arg), void *arg) {
    char text[65536];
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(text, sizeof text, output)) {
        json_t *object = json_loads(text, 0, NULL);
        if (!object) fail_msg("not JSON: %s", text);
        line(object, arg);
        json_decref(object);
    }
    return pclose(output);
}

struct training {
    const json_t *losses;
    size_t steps;
    double difference, first_difference; /* largest relative one, and of step 0 */
    long long stacked;
};

static void compare_step(const json_t *object, void *arg) {
    struct training *training = arg;
    const json_t *loss = json_object_get(object, "loss");
    if (!loss) {
        training->stacked = json_integer_value(json_object_get(object, "parameters_stacked"));
        return;
    }
    const double expected = json_number_value(json_array_get(training->losses, training->steps));
    const double difference = relative(json_number_value(loss), expected);
    if (training->steps++ == 0) training->first_difference = difference;
    if (difference > training->difference) training->difference = difference;
}

static void train(const json_t *item, const char *options) {
    const char *kind = json_string_value(json_object_get(item, "kind"));
    struct training training = {.losses = json_object_get(item, "loss")};
    char command[1024];
    snprintf(command, sizeof command, "%s/looping_pipeline --schedule %s %s --steps %zu", drivers, kind, options,
             json_array_size(training.losses));
    assert_int_equal(run(command, compare_step, &training), 0);
    print_message("# %s: largest relative difference %.2g, of step 0 %.2g\n", options, training.difference,
                  training.first_difference);
    assert_int_equal(training.steps, json_array_size(training.losses));
    assert_int_equal(training.stacked, json_integer_value(json_object_get(item, "parameters_stacked")));
    assert_true(training.first_difference <= 2e-6);
    assert_true(training.difference <= 2e-4);
}

static void looping_training_gives_the_notebooks_losses(void **state) {
    (void)state;
    for_each_case("looping", 3, train);
}

static void plain_training_gives_the_notebooks_losses(void **state) {
    (void)state;
    for_each_case("plain", 3, train);
}

static void keep_object(const json_t *object, void *arg) { *(json_t **)arg = json_deep_copy(object); }

static void compare_layout(const json_t *result, const json_t *item, const char *layout) {
    const json_t *loss = json_object_get(json_object_get(result, layout), "loss");
    const json_t *expected = json_object_get(json_object_get(item, layout), "per_step");
    assert_int_equal(json_array_size(loss), 3);
    for (size_t step = 0; step < 3; step++) {
        const double difference =
            relative(json_number_value(json_array_get(loss, step)), json_number_value(json_array_get(expected, step)));
        if (difference > 1e-4) fail_msg("%s, step %zu: relative difference %g", layout, step, difference);
    }
    assert_true(json_number_value(json_object_get(json_object_get(result, layout), "accuracy")) ==
                json_number_value(json_object_get(json_object_get(item, layout), "accuracy")));
}

static void compare_layouts(const json_t *item, const char *options) {
    char command[1024];
    json_t *result = NULL;
    snprintf(command, sizeof command, "%s/loss_equality %s", drivers, options);
    assert_int_equal(run(command, keep_object, &result), 0);
    assert_true(json_is_true(json_object_get(result, "equal")));
    compare_layout(result, item, "single");
    compare_layout(result, item, "pipeline");
    compare_layout(result, item, "looping");
    json_decref(result);
}

static void equality_gives_the_notebooks_losses(void **state) {
    (void)state;
    for_each_case("equality", 1, compare_layouts);
}

/* At the same data size the three layouts compute the same bits. */
static void same_data_size_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const settings[] = {
        "--mesh data=2,model=4 --single-mesh data=2,model=1",
        "--mesh data=1,model=3 --single-mesh data=1 --layers 6 --hidden 96 --batch 60 --microbatches 5",
        "--mesh data=3,model=2 --single-mesh data=3 --layers 4 --hidden 64 --batch 96 --microbatches 4 --expansion 3",
        "--mesh data=1,model=4 --single-mesh data=1 --layers 8 --hidden 64 --batch 32 --microbatches 2",
    };
    static const char *const precisions[] = {"", "--precision bf16", "--precision bf16 --rng global"};
    const size_t first = small ? 1 : 0, count = sizeof settings / sizeof *settings;
    for (size_t i = 3 * first; i < 3 * count; i++) {
        char command[1024];
        json_t *result = NULL;
        snprintf(command, sizeof command, "%s/loss_equality --json %s %s", drivers, settings[i / 3], precisions[i % 3]);
        assert_int_equal(run(command, keep_object, &result), 0);
        if (!json_is_true(json_object_get(result, "bit_identical"))) fail_msg("other bits: %s", command);
        json_decref(result);
    }
}

/* ---- products of bf16 ---- */

enum { STEPS = 17 };

struct curve {
    size_t steps;
    double loss[STEPS], accuracy[STEPS];
};

static void keep_step(const json_t *object, void *arg) {
    struct curve *curve = arg;
    if (!json_object_get(object, "step")) return;
    assert_true(curve->steps < STEPS);
    curve->loss[curve->steps] = json_number_value(json_object_get(object, "loss"));
    curve->accuracy[curve->steps++] = json_number_value(json_object_get(object, "accuracy"));
}

static struct curve train_in(const char *precision, const char *options) {
    struct curve curve = {0};
    char command[1024];
    snprintf(command, sizeof command, "%s/looping_pipeline --json --steps %d --precision %s %s", drivers, STEPS,
             precision, options);
    assert_int_equal(run(command, keep_step, &curve), 0);
    assert_int_equal(curve.steps, STEPS);
    return curve;
}

/* An operand is rounded by up to 2^-8 of its size, a product of two changes by less than that in the mean of squares;
 * errors of products in a row are independent: squares add up. A small loss is exp(-margin), with margin a difference
 * of logits: a relative change of the margin changes the loss by |log loss| times as much. */
static void bf16_training_follows_that_of_floats(void **state) {
    (void)state;
    const int layers = small ? 4 : 8;
    const char *options =
        small ? "--layers 4 --hidden 64 --lr 4e-3 --mesh data=1,model=2 --batch 64 --microbatches 4" : "";
    const struct curve floats = train_in("f32", options), rounded = train_in("bf16", options);
    const double error = 0x1p-8 * sqrt(2.0 * layers + 2.0);
    double largest = 0;
    for (int step = 0; step < STEPS; step++) {
        const double difference = relative(rounded.loss[step], floats.loss[step]);
        const double allowed = error * fmax(1.0, -log(floats.loss[step]));
        if (!(difference <= allowed))
            fail_msg("step %d: loss %.9g, of floats %.9g: relative difference %.3g, allowed is %.3g", step,
                     rounded.loss[step], floats.loss[step], difference, allowed);
        if (difference > largest) largest = difference;
    }
    print_message("# bf16: relative difference of the losses up to %.2g, of step 0 %.2g\n", largest,
                  relative(rounded.loss[0], floats.loss[0]));
    assert_true(rounded.loss[0] != floats.loss[0]);
    assert_true(relative(rounded.loss[0], floats.loss[0]) <= 0.01);
    assert_true(rounded.accuracy[STEPS - 1] == 1.0);
}

/* Layouts with sums in another order differ by rounding. */
static void bf16_layouts_are_equal(void **state) {
    (void)state;
    const char *options = small ? "--layers 4 --hidden 64 --mesh data=1,model=2 --batch 64 --microbatches 4" : "";
    char command[1024];
    json_t *result = NULL;
    snprintf(command, sizeof command, "%s/loss_equality --json --precision bf16 %s", drivers, options);
    assert_int_equal(run(command, keep_object, &result), 0);
    assert_true(json_is_true(json_object_get(result, "equal")));
    print_message("# bf16: layouts differ by %.2g\n",
                  json_number_value(json_object_get(result, "max_relative_difference")));
    json_decref(result);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(looping_training_gives_the_notebooks_losses),
        cmocka_unit_test(plain_training_gives_the_notebooks_losses),
        cmocka_unit_test(equality_gives_the_notebooks_losses),
        cmocka_unit_test(same_data_size_gives_the_same_bits),
        cmocka_unit_test(bf16_training_follows_that_of_floats),
        cmocka_unit_test(bf16_layouts_are_equal),
    };
    if (argc < 2) return 2;
    drivers = argv[1];
    small = argc > 2 && !strcmp(argv[2], "small");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
