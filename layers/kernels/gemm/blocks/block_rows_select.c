/* block_rows_select.c - selects the products with quantized weights for this CPU, and divides them among threads. */
#include "layers/kernels/gemm/blocks/block_dots.h"
#include "layers/kernels/gemm/blocks/block_rows.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"

enum {
    SHARED_WEIGHTS = 1 << 15, /* with this many weights one core takes longer than two need to synchronize */
    SHARES = 4,               /* shares per thread: cores do not read equally fast */
    STEP = 32,    /* a share has a multiple of so many rows of weights: whole lines of C, and whole vectors */
    DOT_ROWS = 6, /* a share of A has a multiple of so many rows: whole tiles with VNNI */
    DOT_ELEMENTS =
        1 << 17, /* of such a share at most, unless these are few rows: they stay in the second-level cache */
    LEAST = 30,  /* rows that a share may always have: unpacked weights serve all of its rows */
    MANY = 24,   /* with so many rows of A per thread, threads share them: each unpacks all weights */
};

const struct sl_block_rows *sl_block_rows_available(int i) {
    const struct sl_block_rows *tables[] = {&sl_block_rows_v4, &sl_block_rows_v3, &sl_block_rows_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_block_dots *sl_block_dots_available(int i) {
    const struct sl_block_dots *tables[] = {&sl_block_dots_vnni, &sl_block_dots_v4, &sl_block_dots_v3,
                                            &sl_block_dots_v2, NULL};
    const int best = sl_cpu_has_byte_dots() ? 0 : 5 - sl_cpu_level();
    return i < 0 || best + i > 4 ? NULL : tables[best + i];
}

struct work {
    const struct sl_blocks *b;
    size_t each; /* rows of B per share, except the last */
    size_t m;
    const float *a, *bias;
    float *c;   /* or the widened rows */
    void *room; /* for all of A's rows, rounded */
    const struct sl_block_dots *dots;
    const struct sl_dot_rows *x; /* some of A's rows */
};

static size_t end_of(const struct work *w, size_t first) {
    return first + w->each < w->b->rows ? first + w->each : w->b->rows;
}

static void multiply_share(void *arg, int share) {
    const struct work *w = arg;
    const size_t first = w->each * (size_t)share;
    sl_block_rows_available(0)->multiply(w->b, first, end_of(w, first), w->m, w->a, w->bias, w->c);
}

static void widen_share(void *arg, int share) {
    const struct work *w = arg;
    const size_t first = w->each * (size_t)share;
    sl_block_rows_available(0)->widen(w->b, first, end_of(w, first) - first, w->c + first * w->b->columns);
}

static void dot_share(void *arg, int share) {
    const struct work *w = arg;
    const size_t first = w->each * (size_t)share;
    w->dots->multiply(w->b, first, end_of(w, first), w->x, w->bias, w->c);
}

static void run(struct work *w, struct sl_crew *crew, void (*share)(void *, int)) {
    const size_t rows = w->b->rows, threads = (size_t)sl_crew_threads(crew);
    const size_t shares = threads < 2 || rows * w->b->columns < SHARED_WEIGHTS ? 1 : SHARES * threads;
    w->each = sl_round_up((rows + shares - 1) / shares, STEP);
    sl_crew_run(crew, (int)((rows + w->each - 1) / w->each), share, w);
}

void sl_block_rows_multiply(const struct sl_blocks *b, size_t m, const float *a, const float *bias, float *c,
                            struct sl_crew *crew) {
    struct work work = {.b = b, .m = m, .a = a, .bias = bias, .c = c};
    run(&work, crew, multiply_share);
}

void sl_block_rows_widen(const struct sl_blocks *b, float *to, struct sl_crew *crew) {
    struct work work = {.b = b, .c = to};
    run(&work, crew, widen_share);
}

/* Computes COUNT rows of C from row FIRST on. CREW, which may be NULL, shares the columns. */
static void dot_rows(const struct work *w, size_t first, size_t count, struct sl_crew *crew) {
    const size_t k = w->b->columns;
    const struct sl_dot_rows x = sl_dot_rows_in((char *)w->room + sl_dot_rows_room(first, k), count, k);
    struct work part = {.b = w->b, .dots = w->dots, .x = &x, .bias = w->bias, .c = w->c + first * w->b->rows};
    w->dots->round(w->b->type, w->a + first * k, &x);
    run(&part, crew, dot_share);
}

static void dot_row_share(void *arg, int share) {
    const struct work *w = arg;
    const size_t first = w->each * (size_t)share;
    dot_rows(w, first, w->m - first < w->each ? w->m - first : w->each, NULL);
}

void sl_block_dots_multiply(const struct sl_blocks *b, size_t m, const float *a, const float *bias, float *c,
                            void *room, struct sl_crew *crew) {
    const size_t fit = DOT_ELEMENTS / b->columns / DOT_ROWS * DOT_ROWS, most = fit > LEAST ? fit : LEAST;
    const size_t threads = (size_t)sl_crew_threads(crew), shares = sl_round_up((m + most - 1) / most, threads);
    struct work work = {.b = b, .m = m, .a = a, .bias = bias, .c = c, .room = room, .dots = sl_block_dots_available(0)};
    work.each = sl_round_up((m + shares - 1) / shares, DOT_ROWS);
    if (m >= MANY * threads)
        sl_crew_run(crew, (int)((m + work.each - 1) / work.each), dot_row_share, &work);
    else
        for (size_t row = 0; row < m; row += most) dot_rows(&work, row, m - row < most ? m - row : most, crew);
}
