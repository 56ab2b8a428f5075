/* cpu.c - the CPU itself: memory is memory, and work is done when a call returns. */
#include "spmd/device/device.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

/* Who insists on devices must not get the host instead. */
static int check(struct sl_error *error) {
    const char *policy = getenv("OMP_TARGET_OFFLOAD");
    if (!policy || strcmp(policy, "MANDATORY") != 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "OMP_TARGET_OFFLOAD=MANDATORY, but this build has no code for devices: "
                        "use the preset offload or cuda");
}

static int count(void) { return 0; }

static int open(int number, void **queue, struct sl_error *error) {
    (void)number, (void)error;
    *queue = NULL;
    return SL_OK;
}

static void close(void) {}
static bool reaches(const void *memory) {
    (void)memory;
    return false;
}
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
static bool offloads(void) { return false; }
static int mark(void **mark, struct sl_error *error) {
    (void)mark, (void)error;
    return SL_OK;
}
static void nothing(void *mark) { (void)mark; }
static int distance(int one, int other) { return one != other; }
static const char *bus(int number) {
    (void)number;
    return NULL;
}

const struct sl_device_table sl_device = {
    .name = "cpu",
    .shares_memory = true,
    .check = check,
    .count = count,
    .open = open,
    .close = close,
    .take = sl_memory_take,
    .give = sl_memory_give,
    .take_host = sl_memory_take,
    .give_host = sl_memory_give,
    .reaches = reaches,
    .copy = copy,
    .copy_rows = copy_rows,
    .copy_aside = copy,
    .await_aside = await_aside,
    .zero = zero,
    .settle = settle,
    .mark = mark,
    .follow = nothing,
    .await = nothing,
    .free_mark = nothing,
    .offloads = offloads,
    .distance = distance,
    .bus = bus,
};
