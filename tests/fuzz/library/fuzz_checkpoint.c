/* fuzz_checkpoint.c - a directory with two checkpoints, the later one of any bytes: it is found, checked and verified,
 * or refused with one line. The first byte of the input chooses the use of the rest: the file itself; a safetensors
 * file, to which fitting checksums are added, so the code behind the checksum test is reached; or positions and
 * bits to flip in an intact checkpoint, which must then pass only if it is unchanged. */
#include "layers/training/checkpoint.h"
#include "tests/fuzz/fuzz.h"

static const struct sl_setting settings[] = {{"model", "small"}, {"layers", "4"}, {NULL, ""}};
enum { AS_IT_IS, REPAIRED, CHANGED, WAYS };

static char directory[64]; /* of one input */

static const char *at(int64_t step) {
    static char path[SL_MAX_PATH];
    FUZZ_PROMISE(!sl_checkpoint_name(directory, step, path, NULL), "%s", path);
    return path;
}

static void write_checkpoint(int64_t step) {
    struct sl_store store = {.checksums = true};
    const size_t shape[] = {3, 5};
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)step);
    const char *const notes[][2] = {
        {"shardloop.checkpoint", "2"}, {"step", number},          {"samples", "8"},      {"seed", "42"},
        {"optimizer", "adamw"},        {"config.model", "small"}, {"config.layers", "4"}};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) sl_store_set_note(&store, notes[i][0], notes[i][1]);
    struct sl_tensor *tensor = sl_store_add(&store, "kernel", SL_F32, 2, shape);
    for (int i = 0; i < 15; i++) ((float *)tensor->array.data)[i] = (float)i;
    sl_store_add(&store, "bias", SL_F32, 1, shape);
    FUZZ_PROMISE(!sl_safetensors_write(&store, at(step), NULL), "%s", at(step));
    sl_store_free(&store);
}

/* Writes the file again, with checksums that fit. */
static void repair(const char *path) {
    struct sl_store store = {0};
    if (sl_safetensors_map(&store, path, NULL) == SL_OK && !store.checksums) {
        store.checksums = true;
        sl_safetensors_write(&store, path, NULL);
    }
    sl_store_free(&store);
}

static int verify(const char *path, struct sl_error *error) {
    struct sl_store store = {0};
    int version;
    int status = sl_checkpoint_map(&store, path, &version, error);
    if (status == SL_OK) status = sl_safetensors_verify(&store, NULL, NULL, error);
    sl_store_free(&store);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    const int way = data[0] % WAYS;
    char path[SL_MAX_PATH];
    struct sl_error error = {0};
    struct sl_checkpoint about = {0};
    bool changed = true;
    fuzz_directory(directory, "fuzz_checkpoint");
    write_checkpoint(1);
    write_checkpoint(2);
    if (way == CHANGED) changed = fuzz_change(at(2), data + 1, size - 1);
    if (way != CHANGED) fuzz_put(at(2), data + 1, size - 1);
    if (way == REPAIRED) repair(at(2));
    FUZZ_PROMISE(!sl_checkpoint_latest(directory, path, NULL, &error), "%s", error.message); /* 1 is whole */
    const int checked = sl_checkpoint_check(path, settings, NULL, &about, &error);
    if (checked) fuzz_refused(checked, &error);
    FUZZ_PROMISE(checked || (about.step >= 0 && about.samples >= 0), "%s", path);
    const int verified = verify(path, &error);
    if (verified) fuzz_refused(verified, &error);
    const bool passed = !checked && !verified;
    FUZZ_PROMISE(way != CHANGED || strcmp(path, at(2)) != 0 || passed != changed, "changed: %d", changed);
    FUZZ_PROMISE(!sl_checkpoint_prune(directory, INT64_MAX, 1, -1, &error), "%s", error.message);
    FUZZ_PROMISE(!rmdir(directory), "%s is not empty", directory);
    return 0;
}
