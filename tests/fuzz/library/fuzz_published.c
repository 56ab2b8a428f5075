/* fuzz_published.c - any bytes as a GGUF file, as one in two parts, or as the config.json of a folder: an accepted file
 * can be read to its end.
 *
 * The first byte chooses between them; for two parts, the next two bytes are the size of the first. The folder has a
 * model.safetensors without tensors. */
#include "layers/models/published/published.h"
#include "tests/fuzz/fuzz.h"

enum kind { WHOLE, CONFIG, PARTS };

/* The files of a folder, by kind. */
static const char *const names[][2] = {
    [CONFIG] = {"config.json", "model.safetensors"}, [PARTS] = {"a-00001-of-00002.gguf", "a-00002-of-00002.gguf"}};

static char place[64], file_path[2][96];

static void write_bytes(int number, const void *data, size_t size) {
    FILE *file = fopen(file_path[number], "wb");
    FUZZ_PROMISE(file && fwrite(data, 1, size, file) == size && !fclose(file), "%s", file_path[number]);
}

/* Writes the files to a new folder, in memory if possible. */
static const char *write_files(enum kind kind, const uint8_t *data, size_t size) {
    snprintf(place, sizeof place, "%s/fuzz_published.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    FUZZ_PROMISE(mkdtemp(place), "%s", place);
    for (int i = 0; i < 2; i++) snprintf(file_path[i], sizeof *file_path, "%s/%s", place, names[kind][i]);
    const size_t asked = kind == PARTS && size >= 2 ? data[0] + 256u * data[1] : 0, after = size >= 2 ? 2 : size;
    const size_t first = asked < size - after ? asked : size - after;
    write_bytes(0, kind == PARTS ? data + after : data, kind == PARTS ? first : size);
    if (kind == PARTS)
        write_bytes(1, data + after + first, size - after - first);
    else
        write_bytes(1, "\2\0\0\0\0\0\0\0{}", 10);
    return kind == PARTS ? file_path[0] : place;
}

static void leave(void) {
    for (int i = 0; i < 2; i++) unlink(file_path[i]);
    rmdir(place);
}

static void read_all(const struct sl_weights *weights) {
    for (int i = 0; i < weights->count; i++) {
        const struct sl_weight *weight = &weights->weight[i];
        float values[64];
        FUZZ_PROMISE(sl_weights_find(weights, weight->name) == weight, "%s", weight->name);
        if (weight->type == SL_WEIGHT_OTHER) continue;
        for (size_t first = 0, count, all = sl_weight_elements(weight); first < all; first += count) {
            count = all - first < 61 ? all - first : 61;
            sl_weight_read(weight, first, count, values);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_published published;
    struct sl_error error = {0};
    if (size < 1) return 0;
    const enum kind kind = data[0] % 2 ? CONFIG : data[0] % 4 == 2 ? PARTS : WHOLE;
    const char *path = kind ? write_files(kind, data + 1, size - 1) : fuzz_file(0, data + 1, size - 1);
    const int status = sl_published_open(&published, path, &error);
    if (status) fuzz_refused(status, &error);
    read_all(&published.weights);
    sl_published_close(&published);
    if (kind) leave();
    return 0;
}
