/* test_fours.c - kernels over elements, at any address and of any number: the bits of calls for one element each, at
 * every level of this CPU. GPUs' threads take four neighbours if all arrays are aligned. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

enum { MOST = 21, ROOM = MOST + 8, ARRAYS = 5 };

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
    k->operands->silu(n, sl_rows_f32(a->x), sl_out_settled(a->y, (struct sl_settled){true, NULL}),
                      sl_rows_bf16(a->halves));
}
static void multiply_kept(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_f32(a->x), sl_rows_bf16(a->halves),
                          sl_out_settled(a->y, (struct sl_settled){true, NULL}));
}
static void multiply_halves(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->operands->multiply(n, sl_rows_bf16(a->halves), sl_rows_bf16(a->halves), sl_out_f32(a->y));
}
static void copy(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_block(1, n, a->x, n, a->y, n);
}
static void copy_settled(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_settled(1, n, a->x, n, a->y, n, (struct sl_settled){true, NULL});
}
static void copy_stored(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->copy_settled(1, n, a->x, n, a->y, n, (struct sl_settled){true, a->halves});
}
static void round_block(const struct sl_kernels *k, size_t n, const struct arrays *a) {
    k->sequence->round_block(1, n, a->x, n, a->halves, n);
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
           {"adamw", adamw},
           {"adamw of sums, rounded", adamw_of_sums}};
enum { ALL = sizeof all / sizeof *all };

/* Returns arrays in MEMORY [ARRAYS + 1, ROOM], which has the same values in each. Array ODD begins OFFSET elements
 * later than the others, which begin at element AT. */
static struct arrays arrays_in(float *memory, int odd, size_t offset, size_t at) {
    size_t from[ARRAYS + 1];
    for (int i = 0; i < ARRAYS + 1; i++) from[i] = (size_t)i * ROOM + at + (i == odd ? offset : 0);
    return (struct arrays){memory + from[0], memory + from[1],
                           memory + from[2], memory + from[3],
                           memory + from[4], (uint16_t *)(memory + ARRAYS * ROOM) + (from[5] - 5 * ROOM)};
}

static void start(float *memory) {
    struct numbers numbers = {5};
    for (size_t i = 0; i < ARRAYS * ROOM; i++) memory[i] = next_float(&numbers, 0.0f, 3.0f);
    for (size_t i = 0; i < ROOM; i++)
        ((uint16_t *)(memory + ARRAYS * ROOM))[i] = sl_bf16_of_float(next_float(&numbers, -3.0f, 3.0f));
}

static struct arrays later(struct arrays a, size_t i) {
    return (struct arrays){a.x + i, a.y + i, a.z + i, a.first + i, a.second + i, a.halves + i};
}

static void arrays_may_lie_anywhere(void **state) {
    (void)state;
    enum { FLOATS = (ARRAYS + 1) * ROOM };
    FOR_EACH_LEVEL(kernels) {
        float *memory = device_floats(FLOATS), *each = device_floats(FLOATS);
        for (int kernel = 0; kernel < ALL; kernel++) {
            for (int odd = -1; odd < ARRAYS + 1; odd++) {
                for (size_t offset = 1; offset < 4; offset++) {
                    for (size_t n = 0; n <= MOST; n += n < 9 ? 1 : 4) {
                        sl_device.settle(NULL);
                        start(memory);
                        start(each);
                        const struct arrays a = arrays_in(memory, odd, offset, offset == 3 ? 1 : 4);
                        const struct arrays b = arrays_in(each, odd, offset, offset == 3 ? 1 : 4);
                        all[kernel].call(kernels, n, &a);
                        for (size_t i = 0; i < n; i++) {
                            const struct arrays one = later(b, i);
                            all[kernel].call(kernels, 1, &one);
                        }
                        sl_device.settle(NULL);
                        if (memcmp(memory, each, FLOATS * sizeof *memory))
                            fail_msg("%s: %zu elements, array %d begins %zu late", all[kernel].name, n, odd, offset);
                    }
                }
            }
        }
        release_array(memory);
        release_array(each);
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(arrays_may_lie_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
