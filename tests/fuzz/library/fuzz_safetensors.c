/* fuzz_safetensors.c - any bytes as a safetensors file: reading and mapping agree, and accepted files can be verified,
 * written with checksums or without, and read again. */
#include "layers/formats/stores/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void expect_same(const struct sl_store *a, const struct sl_store *b) {
    FUZZ_PROMISE(a->count == b->count && a->notes == b->notes && a->checksums == b->checksums, "other counts");
    for (int i = 0; i < a->count; i++) {
        const struct sl_tensor *x = &a->tensor[i], *y = sl_store_find(b, x->name);
        const size_t bytes = sl_tensor_bytes(x);
        FUZZ_PROMISE(y && sl_tensor_bytes(y) == bytes, "%s", x->name);
        FUZZ_PROMISE(!bytes || !memcmp(x->array.data, y->array.data, bytes), "%s", x->name);
    }
    for (int i = 0; i < a->notes; i++)
        FUZZ_PROMISE(!strcmp(sl_store_note(b, a->note[i].key), a->note[i].text), "%s", a->note[i].key);
}

static void write_again(const struct sl_store *store, bool finite) {
    char path[64];
    struct sl_store read = {0};
    struct sl_error error = {0};
    snprintf(path, sizeof path, "%s/fuzz_safetensors.%ld", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm",
             (long)getpid());
    const int status = sl_safetensors_write(store, path, &error);
    FUZZ_PROMISE(status == (store->checksums && !finite ? SL_FAILED : SL_OK), "%s", error.message);
    if (status == SL_OK) {
        FUZZ_PROMISE(!sl_safetensors_read(&read, path, &error), "%s", error.message);
        expect_same(store, &read);
    }
    sl_store_free(&read);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file(0, data, size);
    struct sl_store read = {0}, mapped = {0};
    struct sl_error error = {0}, refusal = {0};
    const int status = sl_safetensors_read(&read, path, &error);
    int verified = sl_safetensors_map(&mapped, path, &refusal);
    if (status) fuzz_refused(status, &error);
    if (verified) {
        fuzz_refused(verified, &refusal);
        FUZZ_PROMISE(status == verified && !strcmp(error.message, refusal.message), "%s", error.message);
    } else {
        verified = sl_safetensors_verify(&mapped, NULL, NULL, &refusal);
        if (verified) fuzz_refused(verified, &refusal);
        FUZZ_PROMISE(status == (mapped.checksums ? verified : SL_OK), "%s", refusal.message);
    }
    if (status == SL_OK) {
        expect_same(&read, &mapped);
        read.checksums = size % 2;
        write_again(&read, verified == SL_OK);
    }
    sl_store_free(&read);
    sl_store_free(&mapped);
    return 0;
}
