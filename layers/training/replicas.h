/* replicas.h - whether coordinates that hold the same parameters still do. */
#ifndef SL_LAYERS_TRAINING_REPLICAS_H
#define SL_LAYERS_TRAINING_REPLICAS_H

#include "layers/training/trainer.h"

SL_BEGIN_C

/* Collective: compares the values and the optimizer state of every parameter that several coordinates hold, along axes
 * that do not shard it or on the two stages that share it, by their MD5 sums. SL_CHECK_FAILED on all coordinates where
 * two have other bits: the line names the parameter, or its state ("optimizer.momentum.norm.gamma"), and them. */
int sl_check_replicas(struct sl_spmd *self, struct sl_trainer *trainer);

SL_END_C
#endif
