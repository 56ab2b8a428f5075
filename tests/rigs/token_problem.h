/* token_problem.h - tokens, a table and gradients, and in double what the two ends of a language model and its loss
 * make of them; and who has which part. Includes cmocka.
 *
 * Gradients are differences of what forward makes. */
#ifndef SL_TESTS_RIGS_TOKEN_PROBLEM_H
#define SL_TESTS_RIGS_TOKEN_PROBLEM_H

#include "tests/rigs/numbers.h"
#include "spmd/base/bf16.h"

enum { COLUMNS = 16, SEQUENCES = 2, MICROBATCHES = 4 };

static const float weight = 0.25f;

/* ---- a problem and its solution ---- */

/* Rows are those of all microbatches, one after another. */
struct problem {
    int size, sequence; /* of the vocabulary; tokens */
    int rows, all;      /* of a microbatch, of all */
    enum sl_dtype precision;
    int32_t *tokens, *labels;        /* [all] */
    float *table, *x, *dy, *dlogits; /* [size, COLUMNS]; [all, COLUMNS] twice; [all, size] */
    float *logits;                   /* [all, size]: what the loss is given */
    /* y = table[tokens] and dtable of dy; z = x table^T, dx and dtable of dlogits; the loss and its gradient */
    double *y, *embedding_gradient, *z, *dx, *logits_gradient, *loss_gradient;
    double loss, correct, counted;
};

static inline float as_operand(const struct problem *problem, float x) {
    return problem->precision == SL_BF16 ? sl_float_of_bf16(sl_bf16_of_float(x)) : x;
}

/* Derivative of sums that are linear in *X. */
#define DERIVATIVE(x, sum) ((x) += 0.5, upper = (sum), (x) -= 1.0, lower = (sum), (x) += 0.5, upper - lower)

static inline double sum_of_lookups(const struct problem *problem, const double *table) {
    double sum = 0;
    for (int r = 0; r < problem->all; r++)
        for (int c = 0; c < COLUMNS; c++)
            sum += (double)problem->dy[r * COLUMNS + c] * table[problem->tokens[r] * COLUMNS + c];
    return sum;
}

/* Of rows [FIRST, END), classes [BEGIN, LIMIT): logits times their gradients. */
static inline double sum_of_logits(const struct problem *problem, const double *table, const double *x, int first,
                                   int end, int begin, int limit) {
    double sum = 0;
    for (int r = first; r < end; r++) {
        for (int v = begin; v < limit; v++) {
            double dot = 0;
            for (int c = 0; c < COLUMNS; c++) dot += x[r * COLUMNS + c] * table[v * COLUMNS + c];
            sum += dot * as_operand(problem, problem->dlogits[r * problem->size + v]);
        }
    }
    return sum;
}

static inline double row_loss(int size, const double *logits, int label) {
    double max = logits[0], sum = 0;
    for (int v = 1; v < size; v++) max = logits[v] > max ? logits[v] : max;
    for (int v = 0; v < size; v++) sum += exp(logits[v] - max);
    return label < 0 ? 0 : log(sum) - (logits[label] - max);
}

static inline int first_of_largest(int size, const float *logits) {
    int at = 0;
    for (int v = 1; v < size; v++)
        if (logits[v] > logits[at]) at = v;
    return at;
}

static inline void solve_table(struct problem *p) {
    const int table = p->size * COLUMNS, rows = p->all * COLUMNS;
    double *wide = array_of((size_t)table, sizeof *wide), *x = array_of((size_t)rows, sizeof *x), upper, lower;
    p->y = array_of((size_t)rows, sizeof *p->y);
    p->dx = array_of((size_t)rows, sizeof *p->dx);
    p->z = array_of((size_t)(p->all * p->size), sizeof *p->z);
    p->embedding_gradient = array_of((size_t)table, sizeof *wide);
    p->logits_gradient = array_of((size_t)table, sizeof *wide);
    for (int i = 0; i < table; i++) wide[i] = p->table[i];
    for (int i = 0; i < rows; i++) p->y[i] = wide[p->tokens[i / COLUMNS] * COLUMNS + i % COLUMNS];
    for (int i = 0; i < table; i++) p->embedding_gradient[i] = DERIVATIVE(wide[i], sum_of_lookups(p, wide));
    for (int i = 0; i < table; i++) wide[i] = as_operand(p, p->table[i]);
    for (int i = 0; i < rows; i++) x[i] = as_operand(p, p->x[i]);
    for (int i = 0; i < p->all * p->size; i++)
        for (int c = 0; c < COLUMNS; c++) p->z[i] += x[i / p->size * COLUMNS + c] * wide[i % p->size * COLUMNS + c];
    for (int i = 0; i < table; i++) {
        const int v = i / COLUMNS;
        p->logits_gradient[i] = DERIVATIVE(wide[i], sum_of_logits(p, wide, x, 0, p->all, v, v + 1));
    }
    for (int i = 0; i < rows; i++) {
        const int r = i / COLUMNS;
        p->dx[i] = DERIVATIVE(x[i], sum_of_logits(p, wide, x, r, r + 1, 0, p->size));
    }
    free(wide);
    free(x);
}

static inline void solve_loss(struct problem *p) {
    const double step = 1e-4;
    double *row = array_of((size_t)p->size, sizeof *row);
    p->loss_gradient = array_of((size_t)(p->all * p->size), sizeof *row);
    for (int r = 0; r < p->all; r++) {
        const float *logits = p->logits + r * p->size;
        for (int v = 0; v < p->size; v++) row[v] = logits[v];
        p->loss += row_loss(p->size, row, p->labels[r]);
        p->correct += first_of_largest(p->size, logits) == p->labels[r];
        p->counted += p->labels[r] >= 0;
        for (int v = 0; v < p->size; v++) {
            row[v] = logits[v] + step;
            const double upper = row_loss(p->size, row, p->labels[r]);
            row[v] = logits[v] - step;
            p->loss_gradient[r * p->size + v] = weight * (upper - row_loss(p->size, row, p->labels[r])) / (2 * step);
            row[v] = logits[v];
        }
    }
    free(row);
}

/* Few different values, so that there are several largest, far from 0 in some rows. Labels are the first of these, the
 * last, any, or none. */
static inline void draw_loss(struct problem *p, struct numbers *numbers) {
    p->logits = floats((size_t)(p->all * p->size));
    p->labels = array_of((size_t)p->all, sizeof *p->labels);
    for (int r = 0; r < p->all; r++) {
        float *logits = p->logits + r * p->size;
        for (int v = 0; v < p->size; v++)
            logits[v] = 0.75f * (float)(next_word(numbers) % 5) + (r % 3 ? 0 : (float)(r % 2 * 400 - 200));
        const int first = first_of_largest(p->size, logits);
        int last = first;
        for (int v = first; v < p->size; v++)
            if (logits[v] == logits[first]) last = v;
        const int choices[] = {first, last, (int)(next_word(numbers) % (uint32_t)p->size), -1};
        p->labels[r] = choices[next_word(numbers) % 4];
    }
}

static inline struct problem new_problem(struct numbers *numbers, int size, int sequence, enum sl_dtype precision) {
    struct problem p = {.size = size, .sequence = sequence, .precision = precision};
    p.rows = SEQUENCES * sequence;
    p.all = MICROBATCHES * p.rows;
    p.tokens = array_of((size_t)p.all, sizeof *p.tokens);
    for (int r = 0; r < p.all; r++) p.tokens[r] = (int32_t)(next_word(numbers) % (uint32_t)size);
    p.table = random_floats(numbers, (size_t)(size * COLUMNS), -1, 1);
    p.x = random_floats(numbers, (size_t)(p.all * COLUMNS), -1, 1);
    p.dy = random_floats(numbers, (size_t)(p.all * COLUMNS), -1, 1);
    p.dlogits = random_floats(numbers, (size_t)(p.all * size), -1, 1);
    draw_loss(&p, numbers);
    solve_table(&p);
    solve_loss(&p);
    return p;
}

static inline void free_problem(struct problem *p) {
    void *const arrays[] = {p->tokens,
                            p->labels,
                            p->table,
                            p->x,
                            p->dy,
                            p->dlogits,
                            p->logits,
                            p->y,
                            p->embedding_gradient,
                            p->z,
                            p->dx,
                            p->logits_gradient,
                            p->loss_gradient};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* ---- how it is laid out ---- */

struct layout {
    int parts, index; /* along "tensor" */
    bool parallel;
    int used; /* logits a microbatch */
};

static inline bool by_tokens(const struct problem *p, const struct layout *layout) {
    return !layout->parallel && p->sequence % layout->parts == 0;
}

static inline struct layout layout_of(const struct problem *p, bool parallel, int parts, int index) {
    struct layout layout = {.parts = parts, .index = index, .parallel = parallel};
    layout.used = p->rows * p->size / (parallel || by_tokens(p, &layout) ? parts : 1);
    return layout;
}

/* The element of [all, size] that is number I of a coordinate's logits of MICROBATCH. */
static inline int logit_at(const struct problem *p, const struct layout *layout, int microbatch, int i) {
    int row = i / p->size, class = i % p->size;
    if (layout->parallel) {
        const int own = p->size / layout->parts;
        row = i / own;
        class = layout->index * own + i % own;
    } else if (by_tokens(p, layout)) {
        const int share = p->sequence / layout->parts;
        row = row / share * p->sequence + layout->index * share + row % share;
    }
    return (microbatch * p->rows + row) * p->size + class;
}

/* The same of [all, COLUMNS], of the coordinate's columns of all rows. */
static inline int column_at(const struct layout *layout, int i) {
    const int own = COLUMNS / layout->parts;
    return i / own * COLUMNS + layout->index * own + i % own;
}

/* The same of [size, COLUMNS], of its rows of the table. */
static inline int entry_at(const struct problem *p, const struct layout *layout, int i) {
    return layout->parallel ? layout->index * (p->size / layout->parts * COLUMNS) + i : i;
}

#endif
