/* partial.c - see partial.h. Partial sums belong to the digits of a counter of arrays, in base 2 for trees, otherwise
 * in base SL_SUM_BLOCK. Each digit that is not 0 has a partial sum. When a digit becomes 0 again, its sum is added to
 * the next digit's. */
#include "collectives/sums/partial.h"

#include "spmd/base/numbers/dtype.h"

enum {
    PIECE = 64,  /* elements */
    DIGITS = 21, /* of the largest number of arrays in base 2 */
};
_Static_assert(SL_MOST_COORDINATES < 1 << DIGITS, "as many arrays as can come");

static int base_of(enum sl_reduction reduction) { return reduction == SL_TREE ? 2 : SL_SUM_BLOCK; }

int sl_waiting_sums(enum sl_reduction reduction, int arrays) {
    int sums = 0;
    for (; arrays; arrays /= base_of(reduction)) sums += arrays % base_of(reduction) != 0;
    return sums;
}

struct counter {
    int base, arrays;
    float digit[DIGITS][PIECE];
};

static void add_or_copy(size_t n, bool add, const float *x, float *sum) {
    if (add)
        for (size_t i = 0; i < n; i++) sum[i] += x[i];
    else
        for (size_t i = 0; i < n; i++) sum[i] = x[i];
}

/* Counts the array X [n]. */
static void count_array(struct counter *counter, size_t n, const float *x) {
    int done = counter->arrays++;
    for (int d = 0;; d++, done /= counter->base) {
        add_or_copy(n, done % counter->base, x, counter->digit[d]);
        if ((done + 1) % counter->base) return;
        x = counter->digit[d];
    }
}

/* Returns the sum of all arrays. */
static const float *finish(struct counter *counter, size_t n) {
    const float *sum = NULL;
    for (int d = 0, left = counter->arrays; left; d++, left /= counter->base) {
        if (left % counter->base == 0) continue;
        if (sum) add_or_copy(n, true, sum, counter->digit[d]);
        sum = counter->digit[d];
    }
    return sum;
}

/* Copies the partial sums from their arrays of COUNT elements, or to them. */
static void load(struct counter *counter, size_t n, const float *waiting, size_t count) {
    for (int d = 0, left = counter->arrays; left; d++, left /= counter->base) {
        if (left % counter->base == 0) continue;
        add_or_copy(n, false, waiting, counter->digit[d]);
        waiting += count;
    }
}
static void store(const struct counter *counter, size_t n, float *waiting, size_t count) {
    for (int d = 0, left = counter->arrays; left; d++, left /= counter->base) {
        if (left % counter->base == 0) continue;
        add_or_copy(n, false, counter->digit[d], waiting);
        waiting += count;
    }
}

void sl_continue_sum(const struct sl_partial *partial, size_t count, int inputs, const void *const *input,
                     float *waiting, void *output) {
    struct counter counter;
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        counter.base = base_of(partial->reduction);
        counter.arrays = partial->before;
        load(&counter, n, waiting + at, count);
        for (int k = 0; k < inputs; k++) {
            float x[PIECE];
            for (size_t i = 0; i < n; i++) x[i] = sl_load_float(partial->dtype, input[k], at + i);
            count_array(&counter, n, x);
        }
        if (counter.arrays < partial->size) {
            store(&counter, n, waiting + at, count);
            continue;
        }
        const float *sum = finish(&counter, n);
        for (size_t i = 0; i < n; i++)
            sl_store_float(partial->dtype, output, at + i, partial->scale == 1 ? sum[i] : sum[i] * partial->scale);
    }
}
