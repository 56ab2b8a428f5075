/* sentencepiece.c - reads a SentencePiece model: a Protocol Buffers message, of which only a few fields are used.
 *
 * Source: sentencepiece_model.proto of SentencePiece, for the numbers of fields. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/formats/tokenizers/formats_internal.h"
#include "spmd/base/memory.h"

/* ---- Protocol Buffers ---- */

struct message {
    const uint8_t *at, *end;
};

struct field {
    int number, type;
    uint64_t value;         /* of types 0 (varint), 1 (8 bytes) and 5 (4 bytes) */
    struct message message; /* of type 2 */
};

static bool read_varint(struct message *m, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        *value |= (uint64_t)(*m->at & 0x7f) << shift;
        if (!(*m->at++ & 0x80)) return true;
    }
    return false;
}

static bool read_fixed(struct message *m, size_t bytes, uint64_t *value) {
    if ((size_t)(m->end - m->at) < bytes) return false;
    *value = 0;
    memcpy(value, m->at, bytes);
    m->at += bytes;
    return true;
}

/* Reads the next field. False at the end, or if the message is malformed: then `at` is not `end`. */
static bool next_field(struct message *m, struct field *field) {
    const uint8_t *before = m->at;
    uint64_t key, length;
    bool good = m->at < m->end && read_varint(m, &key);
    if (good) {
        *field = (struct field){.number = key >> 3 < 1 << 20 ? (int)(key >> 3) : -1, .type = (int)(key & 7)};
        switch (field->type) {
        case 0:
            good = read_varint(m, &field->value);
            break;
        case 1:
            good = read_fixed(m, 8, &field->value);
            break;
        case 2:
            good = read_varint(m, &length) && length <= (uint64_t)(m->end - m->at);
            if (!good) break;
            field->message = (struct message){m->at, m->at + length};
            m->at += length;
            break;
        case 5:
            good = read_fixed(m, 4, &field->value);
            break;
        default:
            good = false;
        }
    }
    if (!good && m->at == m->end && before != m->end) m->at = before; /* cut short */
    return good;
}

static bool ended(const struct message *m) { return m->at == m->end; }

/* ---- the model ---- */

enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3 };                          /* of ModelProto */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, BYTE = 6 }; /* types of pieces */
enum { UNIGRAM = 1, BPE = 2 };                                             /* types of models */

struct model {
    struct sl_tokenizer *tokenizer;
    const char *path;
    uint32_t *rank; /* of each token */
    int tokens, capacity;
    uint64_t type, byte_fallback;
    int64_t begin, end;
    uint64_t prefix, extra_spaces, escapes;
    size_t map; /* bytes of a table of characters to replace */
    struct sl_error *error;
};

static int malformed(const struct model *m) {
    return sl_error_set(m->error, SL_BAD_INPUT, "%s: a malformed or truncated model of SentencePiece", m->path);
}

static bool note_rank(struct model *m, uint32_t rank) {
    uint32_t *wider = sl_grow(m->rank, m->tokens, &m->capacity, 1024, sizeof *wider);
    if (!wider) return false;
    m->rank = wider;
    m->rank[m->tokens++] = rank;
    return true;
}

static int add_piece(struct model *m, const char *text, size_t count, int type) {
    struct sl_tokenizer *t = m->tokenizer;
    const int byte = type == BYTE ? sl_unspell_byte_piece(text, count) : -1;
    char bytes[SL_LONGEST_TOKEN];
    if (type == BYTE && byte < 0)
        return sl_error_set(m->error, SL_BAD_INPUT, "%s: piece %d is of the type BYTE, and not <0x00> to <0xFF>",
                            m->path, m->tokens);
    if (byte >= 0) {
        t->byte[byte] = m->tokens;
        return sl_vocabulary_add(t, m->tokens, &(char){(char)byte}, 1, SL_TOKEN_BYTE, m->path, m->error);
    }
    const int length = sl_unspell_spaces(text, count, bytes);
    return sl_vocabulary_add(t, m->tokens, bytes, length < 0 ? SL_LONGEST_TOKEN + 1 : (size_t)length,
                             type == CONTROL        ? SL_TOKEN_SPECIAL
                             : type == USER_DEFINED ? SL_TOKEN_ADDED
                             : type == NORMAL       ? SL_TOKEN_TEXT
                                                    : SL_TOKEN_UNUSED,
                             m->path, m->error);
}

static int read_piece(struct model *m, struct message piece) {
    struct message text = {0};
    struct field field;
    float score = 0;
    int type = NORMAL;
    while (next_field(&piece, &field)) {
        if (field.number == 1 && field.type == 2) text = field.message;
        if (field.number == 2 && field.type == 5) memcpy(&score, &field.value, sizeof score);
        if (field.number == 3 && field.type == 0) type = (int)(field.value & 0xff);
    }
    if (!ended(&piece) || !isfinite(score)) return malformed(m);
    SL_TRY(add_piece(m, (const char *)text.at, (size_t)(text.end - text.at), type));
    return note_rank(m, sl_rank_of_score(score)) ? SL_OK
                                                 : sl_error_set(m->error, SL_FAILED, "%s: out of memory", m->path);
}

static int read_trainer(struct model *m, struct message trainer) {
    struct field field;
    while (next_field(&trainer, &field)) {
        if (field.type != 0) continue;
        if (field.number == 3) m->type = field.value;
        if (field.number == 35) m->byte_fallback = field.value;
        if (field.number == 41) m->begin = (int64_t)field.value;
        if (field.number == 42) m->end = (int64_t)field.value;
    }
    return ended(&trainer) ? SL_OK : malformed(m);
}

static int read_normalizer(struct model *m, struct message normalizer) {
    struct field field;
    while (next_field(&normalizer, &field)) {
        if (field.number == 2 && field.type == 2) m->map = (size_t)(field.message.end - field.message.at);
        if (field.type != 0) continue;
        if (field.number == 3) m->prefix = field.value;
        if (field.number == 4) m->extra_spaces = field.value;
        if (field.number == 5) m->escapes = field.value;
    }
    return ended(&normalizer) ? SL_OK : malformed(m);
}

static int check_model(const struct model *m) {
    const char *wrong = m->type != BPE      ? "its model is not BPE"
                        : !m->byte_fallback ? "it has no tokens for bytes"
                        : m->map            ? "it replaces characters by others"
                        : m->extra_spaces   ? "it removes spaces"
                        : !m->escapes       ? "it keeps spaces as they are"
                                            : NULL;
    return wrong ? sl_error_set(m->error, SL_BAD_INPUT, "%s: such a model of SentencePiece is not supported: %s",
                                m->path, wrong)
                 : SL_OK;
}

static int read_model(struct model *m, struct message message) {
    struct field field;
    while (next_field(&message, &field)) {
        if (field.type != 2) continue;
        if (field.number == PIECES) SL_TRY(read_piece(m, field.message));
        if (field.number == TRAINER) SL_TRY(read_trainer(m, field.message));
        if (field.number == NORMALIZER) SL_TRY(read_normalizer(m, field.message));
    }
    if (!ended(&message) || !m->tokens) return malformed(m);
    SL_TRY(check_model(m));
    return sl_vocabulary_merge_all(m->tokenizer, m->rank, m->path, m->error);
}

int sl_read_sentencepiece(struct sl_tokenizer *t, const struct sl_contents *contents, const char *path,
                          struct sl_error *error) {
    const uint8_t *bytes = contents->bytes;
    struct model m = {.tokenizer = t,
                      .path = path,
                      .type = UNIGRAM,
                      .begin = 1,
                      .end = 2,
                      .prefix = 1,
                      .escapes = 1,
                      .extra_spaces = 1,
                      .error = error};
    if (t->pattern)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a model of SentencePiece divides text itself: name no pattern",
                            path);
    t->pieces = true;
    const int status = read_model(&m, (struct message){bytes, bytes + contents->count});
    free(m.rank);
    if (status) return status;
    t->prefix = m.prefix ? SL_PREFIX_PREPEND : SL_PREFIX_NONE;
    t->begin = m.begin >= 0 && m.begin < t->count ? (int32_t)m.begin : -1;
    t->end = m.end >= 0 && m.end < t->count ? (int32_t)m.end : -1;
    return SL_OK;
}
