/* fuzz_peak.c - the file of what machines' products reach. */
#include <math.h>

#include "drivers/speed/peak.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct sl_peak_key key = {"node7", "a processor", "a library", "f32", 2, 2};
    struct sl_peak peak;
    struct sl_error error = {0};
    const int status = sl_peak_read(fuzz_file(0, data, size), &key, &peak, &error);
    FUZZ_PROMISE(isfinite(peak.flops) && peak.flops >= 0, "%g", peak.flops);
    FUZZ_PROMISE((peak.flops > 0) == (strlen(peak.date) == 10), "%g, %s", peak.flops, peak.date);
    for (const char *c = peak.date; *c; c++) FUZZ_PROMISE(strchr("0123456789-", *c), "%s", peak.date);
    FUZZ_PROMISE(!status || peak.flops == 0, "%g of a file that was refused", peak.flops);
    if (status) fuzz_refused(status, &error);
    return 0;
}
