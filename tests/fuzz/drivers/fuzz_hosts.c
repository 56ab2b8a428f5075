/* fuzz_hosts.c - lines of a launcher's file of hosts. */
#include "drivers/training/restart/hosts.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_hosts hosts = {0};
    char *line = calloc(size + 1, 1);
    FUZZ_PROMISE(line, "no memory");
    memcpy(line, data, size);
    const int slots = sl_hosts_line_slots(line);
    FUZZ_PROMISE(slots >= 0, "%d slots: %s", slots, line);
    free(line);
    snprintf(hosts.path, sizeof hosts.path, "%s", fuzz_file(0, data, size));
    const int all = sl_hosts_slots(&hosts);
    FUZZ_PROMISE(all >= 0, "%d slots", all);
    FUZZ_PROMISE(memchr(data, '\n', size) || memchr(data, 0, size) || all == slots, "%d of a file of %d", all, slots);
    return 0;
}
