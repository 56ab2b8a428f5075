/* unqueued_internal.h - functions shared by devices without queues: their memory is the host's, and work has ended when
 * a call returns. Included by the file with the build's device table. */
#ifndef SL_SPMD_DEVICE_UNQUEUED_INTERNAL_H
#define SL_SPMD_DEVICE_UNQUEUED_INTERNAL_H

#include <string.h>

#include "spmd/device/device.h"

static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static void copy_rows(size_t rows, size_t bytes, void *to, size_t to_pitch, const void *from, size_t from_pitch) {
    for (size_t row = 0; row < rows; row++)
        memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, bytes);
}
static void await_aside(void) {}
static void zero(void *memory, size_t bytes) { memset(memory, 0, bytes); }
static int settle(struct sl_error *error) {
    (void)error;
    return SL_OK;
}
static int mark(void **mark, struct sl_error *error) {
    (void)mark, (void)error;
    return SL_OK;
}
static void pass(void *mark) { (void)mark; }
static const void *constant(const void *from, size_t bytes) {
    (void)bytes;
    return from;
}
static void begin_step(const void *owner, enum sl_graphs graphs) { (void)owner, (void)graphs; }
static void end_step(void) {}
static int distance(int one, int other) { return one != other; }
static const char *bus(int number) {
    (void)number;
    return NULL;
}

#endif
