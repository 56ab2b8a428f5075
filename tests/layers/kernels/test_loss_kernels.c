/* test_loss_kernels.c - the kernels of the loss over token sequences, of every level of this CPU, against naive oracles
 * in double; with classes in one part, in chunks and on two coordinates. */
#include "tests/rigs/sequence_levels.h"

#include "spmd/base/numbers/bf16.h"

/* A share of the classes, from FIRST on: a chunk's, or a coordinate's, which owns the rows' numbers. */
struct loss_part {
    size_t first, cols;
    float *logits, *p;
    float *maxima, *argmaxima, *sums, *targets, *scales; /* [rows] */
    double *result;
};

static const double sums_before[3] = {100, 200, 300};

enum division { WHOLE, CHUNKS, COORDINATES, DIVISIONS };

static struct loss_part make_loss_part(size_t rows, size_t classes, const float *logits, size_t first, size_t cols) {
    struct loss_part part = {
        .first = first,
        .cols = cols,
        .logits = device_floats(rows * cols),
        .p = device_floats(rows * cols),
        .maxima = device_floats(rows),
        .argmaxima = device_floats(rows),
        .sums = device_floats(rows),
        .targets = device_floats(rows),
        .scales = device_floats(rows),
        .result = device_copy(sums_before, sizeof sums_before),
    };
    for (size_t r = 0; r < rows && cols; r++)
        memcpy(part.logits + r * cols, logits + r * classes + first, cols * sizeof *logits);
    float *const unset[] = {part.maxima, part.argmaxima, part.sums, part.targets, part.scales};
    for (size_t i = 0; i < 5 * rows; i++) unset[i / rows][i % rows] = NAN;
    return part;
}

static void free_loss_part(struct loss_part *p) {
    float *const arrays[] = {p->logits, p->p, p->maxima, p->argmaxima, p->sums, p->targets, p->scales};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    release_array(p->result);
}

/* Checks that the same chunk without floats writes the same NUMBERS and STORED values, to the bit. */
static void take_stored(const struct sl_sequence_kernels *kernels, size_t rows, const struct loss_part *part,
                        const struct loss_part *owner, const int32_t *labels, float *const numbers[5],
                        const uint16_t *stored) {
    float *const own[] = {owner->maxima, owner->argmaxima, owner->sums, owner->targets, owner->scales};
    uint16_t *alone = device_array(rows * part->cols, sizeof *alone);
    float *copy[5];
    for (int i = 0; i < 5; i++) copy[i] = device_copy(own[i], rows * sizeof **copy);
    kernels->softmax_chunk(rows, part->cols, (int32_t)part->first, part->logits, labels, part == owner, copy[0],
                           copy[1], copy[2], copy[3], copy[4], sl_out_bf16(alone));
    assert_memory_equal(alone, stored, rows * part->cols * sizeof *alone);
    for (int i = 0; i < 5; i++) assert_memory_equal(copy[i], numbers[i], rows * sizeof **copy);
    for (int i = 0; i < 5; i++) release_array(copy[i]);
    release_array(alone);
}

/* Expects STORED to be X as bf16. A GPU's NaN may have other bits. */
static void expect_stored(size_t n, const float *x, const uint16_t *stored) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            assert_true(isnan(sl_float_of_bf16(stored[i])));
        else
            assert_int_equal(stored[i], sl_bf16_of_float(x[i]));
    }
}

/* PART's classes come to the numbers of OWNER; in place of the logits, too. */
static void take_chunk(const struct sl_sequence_kernels *kernels, size_t rows, const struct loss_part *part,
                       const struct loss_part *owner, const int32_t *labels) {
    const bool begins = part == owner;
    float *logits = device_copy(part->logits, rows * part->cols * sizeof *logits), *numbers[5];
    float *const own[] = {owner->maxima, owner->argmaxima, owner->sums, owner->targets, owner->scales};
    for (int i = 0; i < 5; i++) numbers[i] = device_copy(own[i], rows * sizeof **numbers);
    uint16_t *stored = device_array(rows * part->cols, sizeof *stored);
    kernels->softmax_chunk(rows, part->cols, (int32_t)part->first, logits, labels, begins, numbers[0], numbers[1],
                           numbers[2], numbers[3], numbers[4], sl_out_of(logits, false, stored));
    expect_stored(rows * part->cols, logits, stored);
    take_stored(kernels, rows, part, owner, labels, numbers, stored);
    release_array(stored);
    kernels->softmax_chunk(rows, part->cols, (int32_t)part->first, part->logits, labels, begins, owner->maxima,
                           owner->argmaxima, owner->sums, owner->targets, owner->scales, sl_out_f32(part->p));
    assert_memory_equal(logits, part->p, rows * part->cols * sizeof *logits);
    for (int i = 0; i < 5; i++) assert_memory_equal(numbers[i], own[i], rows * sizeof **numbers);
    for (int i = 0; i < 5; i++) release_array(numbers[i]);
    release_array(logits);
}

/* Joins the parts as the coordinates' communication does. */
static void join(const struct sl_sequence_kernels *kernels, size_t rows, struct loss_part *part) {
    float *sums[2] = {part[0].sums, part[1].sums}, *targets[2] = {part[0].targets, part[1].targets};
    for (size_t r = 0; r < rows; r++) {
        struct loss_part *one = &part[0], *other = &part[1];
        const struct loss_part *best = other->maxima[r] > one->maxima[r] ? other : one;
        one->scales[r] = one->maxima[r];
        other->scales[r] = other->maxima[r];
        one->argmaxima[r] = other->argmaxima[r] = best->argmaxima[r];
        one->maxima[r] = other->maxima[r] = best->maxima[r];
    }
    for (int i = 0; i < 2; i++) {
        kernels->softmax_join(rows, part[i].maxima, part[i].scales, part[i].sums);
        if (part[i].cols) kernels->scale_rows(rows, part[i].cols, part[i].scales, part[i].p);
    }
    psum(2, rows, sums);
    psum(2, rows, targets);
}

/* Computes the loss, and the gradients in place of the parts' logits. */
static void run_loss(const struct sl_sequence_kernels *kernels, enum division division, size_t rows,
                     struct loss_part *part, const int32_t *labels, float weight) {
    const int parts = division == WHOLE ? 1 : 2;
    for (int i = 0; i < parts; i++) {
        const struct loss_part *owner = &part[division == COORDINATES ? i : 0];
        take_chunk(kernels, rows, &part[i], owner, labels);
        if (division == CHUNKS && i == 1) kernels->scale_rows(rows, part[0].cols, part[0].scales, part[0].p);
    }
    if (division == COORDINATES) join(kernels, rows, part);
    for (int i = 0; i < parts; i++) {
        const struct loss_part *owner = &part[division == COORDINATES ? i : 0];
        float *again = device_copy(part[i].logits, rows * part[i].cols * sizeof *again);
        uint16_t *stored = device_array(rows * part[i].cols, sizeof *stored);
        uint16_t *alone = device_array(rows * part[i].cols, sizeof *alone);
        kernels->softmax_dlogits(rows, part[i].cols, (int32_t)part[i].first, labels, owner->maxima, owner->sums, weight,
                                 again, sl_out_bf16(alone));
        kernels->softmax_dlogits(rows, part[i].cols, (int32_t)part[i].first, labels, owner->maxima, owner->sums, weight,
                                 part[i].logits, sl_out_f32(part[i].logits));
        kernels->softmax_dlogits(rows, part[i].cols, (int32_t)part[i].first, labels, owner->maxima, owner->sums, weight,
                                 again, sl_out_of(again, false, stored));
        assert_memory_equal(again, part[i].logits, rows * part[i].cols * sizeof *again);
        assert_memory_equal(alone, stored, rows * part[i].cols * sizeof *alone);
        expect_stored(rows * part[i].cols, again, stored);
        release_array(again);
        release_array(stored);
        release_array(alone);
        if (owner == &part[i])
            kernels->softmax_losses(rows, labels, owner->maxima, owner->argmaxima, owner->sums, owner->targets, 2, 3,
                                    part[i].result);
    }
}

/* Adds one row to RESULT and gives its gradient and its p. */
static size_t cross_entropy_row(size_t classes, const float *x, int label, double weight, double *dx, double *p,
                                double *result) {
    double sum = 0;
    size_t best = 0;
    for (size_t c = 0; c < classes; c++) best = x[c] > x[best] ? c : best;
    for (size_t c = 0; c < classes; c++) sum += p[c] = exp((double)x[c] - x[best]);
    for (size_t c = 0; c < classes; c++) dx[c] = label < 0 ? 0 : weight * (p[c] / sum - ((int)c == label));
    if (label < 0) return best;
    result[0] += log(sum) - ((double)x[label] - x[best]);
    result[1] += (int)best == label;
    result[2] += 1;
    return best;
}

static void expect_row(int level, const struct loss_part *part, size_t row, float weight, const double *dx,
                       const double *p) {
    for (size_t c = 0; c < part->cols; c++) {
        const size_t at = row * part->cols + c;
        expect_close(at_level(level, "dlogits"), at, part->logits[at], dx[part->first + c], 5e-6, 1e-6 * weight);
        expect_close(at_level(level, "p"), at, part->p[at], p[part->first + c], 5e-6, 1e-6);
    }
}

/* Checks the loss in one part, and in two parts that meet before class SPLIT. */
static void expect_loss(int level, size_t rows, size_t classes, size_t split, const float *logits,
                        const int32_t *labels) {
    const float weight = 0.125f;
    double *dx = array_of(classes, sizeof *dx), *p = array_of(classes, sizeof *p);
    for (enum division division = WHOLE; division < DIVISIONS; division++) {
        const size_t head = division == WHOLE ? classes : split;
        struct loss_part part[2] = {make_loss_part(rows, classes, logits, 0, head),
                                    make_loss_part(rows, classes, logits, head, classes - head)};
        const int parts = division == WHOLE ? 1 : 2, owners = division == COORDINATES ? 2 : 1;
        run_loss(table_of(level), division, rows, part, labels, weight);
        double expected[3] = {0};
        for (size_t r = 0; r < rows; r++) {
            const float *x = logits + r * classes;
            const size_t best = cross_entropy_row(classes, x, labels[r], weight, dx, p, expected);
            for (int i = 0; i < parts; i++) expect_row(level, &part[i], r, weight, dx, p);
            for (int i = 0; i < owners; i++) {
                assert_true(part[i].maxima[r] == x[best] && part[i].argmaxima[r] == (float)best);
                assert_true(part[i].targets[r] == (labels[r] < 0 ? 0 : x[labels[r]]));
            }
        }
        for (int i = 0; i < owners; i++) {
            const double *result = part[i].result;
            expect_close(at_level(level, "loss"), 0, result[0], 100 + 2 * expected[0], 1e-6, 1e-6 * (double)rows);
            assert_true(result[1] == 200 + 3 * expected[1] && result[2] == 300 + 2 * expected[2]);
        }
        free_loss_part(&part[0]);
        free_loss_part(&part[1]);
    }
    free(dx);
    free(p);
}

/* Few rows, and more than a team has threads. */
static void losses_of_random_rows(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {10};
        for (int s = 0; s < SHAPES; s++) {
            for (int scale = 1; scale <= 100; scale *= 10) {
                const size_t rows = (s ? 4 : 150) * shapes[s][0], classes = shapes[s][1];
                int32_t *labels;
                float *logits = random_logits(&numbers, rows, classes, (float)scale, &labels);
                expect_loss(level, rows, classes, next_word(&numbers) % (classes + 1), logits, labels);
                release_array(logits);
                release_array(labels);
            }
        }
    }
}

static void the_first_of_equal_logits_is_the_guess(void **state) {
    (void)state;
    enum { ROWS = 6, CLASSES = 37 };
    struct numbers numbers = {11};
    FOR_EACH_LEVEL(kernels) {
        for (int i = 0; i < 50; i++) {
            float *logits = device_floats(ROWS * CLASSES);
            int32_t *labels = device_array(ROWS, sizeof *labels);
            for (int c = 0; c < ROWS * CLASSES; c++) /* few values; in half of the rows the largest is 0, or -0 */
                logits[c] = (float)(int)(next_word(&numbers) % 4) - (c / CLASSES % 2 ? 3.0f : 1.0f);
            for (int c = 0; c < ROWS * CLASSES; c++)
                if (logits[c] == 0.0f && next_word(&numbers) % 2) logits[c] = -0.0f;
            for (int r = 0; r < ROWS; r++) labels[r] = (int32_t)(next_word(&numbers) % 10);
            expect_loss(level, ROWS, CLASSES, next_word(&numbers) % CLASSES, logits, labels);
            release_array(logits);
            release_array(labels);
        }
    }
}

/* Losses of logits in one piece; a row's largest logit may be among the last ones. */
static void maxima_name_the_first_of_equals(void **state) {
    (void)state;
    enum { ROWS = 40, CLASSES = 37, FIRST = -11 };
    struct numbers numbers = {13};
    FOR_EACH_LEVEL(kernels) {
        float *logits = device_floats(ROWS * CLASSES), *maxima = device_floats(ROWS), *argmaxima = device_floats(ROWS);
        for (int i = 0; i < ROWS * CLASSES; i++) logits[i] = (float)(next_word(&numbers) % 23) - 17.0f;
        kernels->row_maxima(ROWS, CLASSES, FIRST, logits, maxima, argmaxima);
        for (int r = 0; r < ROWS; r++) {
            int highest = 0;
            for (int c = 1; c < CLASSES; c++)
                if (logits[r * CLASSES + c] > logits[r * CLASSES + highest]) highest = c;
            assert_true(maxima[r] == logits[r * CLASSES + highest]);
            assert_true(argmaxima[r] == (float)(FIRST + highest));
        }
        release_array(logits);
        release_array(maxima);
        release_array(argmaxima);
    }
}

/* The two largest logits are equal: in one warp of a GPU's team, in two, or of one thread. */
static void equals_may_lie_far_apart(void **state) {
    (void)state;
    static const size_t places[] = {0, 3, 31, 32, 40, 70, 100, 127, 128, 149, 260, 299};
    enum { PLACES = sizeof places / sizeof *places, ROWS = PLACES * (PLACES - 1) / 2, CLASSES = 300 };
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        struct numbers numbers = {16};
        float *logits = random_device_floats(&numbers, (size_t)ROWS * CLASSES, -1, 1),
              *losses = device_floats(2 * ROWS);
        float *maxima = device_floats(ROWS), *argmaxima = device_floats(ROWS);
        float *dlogits = device_floats((size_t)ROWS * CLASSES);
        int32_t *labels = device_array(ROWS, sizeof *labels), firsts[ROWS];
        size_t row = 0;
        for (size_t a = 0; a < PLACES; a++) {
            for (size_t b = a + 1; b < PLACES; b++, row++) {
                logits[row * CLASSES + places[a]] = logits[row * CLASSES + places[b]] = 1.5f;
                labels[row] = (int32_t)places[row % 2 ? a : b];
                firsts[row] = (int32_t)places[a];
            }
        }
        kernels->sequence->row_maxima(ROWS, CLASSES, 5, logits, maxima, argmaxima);
        kernels->softmax_cross_entropy(ROWS, CLASSES, logits, labels, 1.0f, dlogits, losses);
        for (size_t r = 0; r < ROWS; r++) {
            assert_true(maxima[r] == 1.5f && argmaxima[r] == (float)(5 + firsts[r]));
            assert_true(losses[2 * r + 1] == (float)(labels[r] == firsts[r]));
        }
        void *const arrays[] = {logits, losses, maxima, argmaxima, dlogits, labels};
        for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) release_array(arrays[a]);
    }
}

/* Many classes with similar terms, so a sum could lose digits. */
static void large_vocabularies_lose_no_digits(void **state) {
    (void)state;
    enum { CLASSES = 20011 };
    struct numbers numbers = {12};
    float *logits = random_device_floats(&numbers, CLASSES, -0.01f, 0.01f);
    int32_t *labels = device_copy(&(int32_t){CLASSES - 1}, sizeof *labels);
    FOR_EACH_LEVEL(kernels) expect_loss(level, 1, CLASSES, 10000, logits, labels);
    release_array(logits);
    release_array(labels);
}

static void losses_are_large_without_overflow(void **state) {
    (void)state;
    float *logits = device_copy((float[]){-1e4f, 1e4f, 0, 3e38f, -3e38f, 0}, 6 * sizeof *logits);
    int32_t *labels = device_array(2, sizeof *labels);
    FOR_EACH_LEVEL(kernels) expect_loss(level, 2, 3, 1, logits, labels);
    release_array(logits);
    release_array(labels);
}

static void nan_surfaces_in_the_loss(void **state) {
    (void)state;
    enum { CLASSES = 35 };
    const float poisons[] = {NAN, -NAN, INFINITY};
    float *logits = device_floats(CLASSES);
    int32_t *label = device_copy(&(int32_t){17}, sizeof *label);
    FOR_EACH_LEVEL(kernels) {
        for (int p = 0; p < 3; p++) {
            for (size_t at = 0; at < CLASSES; at++) {
                logits[at] = poisons[p];
                struct loss_part part[2] = {make_loss_part(1, CLASSES, logits, 0, CLASSES)};
                run_loss(kernels, WHOLE, 1, part, label, 1.0f);
                assert_true(isnan(part->result[0]) && part->result[2] == 302);
                assert_true(part->argmaxima[0] >= 0 && part->argmaxima[0] < CLASSES);
                free_loss_part(part);
                logits[at] = 0.0f;
            }
        }
    }
    release_array(logits);
    release_array(label);
}

/* dx = (dx scales / sums - the label's row) weight, of a table in floats and in bf16. Labels have more than 16 bits. */
static void gradients_take_the_labels_rows_off(void **state) {
    (void)state;
    enum { FIRST_CLASS = (1 << 16) + 5, OWN_CLASSES = 7, ROWS = 20 };
    const float weight = 0.25f;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {13};
        for (int s = 0; s < SHAPES; s++) {
            const size_t cols = shapes[s][1], n = ROWS * cols, entries = OWN_CLASSES * cols;
            float *table = random_device_floats(&numbers, entries, -2, 2), *sums = device_floats(ROWS);
            float *scales = random_device_floats(&numbers, ROWS, 0, 1);
            uint16_t *rounded = device_array(entries, sizeof *rounded);
            int32_t *labels = device_array(ROWS, sizeof *labels);
            for (size_t i = 0; i < entries; i++) rounded[i] = sl_bf16_of_float(table[i]);
            for (int r = 0; r < ROWS; r++) sums[r] = next_float(&numbers, 1, 9);
            for (int r = 0; r < ROWS; r++) /* before, among and behind the own ones */
                labels[r] = r ? FIRST_CLASS - 5 + r % 16 : -1;
            for (int half = 0; half < 2; half++) {
                float *dx = random_device_floats(&numbers, n, -3, 3), *before = device_copy(dx, n * sizeof *dx);
                kernels->softmax_gradient(ROWS, cols, labels, FIRST_CLASS, OWN_CLASSES, sums, scales, weight,
                                          half ? sl_rows_bf16(rounded) : sl_rows_f32(table), sl_out_f32(dx));
                for (size_t i = 0; i < n; i++) {
                    const size_t r = i / cols, at = (size_t)(labels[r] - FIRST_CLASS) * cols + i % cols;
                    const bool here = labels[r] >= FIRST_CLASS && labels[r] < FIRST_CLASS + OWN_CLASSES;
                    const double row = !here ? 0 : half ? (double)sl_float_of_bf16(rounded[at]) : (double)table[at];
                    const double scaled = (double)before[i] * scales[r] / sums[r];
                    expect_close(at_level(level, "dx"), i, dx[i], labels[r] < 0 ? 0 : weight * (scaled - row), 1e-6,
                                 1e-6);
                }
                release_array(dx);
                release_array(before);
            }
            void *const arrays[] = {table, sums, scales, rounded, labels};
            for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
        }
    }
}

enum { LABELLED = 9, FIRST_CLASS = (1 << 16) + 2, OWN_CLASSES = 3 };

/* Tables of COLS columns. */
static void expect_rows_of_labels(const struct sl_sequence_kernels *kernels, size_t cols) {
    struct numbers numbers = {14};
    const size_t n = LABELLED * cols, entries = OWN_CLASSES * cols;
    float *table = random_device_floats(&numbers, entries, -2, 2);
    uint16_t *rounded = device_array(entries, sizeof *rounded);
    int32_t *labels = device_array(LABELLED, sizeof *labels);
    for (size_t i = 0; i < entries; i++) rounded[i] = sl_bf16_of_float(table[i]);
    for (int r = 0; r < LABELLED; r++) labels[r] = r ? FIRST_CLASS - 3 + r : -1;
    for (int way = 0; way < 4; way++) {
        const bool half = way & 1, begins = way & 2;
        float *y = random_device_floats(&numbers, n, -3, 3), *before = device_copy(y, n * sizeof *y);
        kernels->label_rows(LABELLED, cols, labels, FIRST_CLASS, OWN_CLASSES,
                            half ? sl_rows_bf16(rounded) : sl_rows_f32(table), begins, y);
        for (size_t i = 0; i < n; i++) {
            const int32_t place = labels[i / cols] - FIRST_CLASS;
            const bool here = place >= 0 && place < OWN_CLASSES;
            const size_t at = here ? (size_t)place * cols + i % cols : 0;
            const float other = begins ? 0.0f : before[i];
            assert_true(y[i] == (!here ? other : half ? sl_float_of_bf16(rounded[at]) : table[at]));
        }
        release_array(y);
        release_array(before);
    }
    void *const arrays[] = {table, rounded, labels};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

static void labels_find_their_rows(void **state) {
    (void)state;
    static const size_t widths[] = {1, 37, 128, 130, 300};
    FOR_EACH_LEVEL(kernels)
    for (int i = 0; i < 5; i++) expect_rows_of_labels(kernels, widths[i]);
}

/* Numbers of rows: one, all and one more than a GPU's team has threads, several teams. */
static const size_t row_counts[] = {1, 2, 127, 128, 129, 256, 257, 385};
enum { ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

static void every_row_has_its_place(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        for (int i = 0; i < ROW_COUNTS; i++) {
            const size_t rows = row_counts[i];
            int32_t *labels = device_array(rows, sizeof *labels), *places = device_array(rows, sizeof *places);
            for (size_t r = 0; r < rows; r++) labels[r] = (int32_t)(r % 3) - 1, places[r] = -7;
            kernels->label_places(rows, labels, places);
            for (size_t r = 0; r < rows; r++) assert_int_equal(places[r], r % 3 ? (int)r : -1);
            release_array(labels);
            release_array(places);
        }
    }
}

/* A shard's sums, to the maxima of all. */
static void sums_are_joined(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {15};
        for (int i = 0; i < ROW_COUNTS; i++) {
            const size_t rows = row_counts[i];
            float *maxima = random_device_floats(&numbers, rows, 0, 2), *own = device_floats(rows);
            float *sums = random_device_floats(&numbers, rows, 1, 9), *before = device_copy(sums, rows * sizeof *sums);
            for (size_t r = 0; r < rows; r++) own[r] = r % 3 ? maxima[r] - next_float(&numbers, 0, 5) : maxima[r];
            float *scales = device_copy(own, rows * sizeof *own);
            kernels->softmax_join(rows, maxima, scales, sums);
            for (size_t r = 0; r < rows; r++) {
                const double scale = exp((double)(own[r] - maxima[r]));
                expect_close(at_level(level, "scale"), r, scales[r], scale, 1e-6, 0);
                expect_close(at_level(level, "sum"), r, sums[r], scale * before[r], 1e-6, 0);
            }
            void *const arrays[] = {maxima, own, sums, before, scales};
            for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) release_array(arrays[a]);
        }
    }
}

static void labels_are_copied(void **state) {
    (void)state;
    static const size_t widths[] = {3, 128, 130};
    FOR_EACH_LEVEL(kernels) {
        for (int w = 0; w < 3; w++) {
            const size_t cols = widths[w], stride = cols + 6;
            int32_t *from = device_array(4 * stride, sizeof *from), *to = device_array(4 * cols, sizeof *to);
            for (size_t i = 0; i < 4 * stride; i++) from[i] = i % 5 ? (int32_t)i : -1;
            kernels->copy_labels(4, cols, from + 2, stride, to);
            for (size_t i = 0; i < 4 * cols; i++) assert_int_equal(to[i], from[i / cols * stride + 2 + i % cols]);
            release_array(from);
            release_array(to);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_random_rows),
        cmocka_unit_test(the_first_of_equal_logits_is_the_guess),
        cmocka_unit_test(maxima_name_the_first_of_equals),
        cmocka_unit_test(equals_may_lie_far_apart),
        cmocka_unit_test(large_vocabularies_lose_no_digits),
        cmocka_unit_test(losses_are_large_without_overflow),
        cmocka_unit_test(nan_surfaces_in_the_loss),
        cmocka_unit_test(gradients_take_the_labels_rows_off),
        cmocka_unit_test(labels_are_copied),
        cmocka_unit_test(labels_find_their_rows),
        cmocka_unit_test(every_row_has_its_place),
        cmocka_unit_test(sums_are_joined),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
