/* gemm_cpu.c - matrix products on CPUs: by tile_rows.c, few_rows.c and few_rows_bf16.c, many_rows.c, one_row.c,
 * few_terms.c and few_columns.c, for shapes for which they are faster than the library or avoid its generated code.
 *
 * The choice follows from the plan alone, so that each of several microbatches in one call has the bits of a product of
 * its own. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/cpu_level.h"
#include "layers/kernels/gemm/rows/few_rows.h"
#include "layers/kernels/gemm/rows/few_terms.h"
#include "layers/kernels/gemm/rows/many_rows.h"
#include "layers/kernels/gemm/rows/one_row.h"
#include "layers/kernels/gemm/rows/packed_weights.h"
#include "layers/kernels/gemm/tiles/tile_rows.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/base/crew.h"
#include "spmd/base/memory.h"

enum {
    FEW_ROWS = 32,      /* at most so many rows: reading weights takes most of the time, and C = A B^T is faster without
                           copies of B */
    MANY_ROWS = 256,    /* at least so many rows, or terms of a weight's gradient: a tile's width of weights is used so
                           often that the library, which waits for memory, is slower even if weights are few */
    WHOLE_COLUMNS = 32, /* a tile's width at every CPU level: the library is faster with partial tiles */
    FAR_ROWS = 1024,    /* so long rows of A fall into few sets of a cache, which slows the library's A^T B */
    CACHED_WEIGHTS = 1 << 18, /* so many floats of weights stay in a core's own cache, where the library is as fast */
    SMALL_WEIGHTS = 1 << 14,
    SMALL_GRADIENT = 1 << 16, /* with fewer floats the library is faster for any number of rows */
    /* If transposed weights have few columns, the library's bits are those of few_columns.c up to this number of rows.
     */
    FEW_ROWS_TRANSPOSED = 15,
    /* With this many weights, one row takes one core longer than two cores need to synchronize; fewest columns of a
       part. */
    SHARED_WEIGHTS = 1 << 15,
    SHARED_COLUMNS = 32,
    SHARED_ROWS = 8, /* fewest rows of a part, if threads share rows of C; parts end at multiples of ROWS_STEP */
    ROWS_STEP = 4,
    PART_ROWS = 192, /* for bf16, the library multiplies this many rows, or some more, in a product of their own */
    UNTILED_ROWS =
        8,           /* for bf16, the library's products by a matrix unit (AMX) are faster than vectors for more rows */
    UNTILED_ROW = 1, /* tile_rows.c is faster than vectors for more rows */
    /* For C = A B^T between these numbers of rows tile_rows.c spends more time than the library on copies of B; for
       gradients with fewer terms, on C. */
    FEW_TILED_ROWS = 16,
    MANY_TILED_ROWS = 128,
    TILED_TERMS = 64,
};

/* One of these multiplies. If ONE is not NULL, it multiplies a single row, with the same bits. */
struct cpu {
    sl_one_row_multiply *one;
    bool few_terms, few_columns;
    const struct sl_few_rows *few;
    sl_one_row_multiply *one_widening; /* ONE for a bf16 B, if FEW exists */
    const struct sl_few_rows_widening *few_widening;
    const struct sl_few_rows_bf16 *few_bf16;
    const struct sl_many_rows *many;
    sl_multiply_tiles *tiles;
    struct sl_gemm library, rest; /* of a microbatch's rows: of each equal part; of the remaining rows */
};

/* LANES: of a vector. */
static bool fits(const struct sl_gemm *gemm, size_t lanes) {
    const size_t along = (size_t)(gemm->transpose_b ? gemm->k : gemm->n);
    return gemm->m <= FEW_ROWS && !gemm->transpose_a && along % lanes == 0 &&
           !(gemm->transpose_b && gemm->epilogue == SL_EPILOGUE_BIAS);
}

/* The library has other bits for one row or column. */
static bool fits_few_terms(const struct sl_gemm *gemm) {
    return gemm->transpose_a && !gemm->transpose_b && gemm->epilogue == SL_EPILOGUE_NONE && gemm->k <= SL_FEW_TERMS &&
           gemm->m > 1 && gemm->n > 1;
}

static bool fits_few_columns(const struct sl_gemm *gemm) {
    if (gemm->transpose_a || gemm->m < 2 || gemm->n < 2) return false;
    if (!gemm->transpose_b) return gemm->n <= SL_FEW_COLUMNS && gemm->m <= FEW_ROWS;
    return gemm->k <= SL_FEW_COLUMNS && gemm->m <= FEW_ROWS_TRANSPOSED && gemm->epilogue == SL_EPILOGUE_NONE;
}

static bool fits_many(const struct sl_gemm *gemm) {
    const bool biased = gemm->epilogue == SL_EPILOGUE_BIAS;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const bool whole = n % WHOLE_COLUMNS == 0;
    if (gemm->transpose_a)
        return !gemm->transpose_b && !biased && k >= MANY_ROWS &&
               (m * n > CACHED_WEIGHTS || m >= FAR_ROWS || (whole && m * n >= SMALL_GRADIENT));
    if (m <= FEW_ROWS || (gemm->transpose_b && biased)) return false;
    if (m >= MANY_ROWS && whole && n * k >= SMALL_WEIGHTS) return true;
    return gemm->transpose_b ? m < MANY_ROWS : n * k > CACHED_WEIGHTS;
}

/* Returns the backend for many rows. */
static const struct sl_gemm_backend *library_for(enum sl_dtype dtype) {
    if (sl_gemm_supports(&sl_gemm_onednn, dtype)) return &sl_gemm_onednn;
    return dtype == SL_BF16 ? &sl_gemm_blocked : &sl_gemm_reference;
}

static bool library_has_tiles(void) {
    const struct sl_gemm_backend *library = library_for(SL_BF16);
    return library->has_tiles && library->has_tiles(SL_BF16);
}

static bool fits_bf16(const struct sl_gemm *gemm, size_t lanes) {
    const int most = sl_tile_rows_select() ? UNTILED_ROW : library_has_tiles() ? UNTILED_ROWS : FEW_ROWS;
    return fits(gemm, lanes) && gemm->k % 2 == 0 && gemm->m <= most;
}

/* Returns NULL if the library is faster, or for one row. */
static sl_multiply_tiles *choose_tiles(const struct sl_gemm *gemm) {
    if (gemm->dtype != SL_BF16 || gemm->m == 1) return NULL;
    const struct sl_tile_rows *tiles = sl_tile_rows_select();
    if (!tiles) return NULL;
    if (!gemm->transpose_a && !gemm->transpose_b) return tiles->multiply;
    if (gemm->epilogue != SL_EPILOGUE_NONE) return NULL;
    const bool always = !library_has_tiles();
    if (!gemm->transpose_a)
        return always || gemm->m <= FEW_TILED_ROWS || gemm->m >= MANY_TILED_ROWS ? tiles->multiply_transposed : NULL;
    return !gemm->transpose_b && (always || gemm->k >= TILED_TERMS) ? tiles->multiply_gradient : NULL;
}

/* Returns NULL if products of more rows add in another order. */
static sl_one_row_multiply *choose_one(const struct sl_gemm *gemm) {
    const struct sl_one_row *one = sl_one_row_available(0);
    const struct sl_few_rows_bf16 *few_bf16 = sl_few_rows_bf16_select();
    if (gemm->m != 1 || gemm->transpose_b || !fits(gemm, one->lanes)) return NULL;
    if (gemm->dtype == SL_F32) return one->f32;
    if (few_bf16) return fits_bf16(gemm, few_bf16->lanes) ? sl_one_row_avx512_bf16 : NULL;
    return library_for(SL_BF16) == &sl_gemm_blocked ? one->bf16 : NULL;
}

static int plan_rows(struct sl_gemm *rows, const struct sl_gemm *gemm, int m, struct sl_error *error) {
    return sl_gemm_plan(rows, library_for(gemm->dtype), gemm->dtype, m, gemm->n, gemm->k, gemm->transpose_a,
                        gemm->transpose_b, gemm->epilogue, error);
}

/* The library's bits may depend on the number of rows: so the plan divides the rows into products, and any thread may
 * compute any of these. For floats, whose kernel has independent rows, all rows are one product. */
static int plan_library(struct cpu *cpu, const struct sl_gemm *gemm, struct sl_error *error) {
    const int most = gemm->dtype == SL_BF16 && !gemm->transpose_a ? gemm->m / PART_ROWS : 1;
    const int parts = most > 1 ? most - most % 2 : 1, each = (gemm->m + parts - 1) / parts;
    SL_TRY(plan_rows(&cpu->library, gemm, each, error));
    if (gemm->m % each == 0) return SL_OK;
    const int status = plan_rows(&cpu->rest, gemm, gemm->m % each, error);
    if (status) sl_gemm_release(&cpu->library);
    return status;
}

static int choose(struct cpu *cpu, const struct sl_gemm *gemm, struct sl_error *error) {
    const struct sl_few_rows *few = sl_few_rows_select();
    const struct sl_few_rows_bf16 *few_bf16 = sl_few_rows_bf16_select();
    cpu->one = choose_one(gemm);
    if (gemm->dtype == SL_F32 && fits(gemm, few->lanes)) {
        cpu->few = few;
        cpu->few_widening = sl_few_rows_widening_available(0);
        if (cpu->one) cpu->one_widening = sl_one_row_available(0)->widening;
        return SL_OK;
    }
    if (gemm->dtype == SL_F32 && fits_many(gemm)) {
        cpu->many = sl_many_rows_select();
        return SL_OK;
    }
    cpu->tiles = choose_tiles(gemm);
    if (cpu->tiles) return SL_OK;
    if (gemm->dtype == SL_BF16 && few_bf16 && fits_bf16(gemm, few_bf16->lanes)) {
        cpu->few_bf16 = few_bf16;
        return SL_OK;
    }
    cpu->few_terms = gemm->dtype == SL_F32 && sl_cpu_level() >= 4 && fits_few_terms(gemm);
    cpu->few_columns = gemm->dtype == SL_F32 && sl_cpu_level() >= 4 && fits_few_columns(gemm);
    if (cpu->few_terms || cpu->few_columns) return SL_OK;
    return plan_library(cpu, gemm, error);
}

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return sl_error_set(error, SL_FAILED, "matrix products: no memory");
    const int status = choose(cpu, gemm, error);
    if (status) {
        free(cpu);
        return status;
    }
    gemm->state = cpu;
    return SL_OK;
}

static void release(struct sl_gemm *gemm) {
    struct cpu *cpu = gemm->state;
    sl_gemm_release(&cpu->library);
    sl_gemm_release(&cpu->rest);
    free(cpu);
}

/* ---- one row, by several threads ---- */

struct one {
    const struct cpu *cpu;
    size_t n, k, columns;  /* columns: of each part except the last */
    enum sl_dtype weights; /* B's */
    bool widens, transposed;
    const void *a;
    const char *b;
    const float *bias;
    float *c;
};

/* The bits of a column of C do not depend on other columns. */
static void multiply_columns(void *arg, int part) {
    const struct one *o = arg;
    const size_t first = o->columns * (size_t)part;
    const size_t columns = o->n - first < o->columns ? o->n - first : o->columns;
    const void *b = o->b + first * sl_dtype_size(o->weights) * (o->transposed ? o->k : 1);
    const float *bias = o->bias ? o->bias + first : NULL;
    if (o->transposed && o->widens)
        o->cpu->few_widening->multiply_transposed(1, columns, o->k, o->a, b, false, o->c + first);
    else if (o->transposed && o->cpu->few_bf16)
        o->cpu->few_bf16->multiply_transposed(1, columns, o->k, o->a, b, false, o->c + first);
    else if (o->transposed)
        o->cpu->few->multiply_transposed(1, columns, o->k, o->a, b, false, o->c + first);
    else
        (o->widens ? o->cpu->one_widening : o->cpu->one)(columns, o->n, o->k, o->a, b, bias, o->c + first);
}

/* Parts begin at whole cache lines of C; for bf16 also at whole vectors. */
static size_t columns_of_thread(size_t n, size_t k, struct sl_crew *crew) {
    const size_t threads = (size_t)sl_crew_threads(crew);
    return n * k < SHARED_WEIGHTS ? n : sl_round_up((n + threads - 1) / threads, SHARED_COLUMNS);
}

static void multiply_one(const struct sl_gemm *gemm, const void *a, enum sl_dtype weights, const void *b,
                         const float *bias, float *c, struct sl_crew *crew) {
    const size_t n = (size_t)gemm->n, k = (size_t)gemm->k;
    struct one one = {.cpu = gemm->state,
                      .n = n,
                      .k = k,
                      .columns = columns_of_thread(n, k, crew),
                      .weights = weights,
                      .widens = weights != gemm->dtype,
                      .transposed = gemm->transpose_b,
                      .a = a,
                      .b = b,
                      .bias = bias,
                      .c = c};
    sl_crew_run(crew, (int)((n + one.columns - 1) / one.columns), multiply_columns, &one);
}

/* ---- any rows, which threads share ---- */

/* Operands of some microbatches. */
struct operands {
    const struct sl_gemm *gemm;
    enum sl_dtype weights; /* B's */
    const char *a;
    const void *b;
    const float *bias; /* or NULL */
    bool accumulate;
    struct sl_out c; /* floats */
};

static struct operands operands_of(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays) {
    return (struct operands){.gemm = gemm,
                             .weights = arrays->b.type,
                             .a = arrays->a.at,
                             .b = arrays->b.at,
                             .bias = gemm->epilogue == SL_EPILOGUE_BIAS ? arrays->bias.at : NULL,
                             .accumulate = arrays->x.at != NULL,
                             .c = arrays->c};
}

static float *sums_of(const struct operands *o) { return o->c.rows.at; }

static const void *rows_of(const struct operands *o, size_t first) {
    return o->a + first * (size_t)o->gemm->k * sl_dtype_size(o->gemm->dtype);
}

/* Multiplies M rows, with A and C at their first row, without the library. */
static void multiply_few(const struct operands *o, size_t m, const void *a, float *c) {
    const struct cpu *cpu = o->gemm->state;
    const size_t n = (size_t)o->gemm->n, k = (size_t)o->gemm->k;
    const bool transposed = o->gemm->transpose_b, widens = o->weights != o->gemm->dtype;
    if (widens && transposed)
        cpu->few_widening->multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (widens)
        cpu->few_widening->multiply(m, n, k, a, o->b, o->bias, o->accumulate, c);
    else if (cpu->few && transposed)
        cpu->few->multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (cpu->few)
        cpu->few->multiply(m, n, k, a, o->b, o->bias, o->accumulate, c);
    else if (cpu->few_bf16 && transposed)
        cpu->few_bf16->multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (cpu->few_bf16)
        cpu->few_bf16->multiply(m, n, k, a, o->b, o->bias, o->accumulate, c);
    else if (cpu->few_columns && transposed)
        sl_few_columns_multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (cpu->few_columns)
        sl_few_columns_multiply(m, n, k, a, o->b, o->bias, o->accumulate, c);
    else
        sl_few_terms_multiply(m, n, k, a, o->b, o->accumulate, c);
}

/* Multiplies M rows, with A and C at their first row. C = A B is rounded here. */
static void multiply_many(const struct operands *o, size_t m, const void *a, struct sl_out left) {
    float *c = left.rows.at;
    const struct sl_many_rows *many = ((const struct cpu *)o->gemm->state)->many;
    const struct sl_many_rows_widening *widening =
        o->weights != o->gemm->dtype ? sl_many_rows_widening_available(0) : NULL;
    const size_t n = (size_t)o->gemm->n, k = (size_t)o->gemm->k;
    if (o->gemm->transpose_a && widening)
        widening->multiply_gradient(m, n, k, a, o->b, o->accumulate, c);
    else if (o->gemm->transpose_a)
        many->multiply_gradient(m, n, k, a, o->b, o->accumulate, c);
    else if (o->gemm->transpose_b && widening)
        widening->multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (o->gemm->transpose_b)
        many->multiply_transposed(m, n, k, a, o->b, o->accumulate, c);
    else if (widening)
        widening->multiply(m, n, k, a, o->b, o->bias, o->accumulate, left);
    else
        many->multiply(m, n, k, a, o->b, o->bias, o->accumulate, left);
}

/* Multiplies M rows from row FIRST on. A row's bits do not depend on the number of rows. many_rows.c's kernel rounds
 * its results itself. */
static void multiply_rows(const struct operands *o, size_t first, size_t m) {
    const struct cpu *cpu = o->gemm->state;
    const size_t n = (size_t)o->gemm->n;
    const bool rounds = cpu->many && !o->gemm->transpose_a && !o->gemm->transpose_b;
    const struct sl_out c = sl_out_from(o->c, first * n);
    const void *a = rows_of(o, first);
    if (cpu->many)
        multiply_many(o, m, a, c);
    else
        multiply_few(o, m, a, c.rows.at);
    if (c.rounds && !rounds) sl_many_rows_select()->settle(m, n, NULL, c);
}

struct rows {
    const struct operands *operands;
    size_t all, each; /* each: of each part except the last */
};

static void multiply_part(void *arg, int part) {
    const struct rows *rows = arg;
    const size_t first = rows->each * (size_t)part, left = rows->all - first;
    multiply_rows(rows->operands, first, left < rows->each ? left : rows->each);
}

/* For a weight's gradient, C's rows are A's columns: threads do not share them. */
static void share_rows(const struct operands *o, size_t m, struct sl_crew *crew) {
    const size_t threads = (size_t)sl_crew_threads(crew), most = m / SHARED_ROWS;
    const bool shared = !o->gemm->transpose_a && (size_t)o->gemm->n * (size_t)o->gemm->k >= SHARED_WEIGHTS;
    const size_t parts = !shared || most < 2 ? 1 : most < threads ? most : threads;
    struct rows rows = {o, m, parts < 2 ? m : sl_round_up((m + parts - 1) / parts, ROWS_STEP)};
    sl_crew_run(crew, (int)((m + rows.each - 1) / rows.each), multiply_part, &rows);
}

static void multiply_by_tiles(const struct operands *o, size_t m, struct sl_crew *crew) {
    const struct sl_tile_product product = {.m = m,
                                            .n = (size_t)o->gemm->n,
                                            .k = (size_t)o->gemm->k,
                                            .end = (size_t)o->gemm->n,
                                            .a = (const void *)o->a,
                                            .b = o->b,
                                            .bias = o->bias,
                                            .accumulate = o->accumulate,
                                            .c = o->c};
    sl_tile_rows_share(((const struct cpu *)o->gemm->state)->tiles, &product, crew);
}

/* ---- few rows, with columns shared by threads: B's rows are columns of C, or B is a copy in strips ---- */

static struct sl_packed_weights packed_weights(const struct sl_gemm *gemm, enum sl_dtype weights,
                                               struct sl_crew *crew) {
    const size_t n = (size_t)gemm->n, k = (size_t)gemm->k;
    return (struct sl_packed_weights){n, k, columns_of_thread(n, k, crew), sl_dtype_size(weights)};
}

static void multiply_strip(const void *arg, size_t first, size_t columns, const void *strip) {
    const struct operands *all = arg;
    const struct cpu *cpu = all->gemm->state;
    const size_t m = (size_t)all->gemm->m, n = (size_t)all->gemm->n, k = (size_t)all->gemm->k;
    const float *bias = all->bias ? all->bias + first : NULL;
    if (m == 1) {
        const bool widens = all->weights != all->gemm->dtype;
        (widens ? cpu->one_widening : cpu->one)(columns, columns, k, all->a, strip, bias, sums_of(all) + first);
        return;
    }
    _Alignas(SL_CACHE_LINE) float rows[FEW_ROWS * SL_STRIP_COLUMNS];
    struct sl_gemm gemm = *all->gemm;
    gemm.n = (int)columns;
    const struct operands own = {.gemm = &gemm, .weights = all->weights, .a = all->a, .b = strip, .bias = bias};
    multiply_few(&own, m, all->a, rows);
    for (size_t i = 0; i < m; i++) memcpy(sums_of(all) + i * n + first, rows + i * columns, columns * sizeof *rows);
}

static void multiply_strips(const struct operands *o, struct sl_crew *crew) {
    const struct sl_packed_weights shape = packed_weights(o->gemm, o->weights, crew);
    sl_packed_weights_multiply(&shape, o->b, multiply_strip, o, crew);
    if (o->c.rounds) sl_many_rows_select()->settle((size_t)o->gemm->m, shape.n, NULL, o->c);
}

struct products {
    const struct operands *operands;
    _Atomic int status;
};

/* Computes product NUMBER, counted over the products of all microbatches. */
static int multiply_product(const struct operands *o, size_t number) {
    const struct cpu *cpu = o->gemm->state;
    const size_t m = (size_t)o->gemm->m, n = (size_t)o->gemm->n, each = (size_t)cpu->library.m;
    const size_t parts = (m + each - 1) / each, part = number % parts;
    const size_t first = number / parts * m + part * each;
    const struct sl_gemm *product = part < m / each ? &cpu->library : &cpu->rest;
    const struct sl_out c = sl_out_from(o->c, first * n);
    const void *a = rows_of(o, first);
    const bool settles = c.rounds && sl_gemm_settles(product->backend);
    struct sl_gemm_arrays arrays = sl_gemm_floats(product, 1, a, o->b, o->bias, o->accumulate, c.rows.at);
    if (settles) arrays.c = c;
    SL_TRY(sl_gemm_execute(product, arrays, NULL));
    if (c.rounds && !settles) sl_many_rows_select()->settle((size_t)product->m, n, NULL, c);
    return SL_OK;
}

static void try_product(void *arg, int number) {
    struct products *products = arg;
    const int status = multiply_product(products->operands, (size_t)number);
    if (status) atomic_store(&products->status, status);
}

static int share_products(const struct operands *o, int count, struct sl_crew *crew) {
    const struct cpu *cpu = o->gemm->state;
    struct products products = {o, SL_OK};
    const int each = cpu->library.m;
    sl_crew_run(crew, count * ((o->gemm->m + each - 1) / each), try_product, &products);
    return atomic_load(&products.status);
}

static int multiply(const struct operands *o, int count, struct sl_crew *crew) {
    const struct cpu *cpu = o->gemm->state;
    const size_t m = (size_t)count * (size_t)o->gemm->m, n = (size_t)o->gemm->n;
    if (cpu->library.backend) return share_products(o, count, crew);
    if (cpu->tiles) {
        multiply_by_tiles(o, m, crew);
        return SL_OK;
    }
    const bool dots = o->gemm->transpose_b && (cpu->few || cpu->few_bf16);
    if (dots && m > 1 && count == 1 && !o->accumulate && sl_crew_threads(crew) > 1) {
        multiply_strips(o, crew);
        return SL_OK;
    }
    if (m > 1 || o->accumulate || !(cpu->one || dots)) {
        share_rows(o, m, crew);
        return SL_OK;
    }
    multiply_one(o->gemm, o->a, o->weights, o->b, o->bias, sums_of(o), crew);
    if (o->c.rounds) sl_many_rows_select()->settle(m, n, NULL, o->c);
    return SL_OK;
}

static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    const struct operands operands = operands_of(gemm, arrays);
    if (!arrays->packed) return multiply(&operands, arrays->count, queue);
    multiply_strips(&operands, queue);
    return SL_OK;
}

/* The library would need a widened copy. */
static bool widens(const struct sl_gemm *gemm) { return fits(gemm, sl_few_rows_select()->lanes) || fits_many(gemm); }

/* ---- packed weights for few rows ---- */

/* If B is bf16 and the operands are floats, few_rows.c's kernels widen it. For floats the answer does not depend on the
 * CPU. */
static bool packs(const struct sl_gemm *gemm, enum sl_dtype weights) {
    const struct sl_few_rows_bf16 *few_bf16 = sl_few_rows_bf16_select();
    if (!fits(gemm, WHOLE_COLUMNS)) return false;
    if (gemm->dtype == SL_F32) return true;
    return weights == SL_BF16 && (few_bf16 ? fits_bf16(gemm, few_bf16->lanes) : choose_one(gemm) != NULL);
}

static void pack(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue) {
    const struct sl_packed_weights shape = packed_weights(gemm, weights, queue);
    sl_packed_weights_fill(&shape, b, packed, queue);
}

/* Describes the backend for many rows of floats. */
static void describe(char *text, size_t size) { sl_gemm_describe(library_for(SL_F32), text, size); }

const struct sl_gemm_backend sl_gemm_cpu = {.name = "cpu",
                                            .settles = true,
                                            .plan = plan,
                                            .execute = execute,
                                            .widens = widens,
                                            .packs = packs,
                                            .pack = pack,
                                            .release = release,
                                            .describe = describe};
