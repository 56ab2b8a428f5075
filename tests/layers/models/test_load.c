/* test_load.c - the work counted by planning: products as in the model's formula, in every layout, without running
 * it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/engines.h"
#include "collectives/paper.h"
#include "layers/models/transformer.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"

enum { SEQUENCE = 16, ROWS = 32, MICROBATCHES = 4 };

static const struct sl_transformer small = {.vocabulary = 96,
                                            .dimension = 32,
                                            .heads = 4,
                                            .blocks = 2,
                                            .layers_per_block = 2,
                                            .latent = 16,
                                            .rope = 4,
                                            .positions = SEQUENCE};

struct layout {
    const char *mesh, *schedule;
    int loops, fuse, group;
    struct sl_transformer model;
    const char *freeze;  /* patterns; NULL: nothing is frozen */
    enum sl_dtype dtype; /* of products and of saved numbers */
    /* Filled in. */
    struct sl_schedule table;
    struct sl_load load; /* of the coordinate planned last */
};

static int program(struct sl_spmd *self, void *arg) {
    struct layout *layout = arg;
    struct sl_model model = {0};
    struct sl_trainer *trainer = NULL;
    const struct sl_trainer_options options = {.pipeline = {.axis = sl_pipe_axis,
                                                            .schedule = &layout->table,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .rules = sl_transformer_rules(&layout->model, self->mesh),
                                                            .group_axes = sl_transformer_axes(self->mesh),
                                                            .rows = ROWS,
                                                            .sequence = SEQUENCE,
                                                            .sizes_only = true,
                                                            .load = &layout->load,
                                                            .precision = layout->dtype,
                                                            .storage = layout->dtype,
                                                            .wgrad_group = layout->group},
                                               .freeze = layout->freeze,
                                               .data_axis = sl_data_axis,
                                               .optimizer = sl_adamw_defaults(1e-3f),
                                               .zero = 1};
    if (sl_load_open(&layout->load, layout->table.loops)) return SL_FAILED;
    int status = sl_transformer_build(&layout->model, self->mesh, &layout->table, sl_axis_index(self, sl_pipe_axis),
                                      &model, &self->error);
    if (status == SL_OK) status = sl_trainer_plan(&trainer, self, &options, &model);
    sl_trainer_close(trainer);
    sl_model_free(&model);
    return status;
}

/* Floating-point operations of PART's products in a step, of one coordinate. */
static double operations(const struct sl_load *load, int part) {
    double sum = 0;
    for (int l = 0; l < load->loops; l++) {
        const struct sl_load_work *work = &load->loop[l].part[part];
        for (int i = 0; i < work->products; i++) {
            const struct sl_load_product *x = &work->product[i];
            sum += 2.0 * x->m * x->n * x->k * x->count * MICROBATCHES;
        }
    }
    return sum;
}

/* Calls over AXES, and *BYTES of all of them. */
static double calls(const struct sl_load *load, int part, const char *axes, double *bytes) {
    double sum = 0;
    for (int l = 0; l < load->loops; l++) {
        const struct sl_load_work *work = &load->loop[l].part[part];
        for (int i = 0; i < work->calls; i++) {
            if (strcmp(work->call[i].axes, axes) != 0) continue;
            sum += work->call[i].count;
            *bytes += work->call[i].bytes * work->call[i].count;
        }
    }
    return sum;
}

struct sums {
    double operations[SL_LOAD_PARTS], attention[SL_LOAD_PARTS], calls[SL_LOAD_PARTS], bytes[SL_LOAD_PARTS];
    int data;
};

/* Sums over all coordinates; calls are over tensor. */
static struct sums count(struct layout *layout) {
    struct sl_mesh mesh;
    struct sl_error error = {0};
    struct sums sums = {.data = 1};
    bool fused;
    const struct sl_engine engine = {.table = &sl_engine_local};
    assert_int_equal(sl_mesh_parse(&mesh, layout->mesh, &error), SL_OK);
    sums.data = sl_mesh_axis_size(&mesh, sl_data_axis);
    assert_int_equal(sl_schedule_make(&layout->table, layout->schedule, sl_mesh_axis_size(&mesh, sl_pipe_axis),
                                      layout->loops, MICROBATCHES, &error),
                     SL_OK);
    if (layout->fuse) assert_int_equal(sl_schedule_fuse(&layout->table, layout->fuse, &fused, &error), SL_OK);
    assert_int_equal(sl_schedule_lower(&layout->table, &error), SL_OK);
    for (int c = 0; c < mesh.size; c++) {
        if (sl_paper_run(&mesh, &engine, c, program, layout, &error)) fail_msg("%s: %s", layout->mesh, error.message);
        assert_false(layout->load.failed);
        for (int part = 0; part < SL_LOAD_PARTS; part++) {
            sums.operations[part] += operations(&layout->load, part);
            sums.calls[part] += calls(&layout->load, part, sl_tensor_axis, &sums.bytes[part]);
            for (int l = 0; l < layout->load.loops; l++)
                sums.attention[part] += layout->load.loop[l].part[part].attention * MICROBATCHES;
        }
        sl_load_close(&layout->load);
    }
    sl_schedule_free(&layout->table);
    return sums;
}

/* Returns the formula without attention, which grows with half of the sequence and one. */
static double products_of(const struct sl_transformer *model) {
    return 2 * sl_transformer_flops(model, 1) - sl_transformer_flops(model, 3);
}

static void check(struct layout layout) {
    layout.model = layout.model.vocabulary ? layout.model : small;
    const struct sums sums = count(&layout);
    const double tokens = (double)sums.data * ROWS * MICROBATCHES;
    const double products = products_of(&layout.model) * tokens;
    const double attention = sl_transformer_flops(&layout.model, SEQUENCE) * tokens - products;
    double all = 0;
    for (int part = 0; part < SL_LOAD_PARTS; part++) all += sums.operations[part];
    if (fabs(all - products) > 1e-9 * products) fail_msg("%s: %.9g, not %.9g", layout.mesh, all, products);
    if (fabs(2 * sums.attention[SL_LOAD_FORWARD] - attention / 3) > 1e-9 * attention)
        fail_msg("%s: attention %.9g, not %.9g", layout.mesh, 2 * sums.attention[SL_LOAD_FORWARD], attention / 3);
}

static void products_are_the_formulas(void **state) {
    (void)state;
    check((struct layout){.mesh = "data=1", .schedule = "1f1b", .loops = 1, .group = 1});
    check((struct layout){.mesh = "data=2", .schedule = "gpipe", .loops = 1, .fuse = 2, .group = 4});
    check((struct layout){.mesh = "pipe=2", .schedule = "1f1b", .loops = 1, .group = 2});
    check((struct layout){.mesh = "pipe=2", .schedule = "looped-bfs", .loops = 2, .fuse = 2, .group = 4});
    check((struct layout){.mesh = "data=2,pipe=2,tensor=2", .schedule = "1f1b", .loops = 1, .group = 1});
    struct sl_transformer pieces = small;
    pieces.tensor_pieces = 4;
    check((struct layout){
        .mesh = "data=2,tensor=2", .schedule = "gpipe", .loops = 1, .fuse = 2, .group = 2, .model = pieces});
    struct sl_transformer fsdp = small;
    fsdp.fsdp = true;
    check((struct layout){.mesh = "data=4,tensor=2", .schedule = "gpipe", .loops = 1, .group = 4, .model = fsdp});
}

/* With a vocabulary in chunks the head computes its logits again for W, unless it has saved them. */
static void chunks_are_computed_again(void **state) {
    (void)state;
    struct layout whole = {.mesh = "data=1", .schedule = "1f1b", .loops = 1, .group = 1, .model = small},
                  chunked = whole;
    chunked.model.chunk = 40; /* 40, 40, 16 */
    const struct sums a = count(&whole), b = count(&chunked);
    const double logits = 2.0 * ROWS * MICROBATCHES * small.vocabulary * small.dimension;
    assert_true(a.operations[SL_LOAD_FORWARD] == b.operations[SL_LOAD_FORWARD]);
    assert_true(a.operations[SL_LOAD_WEIGHT] + logits == b.operations[SL_LOAD_WEIGHT]);
    chunked.model.keep_logits = true;
    const struct sums kept = count(&chunked);
    assert_true(a.operations[SL_LOAD_FORWARD] == kept.operations[SL_LOAD_FORWARD]);
    assert_true(a.operations[SL_LOAD_WEIGHT] == kept.operations[SL_LOAD_WEIGHT]);
}

static void recomputation_does_forward_again(void **state) {
    (void)state;
    struct layout none = {.mesh = "data=1", .schedule = "1f1b", .loops = 1, .group = 1, .model = small}, full = none;
    full.model.recomputation = 2;
    const struct sums a = count(&none), b = count(&full);
    const double head = 2 * 2.0 * ROWS * MICROBATCHES * small.vocabulary * small.dimension;
    assert_true(a.operations[SL_LOAD_FORWARD] == b.operations[SL_LOAD_FORWARD]);
    assert_true(b.operations[SL_LOAD_INPUT] == a.operations[SL_LOAD_INPUT] + a.operations[SL_LOAD_FORWARD] - head);
    assert_true(b.attention[SL_LOAD_INPUT] == a.attention[SL_LOAD_INPUT] + a.attention[SL_LOAD_FORWARD]);
}

/* A coordinate alone along tensor makes no calls over it. */
static void calls_are_over_axes_with_members(void **state) {
    (void)state;
    struct layout alone = {.mesh = "data=2", .schedule = "1f1b", .loops = 1, .group = 1, .model = small},
                  both = {.mesh = "tensor=2", .schedule = "1f1b", .loops = 1, .group = 1, .model = small};
    const struct sums a = count(&alone), b = count(&both);
    for (int part = 0; part < SL_LOAD_PARTS; part++) {
        assert_true(a.calls[part] == 0);
        assert_true(b.calls[part] > 0);
    }
}

/* Pieces move as many bytes, in more calls; W gathers at once. */
static void pieces_move_the_same_bytes(void **state) {
    (void)state;
    struct layout whole = {.mesh = "tensor=2", .schedule = "1f1b", .loops = 1, .group = 1, .model = small},
                  pieces = whole;
    pieces.model.tensor_pieces = 4;
    const struct sums a = count(&whole), b = count(&pieces);
    for (int part = 0; part < SL_LOAD_PARTS; part++) {
        assert_true(b.bytes[part] == a.bytes[part]);
        assert_true(part == SL_LOAD_WEIGHT ? b.calls[part] == a.calls[part] : b.calls[part] > 2 * a.calls[part]);
    }
}

/* By rows, attention and MLPs gather their x as bf16 if their products read it so, in forward and again for W. */
static void rows_are_gathered_as_products_read_them(void **state) {
    (void)state;
    struct layout floats = {.mesh = "tensor=2", .schedule = "1f1b", .loops = 1, .group = 1, .model = small}, halves;
    floats.model.attention = SL_ATTENTION_GROUPED;
    floats.model.tensor_layout = SL_TENSOR_ROWS;
    halves = floats;
    halves.dtype = SL_BF16;
    const struct sums a = count(&floats), b = count(&halves);
    const double gathers = 2 * (double)small.blocks * small.layers_per_block, coordinates = 2;
    const double saves = coordinates * gathers * ROWS * small.dimension * (sizeof(float) - sizeof(uint16_t));
    assert_true(a.bytes[SL_LOAD_FORWARD] - b.bytes[SL_LOAD_FORWARD] == saves);
    assert_true(a.bytes[SL_LOAD_WEIGHT] - b.bytes[SL_LOAD_WEIGHT] >= saves);
}

/* Weight gradients of frozen parameters are neither computed nor summed over tensor; all other work is the same. */
static void what_is_frozen_has_no_weight_gradients(void **state) {
    static const char *const mesh[] = {"data=1", "pipe=2", "data=2,tensor=2"};
    (void)state;
    for (int m = 0; m < 3; m++) {
        struct layout all = {.mesh = mesh[m], .schedule = "1f1b", .loops = 1, .group = 2, .model = small};
        struct layout block = all, kernels = all, biases = all, table = all, both = all;
        block.freeze = "blocks.0.*";
        kernels.freeze = "*.kernel";
        biases.freeze = "*.bias";
        table.freeze = "*embedding*";
        both.freeze = "blocks.*";
        const struct sums a = count(&all), b = count(&block), k = count(&kernels), c = count(&biases),
                          t = count(&table), l = count(&both);
        for (int part = SL_LOAD_FORWARD; part < SL_LOAD_WEIGHT; part++) {
            assert_true(b.operations[part] == a.operations[part] && b.calls[part] == a.calls[part]);
            assert_true(k.operations[part] == a.operations[part] && t.operations[part] == a.operations[part]);
        }
        const double tokens = (double)a.data * ROWS * MICROBATCHES;
        const double head = 2 * tokens * small.vocabulary * small.dimension, weights = a.operations[SL_LOAD_WEIGHT];
        assert_true(fabs(weights - head - 2 * (weights - b.operations[SL_LOAD_WEIGHT])) < 1e-9 * weights);
        assert_true(fabs(k.operations[SL_LOAD_WEIGHT] - head) < 1e-9 * weights);
        assert_true(fabs(weights - head - t.operations[SL_LOAD_WEIGHT]) < 1e-9 * weights);
        assert_true(c.operations[SL_LOAD_WEIGHT] == weights);
        assert_true(fabs(l.operations[SL_LOAD_WEIGHT] - head) < 1e-9 * weights);
        assert_true(l.calls[SL_LOAD_WEIGHT] < a.calls[SL_LOAD_WEIGHT] || a.calls[SL_LOAD_WEIGHT] == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_formulas),
        cmocka_unit_test(chunks_are_computed_again),
        cmocka_unit_test(recomputation_does_forward_again),
        cmocka_unit_test(calls_are_over_axes_with_members),
        cmocka_unit_test(pieces_move_the_same_bytes),
        cmocka_unit_test(rows_are_gathered_as_products_read_them),
        cmocka_unit_test(what_is_frozen_has_no_weight_gradients),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
