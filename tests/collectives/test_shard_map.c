/* test_shard_map.c - functions mapped over shards of global arrays, on the local engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/engines.h"
#include "spmd/random.h"
#include "collectives/shard_map.h"

/* Uniform in [0, n), the same in every run. */
static uint32_t draw(uint32_t n) {
    static uint32_t count;
    return sl_random_word(sl_key_of_seed(3), UINT32_MAX, count++) % n;
}

/* A map with everything it points to. */
struct fixture {
    struct sl_mesh mesh;
    struct sl_engine engine;
    struct sl_error error;
    struct sl_shard_map map;
    struct sl_array input[SL_MAX_ARRAYS], output[SL_MAX_ARRAYS];
    struct sl_spec in_spec[SL_MAX_ARRAYS], out_spec[SL_MAX_ARRAYS];
};

static void open_fixture(struct fixture *fixture, const char *mesh) {
    *fixture = (struct fixture){.map = {0}};
    assert_int_equal(sl_mesh_parse(&fixture->mesh, mesh, NULL), SL_OK);
    assert_int_equal(sl_engine_open(&fixture->engine, "local", NULL), SL_OK);
    fixture->engine.checked = true;
    fixture->engine.error = &fixture->error;
    fixture->map = (struct sl_shard_map){
        .input = fixture->input, .in_spec = fixture->in_spec, .output = fixture->output, .out_spec = fixture->out_spec};
}

static void add_input(struct fixture *fixture, struct sl_array array, const char *spec) {
    const int i = fixture->map.inputs++;
    fixture->input[i] = array;
    assert_int_equal(sl_spec_parse(&fixture->in_spec[i], spec, NULL), SL_OK);
}

static void add_output(struct fixture *fixture, struct sl_array array, const char *spec) {
    const int i = fixture->map.outputs++;
    fixture->output[i] = array;
    assert_int_equal(sl_spec_parse(&fixture->out_spec[i], spec, NULL), SL_OK);
}

static int run_fixture(struct fixture *fixture, sl_shard_function *function, void *arg) {
    return sl_shard_map_run(&fixture->map, &fixture->mesh, &fixture->engine, function, arg);
}

/* Runs, and fails the test with the run's own message. */
static void expect_ok(struct fixture *fixture, sl_shard_function *function, void *arg) {
    if (run_fixture(fixture, function, arg)) fail_msg("%s", fixture->error.message);
}

static void expect_failure(struct fixture *fixture, sl_shard_function *function, void *arg, int status,
                           const char *first, const char *second) {
    memset(&fixture->error, 0, sizeof fixture->error);
    assert_int_equal(run_fixture(fixture, function, arg), status);
    const char *message = fixture->error.message;
    if (!strstr(message, first) || !strstr(message, second)) fail_msg("%s", message);
}

/* ---- vector addition on a 2 x 4 mesh ---- */

static int add_vectors(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    (void)arg;
    const float *a = in[0].data, *b = in[1].data;
    float *sum = out[0].data;
    if (in[0].dims != 1 || in[0].shape[0] != 2 || out[0].shape[0] != 2) return sl_fail(self, SL_FAILED, "wrong shape");
    for (size_t i = 0; i < in[0].shape[0]; i++) sum[i] = a[i] + b[i];
    return SL_OK;
}

static void test_vector_addition(void **state) {
    (void)state;
    float a[16], b[16], sum[16];
    for (int i = 0; i < 16; i++) a[i] = (float)i, b[i] = 100 - 3 * (float)i, sum[i] = -1;
    struct fixture fixture;
    open_fixture(&fixture, "data=2,model=4");
    add_input(&fixture, (struct sl_array){SL_F32, 1, {16}, a}, "data+model");
    add_input(&fixture, (struct sl_array){SL_F32, 1, {16}, b}, "data+model");
    add_output(&fixture, (struct sl_array){SL_F32, 1, {16}, sum}, "data+model");
    expect_ok(&fixture, add_vectors, NULL);
    for (int i = 0; i < 16; i++) assert_true(sum[i] == 100 - 2 * (float)i);
}

/* ---- [k|v]: x [rows, in] times kv [in, 2 * heads], split over heads within k and within v ---- */

enum { ROWS = 6, IN = 3, HEADS = 4 };

static int project(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    (void)self, (void)arg;
    const int32_t *x = in[0].data, *weights = in[1].data;
    const size_t rows = in[0].shape[0], inner = in[1].shape[0], columns = in[1].shape[1], heads = columns / 2;
    int32_t *kv = out[0].data, *product = out[1].data;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            for (size_t k = 0; k < inner; k++) kv[r * columns + c] += x[r * inner + k] * weights[k * columns + c];
        }
        /* k and v of one head are here together */
        for (size_t h = 0; h < heads; h++) product[r * heads + h] = kv[r * columns + h] * kv[r * columns + heads + h];
    }
    return SL_OK;
}

static void test_segments(void **state) {
    (void)state;
    int32_t x[ROWS][IN], weights[IN][2 * HEADS], kv[ROWS][2 * HEADS], product[ROWS][HEADS];
    for (int i = 0; i < ROWS * IN; i++) x[i / IN][i % IN] = (int32_t)draw(100);
    for (int i = 0; i < IN * 2 * HEADS; i++) weights[i / (2 * HEADS)][i % (2 * HEADS)] = (int32_t)draw(100);
    struct fixture fixture;
    open_fixture(&fixture, "data=3,tensor=2");
    add_input(&fixture, (struct sl_array){SL_I32, 2, {ROWS, IN}, x}, "data");
    add_input(&fixture, (struct sl_array){SL_I32, 2, {IN, 2 * HEADS}, weights}, "-,tensor*2");
    add_output(&fixture, (struct sl_array){SL_I32, 2, {ROWS, 2 * HEADS}, kv}, "data,tensor*2");
    add_output(&fixture, (struct sl_array){SL_I32, 2, {ROWS, HEADS}, product}, "data,tensor");
    expect_ok(&fixture, project, NULL);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < 2 * HEADS; c++) {
            int32_t expected = 0;
            for (int k = 0; k < IN; k++) expected += x[r][k] * weights[k][c];
            assert_int_equal(kv[r][c], expected);
        }
        for (int h = 0; h < HEADS; h++) assert_int_equal(product[r][h], kv[r][h] * kv[r][HEADS + h]);
    }
}

/* ---- replicated outputs ---- */

static int sum_over_model(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    struct sl_group model;
    SL_TRY(sl_group_axes(self, "model", &model));
    SL_TRY(sl_psum(self, &model, SL_F32, in[0].data, out[0].data, in[0].shape[0]));
    const int *spoiler = arg; /* the coordinate with another result */
    if (spoiler && self->coordinate == *spoiler) ((float *)out[0].data)[1] += 1;
    return SL_OK;
}

static void test_replicated_output(void **state) {
    (void)state;
    float x[24], sums[6];
    for (int i = 0; i < 24; i++) x[i] = (float)(i * i);
    struct fixture fixture;
    open_fixture(&fixture, "data=2,model=4");
    add_input(&fixture, (struct sl_array){SL_F32, 1, {24}, x}, "data+model"); /* [data, model, 3] */
    add_output(&fixture, (struct sl_array){SL_F32, 1, {6}, sums}, "data");    /* [data, 3] */
    expect_ok(&fixture, sum_over_model, NULL);
    for (int i = 0; i < 6; i++) {
        float expected = 0;
        for (int m = 0; m < 4; m++) expected += x[i / 3 * 12 + m * 3 + i % 3];
        assert_true(sums[i] == expected);
    }
    int spoiler = 6;
    expect_failure(&fixture, sum_over_model, &spoiler, SL_FAILED, "4 (data=1, model=0)", "6 (data=1, model=2)");
    assert_non_null(strstr(fixture.error.message, "output 0"));
}

/* ---- random layouts: the identity moves arrays from one layout to the same ---- */

static int copy(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    (void)self, (void)arg;
    const size_t bytes = sl_array_elements(&in[0]) * sl_dtype_size(in[0].dtype);
    for (size_t i = 0; i < bytes; i++) {
        if (((const char *)out[0].data)[i]) return sl_fail(self, SL_FAILED, "a shard to fill is not zeroed");
    }
    memcpy(out[0].data, in[0].data, bytes);
    return SL_OK;
}

static void test_random_layouts(void **state) {
    (void)state;
    static const char *const spec[] = {"",      "a",       "-,b",     "b,a",   "-,a+b",   "b+a",
                                       "a*3,b", "b*2,-,-", "-,b+a*2", "-,-,a", "b,-,a*2", "a,b,-"};
    for (int round = 0; round < 60; round++) {
        struct fixture fixture;
        char mesh[40];
        snprintf(mesh, sizeof mesh, "a=%d,b=%d", 1 + (int)draw(3), 1 + (int)draw(4));
        open_fixture(&fixture, mesh);
        struct sl_array array = {.dtype = (enum sl_dtype)draw(3), .dims = 3};
        const size_t step = 2 * 3 * (size_t)fixture.mesh.size;
        for (int d = 0; d < 3; d++) array.shape[d] = draw(20) ? step * (1 + draw(2)) : 0;
        const char *text = spec[draw(sizeof spec / sizeof *spec)];
        const size_t bytes = sl_array_elements(&array) * sl_dtype_size(array.dtype);
        unsigned char *from = malloc(bytes + 1), *to = malloc(bytes + 1);
        for (size_t i = 0; i <= bytes; i++) from[i] = (unsigned char)draw(256), to[i] = 0x77;
        array.data = from;
        add_input(&fixture, array, text);
        array.data = to;
        add_output(&fixture, array, text);
        expect_ok(&fixture, copy, NULL);
        assert_memory_equal(from, to, bytes);
        assert_int_equal(to[bytes], 0x77);
        free(from);
        free(to);
    }
}

/* ---- failures ---- */

static int fail_at_three(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    (void)in, (void)out, (void)arg;
    return self->coordinate == 3 ? sl_fail(self, SL_CHECK_FAILED, "the value %d", 7) : SL_OK;
}

static int never_called(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg) {
    (void)self, (void)in, (void)out;
    *(bool *)arg = true;
    return SL_OK;
}

static void test_failing_function(void **state) {
    (void)state;
    float x[8] = {0}, y[8];
    struct fixture fixture;
    open_fixture(&fixture, "data=2,model=4");
    add_input(&fixture, (struct sl_array){SL_F32, 1, {8}, x}, "data");
    add_output(&fixture, (struct sl_array){SL_F32, 1, {8}, y}, "data");
    expect_failure(&fixture, fail_at_three, NULL, SL_CHECK_FAILED, "3 (data=0, model=3)", "the value 7");
}

static void test_bad_maps(void **state) {
    (void)state;
    float x[12] = {0};
    bool called = false;
    struct fixture good, bad;
    open_fixture(&good, "data=2,model=4");
    add_input(&good, (struct sl_array){SL_F32, 1, {8}, x}, "data");
    add_output(&good, (struct sl_array){SL_F32, 2, {4, 3}, x}, "data");
#define REFUSED(change, first, second)                                                                                 \
    do {                                                                                                               \
        bad = good;                                                                                                    \
        bad.map.input = bad.input, bad.map.in_spec = bad.in_spec;                                                      \
        bad.map.output = bad.output, bad.map.out_spec = bad.out_spec;                                                  \
        bad.engine.error = &bad.error;                                                                                 \
        change;                                                                                                        \
        expect_failure(&bad, never_called, &called, SL_BAD_INPUT, first, second);                                      \
    } while (0)
    REFUSED(bad.input[0].shape[0] = 9, "input 0", "size 9");
    REFUSED(sl_spec_parse(&bad.out_spec[0], "-,model", NULL), "output 0", "size 3");
    REFUSED(sl_spec_parse(&bad.out_spec[0], "-,tensor", NULL), "output 0", "'tensor'");
    REFUSED(bad.input[0].dims = 7, "input 0", "7 dims");
    REFUSED(bad.input[0].data = NULL, "input 0", "no data");
    REFUSED(bad.output[0].dtype = (enum sl_dtype)9, "output 0", "9 is no dtype");
    REFUSED(bad.map.inputs = SL_MAX_ARRAYS + 1, "17 inputs", "0 to 16");
    REFUSED(bad.map.outputs = -1, "-1 outputs", "0 to 16");
    REFUSED(bad.output[0].shape[0] = (size_t)1 << 62; bad.output[0].shape[1] = 64, "output 0", "more elements");
    REFUSED(bad.output[0].shape[0] = (size_t)1 << 59; bad.output[0].shape[1] = 1, "output 0", "more elements");
    REFUSED(bad.mesh.size = 9, "mesh", "9");
    assert_false(called);
    expect_failure(&good, NULL, NULL, SL_BAD_INPUT, "shard_map", "no function");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector_addition),   cmocka_unit_test(test_segments),
        cmocka_unit_test(test_replicated_output), cmocka_unit_test(test_random_layouts),
        cmocka_unit_test(test_failing_function),  cmocka_unit_test(test_bad_maps),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
