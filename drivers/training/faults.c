/* faults.c - reads --fail. */
#include "drivers/training/faults.h"

#include <inttypes.h>
#include <stdlib.h>

#include "drivers/common/option_values.h"
#include "spmd/base/memory.h"

/* Reads the fault at *TEXT, and moves *TEXT to the comma after it, or to the end. */
static bool read_fault(const char **text, struct sl_fault *fault) {
    int coordinate, step, call = 0;
    if (!sl_option_read_digits(text, &coordinate) || *(*text)++ != '@' || !sl_option_read_digits(text, &step))
        return false;
    if (**text == ':' && (++*text, !sl_option_read_digits(text, &call))) return false;
    *fault = (struct sl_fault){.coordinate = coordinate, .step = step, .call = call};
    return !**text || **text == ',';
}

int sl_faults_read(struct sl_faults *faults, const char *text, const struct sl_mesh *mesh, int64_t steps,
                   struct sl_error *error) {
    for (const char *at = text; at; at = *at ? at + 1 : NULL) {
        struct sl_fault *list = sl_grow(faults->list, faults->count, &faults->room, 16, sizeof *list), *fault;
        if (!list) return sl_error_set(error, SL_FAILED, "--fail: no memory");
        faults->list = list;
        fault = &list[faults->count++];
        if (!read_fault(&at, fault))
            return sl_error_set(error, SL_BAD_INPUT, "--fail: \"%.80s\" is no list of COORDINATE@STEP, such as 2@17",
                                text);
        if (fault->coordinate >= mesh->size || fault->step >= steps)
            return sl_error_set(error, SL_BAD_INPUT,
                                "--fail: %d@%" PRId64 ": the run has coordinates 0 to %d and steps 0 to %" PRId64,
                                fault->coordinate, fault->step, mesh->size - 1, steps - 1);
    }
    return SL_OK;
}

void sl_faults_free(struct sl_faults *faults) {
    free(faults->list);
    *faults = (struct sl_faults){0};
}
