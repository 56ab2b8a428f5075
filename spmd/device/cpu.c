/* cpu.c - the CPU as a device: its memory is the host's, and work has ended when a call returns. */
#include "spmd/device/device.h"

#include <stdlib.h>

#include "spmd/base/memory.h"
#include "spmd/device/unqueued_internal.h"

/* OMP_TARGET_OFFLOAD=MANDATORY demands a device: the host is no substitute. */
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
static bool offloads(void) { return false; }

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
    .follow = pass,
    .await = pass,
    .free_mark = pass,
    .constant = constant,
    .begin_step = begin_step,
    .end_step = end_step,
    .offloads = offloads,
    .distance = distance,
    .bus = bus,
};
