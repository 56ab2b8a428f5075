/* sums.c - see sums.h: once per CPU level. The build defines SL_ADD_ROWS, the function's name. */
#include "collectives/sums/sums.h"

#include "spmd/base/numbers/vector_math.h"

/* Floats. Several vectors of one array are in flight at once, which hides the latency of its cache lines. */
#if defined(__AVX__)
enum { PIECE = 128 };
#else
enum { PIECE = 64 };
#endif
enum {
    LINE = SL_CACHE_LINE / sizeof(float),
    AHEAD = 2 /* rows from the summed to the prefetched ones: peers' cache lines are slow to fetch */
};

/* Y [n] (+)= the sum of the members' X[i] [n] from AT on; N <= PIECE. */
SL_INLINE void add_piece(size_t n, int members, const float *const *x, size_t at, bool accumulate, float *y) {
    float sum[PIECE];
    for (size_t c = 0; c < n; c++) sum[c] = x[0][at + c];
    for (int i = 1; i < members; i++)
        for (size_t c = 0; c < n; c++) sum[c] += x[i][at + c];
    if (accumulate)
        for (size_t c = 0; c < n; c++) y[c] += sum[c];
    else
        for (size_t c = 0; c < n; c++) y[c] = sum[c];
}

/* Sums all pieces of N from *COLUMN on; a constant N keeps a piece in registers. */
SL_INLINE void add_pieces(size_t n, size_t columns, int members, const float *const *x, size_t stride, size_t at,
                          bool accumulate, float *y, size_t *column) {
    for (; *column + n <= columns; *column += n) {
        for (int i = 0; i < members; i++)
            for (size_t l = 0; l < n; l += LINE) __builtin_prefetch(x[i] + at + *column + AHEAD * stride + l);
        add_piece(n, members, x, at + *column, accumulate, y + *column);
    }
}

void SL_ADD_ROWS(size_t rows, size_t columns, int members, const float *const *x, size_t stride, bool accumulate,
                 float *y, size_t y_stride) {
    for (size_t row = 0; row < rows; row++, y += y_stride) {
        size_t column = 0;
        add_pieces(PIECE, columns, members, x, stride, row * stride, accumulate, y, &column);
        add_pieces(PIECE / 2, columns, members, x, stride, row * stride, accumulate, y, &column);
        add_pieces(2 * LINE, columns, members, x, stride, row * stride, accumulate, y, &column);
        add_pieces(LINE, columns, members, x, stride, row * stride, accumulate, y, &column);
        if (column < columns) add_piece(columns - column, members, x, row * stride + column, accumulate, y + column);
    }
}
