/* fuzz_parts.c - a directory with a checkpoint in one file and a later one in two parts, with an index of any bytes: it
 * is found, checked, verified and read, or refused with one line. The first byte of the input chooses the use of the
 * rest:
 *
 * the index;
 * or the index's second line: the first line is made to fit, and 1 and 2 are replaced by the parts' roots, so the
 * code behind the checksum test is reached;
 * or positions and bits to flip in the index, which must then pass only if it is unchanged;
 * or the same in a part, which must then pass only with the written values. */
#include "layers/formats/stores/store_parts.h"
#include "layers/training/checkpoint.h"
#include "spmd/base/hash.h"
#include "tests/fuzz/fuzz.h"

static const struct sl_setting settings[] = {{"model", "small"}, {NULL, ""}};
enum { AS_IT_IS, SEALED, CHANGED, PART_CHANGED, WAYS };
enum { STEP = 2, PARTS = 2, ROWS = 3, COLUMNS = 4, FIRST_LINE = 38 };

static char directory[64]; /* of one input */
static char file[SL_MAX_PATH], index_path[SL_MAX_PATH], part_path[PARTS][SL_MAX_PATH];
static uint64_t root[PARTS];

static void make_directory(void) {
    fuzz_directory(directory, "fuzz_parts");
    int status = sl_checkpoint_name(directory, 1, file, NULL);
    status |= sl_checkpoint_index_name(directory, STEP, index_path, NULL);
    for (int p = 0; p < PARTS; p++)
        status |= sl_checkpoint_part_name(directory, STEP, p + 1, PARTS, part_path[p], NULL);
    FUZZ_PROMISE(!status, "%s", directory);
}

static void note(struct sl_store *store, const char *step) {
    const char *const notes[][2] = {
        {"shardloop.checkpoint", "2"}, {"step", step},           {"samples", "8"}, {"seed", "42"},
        {"optimizer", "adamw"},        {"config.model", "small"}};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) sl_store_set_note(store, notes[i][0], notes[i][1]);
}

/* Writes a kernel [ROWS, COLUMNS], with half of the columns in each part, and a bias, in part 2. */
static void write_all(void) {
    const size_t shape[] = {ROWS, COLUMNS}, half = ROWS * COLUMNS / 2, three = ROWS;
    struct sl_store one = {.checksums = true}, whole = {0};
    struct sl_part about[PARTS];
    note(&one, "1");
    FUZZ_PROMISE(!sl_safetensors_write(&one, file, NULL), "%s", file);
    sl_store_free(&one);
    note(&whole, "2");
    struct sl_tensor *kernel = sl_store_declare(&whole, "kernel", SL_F32, 2, shape);
    for (int p = 0; p < PARTS; p++) {
        struct sl_store part = {.checksums = true}, there = {0};
        const struct sl_shard shard = {2, {{ROWS, ROWS, ROWS, 0, COLUMNS}, {2, 2, COLUMNS, (size_t)p * 2, 1}}};
        float *data = sl_store_add(&part, "kernel", SL_F32, 1, &half)->array.data;
        for (size_t i = 0; i < half; i++) data[i] = (float)i;
        if (p == 1) sl_store_add(&part, "bias", SL_F32, 1, &three);
        sl_store_set_note(&part, SL_CHECKPOINT_PART_KEY, p ? "2 of 2" : "1 of 2");
        FUZZ_PROMISE(!sl_safetensors_write(&part, part_path[p], NULL), "%s", part_path[p]);
        FUZZ_PROMISE(!sl_safetensors_map(&there, part_path[p], NULL), "%s", part_path[p]);
        FUZZ_PROMISE(!sl_pieces_add(kernel, &(struct sl_tensor_piece){p, shard, 0, half, NULL}), "memory");
        about[p] = (struct sl_part){part_path[p], root[p] = there.root};
        sl_store_free(&part);
        sl_store_free(&there);
    }
    struct sl_tensor *bias = sl_store_declare(&whole, "bias", SL_F32, 1, &three);
    const struct sl_tensor_piece all = {1, {1, {{ROWS, ROWS, ROWS, 0, 1}}}, 0, ROWS, NULL};
    FUZZ_PROMISE(!sl_pieces_add(bias, &all), "memory");
    FUZZ_PROMISE(!sl_parts_write_index(&whole, PARTS, about, index_path, NULL), "%s", index_path);
    sl_store_free(&whole);
}

static void seal(const uint8_t *data, size_t size) {
    char *text = malloc(FIRST_LINE + size + 1), digits[SL_HASH_DIGITS + 1];
    FUZZ_PROMISE(text, "memory");
    memcpy(text + FIRST_LINE, data, size);
    text[FIRST_LINE + size] = 0;
    for (int p = 0; p < PARTS; p++) {
        char *place = strstr(text + FIRST_LINE, p ? "\"0000000000000002\"" : "\"0000000000000001\"");
        if (place) memcpy(place + 1, sl_hash_print(root[p], digits), SL_HASH_DIGITS);
    }
    memcpy(text, "{\"shardloop.xxh3\":\"", 19);
    memcpy(text + 19, sl_hash_print(sl_hash(text + FIRST_LINE, size), digits), SL_HASH_DIGITS);
    memcpy(text + FIRST_LINE - 3, "\",\n", 3);
    fuzz_put(index_path, text, FIRST_LINE + size);
    free(text);
}

/* Checks for the written values. */
static void expect_values(const struct sl_store *store) {
    const struct sl_tensor *kernel = sl_store_find(store, "kernel"), *bias = sl_store_find(store, "bias");
    FUZZ_PROMISE(kernel && bias && store->count == 2, "%d tensors", store->count);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float value;
        sl_tensor_read(kernel, (size_t)i, 1, &value);
        FUZZ_PROMISE(value == (float)(i / COLUMNS * 2 + i % 2), "element %d is %g", i, (double)value);
    }
}

/* Every element, in two ways. */
static void read_all(struct sl_store *store) {
    float value;
    for (int i = 0; i < store->count; i++) {
        struct sl_tensor *tensor = &store->tensor[i];
        const size_t elements = sl_array_elements(&tensor->array);
        FUZZ_PROMISE(!sl_tensor_hold(tensor), "memory");
        const float *held = tensor->array.data;
        for (size_t e = 0; e < elements; e++) {
            sl_pieces_read(tensor, e, 1, &value);
            FUZZ_PROMISE(!memcmp(&value, held + e, sizeof value), "%s: element %zu", tensor->name, e);
        }
        sl_tensor_let_go(tensor);
    }
}

static int verify(const char *path, bool same, struct sl_error *error) {
    struct sl_store store = {0};
    int version;
    int status = sl_checkpoint_map(&store, path, &version, error);
    if (status == SL_OK) status = sl_safetensors_verify(&store, NULL, NULL, error);
    if (status == SL_OK) read_all(&store);
    if (status == SL_OK && same) expect_values(&store);
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
    make_directory();
    write_all();
    if (way == AS_IT_IS) fuzz_put(index_path, data + 1, size - 1);
    if (way == SEALED) seal(data + 1, size - 1);
    if (way == CHANGED) changed = fuzz_change(index_path, data + 1, size - 1);
    if (way == PART_CHANGED) changed = fuzz_change(part_path[data[0] / WAYS % PARTS], data + 1, size - 1);
    FUZZ_PROMISE(!sl_checkpoint_latest(directory, path, NULL, &error), "%s", error.message); /* 1 is whole */
    const int checked = sl_checkpoint_check(path, settings, NULL, &about, &error);
    if (checked) fuzz_refused(checked, &error);
    FUZZ_PROMISE(checked || (about.step >= 0 && about.samples >= 0), "%s", path);
    const bool found = !strcmp(path, index_path);
    const int verified = verify(path, found && way >= CHANGED, &error);
    if (verified) fuzz_refused(verified, &error);
    const bool passed = !checked && !verified;
    FUZZ_PROMISE(way != CHANGED || !found || passed != changed, "changed: %d", changed);
    FUZZ_PROMISE(way != PART_CHANGED || changed || passed, "%s", error.message);
    FUZZ_PROMISE(way < CHANGED || changed || found, "%s is passed over", index_path);
    FUZZ_PROMISE(!sl_checkpoint_prune(directory, INT64_MAX, 1, -1, &error), "%s", error.message);
    FUZZ_PROMISE(!rmdir(directory), "%s is not empty", directory);
    return 0;
}
