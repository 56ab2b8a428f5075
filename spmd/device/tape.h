/* tape.h - what a thread asks its queue for in a step, call by call. Between the files of the device cuda.
 *
 * Steps ask for the same in the same order, but for numbers. So after two that were alike the next one's calls are
 * captured in graphs (graph.h), and from then on a step is these graphs. Nobody has to say what changes from step to
 * step: the host's code runs as ever, each call is compared with the one that was at its place in the step before, and
 * a kernel that gets other arguments gets them in its graph. Where another call comes, the rest of the step goes to
 * the stream call by call, and so do all calls that are no part of a step.
 *
 * What becomes one graph is a piece: neighbouring calls with no wait, event or other use of the stream among them
 * (sl_cuda_stream). They are held back until the last of them has come. */
#ifndef SL_SPMD_DEVICE_TAPE_H
#define SL_SPMD_DEVICE_TAPE_H

#include "spmd/device/device.h"
#include "spmd/device/driver.h"

/* As sl_cuda_enqueue, for the launch of a kernel. */
bool sl_tape_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch);

/* As begin_step, end_step and graphs of the device table. */
void sl_tape_begin(struct sl_cuda_queue *queue, const void *owner, enum sl_graphs use);
void sl_tape_end(struct sl_cuda_queue *queue);
void sl_tape_report(const struct sl_cuda_queue *queue, struct sl_graph_report *report);

/* Before the queue is closed. */
void sl_tape_close(struct sl_cuda_queue *queue);

#endif
