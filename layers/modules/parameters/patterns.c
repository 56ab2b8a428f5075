/* patterns.c - checks that name patterns match parameters of the whole model. */
#include "layers/modules/parameters/patterns.h"

/* Checks that each pattern of LIST, the option WHAT, matches a parameter of some stage. *TRAINED is the number of
 * parameters that train. In a plan on paper (collectives/paper.h) peers do not answer, and other stages' parameters are
 * unknown: *TRAINED is 1. */
static int check_list(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                      const char *what, const char *list, float *trained) {
    enum { MOST = 64 };
    float found[MOST + 2] = {
        0}; /* matches of each pattern; number of trained parameters; number of coordinates that answer */
    char pattern[SL_MAX_PATTERN];
    int patterns = 0;
    while (patterns <= MOST && sl_pattern_at(list, patterns, pattern)) patterns++;
    if (patterns > MOST) return sl_fail(self, SL_BAD_INPUT, "%s: more than %d patterns", what, MOST);
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        found[patterns] += !parameter->frozen;
        for (int p = 0; sl_pattern_at(list, p, pattern); p++) found[p] += sl_patterns_match(pattern, parameter->name);
    }
    found[patterns + 1] = 1;
    SL_TRY(sl_psum(self, world, SL_F32, found, found, (size_t)patterns + 2));
    const bool all_say = found[patterns + 1] == (float)world->size;
    *trained = all_say ? found[patterns] : 1;
    for (int p = 0; all_say && sl_pattern_at(list, p, pattern); p++)
        if (found[p] == 0.0f)
            return sl_fail(self, SL_BAD_INPUT,
                           "%s: no parameter matches \"%.80s\": names are those in checkpoints, as --show-shardings "
                           "lists them",
                           what, pattern);
    return SL_OK;
}

int sl_check_patterns(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters) {
    const char *frozen = parameters->frozen, *adapters = parameters->adapters;
    float trained = 1;
    if (adapters) SL_TRY(check_list(self, world, parameters, "adapters", adapters, &trained));
    if (frozen) SL_TRY(check_list(self, world, parameters, "freeze", frozen, &trained));
    if (!frozen || trained > 0.0f) return SL_OK;
    return sl_fail(self, SL_BAD_INPUT, "freeze: \"%.80s\" matches all parameters: none is left to train", frozen);
}
