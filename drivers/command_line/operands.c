/* operands.c - arguments of a command line other than options. */
#include "drivers/command_line/operands.h"

#include <stdlib.h>

int sl_operands_take(struct sl_operands *operands, const char *word, struct sl_error *error) {
    if (!operands->name)
        return sl_error_set(error, SL_BAD_INPUT, "\"%.80s\": no such argument%s", word,
                            *word ? "; options begin with --" : "");
    if (!*word) return sl_error_set(error, SL_BAD_INPUT, "\"\": no such argument");
    const char **list = realloc(operands->word, ((size_t)operands->count + 1) * sizeof *list);
    if (!list) return sl_error_set(error, SL_FAILED, "out of memory");
    operands->word = list;
    operands->word[operands->count++] = word;
    return SL_OK;
}
