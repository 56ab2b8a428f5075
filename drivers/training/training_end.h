/* training_end.h - the work after the last step of a training run, by coordinate 0's process. */
#ifndef SL_DRIVERS_TRAINING_TRAINING_END_H
#define SL_DRIVERS_TRAINING_TRAINING_END_H

#include "drivers/training/training.h"

enum { SL_TRAINING_WATCHED = 3 }; /* steps profiled without --profile */

/* Prints the run's reports, and writes --gradients and --trace. */
int sl_training_finish(struct sl_training *training, struct sl_error *error);
/* Once all records are closed: tells people the last checkpoint, and the command to go on from it. */
void sl_training_tell_end(const struct sl_training *training);

#endif
