/* publish_tokenizer_gguf.c - writes a tokenizer of bytes as the metadata of a GGUF file, as llama.cpp reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/models/gguf.h"
#include "layers/formats/tokenizers/formats_internal.h"
#include "spmd/base/memory.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; /* tokenizer.ggml.token_type */

/* ---- bytes ---- */

static void put(struct sl_gguf_metadata *m, const void *bytes, size_t count) {
    if (m->failed || count == 0) return;
    if (m->count + count > m->room) {
        const size_t room = 2 * (m->count + count) + 4096;
        char *wider = realloc(m->bytes, room);
        m->failed = !wider;
        if (!wider) return;
        m->bytes = wider;
        m->room = room;
    }
    memcpy(m->bytes + m->count, bytes, count);
    m->count += count;
}

static void put_u32(struct sl_gguf_metadata *m, uint32_t number) { put(m, &number, sizeof number); }

static void put_text(struct sl_gguf_metadata *m, const char *text, size_t count) {
    put(m, &(uint64_t){count}, sizeof(uint64_t));
    put(m, text, count);
}

static void put_key(struct sl_gguf_metadata *m, const char *key, enum sl_gguf_type type) {
    put_text(m, key, strlen(key));
    put_u32(m, type);
    m->values++;
}

static void put_string(struct sl_gguf_metadata *m, const char *key, const char *text, size_t count) {
    put_key(m, key, SL_GGUF_STRING);
    put_text(m, text, count);
}

static void put_array(struct sl_gguf_metadata *m, const char *key, enum sl_gguf_type type, uint64_t count) {
    put_key(m, key, SL_GGUF_ARRAY);
    put_u32(m, type);
    put(m, &count, sizeof count);
}

static void put_token(struct sl_gguf_metadata *m, const char *key, int32_t token) {
    if (token < 0) return;
    put_key(m, key, SL_GGUF_U32);
    put_u32(m, (uint32_t)token);
}

/* ---- tokens and merges ---- */

/* Writes a token's name; numbers without a token get names absent from texts. */
static void put_name(struct sl_gguf_metadata *m, const struct sl_tokenizer *t, int32_t token) {
    char text[3 * SL_LONGEST_TOKEN];
    const bool there = token < t->count && t->token[token].kind != SL_TOKEN_NONE;
    size_t count = there ? t->token[token].length : (size_t)snprintf(text, sizeof text, "[PAD%d]", token);
    if (there && t->token[token].kind == SL_TOKEN_TEXT)
        count = sl_spell_bytes(sl_vocabulary_bytes(t, token), count, text);
    else if (there)
        memcpy(text, sl_vocabulary_bytes(t, token), count);
    put_text(m, text, count);
}

static uint32_t type_of(const struct sl_tokenizer *t, int32_t token) {
    switch (token < t->count ? t->token[token].kind : SL_TOKEN_NONE) {
    case SL_TOKEN_TEXT:
        return NORMAL;
    case SL_TOKEN_SPECIAL:
        return CONTROL;
    case SL_TOKEN_ADDED:
        return USER_DEFINED;
    default:
        return UNUSED;
    }
}

static int by_rank(const void *a, const void *b) {
    const struct sl_merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void put_merges(struct sl_gguf_metadata *m, const struct sl_tokenizer *t) {
    struct sl_merge *sorted = malloc((t->merges + 1) * sizeof *sorted);
    size_t count = 0;
    m->failed |= !sorted;
    for (size_t i = 0; sorted && i < t->slots; i++)
        if (t->merge[i].left >= 0) sorted[count++] = t->merge[i];
    if (sorted) qsort(sorted, count, sizeof *sorted, by_rank);
    put_array(m, "tokenizer.ggml.merges", SL_GGUF_STRING, count);
    for (size_t i = 0; sorted && i < count; i++) {
        char text[6 * SL_LONGEST_TOKEN + 1];
        const int32_t parts[] = {sorted[i].left, sorted[i].right};
        size_t used = 0;
        for (int p = 0; p < 2; p++) {
            if (p) text[used++] = ' ';
            used += sl_spell_bytes(sl_vocabulary_bytes(t, parts[p]), t->token[parts[p]].length, text + used);
        }
        put_text(m, text, used);
    }
    free(sorted);
}

/* ---- all metadata ---- */

bool sl_tokenizer_has_gguf(const struct sl_tokenizer *t) {
    return t->pattern && !t->normalizes && t->nfc == t->pattern->nfc && t->whole == !strcmp(t->pattern->name, "llama3");
}

int sl_tokenizer_put_gguf(const struct sl_tokenizer *t, int rows, const char *chat, struct sl_gguf_metadata *m,
                          struct sl_error *error) {
    const char *pre = t->pattern->alias + 1, *end = strchr(pre, '|');
    const int count = rows > t->count ? rows : t->count;
    put_string(m, "tokenizer.ggml.model", "gpt2", 4);
    put_string(m, "tokenizer.ggml.pre", pre, (size_t)(end - pre));
    put_array(m, "tokenizer.ggml.tokens", SL_GGUF_STRING, (uint64_t)count);
    for (int32_t token = 0; token < count; token++) put_name(m, t, token);
    put_array(m, "tokenizer.ggml.token_type", SL_GGUF_I32, (uint64_t)count);
    for (int32_t token = 0; token < count; token++) put_u32(m, type_of(t, token));
    put_merges(m, t);
    put_token(m, "tokenizer.ggml.bos_token_id", t->begin);
    put_token(m, "tokenizer.ggml.eos_token_id", t->end);
    put_token(m, "tokenizer.ggml.unknown_token_id", t->unknown);
    if (chat) put_string(m, "tokenizer.chat_template", chat, strlen(chat));
    return m->failed ? sl_error_set(error, SL_FAILED, "no memory for a tokenizer") : SL_OK;
}
