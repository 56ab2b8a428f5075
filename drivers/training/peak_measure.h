/* peak_measure.h - measures the peak speed of matrix products on all of a run's cores, once per machine, and stores
 * it (drivers/speed/peak.h). */
#ifndef SL_DRIVERS_TRAINING_PEAK_MEASURE_H
#define SL_DRIVERS_TRAINING_PEAK_MEASURE_H

#include "drivers/speed/peak.h"
#include "drivers/training/job.h"

/* Collective. Writes PEAK on coordinate 0: the stored value for coordinate 0's machine. If ANEW, or if none is
 * stored, the peak is measured in less than half a second and stored. The value is the sum over coordinates, also of
 * several machines; if coordinates share cores, as many of them compute as there are cores. A file that cannot be
 * read or written is only reported on stderr, unless memory was lacking. */
int sl_peak_find(struct sl_worker *worker, bool anew, struct sl_peak *peak);

/* Collective; for a run faster than PEAK. Measures again, and stores the result in PEAK and in the file if it is
 * higher. */
int sl_peak_raise(struct sl_worker *worker, struct sl_peak *peak);

#endif
