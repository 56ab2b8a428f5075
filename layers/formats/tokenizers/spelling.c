/* spelling.c - spelling of tokens' bytes in files. */
#include <string.h>
#include <utf8proc.h>

#include "layers/formats/tokenizers/formats_internal.h"

static const char mark[] = "\xe2\x96\x81"; /* U+2581 */

/* GPT-2's characters for bytes: printable bytes are themselves, all others are the characters from U+0100 on. */
static bool stands_for_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static int byte_of(int32_t point) {
    if (point < 0x100) return stands_for_itself(point) ? point : -1;
    for (int byte = 0, other = 0x100; byte < 0x100; byte++)
        if (!stands_for_itself(byte) && other++ == point) return byte;
    return -1;
}

int sl_unspell_bytes(const char *text, size_t count, char *bytes) {
    int written = 0;
    for (size_t at = 0; at < count;) {
        int32_t point;
        const utf8proc_ssize_t read =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(count - at), &point);
        const int byte = read > 0 ? byte_of(point) : -1;
        if (byte < 0 || written == SL_LONGEST_TOKEN) return -1;
        bytes[written++] = (char)byte;
        at += (size_t)read;
    }
    return written;
}

size_t sl_spell_bytes(const char *bytes, size_t count, char *text) {
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        const int byte = (unsigned char)bytes[i];
        int32_t point = 0x100;
        for (int other = 0; other < byte; other++) point += !stands_for_itself(other);
        if (stands_for_itself(byte)) point = byte;
        written += (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)text + written);
    }
    return written;
}

int sl_unspell_spaces(const char *text, size_t count, char *bytes) {
    int written = 0;
    for (size_t at = 0; at < count; written++) {
        if (written == SL_LONGEST_TOKEN) return -1;
        const bool space = count - at >= 3 && !memcmp(text + at, mark, 3);
        bytes[written] = space ? ' ' : text[at];
        at += space ? 3 : 1;
    }
    return written;
}

size_t sl_spell_spaces(const char *bytes, size_t count, char *text) {
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        const bool space = bytes[i] == ' ';
        memcpy(text + written, space ? mark : &bytes[i], space ? 3 : 1);
        written += space ? 3 : 1;
    }
    return written;
}

static const char digits[] = "0123456789ABCDEF";

size_t sl_spell_byte_piece(int byte, char text[6]) {
    memcpy(text, (char[]){'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'}, 6);
    return 6;
}

int sl_unspell_byte_piece(const char *text, size_t count) {
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const char *high = text[3] ? strchr(digits, text[3]) : NULL, *low = text[4] ? strchr(digits, text[4]) : NULL;
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

uint32_t sl_rank_of_score(float score) {
    uint32_t bits;
    if (score == 0) score = 0; /* without a sign */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7fffffffu - bits; /* the bits of negative numbers grow as the numbers fall */
}

static int32_t spelled(const struct sl_tokenizer *t, const char *text, size_t count) {
    char bytes[SL_LONGEST_TOKEN];
    const int length = t->pieces ? sl_unspell_spaces(text, count, bytes) : sl_unspell_bytes(text, count, bytes);
    return length > 0 ? sl_vocabulary_find(t, SL_TOKEN_TEXT, bytes, (size_t)length) : -1;
}

int sl_add_spelled_merge(struct sl_tokenizer *t, const char *left, size_t left_count, const char *right,
                         size_t right_count, uint32_t rank, const char *path, struct sl_error *error) {
    const int32_t first = spelled(t, left, left_count), second = spelled(t, right, right_count);
    if (first < 0 || second < 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: merge %u is of texts that are no tokens of the vocabulary", path,
                            rank);
    return sl_vocabulary_merge(t, first, second, rank, path, error);
}
