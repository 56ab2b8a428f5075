/* patterns.h - checks that name patterns match parameters of the whole model. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_PATTERNS_H
#define SL_LAYERS_MODULES_PARAMETERS_PATTERNS_H

#include "layers/modules/parameters/parameters.h"

SL_BEGIN_C

/* Returns SL_BAD_INPUT if one of the patterns in PARAMETERS' frozen and adapters matches no parameter of any stage, or
 * if all parameters are frozen. Collective over WORLD, all coordinates. */
int sl_check_patterns(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters);

SL_END_C
#endif
