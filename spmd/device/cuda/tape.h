/* tape.h - records a thread's calls to its queue in a step. Internal to the device cuda.
 *
 * Steps make the same calls in the same order, with other numbers. After two equal steps the calls of the next one are
 * captured in graphs (graph.h), and from then on a step launches these graphs. Callers do not declare changes: the
 * host's code runs as before, each call is compared with the call at the same place of the step before, and a kernel
 * with other arguments gets them in its graph. If a different call comes, the rest of the step goes to the stream call
 * by call, and so do all calls outside of steps.
 *
 * A graph holds a piece: consecutive calls without a wait, an event or another use of the stream (sl_cuda_stream) among
 * them. Its calls are held back until the last one has come. */
#ifndef SL_SPMD_DEVICE_CUDA_TAPE_H
#define SL_SPMD_DEVICE_CUDA_TAPE_H

#include "spmd/device/device.h"
#include "spmd/device/cuda/driver.h"

/* Enqueues the launch of a kernel, as sl_cuda_enqueue does. */
bool sl_tape_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch);

/* Implement begin_step, end_step and report_graphs of the device table. */
void sl_tape_begin(struct sl_cuda_queue *queue, const void *owner, enum sl_graphs use);
void sl_tape_end(struct sl_cuda_queue *queue);
void sl_tape_report(const struct sl_cuda_queue *queue, struct sl_graph_report *report);

/* Call it before the queue is closed. */
void sl_tape_close(struct sl_cuda_queue *queue);

#endif
