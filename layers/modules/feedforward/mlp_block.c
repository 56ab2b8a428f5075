/* mlp_block.c - the looping pipeline's layer: a residual MLP with its norm in front. */
#include "layers/modules/modules.h"

struct sl_module *sl_mlp_block(const char *name, int hidden, int expansion, double rate) {
    const int inside = hidden * expansion;
    struct sl_module *const layer[] = {
        sl_layer_norm("pre_norm", hidden),
        sl_dense("input_dense", hidden, inside),
        sl_silu_dropout(inside, rate),
        sl_dense("output_dense", inside, hidden),
    };
    return sl_residual(sl_sequential(name, 4, layer));
}
