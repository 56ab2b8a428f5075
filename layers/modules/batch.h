/* batch.h - a coordinate's examples, how they come to memory that its device can read, and sums over their rows. */
#ifndef SL_LAYERS_MODULES_BATCH_H
#define SL_LAYERS_MODULES_BATCH_H

#include "spmd/base/budget.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Examples. An array may be NULL if no stage of this coordinate reads it. Labels are -1, for rows that do not count, to
 * classes - 1, tokens 0 to the vocabulary's size - 1. Steps refuse others, and places that break their rule, with the
 * row, the value and what is allowed; but not where the array is a device's, which nobody looks at. */
struct sl_batch {
    /* Rows of each array. A token is a row: a batch of tokens has as many rows as sequences times tokens of a sequence.
     * Also a coordinate that reads none of the arrays says how many rows the batch has. */
    int rows;
    const float *inputs;            /* [rows, in] */
    const int32_t *labels, *tokens; /* [rows] */
    const float *targets;           /* [rows, out]: what the model's outputs should be, for a regression */
    /* [rows]: the place of each token in its document, where sequences have several, which do not see each other: 0, or
     * one more than the token before it in the sequence. NULL: a sequence is one document. */
    const int32_t *places;
    /* To train on rows of which some have label -1: how many have not, in the whole step, over all replicas and passes;
     * the loss is the mean over these. 0: over all rows. */
    double counted;
};

/* Of what modules read of a batch: labels are -1 to LABELS - 1, tokens 0 to TOKENS - 1; 0: nobody has said. */
struct sl_batch_bounds {
    int labels, tokens;
};

/* Rows [FIRST, FIRST + ROWS) of BATCH, whose inputs have IN columns and whose targets have OUT. */
struct sl_batch sl_batch_rows(const struct sl_batch *batch, int first, int rows, int in, int out);

/* Buffers for a batch: on the device, and on the host, TIMES as many, as pinned memory, from which a copy runs while
 * the host goes on. The pointers are NULL if host and device share memory. */
struct sl_batch_room {
    size_t rows, in, out, times;
    float *inputs, *host_inputs, *targets, *host_targets;
    int32_t *labels, *host_labels, *tokens, *host_tokens, *places, *host_places;
};

/* Takes buffers for batches of ROWS rows, whose inputs have IN columns and whose targets have OUT, of which TIMES come
 * before the host waits, and counts those of the device in HELD. False if there is no memory. Free with
 * sl_batch_room_close, also after a failure. */
bool sl_batch_room_open(struct sl_batch_room *room, size_t rows, size_t in, size_t out, size_t times,
                        struct sl_budget *held);
void sl_batch_room_close(struct sl_batch_room *room);
/* Bytes of device memory that sl_batch_room_open takes. */
size_t sl_batch_room_bytes(size_t rows, size_t in, size_t out);

/* Returns BATCH at addresses that the device can read. Arrays that it cannot read are copied into ROOM, in the order of
 * the queue, over those of the call before. The caller may change BATCH at once. NUMBER counts the batches from 0 on;
 * before each first one of TIMES the host waits for the queue. */
struct sl_batch sl_batch_bring(struct sl_batch_room *room, const struct sl_batch *batch, size_t number);

/* Sums over rows. `correct` counts the rows whose largest logit is that of the label. */
struct sl_metrics {
    double loss, correct, rows;
    double auxiliary; /* losses beside the model's own, each multiplied by the number of rows that it stands for */
};

/* Adds SUMS = {loss, correct, rows} to METRICS. */
static inline void sl_metrics_add(struct sl_metrics *metrics, const double sums[3]) {
    metrics->loss += sums[0];
    metrics->correct += sums[1];
    metrics->rows += sums[2];
}

/* The same, but for what the host adds, in memory of the device's: kernels add to it, and the host does not wait for
 * each of them. Device memory of sl_sums_bytes: behind the struct is room [SL_SUM_ROOM] for kernels that need one. */
struct sl_sums {
    double losses[3]; /* loss, correct, rows */
    double auxiliary;
    double squares; /* of the gradients */
    uint64_t exact_squares[2];
    int32_t largest; /* the bits of the largest one's absolute value */
    double room[];
};

/* Bytes of the struct with its room; makes all sums zero. */
size_t sl_sums_bytes(void);
void sl_sums_clear(struct sl_sums *sums);
/* Adds SUMS to METRICS, after all that is in the queue. */
void sl_sums_read(const struct sl_sums *sums, struct sl_metrics *metrics);

SL_END_C
#endif
