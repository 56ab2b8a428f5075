/* module_rig.h - one module without a model: planned, with storage and random values, run by hand. Includes cmocka.
 *
 * The runs below wait for the device's queue, so tests may read their results at once. */
#ifndef SL_TESTS_RIGS_MODULE_RIG_H
#define SL_TESTS_RIGS_MODULE_RIG_H

#include "tests/rigs/numbers.h"

#include <string.h>

#include "layers/modules/modules.h"

enum { ROWS = 5, MICROBATCHES = 4 }; /* of most tests */

struct rig {
    struct sl_module *module;
    struct sl_mesh mesh;
    struct sl_spmd self;
    struct sl_parameters parameters;
    struct sl_stash stash;
    struct sl_context context;
    int microbatches;
    size_t inputs, outputs; /* elements a microbatch */
    float *x, *y, *dy, *dx; /* [microbatches][rows, columns] */
};

static inline void draw(uint64_t seed, size_t n, float *values) {
    const struct sl_key key = sl_key_of_seed(seed);
    for (size_t i = 0; i < n; i++) values[i] = sl_normal_of_word(sl_random_word(key, (uint32_t)n, (uint32_t)i));
}

/* Plans MODULE with LIKE's rows, group, precision, frozen parameters and other settings. Products are the build's
 * unless LIKE names others. */
static inline int plan_rig_like(struct rig *rig, const struct sl_plan *like, struct sl_module *module, int microbatches,
                                struct sl_plan *plan, struct sl_error *error) {
    *rig = (struct rig){.module = module, .microbatches = microbatches};
    rig->mesh = (struct sl_mesh){.axes = 1, .axis = {{"data", 1}}, .size = 1};
    rig->self.mesh = &rig->mesh;
    assert_int_equal(sl_parameters_open(&rig->parameters, 1), SL_OK);
    if (like->parameters) rig->parameters.frozen = like->parameters->frozen;
    *plan = *like;
    plan->mesh = &rig->mesh;
    if (!plan->gemm) plan->gemm = sl_gemm_find(NULL, NULL);
    plan->parameters = &rig->parameters;
    plan->stash = &rig->stash;
    plan->error = error;
    return sl_module_plan(module, plan);
}

static inline int plan_rig_in(struct rig *rig, enum sl_dtype precision, struct sl_module *module, int rows,
                              int microbatches, int group, struct sl_plan *plan, struct sl_error *error) {
    const struct sl_plan like = {.precision = precision, .rows = rows, .wgrad_group = group};
    return plan_rig_like(rig, &like, module, microbatches, plan, error);
}

static inline int plan_rig(struct rig *rig, struct sl_module *module, int rows, int microbatches, int group,
                           struct sl_plan *plan, struct sl_error *error) {
    return plan_rig_in(rig, SL_F32, module, rows, microbatches, group, plan, error);
}

static inline void open_rig_like(struct rig *rig, const struct sl_plan *like, struct sl_module *module,
                                 int microbatches) {
    const int rows = like->rows;
    struct sl_error error = {0};
    struct sl_plan plan;
    assert_non_null(module);
    assert_int_equal(plan_rig_like(rig, like, module, microbatches, &plan, &error), SL_OK);
    assert_string_equal(plan.name, "");
    sl_parameters_layout(&rig->parameters, 1, 0, false);
    assert_int_equal(sl_parameters_take(&rig->parameters, &error), SL_OK);
    rig->stash.slots = microbatches;
    rig->stash.data = sl_device.take(rig->stash.elements * (size_t)microbatches * sizeof(float));
    rig->inputs = (size_t)rows * (size_t)module->in;
    rig->outputs = (size_t)rows * (size_t)module->out;
    rig->x = device_floats((size_t)microbatches * rig->inputs);
    rig->dx = device_floats((size_t)microbatches * rig->inputs);
    rig->y = device_floats((size_t)microbatches * rig->outputs);
    rig->dy = device_floats((size_t)microbatches * rig->outputs);
    rig->context = (struct sl_context){.self = &rig->self,
                                       .kernels = sl_kernels_select(),
                                       .rows = rows,
                                       .sequence = like->sequence,
                                       .wgrad_group = like->wgrad_group,
                                       .dropout.step_key = sl_key_of_seed(7),
                                       .parameters = &rig->parameters,
                                       .stash = &rig->stash,
                                       .workspace = sl_device.take(plan.workspace_peak)};
    assert_non_null(rig->stash.data);
    assert_non_null(rig->context.workspace);
    draw(1, (size_t)microbatches * rig->inputs, rig->x);
    draw(2, (size_t)microbatches * rig->outputs, rig->dy);
    for (int i = 0; i < rig->parameters.count; i++)
        draw(3 + (uint64_t)i, rig->parameters.list[i].count, sl_parameter_value(&rig->parameters, i));
    sl_parameters_round(&rig->parameters, rig->context.kernels, 0);
}

static inline void open_rig_in(struct rig *rig, enum sl_dtype precision, struct sl_module *module, int rows,
                               int microbatches, int group) {
    const struct sl_plan like = {.precision = precision, .rows = rows, .wgrad_group = group};
    open_rig_like(rig, &like, module, microbatches);
}

static inline void open_rig(struct rig *rig, struct sl_module *module, int rows, int microbatches, int group) {
    open_rig_in(rig, SL_F32, module, rows, microbatches, group);
}

static inline void close_rig(struct rig *rig) {
    release_array(rig->x);
    release_array(rig->dx);
    release_array(rig->y);
    release_array(rig->dy);
    sl_device.give(rig->stash.data);
    sl_device.give(rig->context.workspace);
    free(rig->stash.tensor);
    sl_parameters_close(&rig->parameters);
    sl_module_free(rig->module);
}

static inline void set_microbatch(struct rig *rig, int microbatch) {
    rig->context.microbatch = microbatch;
    rig->context.dropout.first_row = (uint32_t)(microbatch * rig->context.rows);
}

static inline void forward(struct rig *rig) {
    for (int m = 0; m < rig->microbatches; m++) {
        set_microbatch(rig, m);
        assert_int_equal(rig->module->type->forward(rig->module, &rig->context,
                                                    sl_given_f32(rig->x + (size_t)m * rig->inputs),
                                                    SL_INTO(rig->y + (size_t)m * rig->outputs)),
                         SL_OK);
    }
    sl_device.settle(NULL);
}

/* ROWS as a module with this USE receives them in backward. */
static inline struct sl_given kept_given(const struct sl_use *use, const float *rows) {
    return sl_given_f32(sl_is_kept(use) ? rows : NULL);
}

static inline void backward(struct rig *rig) {
    const struct sl_module *module = rig->module;
    for (int m = 0; m < rig->microbatches; m++) {
        set_microbatch(rig, m);
        assert_int_equal(module->type->backward_input(module, &rig->context,
                                                      kept_given(&module->x, rig->x + (size_t)m * rig->inputs),
                                                      sl_given_f32(rig->dy + (size_t)m * rig->outputs),
                                                      SL_INTO(rig->dx + (size_t)m * rig->inputs)),
                         SL_OK);
    }
    sl_device.settle(NULL);
}

static inline void weigh(struct rig *rig, bool accumulate) {
    const struct sl_module *module = rig->module;
    for (int m = 0; m < rig->microbatches; m += rig->context.wgrad_group) {
        set_microbatch(rig, m);
        rig->context.accumulate = accumulate || m > 0;
        assert_int_equal(module->type->backward_weight(module, &rig->context,
                                                       kept_given(&module->x, rig->x + (size_t)m * rig->inputs),
                                                       kept_given(&module->y, rig->dy + (size_t)m * rig->outputs)),
                         SL_OK);
    }
    sl_device.settle(NULL);
}

static inline const float *value_of(const struct rig *rig, const char *name) {
    for (int i = 0; i < rig->parameters.count; i++)
        if (!strcmp(rig->parameters.list[i].name, name)) return sl_parameter_value(&rig->parameters, i);
    fail_msg("no parameter %s", name);
    return NULL;
}

static inline void assert_close(size_t n, const float *given, const double *expected, double tolerance) {
    for (size_t i = 0; i < n; i++) expect_close("y", i, given[i], expected[i], tolerance, tolerance);
}

static inline double *widen(size_t n, const float *x) {
    double *wide = array_of(n, sizeof *wide);
    for (size_t i = 0; i < n; i++) wide[i] = x[i];
    return wide;
}

/* Word (row, column) by global position. */
static inline uint32_t global_word(struct sl_key key, uint32_t row, uint32_t column) {
    uint32_t half[2];
    sl_threefry2x32(key, row, column / 2, &half[0], &half[1]);
    return half[column & 1];
}

#endif
