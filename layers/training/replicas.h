/* replicas.h - checks that coordinates which hold the same parameters still have the same values. */
#ifndef SL_LAYERS_TRAINING_REPLICAS_H
#define SL_LAYERS_TRAINING_REPLICAS_H

#include "layers/training/trainer.h"

SL_BEGIN_C

/* Collective: compares the MD5 sums of values and optimizer state of every parameter that several coordinates hold:
 * along axes that do not shard it, or on the two stages that share it. Members of the data axis that share the
 * optimizer's state out hold their values once if they are threads (one_copy in
 * layers/modules/parameters/parameters.h), and each has states that no other has: along that axis nothing is left to
 * drift then. SL_CHECK_FAILED on all coordinates if two of them have different bits; the line names the parameter or
 * its state ("optimizer.momentum.norm.gamma") and the two, or, where three or more should have the same and all but one
 * do, that one. */
int sl_check_replicas(struct sl_spmd *self, struct sl_trainer *trainer);

SL_END_C
#endif
