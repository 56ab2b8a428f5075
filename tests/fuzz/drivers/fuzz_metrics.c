/* fuzz_metrics.c - the metrics of a resumed run: its file holds any bytes. The first byte of the input is the step that
 * the run resumes from. */
#include "drivers/common/metrics.h"
#include "tests/fuzz/fuzz.h"

/* Checks that no remaining line is of a step that will be repeated. */
static void check_lines(const char *text, int from) {
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        json_t *object = json_loadb(text, (size_t)(end - text), 0, NULL);
        const json_t *step = json_object_get(object, "step");
        FUZZ_PROMISE(!json_is_integer(step) || json_integer_value(step) < from, "step %lld of %d: %s",
                     (long long)json_integer_value(step), from, text);
        json_decref(object);
    }
    FUZZ_PROMISE(!*text, "a line that was cut off: %s", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_metrics_file file;
    struct sl_error error = {0};
    if (size < 1) return 0;
    const char *path = fuzz_file(0, data + 1, size - 1);
    const int status = sl_metrics_open(&file, path, data[0], &error);
    FUZZ_PROMISE(!status || status == SL_BAD_INPUT, "%s", error.message);
    FUZZ_PROMISE(!sl_metrics_close(&file, &error), "%s", error.message);
    FILE *stream = fopen(path, "rb");
    char *left = calloc(size + 1, 1);
    FUZZ_PROMISE(stream && left, "%s", path);
    const size_t length = fread(left, 1, size, stream);
    fclose(stream);
    FUZZ_PROMISE(length < size && !memcmp(left, data + 1, length), "%zu bytes of what there was", length);
    FUZZ_PROMISE(!status || length == size - 1, "%zu bytes of a file that is not a run's", length);
    if (!status && !memchr(left, 0, length)) check_lines(left, data[0]);
    free(left);
    return 0;
}
