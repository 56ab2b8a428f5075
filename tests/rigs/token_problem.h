/* token_problem.h - tokens, a table, activations and labels, with the two ends of a language model (embedding and head)
 * computed in double; and the coordinates' shares of them. Includes cmocka. */
#ifndef SL_TESTS_RIGS_TOKEN_PROBLEM_H
#define SL_TESTS_RIGS_TOKEN_PROBLEM_H

#include "tests/rigs/numbers.h"
#include "spmd/base/numbers/bf16.h"

enum { COLUMNS = 16, SEQUENCES = 2, MICROBATCHES = 4 };

static const float weight = 0.25f;

/* ---- a problem and its solution ---- */

/* Rows are the microbatches' rows, one microbatch after another. */
struct problem {
    int size, sequence; /* of the vocabulary; tokens */
    int rows, all;      /* of a microbatch, of all */
    enum sl_dtype precision;
    bool working_bf16;        /* the table is read as bf16, whatever the operands' type */
    int32_t *tokens, *labels; /* [all] */
    float *table, *x, *dy;    /* [size, COLUMNS]; [all, COLUMNS] twice */
    /* y = table[tokens] and dtable of dy; z = x table^T, its loss, and dx and dtable of the loss */
    double *y, *embedding_gradient, *z, *dx, *head_gradient;
    double loss, correct, counted;
};

static inline float as_operand(const struct problem *problem, float x) {
    return problem->precision == SL_BF16 ? sl_float_of_bf16(sl_bf16_of_float(x)) : x;
}

static inline float as_read(const struct problem *problem, float entry) {
    return problem->working_bf16 ? sl_float_of_bf16(sl_bf16_of_float(entry)) : entry;
}

static inline float as_kernel(const struct problem *problem, float entry) {
    return as_operand(problem, as_read(problem, entry));
}

/* Derivative of SUM by X, for sums linear in X. */
#define DERIVATIVE(x, sum) ((x) += 0.5, upper = (sum), (x) -= 1.0, lower = (sum), (x) += 0.5, upper - lower)

static inline double sum_of_lookups(const struct problem *problem, const double *table) {
    double sum = 0;
    for (int r = 0; r < problem->all; r++)
        for (int c = 0; c < COLUMNS; c++)
            sum += (double)problem->dy[r * COLUMNS + c] * table[problem->tokens[r] * COLUMNS + c];
    return sum;
}

static inline int first_of_largest(int size, const double *logits) {
    int at = 0;
    for (int v = 1; v < size; v++)
        if (logits[v] > logits[at]) at = v;
    return at;
}

static inline void solve_embedding(struct problem *p) {
    const int table = p->size * COLUMNS, rows = p->all * COLUMNS;
    double *wide = array_of((size_t)table, sizeof *wide), upper, lower;
    p->y = array_of((size_t)rows, sizeof *p->y);
    p->embedding_gradient = array_of((size_t)table, sizeof *wide);
    for (int i = 0; i < table; i++) wide[i] = as_read(p, p->table[i]);
    for (int i = 0; i < rows; i++) p->y[i] = wide[p->tokens[i / COLUMNS] * COLUMNS + i % COLUMNS];
    for (int i = 0; i < table; i++) p->embedding_gradient[i] = DERIVATIVE(wide[i], sum_of_lookups(p, wide));
    free(wide);
}

/* Labels are the first of the largest logits, any class, or none. */
static inline void draw_labels(struct problem *p, struct numbers *numbers) {
    p->labels = array_of((size_t)p->all, sizeof *p->labels);
    for (int r = 0; r < p->all; r++) {
        const int choices[] = {first_of_largest(p->size, p->z + r * p->size),
                               (int)(next_word(numbers) % (uint32_t)p->size), -1};
        p->labels[r] = choices[next_word(numbers) % 3];
    }
}

static inline void solve_logits(struct problem *p) {
    p->z = array_of((size_t)(p->all * p->size), sizeof *p->z);
    for (int i = 0; i < p->all * p->size; i++)
        for (int c = 0; c < COLUMNS; c++)
            p->z[i] += (double)as_operand(p, p->x[i / p->size * COLUMNS + c]) *
                       as_kernel(p, p->table[i % p->size * COLUMNS + c]);
}

/* By the textbook's formula: the gradient of a row's logits is (softmax - onehot) weight. */
static inline void solve_loss(struct problem *p) {
    p->dx = array_of((size_t)(p->all * COLUMNS), sizeof *p->dx);
    p->head_gradient = array_of((size_t)(p->size * COLUMNS), sizeof *p->head_gradient);
    for (int r = 0; r < p->all; r++) {
        const double *z = p->z + r * p->size, max = z[first_of_largest(p->size, z)];
        double sum = 0;
        if (p->labels[r] < 0) continue;
        for (int v = 0; v < p->size; v++) sum += exp(z[v] - max);
        p->loss += log(sum) - (z[p->labels[r]] - max);
        p->correct += first_of_largest(p->size, z) == p->labels[r];
        p->counted++;
        for (int i = 0; i < p->size * COLUMNS; i++) {
            const int v = i / COLUMNS, c = i % COLUMNS;
            const double dz = (exp(z[v] - max) / sum - (v == p->labels[r])) * (double)weight;
            p->dx[r * COLUMNS + c] += dz * as_kernel(p, p->table[i]);
            p->head_gradient[i] += dz * as_operand(p, p->x[r * COLUMNS + c]);
        }
    }
}

static inline struct problem new_problem(struct numbers *numbers, int size, int sequence, enum sl_dtype precision,
                                         bool working_bf16) {
    struct problem p = {.size = size, .sequence = sequence, .precision = precision, .working_bf16 = working_bf16};
    p.rows = SEQUENCES * sequence;
    p.all = MICROBATCHES * p.rows;
    p.tokens = array_of((size_t)p.all, sizeof *p.tokens);
    for (int r = 0; r < p.all; r++) p.tokens[r] = (int32_t)(next_word(numbers) % (uint32_t)size);
    p.table = random_floats(numbers, (size_t)(size * COLUMNS), -1, 1);
    p.x = random_floats(numbers, (size_t)(p.all * COLUMNS), -1, 1);
    p.dy = random_floats(numbers, (size_t)(p.all * COLUMNS), -1, 1);
    solve_embedding(&p);
    solve_logits(&p);
    draw_labels(&p, numbers);
    solve_loss(&p);
    return p;
}

static inline void free_problem(struct problem *p) {
    void *const arrays[] = {p->tokens, p->labels, p->table,        p->x, p->dy, p->y, p->embedding_gradient,
                            p->z,      p->dx,     p->head_gradient};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

/* ---- how it is laid out ---- */

struct layout {
    int parts, index; /* along "tensor" */
    bool parallel;
};

static inline struct layout layout_of(bool parallel, int parts, int index) {
    return (struct layout){.parts = parts, .index = index, .parallel = parallel};
}

/* Returns the index in [all, COLUMNS] of number I of a coordinate's columns of all rows. */
static inline int column_at(const struct layout *layout, int i) {
    const int own = COLUMNS / layout->parts;
    return i / own * COLUMNS + layout->index * own + i % own;
}

/* Returns the index in [size, COLUMNS] of number I of a coordinate's rows of the table. Indices beyond the array are
 * padding. */
static inline int entry_at(const struct problem *p, const struct layout *layout, int i) {
    const int rows = (p->size + layout->parts - 1) / layout->parts;
    return layout->parallel ? layout->index * (rows * COLUMNS) + i : i;
}

#endif
