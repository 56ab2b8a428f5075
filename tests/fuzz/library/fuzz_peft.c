/* fuzz_peft.c - any bytes as the two files of a PEFT folder. Accepted adapters are written again and must be the same.
 *
 * The first byte, times eight, is the size of adapter_config.json, which comes next; the rest is
 * adapter_model.safetensors. The model is a Llama of two layers, and a GPT-2. */
#include "layers/models/peft/peft.h"
#include "layers/models/published/published_internal.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};

/* Makes a folder, in memory if possible. */
static const char *folder(void) {
    static char path[64];
    snprintf(path, sizeof path, "%s/fuzz_peft.XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    FUZZ_PROMISE(mkdtemp(path), "%s", path);
    return path;
}

static void write_bytes(const char *path, int number, const uint8_t *data, size_t size) {
    char name[96];
    snprintf(name, sizeof name, "%s/%s", path, names[number]);
    FILE *file = fopen(name, "wb");
    FUZZ_PROMISE(file && fwrite(data, 1, size, file) == size && !fclose(file), "%s", name);
}

static void leave(const char *path) {
    char name[96];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", path, names[i]);
        unlink(name);
    }
    rmdir(path);
}

static void compare(const struct sl_peft *a, const struct sl_peft *b) {
    FUZZ_PROMISE(a->rank == b->rank && a->alpha == b->alpha && !strcmp(a->modules, b->modules), "%s", a->modules);
    FUZZ_PROMISE(a->values.count == b->values.count, "%d tensors", a->values.count);
    for (int i = 0; i < a->values.count; i++) {
        const struct sl_tensor *tensor = &a->values.tensor[i], *same = sl_store_find(&b->values, tensor->name);
        FUZZ_PROMISE(same && sl_tensor_bytes(same) == sl_tensor_bytes(tensor), "%s", tensor->name);
        FUZZ_PROMISE(!memcmp(tensor->array.data, same->array.data, sl_tensor_bytes(same)), "%s", tensor->name);
    }
}

static void read_and_write(const char *path, const char *name) {
    const struct sl_published_family *family = sl_published_find_family(name);
    const struct sl_transformer transformer = {.blocks = 2};
    struct sl_peft peft = {0}, again = {0};
    struct sl_error error = {0};
    const int status = sl_peft_read(&peft, path, family, &transformer, &error);
    if (status) {
        fuzz_refused(status, &error);
    } else {
        FUZZ_PROMISE(!sl_peft_write(&peft, path, family, &transformer, NULL, &error), "%s", error.message);
        FUZZ_PROMISE(!sl_peft_read(&again, path, family, &transformer, &error), "%s", error.message);
        compare(&peft, &again);
    }
    sl_peft_free(&peft);
    sl_peft_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const families[] = {"llama", "gpt2"};
    if (size < 1) return 0;
    const size_t config = data[0] * 8u < size - 1 ? data[0] * 8u : size - 1;
    const char *path = folder();
    for (int f = 0; f < 2; f++) {
        write_bytes(path, 0, data + 1, config);
        write_bytes(path, 1, data + 1 + config, size - 1 - config);
        read_and_write(path, families[f]);
    }
    leave(path);
    return 0;
}
