/* graph.h - work of a stream captured as a CUDA graph. Internal to the device cuda. */
#ifndef SL_SPMD_DEVICE_CUDA_GRAPH_H
#define SL_SPMD_DEVICE_CUDA_GRAPH_H

#include "spmd/device/cuda/driver.h"

struct sl_graph {
    CUgraph captured; /* graph of nodes, as captured */
    CUgraphExec made; /* launchable form; NULL: there is none */
};

/* All functions return false, or NULL, if the queue has failed. */

/* Begins a capture: until sl_graph_end, calls to the queue's stream become nodes of a graph, and do not run. */
bool sl_graph_begin(struct sl_cuda_queue *queue);
/* The node of the last call. */
CUgraphNode sl_graph_last(struct sl_cuda_queue *queue);
/* Ends the capture, also after a failure; GRAPH is then empty. Close it in any case. */
bool sl_graph_end(struct sl_cuda_queue *queue, struct sl_graph *graph);
/* Changes NODE's parameters to those of LAUNCH, a launch of the same kernel, from the next launch of GRAPH on. */
bool sl_graph_change(struct sl_cuda_queue *queue, const struct sl_graph *graph, CUgraphNode node,
                     const struct sl_kernel_launch *launch);
bool sl_graph_launch(struct sl_cuda_queue *queue, const struct sl_graph *graph);
/* Frees GRAPH, which may still be running. */
void sl_graph_close(struct sl_cuda_queue *queue, struct sl_graph *graph);

#endif
