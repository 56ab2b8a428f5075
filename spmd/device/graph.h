/* graph.h - what a stream is given, as one of CUDA's graphs. Between the files of the device cuda. */
#ifndef SL_SPMD_DEVICE_GRAPH_H
#define SL_SPMD_DEVICE_GRAPH_H

#include "spmd/device/driver.h"

struct sl_graph {
    CUgraph captured; /* whose nodes have names */
    CUgraphExec made; /* what is launched; NULL: there is none */
};

/* All of these: false, or NULL, where the queue has failed. */

/* From begin to end what goes to the queue's stream becomes a part of GRAPH in place of running. */
bool sl_graph_begin(struct sl_cuda_queue *queue);
/* The node of what has come last. */
CUgraphNode sl_graph_last(struct sl_cuda_queue *queue);
/* Also where something between has failed; then GRAPH is empty. Close it. */
bool sl_graph_end(struct sl_cuda_queue *queue, struct sl_graph *graph);
/* From the next launch of GRAPH on, NODE, a launch of the same kernel, is LAUNCH. */
bool sl_graph_change(struct sl_cuda_queue *queue, const struct sl_graph *graph, CUgraphNode node,
                     const struct sl_kernel_launch *launch);
bool sl_graph_launch(struct sl_cuda_queue *queue, const struct sl_graph *graph);
/* It may still be running. */
void sl_graph_close(struct sl_cuda_queue *queue, struct sl_graph *graph);

#endif
