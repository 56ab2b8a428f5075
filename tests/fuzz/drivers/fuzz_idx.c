/* fuzz_idx.c - images and labels in the IDX format, plain or compressed.
 *
 * The first byte chooses how many dims are expected; the file begins after it. */
#include "drivers/classifier/idx.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct classifier_idx idx;
    struct sl_error error = {0};
    if (size < 1) return 0;
    const int dims = 1 + data[0] % CLASSIFIER_IDX_DIMS;
    const char *path = fuzz_file(0, ++data, --size), *name = strrchr(path, '/') + 1;
    const int status = classifier_idx_read(&idx, "/proc/self/fd", name, dims, &error);
    if (status) {
        FUZZ_PROMISE(!idx.data, "data of a file that was refused");
        fuzz_refused(status, &error);
        return 0;
    }
    const uint64_t bytes = (uint64_t)idx.shape[0] * idx.shape[1] * idx.shape[2];
    const size_t header = 4 + 4 * (size_t)dims;
    const bool compressed = data[0] != 0;
    FUZZ_PROMISE(bytes, "no bytes");
    FUZZ_PROMISE(compressed || (size == header + bytes && !memcmp(idx.data, data + header, bytes)), "other bytes");
    free(idx.data);
    return 0;
}
