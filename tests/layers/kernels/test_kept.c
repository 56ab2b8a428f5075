/* test_kept.c - kernels of silu, dropout and layer norms that save bf16, at every level of this CPU: against the float
 * kernels and a rounding pass, for each form of results and inputs. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include <string.h>

enum { BEHIND = 5 }; /* guard elements */
static const float KEEP = 0.75f;
static const uint32_t THRESHOLD = 3 << 21; /* of 2^23 */

/* Forms of a result: floats or none, rounded or not, with or without a bf16 copy. */
static const struct {
    bool floats, rounds, stores;
} all[] = {{true, false, false}, {true, true, false}, {true, true, true}, {true, false, true}, {false, true, true}};
enum { ALL = sizeof all / sizeof *all };

/* A result of COUNT elements, and a guard behind it. */
struct left {
    size_t count;
    float *floats;
    uint16_t *stored;
};

static struct left make_left(size_t count) {
    struct left left = {count, device_floats(count + BEHIND), device_array(count + BEHIND, sizeof(uint16_t))};
    for (size_t i = 0; i < count + BEHIND; i++) {
        left.floats[i] = 3;
        left.stored[i] = 0x1234;
    }
    return left;
}

static void free_left(const struct left *left) {
    release_array(left->floats);
    release_array(left->stored);
}

static float *floats_of(const struct left *left, int i) { return all[i].floats ? left->floats : NULL; }
static struct sl_out out_of(const struct left *left, int i) {
    return sl_out_of(floats_of(left, i), all[i].rounds, all[i].stores ? left->stored : NULL);
}

/* Expects LEFT to be WANT in the form all[I], and nothing else to be written. */
static void expect_left(const char *what, const struct left *left, int i, const float *want) {
    for (size_t k = 0; k < left->count + BEHIND; k++) {
        const bool here = k < left->count;
        const uint16_t rounded = here ? sl_bf16_of_float(want[k]) : 0;
        const float value = here && all[i].floats ? all[i].rounds ? sl_float_of_bf16(rounded) : want[k] : 3;
        const uint16_t stored = here && all[i].stores ? rounded : 0x1234;
        if (left->floats[k] != value || left->stored[k] != stored)
            fail_msg("%s, left as %d: element %zu of %zu is %g and %x in place of %g and %x", what, i, k, left->count,
                     (double)left->floats[k], left->stored[k], (double)value, stored);
    }
}

static void expect_rounded(const char *what, size_t n, const uint16_t *rounded, const float *want) {
    for (size_t i = 0; i < n; i++)
        if (rounded[i] != sl_bf16_of_float(want[i]))
            fail_msg("%s %zu is %x in place of %x", what, i, rounded[i], sl_bf16_of_float(want[i]));
}

/* ---- elements ---- */

/* Inputs of N elements, as unrounded floats and as bf16; and the float kernels' results for the bf16 values. */
struct elements {
    size_t n;
    float *x, *dy, *exact; /* unrounded dy; DY is its bf16 values */
    uint16_t *half_x, *half_dy, *slope;
    uint32_t *words;
    float *y, *slopes;
};

static struct elements make_elements(struct numbers *numbers, size_t n) {
    struct elements e = {.n = n,
                         .x = random_device_floats(numbers, n, -4, 4),
                         .exact = random_device_floats(numbers, n, -2, 2),
                         .slope = device_array(n, sizeof(uint16_t)),
                         .words = random_device_words(numbers, n),
                         .y = device_floats(n),
                         .slopes = device_floats(n)};
    e.dy = device_copy(e.exact, n * sizeof *e.dy);
    e.half_x = settle(e.x, n);
    e.half_dy = settle(e.dy, n);
    return e;
}

static void free_elements(struct elements *e) {
    void *const arrays[] = {e->x, e->dy, e->exact, e->half_x, e->half_dy, e->slope, e->words, e->y, e->slopes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

static void check_silu(const struct sl_kernels *k, const struct elements *e) {
    k->operands->silu(e->n, sl_rows_f32(e->x), sl_out_f32(e->y), sl_rows_f32(e->slopes));
    for (int i = 0; i < ALL; i++) {
        for (int half = 0; half < 2; half++) {
            const struct left y = make_left(e->n);
            memset(e->slope, 0xab, e->n * sizeof *e->slope);
            k->operands->silu(e->n, half ? sl_rows_bf16(e->half_x) : sl_rows_f32(e->x), out_of(&y, i),
                              sl_rows_bf16(e->slope));
            sl_device.settle(NULL);
            expect_left("silu", &y, i, e->y);
            expect_rounded("silu's slope", e->n, e->slope, e->slopes);
            free_left(&y);
        }
    }
}

/* Dropout with WORDS, of x in both types if the kernel draws them. */
static void check_dropout(const struct sl_kernels *k, const struct elements *e, bool silu,
                          const struct sl_dropout_words *words) {
    struct sl_dropout_arrays arrays = {.count = e->n,
                                       .silu = silu,
                                       .x = sl_rows_f32(e->x),
                                       .threshold = THRESHOLD,
                                       .keep = KEEP,
                                       .y = sl_out_f32(e->y),
                                       .slope = sl_rows_f32(e->slopes)};
    k->operands->dropout(&(struct sl_dropout_words){.at = e->words}, &arrays);
    arrays.slope = sl_rows_bf16(e->slope);
    for (int i = 0; i < ALL; i++) {
        for (int half = 0; half < (words->at ? 1 : 2); half++) {
            const struct left y = make_left(e->n);
            memset(e->slope, 0xab, e->n * sizeof *e->slope);
            if (half) arrays.x = sl_rows_bf16(e->half_x);
            arrays.y = out_of(&y, i);
            k->operands->dropout(words, &arrays);
            sl_device.settle(NULL);
            expect_left("dropout", &y, i, e->y);
            expect_rounded("dropout's slope", e->n, e->slope, e->slopes);
            free_left(&y);
        }
        arrays.x = sl_rows_f32(e->x);
    }
}

static void check_words(const struct sl_kernels *k, const struct elements *e, bool silu) {
    const struct sl_dropout_words words = {.at = e->words};
    check_dropout(k, e, silu, &words);
}

/* Checks the kernels that draw the words themselves. */
static void check_drawn(const struct sl_kernels *k, const struct elements *e, bool silu) {
    const struct sl_dropout_words words = {.key = {{5, 6}}, .first_row = 9, .rows = 1, .cols = (uint32_t)e->n};
    k->draws->words_global(words.key, 9, 1, 0, words.cols, words.cols, e->words);
    check_dropout(k, e, silu, &words);
}

/* Floats of dy are rounded as they are read. */
static void check_multiply(const struct sl_kernels *k, const struct elements *e) {
    float *slope = device_copy(e->x, e->n * sizeof *slope);
    k->operands->multiply(e->n, sl_rows_f32(e->dy), sl_rows_f32(slope), sl_out_f32(e->y));
    for (int i = 0; i < ALL; i++) {
        for (int half = 0; half < 2; half++) {
            const struct left dx = make_left(e->n);
            k->operands->multiply(e->n, half ? sl_rows_bf16(e->half_dy) : sl_rows_f32(e->exact),
                                  sl_rows_bf16(e->half_x), out_of(&dx, i));
            sl_device.settle(NULL);
            expect_left("a product with slopes", &dx, i, e->y);
            free_left(&dx);
        }
    }
    release_array(slope);
}

static void elements_are_kept_rounded(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 3, 4, 7, 65, 129, 257, 513};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {3};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            struct elements e = make_elements(&numbers, sizes[s]);
            check_silu(kernels, &e);
            for (int silu = 0; silu < 2; silu++) {
                check_words(kernels, &e, silu);
                check_drawn(kernels, &e, silu);
            }
            check_multiply(kernels, &e);
            free_elements(&e);
        }
    }
}

/* ---- layer norms ---- */

enum { ROWS = 24, PARTS = 3 };

struct norm {
    size_t cols, n;
    float *x, *scale, *bias, *dy, *exact, *summand;
    uint16_t *half_x, *half_dy, *half_summand, *half_unit, *kept;
    float *unit, *rstd, *y, *dx, *its_rstd, *dscale, *dbias, *its_dscale, *its_dbias;
};

static struct norm make_norm(struct numbers *numbers, size_t cols) {
    const size_t n = ROWS * cols;
    struct norm o = {.cols = cols,
                     .n = n,
                     .x = random_device_floats(numbers, n, -1, 3),
                     .scale = random_device_floats(numbers, cols, 0.5f, 1.5f),
                     .bias = random_device_floats(numbers, cols, -1, 1),
                     .exact = random_device_floats(numbers, n, -1, 1),
                     .summand = random_device_floats(numbers, n, -1, 1),
                     .kept = device_array(n, sizeof(uint16_t)),
                     .unit = device_floats(n),
                     .rstd = device_floats(ROWS),
                     .y = device_floats(n),
                     .dx = device_floats(n),
                     .its_rstd = device_floats(ROWS),
                     .dscale = device_floats(PARTS * cols),
                     .dbias = device_floats(PARTS * cols),
                     .its_dscale = device_floats(PARTS * cols),
                     .its_dbias = device_floats(PARTS * cols)};
    o.dy = device_copy(o.exact, n * sizeof *o.dy);
    o.half_x = settle(o.x, n);
    o.half_dy = settle(o.dy, n);
    o.half_summand = settle(o.summand, n);
    return o;
}

static void free_norm(struct norm *o) {
    void *const arrays[] = {o->x,    o->scale, o->bias,         o->dy,        o->exact,      o->summand,  o->half_x,
                            o->unit, o->rstd,  o->half_summand, o->half_unit, o->kept,       o->half_dy,  o->y,
                            o->dx,   o->dbias, o->its_rstd,     o->dscale,    o->its_dscale, o->its_dbias};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Expects equality up to the order of a row's sums, which compilers choose for each kernel: the bf16 may be a
 * neighbour. */
static void expect_near(const char *what, size_t n, const uint16_t *stored, const float *want) {
    for (size_t i = 0; i < n; i++) expect_close(what, i, sl_float_of_bf16(stored[i]), want[i], 0x1p-7, 2e-6);
}

static void expect_near_left(const char *what, const struct left *left, int i, const float *want) {
    for (size_t k = 0; k < left->count; k++) {
        const bool exact = all[i].floats && !all[i].rounds;
        const float rounded = sl_float_of_bf16(left->stored[k]);
        if (exact) expect_close(what, k, left->floats[k], want[k], 4e-6, 4e-6);
        if (all[i].stores) expect_close(what, k, rounded, want[k], 0x1p-7, 4e-6);
        if (all[i].floats && all[i].rounds) {
            expect_close(what, k, left->floats[k], want[k], 0x1p-7, 4e-6);
            assert_true(left->floats[k] == sl_bf16_part(left->floats[k]));
            if (all[i].stores) assert_true(left->floats[k] == rounded);
        }
        if (exact && all[i].stores) assert_int_equal(left->stored[k], sl_bf16_of_float(left->floats[k]));
    }
    for (size_t k = left->count; k < left->count + BEHIND; k++)
        assert_true(left->floats[k] == 3 && left->stored[k] == 0x1234);
    for (size_t k = 0; k < left->count; k++)
        assert_true((all[i].floats || left->floats[k] == 3) && (all[i].stores || left->stored[k] == 0x1234));
}

/* On hosts, with float inputs: saved values are the float kernels' results, rounded, bit for bit. */
static void expect_same_forward(const struct norm *o, const struct left *y, int i) {
    assert_memory_equal(o->its_rstd, o->rstd, ROWS * sizeof(float));
    for (size_t k = 0; k < o->n; k++) {
        assert_int_equal(o->kept[k], sl_bf16_of_float(o->unit[k]));
        if (all[i].stores) assert_int_equal(y->stored[k], sl_bf16_of_float(o->y[k]));
        if (all[i].floats && !all[i].rounds) assert_true(y->floats[k] == o->y[k]);
    }
}

static struct sl_rows rows_of(const float *floats, const uint16_t *halves, bool half) {
    return half ? sl_rows_bf16(halves) : sl_rows_f32(floats);
}

static void check_norm_forward(const struct sl_kernels *k, const struct norm *o) {
    k->norms->layer_norm_forward(ROWS, o->cols, sl_rows_f32(o->x), o->scale, o->bias, 1e-6f, sl_rows_f32(o->unit),
                                 o->rstd, sl_out_f32(o->y));
    for (int i = 0; i < ALL; i++) {
        for (int half = 0; half < 2; half++) {
            const struct left y = make_left(o->n);
            memset(o->kept, 0xab, o->n * sizeof *o->kept);
            k->norms->layer_norm_forward(ROWS, o->cols, rows_of(o->x, o->half_x, half), o->scale, o->bias, 1e-6f,
                                         sl_rows_bf16(o->kept), o->its_rstd, out_of(&y, i));
            sl_device.settle(NULL);
            expect_near_left("y", &y, i, o->y);
            expect_near("normalized", o->n, o->kept, o->unit);
            for (size_t r = 0; r < ROWS; r++) expect_close("rstd", r, o->its_rstd[r], o->rstd[r], 2e-6, 0);
            if (!half && !k->whole_norms) expect_same_forward(o, &y, i);
            free_left(&y);
        }
    }
}

/* Checks layer norm's backward. KEPT 0: all inputs are floats; 1: normalized is bf16, and dy's floats are rounded; 2:
 * dy is bf16, too. */
static void check_norm_backward(const struct sl_kernels *k, const struct norm *o, int kept, int added) {
    const float *dy = kept ? o->dy : o->exact, *summand = added ? o->summand : NULL;
    const size_t each = ROWS / PARTS, sums = PARTS * o->cols;
    if (added == 2 && !kept) return;
    k->norms->layer_norm_backward(PARTS, each, o->cols, sl_rows_f32(dy), sl_rows_f32(o->unit), o->rstd, o->scale,
                                  sl_rows_f32(summand), sl_out_f32(o->dx), o->dscale, o->dbias);
    for (int i = 0; i < ALL; i++) {
        const struct left dx = make_left(o->n);
        memset(o->its_dscale, 0xab, sums * sizeof(float));
        memset(o->its_dbias, 0xab, sums * sizeof(float));
        k->norms->layer_norm_backward(PARTS, each, o->cols, rows_of(o->exact, o->half_dy, kept == 2),
                                      rows_of(o->unit, o->half_unit, kept), o->rstd, o->scale,
                                      rows_of(summand, o->half_summand, added == 2), out_of(&dx, i), o->its_dscale,
                                      o->its_dbias);
        sl_device.settle(NULL);
        expect_near_left("dx", &dx, i, o->dx);
        assert_memory_equal(o->its_dscale, o->dscale, sums * sizeof(float));
        assert_memory_equal(o->its_dbias, o->dbias, sums * sizeof(float));
        free_left(&dx);
    }
}

static void layer_norms_are_kept_rounded(void **state) {
    (void)state;
    static const size_t columns[] = {2, 7, 64, 1100};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {9};
        for (size_t s = 0; s < sizeof columns / sizeof *columns; s++) {
            struct norm o = make_norm(&numbers, columns[s]);
            check_norm_forward(kernels, &o);
            o.half_unit = settle(o.unit, o.n);
            for (int kept = 0; kept < 3; kept++)
                for (int added = 0; added < 3; added++) check_norm_backward(kernels, &o, kept, added);
            free_norm(&o);
        }
    }
}

/* Frozen parameters have no sums. */
static void frozen_parameters_need_no_sums(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {9};
        struct norm o = make_norm(&numbers, 33);
        const struct left dx = make_left(o.n);
        check_norm_forward(kernels, &o);
        o.half_unit = settle(o.unit, o.n);
        kernels->norms->layer_norm_backward(1, ROWS, o.cols, sl_rows_f32(o.dy), sl_rows_f32(o.unit), o.rstd, o.scale,
                                            sl_rows_f32(NULL), sl_out_f32(o.dx), o.dscale, o.dbias);
        kernels->norms->layer_norm_backward(1, ROWS, o.cols, rows_of(NULL, o.half_dy, true),
                                            rows_of(NULL, o.half_unit, true), o.rstd, o.scale,
                                            rows_of(NULL, NULL, false), out_of(&dx, 4), NULL, NULL);
        sl_device.settle(NULL);
        expect_near_left("dx", &dx, 4, o.dx);
        free_left(&dx);
        free_norm(&o);
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_are_kept_rounded),
                                       cmocka_unit_test(layer_norms_are_kept_rounded),
                                       cmocka_unit_test(frozen_parameters_need_no_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
