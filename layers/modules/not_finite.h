/* not_finite.h - names the first result of a training step that is not finite.
 *
 * Steps do not check their results, because that would cost a pass over all activations. If a step's loss or gradients
 * are not finite, the step is repeated from the same values with context->inspector set, and every result of every
 * module is checked. The first result is the one that no other can have caused: values of parameters come before
 * results of forward, these before gradients of activations, and these before gradients of parameters; earlier
 * microbatches before later ones; within a microbatch, earlier stages before later ones in forward, later before
 * earlier in backward. The innermost of nested modules is named. */
#ifndef SL_LAYERS_MODULES_NOT_FINITE_H
#define SL_LAYERS_MODULES_NOT_FINITE_H

#include "layers/modules/module.h"

SL_BEGIN_C

enum { SL_NOT_FINITE_TEXT = 480 };

/* First result found so far by a coordinate. */
struct sl_not_finite {
    struct sl_inspector inspector; /* for context->inspector */
    struct sl_spmd *self;          /* its stage and microbatch are in self->doing */
    int pass;                      /* pass of the step; set before each pass */
    struct sl_not_finite_order {
        int32_t phase, pass, microbatch, stage;
    } order; /* order of the result; smaller comes first */
    char text[SL_NOT_FINITE_TEXT];
    char path[160]; /* path of the modules being called: "blocks.0.layers.1" */
};

/* Begins with no result found. */
void sl_not_finite_begin(struct sl_not_finite *found, struct sl_spmd *self);
/* Checks this coordinate's values of all parameters. */
void sl_not_finite_values(struct sl_not_finite *found, const struct sl_parameters *parameters);
/* Agrees on the first result of all coordinates. Collective over WORLD; TEXT is the same on all: "the result of
 * blocks.0.input_dense (dense), ...". */
int sl_not_finite_agree(struct sl_not_finite *found, const struct sl_group *world, char text[SL_NOT_FINITE_TEXT]);

SL_END_C
#endif
