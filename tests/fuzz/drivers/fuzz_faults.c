/* fuzz_faults.c - arguments of --fail: accepted faults are within the run, and printed again they are the text. */
#include <inttypes.h>

#include "drivers/training/faults.h"
#include "tests/fuzz/fuzz.h"

enum { STEPS = 1000 };

/* Reads the decimal number at *TEXT exactly; any zeros before it are skipped. */
static void expect_number(const char **text, int64_t number) {
    char digits[32];
    *text += strspn(*text, "0");
    const int count = snprintf(digits, sizeof digits, "%" PRId64, number);
    const bool zero = number == 0;
    FUZZ_PROMISE(zero || !strncmp(*text, digits, (size_t)count), "%" PRId64 " is read from %s", number, *text);
    if (!zero) *text += count;
    FUZZ_PROMISE(!**text || strchr("@:,", **text), "%" PRId64 " is read from a longer number: %s", number, *text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_mesh mesh;
    struct sl_error error = {0};
    struct sl_faults faults = {0};
    char *text = fuzz_text(data, size);
    FUZZ_PROMISE(!sl_mesh_parse(&mesh, "data=4,model=2", &error), "%s", error.message);
    const int status = sl_faults_read(&faults, text, &mesh, STEPS, &error);
    const char *at = text;
    if (status) fuzz_refused(status, &error);
    for (int i = 0; status == SL_OK && i < faults.count; i++) {
        const struct sl_fault *fault = &faults.list[i];
        FUZZ_PROMISE(fault->coordinate >= 0 && fault->coordinate < mesh.size, "coordinate %d", fault->coordinate);
        FUZZ_PROMISE(fault->step >= 0 && fault->step < STEPS && fault->call >= 0, "step %" PRId64, fault->step);
        expect_number(&at, fault->coordinate);
        FUZZ_PROMISE(*at++ == '@', "%s", text);
        expect_number(&at, fault->step);
        if (*at == ':') at++, expect_number(&at, fault->call);
        FUZZ_PROMISE(*at == (i + 1 < faults.count ? ',' : 0), "%s", text);
        at++;
    }
    sl_faults_free(&faults);
    free(text);
    return 0;
}
