/* encode.c - encodes a text as tokens: special tokens are cut out, the text between them is divided into words, and
 * each word is merged, unless its tokens are cached. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "layers/formats/tokenizers/merge_internal.h"
#include "spmd/base/hash.h"

/* A cached word and its tokens. */
enum { REMEMBERED = 1 << 14, REMEMBERED_BYTES = 22, REMEMBERED_TOKENS = 10 };
struct memory {
    uint8_t bytes, tokens; /* bytes 0: the entry is empty */
    char word[REMEMBERED_BYTES];
    int32_t token[REMEMBERED_TOKENS];
};

struct sl_encoder {
    const struct sl_tokenizer *tokenizer;
    struct sl_matcher *matcher; /* NULL: the tokenizer has pieces */
    struct sl_merging merging;
    struct memory *memory; /* indexed by the hash of the word */
    bool literal;          /* special tokens in the current text are ordinary text */
};

int sl_encoder_open(struct sl_encoder **encoder, const struct sl_tokenizer *tokenizer, struct sl_error *error) {
    struct sl_encoder *e = *encoder = calloc(1, sizeof *e);
    if (e) {
        e->tokenizer = tokenizer;
        e->memory = calloc(REMEMBERED, sizeof *e->memory);
        if (tokenizer->words) e->matcher = sl_matcher_new(tokenizer->words);
        if (e->memory && (e->matcher || !tokenizer->words)) return SL_OK;
    }
    sl_encoder_close(e);
    *encoder = NULL;
    return sl_error_set(error, SL_FAILED, "out of memory for an encoder");
}

void sl_encoder_close(struct sl_encoder *e) {
    if (!e) return;
    sl_matcher_free(e->matcher);
    sl_merging_free(&e->merging);
    free(e->memory);
    free(e);
}

void sl_token_list_free(struct sl_token_list *list) {
    free(list->token);
    *list = (struct sl_token_list){0};
}

/* Makes room for COUNT more tokens. */
static bool reserve(struct sl_token_list *list, size_t count) {
    if (list->count + count <= list->capacity) return true;
    const size_t capacity = 2 * (list->count + count) + 64;
    int32_t *wider = realloc(list->token, capacity * sizeof *wider);
    if (!wider) return false;
    list->token = wider;
    list->capacity = capacity;
    return true;
}

bool sl_token_list_add(struct sl_token_list *list, int32_t token) {
    if (!reserve(list, 1)) return false;
    list->token[list->count++] = token;
    return true;
}

/* ---- UTF-8 ---- */

/* Bytes of the character at the beginning of TEXT; 0: there is none. */
static size_t character(const char *text, size_t bytes) {
    int32_t point;
    const utf8proc_ssize_t count = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &point);
    return count > 0 ? (size_t)count : 0;
}

/* Number of bytes of valid characters at the beginning. */
static size_t characters(const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        uint64_t word;
        if (bytes - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if (!(word & UINT64_C(0x8080808080808080))) {
                at += sizeof word;
                continue;
            }
        }
        const size_t count = (unsigned char)text[at] < 0x80 ? 1 : character(text + at, bytes - at);
        if (!count) break;
        at += count;
    }
    return at;
}

/* Whether a UTF-8 text may change when it is normalized; characters below U+0300 do not. */
static bool may_change(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= 0xcc) return true;
    return false;
}

/* ---- words ---- */

/* Adds the initial symbols of merging: bytes, or characters; characters without a token are split into bytes. */
static bool spell(struct sl_encoder *e, const char *word, size_t bytes) {
    const struct sl_tokenizer *t = e->tokenizer;
    sl_merging_begin(&e->merging);
    for (size_t at = 0, count; at < bytes; at += count) {
        count = t->pieces ? character(word + at, bytes - at) : 0;
        const int32_t token = count ? sl_vocabulary_find(t, SL_TOKEN_TEXT, word + at, count) : -1;
        if (!count) count = 1;
        if (token >= 0) {
            if (!sl_merging_add(&e->merging, token)) return false;
            continue;
        }
        for (size_t b = 0; b < count; b++)
            if (!sl_merging_add(&e->merging, t->byte[(unsigned char)word[at + b]])) return false;
    }
    return true;
}

static bool merge_word(struct sl_encoder *e, const char *word, size_t bytes, struct sl_token_list *list) {
    const struct sl_tokenizer *t = e->tokenizer;
    const int32_t whole = t->whole ? sl_vocabulary_find(t, SL_TOKEN_TEXT, word, bytes) : -1;
    if (whole >= 0) return sl_token_list_add(list, whole);
    if (!spell(e, word, bytes) || !sl_merging_run(&e->merging, t) || !reserve(list, e->merging.symbols)) return false;
    for (size_t i = 0; i < e->merging.symbols; i++)
        if (e->merging.symbol[i].token >= 0) list->token[list->count++] = e->merging.symbol[i].token;
    return true;
}

static bool encode_word(struct sl_encoder *e, const char *word, size_t bytes, struct sl_token_list *list) {
    if (bytes > REMEMBERED_BYTES) return merge_word(e, word, bytes, list);
    struct memory *memory = &e->memory[sl_hash(word, bytes) & (REMEMBERED - 1)];
    if (memory->bytes != bytes || memcmp(memory->word, word, bytes) != 0) {
        const size_t before = list->count;
        if (!merge_word(e, word, bytes, list)) return false;
        const size_t tokens = list->count - before;
        if (tokens > REMEMBERED_TOKENS) return true;
        memory->bytes = (uint8_t)bytes;
        memory->tokens = (uint8_t)tokens;
        memcpy(memory->word, word, bytes);
        memcpy(memory->token, list->token + before, tokens * sizeof *memory->token);
        return true;
    }
    if (!reserve(list, REMEMBERED_TOKENS)) return false;
    memcpy(list->token + list->count, memory->token, sizeof memory->token);
    list->count += memory->tokens;
    return true;
}

/* Bytes of the first word of pieces: up to the first space after another character, if words end there. */
static size_t piece_word(const struct sl_tokenizer *t, const char *text, size_t bytes) {
    size_t at = 0;
    if (!t->cuts) return bytes;
    while (at < bytes && text[at] == ' ') at++;
    const char *end = at < bytes ? memchr(text + at, ' ', bytes - at) : NULL;
    return end ? (size_t)(end - text) : bytes;
}

/* Encodes TEXT, which is UTF-8. */
static bool encode_characters(struct sl_encoder *e, const char *text, size_t bytes, struct sl_token_list *list) {
    for (size_t at = 0, count; at < bytes; at += count) {
        count =
            e->matcher ? sl_matcher_next(e->matcher, text, bytes, at) : piece_word(e->tokenizer, text + at, bytes - at);
        if (!encode_word(e, text + at, count, list)) return false;
    }
    return true;
}

/* Bytes to normalize at once: all, unless there are more consecutive marks than in any language. The library takes
 * quadratic time to sort marks. */
static size_t normalized_at_once(const char *text, size_t bytes) {
    enum { MOST_MARKS = 256 };
    int marks = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t point;
        at += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(bytes - at), &point);
        marks = utf8proc_get_property(point)->combining_class ? marks + 1 : 0;
        if (marks == MOST_MARKS) return at;
    }
    return bytes;
}

/* ---- special and added tokens ---- */

/* The longest special or added token at the beginning of TEXT, normalized or not; -1: none. */
static int32_t found_at(const struct sl_tokenizer *t, bool normalized, const char *text, size_t bytes) {
    const size_t blank = normalized && t->prefix == SL_PREFIX_PREPEND;
    if (bytes <= blank || (blank && *text != ' ') || !t->first[(unsigned char)text[blank]]) return -1;
    text += blank;
    bytes -= blank;
    for (int length = bytes < (size_t)t->longest ? (int)bytes : t->longest; length; length--) {
        const int32_t token = t->length[length] ? sl_vocabulary_find(t, SL_TOKEN_SPECIAL, text, (size_t)length) : -1;
        if (token >= 0 && t->token[token].normalized == normalized) return token;
    }
    return -1;
}

static size_t bytes_in_text(const struct sl_tokenizer *t, int32_t token) {
    return sl_vocabulary_blank(t, token) + t->token[token].length;
}

/* Bytes before the first such token, *FOUND; all bytes, and -1, if there is none. In literal text the bytes of a
 * special token are text, and hide overlapping tokens, as in the original library. */
static size_t next_found(const struct sl_encoder *e, bool normalized, const char *text, size_t bytes, int32_t *found) {
    const struct sl_tokenizer *t = e->tokenizer;
    for (size_t at = 0, count; at < bytes; at += count) {
        *found = found_at(t, normalized, text + at, bytes - at);
        count = *found < 0 ? 1 : bytes_in_text(t, *found);
        if (*found >= 0 && !(e->literal && t->token[*found].kind == SL_TOKEN_SPECIAL)) return at;
    }
    *found = -1;
    return bytes;
}

/* Encodes TEXT, which is normalized. */
static bool encode_late(struct sl_encoder *e, const char *text, size_t bytes, struct sl_token_list *list) {
    if (!e->tokenizer->normalizes) return encode_characters(e, text, bytes, list);
    while (bytes) {
        int32_t token;
        const size_t before = next_found(e, true, text, bytes, &token);
        if (!encode_characters(e, text, before, list)) return false;
        if (token >= 0 && !sl_token_list_add(list, token)) return false;
        const size_t passed = before + (token < 0 ? 0 : bytes_in_text(e->tokenizer, token));
        text += passed;
        bytes -= passed;
    }
    return true;
}

/* ---- parts of a text ---- */

static bool encode_normalized(struct sl_encoder *e, const char *text, size_t bytes, struct sl_token_list *list) {
    if (!e->tokenizer->nfc || !may_change(text, bytes)) return encode_late(e, text, bytes, list);
    for (size_t at = 0, part; at < bytes; at += part) {
        utf8proc_uint8_t *normal = NULL;
        part = normalized_at_once(text + at, bytes - at);
        const utf8proc_ssize_t count = utf8proc_map((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)part,
                                                    &normal, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        const bool done = count >= 0 && encode_late(e, (const char *)normal, (size_t)count, list);
        free(normal);
        if (!done) return false;
    }
    return true;
}

/* Encodes text between found tokens; bytes that are not UTF-8 form words of their own. */
static bool encode_text(struct sl_encoder *e, const char *text, size_t bytes, struct sl_token_list *list) {
    while (bytes) {
        const size_t good = characters(text, bytes);
        size_t bad = good;
        if (good && !encode_normalized(e, text, good, list)) return false;
        while (bad < bytes && !character(text + bad, bytes - bad)) bad++;
        if (bad > good && !merge_word(e, text + good, bad - good, list)) return false;
        text += bad;
        bytes -= bad;
    }
    return true;
}

/* Encodes TEXT with a space before it. */
static bool encode_first(struct sl_encoder *e, const char *text, size_t bytes, struct sl_token_list *list) {
    char *spaced = malloc(bytes + 1);
    if (!spaced) return false;
    spaced[0] = ' ';
    memcpy(spaced + 1, text, bytes);
    const bool done = encode_text(e, spaced, bytes + 1, list);
    free(spaced);
    return done;
}

bool sl_encode_prefixes(const struct sl_tokenizer *t, const char *text, size_t bytes, bool behind) {
    if (!bytes || t->prefix == SL_PREFIX_NONE) return false;
    return t->prefix == SL_PREFIX_PREPEND || (*text != ' ' && (t->prefix == SL_PREFIX_ALWAYS || !behind));
}

int sl_encode(struct sl_encoder *e, const char *text, size_t bytes, int how, struct sl_token_list *list,
              struct sl_error *error) {
    const struct sl_tokenizer *t = e->tokenizer;
    if (bytes > sl_most_text)
        return sl_error_set(error, SL_BAD_INPUT, "a text of %zu bytes: at most %zu can be encoded at once", bytes,
                            sl_most_text);
    bool done = reserve(list, bytes / 4 + 1), behind = how & SL_ENCODE_BEHIND;
    e->literal = !(how & SL_ENCODE_SPECIAL);
    for (; done && bytes; behind = true) {
        int32_t token = -1;
        const size_t count = t->special.count ? next_found(e, false, text, bytes, &token) : bytes;
        const bool prefixed = sl_encode_prefixes(t, text, count, behind);
        if (count) done = prefixed ? encode_first(e, text, count, list) : encode_text(e, text, count, list);
        text += count;
        bytes -= count;
        if (!done || token < 0) continue;
        done = sl_token_list_add(list, token);
        text += t->token[token].length;
        bytes -= t->token[token].length;
    }
    return done ? SL_OK : sl_error_set(error, SL_FAILED, "out of memory for the tokens of a text");
}
