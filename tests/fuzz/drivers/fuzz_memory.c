/* fuzz_memory.c - the kernel's files about a process's memory and its limits. */
#include <math.h>

#include "drivers/memory/limits.h"
#include "drivers/memory/process.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_process_memory memory;
    double others, sum;
    char path[40];
    bool unified;
    FILE *file = fopen(fuzz_file(0, data, size), "r");
    FUZZ_PROMISE(file, "no file");
    const bool known = sl_process_memory_parse(file, &memory, &others);
    sum = others;
    for (int i = 0; i < SL_PROCESS_PARTS; i++) sum += memory.part[i];
    FUZZ_PROMISE(sum >= 0 && fabs(sum - memory.resident) <= 1e-9 * sum, "%g of %g", sum, memory.resident);
    FUZZ_PROMISE(known || memory.resident == 0, "%g of no list", memory.resident);
    rewind(file);
    const double number = sl_limits_find(file, "MemAvailable");
    FUZZ_PROMISE(isnan(number) || number >= 0, "%g", number);
    rewind(file);
    if (sl_limits_find_group(file, path, sizeof path, &unified))
        FUZZ_PROMISE(*path == '/' && strlen(path) < sizeof path, "%.40s", path);
    fclose(file);
    return 0;
}
