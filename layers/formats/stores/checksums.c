/* checksums.c - checksums of tensors and notes, in one pass over the data. */
#include "layers/formats/stores/checksums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Bytes read twice, for the checksum and for floats: they stay in a core's cache. Bytes between two calls of
 * BETWEEN. */
enum { PART = 256 << 10, TOLD = 4 << 20 };

/* ---- the pass over data ---- */

struct pass {
    const struct sl_store *store;
    struct sl_hasher *hasher; /* NULL: checksums are not computed */
    int (*between)(void *arg);
    void *arg;
    size_t untold; /* bytes since the last call of between */
};

/* Infinities and NaNs have all bits of the exponent set. */
static bool finite_f32(const uint32_t *word, size_t count) {
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) found |= (word[i] & 0x7f800000u) == 0x7f800000u;
    return !found;
}

static bool finite_bf16(const uint16_t *half, size_t count) {
    uint16_t found = 0;
    for (size_t i = 0; i < count; i++) found |= (half[i] & 0x7f80u) == 0x7f80u;
    return !found;
}

static bool is_finite(enum sl_dtype dtype, const void *data, size_t count) {
    if (dtype == SL_F32) return finite_f32(data, count);
    return dtype != SL_BF16 || finite_bf16(data, count);
}

/* Index of the first non-finite one of COUNT elements; COUNT: none. */
static size_t first_not_finite(enum sl_dtype dtype, const char *data, size_t count) {
    if (is_finite(dtype, data, count)) return count;
    size_t i = 0;
    while (is_finite(dtype, data + i * sl_dtype_size(dtype), 1)) i++;
    return i;
}

static int tell(struct pass *pass, size_t bytes) {
    pass->untold += bytes;
    if (pass->untold < TOLD) return SL_OK;
    pass->untold = 0;
    sl_store_relax(pass->store);
    return pass->between ? pass->between(pass->arg) : SL_OK;
}

/* Reads TENSOR once. *NOT_FINITE: index of its first non-finite element; its number of elements: none. */
static int look(struct pass *pass, const struct sl_tensor *tensor, uint64_t *checksum, size_t *not_finite) {
    const enum sl_dtype dtype = tensor->array.dtype;
    const size_t bytes = sl_tensor_bytes(tensor), size = sl_dtype_size(dtype);
    const char *data = tensor->array.data;
    *not_finite = bytes / size;
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < PART ? bytes - at : PART;
        if (pass->hasher) sl_hasher_add(pass->hasher, data + at, part);
        const size_t found = at / size + first_not_finite(dtype, data + at, part / size);
        if (found < (at + part) / size && found < *not_finite) *not_finite = found;
        SL_TRY(tell(pass, part));
    }
    if (pass->hasher) *checksum = sl_hasher_end(pass->hasher);
    return SL_OK;
}

int sl_checksums_make(const struct sl_store *store, struct sl_tensor *tensor, const char *path,
                      int (*between)(void *arg), void *arg, struct sl_error *error) {
    struct sl_hasher hasher;
    struct pass pass = {.store = store, .hasher = &hasher, .between = between, .arg = arg};
    int status = SL_OK;
    sl_hasher_begin(&hasher);
    for (int i = 0; i < store->count && status == SL_OK; i++) {
        size_t not_finite;
        status = look(&pass, &tensor[i], &tensor[i].checksum, &not_finite);
        if (status == SL_OK && not_finite < sl_array_elements(&tensor[i].array))
            status = sl_error_set(error, SL_FAILED, "%s: cannot be written: tensor %s: value %zu is not finite", path,
                                  tensor[i].name, not_finite);
    }
    return status;
}

void sl_checking_begin(struct sl_checking *checking) {
    *checking = (struct sl_checking){0};
    sl_hasher_begin(&checking->hasher);
}

void sl_checking_add(struct sl_checking *checking, enum sl_dtype dtype, const void *data, size_t bytes) {
    sl_hasher_add(&checking->hasher, data, bytes);
    checking->spoiled |= !is_finite(dtype, data, bytes / sl_dtype_size(dtype));
}

void sl_checking_end(struct sl_checking *checking, struct sl_tensor *tensor) {
    tensor->checksum = sl_hasher_end(&checking->hasher);
}

static int compare(const struct sl_store *store, const struct sl_tensor *tensor, uint64_t checksum, size_t not_finite,
                   struct sl_error *error) {
    char is[SL_HASH_DIGITS + 1], was[SL_HASH_DIGITS + 1];
    if (store->checksums && checksum != tensor->checksum)
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is damaged: its checksum is %s, the file says %s",
                            store->path, tensor->name, sl_hash_print(checksum, is),
                            sl_hash_print(tensor->checksum, was));
    if (not_finite < sl_array_elements(&tensor->array))
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s: value %zu is not finite", store->path, tensor->name,
                            not_finite);
    return SL_OK;
}

int sl_checksums_verify(const struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error) {
    struct sl_hasher hasher;
    struct pass pass = {store, store->checksums ? &hasher : NULL, between, arg, 0};
    int status = SL_OK;
    sl_hasher_begin(&hasher);
    if (store->mapping) madvise(store->mapping, store->mapped, MADV_SEQUENTIAL); /* a disk reads far ahead */
    for (int i = 0; i < store->count && status == SL_OK; i++) {
        uint64_t checksum = 0;
        size_t not_finite;
        status = look(&pass, &store->tensor[i], &checksum, &not_finite);
        if (status == SL_OK) status = compare(store, &store->tensor[i], checksum, not_finite, error);
    }
    if (store->mapping) madvise(store->mapping, store->mapped, MADV_NORMAL);
    return status;
}

/* ---- the note ---- */

static void add_sorted(struct sl_hasher *hasher, const struct sl_note *note, int notes) {
    for (int i = 0; i < notes; i++) {
        sl_hasher_add_text(hasher, note[i].key);
        sl_hasher_add_text(hasher, note[i].text);
    }
}

static int add_notes(struct sl_hasher *hasher, const struct sl_store *store) {
    const size_t notes = (size_t)store->notes;
    size_t next = 1;
    while (next < notes && sl_note_compare(&store->note[next - 1], &store->note[next]) <= 0) next++;
    if (next >= notes) {
        add_sorted(hasher, store->note, store->notes);
        return SL_OK;
    }
    struct sl_note *sorted = malloc(notes * sizeof *sorted);
    if (!sorted) return SL_FAILED;
    memcpy(sorted, store->note, notes * sizeof *sorted);
    qsort(sorted, notes, sizeof *sorted, sl_note_compare);
    add_sorted(hasher, sorted, store->notes);
    free(sorted);
    return SL_OK;
}

static void add_tensor(struct sl_hasher *hasher, const struct sl_tensor *tensor) {
    char shape[SL_MAX_DIMS * 21 + 1] = "", checksum[SL_HASH_DIGITS + 1];
    for (int d = 0, used = 0; d < tensor->array.dims; d++)
        used += snprintf(shape + used, sizeof shape - (size_t)used, "%s%zu", d ? "," : "", tensor->array.shape[d]);
    sl_hasher_add_text(hasher, tensor->name);
    sl_hasher_add_text(hasher, sl_dtypes[tensor->array.dtype].label);
    sl_hasher_add_text(hasher, shape);
    sl_hasher_add_text(hasher, sl_hash_print(tensor->checksum, checksum));
}

static int make_root(const struct sl_store *store, const struct sl_tensor *tensor, uint64_t *root) {
    struct sl_hasher hasher;
    sl_hasher_begin(&hasher);
    SL_TRY(add_notes(&hasher, store));
    for (int i = 0; i < store->count; i++) add_tensor(&hasher, &tensor[i]);
    *root = sl_hasher_end(&hasher);
    return SL_OK;
}

int sl_checksums_print(const struct sl_store *store, const struct sl_tensor *tensor, char *text) {
    char digits[SL_HASH_DIGITS + 1];
    uint64_t root;
    SL_TRY(make_root(store, tensor, &root));
    for (int i = 0; i < store->count; i++, text += SL_HASH_DIGITS + 1) {
        sl_hash_print(tensor[i].checksum, text);
        text[SL_HASH_DIGITS] = ' ';
    }
    memcpy(text, sl_hash_print(root, digits), SL_HASH_DIGITS);
    return SL_OK;
}

/* Reads the 16 digits of a checksum; each number has only one form. */
static bool parse(const char *digits, uint64_t *checksum) {
    *checksum = 0;
    for (int i = 0; i < SL_HASH_DIGITS; i++) {
        const char c = digits[i];
        const bool decimal = c >= '0' && c <= '9';
        if (!decimal && (c < 'a' || c > 'f')) return false;
        *checksum = *checksum << 4 | (uint64_t)(decimal ? c - '0' : c - 'a' + 10);
    }
    return true;
}

int sl_checksums_parse(struct sl_store *store, const char *text, struct sl_error *error) {
    bool valid = strlen(text) == sl_checksums_length(store->count);
    uint64_t written = 0, root;
    for (int i = 0; i < store->count && valid; i++, text += SL_HASH_DIGITS + 1)
        valid = parse(text, &store->tensor[i].checksum) && text[SL_HASH_DIGITS] == ' ';
    if (!valid || !parse(text, &written))
        return sl_error_set(error, SL_BAD_INPUT, "%s: damaged: the note %s is not %d checksums of 16 digits",
                            store->path, SL_CHECKSUMS_KEY, store->count + 1);
    if (make_root(store, store->tensor, &root))
        return sl_error_set(error, SL_FAILED, "%s: no memory for its checksums", store->path);
    char is[SL_HASH_DIGITS + 1], was[SL_HASH_DIGITS + 1];
    if (root != written)
        return sl_error_set(error, SL_BAD_INPUT, "%s: damaged: the checksum of its header is %s, the file says %s",
                            store->path, sl_hash_print(root, is), sl_hash_print(written, was));
    store->checksums = true;
    store->root = root;
    return SL_OK;
}
