/* peak.h - how many floating-point operations a second a machine's matrix products reach, kept in a file, so that runs
 * of one machine are measured against the same number.
 *
 *     {"peaks": [{"host": "node7", "processor": "...", "library": "oneDNN 3.0.0, ISA e7", "precision": "f32", "cores":
 * 8, "usable": 8, "flops_per_second": 3.88e11, "date": "2026-11-22"}]}
 *
 * It is shardloop/peaks.json in $XDG_CACHE_HOME, or in ~/.cache where that is unset or no absolute path. Where HOME is
 * unset, too, nothing is kept. */
#ifndef SL_DRIVERS_SPEED_PEAK_H
#define SL_DRIVERS_SPEED_PEAK_H

#include "layers/storage/draft.h"

/* What a peak depends on. */
struct sl_peak_key {
    char host[80], processor[120], library[80], precision[8];
    int cores;  /* at work at once; on devices the number of coordinates */
    int usable; /* that the run may use, so that others may be idle or have less to do; 0: nobody knows */
};

struct sl_peak {
    double flops;  /* a second; 0: unknown */
    char date[11]; /* of the measurement, UTC: "2026-11-22" */
};

/* This machine's. LIBRARY is what multiplies, PRECISION its operands' type. */
struct sl_peak_key sl_peak_key(const char *library, const char *precision, int cores, int usable);

/* Where peaks are kept. False: nowhere. */
bool sl_peak_path(char path[SL_MAX_PATH]);

/* The peak that PATH holds for KEY; of no operations where it has none, or is not there. SL_BAD_INPUT where it is
 * damaged or no regular file, or memory is lacking: errno is then ENOMEM. */
int sl_peak_read(const char *path, const struct sl_peak_key *key, struct sl_peak *peak, struct sl_error *error);

/* Writes PEAK beside the others that PATH holds, under a temporary name that is renamed; of a damaged file nothing
 * stays. Directories that are missing are made. Not SL_OK where that fails; errno is ENOMEM where memory is lacking,
 * and the file stays as it was. */
int sl_peak_write(const char *path, const struct sl_peak_key *key, const struct sl_peak *peak, struct sl_error *error);

/* Today's. */
void sl_peak_date(char date[11]);

#endif
