/* test_exact.c - sums over leaves follow one tree, for any distribution of the leaves; sums of squares, and of counts,
 * have the same bits for any division of the numbers. */
#include <math.h>

#include "tests/rigs/run_on.h"

#include "layers/kernels/kernels.h"
#include "layers/training/exact/counts.h"
#include "layers/training/exact/leaves.h"
#include "layers/training/exact/squares.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

enum { SUMS = 100000, MOST_LEAVES = 64, COUNT = 64, ROWS = 4, MOST = 16, NUMBERS = 5000 };

static float leaf_value(int leaf, int i) { return (i % 2 ? -1.0f : 1.0f) / (float)(1 + (i * 7 + leaf * 13) % 101); }

/* By definition: the sum of the first leaves, the largest power of two below COUNT, plus the sum of the others. */
static float tree(int first, int count, int i) {
    int left = 1;
    if (count == 1) return leaf_value(first, i);
    while (2 * left < count) left *= 2;
    return tree(first, left, i) + tree(first + left, count - left, i);
}

/* Computes a coordinate's sums in its two ranges, for COUNT leaves from FIRST on. */
static void sum_leaves(int first, int count, float *sum) {
    struct sl_range range[2] = {{.count = COUNT / 4}, {.count = COUNT - COUNT / 4}};
    const struct sl_parameters parameters = {.loops = 1, .ranges = 2, .range = range};
    struct sl_leaves leaves;
    struct sl_budget held = {0};
    struct sl_error error;
    float *gradient = sl_device.take(COUNT * sizeof *gradient), mine[COUNT];
    assert_non_null(gradient);
    range[0].gradient = gradient;
    range[1].gradient = gradient + range[0].count;
    assert_int_equal(sl_leaves_open(&leaves, &parameters, count, &held, &error), SL_OK);
    assert_int_equal(held.bytes[SL_MEMORY_GRADIENTS], sl_leaves_bytes(&parameters, count));
    for (int leaf = 0; leaf < count; leaf++) {
        for (int i = 0; i < COUNT; i++) mine[i] = leaf_value(first + leaf, i);
        sl_device.copy(gradient, mine, sizeof mine);
        for (int r = 0; r < 2; r++) sl_leaves_add(&leaves, sl_kernels_select(), r, leaf);
    }
    sl_device.copy(sum, gradient, sizeof mine);
    sl_leaves_close(&leaves);
    sl_device.give(gradient);
}

static void leaves_follow_a_tree(void **state) {
    (void)state;
    float sum[COUNT];
    for (int count = 1; count <= MOST; count++) {
        sum_leaves(3, count, sum);
        for (int i = 0; i < COUNT; i++) assert_true(sum[i] == tree(3, count, i));
    }
}

/* From -1 to 1, or from 0 to 1. */
static float draw(uint64_t *random, bool mixed) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    const float unit = (float)(*random >> 40) * 0x1p-24f;
    return mixed ? 2 * unit - 1 : unit;
}

static float sum_tree(const float *leaf, int count) {
    int left = 1;
    if (count == 1) return *leaf;
    while (2 * left < count) left *= 2;
    return sum_tree(leaf, left) + sum_tree(leaf + left, count - left);
}

/* Compares the errors of trees, and of sums in the leaves' order, against sums in double, as roots of mean squares. */
static void compare_errors(int count, bool mixed) {
    uint64_t random = 3;
    double by_tree = 0, in_order = 0;
    for (int i = 0; i < SUMS; i++) {
        float leaf[MOST_LEAVES], order = 0;
        double exact = 0;
        for (int l = 0; l < count; l++) {
            leaf[l] = draw(&random, mixed);
            exact += (double)leaf[l];
            order += leaf[l];
        }
        by_tree += pow((double)sum_tree(leaf, count) - exact, 2) / SUMS;
        in_order += pow((double)order - exact, 2) / SUMS;
    }
    print_message("# %2d leaves, %s: %.2e by a tree, %.2e in their order\n", count, mixed ? "both signs" : "one sign",
                  sqrt(by_tree), sqrt(in_order));
    assert_true(by_tree < in_order);
}

static void trees_are_accurate(void **state) {
    (void)state;
    for (int count = 4; count <= MOST_LEAVES; count *= 2) {
        compare_errors(count, true);
        compare_errors(count, false);
    }
}

static int sum_over_mesh(struct sl_spmd *self, void *arg) {
    const int leaves = *(const int *)arg, each = leaves / self->mesh->size;
    struct sl_group data;
    float sum[COUNT], part[COUNT], columns[COUNT];
    sum_leaves(self->coordinate * each, each, sum);
    memset(part, 0, sizeof part);
    memset(columns, 0, sizeof columns);
    SL_TRY(sl_group_axes(self, "data", &data));
    if (COUNT % data.size == 0) SL_TRY(sl_psum_scatter_tree(self, &data, SL_F32, sum, part, COUNT / (size_t)data.size));
    const size_t shape[] = {ROWS, COUNT / ROWS};
    const bool divides = shape[1] % (size_t)data.size == 0;
    if (divides) SL_TRY(sl_psum_scatter_tree_dim(self, &data, SL_F32, sum, columns, 2, shape, 1));
    SL_TRY(sl_psum_tree(self, &data, SL_F32, sum, sum, COUNT));
    const int own = COUNT / data.size;
    for (int i = 0; i < COUNT; i++)
        if (sum[i] != tree(0, leaves, i)) return sl_fail(self, SL_FAILED, "element %d is another sum", i);
    for (int i = 0; i < own && COUNT % data.size == 0; i++)
        if (part[i] != sum[own * data.rank + i]) return sl_fail(self, SL_FAILED, "part %d is another sum", i);
    const int width = (int)shape[1], own_width = width / data.size;
    for (int i = 0; i < ROWS * own_width && divides; i++)
        if (columns[i] != sum[i / own_width * width + data.rank * own_width + i % own_width])
            return sl_fail(self, SL_FAILED, "column element %d is another sum", i);
    return sl_group_close(self, &data);
}

static void coordinates_go_on_with_it(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        int leaves;
    } cases[] = {{"data=1", 7}, {"data=2", 8},  {"data=4", 16}, {"data=3", 6},
                 {"data=5", 5}, {"data=6", 12}, {"data=8", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int leaves = cases[i].leaves;
        expect_ok(cases[i].mesh, sum_over_mesh, &leaves);
    }
}

static void others_do_not_fit(void **state) {
    (void)state;
    assert_true(sl_leaves_divide(8, 1) && sl_leaves_divide(8, 2) && sl_leaves_divide(8, 8) && sl_leaves_divide(7, 1));
    assert_true(sl_leaves_divide(6, 3) && sl_leaves_divide(12, 3) && sl_leaves_divide(12, 6));
    assert_false(sl_leaves_divide(6, 2));
    assert_false(sl_leaves_divide(12, 4));
    assert_false(sl_leaves_divide(8, 3));
    assert_false(sl_leaves_divide(4, 8));
}

/* ---- parts of gradients ---- */

enum { PART_ROWS = 3, PART_COLUMNS = 5, KERNEL = PART_ROWS * PART_COLUMNS, EXPERTS = 20, RANGE = 48 };

/* A kernel with sharded columns, and experts: this member has leaf number rank of the kernel, and all leaves of its
 * experts. Both sums follow the tree. */
static int sum_parts(struct sl_spmd *self, void *arg) {
    struct sl_group data;
    SL_TRY(sl_group_axes(self, "data", &data));
    const size_t members = (size_t)data.size, columns = members * PART_COLUMNS;
    float here[2 * RANGE * MOST_COORDINATES], *memory = sl_device.take(sizeof here);
    struct sl_parameter list[] = {
        {.range = 1, .count = KERNEL, .parts = SL_OWN_ROWS, .dims = 2, .shape = {PART_ROWS, columns}},
        {.range = 1, .count = EXPERTS, .parts = SL_EACH_MEMBERS, .offset = RANGE / 2, .part = members * KERNEL}};
    struct sl_range range[2] = {
        {.count = 0},
        {.count = RANGE, .gradient = memory, .parts = memory + RANGE, .parts_count = members * (KERNEL + EXPERTS)}};
    const struct sl_parameters parameters = {.count = 2, .list = list, .loops = 1, .ranges = 2, .range = range};
    for (size_t i = 0; i < members * KERNEL; i++) here[RANGE + i] = leaf_value(data.rank, (int)i);
    for (size_t i = 0; i < members * EXPERTS; i++)
        here[RANGE + members * KERNEL + i] = leaf_value((int)(i / EXPERTS), (int)(i % EXPERTS));
    sl_device.copy(memory, here, sizeof here);
    SL_TRY(sl_parts_sum(self, &data, &parameters, sl_kernels_select(), 0));
    SL_TRY(sl_parts_sum(self, &data, &parameters, sl_kernels_select(), 1));
    sl_device.copy(here, memory, sizeof here);
    (void)arg;
    for (int i = 0; i < KERNEL; i++) {
        const int whole = i / PART_COLUMNS * (int)columns + data.rank * PART_COLUMNS + i % PART_COLUMNS;
        if (here[i] != tree(0, data.size, whole)) return sl_fail(self, SL_FAILED, "kernel, element %d", i);
    }
    for (int i = 0; i < EXPERTS; i++)
        if (here[RANGE / 2 + i] != tree(0, data.size, i)) return sl_fail(self, SL_FAILED, "experts, element %d", i);
    sl_device.give(memory);
    return sl_group_close(self, &data);
}

static void parts_follow_the_tree(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2", "data=3", "data=6", "data=8"};
    for (int i = 0; i < 4; i++) expect_ok(meshes[i], sum_parts, NULL);
}

/* A module that sums over data at once may have only one leaf per coordinate; parts wait. */
static int check_sharded(struct sl_spmd *self, void *arg) {
    struct sl_parameter list[] = {{.name = "kernel", .range = 1, .parts = *(const enum sl_parts *)arg}};
    struct sl_range range[2] = {{0}};
    const struct sl_parameters parameters = {
        .count = 1, .list = list, .loops = 1, .ranges = 2, .range = range, .data_axis = "data"};
    SL_TRY(sl_leaves_check(self, 2, sl_axis_size(self, "data"), 1, &parameters));
    return sl_leaves_check(self, 4, sl_axis_size(self, "data"), 1, &parameters);
}

static void shards_without_parts_have_one_leaf(void **state) {
    (void)state;
    enum sl_parts parts = SL_COMPLETE;
    EXPECT_VERDICT(((struct test_run){.mesh = "data=2", .arg = &parts}), check_sharded, SL_BAD_INPUT,
                   "exact is 4: parameter kernel is sharded over data");
    parts = SL_OWN_ROWS;
    expect_ok("data=2", check_sharded, &parts);
}

/* ---- squares ---- */

static void fill(float *x, double from, double to) {
    uint64_t random = 7;
    for (int i = 0; i < NUMBERS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const double unit = (double)(random >> 11) * 0x1p-53;
        x[i] = (float)(pow(2, from + unit * (to - from)) * (random >> 9 & 1 ? -1 : 1));
    }
}

/* Coordinates have different counts of numbers: the first has all but a few. */
static int root_over_mesh(struct sl_spmd *self, void *arg) {
    const struct sl_kernels *kernels = sl_kernels_select();
    double *roots = arg, root;
    const int size = self->mesh->size, first = self->coordinate ? NUMBERS - 7 * (size - self->coordinate) : 0;
    const int end = NUMBERS - 7 * (size - 1 - self->coordinate);
    float *x = sl_device.take(NUMBERS * sizeof *x);
    struct sl_sums *sums = sl_device.take(sl_sums_bytes());
    float here[NUMBERS];
    struct sl_group world;
    int32_t largest;
    if (!x || !sums) return SL_FAILED;
    sl_sums_clear(sums);
    fill(here, -130, 12);
    sl_device.copy(x, here, sizeof here);
    SL_TRY(sl_group_axes(self, "*", &world));
    kernels->largest_bits((size_t)(end - first), x + first, sums->room, &sums->largest);
    sl_device.copy(&largest, &sums->largest, sizeof largest);
    SL_TRY(sl_pmax(self, &world, SL_I32, &largest, &largest, 1));
    struct sl_squares squares = sl_squares_of(largest);
    for (int i = first; i < end; i += 100)
        sl_squares_add(&squares, kernels, x + i, (size_t)(end - i < 100 ? end - i : 100), sums);
    sl_squares_read(&squares, sums);
    SL_TRY(sl_squares_root(self, &world, &squares, &root));
    roots[self->coordinate] = root;
    sl_device.give(x);
    sl_device.give(sums);
    return sl_group_close(self, &world);
}

static void norms_do_not_follow_the_mesh(void **state) {
    (void)state;
    double one[MOST_COORDINATES] = {0}, several[MOST_COORDINATES] = {0}, sum = 0;
    float x[NUMBERS];
    expect_ok("data=1", root_over_mesh, one);
    expect_ok("data=4", root_over_mesh, several);
    if (!has_results()) return;
    fill(x, -130, 12);
    for (int i = 0; i < NUMBERS; i++) sum += (double)x[i] * (double)x[i];
    assert_true(one[0] > 0 && fabs(one[0] / sqrt(sum) - 1) < 1e-14);
    assert_true(several[0] == one[0]);
}

/* Adds up the squares of X [COUNT]. Returns the bits of its largest number. */
static int32_t square_all(const float *x, size_t count, struct sl_squares *squares) {
    const struct sl_kernels *kernels = sl_kernels_select();
    struct sl_sums *sums = sl_device.take(sl_sums_bytes());
    float *there = sl_device.take(count * sizeof *x);
    int32_t bits;
    assert_true(sums && there);
    sl_sums_clear(sums);
    sl_device.copy(there, x, count * sizeof *x);
    kernels->largest_bits(count, there, sums->room, &sums->largest);
    sl_device.copy(&bits, &sums->largest, sizeof bits);
    *squares = sl_squares_of(bits);
    sl_squares_add(squares, kernels, there, count, sums);
    sl_squares_read(squares, sums);
    sl_device.give(there);
    sl_device.give(sums);
    return bits;
}

static void squares_know_the_ends(void **state) {
    (void)state;
    const float none[3] = {0, -0.0f, 0}, tiny[2] = {0x1p-149f, -0x1p-149f}, huge[1] = {0x1.fffffep127f};
    struct sl_squares squares;
    assert_int_equal(square_all(none, 3, &squares), 0);
    assert_true(squares.high == 0 && squares.low == 0);
    square_all(tiny, 2, &squares);
    assert_int_equal(squares.exponent, -148);
    assert_true(squares.high == UINT64_C(1) << 30 && squares.low == 0); /* twice a quarter */
    square_all(huge, 1, &squares);
    assert_int_equal(squares.exponent, 128);
    assert_true(squares.high < UINT64_C(1) << 31);
}

/* ---- counts ---- */

static int count_over_mesh(struct sl_spmd *self, void *arg) {
    enum { LEAVES = 8 };
    struct sl_metrics *result = arg, own[LEAVES], all[LEAVES * MOST_COORDINATES], sum;
    struct sl_group world;
    const int members = sl_axis_size(self, "data"), each = LEAVES / members;
    const bool last = sl_axis_index(self, "pipe") == sl_axis_size(self, "pipe") - 1;
    SL_TRY(sl_group_axes(self, "*", &world));
    for (int i = 0; i < each; i++) {
        const int leaf = sl_axis_index(self, "data") * each + i;
        own[i] = last ? (struct sl_metrics){1.0 / (3 + leaf), leaf, 4, 0} : (struct sl_metrics){0};
    }
    const struct sl_counting counting = {.world = &world, .copies = 1, .data_axis = "data"};
    SL_TRY(sl_sum_leaves(self, &counting, (size_t)each, own, all, &sum));
    result[self->coordinate] = sum;
    return sl_group_close(self, &world);
}

static void losses_do_not_follow_the_mesh(void **state) {
    (void)state;
    struct sl_metrics one[MOST_COORDINATES] = {{0}}, other[MOST_COORDINATES] = {{0}};
    static const char *const meshes[] = {"data=2,pipe=2", "pipe=3,data=2", "data=8"};
    expect_ok("data=1", count_over_mesh, one);
    for (int i = 0; i < 3; i++) {
        expect_ok(meshes[i], count_over_mesh, other);
        if (has_results()) assert_memory_equal(&one[0], &other[0], sizeof one[0]);
    }
    if (has_results()) assert_true(one[0].correct == 28 && one[0].rows == 32);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_follow_a_tree),
        cmocka_unit_test(trees_are_accurate),
        cmocka_unit_test(coordinates_go_on_with_it),
        cmocka_unit_test(others_do_not_fit),
        cmocka_unit_test(norms_do_not_follow_the_mesh),
        cmocka_unit_test(squares_know_the_ends),
        cmocka_unit_test(losses_do_not_follow_the_mesh),
        cmocka_unit_test(parts_follow_the_tree),
        cmocka_unit_test(shards_without_parts_have_one_leaf),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
