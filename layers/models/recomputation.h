/* recomputation.h - parts of a model to recompute in backward, instead of saving their activations. */
#ifndef SL_LAYERS_MODELS_RECOMPUTATION_H
#define SL_LAYERS_MODELS_RECOMPUTATION_H

enum sl_recomputation {
    SL_RECOMPUTE_NONE,
    SL_RECOMPUTE_SELECTIVE, /* a part of each layer, which the model chooses */
    SL_RECOMPUTE_FULL,      /* whole layers: only their inputs are saved */
    SL_RECOMPUTE_BLOCK      /* whole blocks of layers: only the blocks' inputs are saved */
};

#endif
