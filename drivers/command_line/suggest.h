/* suggest.h - suggests a name for an unknown word: the most similar name among the allowed ones.
 *
 *     struct sl_nearest nearest = sl_nearest_to("looping-bfs", 11);
 *     while ((name = next())) sl_nearest_try(&nearest, name, strlen(name));
 *     sl_suggest(&nearest, "", error);
 *
 * Capitals and underscores count as small letters and hyphens. */
#ifndef SL_DRIVERS_COMMAND_LINE_SUGGEST_H
#define SL_DRIVERS_COMMAND_LINE_SUGGEST_H

#include <stddef.h>

#include "spmd/base/error.h"

enum { SL_NEAREST_SIZE = 40 };

struct sl_nearest {
    const char *word; /* as the user wrote it */
    size_t length;    /* of word */
    int distance;     /* of `name`; before a name is found, the smallest distance that is not near */
    char name[SL_NEAREST_SIZE];
};

/* Starts a search; no name is near so far. WORD of LENGTH bytes stays the caller's. */
struct sl_nearest sl_nearest_to(const char *word, size_t length);
/* Compares another allowed name. If several are equally near, the first one stays. */
void sl_nearest_try(struct sl_nearest *nearest, const char *name, size_t length);
/* Adds "; did you mean BEFORE NAME?" to ERROR's message, without the blank, if a name is near. Returns ERROR's
 * status. */
int sl_suggest(const struct sl_nearest *nearest, const char *before, struct sl_error *error);

#endif
