/* trace_arrows.h - the messages in coordinates' traces: pairs of a send and a take. */
#ifndef SL_LAYERS_TRAINING_TRACE_TRACE_ARROWS_H
#define SL_LAYERS_TRAINING_TRACE_TRACE_ARROWS_H

#include "layers/training/trace/trace_file.h"

SL_BEGIN_C

/* A message between neighbouring stages of a pipeline. */
struct sl_trace_arrow {
    bool activation; /* otherwise a gradient */
    int sender, taker;
    double sent, taken; /* in seconds on sl_now's clock, within the events of their coordinates; sent <= taken */
};

struct sl_trace_arrows {
    int count;
    struct sl_trace_arrow *arrow; /* the caller frees it */
};

/* Finds the messages in the traces of RUN's coordinates, TRACE [coordinates]. Leaves out messages with an unrecorded
 * send or take, and messages received before they are sent, because the clocks of two hosts differ. */
int sl_trace_arrows_find(struct sl_trace_arrows *arrows, const struct sl_trace *trace, const struct sl_trace_run *run,
                         struct sl_error *error);

/* Number of a coordinate's pipeline, counted along all axes but the pipeline's, the last one fastest. */
int sl_trace_pipeline_of(const struct sl_trace_run *run, int coordinate);

SL_END_C

#endif
