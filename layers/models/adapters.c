/* adapters.c - finds the tensors of adapters in a store. */
#include "layers/models/adapters.h"

#include <stdio.h>
#include <string.h>

#include "layers/modules/transformer_modules.h"

static const char end_of_a[] = ".lora_a.kernel", end_of_b[] = ".lora_b.kernel", end_of_kernel[] = ".kernel";

/* Length of NAME before END; -1 if NAME does not end with END. */
static int before(const char *name, const char *end) {
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && !strcmp(name + length - tail, end) ? (int)(length - tail) : -1;
}

bool sl_adapters_are_in(const struct sl_store *store) {
    for (int i = 0; i < store->count; i++)
        if (before(store->tensor[i].name, end_of_a) > 0) return true;
    return false;
}

static bool is_matrix(const struct sl_array *array) {
    return array->dtype == SL_F32 && array->dims == 2 && array->shape[0] > 0 && array->shape[1] > 0;
}

/* Finds the tensor named by the first LENGTH bytes of NAME, then END. */
static int find(const struct sl_store *store, const char *name, int length, const char *end, struct sl_tensor **tensor,
                struct sl_error *error) {
    char wanted[sizeof(*tensor)->name + 16];
    snprintf(wanted, sizeof wanted, "%.*s%s", length, name, end);
    *tensor = sl_store_find(store, wanted);
    const char *path = store->path ? store->path : "the values";
    if (!*tensor) return sl_error_set(error, SL_BAD_INPUT, "%s: there is %s, but no %s", path, name, wanted);
    if (is_matrix(&(*tensor)->array)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: %s, of an adapter, is no matrix of float32", path, wanted);
}

static int merge_one(const struct sl_store *store, const char *name, int length, double alpha, struct sl_error *error) {
    struct sl_tensor *a, *b, *kernel;
    SL_TRY(find(store, name, length, end_of_a, &a, error));
    SL_TRY(find(store, name, length, end_of_b, &b, error));
    SL_TRY(find(store, name, length, end_of_kernel, &kernel, error));
    const size_t *shape = kernel->array.shape, rank = a->array.shape[1];
    if (a->array.shape[0] != shape[0] || b->array.shape[1] != shape[1] || b->array.shape[0] != rank || rank > INT32_MAX)
        return sl_error_set(error, SL_BAD_INPUT, "%s: %s is [%zu, %zu], and its adapter [%zu, %zu] by [%zu, %zu]",
                            store->path ? store->path : "the values", kernel->name, shape[0], shape[1],
                            a->array.shape[0], rank, b->array.shape[0], b->array.shape[1]);
    if (sl_tensor_hold(a) || sl_tensor_hold(b))
        return sl_error_set(error, SL_FAILED, "no memory for the adapter of %s", kernel->name);
    kernel->adapter = (struct sl_low_rank){a->array.data, b->array.data, rank, sl_lora_scale((int)rank, alpha)};
    return SL_OK;
}

int sl_adapters_merge(struct sl_store *store, double alpha, struct sl_error *error) {
    for (int i = 0; i < store->count; i++) {
        const char *name = store->tensor[i].name;
        const int a = before(name, end_of_a), b = before(name, end_of_b);
        struct sl_tensor *other;
        if (!strncmp(name, "optimizer.", 10)) continue;
        if (a > 0) SL_TRY(merge_one(store, name, a, alpha, error));
        if (b > 0) SL_TRY(find(store, name, b, end_of_a, &other, error)); /* merged at its lora_a */
    }
    return SL_OK;
}
