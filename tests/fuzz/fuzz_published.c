/* fuzz_published.c - any bytes as a GGUF file, or as the config.json of a folder: what is taken can be read to its end.
 *
 * The first byte says which. The folder has a model.safetensors without tensors. */
#include "layers/models/published.h"
#include "tests/fuzz/fuzz.h"

/* In memory, where there is such a place. */
static const char *folder(const uint8_t *data, size_t size) {
    static char path[64], config[96], model[96];
    snprintf(path, sizeof path, "%s/fuzz_published.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    FUZZ_PROMISE(mkdtemp(path), "%s", path);
    snprintf(config, sizeof config, "%s/config.json", path);
    snprintf(model, sizeof model, "%s/model.safetensors", path);
    FILE *file = fopen(config, "wb");
    FUZZ_PROMISE(file && fwrite(data, 1, size, file) == size && !fclose(file), "%s", config);
    file = fopen(model, "wb");
    FUZZ_PROMISE(file && fwrite("\2\0\0\0\0\0\0\0{}", 1, 10, file) == 10 && !fclose(file), "%s", model);
    return path;
}

static void leave(const char *path) {
    char name[96];
    snprintf(name, sizeof name, "%s/config.json", path);
    unlink(name);
    snprintf(name, sizeof name, "%s/model.safetensors", path);
    unlink(name);
    rmdir(path);
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
    const bool config = data[0] % 2;
    const char *path = config ? folder(data + 1, size - 1) : fuzz_file(0, data + 1, size - 1);
    const int status = sl_published_open(&published, path, &error);
    if (status) fuzz_refused(status, &error);
    read_all(&published.weights);
    sl_published_close(&published);
    if (config) leave(path);
    return 0;
}
