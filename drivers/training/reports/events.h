/* events.h - writes TensorBoard files: the numbers of a training run's JSON objects, each as a scalar of its step.
 *
 * A file is a sequence of records: a length of 8 bytes, its checksum, that many bytes, their checksum. The bytes are
 * an Event message of TensorFlow's event.proto. The checksum is CRC-32C, rotated and offset ("masked"). */
#ifndef SL_DRIVERS_TRAINING_REPORTS_EVENTS_H
#define SL_DRIVERS_TRAINING_REPORTS_EVENTS_H

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "spmd/base/error.h"

struct sl_events {
    char path[PATH_MAX]; /* of the file */
    FILE *stream;        /* NULL: no file, and writing does nothing */
    int64_t step;        /* of the last object with a step */
};

/* Opens a new file in FOLDER and makes the folder if necessary; if FOLDER is NULL, opens none. If FIRST is above 0,
 * the run resumes after FIRST steps, and TensorBoard discards the later steps in earlier files of the folder.
 * Returns SL_BAD_INPUT if the file cannot be opened. */
int sl_events_open(struct sl_events *events, const char *folder, int64_t first, struct sl_error *error);
/* Writes the numbers of OBJECT under their keys, at its "step", or at the last step if it has an "epoch" instead;
 * writes nothing for other objects. SL_FAILED if the disk is full. */
int sl_events_write(struct sl_events *events, const json_t *object, struct sl_error *error);
int sl_events_close(struct sl_events *events, struct sl_error *error);

#endif
