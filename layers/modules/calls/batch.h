/* batch.h - a coordinate's examples, their copies in device-readable memory, and sums over their rows. */
#ifndef SL_LAYERS_MODULES_CALLS_BATCH_H
#define SL_LAYERS_MODULES_CALLS_BATCH_H

#include "spmd/base/budget.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Examples. An array that no stage of this coordinate reads may be NULL. A label is from 0 to classes - 1, or -1 for a
 * row without a loss; a token is from 0 to the vocabulary's size - 1. Steps refuse other values, and refuse `places`
 * that break the rule beside it; they report the row, the value and the allowed range. Arrays in device memory are not
 * checked. */
struct sl_batch {
    /* Rows of each array. A token is a row: a batch of S sequences of T tokens has S * T rows. Also set on coordinates
     * that read none of the arrays. */
    int rows;
    const float *inputs;            /* [rows, in] */
    const int32_t *labels, *tokens; /* [rows] */
    const float *targets;           /* [rows, out]: the expected outputs of a regression */
    /* [rows]: position of each token in its document, for sequences that hold several documents. Documents do not
     * attend to each other. A position is 0, or the previous token's position plus 1. NULL: each sequence is one
     * document. */
    const int32_t *places;
    /* For training with rows of label -1: the number of other rows in the whole step, over all replicas and passes; the
     * loss is the mean over them. 0: the mean over all rows. */
    double counted;
};

/* Bounds of a batch's values: labels are -1 to LABELS - 1, tokens 0 to TOKENS - 1; 0: no bound is known. */
struct sl_batch_bounds {
    int labels, tokens;
};

/* Rows [FIRST, FIRST + ROWS) of BATCH; its inputs have IN columns, its targets OUT. */
struct sl_batch sl_batch_rows(const struct sl_batch *batch, int first, int rows, int in, int out);

/* Buffers for batches: one on the device, and TIMES on the host in pinned memory, so that copies run while the host
 * goes on. If host and device share memory, the pointers are NULL. */
struct sl_batch_room {
    size_t rows, in, out, times;
    float *inputs, *host_inputs, *targets, *host_targets;
    int32_t *labels, *host_labels, *tokens, *host_tokens, *places, *host_places;
};

/* Allocates buffers for batches of ROWS rows, with IN columns of inputs and OUT of targets; the host waits once in
 * TIMES batches. Counts the device buffers in HELD. Returns false if there is no memory. Free with sl_batch_room_close,
 * also after a failure. */
bool sl_batch_room_open(struct sl_batch_room *room, size_t rows, size_t in, size_t out, size_t times,
                        struct sl_budget *held);
void sl_batch_room_close(struct sl_batch_room *room);
/* Bytes of device memory allocated by sl_batch_room_open. */
size_t sl_batch_room_bytes(size_t rows, size_t in, size_t out);

/* Returns BATCH with device-readable addresses. Copies arrays that the device cannot read into ROOM, in queue order,
 * over the previous call's arrays. The caller may change BATCH at once. NUMBER counts the batches from 0; before each
 * batch whose NUMBER is a multiple of TIMES the host waits for the queue. */
struct sl_batch sl_batch_bring(struct sl_batch_room *room, const struct sl_batch *batch, size_t number);

/* Sums over rows. `correct` counts the rows with their largest logit at the label. */
struct sl_metrics {
    double loss, correct, rows;
    double auxiliary; /* losses in addition to the model's own, each multiplied by its number of rows */
};

/* Adds SUMS = {loss, correct, rows} to METRICS. */
static inline void sl_metrics_add(struct sl_metrics *metrics, const double sums[3]) {
    metrics->loss += sums[0];
    metrics->correct += sums[1];
    metrics->rows += sums[2];
}

/* The same sums in device memory: kernels add to them, so the host need not wait for each kernel. Allocate
 * sl_sums_bytes: memory [SL_SUM_ROOM] for kernels follows the struct. */
struct sl_sums {
    double losses[3]; /* loss, correct, rows */
    double auxiliary;
    double squares; /* sum of squares of the gradients */
    uint64_t exact_squares[2];
    int32_t largest; /* bits of the largest absolute value of a gradient */
    double room[];
};

/* Bytes of the struct with its memory for kernels; sl_sums_clear sets all sums to zero. */
size_t sl_sums_bytes(void);
void sl_sums_clear(struct sl_sums *sums);
/* Adds SUMS to METRICS, after all work in the queue. */
void sl_sums_read(const struct sl_sums *sums, struct sl_metrics *metrics);

SL_END_C
#endif
