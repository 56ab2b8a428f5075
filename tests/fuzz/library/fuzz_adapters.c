/* fuzz_adapters.c - a file of any bytes with values and adapters: it is refused with one line, or each value is read
 * with its adapter, whole and in parts alike. */
#include "layers/formats/stores/safetensors.h"
#include "layers/models/adapters.h"
#include "tests/fuzz/fuzz.h"

static bool same(float a, float b) { return !memcmp(&a, &b, sizeof a) || (a != a && b != b); }

static void read_parts(const struct sl_tensor *tensor, size_t count, const float *whole) {
    float part[7];
    for (size_t first = 0; first < count; first += 7) {
        const size_t some = count - first < 7 ? count - first : 7;
        sl_tensor_read(tensor, first, some, part);
        for (size_t i = 0; i < some; i++)
            FUZZ_PROMISE(same(part[i], whole[first + i]), "%s, element %zu", tensor->name, first + i);
    }
}

static void read_whole(const struct sl_tensor *tensor) {
    const size_t count = sl_array_elements(&tensor->array);
    float *whole = malloc(count * sizeof *whole + 1);
    FUZZ_PROMISE(whole, "%zu values", count);
    sl_tensor_read(tensor, 0, count, whole);
    read_parts(tensor, count, whole);
    FUZZ_PROMISE(tensor->adapter.rank || !count || !memcmp(whole, tensor->array.data, count * sizeof *whole),
                 "%s has other values", tensor->name);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    int status = sl_safetensors_map(&store, fuzz_file(0, data, size), &error);
    if (status == SL_OK) status = sl_adapters_merge(&store, (double)(size % 5), &error);
    if (status) fuzz_refused(status, &error);
    for (int i = 0; i < store.count && status == SL_OK; i++)
        if (store.tensor[i].array.dtype == SL_F32) read_whole(&store.tensor[i]);
    sl_store_free(&store);
    return 0;
}
