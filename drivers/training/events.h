/* events.h - files of TensorBoard's: the numbers of a training's JSON objects, each as a scalar of its step.
 *
 * A file is a row of records: a length of 8 bytes, its checksum, that many bytes, their checksum. The bytes are a
 * message Event of TensorFlow's event.proto. The checksum is CRC-32C, turned and shifted ("masked"). */
#ifndef SL_DRIVERS_TRAINING_EVENTS_H
#define SL_DRIVERS_TRAINING_EVENTS_H

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "spmd/base/error.h"

struct sl_events {
    char path[PATH_MAX]; /* of the file */
    FILE *stream;        /* NULL: there is none, and writing does nothing */
    int64_t step;        /* of the last object that had one */
};

/* Opens a new file in FOLDER, which is made if it is not there; FOLDER NULL: none. FIRST above 0: the run goes on after
 * so many steps, and TensorBoard forgets what earlier files of the folder have from there on. SL_BAD_INPUT where it
 * cannot be opened. */
int sl_events_open(struct sl_events *events, const char *folder, int64_t first, struct sl_error *error);
/* The numbers of OBJECT by their keys, at its "step", or, where it has an "epoch" in its place, at the last one; of
 * others nothing. SL_FAILED where the disk is full. */
int sl_events_write(struct sl_events *events, const json_t *object, struct sl_error *error);
int sl_events_close(struct sl_events *events, struct sl_error *error);

#endif
