/* sampling.c - chooses the next token from logits, and prints bytes as readable text. */
#include "layers/models/sampling.h"

#include <math.h>
#include <stdlib.h>

int sl_sampling_check(const struct sl_sampling *sampling, struct sl_error *error) {
    if (!(sampling->temperature >= 0 && sampling->temperature < HUGE_VAL))
        return sl_error_set(error, SL_BAD_INPUT, "temperature %g: at least 0 is possible", sampling->temperature);
    if (sampling->top_k < 0)
        return sl_error_set(error, SL_BAD_INPUT, "top-k %d: at least 1 is possible, or 0 for all", sampling->top_k);
    if (!(sampling->top_p > 0 && sampling->top_p <= 1))
        return sl_error_set(error, SL_BAD_INPUT, "top-p %g: more than 0 and at most 1 is possible", sampling->top_p);
    return SL_OK;
}

bool sl_sampling_room_open(struct sl_sampling_room *room, int classes) {
    room->weight = malloc((size_t)classes * sizeof *room->weight);
    room->heap = malloc((size_t)classes * sizeof *room->heap);
    if (room->weight && room->heap) return true;
    sl_sampling_room_close(room);
    return false;
}

void sl_sampling_room_close(struct sl_sampling_room *room) {
    free(room->weight);
    free(room->heap);
    *room = (struct sl_sampling_room){0};
}

/* ---- the order of tokens: by logits, equal ones by number ---- */

static bool comes_before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Moves heap[at] down until it comes before all entries below it. */
static void sift_down(int32_t *heap, int count, int at, const float *logits) {
    const int32_t token = heap[at];
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_before(logits, heap[child + 1], heap[child])) child++;
        if (!comes_before(logits, heap[child], token)) break;
        heap[at] = heap[child];
    }
    heap[at] = token;
}

static void make_heap(int32_t *heap, int count, const float *logits) {
    for (int i = 0; i < count; i++) heap[i] = i;
    for (int i = count / 2 - 1; i >= 0; i--) sift_down(heap, count, i, logits);
}

/* Removes the first of COUNT tokens from the heap; it is then at heap[count - 1]. */
static int32_t pop(int32_t *heap, int count, const float *logits) {
    const int32_t first = heap[0];
    heap[0] = heap[count - 1];
    sift_down(heap, count - 1, 0, logits);
    heap[count - 1] = first;
    return first;
}

/* ---- choosing ---- */

/* Index of the largest logit; -1 if there is a NaN, or all are -infinity. */
static int32_t find_largest(int classes, const float *logits) {
    int32_t largest = 0;
    for (int32_t i = 0; i < classes; i++) {
        if (isnan(logits[i])) return -1;
        if (logits[i] > logits[largest]) largest = i;
    }
    return classes > 0 && logits[largest] > -INFINITY ? largest : -1;
}

/* Probabilities up to a factor: the largest has weight 1. */
static void weigh(int classes, const float *logits, float largest, double temperature, double *weight) {
    for (int i = 0; i < classes; i++)
        weight[i] = logits[i] == largest ? 1.0 : exp(((double)logits[i] - (double)largest) / temperature);
}

static double sum_of(int classes, const double *weight) {
    double sum = 0;
    for (int i = 0; i < classes; i++) sum += weight[i];
    return sum;
}

/* The last token, in the order of logits, that top-k and top-p keep: it and all before it are kept. */
static int32_t find_last_kept(const struct sl_sampling *sampling, int classes, const float *logits,
                              struct sl_sampling_room *room) {
    make_heap(room->heap, classes, logits);
    const bool some = sampling->top_k > 0 && sampling->top_k < classes;
    const int most = some ? sampling->top_k : classes;
    double total = some ? 0 : sum_of(classes, room->weight);
    for (int i = 0; some && i < most; i++) total += room->weight[pop(room->heap, classes - i, logits)];
    if (sampling->top_p >= 1) return room->heap[classes - most];

    double sum = 0;
    int32_t token = 0;
    for (int i = 0; i < most; i++) { /* tokens popped by top-k are at the end already */
        token = some ? room->heap[classes - 1 - i] : pop(room->heap, classes - i, logits);
        sum += room->weight[token];
        if (sum >= sampling->top_p * total) break;
    }
    return token;
}

int32_t sl_sample_token(const struct sl_sampling *sampling, int classes, const float *logits, struct sl_key key,
                        struct sl_sampling_room *room) {
    const int32_t largest = find_largest(classes, logits);
    if (largest < 0 || sampling->temperature == 0) return largest;
    double *weight = room->weight;
    weigh(classes, logits, logits[largest], sampling->temperature, weight);
    if (sampling->top_p < 1 || (sampling->top_k > 0 && sampling->top_k < classes)) {
        const int32_t last = find_last_kept(sampling, classes, logits, room);
        for (int32_t i = 0; i < classes; i++)
            if (comes_before(logits, last, i)) weight[i] = 0;
    }
    /* place is below the sum, which the loop's additions reach bit for bit, so a token is found. */
    const double place = (double)sl_uniform_of_word(sl_random_word(key, 1, 0)) * sum_of(classes, weight);
    double sum = 0;
    for (int32_t i = 0; i < classes; i++) {
        sum += weight[i];
        if (sum > place) return i;
    }
    return largest;
}

/* ---- bytes ---- */

/* Length of the UTF-8 character at the start of BYTES, and its *CODE; 0 if there is none. */
static size_t character_length(const uint8_t *bytes, size_t count, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* an overlong form is not UTF-8 */
    const uint8_t lead = bytes[0];
    *code = lead;
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc0 || lead >= 0xf8 || length > count) return 0;
    *code = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (bytes[i] & 0x3fu);
    }
    const bool surrogate = *code >= 0xd800 && *code < 0xe000;
    return *code < least[length] || *code > 0x10ffff || surrogate ? 0 : length;
}

/* Control characters, including those from 0x80 on, are not printable: terminals obey them. */
static bool is_printable(uint32_t code) {
    return code == '\n' || code == '\t' || (code >= ' ' && (code < 0x7f || code >= 0xa0));
}

void sl_print_bytes(FILE *stream, const uint8_t *bytes, size_t count) {
    while (count > 0) {
        uint32_t code;
        size_t length = character_length(bytes, count, &code);
        if (length > 0 && is_printable(code)) {
            fwrite(bytes, 1, length, stream);
        } else {
            fprintf(stream, "\\x%02x", bytes[0]);
            length = 1;
        }
        bytes += length;
        count -= length;
    }
}

size_t sl_utf8_of_bytes(const uint8_t *bytes, size_t count, char *text) {
    static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
    char *next = text;
    while (count > 0) {
        uint32_t code;
        const size_t length = character_length(bytes, count, &code), taken = length ? length : 1;
        const size_t written = length ? length : sizeof replacement - 1;
        memcpy(next, length ? (const char *)bytes : replacement, written);
        next += written;
        bytes += taken;
        count -= taken;
    }
    return (size_t)(next - text);
}
