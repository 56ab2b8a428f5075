/* names.h - finds names in a list of any length: a hash table of places in the list. The list's owner returns the name
 * at a place, so names are stored once. */
#ifndef SL_LAYERS_FORMATS_STORES_NAMES_H
#define SL_LAYERS_FORMATS_STORES_NAMES_H

#include "spmd/base/error.h"

SL_BEGIN_C

/* Zero-initialize; free with sl_names_free. */
struct sl_names {
    int count; /* places, from 0 on */
    int slots; /* a power of two, at least twice the places */
    int *slot; /* a place + 1; 0: none */
};

/* Returns the name at PLACE of LIST. */
typedef const char *sl_name_at(const void *list, int place);

/* Adds the next place of LIST, number names->count, whose name is already in the list. SL_FAILED if memory is short. */
int sl_names_add(struct sl_names *names, const void *list, sl_name_at *name_at);
/* The first place of LIST with NAME; -1: none. */
int sl_names_find(const struct sl_names *names, const void *list, sl_name_at *name_at, const char *name);
/* Rebuilds the table, after LIST was sorted. */
void sl_names_renew(struct sl_names *names, const void *list, sl_name_at *name_at);
void sl_names_free(struct sl_names *names);

SL_END_C
#endif
