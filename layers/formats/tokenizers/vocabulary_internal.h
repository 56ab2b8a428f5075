/* vocabulary_internal.h - a tokenizer's vocabulary: the bytes of its tokens, and the merging pairs of tokens, with
 * their ranks. Readers of files (formats_internal.h) fill it in. */
#ifndef SL_LAYERS_FORMATS_TOKENIZERS_VOCABULARY_INTERNAL_H
#define SL_LAYERS_FORMATS_TOKENIZERS_VOCABULARY_INTERNAL_H

#include "layers/formats/tokenizers/patterns_internal.h"
#include "layers/formats/tokenizers/tokenizer.h"

enum {
    SL_MOST_TOKENS = 1 << 22,
    SL_LONGEST_TOKEN = 1024, /* bytes */
};

enum sl_token_kind {
    SL_TOKEN_NONE,    /* the number has no token */
    SL_TOKEN_TEXT,    /* made of text by merging */
    SL_TOKEN_BYTE,    /* SentencePiece: for a byte of a character without a token */
    SL_TOKEN_SPECIAL, /* found in a text before merging, unless the text is literal; never merges */
    SL_TOKEN_ADDED,   /* as SPECIAL, also in literal text */
    SL_TOKEN_UNUSED,  /* has bytes, but is never produced by encoding */
};

struct sl_token {
    uint32_t start, length; /* of its bytes in `bytes` */
    enum sl_token_kind kind;
    bool normalized; /* of added and special tokens: found in the text after it is normalized, not before */
};

/* Places at which encoding inserts a space before text, and decoding removes it; only for pieces. */
enum sl_prefix {
    SL_PREFIX_NONE,
    SL_PREFIX_FIRST,  /* before the text, unless it begins with a space or a special token */
    SL_PREFIX_ALWAYS, /* before each part between special or added tokens, unless it begins with a space */
    SL_PREFIX_PREPEND /* before each part */
};

/* LEFT and RIGHT merge to TOKEN; the pair with the lowest rank in a word merges first. */
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
    bool pieces; /* SentencePiece's kind: characters merge, characters without a token become bytes; if false, bytes
                    merge */
    enum sl_prefix prefix;
    bool nfc;
    bool whole; /* a word with a token of its own is not merged */
    bool cuts;  /* pieces: no token has a space after another character, so words end before spaces */
    int32_t begin, end;
    int32_t unknown;                  /* token for bytes without a token; -1: there is none */
    const struct sl_pattern *pattern; /* NULL: pieces have none */
    struct sl_words *words;           /* the pattern, compiled */
    int count;                        /* of numbers; some may have no token */
    int capacity;
    struct sl_token *token;
    char *bytes;
    size_t used, room;
    struct sl_token_table text, special; /* special: added ones, too */
    bool length[SL_LONGEST_TOKEN + 1];   /* whether a special token has this length */
    bool first[256];                     /* whether a special token begins with this byte */
    int longest;                         /* length of the longest special token */
    bool normalizes;                     /* whether some of them are found in normalized text */
    int32_t byte[256];                   /* token of each byte */
    struct sl_merge *merge;              /* a hash table */
    size_t merges, slots;                /* slots: a power of two */
};

/* Adds TOKEN, whose number must be new. SL_BAD_INPUT if the number is too large or taken, or if there are no bytes or
 * too many; PATH is for messages. */
int sl_vocabulary_add(struct sl_tokenizer *tokenizer, int64_t token, const char *bytes, size_t count,
                      enum sl_token_kind kind, const char *path, struct sl_error *error);
/* The token with these bytes: a text token if KIND is SL_TOKEN_TEXT, a special or added one if SL_TOKEN_SPECIAL; -1:
 * none. */
int32_t sl_vocabulary_find(const struct sl_tokenizer *tokenizer, enum sl_token_kind kind, const char *bytes,
                           size_t count);
/* Adds the merge of LEFT and RIGHT, in this order, to the token with the bytes of both. SL_BAD_INPUT if there is none.
 * An existing pair keeps its rank. */
int sl_vocabulary_merge(struct sl_tokenizer *tokenizer, int32_t left, int32_t right, uint32_t rank, const char *path,
                        struct sl_error *error);
/* Adds all merges of two text tokens to a text token with the bytes of both; RANK [tokens] is the rank of the
 * result. */
int sl_vocabulary_merge_all(struct sl_tokenizer *tokenizer, const uint32_t *rank, const char *path,
                            struct sl_error *error);
/* The merge of LEFT and RIGHT; NULL: there is none. */
const struct sl_merge *sl_vocabulary_pair(const struct sl_tokenizer *tokenizer, int32_t left, int32_t right);
/* Finishes the vocabulary: finds the tokens of bytes, and compiles the pattern. SL_BAD_INPUT if a byte has no token and
 * there is no unknown token. */
int sl_vocabulary_finish(struct sl_tokenizer *tokenizer, const char *path, struct sl_error *error);

/* Whether TOKEN is special or added, and so found in a text before merging. */
static inline bool sl_vocabulary_is_found(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->token[token].kind == SL_TOKEN_SPECIAL || tokenizer->token[token].kind == SL_TOKEN_ADDED;
}
/* Number of spaces of TOKEN before it in a text: normalizing puts one before it, as before a text. */
static inline size_t sl_vocabulary_blank(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->token[token].normalized && tokenizer->prefix == SL_PREFIX_PREPEND;
}

static inline const char *sl_vocabulary_bytes(const struct sl_tokenizer *tokenizer, int32_t token) {
    return tokenizer->bytes + tokenizer->token[token].start;
}

#endif
