/* test_convolution.c - the example's layers, and its networks over meshes: stages that send different widths,
 * connections that skip stages, images sharded by lines, convolutions sharded by channels. */
#include "tests/rigs/numbers.h"
#include "tests/rigs/run_on.h"

#include "drivers/examples/convolution_network.h"

/* ---- layers ---- */

/* Frees MODULE. */
static void check_gradients(struct sl_module *module, int rows, const char *what) {
    const struct sl_gradient_check check = {.rows = rows, .microbatches = 4, .wgrad_group = 2, .step = 0.5f};
    struct sl_error error = {0};
    double difference;
    char worst[96];
    assert_non_null(module);
    if (sl_gradient_check(module, &check, &sl_gemm_reference, &difference, worst, &error))
        fail_msg("%s", error.message);
    if (!(difference < 1e-4)) fail_msg("%s: %s differs by %g", what, worst, difference);
    sl_module_free(module);
}

/* A convolution is linear in x and in its kernel, so differences have only rounding errors. */
static void the_gradients_of_a_convolution_are_those_of_differences(void **state) {
    (void)state;
    check_gradients(conv3x3("conv", 3, 4, 1, 2, UNDIVIDED, NULL), 2, "1 channel");
    check_gradients(conv3x3("conv", 3, 4, 3, 2, UNDIVIDED, NULL), 2, "3 channels");
}

/* Columns pass by a layer that reads all others, some of them, or none; the end of a skip is linear, too. A GPU's
 * blocks have one row each, or unequal numbers of rows. */
static void the_gradients_of_skips_are_those_of_differences(void **state) {
    (void)state;
    for (int rows = 1; rows <= 3; rows += 2) {
        check_gradients(begin_skip(conv3x3("conv", 2, 4, 1, 2, UNDIVIDED, NULL), 0), rows, "a beginning");
        check_gradients(pass_by(conv3x3("conv", 2, 4, 2, 1, UNDIVIDED, NULL), 5), rows, "a pass");
    }
    check_gradients(begin_skip(conv3x3("conv", 2, 4, 1, 2, UNDIVIDED, NULL), 3), 2, "a second beginning");
    check_gradients(beside(conv3x3("conv", 2, 4, 1, 2, UNDIVIDED, NULL), 3, 2), 2, "two columns of a layer");
    check_gradients(sum_skip(7), 2, "a sum");
    check_gradients(merge_skip(2, 3, 2, 3), 2, "a merge");
}

/* Two lines of six points: the largest of a window is below zero, there twice, and there four times. */
static void a_pool_gives_its_gradient_to_the_first_largest_point(void **state) {
    static const float x[] = {-1, -2, 1, 3, 4, 4, -3, -4, 3, 2, 4, 4}, dy[] = {5, 7, 9};
    static const float wanted[] = {0, 0, 0, 7, 9, 0, 0, 0, 0, 0, 0, 0};
    struct sl_module *pool = pool2x2(2, 6, 1);
    struct sl_context context = {.rows = 1};
    float *at = device_array(12, sizeof *at), *y = device_array(3, sizeof *y), *dx = device_array(12, sizeof *dx);
    float *given = device_array(3, sizeof *given);
    (void)state;
    assert_non_null(pool);
    sl_device.copy(at, x, sizeof x);
    sl_device.copy(given, dy, sizeof dy);
    assert_int_equal(pool->type->forward(pool, &context, sl_given_f32(at), SL_INTO(y)), SL_OK);
    assert_int_equal(pool->type->backward_input(pool, &context, sl_given_f32(at), sl_given_f32(given), SL_INTO(dx)),
                     SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    assert_true(y[0] == 0 && y[1] == 3 && y[2] == 4);
    assert_memory_equal(dx, wanted, sizeof wanted);
    release_array(at);
    release_array(y);
    release_array(dx);
    release_array(given);
    sl_module_free(pool);
}

/* A band of the lines of several images. */
struct band {
    struct conv conv;
    int rows;
    size_t line, image, points; /* floats of a line, and of an image's band; points of all images */
    float *x, *edges;           /* [rows, lines, width, channels]; [2][rows, width, channels]: above and below */
    float *patches, *to, *sent;
};

static struct band make_band(struct numbers *numbers, const int size[4]) {
    struct band band = {.conv = {.lines = size[1], .width = size[2], .channels_in = size[3], .group = -1},
                        .rows = size[0]};
    band.line = (size_t)(size[2] * size[3]);
    band.image = (size_t)size[1] * band.line;
    band.points = conv_points(&band.conv, band.rows);
    band.x = random_device_wholes(numbers, (size_t)size[0] * band.image);
    band.edges = random_device_wholes(numbers, 2 * (size_t)size[0] * band.line);
    band.patches = random_device_wholes(numbers, band.points * TAPS * (size_t)size[3]);
    band.to = device_floats((size_t)size[0] * band.image);
    band.sent = device_floats(2 * (size_t)size[0] * band.line);
    return band;
}

static void release_band(struct band *band) {
    float *const arrays[] = {band->x, band->edges, band->patches, band->to, band->sent};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* The element of image ROW at a line, from -1 for the line above up to the line below, a column and a channel. NULL:
 * beyond the columns. */
static float *element_at(const struct band *band, float *x, float *edges, int row, int line, int column, int channel) {
    const size_t at = (size_t)(column * band->conv.channels_in + channel);
    if (column < 0 || column >= band->conv.width) return NULL;
    if (line < 0) return edges + (size_t)row * band->line + at;
    if (line == band->conv.lines) return edges + (size_t)(band->rows + row) * band->line + at;
    return x + (size_t)row * band->image + (size_t)line * band->line + at;
}

/* Each point's neighbourhood, or the sums of all neighbourhoods, from a loop over their elements. */
static void expect_neighbourhoods(const struct band *band) {
    const int channels = band->conv.channels_in, lines = band->conv.lines, width = band->conv.width;
    const size_t all = (size_t)band->rows * band->image, edge = 2 * (size_t)band->rows * band->line;
    float *sums = floats(all), *edges = floats(edge),
          *copies = device_copy(band->patches, band->points * TAPS * (size_t)channels * sizeof(float));
    conv_scatter(&band->conv, band->rows, band->patches, band->to, band->sent);
    conv_gather(&band->conv, band->rows, band->x, band->edges, copies);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < band->points * TAPS * (size_t)channels; i++) {
        const int channel = (int)i % channels, tap = (int)i / channels % TAPS, point = (int)i / channels / TAPS;
        const int row = point / width / lines, line = point / width % lines + tap / SIDE - 1,
                  column = point % width + tap % SIDE - 1;
        const float *from = element_at(band, band->x, band->edges, row, line, column, channel);
        float *to = element_at(band, sums, edges, row, line, column, channel);
        assert_true(copies[i] == (from ? *from : 0));
        if (to) *to += band->patches[i];
    }
    for (size_t i = 0; i < all; i++) assert_true(band->to[i] == sums[i]);
    for (size_t i = 0; i < edge; i++) assert_true(band->sent[i] == edges[i]);
    free(sums);
    free(edges);
    release_array(copies);
}

/* The first and the last line go to the neighbours, and the neighbours' lines are added to both. */
static void expect_edges(const struct band *band) {
    const size_t all = (size_t)band->rows * band->image, last = band->image - band->line;
    memcpy(band->to, band->x, all * sizeof(float));
    conv_edges(&band->conv, band->rows, band->x, band->sent);
    conv_add_edges(&band->conv, band->rows, band->edges, band->to);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < all; i++) {
        const size_t row = i / band->image, at = i % band->image, below = (size_t)band->rows + row;
        float want = band->x[i];
        if (at < band->line) {
            assert_true(band->sent[row * band->line + at] == band->x[i]);
            want += band->edges[row * band->line + at];
        }
        if (at >= last) {
            assert_true(band->sent[below * band->line + at - last] == band->x[i]);
            want += band->edges[below * band->line + at - last];
        }
        assert_true(band->to[i] == want);
    }
}

/* A band without neighbours receives zeros. */
static void expect_no_neighbours(const struct band *band) {
    const size_t edge = (size_t)band->rows * band->line;
    struct sl_context context = {.rows = band->rows};
    for (size_t i = 0; i < 2 * edge; i++) band->edges[i] = NAN;
    assert_int_equal(conv_exchange(&band->conv, &context, edge, band->x, band->edges), SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < 2 * edge; i++) assert_true(band->edges[i] == 0);
}

static void expect_added(struct numbers *numbers, size_t n, bool accumulate) {
    float *x = random_device_wholes(numbers, n), *y = random_device_wholes(numbers, n),
          *sum = device_copy(y, n * sizeof *y);
    conv_add(n, x, accumulate, sum);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < n; i++) assert_true(sum[i] == (accumulate ? y[i] : 0) + x[i]);
    float *const arrays[] = {x, y, sum};
    for (size_t i = 0; i < 3; i++) release_array(arrays[i]);
}

/* Several of a GPU's teams, the last of which has one element, or some. */
static void gradients_are_added_to_others(void **state) {
    struct numbers numbers = {43};
    (void)state;
    for (size_t i = 0; i < 6; i++) expect_added(&numbers, (size_t[]){129, 257, 1500}[i % 3], i % 2);
}

/* Bands of one line, and columns of one point; channels, and floats of a line, around the ends of a GPU's teams. */
static void bands_give_their_neighbours_lines_and_gradients(void **state) {
    static const int sizes[][4] = {{1, 1, 1, 1},   {3, 1, 4, 2},  {2, 3, 1, 3},  {3, 4, 5, 1},   {2, 2, 3, 5},
                                   {5, 2, 3, 131}, {1, 1, 1, 64}, {1, 2, 1, 65}, {1, 1, 1, 129}, {17, 3, 2, 2}};
    struct numbers numbers = {41};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct band band = make_band(&numbers, sizes[i]);
        expect_neighbourhoods(&band);
        expect_edges(&band);
        expect_no_neighbours(&band);
        release_band(&band);
    }
}

/* The pool of ROWS images X, by a loop over all points. */
static void expect_pool(int rows, int lines, int width, int channels, const float *x, const float *y, const float *dy,
                        const float *dx) {
    for (int i = 0; i < rows * lines / 2 * (width / 2) * channels; i++) {
        const int c = i % channels, w = i / channels % (width / 2), l = i / channels / (width / 2);
        int best = -1, at[4];
        for (int k = 0; k < 4; k++) {
            at[k] = ((2 * l + k / 2) * width + 2 * w + k % 2) * channels + c;
            if (x[at[k]] > (best < 0 ? 0 : x[at[best]])) best = k;
        }
        assert_true(y[i] == (best < 0 ? 0 : x[at[best]]));
        for (int k = 0; k < 4; k++) assert_true(dx[at[k]] == (k == best ? dy[i] : 0));
    }
}

static void pools_of_several_images_and_their_gradients(void **state) {
    static const int sizes[][4] = {{1, 2, 2, 1},   {3, 2, 4, 3},   {2, 6, 2, 2},   {2, 4, 6, 5}, {1, 2, 4, 131},
                                   {1, 2, 2, 128}, {1, 2, 2, 129}, {2, 16, 34, 1}, {17, 2, 4, 3}};
    struct numbers numbers = {42};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int *size = sizes[i];
        const size_t count = (size_t)(size[0] * size[1] * size[2] * size[3]);
        struct sl_module *pool = pool2x2(size[1], size[2], size[3]);
        struct sl_context context = {.rows = size[0]};
        float *x = random_device_wholes(&numbers, count), *dy = random_device_wholes(&numbers, count / 4);
        float *y = device_floats(count / 4), *dx = device_floats(count);
        for (size_t e = 0; e < count; e++) dx[e] = NAN;
        assert_non_null(pool);
        assert_int_equal(pool->type->forward(pool, &context, sl_given_f32(x), SL_INTO(y)), SL_OK);
        assert_int_equal(pool->type->backward_input(pool, &context, sl_given_f32(x), sl_given_f32(dy), SL_INTO(dx)),
                         SL_OK);
        assert_int_equal(sl_device.settle(NULL), SL_OK);
        expect_pool(size[0], size[1], size[2], size[3], x, y, dy, dx);
        assert_int_equal(pool->type->backward_input(pool, &context, sl_given_f32(x), sl_given_f32(dy), NULL),
                         SL_OK); /* no caller needs dx */
        float *const arrays[] = {x, dy, y, dx};
        for (size_t a = 0; a < 4; a++) release_array(arrays[a]);
        sl_module_free(pool);
    }
}

/* The sum of two halves, and the gradient that both get. */
static void expect_sums_of_halves(struct numbers *numbers, int rows, int columns) {
    const size_t n = (size_t)(rows * columns);
    struct sl_module *sum = sum_skip(columns);
    struct sl_context context = {.rows = rows};
    float *x = random_device_wholes(numbers, 2 * n), *y = random_device_wholes(numbers, n), *dx = device_floats(2 * n);
    assert_non_null(sum);
    for (size_t i = 0; i < 2 * n; i++) dx[i] = NAN;
    assert_int_equal(sum->type->backward_input(sum, &context, sl_given_f32(x), sl_given_f32(y), SL_INTO(dx)), SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < 2 * n; i++)
        assert_true(dx[i] == y[i / (2 * (size_t)columns) * (size_t)columns + i % (size_t)columns]);
    assert_int_equal(sum->type->forward(sum, &context, sl_given_f32(x), SL_INTO(y)), SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < n; i++) {
        const size_t first = i / (size_t)columns * 2 * (size_t)columns + i % (size_t)columns;
        assert_true(y[i] == x[first] + x[first + (size_t)columns]);
    }
    float *const arrays[] = {x, y, dx};
    for (size_t i = 0; i < 3; i++) release_array(arrays[i]);
    sl_module_free(sum);
}

/* Each point of a is copied to four, beside the channels of b; its gradient is the sum of theirs. */
static void expect_merged(struct numbers *numbers, int rows, int lines, int width, int a, int b) {
    const int points = lines * width, in = points * (a + 4 * b), all = a + b;
    const size_t n = (size_t)(rows * in), out = (size_t)(rows * 4 * points * all);
    struct sl_module *merge = merge_skip(lines, width, a, b);
    struct sl_context context = {.rows = rows};
    float *x = random_device_wholes(numbers, n), *y = device_floats(out), *dx = device_floats(n);
    float *dy = random_device_wholes(numbers, out), *want = floats(n);
    assert_non_null(merge);
    for (size_t i = 0; i < out; i++) y[i] = NAN;
    for (size_t i = 0; i < n; i++) dx[i] = NAN;
    assert_int_equal(merge->type->forward(merge, &context, sl_given_f32(x), SL_INTO(y)), SL_OK);
    assert_int_equal(merge->type->backward_input(merge, &context, sl_given_f32(x), sl_given_f32(dy), SL_INTO(dx)),
                     SL_OK);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (int i = 0; i < (int)out; i++) {
        const int c = i % all, point = i / all % (4 * points), image = i / all / (4 * points) * in;
        const int from = point / (2 * width) / 2 * width + point % (2 * width) / 2;
        const int at = image + (c < a ? from * a + c : points * a + point * b + c - a);
        assert_true(y[i] == x[at]);
        want[at] += dy[i];
    }
    for (size_t i = 0; i < n; i++) assert_true(dx[i] == want[i]);
    float *const arrays[] = {x, y, dx, dy};
    for (size_t i = 0; i < 4; i++) release_array(arrays[i]);
    free(want);
    sl_module_free(merge);
}

/* Channels around the ends of a GPU's teams; none that are skipped. */
static void ends_of_skips_and_their_gradients(void **state) {
    struct numbers numbers = {44};
    (void)state;
    expect_sums_of_halves(&numbers, 7, 7);
    expect_sums_of_halves(&numbers, 5, 128);
    expect_sums_of_halves(&numbers, 1, 129);
    expect_sums_of_halves(&numbers, 17, 3);
    expect_merged(&numbers, 2, 2, 3, 2, 3);
    expect_merged(&numbers, 17, 1, 2, 2, 1);
    expect_merged(&numbers, 1, 3, 1, 1, 33);
    expect_merged(&numbers, 3, 1, 2, 129, 1);
    expect_merged(&numbers, 2, 1, 2, 3, 0);
}

/* ---- the network ---- */

enum { TEST_BATCH = 32 }; /* two images a microbatch of two replicas */

static struct images images;

struct setting {
    const char *network, *schedule, *mesh;
    int steps;
};

static void train(struct network_run *run, struct setting at) {
    struct sl_mesh parsed;
    struct sl_error error = {0};
    const char *mesh = at.mesh;
    *run = (struct network_run){.train = images,
                                .batch = TEST_BATCH,
                                .steps = at.steps,
                                .network = network_find(at.network),
                                .scheduled = at.schedule};
    assert_non_null(run->network);
    assert_int_equal(sl_mesh_parse(&parsed, mesh, &error), SL_OK);
    if (network_schedule(run, sl_mesh_axis_size(&parsed, "pipe"), &error) ||
        run_on((struct test_run){.mesh = mesh, .checked = true, .arg = run}, network_program, &error))
        fail_msg("%s: %s", mesh, error.message);
    sl_schedule_free(&run->schedule);
}

static const float *gradient(const struct network_run *run, const struct sl_tensor *like) {
    const struct sl_tensor *tensor = sl_store_find(&run->gradients, like->name);
    if (!tensor) fail_msg("there is no gradient of %s", like->name);
    assert_int_equal(sl_array_elements(&tensor->array), sl_array_elements(&like->array));
    return tensor->array.data;
}

/* Returns the norm of the difference over the norm of the gradient. */
static double difference_of(const float *a, const float *b, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* Bytes that blocks of the U send per image, as in docs/experiments.md: their own, and the skips that pass by. */
static void what_skips_blocks_passes_by_them(void **state) {
    static const int kib[] = {32, 16 + 32, 4 + 48, 16 + 32, 32};
    const struct network *network = network_find("u-shaped");
    struct sl_mesh mesh;
    struct sl_error error = {0};
    (void)state;
    for (int bands = 1; bands <= 2; bands++) {
        assert_int_equal(sl_mesh_parse(&mesh, bands == 1 ? "tensor=4" : "rows=2,tensor=2", &error), SL_OK);
        for (int block = 0; block < network->blocks - 1; block++) {
            struct sl_module *made = network->block(block, &mesh);
            assert_non_null(made);
            assert_int_equal(made->out * (int)sizeof(float) * bands, kib[block] * 1024);
            sl_module_free(made);
        }
    }
}

/* The network of AT on one coordinate, for as many steps. */
static struct setting alone(struct setting at) { return (struct setting){at.network, "1f1b", "pipe=1", at.steps}; }

/* Runs each SETTING [count], grouped by network, and COMPARES it with one coordinate. */
static void compare(const struct setting *setting, size_t count,
                    void (*compares)(const struct setting *at, const struct network_run *run,
                                     const struct network_run *single)) {
    struct network_run single = {0}, run;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(setting[i].network, setting[i - 1].network) != 0) {
            sl_store_free(&single.gradients);
            train(&single, alone(setting[i]));
        }
        train(&run, setting[i]);
        if (has_results()) {
            assert_int_equal(run.gradients.count, single.gradients.count);
            compares(&setting[i], &run, &single);
        }
        sl_store_free(&run.gradients);
    }
    sl_store_free(&single.gradients);
}

static void expect_same_bits(const struct setting *at, const struct network_run *run,
                             const struct network_run *single) {
    (void)at;
    assert_memory_equal(run->loss, single->loss, sizeof run->loss);
    for (int i = 0; i < run->gradients.count; i++) {
        const struct sl_tensor *tensor = &single->gradients.tensor[i];
        assert_memory_equal(gradient(run, tensor), tensor->array.data,
                            sl_array_elements(&tensor->array) * sizeof(float));
    }
}

/* Stages take the same microbatches, in the same order, with slots as wide as the widest: no sum changes. Skips are
 * copied from one stage to the next. */
static void stages_of_different_widths_give_the_same_bits(void **state) {
    static const struct setting all[] = {
        {"plain", "1f1b", "pipe=2", MOST_STEPS}, {"plain", "1f1b", "pipe=3", MOST_STEPS},
        {"residual", "gpipe", "pipe=2", 2},      {"residual", "1f1b", "pipe=4", 2},
        {"residual", "looped-bfs", "pipe=3", 2}, {"u-shaped", "gpipe", "pipe=4", 1},
        {"u-shaped", "looped-bfs", "pipe=2", 1}, {"u-shaped", "1f1b", "pipe=2", 1}};
    (void)state;
    compare(all, sizeof all / sizeof *all - (test_is_small ? 2 : 0), expect_same_bits);
}

static void expect_rounding_alone(const struct setting *at, const struct network_run *run,
                                  const struct network_run *single) {
    const double bound = 2 * sqrt((double)TEST_BATCH * IMAGE * IMAGE) * 0x1p-24;
    const double change = fabs(run->loss[0] / single->loss[0] - 1);
    if (!(change <= bound)) fail_msg("%s: the loss changes by %g, more than %g", at->mesh, change, bound);
    for (int i = 0; i < run->gradients.count; i++) {
        const struct sl_tensor *tensor = &single->gradients.tensor[i];
        const double d = difference_of(gradient(run, tensor), tensor->array.data, sl_array_elements(&tensor->array));
        if (!(d <= bound)) fail_msg("%s: %s changes by %g, more than %g", at->mesh, tensor->name, d, bound);
    }
}

/* Bands and replicas change the order of sums over an image's points and over a batch; channels change the order of a
 * product over channels. A gradient has at most n = 32 * 32 * 32 summands. Rounding moves a sum like a random walk, by
 * sqrt(n) * 2^-24 of the summands' size (Higham and Mary 2019), in each of the two orders. */
static void bands_channels_and_replicas_change_only_rounding(void **state) {
    static const struct setting all[] = {{"plain", "1f1b", "rows=2", 1},
                                         {"plain", "1f1b", "rows=4", 1},
                                         {"plain", "1f1b", "rows=8", 1},
                                         {"plain", "1f1b", "tensor=2", 1},
                                         {"plain", "1f1b", "tensor=8", 1},
                                         {"plain", "1f1b", "data=2,pipe=2,rows=2", 1},
                                         {"plain", "1f1b", "data=1,pipe=3,rows=2", 1},
                                         {"plain", "1f1b", "rows=2,tensor=4", 1},
                                         {"residual", "1f1b", "pipe=4,tensor=2", 1},
                                         {"residual", "looped-bfs", "data=2,pipe=2,tensor=2", 1},
                                         {"u-shaped", "gpipe", "pipe=2,rows=2,tensor=2", 1},
                                         {"u-shaped", "looped-bfs", "pipe=2,tensor=4", 1}};
    (void)state;
    compare(all, sizeof all / sizeof *all - (test_is_small ? 2 : 0), expect_rounding_alone);
}

static void a_mesh_that_does_not_fit_is_refused(void **state) {
    static const char *const mesh[] = {"rows=16", "data=3", "tensor=3", "tensor=16"};
    (void)state;
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        struct network_run run = {
            .train = images, .batch = TEST_BATCH, .steps = 1, .network = &networks[0], .scheduled = "1f1b"};
        struct sl_mesh parsed;
        struct sl_error error = {0};
        assert_int_equal(sl_mesh_parse(&parsed, mesh[m], &error), SL_OK);
        assert_int_equal(network_schedule(&run, sl_mesh_axis_size(&parsed, "pipe"), &error), SL_OK);
        if (parsed.size <= 8 || shares_memory()) { /* there are eight processes */
            assert_int_equal(run_on((struct test_run){.mesh = mesh[m], .arg = &run}, network_program, &error),
                             SL_BAD_INPUT);
            if (has_results()) assert_non_null(strstr(error.message, "16, and rows and tensor 1, 2, 4 or 8"));
        }
        sl_schedule_free(&run.schedule);
    }
    struct network_run run = {.network = &networks[0], .scheduled = "1f1b"};
    struct sl_error error = {0};
    assert_int_equal(network_schedule(&run, 4, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, "schedule 1f1b over 4 ranks: it has 4 stages, but plain has 3 blocks");
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradients_of_a_convolution_are_those_of_differences),
        cmocka_unit_test(the_gradients_of_skips_are_those_of_differences),
        cmocka_unit_test(a_pool_gives_its_gradient_to_the_first_largest_point),
        cmocka_unit_test(bands_give_their_neighbours_lines_and_gradients),
        cmocka_unit_test(pools_of_several_images_and_their_gradients),
        cmocka_unit_test(gradients_are_added_to_others),
        cmocka_unit_test(ends_of_skips_and_their_gradients),
        cmocka_unit_test(what_skips_blocks_passes_by_them),
        cmocka_unit_test(stages_of_different_widths_give_the_same_bits),
        cmocka_unit_test(bands_channels_and_replicas_change_only_rounding),
        cmocka_unit_test(a_mesh_that_does_not_fit_is_refused),
    };
    begin_tests(argc, argv);
    if (images_draw(&images, MOST_STEPS * TEST_BATCH)) return SL_FAILED;
    const int failed = cmocka_run_group_tests_name("convolution", tests, NULL, NULL);
    images_free(&images);
    return failed;
}
