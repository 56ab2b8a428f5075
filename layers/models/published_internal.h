/* published_internal.h - what the files of published models share: published.c has the tensors, published_sizes.c what
 * their files say of them. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_INTERNAL_H
#define SL_LAYERS_MODELS_PUBLISHED_INTERNAL_H

#include "layers/models/published.h"

/* Fills in all but the weights. */
int sl_read_published_sizes(struct sl_published *published, struct sl_error *error);

#endif
