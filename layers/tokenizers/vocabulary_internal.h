/* vocabulary_internal.h - what a tokenizer knows: its tokens' bytes, which pairs of tokens merge, and in which order.
 * The readers of files (formats_internal.h) fill it in. */
#ifndef SL_LAYERS_TOKENIZERS_VOCABULARY_INTERNAL_H
#define SL_LAYERS_TOKENIZERS_VOCABULARY_INTERNAL_H

#include "layers/tokenizers/patterns_internal.h"
#include "layers/tokenizers/tokenizer.h"

enum {
    SL_MOST_TOKENS = 1 << 22,
    SL_LONGEST_TOKEN = 1024, /* bytes */
};

enum sl_token_kind {
    SL_TOKEN_NONE,    /* the number has no token */
    SL_TOKEN_TEXT,    /* made of text by merging */
    SL_TOKEN_BYTE,    /* SentencePiece: stands for a byte of a character that has no token */
    SL_TOKEN_SPECIAL, /* found in a text as it is written, before anything else, unless the text is literal; never
                         merges */
    SL_TOKEN_ADDED,   /* the same, in literal text, too */
    SL_TOKEN_UNUSED,  /* has bytes, but no text becomes one */
};

struct sl_token {
    uint32_t start, length; /* of its bytes in `bytes` */
    enum sl_token_kind kind;
    bool normalized; /* of added and special ones: it is found in the text once that is normalized, not before */
};

/* Where a space is put before a text, which decoding takes away. Pieces alone have one. */
enum sl_prefix {
    SL_PREFIX_NONE,
    SL_PREFIX_FIRST,  /* before the text, unless it begins with a space or with a special token */
    SL_PREFIX_ALWAYS, /* before each part between special or added tokens, unless it begins with a space */
    SL_PREFIX_PREPEND /* before each part */
};

/* LEFT and RIGHT become TOKEN; of all pairs in a word, the one of the least rank first. */
struct sl_merge {
    int32_t left, right, token; /* left -1: the slot is free */
    uint32_t rank;
};

/* A hash table of tokens by their bytes: a token + 1, or 0. */
struct sl_token_table {
    int32_t *slot;
    size_t slots, count; /* slots: a power of two */
};

struct sl_tokenizer {
    bool pieces; /* SentencePiece's kind: characters merge, those without a token become bytes; otherwise bytes merge */
    enum sl_prefix prefix;
    bool nfc;
    bool whole; /* a word that is a token is not merged from its bytes */
    bool cuts;  /* pieces: no token has a space behind another character, so words end before spaces */
    int32_t begin, end;
    int32_t unknown;                  /* stands for bytes that have no token; -1: there is none */
    const struct sl_pattern *pattern; /* NULL: pieces have none */
    struct sl_words *words;           /* the pattern, compiled */
    int count;                        /* of numbers: some may have no token */
    int capacity;
    struct sl_token *token;
    char *bytes;
    size_t used, room;
    struct sl_token_table text, special; /* special: those that are added, too */
    bool length[SL_LONGEST_TOKEN + 1];   /* whether a special token is so long */
    bool first[256];                     /* whether a special token begins with this byte */
    int longest;                         /* of the special ones */
    bool normalizes;                     /* some of them are found in normalized text */
    int32_t byte[256];                   /* the token of each byte */
    struct sl_merge *merge;              /* a hash table */
    size_t merges, slots;                /* slots: a power of two */
};

/* Adds TOKEN, whose number must be new. SL_BAD_INPUT where the number or the bytes are too many, or the number is
 * taken; PATH is for messages. */
int sl_vocabulary_add(struct sl_tokenizer *tokenizer, int64_t token, const char *bytes, size_t count,
                      enum sl_token_kind kind, const char *path, struct sl_error *error);
/* The token of KIND, text, or special or added, that has these bytes; -1: none. */
int32_t sl_vocabulary_find(const struct sl_tokenizer *tokenizer, enum sl_token_kind kind, const char *bytes,
                           size_t count);
/* LEFT and RIGHT, in this order, make the token that has the bytes of both. SL_BAD_INPUT where there is none. A pair
 * that is there keeps its rank. */
int sl_vocabulary_merge(struct sl_tokenizer *tokenizer, int32_t left, int32_t right, uint32_t rank, const char *path,
                        struct sl_error *error);
/* Each text token has a rank, by its number, and is made of any two that have its bytes. */
int sl_vocabulary_merge_all(struct sl_tokenizer *tokenizer, const uint32_t *rank, const char *path,
                            struct sl_error *error);
/* What merges LEFT and RIGHT; NULL: nothing does. */
const struct sl_merge *sl_vocabulary_pair(const struct sl_tokenizer *tokenizer, int32_t left, int32_t right);
/* The last call: finds the bytes' tokens, and compiles the pattern. SL_BAD_INPUT where a byte has
 * none, and none is for what is unknown. */
int sl_vocabulary_finish(struct sl_tokenizer *tokenizer, const char *path, struct sl_error *error);

/* Whether TOKEN is found as it is written. */
static inline bool sl_vocabulary_is_found(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->token[token].kind == SL_TOKEN_SPECIAL || tokenizer->token[token].kind == SL_TOKEN_ADDED;
}
/* Spaces before TOKEN in a text that belong to it: normalizing puts one before it, as before a text. */
static inline size_t sl_vocabulary_blank(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->token[token].normalized && tokenizer->prefix == SL_PREFIX_PREPEND;
}

static inline const char *sl_vocabulary_bytes(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->bytes + tokenizer->token[token].start;
}

#endif
