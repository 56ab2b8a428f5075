/* test_mla.c - latent attention: against a naive one in double, finite differences, itself on other meshes, and itself
 * token by token. */
#include "tests/rigs/tile_rig.h"

#include "layers/modules/gradient_check.h"

enum { COLUMNS = 32, HEADS = 8, LATENT = 16, ROPE = 4, POSITIONS = 9 };
enum { SEQUENCE = 5, SEQUENCES = 2, MICROBATCHES = 4, ROWS = SEQUENCES * SEQUENCE, ALL = ROWS * MICROBATCHES };
enum { COPIES = 16 }; /* coordinates at most */

static const struct sl_rule rules[] = {{"*_rope.kernel", "tensor*2,data"}, {"*.kernel", "tensor,data"}, {NULL, NULL}};
static const struct sl_mla with_rope = {COLUMNS, HEADS, LATENT, ROPE, POSITIONS, 0.0};
static const struct sl_mla without_rope = {COLUMNS, HEADS, LATENT, 0, POSITIONS, 0.0};

/* ---- a module on a mesh ---- */

/* A run's whole inputs and its results: each coordinate's own rows and columns in its copy. */
struct trial {
    struct sl_mla shape;
    int sequence, rows, group;
    bool forward_only, recompute;
    int prompt; /* > 0: generates from prompts of so many tokens, */
    int next;   /* then passes over so many; 0: 1 */
    enum sl_cache_form cache;
    int beyond;                  /* positions beyond the caches, passed last */
    int missing;                 /* sequences without caches */
    const struct sl_store *from; /* values */
    const float *x, *dy;         /* [ALL, COLUMNS] */
    float y[COPIES][ALL * COLUMNS], dx[COPIES][ALL * COLUMNS];
    struct sl_store gradients;
};

static struct trial trial_of(const struct sl_mla *shape) {
    return (struct trial){.shape = *shape, .sequence = SEQUENCE, .rows = ROWS, .group = 2};
}

static struct sl_module *build(const struct trial *trial, const struct sl_mesh *mesh) {
    const struct sl_channels channels = {.mesh = mesh, .axis = "tensor", .pieces = 1};
    struct sl_module *module = sl_mla("mla", &trial->shape, &channels);
    return trial->recompute ? sl_recompute(module) : module;
}

static struct sl_plan plan_for(struct sl_spmd *self, struct worker *worker, const struct trial *trial, int rows,
                               int sequence) {
    struct sl_plan plan = plan_of(self, worker);
    plan.rules = rules;
    plan.rows = rows;
    plan.sequence = sequence;
    plan.wgrad_group = trial->group;
    plan.forward_only = trial->forward_only || trial->prompt;
    if (trial->prompt) {
        plan.stash = &worker->none;
        plan.caches = &worker->caches;
        sl_caches_begin(&worker->caches);
    }
    return plan;
}

/* Plans the module and, if there is a prompt, the module that continues it, with the same parameters and caches. */
static int plan_modules(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    const int rows = trial->prompt ? SEQUENCES * trial->prompt : trial->rows;
    struct sl_plan plan = plan_for(self, worker, trial, rows, trial->prompt ? trial->prompt : trial->sequence);
    const int next = trial->next ? trial->next : 1;
    worker->caches.form = trial->cache;
    worker->caches.sequences = SEQUENCES * worker->microbatches - trial->missing;
    worker->caches.positions = SEQUENCE + 2;
    SL_TRY(plan_one(worker, worker->module, &plan));
    SL_TRY(take_parameters(self, worker));
    if (!trial->prompt) return SL_OK;
    plan = plan_for(self, worker, trial, SEQUENCES * next, next);
    SL_TRY(plan_one(worker, worker->decoder, &plan));
    return sl_caches_take(&worker->caches, &self->error);
}

static int open_worker(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    SL_TRY(open_tile(self, worker, ALL, COLUMNS, ROWS));
    worker->module = build(trial, self->mesh);
    worker->decoder = build(trial, self->mesh);
    if (!worker->module || !worker->decoder) return sl_fail(self, SL_FAILED, "no memory");
    SL_TRY(plan_modules(self, worker, trial));
    const struct sl_plan plan = {.rows = trial->rows, .sequence = trial->sequence, .wgrad_group = trial->group};
    take_arrays(self, worker, &plan, trial->x, trial->dy);
    if (trial->prompt) worker->context.stash = NULL;
    return SL_OK;
}

/* ---- generating ---- */

/* X and Y have room for a microbatch. */
static int generate_tokens(struct worker *worker, const struct trial *trial, float *x, float *y) {
    struct sl_context *context = &worker->context;
    for (int from = 0; from < SEQUENCE + trial->beyond;) {
        const int end = !from ? trial->prompt : from + (trial->next ? trial->next : 1);
        const struct sl_module *module = from ? worker->decoder : worker->module;
        context->phase = from && !trial->next ? SL_DECODE : SL_PREFILL;
        context->sequence = end - from;
        context->rows = SEQUENCES * context->sequence;
        context->position = from;
        context->begins = from == 0;
        for (int m = 0; m < worker->microbatches; m++) {
            begin_microbatch(worker, m);
            if (end <= SEQUENCE) move_tokens(worker, SEQUENCES, SEQUENCE, m, from, end, false, worker->x, x);
            SL_TRY(module->type->forward(module, context, sl_given_f32(x), SL_INTO(y)));
            if (end <= SEQUENCE) move_tokens(worker, SEQUENCES, SEQUENCE, m, from, end, true, worker->y, y);
        }
        from = end;
    }
    return SL_OK;
}

static int generate(struct worker *worker, const struct trial *trial) {
    struct sl_caches *caches = &worker->caches;
    worker->context.caches = caches;
    for (int i = 0; i < caches->count; i++) {
        const size_t rows = caches->cache[i].once ? 1 : (size_t)caches->sequences * (size_t)caches->positions;
        poison(caches->cache[i].data, rows * caches->cache[i].columns);
    }
    const size_t bytes = ROWS * worker->tile.columns * sizeof(float);
    float *x = sl_device.take(bytes), *y = sl_device.take(bytes);
    const int status = x && y ? generate_tokens(worker, trial, x, y) : SL_FAILED;
    sl_device.give(x);
    sl_device.give(y);
    return status;
}

/* ---- a run ---- */

static int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial) {
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_import(self, &world, &worker->parameters, SL_VALUES, trial->from));
    SL_TRY(trial->prompt ? generate(worker, trial) : train(worker, trial->forward_only, false));
    SL_TRY(collect(self, worker, worker->y, ALL * COLUMNS, trial->y[0]));
    if (trial->prompt || trial->forward_only) return SL_OK;
    SL_TRY(collect(self, worker, worker->dx, ALL * COLUMNS, trial->dx[0]));
    SL_TRY(reduce(self, worker));
    return sl_export(self, &world, &worker->parameters, SL_GRADIENTS, 1.0f, &trial->gradients);
}

/* Runs TRIAL; copy 0 of y and dx is then the whole. */
static void run_trial(const char *on, struct trial *trial, bool checked) {
    struct sl_mesh mesh;
    run_tiles(on, trial, checked, &mesh);
    join_tiles(&mesh, ALL, COLUMNS, trial->y[0]);
    join_tiles(&mesh, ALL, COLUMNS, trial->dx[0]);
}

/* ---- values ---- */

static void add_dense(struct sl_store *store, struct numbers *numbers, const char *layer, size_t in, size_t out) {
    for (int bias = 0; bias < 2; bias++) {
        char name[64];
        const size_t shape[] = {in, out};
        const float range = bias ? 0.3f : sqrtf(3.0f / (float)in);
        snprintf(name, sizeof name, "mla.%s.%s", layer, bias ? "bias" : "kernel");
        add_random(store, numbers, name, range, bias ? 1 : 2, bias ? shape + 1 : shape);
    }
}

static struct sl_store random_values(struct numbers *numbers, const struct sl_mla *shape) {
    const size_t columns = (size_t)shape->dimension, latent = (size_t)shape->latent, rope = (size_t)shape->rope;
    struct sl_store store = {0};
    add_dense(&store, numbers, "down", columns, 2 * latent);
    add_dense(&store, numbers, "kv_up", latent, 2 * columns);
    add_dense(&store, numbers, "q_up", latent, columns);
    add_dense(&store, numbers, "out", columns, columns);
    if (!rope) return store;
    add_dense(&store, numbers, "k_rope", 2 * latent, rope);
    add_dense(&store, numbers, "q_rope", 2 * latent, rope * (size_t)shape->heads);
    return store;
}

static void open_values(struct values *values, uint64_t seed, struct trial *trial) {
    struct numbers numbers = {seed};
    values->store = random_values(&numbers, &trial->shape);
    trial->from = &values->store;
    trial->x = values->x = random_floats(&numbers, ALL * COLUMNS, -2, 2);
    trial->dy = values->dy = random_floats(&numbers, ALL * COLUMNS, -1, 1);
}

/* ---- the naive module, in double ---- */

static const float *value_of(const struct sl_store *store, const char *layer, const char *kind) {
    char name[64];
    snprintf(name, sizeof name, "mla.%s.%s", layer, kind);
    const struct sl_tensor *tensor = sl_store_find(store, name);
    assert_non_null(tensor);
    return tensor->array.data;
}

/* y [rows, out] of columns [first, first + in) of x [rows, stride] */
static double *naive_dense(const struct sl_store *store, const char *layer, int rows, const double *x, int stride,
                           int first, int in, int out) {
    const float *kernel = value_of(store, layer, "kernel"), *bias = value_of(store, layer, "bias");
    double *y = array_of((size_t)(rows * out), sizeof *y);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < out; c++) {
            y[r * out + c] = bias[c];
            for (int i = 0; i < in; i++) y[r * out + c] += x[r * stride + first + i] * kernel[i * out + c];
        }
    }
    return y;
}

static void naive_rope(int rows, int columns, double *x) {
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < columns / 2; i++) {
            const double angle = (r % SEQUENCE + 1) * pow(10000, -2.0 * i / columns);
            double *pair = x + r * columns + 2 * i;
            const double first = pair[0] * cos(angle) - pair[1] * sin(angle);
            pair[1] = pair[1] * cos(angle) + pair[0] * sin(angle);
            pair[0] = first;
        }
    }
}

struct naive {
    double *kv, *q, *k_rope, *q_rope;
};

static double naive_score(const struct sl_mla *shape, const struct naive *n, int query, int key, int head) {
    const int columns = shape->dimension, width = columns / shape->heads, rope = shape->rope;
    double score = 0;
    for (int c = head * width; c < (head + 1) * width; c++)
        score += n->q[query * columns + c] * n->kv[key * 2 * columns + c];
    for (int c = 0; c < rope; c++)
        score += n->q_rope[(query * shape->heads + head) * rope + c] * n->k_rope[key * rope + c];
    return score / sqrt(width + rope);
}

static void naive_attention(const struct sl_mla *shape, const struct naive *n, double *o) {
    const int columns = shape->dimension, width = columns / shape->heads;
    for (int query = 0; query < ALL; query++) {
        const int first = query / SEQUENCE * SEQUENCE;
        for (int head = 0; head < shape->heads; head++) {
            double weight[SEQUENCE], sum = 0;
            for (int key = first; key <= query; key++)
                sum += weight[key - first] = exp(naive_score(shape, n, query, key, head));
            for (int c = head * width; c < (head + 1) * width; c++) {
                o[query * columns + c] = 0;
                for (int key = first; key <= query; key++)
                    o[query * columns + c] += weight[key - first] / sum * n->kv[(2 * key + 1) * columns + c];
            }
        }
    }
}

static void naive_mla(const struct sl_mla *shape, const struct sl_store *store, const float *x, float *y) {
    const int columns = shape->dimension, latent = shape->latent, rope = shape->rope;
    double *wide = array_of(ALL * COLUMNS, sizeof *wide), *o = array_of(ALL * COLUMNS, sizeof *o);
    for (int i = 0; i < ALL * COLUMNS; i++) wide[i] = x[i];
    double *h = naive_dense(store, "down", ALL, wide, columns, 0, columns, 2 * latent);
    struct naive n = {naive_dense(store, "kv_up", ALL, h, 2 * latent, 0, latent, 2 * columns),
                      naive_dense(store, "q_up", ALL, h, 2 * latent, latent, latent, columns), NULL, NULL};
    if (rope) {
        n.k_rope = naive_dense(store, "k_rope", ALL, h, 2 * latent, 0, 2 * latent, rope);
        n.q_rope = naive_dense(store, "q_rope", ALL, h, 2 * latent, 0, 2 * latent, rope * shape->heads);
        naive_rope(ALL, rope, n.k_rope);
        naive_rope(ALL, rope * shape->heads, n.q_rope);
    }
    naive_attention(shape, &n, o);
    double *out = naive_dense(store, "out", ALL, o, columns, 0, columns, columns);
    for (int i = 0; i < ALL * COLUMNS; i++) y[i] = (float)out[i];
    double *all[] = {wide, o, h, n.kv, n.q, n.k_rope, n.q_rope, out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- tests ---- */

static void forward_is_what_naive_attention_gives(void **state) {
    (void)state;
    static float want[ALL * COLUMNS];
    const struct sl_mla *const shapes[] = {&with_rope, &without_rope};
    const char *const meshes[] = {"data=1", "tensor=4"};
    for (int i = 0; i < 4; i++) {
        static struct trial trial;
        const struct sl_mla *shape = shapes[i / 2];
        trial = trial_of(shape);
        trial.forward_only = true;
        struct values values;
        open_values(&values, 1 + (uint64_t)i, &trial);
        run_trial(meshes[i % 2], &trial, true);
        naive_mla(shape, &values.store, values.x, want);
        if (has_results()) expect_near(meshes[i % 2], "y", ALL * COLUMNS, trial.y[0], want);
        close_values(&values);
    }
}

static void compare_meshes(const char *on, const struct trial *given, const struct trial *single) {
    static struct trial trial;
    for (int checked = test_runs_few; checked < 2; checked++) {
        trial = *given;
        run_trial(on, &trial, checked);
        if (has_results()) {
            expect_near(on, "y", ALL * COLUMNS, trial.y[0], single->y[0]);
            expect_near(on, "dx", ALL * COLUMNS, trial.dx[0], single->dx[0]);
            assert_int_equal(trial.gradients.count, single->gradients.count);
        }
        for (int i = 0; i < single->gradients.count && has_results(); i++) {
            const struct sl_tensor *want = &single->gradients.tensor[i];
            const struct sl_tensor *got = sl_store_find(&trial.gradients, want->name);
            assert_non_null(got);
            expect_near(on, want->name, sl_array_elements(&want->array), got->array.data, want->array.data);
        }
        sl_store_free(&trial.gradients);
    }
}

/* Against one coordinate, group 4, nothing recomputed. */
static void meshes_equal_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"tensor=2", "tensor=4", "tensor=8", "data=2,tensor=2", "tensor=8,data=2"};
    for (int kind = 0; kind < 3; kind++) {
        static struct trial single, trial;
        struct sl_mla shape = kind == 1 ? without_rope : with_rope;
        if (kind == 2) shape.dropout = 0.4;
        single = trial_of(&shape);
        struct values values;
        open_values(&values, 11 + (uint64_t)kind, &single);
        trial = single;
        single.group = MICROBATCHES;
        run_trial("data=1", &single, true);
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
            trial.group = 1 + (int)i % 2;
            trial.recompute = i % 2;
            compare_meshes(meshes[i], &trial, &single);
        }
        sl_store_free(&single.gradients);
        close_values(&values);
    }
}

/* Expects passes over parts of the sequences, with caches of FORM, to give the results of one pass over all. */
static void check_parts(const char *on, const struct sl_mla *shape, enum sl_cache_form form, int prompt, int next,
                        uint64_t seed) {
    static struct trial whole, parts;
    struct values values;
    whole = trial_of(shape);
    open_values(&values, seed, &whole);
    whole.forward_only = true;
    parts = whole;
    parts.prompt = prompt;
    parts.next = next;
    parts.cache = form;
    run_trial(on, &whole, true);
    run_trial(on, &parts, true);
    if (has_results()) expect_near(on, "y", ALL * COLUMNS, parts.y[0], whole.y[0]);
    close_values(&values);
}

static void parts_of_a_sequence_give_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1", "tensor=2", "data=2,tensor=4", "tensor=8"};
    static const int part[][2] = {{1, 0}, {3, 0}, {5, 0}, {1, 2}, {3, 2}}; /* prompt, next */
    for (int i = 0; i < 20; i++) {
        const struct sl_mla *shape = i % 7 == 4 ? &without_rope : &with_rope;
        for (int form = test_runs_few ? i / 4 % 2 : 0; form < (test_runs_few ? i / 4 % 2 + 1 : 2); form++)
            check_parts(meshes[i % 4], shape, (enum sl_cache_form)form, part[i % 5][0], part[i % 5][1],
                        21 + (uint64_t)i);
    }
}

static void gradients_are_those_of_forward(void **state) {
    (void)state;
    static const struct sl_gradient_check checks[] = {
        {.rows = 8, .sequence = 4, .microbatches = 4, .wgrad_group = 1, .seed = 1},
        {.rows = 6, .sequence = 2, .microbatches = 2, .wgrad_group = 2, .seed = 2},
        {.rows = 5, .sequence = 5, .microbatches = 2, .wgrad_group = 1, .seed = 3},
        {.rows = 3, .sequence = 1, .microbatches = 2, .wgrad_group = 2, .seed = 4},
    };
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};
    for (int i = 0; i < 8; i++) {
        const struct sl_mla shape = {12, 2, 6, i % 2 ? 0 : 4, 5, i / 2 == 1 ? 0.3 : 0.0};
        struct sl_module *module = sl_mla("mla", &shape, &channels);
        if (i < 2) module = sl_recompute(module);
        assert_non_null(module);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        if (sl_gradient_check(module, &checks[i / 2], sl_gemm_find(NULL, NULL), &difference, worst, &error))
            fail_msg("%d: %s", i, error.message);
        if (!(difference < 1e-3)) fail_msg("%d: %s differs by %g", i, worst, difference);
        sl_module_free(module);
    }
}

/* ---- refusals ---- */

static void refuses(const char *on, struct trial trial, const char *text, const char *other) {
    static struct trial run;
    struct values values;
    open_values(&values, 31, &trial);
    run = trial;
    EXPECT_VERDICT(((struct test_run){.mesh = on, .checked = true, .arg = &run}), trial_program, SL_BAD_INPUT, text,
                   other);
    close_values(&values);
}

static void bad_shapes_are_refused(void **state) {
    (void)state;
    struct trial trial = trial_of(&with_rope);
    trial.shape.heads = 6;
    refuses("data=1", trial, "mla.heads: 32 columns, 6 heads", "columns divide by heads");
    trial.shape.heads = 2;
    refuses("tensor=4", trial, "mla.heads: 2 heads", "by the 4 coordinates along \"tensor\"");
    trial = trial_of(&with_rope);
    trial.shape.rope = 3;
    refuses("data=1", trial, "mla.rope: 3 columns", "even");
    trial = trial_of(&with_rope);
    trial.shape.latent = 6;
    refuses("tensor=4", trial, "mla.down.", "do not divide by the 4 coordinates along \"tensor\"");
}

static void bad_sequences_are_refused(void **state) {
    (void)state;
    struct trial trial = trial_of(&with_rope);
    trial.sequence = 0;
    refuses("data=1", trial, "mla.sequence: 10 rows", "sequences of 0");
    trial.sequence = 4;
    refuses("data=1", trial, "mla.sequence: 10 rows", "sequences of 4");
    trial.sequence = 10;
    refuses("tensor=2", trial, "mla.positions: sequences of 10", "only 9 positions");
    trial = trial_of(&with_rope);
    trial.prompt = 2;
    trial.beyond = 3;
    refuses("tensor=2", trial, "mla: tokens at positions 7 to 7", "only 7 positions");
    trial.missing = 1;
    refuses("tensor=2", trial, "mla: microbatch 3 of 2 sequences", "caches of only 7");
    trial.missing = 0;
    trial.shape.positions = 6;
    refuses("data=1", trial, "mla: tokens at positions 6 to 6", "only 6 positions");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_what_naive_attention_gives),
        cmocka_unit_test(meshes_equal_one_coordinate),
        cmocka_unit_test(parts_of_a_sequence_give_the_same),
        cmocka_unit_test(gradients_are_those_of_forward),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(bad_sequences_are_refused),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
