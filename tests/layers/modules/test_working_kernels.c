/* test_working_kernels.c - kernels with values in bf16 only, without training: they equal rounded float values from any
 * source, in half the memory. */
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"
#include "layers/training/exchange.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/memory.h"
#include "tests/rigs/run_on.h"

enum { IN = 40, OUT = 24, DATA = 2, MODELS = 2 };

/* Models of one layer: with float values, and without. Coordinate 0 exports its values. */
struct trial {
    bool together; /* the members hold their values together */
    struct sl_store store[MODELS];
    size_t bytes[MODELS];
};

/* A layer, and its parameters. */
struct layer {
    struct sl_module *module;
    struct sl_stash stash;
    struct sl_parameters parameters;
};

static int plan_layer(struct sl_spmd *self, struct layer *layer, const struct trial *trial, bool alone) {
    struct sl_parameters *parameters = &layer->parameters;
    layer->module = sl_dense("d", IN, OUT);
    if (!layer->module || sl_parameters_open(parameters, 1)) return sl_fail(self, SL_FAILED, "no memory");
    parameters->data_axis = "data";
    parameters->working_bf16 = true;
    parameters->values_only = alone;
    parameters->one_copy = trial->together;
    struct sl_plan plan = {.mesh = self->mesh,
                           .gemm = sl_gemm_find("reference", &self->error),
                           .rows = 4,
                           .wgrad_group = 1,
                           .parameters = parameters,
                           .stash = &layer->stash,
                           .forward_only = true,
                           .error = &self->error};
    SL_TRY(sl_module_plan(layer->module, &plan));
    sl_parameters_layout(parameters, DATA, sl_axis_index(self, "data"), trial->together);
    sl_parameters_seed(parameters, 5);
    return SL_OK;
}

static int fill_layer(struct sl_spmd *self, struct layer *layer, const struct sl_store *from, struct sl_store *to) {
    struct sl_group data, world;
    SL_TRY(sl_group_axes(self, "data", &data));
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(sl_parameters_take_common(&layer->parameters, self, &data));
    SL_TRY(sl_parameters_take(&layer->parameters, &self->error));
    SL_TRY(from ? sl_import(self, &world, &layer->parameters, SL_VALUES, from)
                : sl_parameters_initialize(&layer->parameters, self, &data));
    SL_TRY(sl_export(self, &world, &layer->parameters, SL_VALUES, 1.0f, to));
    SL_TRY(sl_group_close(self, &world));
    return sl_group_close(self, &data);
}

static void close_layer(struct layer *layer) {
    sl_parameters_close(&layer->parameters);
    sl_module_free(layer->module);
    free(layer->stash.tensor);
}

/* Both have initial values of the same seed. */
static int initialize_both(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    int status = SL_OK;
    for (int alone = 0; alone < MODELS && status == SL_OK; alone++) {
        struct layer layer = {0};
        struct sl_store store = {0}, *to = self->coordinate == 0 ? &trial->store[alone] : &store;
        status = plan_layer(self, &layer, trial, alone);
        if (status == SL_OK) status = fill_layer(self, &layer, NULL, to);
        if (self->coordinate == 0) trial->bytes[alone] = sl_parameters_each_bytes(&layer.parameters).values;
        sl_store_free(&store);
        close_layer(&layer);
    }
    return status;
}

/* The second takes the first's values. */
static int import_them(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    struct layer layer = {0};
    struct sl_store store = {0}, *to = self->coordinate == 0 ? &trial->store[1] : &store;
    int status = plan_layer(self, &layer, trial, true);
    if (status == SL_OK) status = fill_layer(self, &layer, &trial->store[0], to);
    sl_store_free(&store);
    close_layer(&layer);
    return status;
}

static void expect_rounded(const struct trial *trial) {
    if (!has_results()) return;
    const float *kernel = sl_store_find(&trial->store[0], "d.kernel")->array.data;
    const float *rounded = sl_store_find(&trial->store[1], "d.kernel")->array.data;
    int changed = 0;
    for (int i = 0; i < IN * OUT; i++) {
        assert_true(rounded[i] == sl_float_of_bf16(sl_bf16_of_float(kernel[i])));
        changed += rounded[i] != kernel[i];
    }
    assert_true(changed > IN * OUT / 2);
    const float *bias = sl_store_find(&trial->store[0], "d.bias")->array.data;
    assert_memory_equal(sl_store_find(&trial->store[1], "d.bias")->array.data, bias, OUT * sizeof *bias);
}

static void both(bool together) {
    struct trial trial = {.together = together};
    struct sl_error error;
    const struct test_run run = {.mesh = "data=2", .arg = &trial};
    if (run_on(run, initialize_both, &error)) fail_msg("%s", error.message);
    expect_rounded(&trial);
    /* Two bytes for each element of the kernel, four for the bias; ranges are padded. */
    if (has_results()) {
        const size_t members = together ? DATA : 1;
        const size_t bytes = IN * OUT * sizeof(uint16_t) + sl_round_up(OUT * sizeof(float), DATA * SL_CACHE_LINE);
        assert_int_equal(trial.bytes[1], bytes / members);
        sl_store_free(&trial.store[1]);
        struct sl_tensor *bias = sl_store_find(&trial.store[0], "d.bias");
        for (int i = 0; i < OUT; i++) ((float *)bias->array.data)[i] = 1.0f + 0x1p-20f * (float)i;
    }
    if (run_on(run, import_them, &error)) fail_msg("%s", error.message);
    expect_rounded(&trial);
    for (int i = 0; i < MODELS; i++) sl_store_free(&trial.store[i]);
}

static void each_has_its_own(void **state) {
    (void)state;
    both(false);
}

static void they_hold_them_together(void **state) {
    (void)state;
    if (shares_memory()) both(true);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_its_own),
        cmocka_unit_test(they_hold_them_together),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
