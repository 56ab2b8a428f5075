/* test_sgd.c - SGD against PyTorch's numbers; through the trainer, with its state whole and shared out; and weight
 * decay by rules on names. */
#include "tests/rigs/optimizer_rig.h"
#include "tests/rigs/trainer_rig.h"

/* ---- PyTorch ---- */

/* A sum of terms that cancel is off by rounding errors of the terms. */
static void expect_floats(const char *what, const json_t *step, const char *key, size_t count, const float *got) {
    float *want = floats(count);
    read_floats(step, key, count, want);
    for (size_t i = 0; i < count; i++) expect_close(what, i, got[i], want[i], 4e-7, 1e-10);
    free(want);
}

static struct sl_optimizer_options options_of(const json_t *facts, const json_t *run) {
    struct sl_optimizer_options options =
        sl_sgd_defaults((float)json_number_value(json_object_get(facts, "learning_rate")));
    options.momentum = (float)json_number_value(json_object_get(run, "momentum"));
    options.nesterov = json_is_true(json_object_get(run, "nesterov"));
    options.decay = (float)json_number_value(json_object_get(run, "decay"));
    return options;
}

static void expect_run(const struct sl_kernels *kernels, const json_t *facts, const json_t *run) {
    const struct sl_optimizer_options options = options_of(facts, run);
    const size_t count = json_array_size(json_object_get(facts, "value"));
    const size_t decaying = (size_t)json_integer_value(json_object_get(facts, "decaying"));
    const json_t *steps = json_object_get(run, "steps"), *gradients = json_object_get(facts, "gradients");
    struct storage storage;
    char what[80];
    snprintf(what, sizeof what, "momentum %g, nesterov %d, decay %g", (double)options.momentum, options.nesterov,
             (double)options.decay);
    make_storage(&storage, 2, (size_t[]){decaying, count - decaying}, (bool[]){true, false}, 0);
    read_floats(facts, "value", count, storage.loop.value);
    assert_int_equal(json_array_size(gradients), json_array_size(steps));
    for (size_t s = 0; s < json_array_size(steps); s++) {
        const json_t *step = json_array_get(steps, s), *gradient = json_array_get(gradients, s);
        for (size_t i = 0; i < count; i++) /* half of it: the trainer sums over coordinates, and takes means here */
            storage.loop.gradient[i] = 2 * (float)json_number_value(json_array_get(gradient, i));
        update(&storage, 2, &options, kernels, (int64_t)s + 1, 0.5f);
        expect_floats(what, step, "value", count, storage.loop.value);
        if (options.momentum > 0) expect_floats(what, step, "momentum", count, storage.loop.state[0]);
    }
    free_storage(&storage);
}

static void sgd_gives_pytorch_numbers(void **state) {
    (void)state;
    json_t *facts = load_facts("sgd.json"), *run;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(facts, "runs")), 6);
    json_array_foreach(json_object_get(facts, "runs"), i, run) expect_run(sl_kernels_available(0), facts, run);
    json_decref(facts);
}

/* Takes a step of whole numbers, which have no rounding errors, with COUNT elements. Elements behind them are neither
 * read nor changed. */
static void expect_exact_step(size_t count, float momentum, bool nesterov) {
    enum { BEHIND = 300 };
    struct numbers numbers = {(uint64_t)count};
    struct sl_optimizer_options options = sl_sgd_defaults(0.25f);
    options.momentum = momentum;
    options.nesterov = nesterov;
    float *value = random_device_wholes(&numbers, count + BEHIND),
          *state = random_device_wholes(&numbers, count + BEHIND);
    float *gradient = random_device_wholes(&numbers, count + BEHIND);
    for (size_t i = count; i < count + BEHIND; i++) gradient[i] = NAN;
    float *before = device_copy(value, (count + BEHIND) * sizeof *value);
    float *state_before = device_copy(state, (count + BEHIND) * sizeof *state);
    const struct sl_optimizer_run run = {.count = count,
                                         .gradient = gradient,
                                         .value = value,
                                         .state = {state},
                                         .gradient_scale = 2.0f,
                                         .decay = 0.5f,
                                         .step = 1};
    sl_optimizer_find("sgd", NULL)->update(&options, sl_kernels_available(0), &run);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < count + BEHIND; i++) {
        const float g = 2.0f * gradient[i] + 0.5f * before[i], m = momentum * state_before[i] + g;
        const bool own = i < count;
        assert_true(value[i] == (own ? before[i] - 0.25f * (nesterov ? g + momentum * m : m) : before[i]));
        assert_true(state[i] == (own && momentum > 0 ? m : state_before[i]));
    }
    float *const arrays[] = {value, state, gradient, before, state_before};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) release_array(arrays[a]);
}

/* Counts around the ends of a GPU's teams, by any number of teams. */
static void each_element_is_updated_once(void **state) {
    (void)state;
    static const size_t counts[] = {1, 127, 128, 129, 255, 256, 257, 1001};
    for (int time = 0; time < 3; time++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            expect_exact_step(counts[c], 0.0f, false);
            expect_exact_step(counts[c], 0.5f, false);
            expect_exact_step(counts[c], 0.5f, true);
        }
    }
}

/* ---- through the trainer ---- */

static struct job train_for(int steps, const char *mesh, const struct sl_optimizer_options *options, bool zero) {
    struct job job = {.mesh = mesh,
                      .schedule = "looped-bfs",
                      .loops = 2,
                      .layers = 4,
                      .microbatches = 4,
                      .group = 2,
                      .steps = steps,
                      .overlap = true,
                      .zero = zero,
                      .optimizer = options};
    run_job(&job);
    return job;
}

/* Takes a step in double from JOB's values and gradients; M is the momentum so far. */
static void step_in_double(const struct sl_optimizer_options *o, double decay, double p, double g, double *m,
                           double *value) {
    g += decay * p;
    *m = (double)o->momentum * *m + g;
    *value = p - (double)o->learning_rate * (o->momentum == 0 ? g : o->nesterov ? g + (double)o->momentum * *m : *m);
}

static bool decays(const struct sl_optimizer_options *options, const char *name) {
    return sl_rule_decays(options->decays, name);
}

/* Expects each step to have the gradients of a run that ends with that step. */
static void expect_steps(const struct sl_optimizer_options *options) {
    struct job job[MAX_STEPS];
    for (int steps = 0; steps < MAX_STEPS; steps++)
        job[steps] = train_for(steps, "data=2,model=2", options, steps % 2 == 0);
    for (int t = 0; t < job[0].values.count; t++) {
        const struct sl_tensor *tensor = &job[0].values.tensor[t];
        const size_t count = sl_array_elements(&tensor->array);
        double *momentum = array_of(count, sizeof *momentum);
        for (int step = 1; step < MAX_STEPS; step++) {
            const float *before = same_tensor(&job[step - 1].values, tensor);
            const float *gradient = same_tensor(&job[step].gradients, tensor);
            const float *after = same_tensor(&job[step].values, tensor);
            for (size_t i = 0; i < count; i++) {
                double want;
                step_in_double(options, decays(options, tensor->name) ? (double)options->decay : 0.0, before[i],
                               gradient[i], &momentum[i], &want);
                expect_close(tensor->name, i, after[i], want, 5e-7, 1e-8);
            }
        }
        free(momentum);
    }
    for (int steps = 0; steps < MAX_STEPS; steps++) free_job(&job[steps]);
}

static struct sl_optimizer_options nesterov(void) {
    struct sl_optimizer_options options = sl_sgd_defaults(0.125f);
    options.momentum = 0.75f;
    options.nesterov = true;
    options.decay = 0.25f;
    return options;
}

static void the_trainer_takes_sgd_steps(void **state) {
    (void)state;
    struct sl_optimizer_options options = nesterov();
    expect_steps(&options);
    options.nesterov = false;
    expect_steps(&options);
    options.momentum = 0;
    expect_steps(&options);
}

static void sharing_the_state_out_changes_no_bits(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2,model=1", "data=4,model=2"};
    struct sl_optimizer_options options = nesterov();
    for (int i = 0; i < 4; i++) {
        if (i == 2) options = sl_sgd_defaults(0.125f);
        struct job whole = train_for(MAX_STEPS, meshes[i % 2], &options, false);
        struct job shared = train_for(MAX_STEPS, meshes[i % 2], &options, true);
        expect_same_store(&whole.values, &shared.values);
        assert_memory_equal(whole.loss, shared.loss, sizeof whole.loss);
        free_job(&whole);
        free_job(&shared);
    }
}

/* ---- weight decay ---- */

static const struct sl_decay_rule no_vectors[] = {
    {"*.bias", false}, {"*norm.scale", false}, {"*", true}, {NULL, false}};

static void a_rule_leaves_biases_and_norms_out(void **state) {
    (void)state;
    struct sl_optimizer_options options = nesterov();
    options.decays = no_vectors;
    expect_steps(&options);
    struct job ruled = train_for(1, "data=2,model=2", &options, true);
    options.decays = NULL;
    struct job all = train_for(1, "data=2,model=2", &options, true);
    int same = 0, other = 0;
    for (int t = 0; t < all.values.count; t++) {
        const struct sl_tensor *tensor = &all.values.tensor[t];
        const size_t bytes = sl_array_elements(&tensor->array) * sizeof(float);
        const bool equal = !memcmp(tensor->array.data, same_tensor(&ruled.values, tensor), bytes);
        /* Biases begin with zeros, which decay does not change. */
        if (equal != (decays(&(struct sl_optimizer_options){.decays = no_vectors}, tensor->name) ||
                      strstr(tensor->name, "bias")))
            fail_msg("%s: weight decay is not as the rules say", tensor->name);
        same += equal;
        other += !equal;
    }
    assert_true(same > 0 && other > 0);
    free_job(&ruled);
    free_job(&all);
}

static void the_first_rule_that_matches_decides(void **state) {
    (void)state;
    static const struct sl_decay_rule rules[] = {{"head.*", true}, {"*.bias", false}, {NULL, false}};
    assert_true(sl_rule_decays(rules, "head.bias"));
    assert_false(sl_rule_decays(rules, "blocks.3.bias"));
    assert_true(sl_rule_decays(rules, "blocks.3.kernel"));
    assert_true(sl_rule_decays(NULL, "blocks.3.bias"));
}

static void patterns_are_apart_by_commas(void **state) {
    static const char list[] = "blocks.0.*,,*.bias";
    char pattern[SL_MAX_PATTERN];
    (void)state;
    assert_true(sl_patterns_match(list, "blocks.0.up.kernel"));
    assert_true(sl_patterns_match(list, "head.bias"));
    assert_false(sl_patterns_match(list, "blocks.10.up.kernel"));
    assert_false(sl_patterns_match(list, "head.biases"));
    assert_false(sl_patterns_match(NULL, "head.bias"));
    assert_true(sl_pattern_at(list, 1, pattern));
    assert_string_equal(pattern, "");
    assert_true(sl_pattern_at(list, 2, pattern));
    assert_string_equal(pattern, "*.bias");
    assert_false(sl_pattern_at(list, 3, pattern));
    assert_false(sl_pattern_at(NULL, 0, pattern));
    char longer[2 * SL_MAX_PATTERN];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_true(sl_pattern_at(longer, 0, pattern));
    assert_int_equal(strlen(pattern), SL_MAX_PATTERN - 1);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_gives_pytorch_numbers),          cmocka_unit_test(each_element_is_updated_once),
        cmocka_unit_test(the_trainer_takes_sgd_steps),        cmocka_unit_test(sharing_the_state_out_changes_no_bits),
        cmocka_unit_test(a_rule_leaves_biases_and_norms_out), cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(patterns_are_apart_by_commas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
