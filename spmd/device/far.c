/* far.c - a file or the host's memory, behind the same functions. */
#include "spmd/device/far.h"

#include <string.h>

#include "spmd/device/device.h"

int sl_far_open(struct sl_far *far, const char *directory, size_t bytes, struct sl_error *error) {
    *far = (struct sl_far){0};
    if (sl_device.shares_memory) return sl_scratch_open(&far->scratch, directory, bytes, error);
    far->host = sl_device.take_host(bytes);
    if (!far->host) return sl_error_set(error, SL_FAILED, "no host memory for %zu bytes that are offloaded", bytes);
    memset(far->host, 0, bytes);
    return SL_OK;
}

void sl_far_close(struct sl_far *far) {
    sl_scratch_close(&far->scratch);
    if (far->host) sl_device.give_host(far->host);
    far->host = NULL;
}

int sl_far_read(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error) {
    if (!far->host) return sl_scratch_read(&far->scratch, offset, to, bytes, error);
    sl_device.copy(to, far->host + offset, bytes);
    return SL_OK;
}

int sl_far_write(const struct sl_far *far, size_t offset, const void *from, size_t bytes, struct sl_error *error) {
    if (!far->host) return sl_scratch_write(&far->scratch, offset, from, bytes, error);
    if (!sl_device.reaches(from)) {
        sl_device.copy(far->host + offset, from, bytes);
        return SL_OK;
    }
    sl_device.copy_aside(far->host + offset, from, bytes); /* the host goes on: only the queue reads the copy */
    sl_device.await_aside();
    return SL_OK;
}

void sl_far_expect(const struct sl_far *far, size_t offset, size_t bytes) {
    if (!far->host) sl_scratch_expect(&far->scratch, offset, bytes);
}

void sl_far_read_start(const struct sl_far *far, size_t offset, void *to, size_t bytes) {
    if (far->host)
        sl_device.copy_aside(to, far->host + offset, bytes);
    else
        sl_scratch_expect(&far->scratch, offset, bytes);
}

int sl_far_read_end(const struct sl_far *far, size_t offset, void *to, size_t bytes, struct sl_error *error) {
    if (!far->host) return sl_scratch_read(&far->scratch, offset, to, bytes, error);
    sl_device.await_aside();
    return SL_OK;
}

int sl_far_write_start(const struct sl_far *far, size_t offset, const void *from, size_t bytes,
                       struct sl_error *error) {
    if (!far->host) return sl_scratch_write(&far->scratch, offset, from, bytes, error);
    sl_device.copy_aside(far->host + offset, from, bytes);
    return SL_OK;
}

void sl_far_await(const struct sl_far *far) {
    if (far->host) sl_device.await_aside();
}
