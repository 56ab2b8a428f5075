/* test_experts.c - a mixture of experts: its routing, against a naive one in double and its finite differences, and
 * itself on other meshes. */
#include "tests/rigs/tile_rig.h"

enum { COLUMNS = 16, INSIDE = 24, EXPERTS = 8 };
enum { SEQUENCE = 6, SEQUENCES = 2, MICROBATCHES = 4, ROWS = SEQUENCES * SEQUENCE, ALL = ROWS * MICROBATCHES };
enum { COPIES = 8 }; /* coordinates at most */

static const struct sl_rule rules[] = {{"*.router.kernel", "tensor"},
                                       {"*.experts.*.kernel", "data,tensor"},
                                       {"*.experts.*.bias", "data"},
                                       {"*.kernel", "tensor,data"},
                                       {NULL, NULL}};
static const struct sl_rule no_rules[] = {{NULL, NULL}};
static const float weight = 0.02f; /* of a row's loss */

static struct sl_experts shape_of(int choices, int shared, double capacity) {
    return (struct sl_experts){.dimension = COLUMNS,
                               .inside = INSIDE,
                               .experts = EXPERTS,
                               .choices = choices,
                               .shared = shared,
                               .capacity = capacity,
                               .balance = 0.7,
                               .axes = "data",
                               .axis = "data"};
}

/* ---- the module on a mesh ---- */

/* A run's whole inputs and its results: each coordinate's own rows and columns in its copy. */
struct trial {
    struct sl_experts shape;
    int group, sequence, level; /* of kernels */
    enum sl_phase phase;
    enum sl_dtype precision;
    bool forward_only, recompute, without_dx;
    const struct sl_rule *rules;
    const struct sl_store *from; /* values */
    const float *x, *dy;         /* [ALL, COLUMNS] */
    float y[COPIES][ALL * COLUMNS], dx[COPIES][ALL * COLUMNS];
    double auxiliary[COPIES];
    struct sl_store gradients;
};

static struct trial trial_of(struct sl_experts shape) {
    return (struct trial){.shape = shape, .group = 2, .sequence = SEQUENCE, .rules = rules};
}

static bool generates(const struct trial *trial) { return trial->phase == SL_PREFILL || trial->phase == SL_DECODE; }

static int open_worker(struct sl_spmd *self, struct worker *worker, const struct trial *trial) {
    const struct sl_channels channels = {.mesh = self->mesh, .axis = "tensor", .pieces = 1};
    SL_TRY(open_tile(self, worker, ALL, COLUMNS, ROWS));
    worker->module = sl_experts("moe", &trial->shape, &channels);
    if (trial->recompute) worker->module = sl_recompute(worker->module);
    if (!worker->module) return sl_fail(self, SL_FAILED, "no memory");
    struct sl_plan plan = plan_of(self, worker);
    plan.rules = trial->rules;
    plan.precision = trial->precision;
    plan.sequence = trial->sequence;
    plan.wgrad_group = trial->group;
    plan.caches = generates(trial) ? &worker->caches : NULL;
    plan.forward_only = trial->forward_only;
    SL_TRY(plan_one(worker, worker->module, &plan));
    SL_TRY(take_parameters(self, worker));
    take_arrays(self, worker, &plan, trial->x, trial->dy);
    worker->context.kernels = sl_kernels_available(trial->level);
    worker->context.phase = trial->phase;
    worker->context.weight = weight;
    return SL_OK;
}

static int run_worker(struct sl_spmd *self, struct worker *worker, struct trial *trial) {
    const size_t bytes = worker->tile.rows * worker->tile.columns * sizeof(float);
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_import(self, &world, &worker->parameters, SL_VALUES, trial->from));
    for (int r = 0; r < worker->parameters.ranges; r++)
        sl_parameters_round(&worker->parameters, worker->context.kernels, r);
    SL_TRY(train(worker, trial->forward_only, trial->without_dx));
    sl_device.copy(trial->y[self->coordinate], worker->y, bytes);
    sl_sums_read(worker->context.sums, &worker->metrics);
    trial->auxiliary[self->coordinate] = worker->metrics.auxiliary;
    if (trial->forward_only) return SL_OK;
    sl_device.copy(trial->dx[self->coordinate], worker->dx, bytes);
    SL_TRY(reduce(self, worker));
    return sl_export(self, &world, &worker->parameters, SL_GRADIENTS, 1.0f, &trial->gradients);
}

/* Runs TRIAL; copy 0 of y and dx is then the whole, and so is the auxiliary loss. */
static void run_trial(const char *on, struct trial *trial, bool checked) {
    struct sl_mesh mesh;
    run_tiles(on, trial, checked, &mesh);
    join_tiles(&mesh, ALL, COLUMNS, trial->y[0]);
    join_tiles(&mesh, ALL, COLUMNS, trial->dx[0]);
    for (int i = 1; i < mesh.size; i++) trial->auxiliary[0] += trial->auxiliary[i];
    trial->auxiliary[0] /= sl_mesh_axis_size(&mesh, "tensor");
}

/* ---- values ---- */

static void open_values(struct values *values, uint64_t seed, struct trial *trial) {
    struct numbers numbers = {seed};
    const size_t e = (size_t)trial->shape.experts, s = (size_t)trial->shape.shared;
    struct sl_store *store = &values->store;
    *values = (struct values){0};
    add_random(store, &numbers, "moe.router.kernel", 0.5f, 2, (size_t[]){COLUMNS, e});
    add_random(store, &numbers, "moe.experts.up.kernel", 0.4f, 3, (size_t[]){e, COLUMNS, INSIDE});
    add_random(store, &numbers, "moe.experts.up.bias", 0.3f, 2, (size_t[]){e, INSIDE});
    add_random(store, &numbers, "moe.experts.down.kernel", 0.4f, 3, (size_t[]){e, INSIDE, COLUMNS});
    add_random(store, &numbers, "moe.experts.down.bias", 0.3f, 2, (size_t[]){e, COLUMNS});
    if (s > 0) {
        add_random(store, &numbers, "moe.shared.up.kernel", 0.4f, 2, (size_t[]){COLUMNS, s});
        add_random(store, &numbers, "moe.shared.up.bias", 0.3f, 1, &s);
        add_random(store, &numbers, "moe.shared.down.kernel", 0.4f, 2, (size_t[]){s, COLUMNS});
        add_random(store, &numbers, "moe.shared.down.bias", 0.3f, 1, (size_t[]){COLUMNS});
    }
    trial->from = store;
    trial->x = values->x = random_floats(&numbers, ALL * COLUMNS, -2, 2);
    trial->dy = values->dy = random_floats(&numbers, ALL * COLUMNS, -1, 1);
}

/* ---- the naive module, in double ---- */

/* Parameters in the order of open_values, then x. */
enum { ROUTER, UP, UP_BIAS, DOWN, DOWN_BIAS, SHARED_UP, SHARED_UP_BIAS, SHARED_DOWN, SHARED_DOWN_BIAS, X, VALUES };

struct naive {
    struct sl_experts shape;
    int capacity;
    size_t count[VALUES];
    double *value[VALUES];
    double y[ALL * COLUMNS], auxiliary;
    int dropped; /* pairs */
};

static void open_naive(struct naive *naive, const struct trial *trial) {
    *naive = (struct naive){.shape = trial->shape, .capacity = SEQUENCE};
    const double slots = ceil(trial->shape.capacity * SEQUENCE * trial->shape.choices / trial->shape.experts);
    if (trial->shape.capacity > 0 && slots < SEQUENCE) naive->capacity = (int)slots;
    for (int i = 0; i < trial->from->count; i++) {
        const struct sl_array *array = &trial->from->tensor[i].array;
        naive->count[i] = sl_array_elements(array);
        naive->value[i] = array_of(naive->count[i], sizeof(double));
        for (size_t j = 0; j < naive->count[i]; j++) naive->value[i][j] = ((const float *)array->data)[j];
    }
    naive->count[X] = ALL * COLUMNS;
    naive->value[X] = array_of(naive->count[X], sizeof(double));
    for (size_t j = 0; j < naive->count[X]; j++) naive->value[X][j] = trial->x[j];
}

static void close_naive(struct naive *naive) {
    for (int i = 0; i < VALUES; i++) free(naive->value[i]);
}

/* y [COLUMNS] += gate times the MLP of x */
static void add_mlp(int inside, const double *up, const double *up_bias, const double *down, const double *down_bias,
                    double gate, const double *x, double *y) {
    for (int c = 0; c < COLUMNS; c++) y[c] += gate * down_bias[c];
    for (int i = 0; i < inside; i++) {
        double h = up_bias[i];
        for (int c = 0; c < COLUMNS; c++) h += x[c] * up[c * inside + i];
        h *= 0.5 * (1 + tanh(sqrt(2 / M_PI) * (h + 0.044715 * h * h * h)));
        for (int c = 0; c < COLUMNS; c++) y[c] += gate * h * down[i * COLUMNS + c];
    }
}

/* The experts of ROW in CHOSEN, all experts' probabilities in P. */
static void naive_route(const struct naive *n, int row, int *chosen, double *p) {
    const int experts = n->shape.experts;
    double logits[EXPERTS] = {0}, sum = 0;
    for (int e = 0; e < experts; e++) {
        for (int c = 0; c < COLUMNS; c++)
            logits[e] += n->value[X][row * COLUMNS + c] * n->value[ROUTER][c * experts + e];
        sum += p[e] = exp(logits[e]);
    }
    for (int e = 0; e < experts; e++) {
        int better = 0;
        for (int other = 0; other < experts; other++) better += logits[other] > logits[e];
        if (better < n->shape.choices) chosen[better] = e;
        p[e] /= sum;
    }
}

static void naive_row(struct naive *n, int row, const int *chosen, const double *p, int *taken) {
    const double *x = n->value[X] + row * COLUMNS;
    double *y = n->y + row * COLUMNS, together = 0;
    for (int k = 0; k < n->shape.choices; k++) together += p[chosen[k]];
    if (n->shape.choices == 1) together = 1;
    for (int k = 0; k < n->shape.choices; k++) {
        const int e = chosen[k];
        n->dropped += taken[e] == n->capacity;
        if (taken[e] == n->capacity) continue;
        taken[e]++;
        add_mlp(INSIDE, n->value[UP] + e * COLUMNS * INSIDE, n->value[UP_BIAS] + e * INSIDE,
                n->value[DOWN] + e * COLUMNS * INSIDE, n->value[DOWN_BIAS] + e * COLUMNS, p[e] / together, x, y);
    }
    if (n->shape.shared)
        add_mlp(n->shape.shared, n->value[SHARED_UP], n->value[SHARED_UP_BIAS], n->value[SHARED_DOWN],
                n->value[SHARED_DOWN_BIAS], 1, x, y);
}

/* Computes y, the auxiliary losses and the number of dropped tokens. */
static void run_naive(struct naive *n) {
    memset(n->y, 0, sizeof n->y);
    n->auxiliary = n->dropped = 0;
    for (int first = 0; first < ALL; first += SEQUENCE) {
        int taken[EXPERTS] = {0};
        double share[EXPERTS] = {0}, mean[EXPERTS] = {0};
        for (int row = first; row < first + SEQUENCE; row++) {
            int chosen[EXPERTS];
            double p[EXPERTS];
            naive_route(n, row, chosen, p);
            naive_row(n, row, chosen, p, taken);
            for (int k = 0; k < n->shape.choices; k++) share[chosen[k]] += 1.0 / (SEQUENCE * n->shape.choices);
            for (int e = 0; e < n->shape.experts; e++) mean[e] += p[e] / SEQUENCE;
        }
        for (int e = 0; e < n->shape.experts; e++) n->auxiliary += SEQUENCE * n->shape.experts * share[e] * mean[e];
    }
}

static double objective(struct naive *n, const float *dy) {
    run_naive(n);
    double sum = n->shape.balance * weight * n->auxiliary;
    for (int i = 0; i < ALL * COLUMNS; i++) sum += dy[i] * n->y[i];
    return sum;
}

/* A sample of the gradients GOT of value NUMBER. */
static void expect_gradient(struct naive *n, const float *dy, int number, const char *what, const float *got) {
    const size_t stride = n->count[number] / 97 + 1;
    const double h = 1e-5;
    float given[98], want[98];
    size_t samples = 0;
    for (size_t i = 0; i < n->count[number]; i += stride, samples++) {
        double *value = &n->value[number][i], saved = *value;
        *value = saved + h;
        const double above = objective(n, dy);
        *value = saved - h;
        want[samples] = (float)((above - objective(n, dy)) / (2 * h));
        given[samples] = got[i];
        *value = saved;
    }
    expect_near("data=1", what, samples, given, want);
}

/* ---- tests of the module ---- */

static const struct {
    int choices, shared;
    double capacity;
    bool drops;
} cases[] = {{1, 0, 1.25, true}, {2, 0, 0.5, true}, {2, 20, 1.25, true}, {3, 12, 0, false}, {EXPERTS, 0, 1.0, false}};
enum { CASES = sizeof cases / sizeof *cases };

static struct trial trial_of_case(int i) {
    return trial_of(shape_of(cases[i].choices, cases[i].shared, cases[i].capacity));
}

static void values_and_gradients_are_the_naive_ones(void **state) {
    (void)state;
    static struct trial trial;
    static struct naive naive;
    static float y[ALL * COLUMNS];
    for (int i = 0; i < CASES; i++) {
        trial = trial_of_case(i);
        struct values values;
        open_values(&values, 1 + (uint64_t)i, &trial);
        open_naive(&naive, &trial);
        run_naive(&naive);
        assert_int_equal(naive.dropped > 0, cases[i].drops);
        for (int j = 0; j < ALL * COLUMNS; j++) y[j] = (float)naive.y[j];
        for (trial.level = 0; sl_kernels_available(trial.level); trial.level++) {
            run_trial("data=1", &trial, true);
            expect_near("data=1", "y", ALL * COLUMNS, trial.y[0], y);
            expect_close("auxiliary", 0, trial.auxiliary[0], naive.auxiliary, 1e-5, 0);
            if (trial.level == 0) {
                expect_gradient(&naive, trial.dy, X, "dx", trial.dx[0]);
                assert_int_equal(trial.gradients.count, trial.from->count);
                for (int v = 0; v < trial.from->count; v++) {
                    const char *name = trial.from->tensor[v].name;
                    const struct sl_tensor *got = sl_store_find(&trial.gradients, name);
                    assert_non_null(got);
                    expect_gradient(&naive, trial.dy, v, name, got->array.data);
                }
            }
            sl_store_free(&trial.gradients);
        }
        close_naive(&naive);
        close_values(&values);
    }
}

static void compare(const char *on, double tolerance, const struct trial *got, const struct trial *want) {
    expect_within(tolerance, on, "y", ALL * COLUMNS, got->y[0], want->y[0]);
    expect_close("auxiliary", 0, got->auxiliary[0], want->auxiliary[0], 1e-5, 0);
    if (!got->without_dx) expect_within(tolerance, on, "dx", ALL * COLUMNS, got->dx[0], want->dx[0]);
    assert_int_equal(got->gradients.count, want->gradients.count);
    for (int i = 0; i < want->gradients.count; i++) {
        const struct sl_tensor *gradient = &want->gradients.tensor[i];
        const struct sl_tensor *other = sl_store_find(&got->gradients, gradient->name);
        assert_non_null(other);
        expect_within(tolerance, on, gradient->name, sl_array_elements(&gradient->array), other->array.data,
                      gradient->array.data);
    }
}

/* Expects the same dropped tokens in both layouts. */
static void expect_same_zeros(const struct trial *got, const struct trial *want) {
    for (int row = 0; row < ALL; row++) {
        int zeros[2] = {0, 0};
        for (int c = 0; c < COLUMNS; c++) {
            zeros[0] += got->y[0][row * COLUMNS + c] == 0;
            zeros[1] += want->y[0][row * COLUMNS + c] == 0;
        }
        assert_int_equal(zeros[0] == COLUMNS, zeros[1] == COLUMNS);
    }
}

static void meshes_equal_one_coordinate(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2", "data=4", "tensor=2", "data=2,tensor=2", "tensor=2,data=4"};
    for (int i = 0; i < CASES; i++) {
        static struct trial single, trial;
        single = trial_of_case(i);
        struct values values;
        open_values(&values, 11 + (uint64_t)i, &single);
        trial = single;
        single.group = MICROBATCHES;
        run_trial("data=1", &single, true);
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            trial.group = strstr(meshes[m], "data=4") ? 1 : 1 + (int)m % 2;
            trial.recompute = (i + (int)m) % 2;
            trial.without_dx = (i + (int)m) % 5 == 4;
            run_trial(meshes[m], &trial, m % 2);
            compare(meshes[m], 1e-5, &trial, &single);
            expect_same_zeros(&trial, &single);
            sl_store_free(&trial.gradients);
        }
        sl_store_free(&single.gradients);
        close_values(&values);
    }
}

/* The router's products stay floats, so the same experts are chosen. */
static void rounded_operands_give_nearly_the_same(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        static struct trial single, trial;
        single = trial_of_case(i);
        struct values values;
        open_values(&values, 21 + (uint64_t)i, &single);
        trial = single;
        run_trial("data=1", &single, true);
        trial.precision = SL_BF16;
        trial.group = 1;
        run_trial("data=2,tensor=2", &trial, true);
        compare("data=2,tensor=2", 1e-2, &trial, &single);
        assert_true(memcmp(trial.y[0], single.y[0], sizeof single.y[0]) != 0);
        sl_store_free(&trial.gradients);
        sl_store_free(&single.gradients);
        close_values(&values);
    }
}

/* A replica chooses the tokens of its experts by itself; in generation it drops none. */
static void nothing_is_dropped_in_generation(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1", "data=2", "tensor=2,data=4"};
    for (int i = 0; i < 6; i++) {
        static struct trial all, trial;
        const char *on = meshes[i % 3];
        all = trial_of(shape_of(2, 0, 0));
        struct values values;
        open_values(&values, 31 + (uint64_t)i, &all);
        all.forward_only = true;
        trial = all;
        trial.shape.capacity = 0.25;
        trial.phase = i / 3 ? SL_DECODE : SL_PREFILL;
        if (trial.phase == SL_DECODE) trial.sequence = 1;
        run_trial("data=1", &all, true);
        run_trial(on, &trial, true);
        expect_near(on, "y", ALL * COLUMNS, trial.y[0], all.y[0]);
        assert_true(trial.auxiliary[0] == 0);
        trial.phase = SL_EVALUATE;
        trial.sequence = SEQUENCE;
        run_trial(on, &trial, true);
        assert_true(memcmp(trial.y[0], all.y[0], sizeof all.y[0]) != 0);
        expect_close("auxiliary", 0, trial.auxiliary[0] / trial.shape.experts, all.auxiliary[0] / all.shape.experts,
                     1e-5, 0);
        close_values(&values);
    }
}

/* ---- refusals ---- */

static void refuses(const char *on, struct trial trial, const char *text, const char *other) {
    static struct trial run;
    struct values values;
    open_values(&values, 41, &trial);
    run = trial;
    EXPECT_VERDICT(((struct test_run){.mesh = on, .checked = true, .arg = &run}), trial_program, SL_BAD_INPUT, text,
                   other);
    close_values(&values);
}

static void bad_shapes_are_refused(void **state) {
    (void)state;
    const struct trial good = trial_of(shape_of(2, 0, 1.25));
    struct trial trial = good;
    for (int choices = 0; choices <= EXPERTS + 1; choices += EXPERTS + 1) {
        trial.shape.choices = choices;
        refuses("data=1", trial, "moe.experts: ", "of 8 experts for each token: it must be at least 1");
    }
    trial = good;
    trial.shape.experts = 6;
    refuses("data=4", trial, "moe.experts: 6 experts do not divide", "4 coordinates along \"data\"");
    trial = good;
    trial.shape.capacity = -1;
    refuses("data=1", trial, "moe.experts: capacity factor -1", "at least 0");
    trial = good;
    trial.shape.balance = NAN;
    refuses("data=1", trial, "moe.experts: capacity factor", "at least 0");
    trial = good;
    trial.sequence = 5;
    refuses("data=1", trial, "moe.experts: 12 rows", "sequences of 5");
    trial.sequence = 0;
    refuses("data=1", trial, "moe.experts: 12 rows", "sequences of 0");
    trial = good;
    refuses("tensor=3", trial, "16 columns do not divide", "3 coordinates along \"tensor\"");
    trial.shape.inside = 18;
    refuses("tensor=4", trial, "moe.experts.up.expert_dense: 18 columns do not divide", "by the 4 coordinates");
    trial = good;
    trial.rules = no_rules;
    refuses("data=2", trial, "moe.experts.up.kernel is sharded as ''", "needs 'data' for dim 0");
    refuses("tensor=2", trial, "moe.experts.up.kernel is sharded as ''", "needs 'tensor' for dim 1");
}

/* ---- tests of the kernels ---- */

struct routed {
    struct sl_routing routing;
    float *logits, *probabilities, *gates;
    int32_t *chosen, *slot_of, *pair_of;
};

static struct routed route_random(const struct sl_expert_kernels *kernels, struct numbers *numbers,
                                  struct sl_routing routing) {
    const size_t count = routing.rows * routing.experts, pairs = routing.rows * routing.choices;
    const size_t slots = sl_routing_slots(&routing);
    struct routed r = {routing,
                       device_floats(count),
                       device_floats(count),
                       device_floats(pairs),
                       device_array(pairs, sizeof(int32_t)),
                       device_array(pairs, sizeof(int32_t)),
                       device_array(slots, sizeof(int32_t))};
    for (size_t i = 0; i < count; i++) r.logits[i] = (float)(next_word(numbers) % 5) - 2.0f; /* several are equal */
    memset(r.pair_of, 0x55, slots * sizeof(int32_t));
    kernels->route(&routing, r.logits, r.probabilities, r.chosen, r.gates);
    kernels->assign(&routing, NULL, r.chosen, r.slot_of, r.pair_of);
    return r;
}

static void release_routed(struct routed *r) {
    void *const arrays[] = {r->logits, r->probabilities, r->gates, r->chosen, r->slot_of, r->pair_of};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

static void expect_chosen(const struct routed *r) {
    const int experts = (int)r->routing.experts, choices = (int)r->routing.choices;
    for (int row = 0; row < (int)r->routing.rows; row++) {
        const float *logits = r->logits + row * experts;
        double sum = 0, together = 0;
        for (int e = 0; e < experts; e++) sum += exp(logits[e]);
        for (int e = 0; e < experts; e++) {
            int before = 0; /* larger ones, or equal and earlier */
            for (int other = 0; other < experts; other++)
                before += logits[other] > logits[e] || (logits[other] == logits[e] && other < e);
            if (before < choices) assert_int_equal(r->chosen[row * choices + before], e);
            if (before < choices) together += exp(logits[e]) / sum;
            expect_close("probability", (size_t)e, r->probabilities[row * experts + e], exp(logits[e]) / sum, 1e-5, 0);
        }
        for (int k = 0; k < choices; k++) {
            const double p = exp(logits[r->chosen[row * choices + k]]) / sum;
            expect_close("gate", (size_t)k, r->gates[row * choices + k], choices > 1 ? p / together : p, 1e-5, 0);
        }
    }
}

static void expect_slots(const struct routed *r) {
    const struct sl_routing *routing = &r->routing;
    const size_t length = routing->rows / routing->sequences * routing->choices;
    int32_t *pair_of = array_of(sl_routing_slots(routing), sizeof *pair_of);
    memset(pair_of, 0xff, sl_routing_slots(routing) * sizeof *pair_of);
    for (size_t pair = 0; pair < routing->rows * routing->choices; pair++) {
        const size_t expert = (size_t)r->chosen[pair];
        const size_t first = (expert * routing->sequences + pair / length) * routing->capacity;
        size_t place = 0;
        while (place < routing->capacity && pair_of[first + place] >= 0) place++;
        assert_int_equal(r->slot_of[pair], place < routing->capacity ? (int)(first + place) : -1);
        if (place < routing->capacity) pair_of[first + place] = (int32_t)pair;
    }
    assert_memory_equal(r->pair_of, pair_of, sl_routing_slots(routing) * sizeof *pair_of);
    free(pair_of);
}

static void equal_logits_choose_the_first(void **state) {
    (void)state;
    static const struct sl_routing routings[] = {{12, 2, 7, 2, 3, {0}},
                                                 {10, 1, 1, 1, 4, {0}},
                                                 {9, 9, 33, 5, 1, {0}},
                                                 {16, 2, 4, 4, 8, {0}},
                                                 {30, 3, 16, 1, 1, {0}}};
    struct numbers numbers = {5};
    for (int level = 0; sl_kernels_available(level); level++) {
        for (size_t i = 0; i < sizeof routings / sizeof *routings; i++) {
            struct routed r = route_random(sl_kernels_available(level)->experts, &numbers, routings[i]);
            expect_chosen(&r);
            expect_slots(&r);
            release_routed(&r);
        }
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_logits_choose_the_first),    cmocka_unit_test(values_and_gradients_are_the_naive_ones),
        cmocka_unit_test(meshes_equal_one_coordinate),      cmocka_unit_test(rounded_operands_give_nearly_the_same),
        cmocka_unit_test(nothing_is_dropped_in_generation), cmocka_unit_test(bad_shapes_are_refused),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
