/* signature.c - a list of keys and texts in one piece of memory. */
#include "spmd/signature.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/hash.h"

enum { FIRST_ROOM = 4096 };

static bool make_room(struct sl_signature *signature, size_t bytes) {
    size_t room = signature->room ? signature->room : FIRST_ROOM;
    while (room - signature->size < bytes) room *= 2;
    if (room == signature->room) return true;
    char *larger = realloc(signature->bytes, room);
    if (!larger) return false;
    signature->bytes = larger;
    signature->room = room;
    return true;
}

static void put(struct sl_signature *signature, const char *bytes, size_t size) {
    memcpy(signature->bytes + signature->size, bytes, size);
    signature->size += size;
}

bool sl_signature_add(struct sl_signature *signature, const char *key, const char *text) {
    const size_t key_size = strlen(key) + 1, text_size = strlen(text) + 1;
    if (!make_room(signature, key_size + text_size)) return false;
    put(signature, key, key_size);
    put(signature, text, text_size);
    return true;
}

bool sl_signature_append(struct sl_signature *signature, const struct sl_signature *other) {
    if (!other || !other->size) return true;
    if (!make_room(signature, other->size)) return false;
    put(signature, other->bytes, other->size);
    return true;
}

uint64_t sl_signature_hash(const struct sl_signature *signature) {
    return sl_hash(signature->size ? signature->bytes : "", signature->size);
}

/* Returns the zero-terminated text at *AT within the SIZE bytes, and moves *AT behind it; NULL: there is none. */
static const char *next_text(const char *bytes, size_t size, size_t *at) {
    const char *text = bytes + *at;
    const char *end = *at < size ? memchr(text, 0, size - *at) : NULL;
    if (!end) return NULL;
    *at = (size_t)(end - bytes) + 1;
    return text;
}

bool sl_signature_next(const char *bytes, size_t size, size_t *at, struct sl_signature_entry *entry) {
    size_t next = *at;
    if (next >= size) return false;
    entry->key = next_text(bytes, size, &next);
    entry->text = entry->key ? next_text(bytes, size, &next) : NULL;
    if (!entry->text) return false;
    *at = next;
    return true;
}

void sl_signature_free(struct sl_signature *signature) {
    free(signature->bytes);
    *signature = (struct sl_signature){0};
}
