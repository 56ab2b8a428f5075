/* constants.h - what target regions read beside their arrays, as lists of pointers are, in device memory of the
 * queue's. Between the files of the device cuda. */
#ifndef SL_SPMD_DEVICE_CONSTANTS_H
#define SL_SPMD_DEVICE_CONSTANTS_H

#include <stdbool.h>
#include <stddef.h>

#include "spmd/device/cuda.h"

/* Memory for the queue. False: the queue has failed. */
bool sl_constants_open(struct sl_cuda_queue *queue);
void sl_constants_close(struct sl_cuda_queue *queue);

/* sl_device.constant. */
const void *sl_constants_find(struct sl_cuda_queue *queue, const void *from, size_t bytes);

#endif
