/* samples.c - a growing list of sequences, and batches of them. */
#include "drivers/tools/text/samples.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(struct sl_samples *samples) {
    if ((size_t)samples->count < samples->room) return true;
    const size_t room = samples->room ? 2 * samples->room : 64;
    size_t *end = realloc(samples->end, room * sizeof *end);
    if (!end) return false;
    samples->end = end;
    samples->room = room;
    return true;
}

static size_t begin_of(const struct sl_samples *samples, int64_t i) { return i ? samples->end[i - 1] : 0; }

static bool add_label(struct sl_samples *samples, const int32_t *token, bool scored, size_t place) {
    samples->scored += scored;
    return sl_token_list_add(&samples->inputs, token[0]) &&
           sl_token_list_add(&samples->labels, scored ? token[1] : -1) &&
           sl_token_list_add(&samples->places, (int32_t)place);
}

/* Ends the sample, with INPUTS inputs; fails if there was no ROOM for them. */
static int end_sample(struct sl_samples *samples, bool room, size_t inputs, struct sl_error *error) {
    if (!room) return sl_error_set(error, SL_FAILED, "no memory for samples");
    samples->longest = (int)inputs > samples->longest ? (int)inputs : samples->longest;
    samples->end[samples->count++] = samples->labels.count;
    return SL_OK;
}

int sl_samples_add(struct sl_samples *samples, const int32_t *token, size_t count, size_t from, int sequence,
                   struct sl_error *error) {
    const size_t most = (size_t)sequence + 1, first = count > most ? count - most : 0;
    bool room = make_room(samples);
    for (size_t i = first; room && i + 1 < count; i++) room = add_label(samples, token + i, i + 1 >= from, i - first);
    return end_sample(samples, room, count - first - 1, error);
}

int sl_samples_add_marked(struct sl_samples *samples, const int32_t *token, const int32_t *mark, size_t count,
                          struct sl_error *error) {
    bool room = make_room(samples);
    for (size_t i = 0; room && i + 1 < count; i++) room = add_label(samples, token + i, mark[i + 1], i);
    return end_sample(samples, room, count - 1, error);
}

int64_t sl_samples_pack(struct sl_samples *samples, int64_t first, int64_t end, int sequence) {
    int64_t packed = first; /* end of the packed samples */
    for (int64_t i = first; i < end; i++) {
        const size_t stop = samples->end[i];
        const bool fits = packed > first && stop - begin_of(samples, packed - 1) <= (size_t)sequence;
        if (!fits) packed++;
        samples->end[packed - 1] = stop;
        const int inputs = (int)(stop - begin_of(samples, packed - 1));
        samples->longest = inputs > samples->longest ? inputs : samples->longest;
    }
    if (end > first) {
        memmove(samples->end + packed, samples->end + end, (size_t)(samples->count - end) * sizeof *samples->end);
        samples->count -= end - packed;
    }
    return packed;
}

int64_t sl_samples_scored(const struct sl_samples *samples, int64_t i) {
    int64_t scored = 0;
    for (size_t at = begin_of(samples, i); at < samples->end[i]; at++) scored += samples->labels.token[at] >= 0;
    return scored;
}

static void fetch(const struct sl_samples *samples, int64_t i, int sequence, int32_t *inputs, int32_t *labels,
                  int32_t *places) {
    const size_t begin = i < samples->count ? begin_of(samples, i) : 0;
    const size_t count = i < samples->count ? samples->end[i] - begin : 0;
    if (count) memcpy(inputs, samples->inputs.token + begin, count * sizeof *inputs);
    if (count) memcpy(labels, samples->labels.token + begin, count * sizeof *labels);
    for (size_t t = count; t < (size_t)sequence; t++) inputs[t] = 0, labels[t] = -1;
    if (places && count) memcpy(places, samples->places.token + begin, count * sizeof *places);
    for (size_t t = count; places && t < (size_t)sequence; t++) places[t] = 0;
}

void sl_samples_fetch(const struct sl_samples *samples, int64_t first, int64_t rows, int sequence, int32_t *inputs,
                      int32_t *labels, int32_t *places) {
    for (int64_t r = 0; r < rows; r++)
        fetch(samples, first + r, sequence, inputs + r * sequence, labels + r * sequence,
              places ? places + r * sequence : NULL);
}

void sl_samples_free(struct sl_samples *samples) {
    free(samples->end);
    sl_token_list_free(&samples->inputs);
    sl_token_list_free(&samples->labels);
    sl_token_list_free(&samples->places);
    *samples = (struct sl_samples){0};
}
