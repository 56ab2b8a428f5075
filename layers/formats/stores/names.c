/* names.c - a hash table with open addressing. */
#include "layers/formats/stores/names.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/hash.h"

static int first_slot(const struct sl_names *names, const char *name) {
    return (int)(sl_hash(name, strlen(name)) & (uint64_t)(names->slots - 1));
}

/* Among equal names, the first place is found first. */
static void insert(struct sl_names *names, const char *name, int place) {
    int s = first_slot(names, name);
    while (names->slot[s]) s = (s + 1) & (names->slots - 1);
    names->slot[s] = place + 1;
}

void sl_names_renew(struct sl_names *names, const void *list, sl_name_at *name_at) {
    if (names->slots) memset(names->slot, 0, (size_t)names->slots * sizeof *names->slot);
    for (int i = 0; i < names->count; i++) insert(names, name_at(list, i), i);
}

static int grow(struct sl_names *names, const void *list, sl_name_at *name_at) {
    const int slots = names->slots ? 2 * names->slots : 64;
    int *grown = realloc(names->slot, (size_t)slots * sizeof *grown);
    if (!grown) return SL_FAILED;
    names->slot = grown;
    names->slots = slots;
    sl_names_renew(names, list, name_at);
    return SL_OK;
}

int sl_names_add(struct sl_names *names, const void *list, sl_name_at *name_at) {
    if (names->count >= 1 << 29) return SL_FAILED;
    if (names->count >= names->slots / 2) SL_TRY(grow(names, list, name_at));
    insert(names, name_at(list, names->count), names->count);
    names->count++;
    return SL_OK;
}

int sl_names_find(const struct sl_names *names, const void *list, sl_name_at *name_at, const char *name) {
    if (!names->slots) return -1;
    for (int s = first_slot(names, name); names->slot[s]; s = (s + 1) & (names->slots - 1)) {
        const int place = names->slot[s] - 1;
        if (!strcmp(name_at(list, place), name)) return place;
    }
    return -1;
}

void sl_names_free(struct sl_names *names) {
    free(names->slot);
    *names = (struct sl_names){0};
}
