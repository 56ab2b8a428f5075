/* not_finite.h - names the first result of a training step that is not finite.
 *
 * While a step is taken, nobody looks: that would cost a pass over all activations. Where its loss or its gradients
 * have turned out not to be finite, the step is taken again from the same values, with context->not_finite set, and
 * every result of every module is looked at. The first one is the one that no other can have caused: values of
 * parameters come before results of forward, these before gradients of activations, and these before gradients of
 * parameters; earlier microbatches before later ones; and of one microbatch's, forward, earlier stages before later
 * ones, and the other way round in backward. Of modules within each other, the innermost is named. */
#ifndef SL_LAYERS_MODULES_NOT_FINITE_H
#define SL_LAYERS_MODULES_NOT_FINITE_H

#include "layers/modules/module.h"

SL_BEGIN_C

enum { SL_NOT_FINITE_TEXT = 480 };

/* What a coordinate has found so far. */
struct sl_not_finite {
    struct sl_spmd *self; /* its stage and microbatch are those of self->doing */
    int pass;             /* of the step; set before each */
    struct sl_not_finite_order {
        int32_t phase, pass, microbatch, stage;
    } order; /* of what was found; smaller ones come first */
    char text[SL_NOT_FINITE_TEXT];
    char path[160]; /* of the modules that are being called: "blocks.0.layers.1" */
};

/* Nothing has been found. */
void sl_not_finite_begin(struct sl_not_finite *found, struct sl_spmd *self);
/* Looks at this coordinate's values of all parameters. */
void sl_not_finite_values(struct sl_not_finite *found, const struct sl_parameters *parameters);
/* Collective over WORLD: TEXT is what the coordinate that comes first has found, the same on all: "the result of
 * blocks.0.input_dense (dense), ...". */
int sl_not_finite_agree(struct sl_not_finite *found, const struct sl_group *world, char text[SL_NOT_FINITE_TEXT]);

SL_END_C
#endif
