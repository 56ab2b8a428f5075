/* constants.h - constants of target regions (such as lists of pointers) in device memory of the queue. Internal to the
 * device cuda. */
#ifndef SL_SPMD_DEVICE_CUDA_CONSTANTS_H
#define SL_SPMD_DEVICE_CUDA_CONSTANTS_H

#include <stdbool.h>
#include <stddef.h>

#include "spmd/device/cuda/cuda.h"

/* Opens the queue's memory for constants. False: the queue has failed. */
bool sl_constants_open(struct sl_cuda_queue *queue);
void sl_constants_close(struct sl_cuda_queue *queue);

/* Implements sl_device.constant. */
const void *sl_constants_find(struct sl_cuda_queue *queue, const void *from, size_t bytes);

#endif
