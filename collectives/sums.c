/* sums.c - see sums.h: once per CPU level. The build defines SL_ADD_ROWS, the function's name. */
#include "collectives/sums.h"

#include "spmd/base/base.h"

/* Floats. Vectors of one array that are under way at once hide how far its lines come from. */
#if defined(__AVX__)
enum { PIECE = 128 };
#else
enum { PIECE = 64 };
#endif
enum {
    LINE = SL_CACHE_LINE / sizeof(float),
    AHEAD = 2 /* rows between what is added and what is asked for: peers' lines come from far */
};

/* Y [n] (+)= the sum of the members' X[i] [n] from AT on; N <= PIECE. */
static inline void add_piece(size_t n, int members, const float *const *x, size_t at, bool accumulate, float *y) {
    float sum[PIECE];
    for (size_t c = 0; c < n; c++) sum[c] = x[0][at + c];
    for (int i = 1; i < members; i++)
        for (size_t c = 0; c < n; c++) sum[c] += x[i][at + c];
    if (accumulate)
        for (size_t c = 0; c < n; c++) y[c] += sum[c];
    else
        for (size_t c = 0; c < n; c++) y[c] = sum[c];
}

void SL_ADD_ROWS(size_t rows, size_t columns, int members, const float *const *x, size_t stride, bool accumulate,
                 float *y, size_t y_stride) {
    for (size_t row = 0; row < rows; row++, y += y_stride) {
        for (size_t c = 0; c < columns; c += PIECE) {
            const size_t n = columns - c < PIECE ? columns - c : PIECE, at = row * stride + c;
            for (int i = 0; i < members; i++)
                for (size_t l = 0; l < n; l += LINE) __builtin_prefetch(x[i] + at + AHEAD * stride + l);
            if (n == PIECE)
                add_piece(PIECE, members, x, at, accumulate, y + c);
            else
                add_piece(n, members, x, at, accumulate, y + c);
        }
    }
}
