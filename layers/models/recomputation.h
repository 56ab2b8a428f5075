/* recomputation.h - what a model computes again for backward instead of keeping it. */
#ifndef SL_LAYERS_MODELS_RECOMPUTATION_H
#define SL_LAYERS_MODELS_RECOMPUTATION_H

enum sl_recomputation {
    SL_RECOMPUTE_NONE,
    SL_RECOMPUTE_SELECTIVE, /* a part of each layer; the model chooses which */
    SL_RECOMPUTE_FULL,      /* whole layers: only their inputs are kept */
    SL_RECOMPUTE_BLOCK      /* whole blocks of layers: only the blocks' inputs are kept */
};

#endif
