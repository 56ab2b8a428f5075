/* lora_internal.h - adapters beside the dense layers of sharded_dense.c, which makes them. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LORA_INTERNAL_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LORA_INTERNAL_H

#include "layers/modules/transformer_modules.h"

/* Of the whole layer. */
struct sl_lora_shape {
    int in, out;
    int segments_in, segments_out;
    bool sums; /* all coordinates have all of y, and summands of its gradient */
};

/* The module NAME: DENSE, which it owns from the call on and which has no name of its own, with channels->lora beside
 * it. NULL, and DENSE is freed, if there is no memory. */
struct sl_module *sl_lora_beside(const char *name, struct sl_module *dense, const struct sl_lora_shape *shape,
                                 const struct sl_channels *channels);

#endif
