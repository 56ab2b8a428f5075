/* vocabulary.c - tokens and merges in hash tables. */
#include "layers/formats/tokenizers/vocabulary_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/hash.h"

static int no_memory(const char *path, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
}

/* ---- tokens by their bytes ---- */

static bool has_bytes(const struct sl_tokenizer *t, int32_t token, const char *bytes, size_t count) {
    return t->token[token].length == count && !memcmp(sl_vocabulary_bytes(t, token), bytes, count);
}

/* Slot of the bytes, or the free slot for them. */
static size_t slot_of(const struct sl_tokenizer *t, const struct sl_token_table *table, const char *bytes,
                      size_t count) {
    size_t at = (size_t)sl_hash(bytes, count) & (table->slots - 1);
    while (table->slot[at] && !has_bytes(t, table->slot[at] - 1, bytes, count)) at = (at + 1) & (table->slots - 1);
    return at;
}

static bool widen(const struct sl_tokenizer *t, struct sl_token_table *table) {
    struct sl_token_table wider = {.slots = table->slots ? 2 * table->slots : 512, .count = table->count};
    wider.slot = calloc(wider.slots, sizeof *wider.slot);
    if (!wider.slot) return false;
    for (size_t i = 0; i < table->slots; i++) {
        if (!table->slot[i]) continue;
        const int32_t token = table->slot[i] - 1;
        wider.slot[slot_of(t, &wider, sl_vocabulary_bytes(t, token), t->token[token].length)] = token + 1;
    }
    free(table->slot);
    *table = wider;
    return true;
}

/* Adds a token. Of two tokens with the same bytes, the first one is found. */
static bool note(const struct sl_tokenizer *t, struct sl_token_table *table, int32_t token) {
    if (2 * (table->count + 1) > table->slots && !widen(t, table)) return false;
    const size_t at = slot_of(t, table, sl_vocabulary_bytes(t, token), t->token[token].length);
    if (table->slot[at]) return true;
    table->slot[at] = token + 1;
    table->count++;
    return true;
}

int32_t sl_vocabulary_find(const struct sl_tokenizer *t, enum sl_token_kind kind, const char *bytes, size_t count) {
    const struct sl_token_table *table = kind == SL_TOKEN_SPECIAL ? &t->special : &t->text;
    return table->count ? table->slot[slot_of(t, table, bytes, count)] - 1 : -1;
}

int32_t sl_token_find(const struct sl_tokenizer *t, const char *text, size_t bytes) {
    const int32_t special = sl_vocabulary_find(t, SL_TOKEN_SPECIAL, text, bytes);
    return special >= 0 ? special : sl_vocabulary_find(t, SL_TOKEN_TEXT, text, bytes);
}

static bool grow_tokens(struct sl_tokenizer *t, int64_t token) {
    if (token >= t->capacity) {
        const int capacity = token < 512 ? 1024 : 2 * (int)token;
        struct sl_token *wider = realloc(t->token, (size_t)capacity * sizeof *wider);
        if (!wider) return false;
        t->token = wider;
        t->capacity = capacity;
    }
    while (t->count <= token) t->token[t->count++] = (struct sl_token){0};
    return true;
}

static bool grow_bytes(struct sl_tokenizer *t, size_t count) {
    if (t->used + count <= t->room) return true;
    const size_t room = 2 * (t->used + count) + 4096;
    char *wider = realloc(t->bytes, room);
    if (!wider) return false;
    t->bytes = wider;
    t->room = room;
    return true;
}

static bool note_special(struct sl_tokenizer *t, int32_t token) {
    const struct sl_token *special = &t->token[token];
    t->length[special->length] = true;
    t->first[(unsigned char)t->bytes[special->start]] = true;
    if ((int)special->length > t->longest) t->longest = (int)special->length;
    return note(t, &t->special, token);
}

int sl_vocabulary_add(struct sl_tokenizer *t, int64_t token, const char *bytes, size_t count, enum sl_token_kind kind,
                      const char *path, struct sl_error *error) {
    if (token < 0 || token >= SL_MOST_TOKENS)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a token of number %lld: allowed are 0 to %d", path,
                            (long long)token, SL_MOST_TOKENS - 1);
    if (token < t->count && t->token[token].kind != SL_TOKEN_NONE)
        return sl_error_set(error, SL_BAD_INPUT, "%s: two tokens have the number %lld", path, (long long)token);
    if (!count || count > SL_LONGEST_TOKEN)
        return sl_error_set(error, SL_BAD_INPUT, "%s: token %lld has %zu bytes: allowed are 1 to %d", path,
                            (long long)token, count, SL_LONGEST_TOKEN);
    if (!grow_tokens(t, token) || !grow_bytes(t, count)) return no_memory(path, error);
    memcpy(t->bytes + t->used, bytes, count);
    t->token[token] = (struct sl_token){(uint32_t)t->used, (uint32_t)count, kind, false};
    t->used += count;
    if (kind == SL_TOKEN_TEXT && !note(t, &t->text, (int32_t)token)) return no_memory(path, error);
    if (sl_vocabulary_is_found(t, (int32_t)token) && !note_special(t, (int32_t)token)) return no_memory(path, error);
    return SL_OK;
}

/* ---- merges ---- */

static size_t pair_slot(const struct sl_merge *merge, size_t slots, int32_t left, int32_t right) {
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(hash >> 32) & (slots - 1);
    while (merge[at].left >= 0 && (merge[at].left != left || merge[at].right != right)) at = (at + 1) & (slots - 1);
    return at;
}

const struct sl_merge *sl_vocabulary_pair(const struct sl_tokenizer *t, int32_t left, int32_t right) {
    if (!t->slots) return NULL;
    const struct sl_merge *merge = &t->merge[pair_slot(t->merge, t->slots, left, right)];
    return merge->left < 0 ? NULL : merge;
}

static bool widen_merges(struct sl_tokenizer *t) {
    const size_t slots = t->slots ? 2 * t->slots : 1024;
    struct sl_merge *wider = malloc(slots * sizeof *wider);
    if (!wider) return false;
    for (size_t i = 0; i < slots; i++) wider[i].left = -1;
    for (size_t i = 0; i < t->slots; i++)
        if (t->merge[i].left >= 0) wider[pair_slot(wider, slots, t->merge[i].left, t->merge[i].right)] = t->merge[i];
    free(t->merge);
    t->merge = wider;
    t->slots = slots;
    return true;
}

static bool add_merge(struct sl_tokenizer *t, struct sl_merge merge) {
    if (3 * (t->merges + 1) > 2 * t->slots && !widen_merges(t)) return false;
    struct sl_merge *slot = &t->merge[pair_slot(t->merge, t->slots, merge.left, merge.right)];
    if (slot->left >= 0) return true;
    *slot = merge;
    t->merges++;
    return true;
}

int sl_vocabulary_merge(struct sl_tokenizer *t, int32_t left, int32_t right, uint32_t rank, const char *path,
                        struct sl_error *error) {
    char both[2 * SL_LONGEST_TOKEN];
    const size_t first = t->token[left].length, second = t->token[right].length;
    memcpy(both, sl_vocabulary_bytes(t, left), first);
    memcpy(both + first, sl_vocabulary_bytes(t, right), second);
    const int32_t token = sl_vocabulary_find(t, SL_TOKEN_TEXT, both, first + second);
    if (token < 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: merge %u makes no token of the vocabulary", path, rank);
    return add_merge(t, (struct sl_merge){left, right, token, rank}) ? SL_OK : no_memory(path, error);
}

static bool within_character(const char *bytes) { return ((unsigned char)*bytes & 0xc0) == 0x80; }

int sl_vocabulary_merge_all(struct sl_tokenizer *t, const uint32_t *rank, const char *path, struct sl_error *error) {
    for (int32_t token = 0; token < t->count; token++) {
        if (t->token[token].kind != SL_TOKEN_TEXT) continue;
        const char *bytes = sl_vocabulary_bytes(t, token);
        const size_t length = t->token[token].length;
        for (size_t cut = 1; cut < length; cut++) {
            if (t->pieces && within_character(bytes + cut)) continue;
            const int32_t left = sl_vocabulary_find(t, SL_TOKEN_TEXT, bytes, cut),
                          right = left < 0 ? -1 : sl_vocabulary_find(t, SL_TOKEN_TEXT, bytes + cut, length - cut);
            if (right >= 0 && !add_merge(t, (struct sl_merge){left, right, token, rank[token]}))
                return no_memory(path, error);
        }
    }
    return SL_OK;
}

/* ---- finishing ---- */

static bool cuts_before_spaces(const struct sl_tokenizer *t) {
    for (int i = 0; i < t->count; i++) {
        const char *bytes = sl_vocabulary_bytes(t, i);
        if (t->token[i].kind != SL_TOKEN_TEXT) continue;
        for (uint32_t b = 1; b < t->token[i].length; b++)
            if (bytes[b] == ' ' && bytes[b - 1] != ' ') return false;
    }
    return true;
}

int sl_vocabulary_finish(struct sl_tokenizer *t, const char *path, struct sl_error *error) {
    for (int b = 0; !t->pieces && b < 256; b++) t->byte[b] = sl_vocabulary_find(t, SL_TOKEN_TEXT, &(char){(char)b}, 1);
    for (int b = 0; b < 256; b++) {
        if (t->byte[b] < 0) t->byte[b] = t->unknown;
        if (t->byte[b] < 0)
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: neither a token of its own nor a token for unknown bytes stands for the byte "
                                "0x%02X",
                                path, b);
    }
    t->cuts = t->pieces && cuts_before_spaces(t);
    return t->pattern ? sl_words_compile(&t->words, t->pattern, error) : SL_OK;
}
