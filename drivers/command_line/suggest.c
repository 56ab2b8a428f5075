/* suggest.c - finds the nearest name: by other programs' names, by its beginning, or by edit distance. */
#include "drivers/command_line/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = SL_NEAREST_SIZE - 1, SAME_BEGINNING = 2 };

/* Names of options and schedules in other programs, and the names here. */
static const struct {
    const char *word, *name;
} conventions[] = {
    {"afab", "gpipe"},
    {"checkpoint-dir", "save"},
    {"context-length", "sequence"},
    {"d-model", "model-dimension"},
    {"data-parallel", "mesh"},
    {"dataset", "data"},
    {"dim", "model-dimension"},
    {"dtype", "precision"},
    {"eval-batches", "evaluate-batches"},
    {"eval-every", "evaluate-every"},
    {"eval-interval", "evaluate-every"},
    {"grad-accum", "accumulate"},
    {"grad-clip", "clip"},
    {"gradient-accumulation-steps", "accumulate"},
    {"gradient-clipping", "clip"},
    {"hidden", "model-dimension"},
    {"hidden-size", "model-dimension"},
    {"hidden-size", "hidden"},
    {"log-interval", "log-every"},
    {"looping", "looped-bfs"},
    {"max-grad-norm", "clip"},
    {"max-length", "length"},
    {"max-new-tokens", "length"},
    {"max-steps", "steps"},
    {"max-tokens", "length"},
    {"n-embd", "model-dimension"},
    {"n-layer", "layers-per-block"},
    {"n-layers", "layers-per-block"},
    {"n-layers", "layers"},
    {"num-experts", "experts"},
    {"num-layers", "layers-per-block"},
    {"num-micro-batches", "microbatches"},
    {"num-workers", "mesh"},
    {"out", "output"},
    {"out-dir", "save"},
    {"output-dir", "save"},
    {"pipeline-parallel", "mesh"},
    {"plain", "gpipe"},
    {"save-interval", "save-every"},
    {"seq-len", "sequence"},
    {"seq-length", "sequence"},
    {"sequence-length", "sequence"},
    {"sliding-window", "window"},
    {"stages", "loops"},
    {"tensor-parallel", "mesh"},
    {"top-p", "sample-top-p"},
    {"vocabulary-size", "vocab-size"},
    {"workers", "mesh"},
    {"world-size", "mesh"},
    {"zero-bubble", "zbv"},
};
enum { CONVENTIONS = sizeof conventions / sizeof *conventions };

static char folded(char letter) { return letter == '_' ? '-' : (char)tolower((unsigned char)letter); }

/* Whether the first LENGTH letters of A and B are the same. */
static bool alike(const char *a, const char *b, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (folded(a[i]) != folded(b[i])) return false;
    return true;
}

static int least(int a, int b) { return a < b ? a : b; }

/* Counts the letters to insert, delete, replace, or exchange with their neighbour to turn A into B; at most LONGEST
 * letters each. The table (Damerau 1964; Wagner and Fischer 1974) has a row per beginning of A; three rows are
 * needed at a time. */
static int edit_distance(const char *a, size_t rows, const char *b, size_t columns) {
    int table[3][LONGEST + 1];
    for (size_t j = 0; j <= columns; j++) table[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        const int *const above = table[(i - 1) % 3], *const before = table[(i + 1) % 3];
        int *const row = table[i % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            const bool same = folded(a[i - 1]) == folded(b[j - 1]);
            row[j] = least(above[j - 1] + !same, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return table[rows % 3][columns];
}

static bool is_convention(const struct sl_nearest *nearest, const char *name, size_t length) {
    for (int i = 0; i < CONVENTIONS; i++) {
        const char *const word = conventions[i].word, *const own = conventions[i].name;
        if (strlen(word) == nearest->length && alike(word, nearest->word, nearest->length) && strlen(own) == length &&
            !memcmp(own, name, length))
            return true;
    }
    return false;
}

static int distance_of(const struct sl_nearest *nearest, const char *name, size_t length) {
    const size_t shorter = length < nearest->length ? length : nearest->length;
    if (is_convention(nearest, name, length)) return 0;
    const int distance = edit_distance(nearest->word, nearest->length, name, length);
    return shorter > 1 && alike(nearest->word, name, shorter) ? least(distance, SAME_BEGINNING) : distance;
}

struct sl_nearest sl_nearest_to(const char *word, size_t length) {
    /* Near: fewer wrong letters than the word has, and at most a third of them plus one. */
    const int near = least((int)(length < LONGEST ? length : LONGEST) - 1, (int)length / 3 + 1);
    return (struct sl_nearest){.word = word, .length = length, .distance = length <= LONGEST ? near + 1 : 0};
}

void sl_nearest_try(struct sl_nearest *nearest, const char *name, size_t length) {
    if (nearest->length > LONGEST || length > LONGEST) return;
    const int distance = distance_of(nearest, name, length);
    if (distance >= nearest->distance) return;
    nearest->distance = distance;
    snprintf(nearest->name, sizeof nearest->name, "%.*s", (int)length, name);
}

int sl_suggest(const struct sl_nearest *nearest, const char *before, struct sl_error *error) {
    char words[SL_NEAREST_SIZE + 32];
    const size_t used = strlen(error->message);
    const int length = snprintf(words, sizeof words, "; did you mean %s%s?", before, nearest->name);
    if (*nearest->name && used + (size_t)length < sizeof error->message) strcpy(error->message + used, words);
    return error->status;
}
