/* replicas.h - checks that coordinates with the same parameters still have the same values. */
#ifndef SL_LAYERS_TRAINING_REPLICAS_H
#define SL_LAYERS_TRAINING_REPLICAS_H

#include "layers/training/trainer.h"

SL_BEGIN_C

/* Compares the MD5 sums of values and optimizer state of every parameter held by several coordinates: along axes
 * without shards of it, or on its two stages. Along the data axis nothing can drift if members share out the
 * optimizer's state and are threads: they hold values once (one_copy in layers/modules/parameters/parameters.h), and
 * each state once. SL_CHECK_FAILED on all coordinates if two of them have different bits. The error names the parameter
 * or its state ("optimizer.momentum.norm.gamma") and the two coordinates; if there are three or more copies and all but
 * one are equal, it names that one. Collective over the mesh. */
int sl_check_replicas(struct sl_spmd *self, struct sl_trainer *trainer);

SL_END_C
#endif
