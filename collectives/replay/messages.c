/* messages.c - a growing block of messages, and iteration over it. */
#include "collectives/replay/messages.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct sl_message) == SL_MESSAGE_ALIGN, "heads lie in files as in memory");

static size_t padded(size_t bytes) { return (bytes + SL_MESSAGE_ALIGN - 1) / SL_MESSAGE_ALIGN * SL_MESSAGE_ALIGN; }

static bool grow(struct sl_messages *messages, size_t size) {
    const size_t room = padded(size + size / 4);
    char *block = aligned_alloc(SL_MESSAGE_ALIGN, room);
    if (!block) return false;
    if (messages->size) memcpy(block, messages->block, messages->size);
    free(messages->block);
    messages->block = block;
    messages->room = room;
    return true;
}

void *sl_messages_add(struct sl_messages *messages, const struct sl_message *message) {
    const size_t bytes = padded(message->bytes), size = messages->size + sizeof *message + bytes;
    if (size > messages->room && !grow(messages, size)) return NULL;
    char *to = messages->block + messages->size;
    memcpy(to, message, sizeof *message);
    to += sizeof *message;
    memset(to + message->bytes, 0, bytes - message->bytes);
    messages->size = size;
    return to;
}

const struct sl_message *sl_messages_next(const struct sl_messages *messages, size_t *at) {
    const size_t left = messages->size - *at;
    if (left < sizeof(struct sl_message)) return NULL;
    const struct sl_message *message = (const void *)(messages->block + *at);
    const bool known = message->kind == SL_MESSAGE_RESULT || message->kind == SL_MESSAGE_SLOT;
    if (!known || message->bytes > left || padded(message->bytes) > left - sizeof *message) return NULL;
    *at += sizeof *message + padded(message->bytes);
    return message;
}

bool sl_messages_are_sound(const struct sl_messages *messages) {
    size_t at = 0;
    while (sl_messages_next(messages, &at)) continue;
    return at == messages->size;
}

void sl_messages_free(struct sl_messages *messages) {
    free(messages->block);
    *messages = (struct sl_messages){0};
}
