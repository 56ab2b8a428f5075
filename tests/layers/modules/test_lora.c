/* test_lora.c - adapters beside dense layers: results in any layout, and trained parameters. */
#include "tests/rigs/sharded_rig.h"

#include "layers/modules/gradient_check.h"

static const char *const meshes[] = {"data=1",          "tensor=2",        "tensor=4",        "data=2",
                                     "data=2,tensor=2", "tensor=4,data=2", "pipe=2,tensor=2", "data=2,tensor=1"};
enum { MESHES = sizeof meshes / sizeof *meshes, RANK = 3, FACTOR_A = 2, FACTOR_B = 3 };

static struct job adapted(enum kind kind) {
    return (struct job){.kind = kind, .rank = RANK, .alpha = 1.5, .group = 2, .window = MICROBATCHES, .x = x, .dy = dy};
}

/* ---- results ---- */

struct oracle {
    double y[ALL * OUT], dx[ALL * IN], kernel[IN * OUT], bias[OUT], a[IN * RANK], b[RANK * OUT];
};

/* Computes the results in double. SUM [ALL, OUT] is dy. */
static void compute_oracle(const float *sum, double scale, struct oracle *o) {
    static float kernel[IN * OUT], bias[OUT], a[IN * RANK], b[RANK * OUT];
    make_values(0, IN * OUT, kernel);
    make_values(1, OUT, bias);
    make_values(FACTOR_A, IN * RANK, a);
    make_values(FACTOR_B, RANK * OUT, b);
    *o = (struct oracle){0};
    for (int row = 0; row < ALL; row++) {
        const float *in = x + row * IN, *gradient = sum + row * OUT;
        double h[RANK] = {0}, dh[RANK] = {0};
        for (int r = 0; r < RANK; r++) {
            for (int i = 0; i < IN; i++) h[r] += scale * in[i] * a[i * RANK + r];
            for (int c = 0; c < OUT; c++) dh[r] += scale * gradient[c] * b[r * OUT + c];
            for (int c = 0; c < OUT; c++) o->b[r * OUT + c] += h[r] * gradient[c];
            for (int i = 0; i < IN; i++) o->a[i * RANK + r] += in[i] * dh[r];
            for (int i = 0; i < IN; i++) o->dx[row * IN + i] += dh[r] * a[i * RANK + r];
            for (int c = 0; c < OUT; c++) o->y[row * OUT + c] += h[r] * b[r * OUT + c];
        }
        for (int c = 0; c < OUT; c++) {
            o->y[row * OUT + c] += bias[c];
            o->bias[c] += gradient[c];
            for (int i = 0; i < IN; i++) {
                o->y[row * OUT + c] += (double)in[i] * kernel[i * OUT + c];
                o->dx[row * IN + i] += (double)gradient[c] * kernel[i * OUT + c];
                o->kernel[i * OUT + c] += (double)in[i] * gradient[c];
            }
        }
    }
}

static void expect_oracle(const char *on, const struct job *job) {
    static struct oracle oracle;
    struct sl_mesh mesh;
    float sum[ALL * OUT] = {0};
    assert_int_equal(sl_mesh_parse(&mesh, on, NULL), SL_OK);
    const int shares = job->kind == SUMMED ? sl_mesh_axis_size(&mesh, "tensor") : 1;
    for (int s = 0; s < shares; s++)
        for (int i = 0; i < ALL * OUT; i++) sum[i] += dy[s * ALL * OUT + i];
    compute_oracle(sum, job->alpha > 0 ? job->alpha / RANK : 2, &oracle);
    run_trial(on, *job, true, &trial);
    expect_near("y", ALL * OUT, trial.whole_y, oracle.y);
    expect_near("dx", ALL * IN, trial.whole_dx, oracle.dx);
    expect_near("dkernel", IN * OUT, trial.whole_gradient[number_of(&trial, "a.kernel")], oracle.kernel);
    expect_near("dbias", OUT, trial.whole_gradient[number_of(&trial, "a.bias")], oracle.bias);
    expect_near("dA", IN * RANK, trial.whole_gradient[number_of(&trial, "a.lora_a.kernel")], oracle.a);
    expect_near("dB", RANK * OUT, trial.whole_gradient[number_of(&trial, "a.lora_b.kernel")], oracle.b);
}

/* On all meshes, with segments, and in groups; later groups add to gradients. */
static void adapters_are_products_of_low_rank(void **state) {
    (void)state;
    static const char *const rules[2][3] = {{"tensor", "tensor*2", "tensor*3"},
                                            {"tensor,data", "tensor*2,data", "tensor*3,data"}};
    for (int i = 0; i < MESHES * 6; i++) {
        const int segments = 1 + i / MESHES / 2;
        struct job job = adapted(i % 2 ? SUMMED : SHARDED);
        draw((uint64_t)i + 1);
        job.segments_in = segments;
        job.segments_out = job.kind == SUMMED ? 1 : (int[]){5, 2, 1}[segments - 1];
        job.kernel_rule = rules[i / MESHES % 2][segments - 1];
        job.group = (int[]){1, 2, 4}[(i + segments) % 3];
        job.alpha = i % 3 ? 1.5 : 0;
        expect_oracle(meshes[i % MESHES], &job);
        job.kind = job.kind == SUMMED ? SHARDED : SUMMED;
        job.segments_out = 1;
        expect_oracle(meshes[i % MESHES], &job);
    }
}

/* The columns are odd ones, and the storage is bf16 as well. */
static void gradients_are_those_of_forward(void **state) {
    (void)state;
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    const struct sl_lora lora = {5, 3};
    const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .lora = &lora, .pieces = 1};
    for (int i = 0; i < 12; i++) {
        const bool rounds = i % 2;
        const struct sl_gradient_check check = {.rows = 3,
                                                .microbatches = 4,
                                                .wgrad_group = 1 << i / 4,
                                                .seed = (uint64_t)i,
                                                .storage = rounds ? SL_BF16 : SL_F32,
                                                .precision = rounds ? SL_BF16 : SL_F32};
        struct sl_module *module =
            i / 2 % 2 ? sl_sharded_dense("a", 13, 7, 1, 1, &channels) : sl_summed_product("a", 13, 7, &channels);
        struct sl_error error = {0};
        double difference;
        char worst[96];
        assert_non_null(module);
        if (sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
            fail_msg("module %d: %s", i, error.message);
        if (!(difference < (rounds ? 2e-2 : 1e-3))) fail_msg("module %d: %s differs by %g", i, worst, difference);
        sl_module_free(module);
    }
}

/* ---- trained parameters ---- */

/* Only adapters have gradients. The frozen dense layer saves nothing: x and dy are saved for the adapter. */
static void adapters_alone_train(void **state) {
    (void)state;
    for (int i = 0; i < MESHES * 4; i++) {
        struct job job = adapted(i % 2 ? SUMMED : SHARDED);
        draw(100 + (uint64_t)i);
        job.precision = i / MESHES % 2 ? SL_BF16 : SL_F32;
        job.kernel_rule = i / MESHES / 2 ? "tensor" : "tensor,data";
        run_trial(meshes[i % MESHES], job, false, &other);
        job.adapters = "*.lora_?.kernel";
        run_trial(meshes[i % MESHES], job, i % 2, &trial);
        expect_same_bits("y", ALL * OUT, trial.whole_y, other.whole_y);
        expect_same_bits("dx", ALL * IN, trial.whole_dx, other.whole_dx);
        for (int p = 0; p < trial.count; p++) {
            assert_int_equal(trial.parameter[p].frozen, p < FACTOR_A);
            if (p >= FACTOR_A)
                expect_same_bits(trial.parameter[p].name, elements_of(&trial.parameter[p]), trial.whole_gradient[p],
                                 other.whole_gradient[p]);
        }
        assert_true(trial.keeps);
        assert_true(trial.stash[0] < other.stash[0]);
        /* h and its gradient, each [rows, rank], padded to cache lines */
        assert_int_equal(trial.stash[0], 2 * 16);
    }
}

/* A layer that matches no pattern is a dense layer, with the same bits. */
static void others_are_dense_layers(void **state) {
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        struct job job = {.kind = i % 2 ? SUMMED : SHARDED, .group = 2, .window = 4, .x = x, .dy = dy};
        draw(200 + (uint64_t)i);
        job.frozen = "*";
        run_trial(meshes[i], job, false, &other);
        job.rank = RANK;
        job.adapters = "b.lora_?.kernel";
        run_trial(meshes[i], job, false, &trial);
        assert_int_equal(trial.count, 2);
        assert_false(trial.keeps);
        expect_same_bits("y", ALL * OUT, trial.whole_y, other.whole_y);
        expect_same_bits("dx", ALL * IN, trial.whole_dx, other.whole_dx);
    }
}

/* B is zeros, and so a run begins with the dense layer. A is the same everywhere. */
static void they_begin_as_nothing(void **state) {
    (void)state;
    struct job job = adapted(SHARDED);
    double squares = 0;
    job.rank = 16;
    job.initial = true;
    draw(300);
    run_trial("data=1", job, false, &other);
    for (int i = 0; i < IN * 16; i++) squares += pow(other.whole_value[FACTOR_A][i], 2);
    expect_close("variance", 0, squares / (IN * 16), 1.0 / (3 * IN), 0.2, 0);
    for (int i = 0; i < MESHES; i++) {
        job.rank = 16;
        run_trial(meshes[i], job, false, &trial);
        expect_same_bits("A", IN * 16, trial.whole_value[FACTOR_A], other.whole_value[FACTOR_A]);
        expect_same_bits("B", 16 * OUT, trial.whole_value[FACTOR_B], (float[16 * OUT]){0});
        job.rank = 0;
        run_trial(meshes[i], job, false, &other);
        for (int e = 0; e < ALL * OUT; e++) expect_close("y", (size_t)e, trial.whole_y[e], other.whole_y[e], 0, 0);
        job.rank = 16;
        run_trial("data=1", job, false, &other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_products_of_low_rank),
        cmocka_unit_test(gradients_are_those_of_forward),
        cmocka_unit_test(adapters_alone_train),
        cmocka_unit_test(others_are_dense_layers),
        cmocka_unit_test(they_begin_as_nothing),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
