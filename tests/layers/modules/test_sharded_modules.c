/* test_sharded_modules.c - modules with sharded channels and kernels give the results of one coordinate. */
#include "tests/rigs/sharded_rig.h"

#include "layers/modules/gradient_check.h"
#include "spmd/base/numbers/bf16.h"

static const char *const meshes[] = {"data=1",          "tensor=1",        "tensor=2",        "tensor=4",
                                     "data=2",          "data=2,tensor=2", "tensor=4,data=2", "data=2,tensor=1",
                                     "data=1,tensor=2", "pipe=2,tensor=2"};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* ---- dense ---- */

static double rounded(enum sl_dtype precision, float x) {
    return precision == SL_BF16 ? sl_float_of_bf16(sl_bf16_of_float(x)) : x;
}

struct dense {
    double y[ALL * OUT], dx[ALL * IN], kernel[IN * OUT], bias[OUT];
};

/* Computes the results in double. SUM [ALL, OUT] is dy. Kernels have the type KERNELS. */
static struct dense dense_oracle(enum sl_dtype precision, enum sl_dtype kernels, const float *sum) {
    struct dense dense = {0};
    float kernel[IN * OUT], bias[OUT];
    make_values(0, IN * OUT, kernel);
    make_values(1, OUT, bias);
    for (int r = 0; r < ALL; r++) {
        for (int o = 0; o < OUT; o++) {
            const double gradient = rounded(precision, sum[r * OUT + o]);
            dense.y[r * OUT + o] = bias[o];
            dense.bias[o] += sum[r * OUT + o];
            for (int i = 0; i < IN; i++) {
                const double value = rounded(precision, x[r * IN + i]), weight = rounded(kernels, kernel[i * OUT + o]);
                dense.y[r * OUT + o] += value * weight;
                dense.dx[r * IN + i] += gradient * weight;
                dense.kernel[i * OUT + o] += value * gradient;
            }
        }
    }
    return dense;
}

static void expect_dense(const char *on, struct job job) {
    struct sl_mesh mesh;
    float sum[ALL * OUT] = {0};
    assert_int_equal(sl_mesh_parse(&mesh, on, NULL), SL_OK);
    const int shares = job.kind == SUMMED ? sl_mesh_axis_size(&mesh, "tensor") : 1;
    for (int s = 0; s < shares; s++)
        for (int i = 0; i < ALL * OUT; i++) sum[i] += dy[s * ALL * OUT + i];
    const struct dense dense = dense_oracle(job.precision, job.working_bf16 ? SL_BF16 : job.precision, sum);
    for (int checked = test_runs_few; checked < 2; checked++) {
        run_trial(on, job, checked, &trial);
        expect_near("y", ALL * OUT, trial.whole_y, dense.y);
        expect_near("dx", ALL * IN, trial.whole_dx, dense.dx);
        expect_near("dkernel", IN * OUT, trial.whole_gradient[number_of(&trial, "a.kernel")], dense.kernel);
        expect_near("dbias", OUT, trial.whole_gradient[number_of(&trial, "a.bias")], dense.bias);
    }
}

static void expect_dense_everywhere(enum kind kind) {
    static const char *const rules[3][2] = {
        {"tensor", "tensor,data"}, {"tensor*2", "tensor*2,data"}, {"tensor*3", "tensor*3,data"}};
    for (int i = 0; i < MESHES; i++) {
        for (int fsdp = 0; fsdp < 2; fsdp++) {
            for (int segments = 1; segments <= 3; segments++) {
                draw((uint64_t)(i * 6 + fsdp * 3 + segments));
                struct job job = {.kind = kind,
                                  .segments_in = segments,
                                  .segments_out = kind == SUMMED ? 1 : (int[]){5, 2, 1}[segments - 1],
                                  .kernel_rule = rules[segments - 1][fsdp],
                                  .group = (int[]){1, 2, 4}[(i + segments) % 3],
                                  .window = MICROBATCHES,
                                  .x = x,
                                  .dy = dy};
                expect_dense(meshes[i], job);
                job.precision = SL_BF16;
                expect_dense(meshes[i], job);
                job.working_bf16 = true;
                expect_dense(meshes[i], job);
                job.precision = SL_F32;
                expect_dense(meshes[i], job);
            }
        }
    }
}

static void sharded_dense_is_dense(void **state) {
    (void)state;
    expect_dense_everywhere(SHARDED);
}

static void summed_dense_is_dense(void **state) {
    (void)state;
    expect_dense_everywhere(SUMMED);
}

/* Gradients of kernels sharded over data are complete, and each coordinate has only its shard. */
static void data_shards_kernels(void **state) {
    (void)state;
    draw(1);
    run_trial("data=2,tensor=2",
              (struct job){.kind = SHARDED, .kernel_rule = "tensor,data", .group = 1, .window = 2, .x = x, .dy = dy},
              false, &trial);
    const struct sl_parameter *kernel = &trial.parameter[number_of(&trial, "a.kernel")];
    assert_int_equal(kernel->range, 1);
    assert_int_equal(kernel->count, IN / 2 * OUT / 2);
    assert_int_equal(trial.parameter[number_of(&trial, "a.bias")].range, 0);
}

/* Each shard has its part of the whole kernel's lecun-normal values. */
static void initial_values_are_those_of_one_coordinate(void **state) {
    (void)state;
    struct job job = {.kind = SHARDED, .group = 1, .window = 1, .initial = true, .x = x, .dy = dy};
    run_trial("data=1", job, false, &other);
    double squares = 0;
    for (int i = 0; i < IN * OUT; i++) squares += pow(other.whole_value[0][i], 2);
    expect_close("variance", 0, squares / (IN * OUT), 1.0 / IN, 0.1, 0);
    for (int i = 0; i < MESHES; i++) {
        for (int fsdp = 0; fsdp < 2; fsdp++) {
            job.kernel_rule = fsdp ? "tensor,data" : "tensor";
            run_trial(meshes[i], job, false, &trial);
            expect_same_bits("kernel", IN * OUT, trial.whole_value[0], other.whole_value[0]);
            expect_same_bits("bias", OUT, trial.whole_value[1], (float[OUT]){0});
        }
    }
}

/* ---- norm ---- */

struct norm {
    double y[ALL * IN], dx[ALL * IN], gamma[IN], beta[IN];
};

static struct norm norm_oracle(void) {
    struct norm norm = {0};
    float gamma[IN], beta[IN];
    make_values(0, IN, gamma);
    make_values(1, IN, beta);
    for (int r = 0; r < ALL; r++) {
        const float *in = x + r * IN, *gradient = dy + r * IN;
        double square = 0, dot = 0;
        for (int c = 0; c < IN; c++) square += (double)in[c] * in[c];
        for (int c = 0; c < IN; c++) dot += (double)gradient[c] * gamma[c] * in[c];
        const double rms = sqrt(square / IN + 1e-6);
        for (int c = 0; c < IN; c++) {
            norm.y[r * IN + c] = in[c] / rms * gamma[c] + beta[c];
            norm.dx[r * IN + c] = ((double)gradient[c] * gamma[c] - in[c] * dot / IN / (rms * rms)) / rms;
            norm.gamma[c] += gradient[c] * in[c] / rms;
            norm.beta[c] += gradient[c];
        }
    }
    return norm;
}

static void rms_norm_is_that_of_whole_rows(void **state) {
    (void)state;
    for (int i = 0; i < MESHES * 3; i++) {
        draw(200 + (uint64_t)i);
        const struct norm norm = norm_oracle();
        struct job job = {.kind = NORM, .group = 1 << i / MESHES, .window = MICROBATCHES, .x = x, .dy = dy};
        for (int checked = test_runs_few; checked < 2; checked++) {
            run_trial(meshes[i % MESHES], job, checked, &trial);
            expect_near("y", ALL * IN, trial.whole_y, norm.y);
            expect_near("dx", ALL * IN, trial.whole_dx, norm.dx);
            expect_near("dgamma", IN, trial.whole_gradient[0], norm.gamma);
            expect_near("dbeta", IN, trial.whole_gradient[1], norm.beta);
        }
        job.without_dx = true;
        run_trial(meshes[i % MESHES], job, false, &other);
        for (int p = 0; p < 2; p++) expect_same_bits("gradient", IN, other.whole_gradient[p], trial.whole_gradient[p]);
    }
}

/* ---- dropout ---- */

static void dropout_drops_the_same_everywhere(void **state) {
    (void)state;
    draw(3);
    struct job job = {.kind = PLAIN_DROPOUT, .group = 1, .window = 1, .x = x, .dy = dy};
    run_trial("data=1", job, false, &other);
    int dropped = 0;
    for (int i = 0; i < ALL * 12; i++) dropped += other.whole_y[i] == 0;
    assert_in_range(dropped, ALL * 12 * 2 / 10, ALL * 12 * 4 / 10);
    job.kind = DROPOUT;
    for (int i = 0; i < MESHES; i++) {
        job.phase = SL_TRAIN;
        run_trial(meshes[i], job, false, &trial);
        expect_same_trials(&trial, &other);
        job.phase = SL_EVALUATE;
        run_trial(meshes[i], job, false, &trial);
        expect_same_bits("y", ALL * 12, trial.whole_y, x);
    }
}

/* ---- a block of them ---- */

static struct job block(void) {
    return (struct job){.kind = BLOCK, .kernel_rule = "tensor,data", .group = 2, .window = 2, .x = x, .dy = dy};
}

static void blocks_are_those_of_one_coordinate(void **state) {
    (void)state;
    draw(4);
    run_trial("data=1", block(), false, &other);
    for (int i = 0; i < MESHES; i++) {
        run_trial(meshes[i], block(), false, &trial);
        for (int e = 0; e < ALL * IN; e++) {
            expect_close("y", (size_t)e, trial.whole_y[e], other.whole_y[e], 1e-5, 1e-5);
            expect_close("dx", (size_t)e, trial.whole_dx[e], other.whole_dx[e], 1e-4, 1e-5);
        }
        for (int p = 0; p < other.count; p++)
            for (size_t e = 0; e < elements_of(&other.parameter[p]); e++)
                expect_close(other.parameter[p].name, e, trial.whole_gradient[p][e], other.whole_gradient[p][e], 1e-4,
                             1e-4);
    }
}

/* Also a module's addition to the metrics counts once. */
static void recomputation_changes_no_bit(void **state) {
    (void)state;
    static const int groups[] = {1, 1, 1, 2, 2, 4}, windows[] = {1, 2, 4, 2, 4, 4};
    for (int i = 0; i < MESHES * 6; i++) {
        struct job job = block();
        draw(300 + (uint64_t)i);
        job.group = groups[i / MESHES];
        job.window = windows[i / MESHES];
        job.precision = i % 2 ? SL_BF16 : SL_F32;
        run_trial(meshes[i % MESHES], job, false, &other);
        job.recompute = true;
        run_trial(meshes[i % MESHES], job, i % 2, &trial);
        expect_same_trials(&trial, &other);
        assert_true(other.stash[0] > 0);
        assert_int_equal(trial.stash[0], 0);
        for (int c = 0; c < COPIES; c++) assert_true(trial.auxiliary[c] == other.auxiliary[c]);
        assert_true(trial.auxiliary[0] >= ROWS * MICROBATCHES);
        job.without_dx = true;
        run_trial(meshes[i % MESHES], job, false, &other);
        for (int p = 0; p < trial.count; p++)
            expect_same_bits(trial.parameter[p].name, elements_of(&trial.parameter[p]), other.whole_gradient[p],
                             trial.whole_gradient[p]);
    }
}

/* Without stash, the same. */
static void forward_alone_keeps_nothing(void **state) {
    (void)state;
    draw(5);
    for (int i = 0; i < MESHES * 4; i++) {
        struct job job = block();
        job.phase = SL_EVALUATE;
        job.precision = i / MESHES % 2 ? SL_BF16 : SL_F32;
        job.recompute = i / MESHES / 2;
        run_trial(meshes[i % MESHES], job, false, &other);
        job.forward_only = true;
        run_trial(meshes[i % MESHES], job, false, &trial);
        expect_same_bits("y", ALL * IN, trial.whole_y, other.whole_y);
        assert_true(other.keeps);
        assert_false(trial.keeps);
        assert_int_equal(trial.stash[0], 0);
    }
}

/* ---- frozen parameters ---- */

/* A dense module with a frozen kernel saves neither x nor dy; for the bias it saves dy's sums. */
static void frozen_kernels_keep_nothing(void **state) {
    (void)state;
    draw(6);
    for (int i = 0; i < MESHES * 4; i++) {
        struct job job = {.kind = i % 2 ? SUMMED : SHARDED, .group = 2, .window = 4, .x = x, .dy = dy};
        job.kernel_rule = i / 2 % 2 ? "tensor" : "tensor,data";
        job.precision = i / MESHES % 2 ? SL_BF16 : SL_F32;
        run_trial(meshes[i % MESHES], job, false, &other);
        assert_true(other.keeps);
        job.frozen = i / MESHES / 2 ? "a.*" : "*.kernel";
        run_trial(meshes[i % MESHES], job, false, &trial);
        assert_false(trial.keeps);
        assert_int_equal(trial.stash[0], i / MESHES / 2 ? 0 : (OUT * sizeof(float) + 63) / 64 * 16);
        expect_same_bits("y", ALL * OUT, trial.whole_y, other.whole_y);
        expect_same_bits("dx", ALL * IN, trial.whole_dx, other.whole_dx);
        if (i / MESHES < 2) expect_same_bits("dbias", OUT, trial.whole_gradient[1], other.whole_gradient[1]);
    }
}

/* Several modules with frozen parameters: trained parameters have the same bits, and less is saved. */
static void frozen_parts_of_a_block_keep_less(void **state) {
    (void)state;
    static const char *const frozen[] = {"*.up.*", "*.kernel", "*.gamma,*.beta", "*.down.kernel", "*.bias", "*"};
    draw(7);
    for (int i = 0; i < MESHES * 6; i++) {
        struct job job = block();
        job.precision = i % 2 ? SL_BF16 : SL_F32;
        run_trial(meshes[i % MESHES], job, false, &other);
        job.frozen = frozen[i / MESHES];
        run_trial(meshes[i % MESHES], job, i % 2, &trial);
        expect_same_bits("dx", ALL * IN, trial.whole_dx, other.whole_dx);
        assert_true(trial.stash[0] < other.stash[0]);
        for (int p = 0; p < trial.count; p++)
            if (!trial.parameter[p].frozen)
                expect_same_bits(trial.parameter[p].name, elements_of(&trial.parameter[p]), trial.whole_gradient[p],
                                 other.whole_gradient[p]);
    }
}

/* ---- gradients ---- */

/* On one coordinate, with a mesh without that axis. */
static void gradients_are_those_of_forward(void **state) {
    (void)state;
    const struct sl_mesh mesh = {.axes = 1, .axis = {{"data", 1}}, .size = 1};
    const struct sl_channels channels = {.mesh = &mesh, .axis = "tensor", .pieces = 1};
    for (int columns = 1; columns <= 19; columns += 6) {
        for (int i = 0; i < 12; i++) {
            const struct sl_gradient_check check = {
                .rows = 3, .microbatches = 4, .wgrad_group = 1 << i / 4, .seed = (uint64_t)columns};
            struct sl_module *module = i % 4 == 0   ? sl_rms_norm("a", columns, &channels)
                                       : i % 4 == 1 ? sl_gelu(columns)
                                       : i % 4 == 2 ? sl_sharded_dense("a", columns, 7, 1, 1, &channels)
                                                    : sl_summed_dense("a", columns, 7, 1, &channels);
            struct sl_error error = {0};
            double difference;
            char worst[96];
            assert_non_null(module);
            if (sl_gradient_check(module, &check, sl_gemm_find(NULL, NULL), &difference, worst, &error))
                fail_msg("module %d of %d columns: %s", i % 4, columns, error.message);
            if (!(difference < 1e-3)) fail_msg("module %d of %d: %s differs by %g", i % 4, columns, worst, difference);
            sl_module_free(module);
        }
    }
}

/* ---- refusals ---- */

static int plan_program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    const int status = plan_worker(self, &worker, arg);
    close_worker(&worker);
    return status;
}

/* Planning JOB on the mesh ON fails with this line. */
static void refuse(const char *on, struct job job, const char *line) {
    job.group = job.window = 1;
    EXPECT_VERDICT(((struct test_run){.mesh = on, .arg = &job}), plan_program, SL_BAD_INPUT, line);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    refuse("tensor=5", (struct job){.kind = SHARDED},
           "a.sharded_dense: 24 columns do not divide by the 5 coordinates along \"tensor\"");
    refuse("tensor=3", (struct job){.kind = SHARDED},
           "a.sharded_dense: 40 columns do not divide by the 3 coordinates along \"tensor\"");
    refuse("tensor=4", (struct job){.kind = SUMMED, .segments_in = 4, .kernel_rule = "tensor*4"},
           "a.summed_dense: 24 columns in 4 segments do not divide by the 4 coordinates along \"tensor\"");
    refuse("tensor=4", (struct job){.kind = SHARDED, .segments_out = 4},
           "a.sharded_dense: 40 columns in 4 segments do not divide by the 4 coordinates along \"tensor\"");
    refuse("tensor=5", (struct job){.kind = NORM},
           "a.rms_norm: 24 columns do not divide by the 5 coordinates along \"tensor\"");
    refuse("tensor=5", (struct job){.kind = DROPOUT},
           "dropout: 12 columns do not divide by the 5 coordinates along \"tensor\"");

    refuse("tensor=2", (struct job){.kind = SHARDED, .kernel_rule = ""},
           "a.kernel is sharded as '', but its module needs 'tensor' for dim 0");
    refuse("tensor=2", (struct job){.kind = SHARDED, .segments_in = 2},
           "a.kernel is sharded as 'tensor', but its module needs 'tensor*2' for dim 0");
    refuse("tensor=2", (struct job){.kind = SHARDED, .kernel_rule = "tensor*2"},
           "a.kernel is sharded as 'tensor*2', but its module needs 'tensor' for dim 0");
    refuse("data=2", (struct job){.kind = SUMMED, .kernel_rule = "data"},
           "a.kernel is sharded as 'data', but its module needs '-' for dim 0");
    refuse("tensor=2,data=2", (struct job){.kind = SHARDED, .kernel_rule = "data,tensor"},
           "a.kernel is sharded as 'data,tensor', but its module needs 'tensor' for dim 0");
    refuse("data=2,pipe=2", (struct job){.kind = SHARDED, .kernel_rule = "-,data+pipe"},
           "a.kernel is sharded as '-,data+pipe', but its module needs '-' for dim 1");
    refuse("data=2", (struct job){.kind = SHARDED, .kernel_rule = "-,data*2"},
           "a.kernel is sharded as '-,data*2', but its module needs 'data' for dim 1");
    refuse("tensor=2", (struct job){.kind = SHARDED, .bias_rule = "tensor"},
           "a.bias is sharded as 'tensor', but its module needs '-' for dim 0");
    refuse("tensor=2", (struct job){.kind = NORM, .scale_rule = "tensor*2"},
           "a.gamma is sharded as 'tensor*2', but its module needs 'tensor' for dim 0");

    refuse("tensor=2", (struct job){.kind = SHARDED, .unopened = "tensor"},
           "no group over \"tensor\" has been opened for modules");
    refuse("data=2", (struct job){.kind = SHARDED, .kernel_rule = "tensor,data", .unopened = "data"},
           "no group over \"data\" has been opened for modules");
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharded_dense_is_dense),
        cmocka_unit_test(summed_dense_is_dense),
        cmocka_unit_test(data_shards_kernels),
        cmocka_unit_test(initial_values_are_those_of_one_coordinate),
        cmocka_unit_test(rms_norm_is_that_of_whole_rows),
        cmocka_unit_test(dropout_drops_the_same_everywhere),
        cmocka_unit_test(blocks_are_those_of_one_coordinate),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(forward_alone_keeps_nothing),
        cmocka_unit_test(frozen_kernels_keep_nothing),
        cmocka_unit_test(frozen_parts_of_a_block_keep_less),
        cmocka_unit_test(gradients_are_those_of_forward),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
