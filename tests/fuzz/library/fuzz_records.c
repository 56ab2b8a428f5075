/* fuzz_records.c - small files that programs write for later programs: the peak rates of machines' products, and
 * best.json of --keep best. */
#include <math.h>

#include "drivers/common/checkpoints.h"
#include "drivers/speed/peak.h"
#include "tests/fuzz/fuzz.h"

static void read_peak(const char *file) {
    const struct sl_peak_key key = {"node7", "a processor", "a library", "f32", 2, 2};
    struct sl_peak peak;
    struct sl_error error = {0};
    const int status = sl_peak_read(file, &key, &peak, &error);
    FUZZ_PROMISE(isfinite(peak.flops) && peak.flops >= 0, "%g", peak.flops);
    FUZZ_PROMISE((peak.flops > 0) == (strlen(peak.date) == 10), "%g, %s", peak.flops, peak.date);
    for (const char *c = peak.date; *c; c++) FUZZ_PROMISE(strchr("0123456789-", *c), "%s", peak.date);
    FUZZ_PROMISE(!status || peak.flops == 0, "%g of a file that was refused", peak.flops);
    if (status) fuzz_refused(status, &error);
}

static void read_best(const char *file) {
    char directory[64], path[80];
    struct sl_best best, again;
    struct sl_error error = {0};
    const int status = sl_best_read(file, &best, &error);
    if (status) {
        fuzz_refused(status, &error);
        return;
    }
    FUZZ_PROMISE(best.step >= 0 && isfinite(best.loss), "%lld, %g", (long long)best.step, best.loss);
    fuzz_directory(directory, "fuzz_best");
    snprintf(path, sizeof path, "%s/best.json", directory);
    FUZZ_PROMISE(!sl_best_write(path, &best, &error), "%s", error.message);
    FUZZ_PROMISE(!sl_best_read(path, &again, &error), "%s", error.message);
    FUZZ_PROMISE(again.step == best.step, "%lld, %lld", (long long)best.step, (long long)again.step);
    FUZZ_PROMISE(fabs(again.loss - best.loss) <= 1e-8 * fabs(best.loss), "%.17g, %.17g", best.loss, again.loss);
    FUZZ_PROMISE(!unlink(path) && !rmdir(directory), "%s: more than one file", directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *file = fuzz_file(0, data, size);
    read_peak(file);
    read_best(file);
    return 0;
}
