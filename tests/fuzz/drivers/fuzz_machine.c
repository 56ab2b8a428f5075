/* fuzz_machine.c - files of machines, and sizes of memory. */
#include <math.h>

#include "drivers/tools/machine/machine_file.h"
#include "drivers/tools/search/search_options.h"
#include "tests/fuzz/fuzz.h"

/* A text without zero bytes. */
static void read_size(const uint8_t *data, size_t size) {
    char text[64];
    double bytes = 0;
    const size_t length = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, length);
    text[length] = '\0';
    const bool read = sl_search_bytes(text, &bytes);
    FUZZ_PROMISE(read ? bytes >= 1 && bytes < 1e18 : bytes == 0, "%g of %s", bytes, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct sl_machine machine;
    struct sl_error error = {0};
    read_size(data, size);
    const int status = sl_machine_read(&machine, fuzz_file(0, data, size), &error);
    if (status) {
        fuzz_refused(status, &error);
        return 0;
    }
    for (int c = 0; c < 70; c += 23) {
        const enum sl_link link = sl_machine_link(&machine, 0, c);
        FUZZ_PROMISE(link >= 0 && link < SL_LINKS, "%d", (int)link);
        const double call = sl_machine_collective(&machine, &machine.roaming, link, SL_PSUM, c + 1, 1e6);
        FUZZ_PROMISE(isfinite(call) && call >= 0, "%g", call);
    }
    const double seconds = sl_machine_product(&machine, SL_BF16, 3, 500, 7, true, false);
    FUZZ_PROMISE(isfinite(seconds) && seconds > 0, "%g", seconds);
    const double moved = sl_machine_moved(&machine, 1e6, 3e7);
    FUZZ_PROMISE(isfinite(moved) && moved >= 0, "%g", moved);
    for (int members = 2; members < 1 << 21; members *= 3) {
        const double turn = sl_machine_turn(&machine.tied, members), other = sl_machine_turn(&machine.roaming, members);
        FUZZ_PROMISE(isfinite(turn) && turn >= 0 && isfinite(other) && other >= 0, "%g %g", turn, other);
    }
    FUZZ_PROMISE(machine.waits.wake >= 0 && machine.tied.call >= 0 && machine.roaming.message >= 0, "waits");
    for (int replicas = 1; replicas <= 4; replicas++) {
        const double speed = sl_machine_speed(&machine, 4, replicas);
        FUZZ_PROMISE(speed >= 1e-12 && speed <= 1e12, "%g", speed);
    }
    return 0;
}
