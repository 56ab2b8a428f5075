/* test_leaves.c - sums over leaves of channels follow one tree, in memory and in rows; attention and norms have
 * separate leaves. */
#include "tests/rigs/run_on.h"
#include "tests/rigs/numbers.h"

#include "layers/modules/leaves.h"

enum { MOST = 64, COUNT = 37, ROWS = 5, COLUMNS = 7 };

static float value(int leaf, int i) { return (i % 2 ? -1.0f : 1.0f) / (float)(1 + (i * 7 + leaf * 13) % 101); }

/* The definition. */
static float tree(int first, int count, int i) {
    int left = 1;
    if (count == 1) return value(first, i);
    while (2 * left < count) left *= 2;
    return tree(first, left, i) + tree(first + left, count - left, i);
}

static void summands_follow_a_tree(void **state) {
    (void)state;
    for (int leaves = 1; leaves <= MOST; leaves *= 2) {
        float mine[COUNT], *sum = device_floats(COUNT), *room = device_floats(sl_tree_levels(leaves) * COUNT + 1);
        const struct sl_tree sums = {sl_kernels_select(), COUNT, sum, room};
        for (int leaf = 0; leaf < leaves; leaf++) {
            for (int i = 0; i < COUNT; i++) mine[i] = value(leaf, i);
            sl_device.copy(sl_tree_summand(&sums, leaf), mine, sizeof mine);
            sl_tree_add(&sums, leaf);
        }
        sl_device.copy(mine, sum, sizeof mine);
        for (int i = 0; i < COUNT; i++) assert_true(mine[i] == tree(0, leaves, i));
        release_array(sum);
        release_array(room);
    }
}

static void blocks_follow_a_tree(void **state) {
    (void)state;
    for (int leaves = 1; leaves <= MOST; leaves++) {
        float x[MOST * COUNT];
        for (int i = 0; i < leaves * COUNT; i++) x[i] = value(i / COUNT, i % COUNT);
        float *blocks = device_copy(x, (size_t)(leaves * COUNT) * sizeof *x);
        sl_tree_blocks(sl_kernels_select(), leaves, COUNT, blocks);
        sl_device.copy(x, blocks, COUNT * sizeof *x);
        for (int i = 0; i < COUNT; i++) assert_true(x[i] == tree(0, leaves, i));
        release_array(blocks);
    }
}

static void rows_follow_a_tree(void **state) {
    (void)state;
    for (int leaves = 1; leaves <= MOST; leaves *= 2) {
        float x[ROWS * MOST], sums[ROWS];
        for (int i = 0; i < ROWS * leaves; i++) x[i] = value(i % leaves, i / leaves);
        float *in = device_copy(x, (size_t)(ROWS * leaves) * sizeof *x), *out = device_floats(ROWS);
        sl_kernels_select()->row_trees(ROWS, (size_t)leaves, in, out);
        sl_device.copy(sums, out, sizeof sums);
        for (int r = 0; r < ROWS; r++) assert_true(sums[r] == tree(0, leaves, r));
        release_array(in);
        release_array(out);
    }
}

/* Each part's dots are the same as for its columns alone. */
static void norms_tell_leaves_apart(void **state) {
    (void)state;
    enum { LEAVES = 4, ALL = LEAVES * COLUMNS };
    struct numbers numbers = {3};
    const struct sl_sequence_kernels *kernels = sl_kernels_select()->sequence;
    const struct sl_norm_kernels *norms = sl_kernels_select()->norms;
    float *x = random_device_floats(&numbers, ROWS * ALL, -1, 1),
          *dy = random_device_floats(&numbers, ROWS * ALL, -1, 1);
    float *gamma = random_device_floats(&numbers, ALL, -1, 1), *all = device_floats(ROWS * LEAVES);
    float *own_x = device_floats(ROWS * COLUMNS), *own_dy = device_floats(ROWS * COLUMNS), *own = device_floats(ROWS);
    float together[ROWS * LEAVES], alone[ROWS];
    norms->rms_norm_dots(ROWS, LEAVES, COLUMNS, dy, sl_rows_f32(x), gamma, all);
    sl_device.copy(together, all, sizeof together);
    for (size_t leaf = 0; leaf < LEAVES; leaf++) {
        kernels->copy_block(ROWS, COLUMNS, x + leaf * COLUMNS, ALL, own_x, COLUMNS);
        kernels->copy_block(ROWS, COLUMNS, dy + leaf * COLUMNS, ALL, own_dy, COLUMNS);
        norms->rms_norm_dots(ROWS, 1, COLUMNS, own_dy, sl_rows_f32(own_x), gamma + leaf * COLUMNS, own);
        sl_device.copy(alone, own, sizeof alone);
        for (size_t r = 0; r < ROWS; r++) assert_true(together[r * LEAVES + leaf] == alone[r]);
    }
    float *const arrays[] = {x, dy, gamma, all, own_x, own_dy, own};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summands_follow_a_tree),
        cmocka_unit_test(blocks_follow_a_tree),
        cmocka_unit_test(rows_follow_a_tree),
        cmocka_unit_test(norms_tell_leaves_apart),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
