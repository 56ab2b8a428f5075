/* lora_internal.h - adapters beside the dense layers of sharded_dense.c, which constructs them. */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_LORA_INTERNAL_H
#define SL_LAYERS_MODULES_FEEDFORWARD_LORA_INTERNAL_H

#include "layers/modules/transformer_modules.h"

/* Shape of the whole layer. */
struct sl_lora_shape {
    int in, out;
    int segments_in, segments_out;
    bool sums; /* all coordinates have all of y, and summands of its gradient */
};

/* Constructs the module NAME: DENSE with channels->lora beside it. Takes ownership of DENSE, which has no name of its
 * own. If there is no memory, frees DENSE and returns NULL. */
struct sl_module *sl_lora_beside(const char *name, struct sl_module *dense, const struct sl_lora_shape *shape,
                                 const struct sl_channels *channels);

#endif
