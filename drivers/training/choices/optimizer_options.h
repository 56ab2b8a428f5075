/* optimizer_options.h - options that select an optimizer: --optimizer and its settings.
 *
 *     struct config { struct sl_optimizer_flags optimizer; } config = {.optimizer = sl_optimizer_flags_defaults()};
 *     struct sl_options options = {.section = SL_SECTIONS(sl_optimizer_section(&config.optimizer))};
 *     ... sl_options_parse ...
 *     sl_optimizer_choose(&config.optimizer, learning_rate, &trainer_options.optimizer, &error); */
#ifndef SL_DRIVERS_TRAINING_CHOICES_OPTIMIZER_OPTIONS_H
#define SL_DRIVERS_TRAINING_CHOICES_OPTIMIZER_OPTIONS_H

#include "drivers/common/options.h"
#include "layers/training/optimizers/optimizer.h"

struct sl_optimizer_flags {
    const char *name; /* as in the table of optimizers */
    /* NAN: not given; the optimizer's default applies. */
    double weight_decay, beta1, beta2, epsilon, momentum;
    bool nesterov, decay_biases;
    /* Filled in by sl_optimizer_section: the help lists the optimizers, and for each setting the optimizers with it. */
    struct sl_option table[10];
    char help[10][512], read[10][128];
};

struct sl_optimizer_flags sl_optimizer_flags_defaults(void);

/* Returns the section that fills in FLAGS, which must not move until the options have been parsed. */
struct sl_option_section sl_optimizer_section(struct sl_optimizer_flags *flags);

/* Fills in OPTIONS. Returns SL_BAD_INPUT with a list of optimizers if the name is unknown, or with the name of a
 * flag that the optimizer does not use. */
int sl_optimizer_choose(const struct sl_optimizer_flags *flags, double learning_rate,
                        struct sl_optimizer_options *options, struct sl_error *error);

#endif
