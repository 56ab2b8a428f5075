/* events.c - writes records and messages of TensorBoard files. */
#include "drivers/training/reports/events.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "drivers/common/output.h"

/* ---- messages ---- */

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* wire types of fields */

/* A message under construction, with room for a tag and three numbers. */
struct message {
    size_t size;
    unsigned char byte[320];
};

static void put_varint(struct message *message, uint64_t value) {
    for (; value >= 0x80; value >>= 7) message->byte[message->size++] = (unsigned char)(value | 0x80);
    message->byte[message->size++] = (unsigned char)value;
}

static void put(struct message *message, const void *bytes, size_t size) {
    memcpy(message->byte + message->size, bytes, size);
    message->size += size;
}

static void put_number(struct message *message, int field, uint64_t value) {
    put_varint(message, (uint64_t)(field << 3 | VARINT));
    put_varint(message, value);
}

static void put_bytes(struct message *message, int field, const void *bytes, size_t size) {
    put_varint(message, (uint64_t)(field << 3 | BYTES));
    put_varint(message, size);
    put(message, bytes, size);
}

static struct message begin_event(int64_t step) {
    struct message event = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    put_varint(&event, 1 << 3 | FIXED64);
    put(&event, &wall_time, sizeof wall_time);
    if (step) put_number(&event, 2, (uint64_t)step);
    return event;
}

/* ---- records ---- */

/* Returns the masked CRC-32C of BYTES (Castagnoli's polynomial), computed bit by bit: records are short. */
static uint32_t masked_checksum(const unsigned char *bytes, size_t size) {
    uint32_t rest = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        rest ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0);
    }
    rest = ~rest;
    return (rest >> 15 | rest << 17) + 0xa282ead8u;
}

static int refuse(const struct sl_events *events, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: %s", events->path, errno ? strerror(errno) : "could not be written");
}

/* Writes a record and flushes it, so readers see it at once. */
static int write_record(struct sl_events *events, const struct message *event, struct sl_error *error) {
    struct message record = {0};
    const uint64_t length = event->size;
    put(&record, &length, sizeof length);
    const uint32_t of_length = masked_checksum(record.byte, record.size),
                   of_event = masked_checksum(event->byte, event->size);
    put(&record, &of_length, sizeof of_length);
    put(&record, event->byte, event->size);
    put(&record, &of_event, sizeof of_event);
    errno = 0;
    const bool whole = fwrite(record.byte, 1, record.size, events->stream) == record.size && !fflush(events->stream);
    return whole ? SL_OK : refuse(events, error);
}

/* ---- files ---- */

/* Opens a file named as by TensorFlow: no other run has this name. */
static int open_file(struct sl_events *events, const char *folder, struct sl_error *error) {
    char host[64] = "";
    int length = 0;
    gethostname(host, sizeof host - 1);
    for (int n = 0; n == 0 || !access(events->path, F_OK); n++)
        length = snprintf(events->path, sizeof events->path, "%s/events.out.tfevents.%010lld.%s.%d.%d", folder,
                          (long long)time(NULL), host, getpid(), n);
    if (length >= (int)sizeof events->path)
        return sl_error_set(error, SL_BAD_INPUT, "--tensorboard: too long a path: %.200s", folder);
    return sl_output_file("--tensorboard", events->path, false, &events->stream, error);
}

int sl_events_open(struct sl_events *events, const char *folder, int64_t first, struct sl_error *error) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1}; /* SessionLog: START */
    if (!folder) return SL_OK;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return sl_error_set(error, SL_BAD_INPUT, "--tensorboard: %s: %s", folder, strerror(errno));
    SL_TRY(open_file(events, folder, error));
    struct message event = begin_event(0);
    put_bytes(&event, 3, version, sizeof version - 1);
    SL_TRY(write_record(events, &event, error));
    if (first == 0) return SL_OK;
    event = begin_event(first);
    put_bytes(&event, 7, start, sizeof start);
    return write_record(events, &event, error);
}

static int write_scalar(struct sl_events *events, const char *tag, float number, struct sl_error *error) {
    enum { LONGEST_TAG = 64 };
    struct message value = {0}, summary = {0}, event = begin_event(events->step);
    put_bytes(&value, 1, tag, strnlen(tag, LONGEST_TAG));
    put_varint(&value, 2 << 3 | FIXED32);
    put(&value, &number, sizeof number);
    put_bytes(&summary, 1, value.byte, value.size);
    put_bytes(&event, 5, summary.byte, summary.size);
    return write_record(events, &event, error);
}

int sl_events_write(struct sl_events *events, const json_t *object, struct sl_error *error) {
    const json_t *const step = json_object_get(object, "step"), *number;
    const char *key;
    if (!events->stream || (!step && !json_object_get(object, "epoch"))) return SL_OK;
    if (step) events->step = json_integer_value(step);
    json_object_foreach((json_t *)object, key, number) {
        if (json_is_number(number) && number != step)
            SL_TRY(write_scalar(events, key, (float)json_number_value(number), error));
    }
    return SL_OK;
}

int sl_events_close(struct sl_events *events, struct sl_error *error) {
    if (!events->stream) return SL_OK;
    errno = 0;
    const int failed = fclose(events->stream);
    events->stream = NULL;
    return failed ? refuse(events, error) : SL_OK;
}
