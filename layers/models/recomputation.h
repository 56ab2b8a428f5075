/* recomputation.h - what models compute again for backward rather than keep. */
#ifndef SL_LAYERS_MODELS_RECOMPUTATION_H
#define SL_LAYERS_MODELS_RECOMPUTATION_H

enum sl_recomputation {
    SL_RECOMPUTE_NONE,
    SL_RECOMPUTE_SELECTIVE, /* a part of each layer, which the model chooses */
    SL_RECOMPUTE_FULL       /* whole layers: only their inputs are kept */
};

#endif
