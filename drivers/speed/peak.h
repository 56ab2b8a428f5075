/* peak.h - the peak speed of a machine's matrix products, in floating-point operations a second, stored in a file so
 * that all runs on one machine use the same number.
 *
 *     {"peaks": [{"host": "node7", "processor": "...", "library": "oneDNN 3.0.0, ISA e7", "precision": "f32",
 *      "cores": 8, "usable": 8, "flops_per_second": 3.88e11, "date": "2026-11-22"}]}
 *
 * The file is shardloop/peaks.json in $XDG_CACHE_HOME, or in ~/.cache if that is unset or not an absolute path. If HOME
 * is unset, too, nothing is stored. */
#ifndef SL_DRIVERS_SPEED_PEAK_H
#define SL_DRIVERS_SPEED_PEAK_H

#include "layers/formats/files/draft.h"

/* Conditions of a peak. */
struct sl_peak_key {
    char host[80], processor[120], library[80], precision[8];
    int cores;  /* working at the same time; on devices the number of coordinates */
    int usable; /* cores available to the run, some of which may be idle; 0: unknown */
};

struct sl_peak {
    double flops;  /* a second; 0: unknown */
    char date[11]; /* of the measurement, UTC: "2026-11-22" */
};

/* Returns the key for this machine. LIBRARY computes the products, PRECISION is their operands' type. */
struct sl_peak_key sl_peak_key(const char *library, const char *precision, int cores, int usable);

/* Writes the path of the file of peaks. Returns false if there is none. */
bool sl_peak_path(char path[SL_MAX_PATH]);

/* Reads the peak for KEY from PATH; flops 0 if there is no entry or no file. SL_BAD_INPUT if the file is damaged or
 * not regular, or memory is lacking: errno is then ENOMEM. */
int sl_peak_read(const char *path, const struct sl_peak_key *key, struct sl_peak *peak, struct sl_error *error);

/* Writes PEAK and the other entries of PATH, through a temporary file; entries of a damaged file are lost. Makes
 * missing directories. Not SL_OK on failure; if memory is lacking, errno is ENOMEM, and the file is unchanged. */
int sl_peak_write(const char *path, const struct sl_peak_key *key, const struct sl_peak *peak, struct sl_error *error);

/* Writes today's date, in UTC. */
void sl_peak_date(char date[11]);

#endif
