/* test_gqa.c - modules of published models: attention in groups, gated MLPs, layer norms. Against finite differences
 * and plain loops, themselves on other meshes, and themselves token by token. */
#include "tests/rigs/tile_rig.h"

#include "layers/modules/gradient_check.h"

enum { COLUMNS = 24, HEADS = 12, WIDTH = 4, POSITIONS = 9, INSIDE = 48 };
enum { SEQUENCE = 6, SEQUENCES = 2, MICROBATCHES = 4, ROWS = SEQUENCES * SEQUENCE, ALL = ROWS * MICROBATCHES };
enum { COPIES = 12 }; /* coordinates at most */

static const struct sl_rule rules[] = {
    {"*.gamma", "tensor"}, {"*.beta", "tensor"}, {"*.kernel", "tensor,data"}, {"positions", "-,tensor"}, {NULL, NULL}};

/* ---- the modules ---- */

typedef struct sl_module *make_module(const struct sl_channels *channels);

static struct sl_gqa shape_of(int key_heads) {
    return (struct sl_gqa){.dimension = COLUMNS,
                           .heads = HEADS,
                           .key_heads = key_heads,
                           .width = WIDTH,
                           .epsilon = 1e-5,
                           .rotates = true,
                           .rotary = {.base = 100.0},
                           .positions = POSITIONS};
}

/* Llama's */
static struct sl_module *make_grouped(const struct sl_channels *channels) {
    const struct sl_gqa shape = shape_of(3);
    return sl_gqa("gqa", &shape, channels);
}

/* Mistral's */
static struct sl_module *make_windowed(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(3);
    shape.window = 3;
    return sl_gqa("gqa", &shape, channels);
}

/* GPT-2's biases, except those of keys: without rotation, biases of keys change no result, and their gradients are
 * zero. */
static struct sl_module *make_plain(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(HEADS);
    shape.out_bias = true;
    shape.rotates = false;
    return sl_gqa("gqa", &shape, channels);
}

/* Qwen 2's */
static struct sl_module *make_biased(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(6);
    shape.biases = true;
    return sl_gqa("gqa", &shape, channels);
}

static const float divisors[WIDTH / 2] = {1.0f, 1.5f};

/* Qwen 3's, with adjacent pairs and dropout, under recomputation */
static struct sl_module *make_normed(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(4);
    shape.head_norms = shape.biases = true;
    shape.rotary = (struct sl_rotary){true, 100.0, 4.0, 1.0, 2.0, 30.0, divisors, 1.3};
    shape.dropout = 0.4;
    return sl_recompute(sl_gqa("gqa", &shape, channels));
}

static struct sl_module *make_gated(const struct sl_channels *channels) {
    return sl_gated_mlp("mlp", COLUMNS, INSIDE, false, channels);
}

static struct sl_module *make_gated_biased(const struct sl_channels *channels) {
    return sl_gated_mlp("mlp", COLUMNS, INSIDE, true, channels);
}

static struct sl_module *make_layer_norm(const struct sl_channels *channels) {
    const struct sl_norm_kind kind = {.centers = true, .shifts = true, .epsilon = 1e-5};
    return sl_sharded_norm("norm", COLUMNS, &kind, channels);
}

static struct sl_module *make_rms_norm(const struct sl_channels *channels) {
    const struct sl_norm_kind kind = {.epsilon = 1e-5};
    return sl_sharded_norm("norm", COLUMNS, &kind, channels);
}

static struct sl_module *make_erf_gelu(const struct sl_channels *channels) {
    struct sl_module *gelu = sl_erf_gelu(COLUMNS / sl_mesh_axis_size(channels->mesh, channels->axis));
    return sl_sequential("", 1, &gelu);
}

static struct sl_module *make_positions(const struct sl_channels *channels) {
    return sl_learned_positions(POSITIONS, COLUMNS, channels);
}

static make_module *const all_modules[] = {make_grouped,  make_plain,        make_biased,     make_normed,
                                           make_gated,    make_gated_biased, make_layer_norm, make_rms_norm,
                                           make_erf_gelu, make_positions,    make_windowed};
enum { MODULES = sizeof all_modules / sizeof *all_modules };

/* ---- a module on a mesh ---- */

/* A run's whole inputs and its results: each coordinate's own rows and columns in its copy. */
struct trial {
    make_module *make;
    int group;
    int prompt, next;            /* > 0: passes over so many tokens, then over so many at a time */
    const struct sl_store *from; /* values; NULL: values from a seed, which are exported */
    const float *x, *dy;         /* [ALL, COLUMNS] */
    float y[COPIES][ALL * COLUMNS], dx[COPIES][ALL * COLUMNS];
    struct sl_store values, gradients;
};

static struct sl_plan plan_for(struct sl_spmd *self, struct worker *worker, const struct trial *trial, int sequence) {
    struct sl_plan plan = plan_of(self, worker);
    plan.rules = rules;
    plan.rows = SEQUENCES * sequence;
    plan.sequence = sequence;
    plan.wgrad_group = trial->group;
    plan.forward_only = trial->prompt;
    if (!trial->prompt) return plan;
    plan.stash = &worker->none;
    plan.caches = &worker->caches;
    sl_caches_begin(&worker->caches);
    return plan;
}

static int plan_modules(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    struct sl_plan plan = plan_for(self, worker, trial, trial->prompt ? trial->prompt : SEQUENCE);
    worker->caches.sequences = SEQUENCES * worker->microbatches;
    worker->caches.positions = SEQUENCE + 2;
    SL_TRY(plan_one(worker, worker->module, &plan));
    SL_TRY(take_parameters(self, worker));
    if (!trial->prompt) return SL_OK;
    plan = plan_for(self, worker, trial, trial->next);
    SL_TRY(plan_one(worker, worker->decoder, &plan));
    return sl_caches_take(&worker->caches, &self->error);
}

static int open_worker(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor", .pieces = 1};
    const struct sl_plan plan = {.rows = ROWS, .sequence = SEQUENCE, .wgrad_group = trial->group};
    SL_TRY(open_tile(self, worker, ALL, COLUMNS, ROWS));
    worker->module = trial->make(&channels);
    worker->decoder = trial->make(&channels);
    if (!worker->module || !worker->decoder) return sl_fail(self, SL_FAILED, "no memory");
    SL_TRY(plan_modules(self, worker, trial));
    take_arrays(self, worker, &plan, trial->x, trial->dy);
    if (trial->prompt) worker->context.stash = NULL;
    return SL_OK;
}

static int generate(struct worker *worker, const struct trial *trial, float *x, float *y) {
    struct sl_context *context = &worker->context;
    context->caches = &worker->caches;
    for (int from = 0; from < SEQUENCE;) {
        const int end = from ? from + trial->next : trial->prompt;
        const struct sl_module *module = from ? worker->decoder : worker->module;
        context->phase = end - from == 1 ? SL_DECODE : SL_PREFILL;
        context->sequence = end - from;
        context->rows = SEQUENCES * context->sequence;
        context->position = from;
        context->begins = from == 0;
        for (int m = 0; m < worker->microbatches; m++) {
            begin_microbatch(worker, m);
            move_tokens(worker, SEQUENCES, SEQUENCE, m, from, end, false, worker->x, x);
            SL_TRY(module->type->forward(module, context, sl_given_f32(x), SL_INTO(y)));
            move_tokens(worker, SEQUENCES, SEQUENCE, m, from, end, true, worker->y, y);
        }
        from = end;
    }
    return SL_OK;
}

static int generate_all(struct worker *worker, const struct trial *trial) {
    const size_t bytes = ROWS * worker->tile.columns * sizeof(float);
    float *x = sl_device.take(bytes), *y = sl_device.take(bytes);
    const int status = x && y ? generate(worker, trial, x, y) : SL_FAILED;
    sl_device.give(x);
    sl_device.give(y);
    return status;
}

static int give_values(struct sl_spmd *self, struct worker *worker, struct trial *trial, const struct sl_group *world) {
    struct sl_group data;
    if (trial->from) return sl_import(self, world, &worker->parameters, SL_VALUES, trial->from);
    SL_TRY(sl_group_axes(self, sl_mesh_find_axis(self->mesh, "data") < 0 ? "" : "data", &data));
    sl_parameters_seed(&worker->parameters, 5);
    SL_TRY(sl_parameters_initialize(&worker->parameters, self, &data));
    return sl_export(self, world, &worker->parameters, SL_VALUES, 1.0f, &trial->values);
}

static int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial) {
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(give_values(self, worker, trial, &world));
    SL_TRY(trial->prompt ? generate_all(worker, trial) : train(worker, false, false));
    SL_TRY(collect(self, worker, worker->y, ALL * COLUMNS, trial->y[0]));
    if (trial->prompt) return SL_OK;
    SL_TRY(collect(self, worker, worker->dx, ALL * COLUMNS, trial->dx[0]));
    SL_TRY(reduce(self, worker));
    return sl_export(self, &world, &worker->parameters, SL_GRADIENTS, 1.0f, &trial->gradients);
}

/* Runs TRIAL; copy 0 of y and dx is then the whole. */
static void run_trial(const char *on, struct trial *trial) {
    struct sl_mesh mesh;
    run_tiles(on, trial, true, &mesh);
    join_tiles(&mesh, ALL, COLUMNS, trial->y[0]);
    join_tiles(&mesh, ALL, COLUMNS, trial->dx[0]);
}

/* Opens the values of a run from the seed, changed to avoid 0 and 1. */
static void open_values(struct values *values, struct trial *trial) {
    struct numbers numbers = {7};
    *values = (struct values){.x = random_floats(&numbers, ALL * COLUMNS, -2, 2),
                              .dy = random_floats(&numbers, ALL * COLUMNS, -1, 1)};
    trial->x = values->x;
    trial->dy = values->dy;
    trial->from = NULL;
    run_trial("data=1", trial);
    sl_store_free(&trial->gradients);
    values->store = trial->values;
    for (int i = 0; i < values->store.count; i++) {
        const struct sl_array *array = &values->store.tensor[i].array;
        for (size_t e = 0; e < sl_array_elements(array); e++)
            ((float *)array->data)[e] += next_float(&numbers, -0.3f, 0.3f);
    }
    trial->from = &values->store;
}

/* ---- tests ---- */

static void compare_gradients(const char *on, const struct sl_store *given, const struct sl_store *wanted) {
    assert_int_equal(given->count, wanted->count);
    for (int i = 0; i < wanted->count; i++) {
        const struct sl_tensor *want = &wanted->tensor[i], *got = sl_store_find(given, want->name);
        assert_non_null(got);
        expect_near(on, want->name, sl_array_elements(&want->array), got->array.data, want->array.data);
    }
}

/* Three heads of keys over 2 and 4 coordinates, which have all of them, over 3, and four over 6 and 12. */
static void meshes_equal_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"tensor=2", "tensor=3", "data=2,tensor=4", "tensor=6,data=2", "tensor=12"};
    for (int kind = 0; kind < MODULES; kind++) {
        static struct trial single, trial;
        struct values values;
        single = (struct trial){.make = all_modules[kind], .group = MICROBATCHES};
        open_values(&values, &single);
        trial = single;
        run_trial("data=1", &single);
        for (int i = kind % 2; i < 5; i += test_runs_few ? 2 : 1) {
            trial.group = 1 + i % 2;
            run_trial(meshes[i], &trial);
            if (has_results()) {
                expect_near(meshes[i], "y", ALL * COLUMNS, trial.y[0], single.y[0]);
                expect_near(meshes[i], "dx", ALL * COLUMNS, trial.dx[0], single.dx[0]);
                compare_gradients(meshes[i], &trial.gradients, &single.gradients);
            }
            sl_store_free(&trial.gradients);
        }
        sl_store_free(&single.gradients);
        close_values(&values);
    }
}

/* Passes over parts of the sequences give the results of one pass over all. */
static void parts_of_a_sequence_give_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1", "tensor=2", "data=2,tensor=4", "tensor=12"};
    static const int part[][2] = {{1, 1}, {4, 1}, {4, 2}};
    static make_module *const made[] = {make_grouped, make_plain, make_positions, make_windowed};
    for (int i = 0; i < 16; i++) {
        static struct trial whole, parts;
        struct values values;
        whole = (struct trial){.make = made[i % 4], .group = 1};
        open_values(&values, &whole);
        parts = whole;
        parts.prompt = part[i % 3][0];
        parts.next = part[i % 3][1];
        run_trial(meshes[i / 4], &whole);
        run_trial(meshes[i / 4], &parts);
        if (has_results()) expect_near(meshes[i / 4], "y", ALL * COLUMNS, parts.y[0], whole.y[0]);
        sl_store_free(&whole.gradients);
        close_values(&values);
    }
}

static void gradients_are_those_of_forward(void **state) {
    (void)state;
    static const struct sl_gradient_check checks[] = {
        {.rows = 8, .sequence = 4, .microbatches = 4, .wgrad_group = 1, .seed = 1},
        {.rows = 6, .sequence = 2, .microbatches = 2, .wgrad_group = 2, .seed = 2},
    };
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};
    for (int i = 0; i < 2 * MODULES; i++) {
        struct sl_module *module = all_modules[i / 2](&channels);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        assert_non_null(module);
        if (sl_gradient_check(module, &checks[i % 2], sl_gemm_find(NULL, NULL), &difference, worst, &error))
            fail_msg("%d: %s", i, error.message);
        if (!(difference < 1e-3)) fail_msg("%d: %s differs by %g", i, worst, difference);
        sl_module_free(module);
    }
}

/* Saved bf16 activations change gradients by their rounding. */
static void stored_as_bf16_gradients_are_near(void **state) {
    (void)state;
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};
    for (int i = 0; i < 2 * MODULES; i++) {
        const struct sl_gradient_check check = {.rows = 6,
                                                .sequence = 3,
                                                .microbatches = 2,
                                                .wgrad_group = 1,
                                                .seed = 3,
                                                .storage = SL_BF16,
                                                .precision = i % 2 ? SL_BF16 : SL_F32};
        struct sl_module *module = all_modules[i / 2](&channels);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        if (sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
            fail_msg("%d: %s", i, error.message);
        if (!(difference < 0.03)) fail_msg("%d: %s differs by %g", i, worst, difference);
        sl_module_free(module);
    }
}

/* ---- definition of a layer norm ---- */

static void a_layer_norm_is_one(void **state) {
    (void)state;
    static struct trial trial;
    struct values values;
    trial = (struct trial){.make = make_layer_norm, .group = 1};
    open_values(&values, &trial);
    run_trial("data=1", &trial);
    const float *gamma = sl_store_find(&values.store, "norm.gamma")->array.data;
    const float *beta = sl_store_find(&values.store, "norm.beta")->array.data;
    for (int r = 0; r < ALL && has_results(); r++) {
        const float *x = values.x + (size_t)r * COLUMNS;
        double mean = 0, variance = 0;
        for (int c = 0; c < COLUMNS; c++) mean += x[c] / (double)COLUMNS;
        for (int c = 0; c < COLUMNS; c++) variance += (x[c] - mean) * (x[c] - mean) / COLUMNS;
        for (int c = 0; c < COLUMNS; c++)
            expect_close("y", (size_t)c, trial.y[0][r * COLUMNS + c],
                         (x[c] - mean) / sqrt(variance + 1e-5) * gamma[c] + beta[c], 1e-5, 1e-5);
    }
    sl_store_free(&trial.gradients);
    close_values(&values);
}

/* ---- refusals ---- */

static struct sl_module *make_uneven(const struct sl_channels *channels) {
    const struct sl_gqa shape = shape_of(5);
    return sl_gqa("gqa", &shape, channels);
}

static struct sl_module *make_odd(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(3);
    shape.width = 3;
    return sl_gqa("gqa", &shape, channels);
}

static struct sl_module *make_short(const struct sl_channels *channels) {
    struct sl_gqa shape = shape_of(3);
    shape.positions = 5;
    return sl_gqa("gqa", &shape, channels);
}

static void refuses(const char *on, make_module *make, const char *text, const char *other) {
    static struct trial trial;
    struct numbers numbers = {9};
    struct values values = {.x = random_floats(&numbers, ALL * COLUMNS, -2, 2),
                            .dy = random_floats(&numbers, ALL * COLUMNS, -1, 1)};
    trial = (struct trial){.make = make, .group = 1, .x = values.x, .dy = values.dy};
    EXPECT_VERDICT(((struct test_run){.mesh = on, .checked = true, .arg = &trial}), trial_program, SL_BAD_INPUT, text,
                   other);
    close_values(&values);
}

static void bad_shapes_are_refused(void **state) {
    (void)state;
    refuses("data=1", make_uneven, "gqa.heads: 12 heads of queries, 5 of keys and values", "equally many");
    refuses("tensor=8", make_grouped, "gqa.heads: 12 heads do not divide", "8 coordinates along \"tensor\"");
    refuses("data=1", make_odd, "gqa.width: heads of 3 columns", "even");
    refuses("tensor=2", make_short, "gqa.positions: sequences of 6", "only 5 positions");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_equal_one_coordinate),
        cmocka_unit_test(parts_of_a_sequence_give_the_same),
        cmocka_unit_test(gradients_are_those_of_forward),
        cmocka_unit_test(stored_as_bf16_gradients_are_near),
        cmocka_unit_test(a_layer_norm_is_one),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
