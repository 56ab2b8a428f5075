/* peak_measure.h - what matrix products reach with all of a run's cores at work: measured once a machine, and kept
 * (drivers/speed/peak.h). */
#ifndef SL_DRIVERS_TRAINING_PEAK_MEASURE_H
#define SL_DRIVERS_TRAINING_PEAK_MEASURE_H

#include "drivers/speed/peak.h"
#include "drivers/training/job.h"

/* Every coordinate calls it; PEAK is written on coordinate 0. It is what the file holds for coordinate 0's machine,
 * unless ANEW or where there is none: then it is measured, in less than half a second, and kept. The number is the sum
 * over coordinates, of several machines too; where they share cores, as many of them compute as there are cores. That
 * the file cannot be read or written ends nothing: a line on stderr says so, unless it was for want of memory. */
int sl_peak_find(struct sl_worker *worker, bool anew, struct sl_peak *peak);

/* Every coordinate calls it, where a run has been faster than PEAK: measures it again, and takes and keeps the result
 * if that is more. */
int sl_peak_raise(struct sl_worker *worker, struct sl_peak *peak);

#endif
