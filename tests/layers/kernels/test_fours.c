/* test_fours.c - kernels over elements and rows, at any address and of any number: the bits of calls for one element
 * each, at every level of this CPU. GPUs' threads take four neighbours if all arrays are aligned. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

enum { MOST = 21, ROOM = 32, ARRAYS = 5, LARGE_ROOM = 2100 }; /* rooms are whole groups of four, so arrays lie alike */

/* A kernel's arguments: arrays with first elements of their own. */
struct arrays {
    float *x, *y, *z, *first, *second;
    uint16_t *halves;
};

typedef void kernel(const struct sl_kernels *kernels, size_t n, const struct arrays *a);

static void fill(const struct sl_kernels *k, size_t n, const struct arrays *a) { k->fill(n, 0.75f, a->y); }
static void add(const struct sl_kernels *k, size_t n, const struct arrays *a) { k->add(n, a->x, a->y); }
static void add_settled(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->add_settled(n, a->x, a->y, NULL);
}
static void add_stored(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->add_settled(n, a->x, a->y, a->halves);
}
static void multiply(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_f32(a->x), sl_rows_f32(a->y), sl_out_f32(a->z));
}
static void multiply_rounded(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_f32(a->x), sl_rows_f32(a->y), sl_out_bf16(a->halves));
}
static void round_bf16(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->round_bf16(n, a->x, a->halves);
}
static void widen(const struct sl_kernels *k, size_t n, const struct arrays *a) { k->widen_bf16(n, a->halves, a->y); }
static void settle_alone(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->settle_bf16(n, a->x, NULL);
}
static void settle_stored(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->settle_bf16(n, a->x, a->halves);
}
static void silu(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->silu(n, sl_rows_f32(a->x), sl_out_f32(a->y), sl_rows_f32(a->z));
}
static void silu_rounded(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->silu(n, sl_rows_f32(a->x), sl_out_bf16(a->halves), sl_rows_f32(a->z));
}
static void silu_kept(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->silu(n, sl_rows_f32(a->x), sl_out_of(a->y, true, NULL), sl_rows_bf16(a->halves));
}
static void multiply_kept(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_f32(a->x), sl_rows_bf16(a->halves), sl_out_of(a->y, true, NULL));
}
static void multiply_halves(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_bf16(a->halves), sl_rows_bf16(a->halves), sl_out_f32(a->y));
}
static void copy(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_block(1, n, a->x, n, a->y, n);
}
static void copy_settled(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_settled(1, n, a->x, n, sl_out_of(a->y, true, NULL), n);
}
static void copy_stored(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_settled(1, n, a->x, n, sl_out_of(a->y, true, a->halves), n);
}
static void round_block(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->round_block(1, n, a->x, n, a->halves, n);
}

static void gate(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->published->gate_forward(n, sl_out_f32(a->x), sl_out_f32(a->y), sl_out_f32(a->z));
}
static void gate_settled(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->published->gate_forward(n, sl_out_of(a->x, true, NULL), sl_out_of(a->y, true, a->halves), sl_out_f32(a->z));
}
static void gate_rounded(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->published->gate_forward(n, sl_out_f32(a->x), sl_out_f32(a->y), sl_out_bf16(a->halves));
}
static void gate_backward(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->published->gate_backward(n, sl_rows_f32(a->x), sl_rows_f32(a->y), a->z, sl_out_of(a->first, true, NULL),
                                sl_out_of(a->second, true, a->halves));
}
static void erf_gelu(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->published->erf_gelu_forward(n, a->x, a->y);
    k->published->erf_gelu_backward(n, a->x, a->y, a->z);
}

static const struct sl_adamw_step step = {.learning_rate = 0.01f,
                                          .beta1 = 0.9f,
                                          .beta2 = 0.99f,
                                          .epsilon = 1e-8f,
                                          .decay = 0.1f,
                                          .rest1 = 0.1f,
                                          .rest2 = 0.01f,
                                          .correction1 = 0.19f,
                                          .correction2 = 0.0199f,
                                          .gradient_scale = 0.5f};
static void adamw(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->adamw(n, &step, a->x, NULL, a->y, NULL, a->first, a->second);
}
static void adamw_of_sums(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->adamw(n, &step, a->x, a->z, a->y, a->halves, a->first, a->second);
}

static const struct {
    const char *name;
    kernel *call;
} all[] = {{"fill", fill},
           {"add", add},
           {"add_settled", add_settled},
           {"add_settled, stored", add_stored},
           {"multiply", multiply},
           {"multiply, rounded", multiply_rounded},
           {"round_bf16", round_bf16},
           {"widen_bf16", widen},
           {"settle_bf16", settle_alone},
           {"settle_bf16, stored", settle_stored},
           {"silu", silu},
           {"silu, rounded", silu_rounded},
           {"silu, kept", silu_kept},
           {"multiply, kept", multiply_kept},
           {"multiply, kept, of halves", multiply_halves},
           {"copy_block", copy},
           {"copy_settled", copy_settled},
           {"copy_settled, stored", copy_stored},
           {"round_block", round_block},
           {"gate", gate},
           {"gate, settled", gate_settled},
           {"gate, rounded", gate_rounded},
           {"gate, backward", gate_backward},
           {"erf gelu", erf_gelu},
           {"adamw", adamw},
           {"adamw of sums, rounded", adamw_of_sums}};
enum { ALL = sizeof all / sizeof *all };

/* Returns arrays in MEMORY [ARRAYS + 1, ROOM], which has the same values in each. Array ODD begins OFFSET elements
 * later than the others, which begin at element AT. */
static struct arrays arrays_in(float *memory, size_t room, int odd, size_t offset, size_t at) {
    size_t from[ARRAYS + 1];
    for (int i = 0; i < ARRAYS + 1; i++) from[i] = (size_t)i * room + at + (i == odd ? offset : 0);
    return (struct arrays){memory + from[0], memory + from[1],
                           memory + from[2], memory + from[3],
                           memory + from[4], (uint16_t *)(memory + ARRAYS * room) + (from[5] - ARRAYS * room)};
}

static void start(float *memory, size_t room) {
    struct numbers numbers = {5};
    for (size_t i = 0; i < ARRAYS * room; i++) memory[i] = next_float(&numbers, 0.0f, 3.0f);
    for (size_t i = 0; i < room; i++)
        ((uint16_t *)(memory + ARRAYS * room))[i] = sl_bf16_of_float(next_float(&numbers, -3.0f, 3.0f));
}

static struct arrays later(struct arrays a, size_t i) {
    return (struct arrays){a.x + i, a.y + i, a.z + i, a.first + i, a.second + i, a.halves + i};
}

/* FRESH is as MEMORY began: bytes around the N elements of each of its arrays have not changed. */
static void expect_untouched(const float *memory, const float *fresh, size_t room, size_t n, const struct arrays *a,
                             const char *what) {
    const float *const firsts[ARRAYS] = {a->x, a->y, a->z, a->first, a->second};
    for (size_t i = 0; i < ARRAYS; i++) {
        const size_t before = (size_t)(firsts[i] - memory) - i * room, behind = before + n;
        if (memcmp(memory + i * room, fresh + i * room, before * sizeof *memory) ||
            memcmp(memory + i * room + behind, fresh + i * room + behind, (room - behind) * sizeof *memory))
            fail_msg("%s: elements around %zu of array %zu have changed", what, n, i);
    }
    const uint16_t *halves = (const uint16_t *)(memory + ARRAYS * room),
                   *its = (const uint16_t *)(fresh + ARRAYS * room);
    const size_t before = (size_t)(a->halves - halves), behind = before + n;
    if (memcmp(halves, its, before * sizeof *its) ||
        memcmp(halves + behind, its + behind, (room - behind) * sizeof *its))
        fail_msg("%s: halves around %zu have changed", what, n);
}

static void arrays_may_lie_anywhere(void **state) {
    (void)state;
    enum { FLOATS = (ARRAYS + 1) * ROOM };
    FOR_EACH_LEVEL(kernels) {
        float *memory = device_floats(FLOATS), *each = device_floats(FLOATS), *fresh = floats(FLOATS);
        start(fresh, ROOM);
        for (int kernel = 0; kernel < ALL; kernel++) {
            for (int odd = -1; odd < ARRAYS + 1; odd++) {
                for (size_t offset = 1; offset < 4; offset++) {
                    for (size_t n = 0; n <= MOST; n += n < 9 ? 1 : 4) {
                        sl_device.settle(NULL);
                        start(memory, ROOM);
                        start(each, ROOM);
                        const struct arrays a = arrays_in(memory, ROOM, odd, offset, offset == 3 ? 1 : 4);
                        const struct arrays b = arrays_in(each, ROOM, odd, offset, offset == 3 ? 1 : 4);
                        all[kernel].call(kernels, n, &a);
                        for (size_t i = 0; i < n; i++) {
                            const struct arrays one = later(b, i);
                            all[kernel].call(kernels, 1, &one);
                        }
                        sl_device.settle(NULL);
                        expect_untouched(memory, fresh, ROOM, n, &a, all[kernel].name);
                        if (memcmp(memory, each, FLOATS * sizeof *memory))
                            fail_msg("%s: %zu elements, array %d begins %zu late", all[kernel].name, n, odd, offset);
                    }
                }
            }
        }
        release_array(memory);
        release_array(each);
        free(fresh);
    }
}

/* Numbers of elements around multiples of 512, because a team of a GPU has 128 threads, with four elements each. The
 * results must equal those of pieces of 40 elements, which a team's first threads compute. Calls are repeated, as there
 * may be fewer teams than the elements need. */
static void teams_share_many_elements(void **state) {
    (void)state;
    enum { FLOATS = (ARRAYS + 1) * LARGE_ROOM, PIECE = 40, TIMES = 3 };
    static const size_t counts[] = {511, 512, 513, 514, 515, 516, 1025, 1028, 1537, 1540, 2049, 2050};
    FOR_EACH_LEVEL(kernels) {
        float *memory = device_floats(FLOATS), *pieces = device_floats(FLOATS), *fresh = floats(FLOATS);
        start(fresh, LARGE_ROOM);
        for (int kernel = 0; kernel < ALL; kernel++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                const size_t n = counts[c];
                const struct arrays a = arrays_in(memory, LARGE_ROOM, -1, 0, 4);
                const struct arrays b = arrays_in(pieces, LARGE_ROOM, -1, 0, 4);
                start(pieces, LARGE_ROOM);
                for (size_t i = 0; i < n; i += PIECE) {
                    const struct arrays piece = later(b, i);
                    all[kernel].call(kernels, n - i < PIECE ? n - i : PIECE, &piece);
                }
                for (int time = 0; time < TIMES; time++) {
                    start(memory, LARGE_ROOM);
                    all[kernel].call(kernels, n, &a);
                    sl_device.settle(NULL);
                    expect_untouched(memory, fresh, LARGE_ROOM, n, &a, all[kernel].name);
                    if (memcmp(memory, pieces, FLOATS * sizeof *memory))
                        fail_msg("%s: %zu elements", all[kernel].name, n);
                }
            }
        }
        release_array(memory);
        release_array(pieces);
        free(fresh);
    }
}

/* ---- rows ---- */

/* Work on ROWS rows of COLS elements from row FIRST on. */
typedef void row_kernel(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a);

static void copy_rows(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->sequence->copy_settled(rows, cols, a->x + first * cols, cols,
                              sl_out_of(a->y + first * cols, true, a->halves + first * cols), cols);
}
static void round_rows(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->sequence->round_block(rows, cols, a->x + first * cols, cols, a->halves + first * cols, cols);
}
static void sum_rows(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->published->row_sums(rows, cols, a->x + first * cols, a->z + first);
}
static void center_rows(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->published->center_rows(rows, cols, cols, a->z + first, a->x + first * cols, a->y + first * cols);
}
static void norm_to(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a,
                    struct sl_rows x, struct sl_out y) {
    k->norms->rms_norm_forward(rows, cols, cols, x, NULL, a->first, a->second, 1e-6f, a->z + first, y);
}
static void norm_rows(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    norm_to(k, first, rows, cols, a, sl_rows_f32(a->x + first * cols), sl_out_f32(a->y + first * cols));
}
static void norm_stored(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    const size_t at = first * cols;
    norm_to(k, first, rows, cols, a, sl_rows_f32(a->x + at),
            (struct sl_out){sl_rows_f32(a->y + at), sl_rows_bf16(a->halves + at), false});
}
static void norm_rounded(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    norm_to(k, first, rows, cols, a, sl_rows_f32(a->x + first * cols), sl_out_bf16(a->halves + first * cols));
}
static void norm_halves(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    norm_to(k, first, rows, cols, a, sl_rows_bf16(a->halves + first * cols), sl_out_f32(a->y + first * cols));
}
static void maxima(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->sequence->row_maxima(rows, cols, 0, a->x + first * cols, a->z + first, a->first + first);
}
/* Labels are of other classes: the bits of positive floats. */
static void chunk(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    float *z = a->z + first;
    k->sequence->softmax_chunk(rows, cols, 0, a->x + first * cols, (const int32_t *)(a->second + first), true, z, z + 4,
                               z + 8, z + 12, z + 16, sl_out_of(a->y + first * cols, false, a->halves + first * cols));
}
static void dlogits(const struct sl_kernels *k, size_t first, size_t rows, size_t cols, const struct arrays *a) {
    k->sequence->softmax_dlogits(rows, cols, 0, (const int32_t *)(a->second + first), a->z + first, a->first + first,
                                 0.5f, a->x + first * cols,
                                 sl_out_of(a->y + first * cols, false, a->halves + first * cols));
}

static const struct {
    const char *name;
    row_kernel *call;
} of_rows[] = {{"copy_settled", copy_rows},
               {"round_block", round_rows},
               {"row_sums", sum_rows},
               {"center_rows", center_rows},
               {"rms_norm_forward", norm_rows},
               {"rms_norm_forward, stored", norm_stored},
               {"rms_norm_forward, rounded", norm_rounded},
               {"rms_norm_forward of halves", norm_halves},
               {"row_maxima", maxima},
               {"softmax_chunk", chunk},
               {"softmax_dlogits", dlogits}};

/* Rows of an odd length begin at other elements of a group of four than their arrays. They have the bits of single
 * rows, at any addresses of x, y and the halves. */
static void rows_may_lie_anywhere(void **state) {
    (void)state;
    enum { FLOATS = (ARRAYS + 1) * ROOM, ROWS = 3, COLS = 7, PLACES = 4 * 4 * 4 };
    FOR_EACH_LEVEL(kernels) {
        float *memory = device_floats(FLOATS), *each = device_floats(FLOATS);
        for (size_t kernel = 0; kernel < sizeof of_rows / sizeof *of_rows; kernel++) {
            for (size_t place = 0; place < PLACES; place++) {
                struct arrays at[2];
                for (int i = 0; i < 2; i++) {
                    float *own = i ? each : memory;
                    sl_device.settle(NULL);
                    start(own, ROOM);
                    at[i] = arrays_in(own, ROOM, -1, 0, 4);
                    at[i].x += place % 4, at[i].y += place / 4 % 4, at[i].halves += place / 16;
                }
                of_rows[kernel].call(kernels, 0, ROWS, COLS, &at[0]);
                for (size_t r = 0; r < ROWS; r++) of_rows[kernel].call(kernels, r, 1, COLS, &at[1]);
                sl_device.settle(NULL);
                if (memcmp(memory, each, FLOATS * sizeof *memory))
                    fail_msg("%s: x, y and halves at %zu, %zu, %zu", of_rows[kernel].name, place % 4, place / 4 % 4,
                             place / 16);
            }
        }
        release_array(memory);
        release_array(each);
    }
}

/* Sums of whole numbers are exact in any order. The mean is that of rows of which these are parts. */
static void rows_are_summed_and_centered(void **state) {
    (void)state;
    enum { ROWS = 21, MOST_COLS = 133, FLOATS = ROWS * MOST_COLS + 1, PARTS = 3 };
    static const size_t sizes[] = {1, 5, 61, 64, 65, MOST_COLS};
    FOR_EACH_LEVEL(kernels) {
        float *x = device_floats(FLOATS), *y = device_floats(FLOATS), *sums = device_floats(ROWS + 1);
        float *want = floats(FLOATS), want_sums[ROWS + 1];
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t cols = sizes[s];
            sl_device.settle(NULL);
            for (size_t i = 0; i < FLOATS; i++) x[i] = (float)((int)(i * 37 % 101) - 40);
            for (size_t r = 0; r < ROWS; r++) {
                want_sums[r] = 0.0f;
                for (size_t c = 0; c < cols; c++) want_sums[r] += x[r * cols + c];
                for (size_t i = r * cols; i < (r + 1) * cols; i++)
                    want[i] = x[i] - want_sums[r] / (float)(PARTS * cols);
            }
            want[ROWS * cols] = want_sums[ROWS] = y[ROWS * cols] = sums[ROWS] = 3.0f;
            kernels->published->row_sums(ROWS, cols, x, sums);
            kernels->published->center_rows(ROWS, cols, PARTS * cols, sums, x, y);
            sl_device.settle(NULL);
            assert_memory_equal(sums, want_sums, sizeof want_sums);
            assert_memory_equal(y, want, (ROWS * cols + 1) * sizeof *y);
        }
        free(want);
        release_array(x);
        release_array(y);
        release_array(sums);
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_may_lie_anywhere), cmocka_unit_test(teams_share_many_elements),
        cmocka_unit_test(rows_may_lie_anywhere), cmocka_unit_test(rows_are_summed_and_centered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
